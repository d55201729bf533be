"""pyelftools beside relink's own reader: equal on what is sound, and a difference in each field is an error."""

from __future__ import annotations

import dataclasses
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from relink.elf.gaps import find_gaps
from relink.elf.image import read_image
from relink.elf.patchelf import Edited
from relink.library import relink
from relink.make.second_readers import (
    Linking,
    find_refusals,
    parse_elf,
    read_linking,
    reread_files,
    reread_wheel,
)
from relink.planning.model import FilePlan
from relink.system.errors import ElfError
from relink.system.findings.model import finding
from relink.wheel.archive import WheelArchive
from tests.support.cc import shared
from tests.support.edits import apply_edit
from tests.support.elf_builder import Export, Library, build
from tests.support.works import Works
from tests.unit.wheel.build import DIST_INFO, FILENAME, RawZip, good_entries, make_wheel, write_raw

LIBRARY = Library(
    "libx.so.1",
    ("liba.so.1", "libb.so.1"),
    runpath="/p",
    interpreter="/lib/ld.so",
    exports=(Export("f", "V_1"),),
)


def read(data: bytes | bytearray, gaps: list[range] | None = None) -> Linking:
    return parse_elf(data, gaps or [], read_linking)


def test_they_agree_on_a_sound_file() -> None:
    found = read(build(LIBRARY))
    assert (found.needed, found.runpath, found.rpath) == (("liba.so.1", "libb.so.1"), "/p", None)
    assert (found.soname, found.interpreter) == ("libx.so.1", "/lib/ld.so")
    old = read(build(dataclasses.replace(LIBRARY, rpath="/old", runpath=None)))
    assert (old.rpath, old.runpath) == ("/old", None)
    name = b"lib\xff\xfe.so".decode("utf-8", "surrogateescape")
    assert read(build(Library(name, (name,), runpath=name))).needed == (name,)


def test_what_pyelftools_cannot_read() -> None:
    data = bytearray(build(LIBRARY))
    (start,) = (one.offset for one in read_image(data, "x").segments if one.type == 2)
    at = next(at for at in range(start, len(data), 16) if struct.unpack_from("<Q", data, at)[0] == 5)
    struct.pack_into("<Q", data, at + 8, 1 << 40)  # DT_STRTAB
    with pytest.raises(ElfError, match="no PT_LOAD segment has the address 0x10000000000"):
        read(data)
    for broken in (b"", b"\x7fELF", bytes(64), bytes(data[:70]), b"\x7fELF\2\1\1" + b"\xff" * 57):
        with pytest.raises(ElfError):
            read(broken)


def test_nothing_in_a_cut_is_read(tmp_path: Path) -> None:
    """Where it would be, the answer is a difference, not what happens to lie there."""
    source = "const char data[3 << 20] = {1}; int f(void) { return data[5]; }"
    data = shared(tmp_path / "libbig.so", source).read_bytes()
    gaps = list(find_gaps(data, read_image(data, "x")))
    assert gaps
    hollow = bytearray(data)
    for gap in gaps:
        hollow[gap.start : gap.stop] = bytes(len(gap))
    assert read(hollow, gaps) == read(data)
    with pytest.raises(ElfError, match="in the content of a large section"):
        read(data, [range(len(data))])


