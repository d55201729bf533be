"""elf.renumber: entries of a symbol table that patchelf does not see end as if it had."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from relink.elf.gaps import find_gaps, find_symbols, without_gaps
from relink.elf.image import Buffer, Image, read_image
from relink.elf.patchelf import ElfEdit, apply_edit, edit_without_gaps
from relink.elf.renumber import MOST_SECTIONS, SYMBOL, renumber
from relink.elf.sections import Section, read_sections
from relink.system.errors import ElfError, PatchelfError
from tests.support.cc import shared

UNIT = 1 << 16
COUNT = 20_000
EDITS = [
    ElfEdit("/somewhere/else:$ORIGIN/" + "long/" * 60, "rpath", add=("libz.so.9", "liba.so.1")),
    ElfEdit(search_path=""),
    ElfEdit(replace=(("libdeep.so.1", "libdeep.so.1234567"),)),
]


def source(payload: Path, more: str = "") -> str:
    """Symbols in four sections and in none, in front of 2 MiB that no edit touches."""
    sections = [".text", ".data", ".section .rodata", '.section own,"aw"']
    lines = [f"{sections[n % 4]}\ns{n}: .byte 0" for n in range(COUNT)]
    lines += [".set number, 0x1234", '.section .hip_fatbin,"a"', f'.incbin "{payload}"', more, ".text"]
    text = "\\n".join(lines).replace('"', '\\"').replace("\n", "\\n")
    return f'extern int deep(void); int f(void) {{ return deep(); }}\n__asm__("{text}");'


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("renumber")
    (directory / "payload").write_bytes(bytes(range(256)) * (8 << 10))
    deep = shared(directory / "libdeep.so.1", "int deep(void) { return 1; }")
    flags = ["-Wl,--enable-new-dtags,-rpath,/vendor"]
    return shared(directory / "libmany.so", source(directory / "payload"), needed=[deep], flags=flags)


def read(file: Path) -> tuple[bytes, Image, tuple[range, ...]]:
    data = file.read_bytes()
    image = read_image(data, file.name)
    return data, image, find_gaps(data, image)


def symbols(data: Buffer) -> Section:
    return next(section for section in read_sections(data, "x") if section.type == 2)


def test_most_entries_are_left_out(file: Path) -> None:
    data, image, gaps = read(file)
    found = find_symbols(data, image, gaps)
    assert found is not None
    table, out = found
    assert table == symbols(data)
    assert table.file_size > COUNT * SYMBOL
    assert table.offset < out.start < out.stop < table.offset + table.file_size
    assert (out.start - table.offset) % SYMBOL == len(out) % SYMBOL == len(out) % UNIT == 0
    assert table.file_size - len(out) < 4 * UNIT


@pytest.mark.parametrize("edit", EDITS)
def test_they_end_as_if_patchelf_had_seen_them(file: Path, edit: ElfEdit, tmp_path: Path) -> None:
    data, before, gaps = read(file)
    edited = edit_without_gaps(tmp_path / "hollow", edit, before, data, gaps, gaps).view
    assert (tmp_path / "hollow").stat().st_size < len(data) - sum(map(len, gaps)) - 5 * UNIT
    (tmp_path / "whole").write_bytes(data)
    apply_edit(tmp_path / "whole", edit, before, data)
    whole = (tmp_path / "whole").read_bytes()
    table = symbols(whole)
    assert symbols(edited) == table
    place = slice(table.offset, table.offset + table.file_size)
    assert edited[place] == whole[place]
    # There was something to do: for symbols of sections behind those that moved, and for the sections' own.
    if edit.search_path != "":
        assert edited[place] != data[place]
    (tmp_path / "result").write_bytes(edited)
    for name in ("whole", "result"):
        said = subprocess.run(["readelf", "-sW", tmp_path / name], capture_output=True, text=True, check=True)
        assert said.stderr == ""
        assert f" s{COUNT - 1}" in said.stdout
        assert any(line.split()[-2:] == ["ABS", "number"] for line in said.stdout.splitlines())


def test_sections_have_new_numbers_and_addresses() -> None:
    """By name, the first where several have it; what stands for no section, or for one that is not there, stays."""
    old = sections_file([("a", 0), ("a", 16), ("b", 32), ("twin", 64), ("twin", 80)])
    new = sections_file([("a", 0), ("b", 48), ("twin", 80), ("a", 16), ("twin", 64)])
    entries = [
        (0, 0, 0),
        (0, 1, 5),  # of a, a plain symbol: its value stays
        (3, 2, 32),  # b itself, which is elsewhere now
        (0x13, 3, 64),
        (3, 4, 80),
        (3, 0, 7),
        (3, 0xFFF1, 8),
        (3, 0xFF01, 9),  # the lower byte is that of a
        (3, 200, 10),
        (0, 2, 11),
    ]
    expected = [
        (0, 0, 0),
        (0, 3, 5),
        (3, 1, 48),
        (0x13, 2, 80),
        (3, 2, 80),
        (3, 0, 7),
        (3, 0xFFF1, 8),
        (3, 0xFF01, 9),
        (3, 200, 10),
        (0, 1, 11),
    ]
    rows = [
        [struct.pack("<IBBHQQ", 1, info, 0, *rest, 1) for info, *rest in part] for part in (entries, expected)
    ]
    rest = struct.pack("<IBBH", 1, 0, 0, 1)  # not a whole entry
    table = range(len(old), len(old) + len(entries) * SYMBOL + len(rest))
    out = range(table.start + SYMBOL, table.stop - len(rest) - SYMBOL)
    result = bytearray(new + rows[1][0] + bytes(len(out)) + rows[1][-1] + rest)
    original = old + b"".join(rows[0]) + rest
    renumber(memoryview(result), original, table, out)
    assert result == new + b"".join(rows[1]) + rest
    for at in (table.start, out.stop + 6):
        other = bytearray(result)
        other[at] ^= 1
        with pytest.raises(ElfError, match="not renumbered by their names"):
            renumber(memoryview(other), original, table, out)


def sections_file(sections: list[tuple[str, int]]) -> bytes:
    """An ELF file of nothing but section headers, with these names and addresses, and one for the names."""
    names = "".join(f"{name}\0" for name, _ in sections) + "names\0"
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, 64, 0, 64, 56, 0, 64, len(sections) + 1, len(sections),
    )  # fmt: skip
    end = 64 + 64 * (len(sections) + 1)
    headers = b""
    for name, address in [*sections, ("names", 0)]:
        at, kind = f"\0{names}".index(f"\0{name}\0"), 3 if name == "names" else 1
        headers += struct.pack("<IIQQQQIIQQ", at, kind, 2, address, end, len(names), 0, 0, 1, 0)
    return head + headers + names.encode()


def test_a_patchelf_that_numbers_in_another_way_gets_the_whole_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, before, gaps = read(file)

    def patch(path: Path, *_: object) -> Iterator[None]:
        small = bytearray(path.read_bytes())
        small[symbols(memoryview(small)).offset + 6] ^= 1
        path.write_bytes(small)
        yield

    monkeypatch.setattr("relink.elf.patchelf.call_patchelf", patch)
    with pytest.raises(PatchelfError) as caught:
        edit_without_gaps(tmp_path / "x", ElfEdit(), before, data, gaps)
    assert caught.value.issues == ("the sections of symbols were not renumbered by their names",)


def test_nothing_is_left_out_of_a_small_or_odd_table(file: Path) -> None:
    data, image, gaps = read(file)
    found = find_symbols(data, image, gaps)
    assert found is not None
    table, out = found
    header = struct.unpack_from("<Q", data, 40)[0] + 64 * read_sections(data, "x").index(table)
    for size, left in (
        (len(out) + 2 * SYMBOL, len(out)),
        (len(out) + 2 * SYMBOL - 1, len(out) - 3 * UNIT),
        (3 * UNIT, 0),
        (SYMBOL, 0),
        (0, 0),
        (len(data) - table.offset + 1, 0),
    ):
        other = bytearray(data)
        struct.pack_into("<Q", other, header + 32, size)
        now = find_symbols(other, image, gaps)
        assert (len(now[1]) if now else 0) == left
    assert find_symbols(data, replace(image, header=replace(image.header, kind=2)), gaps) is None
    assert find_symbols(data, image, (range(out.start - 10, out.start),)) is None
    assert find_symbols(data, image, (range(out.stop, out.stop + 10),)) is None
    assert find_symbols(data, image, (range(out.stop + 1, out.stop + 10),)) == found
    inner = replace(image.segments[0], type=4, offset=out.start + 9, file_size=1)
    assert find_symbols(data, replace(image, segments=(*image.segments, inner)), gaps) is None
    wide = replace(image.segments[0], type=1, align=1 << 18)
    assert find_symbols(data, replace(image, segments=(*image.segments, wide)), gaps) is None
    struct.pack_into("<I", other := bytearray(data), header + 4, 1)
    assert find_symbols(other, image, gaps) is None


def test_sections_whose_numbers_take_two_bytes(file: Path, tmp_path: Path) -> None:
    extra = "\n".join(f'.section extra{n},"a"\n.byte 1' for n in range(MOST_SECTIONS))
    many = shared(tmp_path / "libmany.so", source(file.parent / "payload", extra))
    data, image, gaps = read(many)
    assert gaps
    assert len(read_sections(data, "x")) > MOST_SECTIONS
    assert find_symbols(data, image, gaps) is None
    edited = edit_without_gaps(tmp_path / "hollow", EDITS[0], image, data, gaps, gaps)
    assert len(without_gaps(data, gaps)) <= (tmp_path / "hollow").stat().st_size
    assert edited.image.rpath == EDITS[0].search_path
