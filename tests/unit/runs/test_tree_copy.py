"""runs.tree_copy: what a copy has, what it has not, and what of it leads to the original.

The attacks of trees in place are here by their names.
"""

from __future__ import annotations

import base64
import os
import shutil
import stat
from hashlib import sha256
from pathlib import Path

import pytest

from relink.runs.tree_copy import TreeCopy, TreeSource, mentions
from relink.system.errors import WheelError
from relink.system.findings.model import Finding
from tests.support.elf_builder import Library, build
from tests.unit.runs.build_trees import HOLE, add_rarities, kept, snapshot

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def copied(tree: Path, new: dict[str, bytes] | None = None) -> tuple[Path, list[Finding]]:
    place = tree.with_name("copy")
    place.mkdir()
    findings = [
        *TreeCopy(TreeSource(tree), place, {name: [data] for name, data in (new or {}).items()}).write()
    ]
    return place, findings


def test_all_of_a_tree(tree: Path) -> None:
    """Modes, times, links, hard links and holes; and the tree is as it was, to the last time."""
    add_rarities(tree)
    before = snapshot(tree)
    place, findings = copied(tree)
    assert snapshot(tree) == before
    assert kept(place) == kept(tree)
    names = ("mod/m.so", "mod/again.so", "deep/er/other.so")
    assert len({(place / name).stat().st_ino for name in names}) == 1
    assert (place / "README").samefile(place / "READTHIS")
    assert not (place / "README").samefile(tree / "README")
    assert (place / "sparse").stat().st_size == HOLE + 3
    assert (place / "sparse").stat().st_blocks == (tree / "sparse").stat().st_blocks < HOLE >> 10
    assert {(found.code, found.subject) for found in findings} == {
        ("RLK540", "deep/pipe"),
        ("RLK545", "deep"),
        ("RLK545", "bin/tool"),
    }


def test_what_is_no_file_is_left_out(tree: Path) -> None:
    add_rarities(tree)
    place, findings = copied(tree)
    assert not os.path.lexists(place / "deep/pipe")
    (found,) = [found for found in findings if found.code == "RLK540"]
    assert found.subject == "deep/pipe"


@pytest.mark.parametrize("others", [False, pytest.param(True, marks=AS_ROOT)])
def test_tree_setuid(tree: Path, *, others: bool) -> None:
    """A set-user-id program, also another user's, is not written anew as yours with its bit."""
    (tree / "bin/driver").chmod(0o6755)
    if others:
        os.chown(tree / "bin/driver", 65534, 65534)
        (tree / "bin/driver").chmod(0o6755)
    for new in (None, {"bin/driver": b"edited"}):
        place, findings = copied(tree, new)
        status = (place / "bin/driver").stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_nlink) == (0o755, os.geteuid(), 1)
        (found,) = [found for found in findings if found.code == "RLK545"]
        assert found.subject == "bin/driver"
        shutil.rmtree(place)
    assert stat.S_IMODE((tree / "bin/driver").stat().st_mode) == 0o6755


@AS_ROOT
def test_files_of_others(tree: Path) -> None:
    os.chown(tree / "README", 65534, 65534)
    place, findings = copied(tree)
    assert ((place / "README").stat().st_uid, (place / "README").stat().st_nlink) == (0, 1)
    (found,) = findings
    assert (found.code, found.message) == ("RLK543", "of other users, and yours in the copy: README")


@AS_ROOT
def test_capabilities_are_left_out(tree: Path) -> None:
    """security.capability (capabilities(7), revision 2): a program with it has rights without being set-user-id."""
    try:
        os.setxattr(
            tree / "bin/driver",
            "security.capability",
            bytes.fromhex("0100000200200000000000000000000000000000"),
        )
    except OSError as error:
        pytest.skip(f"capabilities cannot be set here: {error.strerror}")
    place, findings = copied(tree)
    assert "security.capability" not in os.listxattr(place / "bin/driver")
    assert not (place / "bin/driver").samefile(tree / "bin/driver")
    assert [found.code for found in findings] == ["RLK545"]


def test_hard_links_that_are_edited_alike_stay_one_file(tree: Path) -> None:
    add_rarities(tree)
    place, _ = copied(tree, {"mod/m.so": b"one", "mod/again.so": b"one", "deep/er/other.so": b"other"})
    assert (place / "mod/m.so").samefile(place / "mod/again.so")
    assert (place / "deep/er/other.so").read_bytes() == b"other"


def test_records_list_the_new_files(tree: Path) -> None:
    """Of a dist-info at any depth; all other lines stay to the byte, and so does a RECORD of other files."""
    site = tree / "lib/python3/site-packages"
    for place in (tree / "a-1.dist-info", site / "b-1.dist-info", site / "c-1.dist-info"):
        place.mkdir(parents=True)
    (tree / "a-1.dist-info/RECORD").write_bytes(b'mod/m.so,sha256=old,3\r\n"mod/m.so",,\nodd\xff,x\x0cy,\n')
    (site / "b-1.dist-info/RECORD").write_bytes(b"../../../bin/driver,,\nx.py,,")
    (site / "c-1.dist-info/RECORD").write_bytes(b"x.py,,\n")
    copy, _ = copied(tree, {"mod/m.so": b"abc", "bin/driver": b""})

    def fields(data: bytes) -> bytes:
        return b"sha256=" + base64.urlsafe_b64encode(sha256(data).digest()).rstrip(b"=") + b",%d" % len(data)

    line = b"mod/m.so," + fields(b"abc")
    assert (copy / "a-1.dist-info/RECORD").read_bytes() == b"%b\r\n%b\nodd\xff,x\x0cy,\n" % (line, line)
    below = copy / "lib/python3/site-packages"
    assert (below / "b-1.dist-info/RECORD").read_bytes() == b"../../../bin/driver,%b\nx.py,," % fields(b"")
    assert (below / "c-1.dist-info/RECORD").read_bytes() == b"x.py,,\n"


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_record_may_end_without_a_line_feed(tree: Path, end: bytes) -> None:
    record = tree / "demo-1.dist-info/RECORD"
    record.parent.mkdir()
    record.write_bytes(b"demo-1.dist-info/RECORD,," + end)
    copy = tree.parent / "copy"
    copy.mkdir()
    list(TreeCopy(TreeSource(tree), copy, {}, {"demo.libs/relink-stubs/libx.so": b"x"}).write())
    lines = (copy / "demo-1.dist-info/RECORD").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "demo-1.dist-info/RECORD",
        "demo.libs/relink-stubs/libx.so",
    ]


