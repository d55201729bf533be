"""Members that the loader does not load: each is a finding of its own, the others are asked, and nothing unproved is written."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from relink.library import relink
from relink.loader import dryrun
from relink.planning.options import Options
from relink.runs.questions import explain, verify_wheel
from relink.system.findings.model import Finding
from tests.support.cc import cc, shared
from tests.support.elf_builder import DF_1_PIE, SUPPORTED, WHY_NOT, Library
from tests.support.forking import run as forked
from tests.support.works import OUTPUT, VENDOR_PATH, Works

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

BAD = Library(soname="libbad.so.1")
REFUSED = {
    "a TiB of zeros": (replace(BAD, memory=1 << 40), "failed to map segment from shared object"),
    "64 TiB of zeros": (replace(BAD, memory=1 << 46), "failed to map segment from shared object"),
    "aligned to 32 TiB": (replace(BAD, align=1 << 47), "failed to map segment from shared object"),
    "not page-aligned": (replace(BAD, skew=0x10), "ELF load command address/offset not page-aligned"),
}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    yield directory
    assert os.listdir(directory) == []


def only(findings: tuple[Finding, ...], code: str) -> Finding:
    (found,) = (item for item in findings if item.code == code)
    return found


def codes(findings: tuple[Finding, ...]) -> set[str]:
    return {found.code for found in findings if found.level == "error"}


@pytest.mark.parametrize("case", REFUSED)
def test_verify(works: Works, tmp_path: Path, case: str) -> None:
    library, reason = REFUSED[case]
    bad = library.write(tmp_path / "libbad.so.1")
    files: dict[str, bytes | Path] = {"demo/bad.so": bad, "demo/plain.so": works.plain}
    result = verify_wheel(works.wheel(tmp_path, files), Options())
    found = only(result.findings, "RLK116")
    assert codes(result.findings) == {"RLK116"}
    assert (found.subject, found.level) == ("demo/bad.so", "error")
    assert found.message.startswith(f"the loader does not load it: {reason}")
    assert result.maps["demo/plain.so"].objects


@pytest.mark.parametrize("case", [case for case in REFUSED if case != "not page-aligned"])
def test_one_that_a_relinked_member_needs(works: Works, tmp_path: Path, case: str) -> None:
    """What no simulation foresees keeps the wheel from being written, and names the file that is at fault."""
    library, reason = REFUSED[case]
    bad = library.write(tmp_path / "libbad.so.1")
    using = shared(
        tmp_path / "using.so",
        "extern int hip(void); int g(void){return hip();}",
        needed=[works.prefix / "lib" / "libhip.so.7", shared(tmp_path / "stub" / "libbad.so.1")],
        flags=[f"{VENDOR_PATH}:$ORIGIN", "-Wl,--no-as-needed"],
    )
    files: dict[str, bytes | Path] = {
        "demo/using.so": using,
        "demo/libbad.so.1": bad,
        "demo/a.so": works.library,
    }
    report = relink(works.wheel(tmp_path, files), works.options(tmp_path / "out"))
    assert codes(report.findings) == {"RLK116"}
    found = only(report.findings, "RLK116")
    assert found.subject == "demo/using.so"
    assert f"the loader does not load $WHEEL/demo/libbad.so.1, which it needs: {reason}" in found.message, (
        found
    )
    assert not (tmp_path / "out").exists()


def test_what_the_loader_says_of_another_member_stays_with_force(works: Works, tmp_path: Path) -> None:
    """An error of the plan about one member hides none of the same code that the loader finds about another."""
    foreseen = REFUSED["not page-aligned"][0].write(tmp_path / "libfore.so.1")
    unforeseen = REFUSED["a TiB of zeros"][0].write(tmp_path / "libbad.so.1")
    using = shared(
        tmp_path / "using.so",
        "extern int hip(void); int g(void){return hip();}",
        needed=[works.prefix / "lib" / "libhip.so.7", shared(tmp_path / "stub" / "libbad.so.1")],
        flags=[f"{VENDOR_PATH}:$ORIGIN", "-Wl,--no-as-needed"],
    )
    files: dict[str, bytes | Path] = {
        "demo/fore.so": foreseen,
        "demo/libbad.so.1": unforeseen,
        "demo/using.so": using,
    }
    report = relink(works.wheel(tmp_path, files), works.options(tmp_path / "out", force=True))
    assert report.output is not None
    found = {item.subject for item in report.findings if item.code == "RLK116"}
    assert found == {"demo/fore.so", "demo/using.so"}


def test_without_verification_it_is_written(works: Works, tmp_path: Path) -> None:
    """What was not asked about is the user's word."""
    bad = REFUSED["64 TiB of zeros"][0].write(tmp_path / "libbad.so.1")
    files: dict[str, bytes | Path] = {"demo/a.so": works.library, "demo/bad.so": bad}
    report = relink(works.wheel(tmp_path, files), works.options(tmp_path / "out", verify=False))
    assert report.ok
    assert os.listdir(tmp_path / "out") == [OUTPUT]


