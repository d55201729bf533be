"""elf.executables: after an edit, an executable starts here and as Linux 4.18 would start it."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from relink.elf.edit import ElfEdit
from relink.elf.edit_checks import check_edit
from relink.elf.executables import new_issues
from relink.elf.image import Image, read_image
from relink.elf.patchelf import find_patchelf
from relink.loader.target import find_target
from tests.support import old_kernel
from tests.support.cc import cc
from tests.support.edits import apply_edit
from tests.support.old_kernel import KilledError

SOURCE = r"""
#include <stdio.h>
static char room[300000]; _Thread_local int local = 40; const char *text = "of the program";
int main(void) { room[7] = 1; printf("%d %s\n", local + room[7] + 1, text); return 0; }
"""
KINDS = {"pie": ("-pie", "-fPIE"), "fixed": ("-no-pie", "-fno-pie")}
LONG = "/" + "long/" * 80


def program(path: Path, kind: str) -> Path:
    return cc(SOURCE, path, *KINDS[kind])


def edited(path: Path, edit: ElfEdit) -> bytes:
    original = path.read_bytes()
    apply_edit(path, edit, read_image(original, path.name), original)
    return path.read_bytes()


def edits() -> dict[str, ElfEdit]:
    return {
        "search path": ElfEdit(LONG, "runpath"),
        "needed": ElfEdit(add=("libm.so.6", "libdl.so.2")),
        "interpreter": ElfEdit(interpreter="/" * 300 + find_target().interpreter.lstrip("/")),
        "all": ElfEdit(LONG, "rpath", add=("libm.so.6",), interpreter="//" + find_target().interpreter),
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["search path", "needed", "interpreter", "all"])
def test_an_edited_executable_runs_here_and_on_an_old_kernel(tmp_path: Path, kind: str, name: str) -> None:
    path = program(tmp_path / "program", kind)
    old_kernel.run(path.read_bytes())
    for _ in range(3):  # each of them grows the file
        data = edited(path, edits()[name])
        old_kernel.run(data)
        assert subprocess.check_output([path], text=True) == "42 of the program\n"
    assert (
        read_image(data, "x").header == read_image(program(tmp_path / "again", kind).read_bytes(), "x").header
    )


def moved(data: bytes, kind: str) -> bytes:
    """The file with its program headers moved behind the rest, to an address that is not their offset."""
    (at,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    rows = [list(row) for row in struct.iter_unpack("<IIQQQQQQ", data[at : at + 56 * count])]
    end = max(row[3] + row[6] for row in rows if row[0] == 1)
    place, address = -(-len(data) // 4096) * 4096, -(-end // 4096) * 4096
    assert place + (0x400000 if kind == "fixed" else 0) != address
    size = 56 * (count + 1)
    for row in rows:
        if row[0] == 6:
            row[2:7] = place, address, address, size, size
    rows.append([1, 4, place, address, address, size, size, 4096])
    out = (
        bytearray(data) + bytes(place - len(data)) + b"".join(struct.pack("<IIQQQQQQ", *row) for row in rows)
    )
    struct.pack_into("<Q", out, 32, place)
    struct.pack_into("<H", out, 56, count + 1)
    return bytes(out)


@pytest.mark.parametrize("kind", KINDS)
def test_headers_that_were_moved_before_are_put_where_old_kernels_find_them(
    tmp_path: Path, kind: str
) -> None:
    path = program(tmp_path / "program", kind)
    path.write_bytes(moved(path.read_bytes(), kind))
    with pytest.raises(KilledError, match=r"ld\.so"):
        old_kernel.run(path.read_bytes())
    for name in ("search path", "all"):
        old_kernel.run(edited(path, edits()[name]))
        assert subprocess.check_output([path], text=True) == "42 of the program\n"


@pytest.mark.parametrize("kind", KINDS)
def test_what_patchelf_alone_makes_is_judged_as_the_old_kernel_judges_it(tmp_path: Path, kind: str) -> None:
    path = program(tmp_path / "program", kind)
    original, edit = path.read_bytes(), ElfEdit(LONG, "runpath")
    subprocess.run([find_patchelf().path, "--set-rpath", LONG, path], check=True)
    data = path.read_bytes()
    found = check_edit(original, data, read_image(original, "x"), read_image(data, "x"), edit)
    if kind == "fixed":
        assert any("the first LOAD segment is writable" in issue for issue in found)
        with pytest.raises(KilledError, match="writable"):
            old_kernel.run(data)
    else:
        assert not [issue for issue in found if "kernel" in issue]
        old_kernel.run(data)


def changed(image: Image, kind: int, number: int, **fields: int) -> Image:
    """Return the facts with other values in the program header `number` of that type."""
    place = [at for at, one in enumerate(image.segments) if one.type == kind][number]
    segments = list(image.segments)
    segments[place] = replace(segments[place], **fields)
    return replace(image, segments=tuple(segments))


def test_each_rule(tmp_path: Path) -> None:
    data = program(tmp_path / "program", "fixed").read_bytes()
    image = read_image(data, "x")
    first, second = [one for one in image.segments if one.type == 1][:2]
    many = data[:56] + struct.pack("<H", 74) + data[58:]
    broken = {
        "is writable": (data, changed(image, 1, 0, flags=6)),
        "share a page": (data, changed(image, 1, 0, memory_size=second.address - first.address + 1)),
        "is not mapped where": (data, changed(image, 6, 0, address=first.address + 0x1040)),
        "may not map": (data, changed(image, 1, 0, address=0xF000)),
        "is aligned to more": (data, changed(image, 1, 1, align=1 << 21)),
        "has more than 4096 bytes": (many, image),
    }
    assert not list(new_issues(data, data, image, image))
    for words, (other, after) in broken.items():
        assert [one for one in new_issues(data, other, image, after) if words in one], words
        assert not [one for one in new_issues(other, other, after, after) if words in one]
        library = replace(after, interpreter=None)
        assert not list(new_issues(data, other, image, library))
