"""The second readers on the way to an output: silent where all is well, an error that keeps it from being published."""

from __future__ import annotations

import struct
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.elf.patchelf import Edited
from relink.elf.symbol_reader import read_symbols
from relink.library import relink
from relink.make.second_readers import refusals, reread_files, reread_wheel
from relink.planning.model.model import FilePlan, NeededDecision
from relink.system.findings.model import finding
from relink.wheel.archive import WheelArchive
from tests.support.edits import apply_edit
from tests.support.works import Works
from tests.unit.wheel.build import DIST_INFO, FILENAME, RawZip, good_entries, make_wheel, write_raw

FILES = {
    "demo_pkg/a.py": b"a = 1\n",
    "demo_pkg/b, c.py": b"",
    "demo_pkg/sub/": b"",
    "demo_pkg/\u00e4.py": b"x",
}
RECORD = f"{DIST_INFO}/RECORD"


def members(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def test_a_good_wheel(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, FILES)
    with WheelArchive(path) as archive:
        assert refusals(path, archive.members) == []


LINES = {
    "no line for a member": (f"{RECORD},,\n", "cannot: No hash found for file 'demo_pkg/a.py'"),
    "two fields": ("demo_pkg/a.py,\n", "wheel cannot: not enough values to unpack"),
    "a weak hash": ("demo_pkg/a.py,md5=AAAA,6\n", "Weak hash algorithm"),
    "an unknown hash": ("demo_pkg/a.py,sha0=AAAA,6\n", "Unsupported hash algorithm: sha0"),
    "no algorithm": ("demo_pkg/a.py,AAAA,6\n", "wheel cannot: "),
    "no base64": ("demo_pkg/a.py,sha256=A,6\n", "wheel cannot: "),
}


@pytest.mark.parametrize("case", LINES)
def test_lines_of_record(tmp_path: Path, case: str) -> None:
    lines, said = LINES[case]
    path = make_wheel(tmp_path, {"demo_pkg/a.py": b"a = 1\n", RECORD: lines.encode()})
    issues = refusals(path, members(path))
    assert issues
    assert said in issues[0]


def test_a_record_that_is_not_utf_8(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, {"demo_pkg/a.py": b"", RECORD: b"\xff,,\n"})
    assert "utf-8" in refusals(path, members(path))[0]


def test_no_record_where_it_looks(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, dist_info="Demo.Pkg-1.0.dist-info")
    with WheelArchive(path) as archive:
        (issue,) = refusals(path, archive.members)
    assert issue == f"relink can open it, wheel cannot: Missing {RECORD} file"


def test_a_name(tmp_path: Path) -> None:
    path = make_wheel(tmp_path).rename(tmp_path / "demo_pkg.whl")
    assert refusals(path, []) == ["relink can open it, wheel cannot: Bad wheel filename 'demo_pkg.whl'"]


def test_other_members(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, FILES)
    names = members(path)
    assert refusals(path, names[1:])[0].endswith(f"member {names[1]!r}, wheel reads {names[0]!r}")
    assert len(refusals(path, [f"x{name}" for name in names * 9])) <= 6
    assert refusals(path, [*names, "demo_pkg/z.py"]) == [
        "relink has written the member 'demo_pkg/z.py', wheel reads None"
    ]


def test_a_local_header_of_another_name(tmp_path: Path) -> None:
    entries = good_entries()
    entries[0].local_name = b"demo_pkg/x.py"
    path = write_raw(tmp_path, RawZip(entries))
    (issue,) = refusals(path, members(path))
    assert "relink can read the member 'demo_pkg/a.py', wheel cannot: File name in directory" in issue


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / FILENAME).write_bytes(b"PK")
    assert refusals(tmp_path / FILENAME, []) == ["relink can open it, wheel cannot: File is not a zip file"]


@pytest.fixture
def planned(works: Works, tmp_path: Path) -> FilePlan:
    report = relink(works.small(tmp_path), works.options(tmp_path, dry_run=True))
    (file,) = report.files
    return file


