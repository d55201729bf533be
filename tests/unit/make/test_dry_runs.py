"""A fault in one of several members that are asked about together is found, as if each had been asked about alone."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relink.library import relink
from relink.loader import dryrun
from relink.loader.dryrun import LoaderMap, dry_run, start_loader
from relink.loader.target import Target
from relink.make import dry_runs as laid_out
from relink.planning.options import Options
from relink.runs.questions import verify_wheel
from relink.system.findings.model import Finding
from relink.system.sandbox.start import Sandbox
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library
from tests.support.forking import run as forked
from tests.support.works import OUTPUT, VENDOR_PATH, Works


@pytest.fixture
def noexec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory from which no file may be mapped as a program, taken although that can be seen."""
    place = tmp_path / "noexec"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "noexec,size=16m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system cannot be mounted here")
    monkeypatch.setattr(laid_out, "temporary_place", lambda _: str(place))
    yield place
    assert os.listdir(place) == []
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.few(1, reason="a mount each")
@pytest.mark.parametrize("named", [{}, {"interpreter": "/lib64/ld-linux-x86-64.so.2"}])
def test_a_place_where_nothing_may_be_run(
    works: Works, tmp_path: Path, noexec: Path, named: dict[str, str]
) -> None:
    """Not even the target's own C library is mapped from there, so no member is blamed, and nothing is proved."""
    report = relink(works.wheel(tmp_path), works.options(tmp_path / "out", **named))
    (found,) = (item for item in report.findings if item.level == "error")
    assert (found.code, report.output) == ("RLK602", None)
    assert found.message.startswith(f"{noexec}: the loader may not map files from there")
    assert "set TMPDIR to where programs may be run" in found.message
    assert "relink-probe" not in found.message
    assert not (tmp_path / "out").exists()
    told = verify_wheel(works.wheel(tmp_path), Options(**named)).findings  # type: ignore[arg-type]
    assert "RLK602" in [item.code for item in told if item.level == "error"]


def test_the_place_is_asked_about_once(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Less than the static scan refuses, and more than any machine maps.
    bad = Library(soname="libbad.so.1", memory=1 << 46).write(tmp_path / "bad.so").read_bytes()
    asked: list[str] = []

    def noted(target: Target, path: str, sandbox: Sandbox | None) -> LoaderMap:
        asked.append(path)
        return dry_run(target, path, sandbox=sandbox)

    monkeypatch.setattr(laid_out, "dry_run", noted)
    files: dict[str, bytes | Path] = {f"demo/bad{number}.so": bad for number in range(3)}
    findings = verify_wheel(works.wheel(tmp_path, files), Options()).findings
    assert [found.subject for found in findings if found.code == "RLK116"] == list(files)
    assert len(asked) == 1


def test_too_little_address_space_is_no_fact_about_the_wheel(works: Works, tmp_path: Path) -> None:
    """A library that fits into the memory of any machine does not fit into this process: exit code 2, and the limit is named."""
    if not SUPPORTED:
        pytest.skip(WHY_NOT)
    large = Library(soname="liblarge.so.1", memory=3 << 30).write(tmp_path / "liblarge.so.1")
    wheel = works.wheel(tmp_path, {"demo/large.so": large})

    assert forked("verify", wheel).returncode == 0
    ended = forked("verify", wheel, limits={resource.RLIMIT_AS: 2 << 30})
    assert ended.returncode == 2, ended.stdout
    assert "there is not enough memory" in ended.stderr
    assert f"(its limit is {2 << 30})" in ended.stderr
    assert "RLK" not in ended.stdout
    assert "fault of relink" not in ended.stderr


def test_the_usual_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert laid_out.temporary_place("/") == str(tmp_path)


MEMBERS = ("one", "two", "three")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Have members asked about together however little that saves; notes of each start whether symbols are looked up."""
    calls: list[bool] = []

    def start(*arguments: object, symbols: bool) -> object:
        calls.append(symbols)
        return start_loader(*arguments, symbols=symbols)  # type: ignore[arg-type]

    monkeypatch.setattr(dryrun, "START_COST", 0)
    monkeypatch.setattr("relink.loader.dryrun.start_loader", start)
    return calls


@pytest.fixture
def wheel(works: Works, tmp_path: Path) -> Callable[..., Path]:
    def make(**calls: str) -> Path:
        members: dict[str, bytes | Path] = {}
        for name in MEMBERS:
            source = f"extern int {calls.get(name, 'hip')}(void); int in_{name}(void) {{ return {calls.get(name, 'hip')}(); }}"
            flags = [VENDOR_PATH, "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
            hip = works.prefix / "lib" / "libhip.so.7"
            members[f"demo/{name}.so"] = shared(tmp_path / f"{name}.so", source, needed=[hip], flags=flags)
        return works.wheel(tmp_path, members)

    return make


def errors(findings: tuple[Finding, ...]) -> set[tuple[str, str]]:
    return {(item.code, item.subject) for item in findings if item.level == "error"}


def test_symbols_are_looked_up_once(
    works: Works, wheel: Callable[..., Path], started: list[bool], tmp_path: Path
) -> None:
    report = relink(wheel(), works.options(tmp_path / "out"))
    assert (report.ok, report.verified) == (True, 3)
    assert sorted(started) == [False, False, False, True]


@pytest.mark.parametrize("faulty", MEMBERS)
def test_an_open_symbol_of_one_of_them(
    works: Works, wheel: Callable[..., Path], started: list[bool], tmp_path: Path, faulty: str
) -> None:
    vendor = wheel(**{faulty: "vanished"})
    relink(vendor, works.options(tmp_path / "out", force=True))
    result = verify_wheel(tmp_path / "out" / OUTPUT, Options())
    for name in MEMBERS:
        lines = [line for line in result.maps[f"demo/{name}.so"].problems if "vanished" in line]
        assert bool(lines) is (name == faulty)
    assert started.count(True) == 2  # once for each of the two verifications


def test_each_is_asked_alone_where_the_joint_answer_is_another(
    works: Works,
    wheel: Callable[..., Path],
    started: list[bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The simulation of the joint run names a library that the loader does not map."""
    monkeypatch.setattr("relink.make.dry_runs.mapped_by", lambda _: ((), ("libother.so",)))
    report = relink(wheel(), works.options(tmp_path / "out"))
    assert started == [True, True, True, True]
    assert report.verified == 3
