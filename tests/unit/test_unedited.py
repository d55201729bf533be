"""Members that patchelf must not read or cannot edit: findings of those members, and no output whatever the user says."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from relink import library
from relink.elf.patchelf import Patchelf, find_patchelf
from relink.library import relink
from relink.planning.model import Plan
from relink.system.errors import PatchelfError
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Import, Library
from tests.support.works import OUTPUT, VENDOR_PATH, Works, open_wheel

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

ANYWAY: list[dict[str, Any]] = [
    {},
    {"force": True},
    {"ignore": ("RLK6*", "RLK516", "demo/*")},
    {"verify": False},
    {"force": True, "ignore": ("RLK6*", "RLK516"), "verify": False, "sandbox": "off"},
]
"""What a user can say to have an output all the same."""


@pytest.fixture
def unwilling(tmp_path: Path) -> Path:
    """A library without section headers, which the real patchelf refuses."""
    return Library("libx.so", ("libhip.so.7",), imports=(Import("hip"),)).write(tmp_path / "libx.so")


def hostile(works: Works, directory: Path, *flags: str, more: str = "") -> Path:
    """A library that has to be edited, and names an audit library."""
    source = "extern int hip(void); int g(void){return hip();}" + more
    flags = (VENDOR_PATH, "-Wl,--depaudit,libaud.so", *flags)
    return shared(directory / "a.so", source, needed=[works.prefix / "lib" / "libhip.so.7"], flags=flags)


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that names all that patchelf was run on."""
    seen = tmp_path / "seen"
    real = find_patchelf().path
    script = tmp_path / "patchelf"
    script.write_text(f'#!/bin/sh\nfor file; do :; done\ncat "$file" >> {seen}\nexec {real} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr("relink.elf.patchelf.find_patchelf", lambda: Patchelf(str(script), Version("0.19.1")))
    return seen


def test_all_that_cannot_be_edited_is_told_at_once(works: Works, unwilling: Path, tmp_path: Path) -> None:
    members: dict[str, bytes | Path] = {
        "demo/a.so": unwilling,
        "demo/b.so": works.library,
        "demo/c.so": unwilling,
    }
    report = relink(works.wheel(tmp_path, members), works.options(tmp_path / "out"))
    failed = [found for found in report.findings if found.code == "RLK516"]
    assert [(found.subject, found.level) for found in failed] == [
        ("demo/a.so", "error"),
        ("demo/c.so", "error"),
    ]
    assert all(found.message.startswith("patchelf 0.19.") for found in failed)
    assert report.output is None
    assert not (tmp_path / "out").exists()


@pytest.mark.few(2, reason="the same of other values")
@pytest.mark.parametrize("options", ANYWAY)
def test_there_is_no_output_without_an_edit(
    works: Works, unwilling: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    vendor = works.wheel(tmp_path, {"demo/a.so": unwilling, "demo/b.so": works.library})
    report = relink(vendor, works.options(tmp_path / "out", **options))
    assert [found.subject for found in report.findings if found.code == "RLK516"] == ["demo/a.so"]
    assert not report.ok
    assert report.output is None
    assert not (tmp_path / "out").exists()


@pytest.mark.few(2, reason="the same of other values")
@pytest.mark.parametrize("options", ANYWAY)
@pytest.mark.usefixtures("unconfined")
def test_what_the_scan_refuses_never_reaches_patchelf(
    works: Works, tmp_path: Path, reads: Path, options: dict[str, Any]
) -> None:
    vendor = works.wheel(tmp_path, {"demo/a.so": hostile(works, tmp_path), "demo/b.so": works.library})
    report = relink(vendor, works.options(tmp_path / "out", **options))
    (found,) = (found for found in report.findings if found.code == "RLK605")
    assert (found.subject, found.level) == ("demo/a.so", "error")
    assert found.message.startswith("DT_DEPAUDIT: names a library whose code the loader runs")
    assert not report.ok
    assert not (tmp_path / "out").exists()
    assert b"libhip.so.7" in reads.read_bytes(), "the other member is tried"
    assert b"libaud.so" not in reads.read_bytes()


@pytest.mark.usefixtures("unconfined")
def test_a_large_member_is_scanned_too(works: Works, tmp_path: Path, reads: Path) -> None:
    """One that is kept in memory without its gaps."""
    large = '__asm__(".section .large,\\"a\\",@progbits\\n.zero 3000000\\n.previous\\n");'
    member = hostile(works, tmp_path, more=large)
    with ExitStack() as stack:
        wheel = open_wheel(works.wheel(tmp_path, {"demo/a.so": member}), stack)
        assert [*wheel.contents.loaded] == ["demo/a.so"]
    report = relink(works.wheel(tmp_path, {"demo/a.so": member}), works.options(tmp_path / "out", force=True))
    assert [found.subject for found in report.findings if found.code == "RLK605"] == ["demo/a.so"]
    assert not reads.exists()
    assert not (tmp_path / "out").exists()


def test_trust(works: Works, tmp_path: Path) -> None:
    """The file names a configuration, which glibc passes over and patchelf leaves as it is."""
    path = hostile(works, tmp_path, "-Wl,-soname,libodd.so.2")
    data = path.read_bytes()
    audit, config = (tag.to_bytes(8, "little") for tag in (0x6FFFFEFB, 0x6FFFFEFA))
    assert data.count(audit) == 1
    path.write_bytes(data.replace(audit, config))
    vendor = works.wheel(tmp_path, {"demo/a.so": path})
    options = {"sandbox": "require", "trust": ("libodd",)}
    for verify in (True, False):
        report = relink(vendor, works.options(tmp_path / "out", verify=verify, **options))
        assert report.ok, report.findings
        (found,) = (found for found in report.findings if found.code == "RLK606")
        assert (found.subject, found.level) == ("demo/a.so", "warning")
        assert (tmp_path / "out" / OUTPUT).exists()
    assert not relink(vendor, works.options(tmp_path / "other")).ok
    assert not (tmp_path / "other").exists()


@pytest.mark.slow(reason="several runs")
def test_the_command_line(run: Run, works: Works, unwilling: Path, tmp_path: Path) -> None:
    members = {"demo/a.so": unwilling, "demo/b.so": hostile(works, tmp_path)}
    vendor = works.wheel(tmp_path, members)
    out = tmp_path / "out"
    plain = [vendor, "--prefix", works.prefix, "-o", out]
    for more in ([], ["--force"], ["--ignore", "RLK516", "--ignore", "RLK605"], ["--no-verify"]):
        code, out_text, errors = run(*plain, *more, "--json")
        assert code == 1, errors
        report = json.loads(out_text)
        codes = {found["subject"]: found["code"] for found in report["findings"] if found["level"] == "error"}
        assert codes == {"demo/a.so": "RLK516", "demo/b.so": "RLK605"}
        assert report["output"] is None
        assert not out.exists()
    assert run(*plain)[0] == 1


def test_apply(works: Works, unwilling: Path, tmp_path: Path) -> None:
    vendor = works.wheel(tmp_path, {"demo/a.so": unwilling})
    plan = library.plan(vendor, works.options(tmp_path))
    plan.save(tmp_path / "plan.json")
    report = library.apply(Plan.load(tmp_path / "plan.json"), wheel=vendor, output_directory=tmp_path / "out")
    assert [found.code for found in report.findings if found.level == "error"] == ["RLK516"]
    assert not (tmp_path / "out").exists()


def test_patchelf_itself_is_no_members_fault(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "patchelf"
    broken.write_bytes(b"\x7fELF nothing")
    broken.chmod(0o755)
    monkeypatch.setattr("relink.elf.patchelf.find_patchelf", lambda: Patchelf(str(broken), Version("0.19.1")))
    with pytest.raises(PatchelfError, match="cannot be run"):
        relink(works.small(tmp_path), works.options(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_diff_does_not_give_it_to_patchelf(
    works: Works, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    vendor = works.wheel(tmp_path, {"demo/a.so": hostile(works, tmp_path)})
    options = works.options(tmp_path / "out", trust=("demo/a.so",), sandbox="require", verify=False)
    assert relink(vendor, options).ok
    request.getfixturevalue("unconfined")
    seen = request.getfixturevalue("reads")
    compared = library.diff(vendor, tmp_path / "out" / OUTPUT, works.options(tmp_path))
    (said,) = compared.unexplained
    assert said.startswith("relink writes nothing: RLK605 demo/a.so: ")
    assert "DT_DEPAUDIT" in said
    assert not seen.exists()