def test_it_is_not_imported_before_it_is_needed() -> None:
    program = (
        "import sys, relink.cli, relink.runs.relink_wheel, relink.make.second_readers;"
        "print([name for name in sys.modules if name.startswith(('elftools', 'wheel'))])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"[]\n"


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
    images = {file.path: read_image(works.library.read_bytes(), file.path)}
    findings = [*reread_files([file], images, {file.path: after})]
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
    first, *rest = planned.needed
    other = replace(first, action="substitute", soname_after="libother.so.1")
    (message,) = found(works, replace(planned, needed=(other, *rest)), after)
    assert message.startswith("NEEDED: relink has ('libother.so.1',")


@pytest.mark.parametrize("field", ["NEEDED", "RPATH"])
def test_bytes_that_are_not_those_of_the_plan(
    works: Works, planned: FilePlan, tmp_path: Path, field: str
) -> None:
    """The plan is right, and the file is not: one byte of a name is another."""
    after = edited(works, planned, tmp_path)
    path = after.image.rpath or after.image.runpath
    assert path is not None
    names = {"NEEDED": after.image.needed[0], "RPATH": path}
    name = names[field].encode()
    data = bytes(after.view).replace(
        name + b"\0", name[:-1] + b"!\0"
    )  # patchelf leaves the old string table, too
    (message,) = found(works, planned, replace(after, view=data))
    assert field.replace("RPATH", "PATH: relink has") in message
    assert "pyelftools reads" in message


def test_a_file_that_pyelftools_refuses(works: Works, planned: FilePlan, tmp_path: Path) -> None:
    after = replace(edited(works, planned, tmp_path), view=b"\x7fELF")
    (message,) = found(works, planned, after)
    assert message.startswith("relink can read it, pyelftools cannot: ")


def test_files_that_do_not_change_are_passed_over(planned: FilePlan) -> None:
    path = replace(planned.rpath, after=planned.rpath.before, kind_after=planned.rpath.kind_before)
    assert [*reread_files([replace(planned, needed=(), rpath=path)], {}, {})] == []


def test_a_difference_keeps_the_output_from_being_published(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    differs: Any = finding("RLK610", "x", "relink has 1, pyelftools reads 2")
    monkeypatch.setattr("relink.runs.relink_wheel.reread_files", lambda *_: iter([differs]))
    report = relink(works.small(tmp_path), works.options(tmp_path / "out"))
    assert (report.ok, report.output) == (False, None)
    assert [one.code for one in report.findings if one.level == "error"] == ["RLK610"]
    assert not (tmp_path / "out").exists()


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
        assert find_refusals(path, archive.members) == []


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
    issues = find_refusals(path, members(path))
    assert issues
    assert said in issues[0]


def test_a_record_that_is_not_utf_8(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, {"demo_pkg/a.py": b"", RECORD: b"\xff,,\n"})
    assert "utf-8" in find_refusals(path, members(path))[0]


def test_no_record_where_it_looks(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, dist_info="Demo.Pkg-1.0.dist-info")
    with WheelArchive(path) as archive:
        (issue,) = find_refusals(path, archive.members)
    assert issue == f"relink can open it, wheel cannot: Missing {RECORD} file"


def test_a_name(tmp_path: Path) -> None:
    path = make_wheel(tmp_path).rename(tmp_path / "demo_pkg.whl")
    assert find_refusals(path, []) == ["relink can open it, wheel cannot: Bad wheel filename 'demo_pkg.whl'"]


def test_other_members(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, FILES)
    names = members(path)
    assert find_refusals(path, names[1:])[0].endswith(f"member {names[1]!r}, wheel reads {names[0]!r}")
    assert len(find_refusals(path, [f"x{name}" for name in names * 9])) <= 6
    assert find_refusals(path, [*names, "demo_pkg/z.py"]) == [
        "relink has written the member 'demo_pkg/z.py', wheel reads None"
    ]


def test_a_local_header_of_another_name(tmp_path: Path) -> None:
    entries = good_entries()
    entries[0].local_name = b"demo_pkg/x.py"
    path = write_raw(tmp_path, RawZip(entries))
    (issue,) = find_refusals(path, members(path))
    assert "relink can read the member 'demo_pkg/a.py', wheel cannot: File name in directory" in issue


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / FILENAME).write_bytes(b"PK")
    assert find_refusals(tmp_path / FILENAME, []) == [
        "relink can open it, wheel cannot: File is not a zip file"
    ]


def test_the_output_is_opened_by_wheel(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "wheel"]:
        monkeypatch.delitem(sys.modules, name)
    assert relink(works.small(tmp_path), works.options(tmp_path / "out", verify=False)).ok
    assert "wheel.wheelfile" in sys.modules


def test_a_difference_of_archives_keeps_the_output_from_being_published(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "relink.make.output.reread_wheel",
        lambda *_: iter([finding("RLK611", "x", "relink has 1, another reads 2")]),
    )
    report = relink(works.small(tmp_path), works.options(tmp_path / "out"))
    assert (report.ok, report.output) == (False, None)
    assert [one.code for one in report.findings if one.level == "error"] == ["RLK611"]
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
