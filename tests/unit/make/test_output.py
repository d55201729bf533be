"""The making of one output: which file it takes the place of, what is on the disk afterwards, and what an error says.

pyelftools beside relink's own reader: equal on what is sound, and a difference in each field is an error.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from relink.elf.gaps import find_gaps
from relink.elf.image import read_image
from relink.elf.patchelf import Edited
from relink.library import relink
from relink.make.output import (
    Linking,
    Staging,
    find_refusals,
    parse_elf,
    read_linking,
    reread_files,
    reread_wheel,
)
from relink.planning.contents import Contents
from relink.planning.model import FilePlan
from relink.planning.options import Options
from relink.system.errors import ElfError, MachineError, RelinkError, UsageError
from relink.system.findings.model import finding
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import NewContent
from tests.support import wheels
from tests.support.cc import shared
from tests.support.edits import apply_edit
from tests.support.elf_builder import Export, Library, build
from tests.support.works import OUTPUT, Works
from tests.unit.wheel.build import DIST_INFO, FILENAME, RawZip, good_entries, make_wheel, write_raw


def staged(wheel: Path, output: Path) -> tuple[Contents, Staging]:
    contents = Contents(wheel)
    return contents, Staging(contents, contents.archive.name, Options(output_directory=output))


@pytest.mark.parametrize("link", [False, True])
def test_a_write_without_add_takes_not_the_inputs_place(tmp_path: Path, link: bool) -> None:
    """Its SHA-256 was reported, and no file had it."""
    wheel = wheels.make_wheel(tmp_path / "in", {"demo/__init__.py": b""})
    before = wheel.read_bytes()
    if link:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / wheel.name).symlink_to(wheel)
    contents, staging = staged(wheel, tmp_path / ("out" if link else "in"))
    with contents, staging, pytest.raises(UsageError, match="take the input's place; name another directory"):
        staging.write({"demo/new": NewContent(b"new", 3)})
    assert wheel.read_bytes() == before


def test_what_is_published_has_the_sha256_that_is_returned(tmp_path: Path) -> None:
    wheel = wheels.make_wheel(tmp_path / "in", {"demo/__init__.py": b""})
    contents, staging = staged(wheel, tmp_path / "out")
    with contents, staging:
        staging.write({"demo/new": NewContent(b"new", 3)})
        sha256 = staging.publish()
    assert hashlib.sha256(staging.final.read_bytes()).hexdigest() == sha256
    contents, staging = staged(wheel, tmp_path / "in")  # a copy in its own place: the file is left alone
    inode = wheel.stat().st_ino
    with contents, staging:
        staging.copy()
        sha256 = staging.publish()
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == sha256
    assert wheel.stat().st_ino == inode


@pytest.mark.parametrize("memory", [None, 8 * 1024])
def test_a_member_is_deflated_ahead_if_there_is_memory(tmp_path: Path, memory: int | None) -> None:
    """Its content is then read before the output is begun."""
    new, asked = os.urandom(4096) * 4, threading.Event()

    def content() -> Iterator[bytes]:
        asked.set()
        yield new

    wheel = wheels.make_wheel(tmp_path / "in", {"demo/__init__.py": os.urandom(4096)})
    contents = Contents(wheel)
    options = Options(output_directory=tmp_path / "out", max_memory=memory)
    with contents, Staging(contents, contents.archive.name, options) as staging:
        staging.add("demo/__init__.py", NewContent(content(), len(new)))
        assert asked.wait(10 if memory is None else 0.2) == (memory is None)
        staging.write({})
        staging.publish()
    with WheelArchive(staging.final) as archive:
        assert archive.read("demo/__init__.py") == new


@pytest.mark.parametrize("plain", [False, True])
def test_the_name_of_the_output_is_on_the_disk(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    """The last thing that is synced is the directory that has got the name, for a copy and for what was written."""
    synced: list[str] = []
    sync = os.fsync

    def recorded(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    monkeypatch.setattr(os, "fsync", recorded)
    wheel = works.wheel(tmp_path, {"demo/a.so": works.plain}) if plain else works.small(tmp_path)
    report = relink(wheel, works.options(tmp_path / "out"))
    assert report.output is not None
    *_, file, directory = synced
    assert os.path.basename(file) == os.path.basename(report.output.path)
    assert directory == str(tmp_path / "out")


WRITTEN = "FINAL: cannot be written"


@pytest.mark.parametrize(
    ("number", "names", "kind", "says"),
    [
        (
            errno.EACCES,
            ("FINAL",),
            UsageError,
            f"{WRITTEN} (Permission denied); name another directory by --output",
        ),
        (errno.ENOSPC, (), UsageError, f"{WRITTEN} (No space left on device); make room there, or name"),
        # shutil.copyfile names both files, and the input is not the reason
        (errno.ENOSPC, ("OTHER", "STAGED"), UsageError, f"{WRITTEN} (No space left on device); make room"),
        (errno.EDQUOT, ("STAGED",), UsageError, f"{WRITTEN} (Disk quota exceeded); make room in your quota"),
        (errno.EFBIG, (), UsageError, f"{WRITTEN} (File too large); files may not be that large there"),
        (errno.ENAMETOOLONG, ("STAGED", "FINAL"), UsageError, f"{WRITTEN} (File name too long); names may"),
        (errno.EISDIR, ("STAGED", "FINAL"), UsageError, f"{WRITTEN} (Is a directory); move the directory of"),
        (
            errno.ENOENT,
            ("OTHER",),
            RelinkError,
            "OTHER: No such file or directory, so NAME cannot be made; see",
        ),
        (errno.EACCES, ("OTHER",), RelinkError, "OTHER: Permission denied, so NAME cannot be made"),
        (errno.EIO, ("OTHER",), MachineError, "OTHER: Input/output error: the disk cannot be read"),
        (errno.EMFILE, (), MachineError, f"{WRITTEN}: Too many open files: this process may not open"),
    ],
)
def test_an_error_names_its_reason_and_the_next_step(
    tmp_path: Path, number: int, names: tuple[str, ...], kind: type[RelinkError], says: str
) -> None:
    contents, staging = staged(
        wheels.make_wheel(tmp_path / "in", {"demo/__init__.py": b""}), tmp_path / "out"
    )
    paths = {"FINAL": str(staging.final), "OTHER": "/usr/lib/libx.so"}

    def fail() -> None:
        with staging:
            paths["STAGED"] = str(staging.directory / staging.final.name)
            places = [paths[name] for name in names]
            second = [None, places[1]] if places[1:] else []
            raise OSError(number, os.strerror(number), *places[:1], *second)

    with contents, pytest.raises(RelinkError) as caught:
        fail()
    assert type(caught.value) is kind
    expected = says.replace("FINAL", paths["FINAL"]).replace("OTHER", paths["OTHER"])
    assert str(caught.value).startswith(expected.replace("NAME", staging.final.name))
    assert not (tmp_path / "out").exists()


def test_a_directory_in_the_outputs_place(works: Works, tmp_path: Path) -> None:
    (tmp_path / "out" / OUTPUT).mkdir(parents=True)
    with pytest.raises(
        UsageError, match=r"\(Is a directory\); move the directory of that name away, or name"
    ):
        relink(works.small(tmp_path), works.options(tmp_path / "out"))


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
        "import sys, relink.cli, relink.runs.relink_wheel, relink.make.output;"
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