def test_one_that_is_foreseen_ends_no_run(works: Works, tmp_path: Path) -> None:
    """A bundled library that is not page-aligned is a finding with JSON, by the member's name."""
    bad = REFUSED["not page-aligned"][0].write(tmp_path / "libbad.so.1")
    files: dict[str, bytes | Path] = {"demo/a.so": works.library, "demo/libs/libbad.so.1": bad}
    wheel = works.wheel(tmp_path, files)
    words = [str(wheel), "--prefix", str(works.prefix), "-o", str(tmp_path / "out"), "--json"]
    ended = forked(*words)
    assert ended.returncode == 1, ended.stderr
    assert "relink.invalid" not in ended.stdout + ended.stderr
    report = json.loads(ended.stdout)
    errors = [found for found in report["findings"] if found["level"] == "error"]
    assert [(found["code"], found["subject"]) for found in errors] == [("RLK116", "demo/libs/libbad.so.1")]
    assert errors[0]["message"] == f"the loader does not load it: {REFUSED['not page-aligned'][1]}"
    assert [file["path"] for file in report["files"]] == ["demo/a.so"]
    assert not (tmp_path / "out").exists()
    ignoring = works.options(tmp_path / "out", ignore=("demo/libs/libbad*",))
    assert relink(wheel, ignoring).output is not None
    assert [item.file.path for item in explain(wheel, works.options(tmp_path)).trees] == ["demo/a.so"]


def test_statically_linked_programs_are_left_alone(works: Works, tmp_path: Path) -> None:
    """No loader loads them, so none is asked."""
    tool = Library(flags_1=DF_1_PIE).write(tmp_path / "tool")
    real = cc("int main(void) { return 0; }", tmp_path / "real", "-static-pie")
    files: dict[str, bytes | Path] = {"demo/a.so": works.library, "demo/tool": tool, "demo/real": real}
    report = relink(works.wheel(tmp_path, files), works.options(tmp_path / "out"))
    assert report.ok, report.findings
    told = [found for found in report.findings if found.code == "RLK505"]
    assert {found.subject for found in told} == {"demo/tool", "demo/real"}
    assert {found.level for found in told} == {"info"}


def test_one_that_does_not_end(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is up for this member alone."""
    started = dryrun.start_loader
    calls: list[str] = []

    def slow(*arguments: object, **options: object) -> subprocess.Popen[str]:
        calls.append(str(arguments[2]))
        if len(calls) == 1:
            return subprocess.Popen(
                ["sleep", "99"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        return started(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(dryrun, "start_loader", slow)
    monkeypatch.setattr(dryrun, "DRY_RUN_TIMEOUT", 0.5)
    files: dict[str, bytes | Path] = {"demo/a.so": works.library, "demo/b.so": works.library}
    report = relink(works.wheel(tmp_path, files), works.options(tmp_path / "out"))
    assert len(calls) == 2
    found = only(report.findings, "RLK116")
    assert found.subject == "demo/a.so"
    assert "did not end within 0.5 s" in found.message
    assert not (tmp_path / "out").exists()