@pytest.mark.parametrize("absolute", [False, True])
def test_tree_record_link(tree: Path, *, absolute: bool) -> None:
    """A *.dist-info that is a symbolic link out of the tree: the RECORD there is neither lost nor written, nor taken along."""
    outside = tree.parent / "outside"
    outside.mkdir()
    (outside / "RECORD").write_text("mod/m.so,sha256=old,3\n")
    (tree / "d-1.dist-info").symlink_to(outside if absolute else "../outside")
    (tree / "e-1.dist-info").mkdir()
    (tree / "e-1.dist-info/RECORD").symlink_to("../../outside/RECORD")
    before = snapshot(outside)
    place, _ = copied(tree, {"mod/m.so": b"edited"})
    assert snapshot(outside) == before
    assert (place / "d-1.dist-info").is_symlink()
    assert (place / "e-1.dist-info/RECORD").is_symlink()


def test_a_file_that_is_written_to_meanwhile(tree: Path) -> None:
    archive = TreeSource(tree)
    (tree / "README").write_text("other words")
    (tree.parent / "copy").mkdir()
    with pytest.raises(WheelError, match="README has changed while it was read"):
        list(TreeCopy(archive, tree.parent / "copy", {}).write())


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("tree/lib", "new/lib", "new/bin"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "tree", tmp_path / "new"


def named(original: Path, copy: Path, *more: str) -> dict[str, str]:
    """What of each file leads to the original."""
    found = [*mentions(copy, copy, (str(original), *more))]
    assert {one.code for one in found} <= {"RLK544"}
    assert all(one.message.endswith(f" leads to {original}") for one in found)
    return {one.subject: one.message.removeprefix("its ").partition(" leads to ")[0] for one in found}


def test_each_kind_of_file(places: tuple[Path, Path]) -> None:
    tree, new = places
    (new / "lib/a.so").write_bytes(build(Library("a.so", runpath=f"$ORIGIN:{tree}/lib")))
    (new / "lib/b.so").write_bytes(build(Library("b.so", needed=(f"{tree}/lib/x.so",))))
    (new / "bin/s").write_text(f"#!{tree}/bin/python3\n")
    (new / "bin/t").write_text(f"#!/bin/sh\n'''exec' {tree}/bin/python3 \"$0\"\n")
    (new / "lib/l").symlink_to(f"{tree}/lib/x")
    (new / "lib/r").symlink_to("../../tree/lib")
    (new / "p.pth").write_text(f"{tree}\n")
    (new / "q.pth").write_text("# words\nimport os\n../tree/lib\n")
    (new / "i.pth").write_text(
        "importance/../../tree/lib\n"
    )  # a path, to site.py too: no space comes after import
    (new / "h.pc").write_text(f"prefix={tree}\n")
    assert named(tree, new) == {
        "lib/a.so": "search path",
        "lib/b.so": "NEEDED or interpreter",
        "bin/s": "text",
        "bin/t": "text",
        "lib/l": "target",
        "lib/r": "target",
        "p.pth": "text",
        "q.pth": "path",
        "i.pth": "path",
        "h.pc": "text",
    }


def test_what_stays_in_the_copy_or_leads_elsewhere(places: tuple[Path, Path]) -> None:
    tree, new = places
    runpath = f"$ORIGIN/../lib:${{ORIGIN}}:/opt/rocm/lib:{tree}.2/lib:"
    (new / "lib/a.so").write_bytes(build(Library("a.so", runpath=runpath, needed=("libc.so.6",))))
    (new / "lib/damaged.so").write_bytes(b"\x7fELF" + str(tree).encode())
    (new / "lib/l").symlink_to("../bin/s")
    (new / "bin/s").write_text("#!/usr/bin/env python3\n")
    (new / "bin/empty").write_text("#!")
    (new / "p.pth").write_text("lib\n../elsewhere\n")
    (new / "h.pc").write_text(f"prefix=${{pcfiledir}}/../..\nother={tree}-2\n")
    (new / "notes").write_text(f"built in {tree}\n")
    assert named(tree, new) == {}


def test_by_a_link_and_by_another_name(places: tuple[Path, Path]) -> None:
    tree, new = places
    (tree.parent / "rocm").symlink_to(tree)
    (new / "lib/a.so").write_bytes(build(Library("a.so", runpath=f"{tree.parent}/rocm/lib")))
    assert named(tree, new) == {"lib/a.so": "search path"}
    (new / "lib/a.so").write_bytes(build(Library("a.so")))
    (new / "h.pc").write_text(f"prefix={tree.parent}/rocm\n")
    assert named(tree, new) == {}
    assert named(tree, new, f"{tree.parent}/rocm") == {"h.pc": "text"}