def edited(works: Works, file: FilePlan, tmp_path: Path) -> Edited:
    original = works.library.read_bytes()
    path = tmp_path / "a.so"
    path.write_bytes(original)
    return Edited(apply_edit(path, file.edit, read_image(original, file.path), original), path.read_bytes())


def found(works: Works, file: FilePlan, after: Edited) -> list[str]:
    data = works.library.read_bytes()
    images, tables = {file.path: read_image(data, file.path)}, {file.path: read_symbols(data)}
    findings = [*reread_files([file], images, tables, {file.path: after})]
    assert all((one.code, one.level, one.subject) == ("RLK610", "error", file.path) for one in findings)
    return [one.message for one in findings]


def test_nothing_is_found_where_the_plan_was_carried_out(
    works: Works, planned: FilePlan, tmp_path: Path
) -> None:
    assert found(works, planned, edited(works, planned, tmp_path)) == []


def test_another_plan_than_the_one_that_was_carried_out(
    works: Works, planned: FilePlan, tmp_path: Path
) -> None:
    after = edited(works, planned, tmp_path)
    (first, *rest) = planned.needed
    other = replace(first, action="substitute", soname_after="libother.so.1")
    (message,) = found(works, replace(planned, needed=(other, *rest)), after)
    assert message.startswith("NEEDED: relink has ('libother.so.1',")
    assert isinstance(other, NeededDecision)


def test_a_file_that_changed_after_its_check(works: Works, planned: FilePlan, tmp_path: Path) -> None:
    after = edited(works, planned, tmp_path)
    data = bytearray(after.view)
    struct.pack_into("<I", data, 64 + 4, 7)  # p_flags of the first segment
    (message,) = found(works, planned, replace(after, view=bytes(data)))
    assert message.startswith("segment 0: relink has Segment(")


def test_files_that_do_not_change_are_passed_over(planned: FilePlan) -> None:
    same = replace(
        planned,
        needed=(),
        rpath=replace(planned.rpath, after=planned.rpath.before, kind_after=planned.rpath.kind_before),
    )
    assert [*reread_files([same], {}, {}, {})] == []


def test_the_output_is_opened_by_wheel(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both readers have been at work when the output appears, also where the loader is not asked."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("elftools", "wheel")]:
        monkeypatch.delitem(sys.modules, name)
    assert relink(works.small(tmp_path), works.options(tmp_path / "out", verify=False)).ok
    assert "elftools.elf.elffile" in sys.modules
    assert "wheel.wheelfile" in sys.modules


@pytest.mark.parametrize("place", ["runs.relink_wheel.reread_files", "make.output.reread_wheel"])
def test_a_difference_keeps_the_output_from_being_published(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    code = {"runs.relink_wheel.reread_files": "RLK610", "make.output.reread_wheel": "RLK611"}[place]
    monkeypatch.setattr(
        f"relink.{place}", lambda *_: iter([finding(code, "x", "relink has 1, another reads 2")])
    )
    report = relink(works.small(tmp_path), works.options(tmp_path / "out"))
    assert (report.ok, report.output) == (False, None)
    assert [one.code for one in report.findings if one.level == "error"] == [code]
    assert not (tmp_path / "out").exists()
    forced = relink(works.small(tmp_path), works.options(tmp_path / "out", force=True))
    assert forced.output is not None
    assert Path(forced.output.path).exists()


def test_a_wheel_that_wheel_refuses(tmp_path: Path) -> None:
    record = b"demo_pkg/a.py,md5=AAAA,6\n"
    path = make_wheel(tmp_path, {"demo_pkg/a.py": b"a = 1\n", "demo_pkg-1.0.dist-info/RECORD": record})
    (one,) = reread_wheel(path)
    assert (one.code, one.level, one.subject) == ("RLK611", "error", path.name)
    assert one.message.startswith("relink can open it, wheel cannot: Weak hash algorithm (md5)")


def test_a_directory_of_the_vendors_spelling_is_a_warning(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, dist_info="Demo.Pkg-1.0.dist-info")
    (one,) = reread_wheel(path)
    assert (one.code, one.level) == ("RLK611", "warning")
