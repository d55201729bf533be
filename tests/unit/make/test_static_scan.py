"""Files that could act in a dry run: never given to the real loader, and said so; the others are asked about."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.library import relink
from relink.loader.dryrun import LoaderMap, dry_runs
from relink.loader.scan import scan
from relink.loader.scan_relocations import Refusal
from relink.loader.target import Target, find_target
from relink.planning.options import Options
from relink.runs.questions import VerifiedWheel, verify_wheel
from relink.system.budget import RunBudget
from relink.system.errors import UsageError
from relink.system.findings.model import Finding
from relink.system.sandbox.start import Sandbox
from tests.support.cc import shared
from tests.support.elf_attacks import FAR, audited, jumping, moved, rewritten
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Export
from tests.support.works import OUTPUT, Works

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


def hostile(tmp_path: Path) -> bytes:
    return moved(jumping(tmp_path / "jumping.so", tmp_path / "canary"), FAR)


def refused(result: VerifiedWheel, code: str = "RLK605") -> list[Finding]:
    return [found for found in result.findings if found.code == code]


@pytest.mark.parametrize("tag", ["DT_AUDIT", "DT_DEPAUDIT"])
@pytest.mark.parametrize("interpreter", [False, True])
def test_an_audit_library_does_not_run(works: Works, tmp_path: Path, tag: str, *, interpreter: bool) -> None:
    program, library = audited(tmp_path, tmp_path / "canary", tag)
    vendor = works.wheel(
        tmp_path, {"demo/prog": program, "demo/libaud.so": library, "demo/plain.so": works.plain}
    )
    options = Options(interpreter=find_target().interpreter) if interpreter else Options()
    result = verify_wheel(vendor, options)
    (found,) = refused(result)
    assert (found.subject, found.level) == ("demo/prog", "error")
    assert found.message.startswith(f"{tag}: names a library whose code the loader runs")
    assert [*result.maps] == ["demo/libaud.so", "demo/plain.so"]
    assert not (tmp_path / "canary").exists()


def test_what_needs_a_refused_file_is_not_asked_about(works: Works, tmp_path: Path) -> None:
    needs = shared(tmp_path / "needs.so", needed=[jumping(tmp_path / "jumping.so", tmp_path / "canary")])
    found = shared(tmp_path / "found.so", needed=[tmp_path / "jumping.so"], flags=["-Wl,-rpath,$ORIGIN"])
    members: dict[str, bytes | Path] = {
        "demo/jumping.so": hostile(tmp_path),
        "demo/found.so": found,
        "demo/needs.so": needs,
    }
    result = verify_wheel(works.wheel(tmp_path, {**members, "demo/plain.so": works.plain}), Options())
    (item,) = refused(result)
    assert item.subject == "demo/jumping.so"
    assert item.message.startswith("relocation 0 of DT_RELA: writes 8 bytes at 0x7f000000")
    assert item.message.endswith("Not asked about either, since they need it: demo/found.so")
    assert [*result.maps] == ["demo/needs.so", "demo/plain.so"]
    assert "RLK601" not in {other.code for other in result.findings}


def test_nothing_is_written(works: Works, tmp_path: Path) -> None:
    """The member changes, since it needs a library of the prefix."""
    flags = ["-Wl,--depaudit,libaud.so", "-Wl,-rpath,/opt/rocm-0.0.0/lib"]
    source = "extern int hip(void); int g(void){return hip();}"
    member = shared(tmp_path / "a.so", source, needed=[works.prefix / "lib" / "libhip.so.7"], flags=flags)
    report = relink(works.wheel(tmp_path, {"demo/a.so": member}), works.options(tmp_path / "out"))
    assert not report.ok
    assert ("RLK605", "demo/a.so") in [(found.code, found.subject) for found in report.findings]
    assert not (tmp_path / "out" / OUTPUT).exists()


def prefix_with(works: Works, directory: Path, library: bytes) -> Path:
    shutil.copytree(works.prefix, directory)
    (directory / "lib" / "libhip.so.7").write_bytes(library)
    return directory


def test_a_library_of_the_prefix(works: Works, tmp_path: Path) -> None:
    library = rewritten(soname="libhip.so.7", exports=(Export("hip"),), relocations=((FAR, 8, 0, 0),))
    prefix = prefix_with(works, tmp_path / "rocm", library)
    options = dataclasses.replace(
        works.options(tmp_path / "out"), prefixes=(str(prefix),), assume_symbols=("nowhere",)
    )
    report = relink(works.small(tmp_path), options)
    (found,) = (found for found in report.findings if found.code == "RLK605")
    assert found.subject == str(prefix / "lib" / "libhip.so.7")
    assert found.message.endswith("Not asked about either, since they need it: demo/a.so")


def test_a_library_that_relink_cannot_read(works: Works, tmp_path: Path) -> None:
    """The loader may see in it what relink does not."""
    good = relink(works.small(tmp_path), works.options(tmp_path / "out"))
    assert good.ok
    library = tmp_path / "lib.so"
    needs = shared(library, needed=[shared(tmp_path / "libodd.so")], flags=[f"-Wl,-rpath,{tmp_path}"])
    # A second soname, outside of the string table.
    (tmp_path / "libodd.so").write_bytes(rewritten(soname=None, entries=((14, 1 << 30),)))
    result = verify_wheel(works.wheel(tmp_path, {"demo/lib.so": needs}), Options())
    (found,) = refused(result)
    assert found.subject == str(tmp_path / "libodd.so")
    assert "cannot be read (damaged dynamic section" in found.message
    assert result.maps == {}


# What the user knows


def test_trust_needs_the_sandbox(works: Works, tmp_path: Path) -> None:
    for sandbox in ("auto", "off"):
        with pytest.raises(UsageError, match="give --sandbox require with it"):
            verify_wheel(works.wheel(tmp_path), Options(trust=("*",), sandbox=sandbox))


def test_trust(works: Works, tmp_path: Path) -> None:
    """The file names a configuration, which glibc passes over."""
    odd = rewritten(soname="libx.so.2", imports=(), entries=((0x6FFFFEFA, "x.conf"),))
    vendor = works.wheel(tmp_path, {"demo/odd.so": odd, "demo/plain.so": works.plain})
    for pattern in ("libx", "libx.so", "libx.so.2", "demo/*.so"):
        result = verify_wheel(vendor, Options(trust=(pattern, "libother*"), sandbox="require"))
        (found,) = refused(result, "RLK606")
        assert (found.subject, found.level) == ("demo/odd.so", "warning")
        assert found.message == "DT_CONFIG: names a configuration file for the loader"
        assert [*result.maps] == ["demo/odd.so", "demo/plain.so"]
        (unused,) = refused(result, "RLK109")
        assert (unused.subject, unused.message) == ("libother*", "--trust: no file of that name was refused")
        assert not refused(result)


def test_a_loader_that_calls_resolvers(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = replace(find_target(), glibc="2.14")
    monkeypatch.setattr("relink.planning.case.find_target", lambda **_: target)
    result = verify_wheel(works.wheel(tmp_path), Options())
    (found,) = refused(result, "RLK602")
    assert "glibc 2.14 runs code of libraries in a dry run; 2.15 is needed" in found.message
    assert result.maps == {}


def test_each_file_is_scanned_once(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many members share a closure."""
    scanned: list[bytes] = []

    def noted(buffer: bytes) -> tuple[Refusal, ...]:
        scanned.append(bytes(buffer))
        return scan(buffer)

    monkeypatch.setattr("relink.make.static_scan.scan", noted)
    members = {f"demo/{name}.so": works.library for name in "abc"}
    report = relink(works.wheel(tmp_path, members), works.options(tmp_path / "out"))
    assert report.ok
    files = [path for path in (works.prefix / "lib").iterdir() if path.is_file()]
    for path in (*files, Path(os.path.realpath(find_target().libc_directory)) / "libc.so.6"):
        assert scanned.count(path.read_bytes()) == 1, path


def test_a_refused_member_lies_where_no_loader_finds_it(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should the loader want a file that the simulation does not know of, it is not there."""
    seen: list[str] = []

    def noted(
        target: Target,
        programs: Sequence[tuple[str, Sequence[str]]],
        sandbox: Sandbox | None,
        *,
        symbols: bool,
        budget: RunBudget,
    ) -> AbstractContextManager[Iterator[LoaderMap]]:
        paths = [path for program, preloads in programs for path in (program, *preloads)]
        (directory,) = {os.path.dirname(path) for path in paths if path.endswith("/demo/plain.so")}
        seen.extend(os.listdir(directory))
        return dry_runs(target, programs, sandbox, symbols=symbols, budget=budget)

    monkeypatch.setattr("relink.make.verification.dry_runs", noted)
    members: dict[str, bytes | Path] = {"demo/jumping.so": hostile(tmp_path), "demo/plain.so": works.plain}
    verify_wheel(works.wheel(tmp_path, members), Options())
    assert seen == ["plain.so"]
