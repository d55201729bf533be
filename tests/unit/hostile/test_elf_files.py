"""Good libraries in which numbers lie, in a wheel and in a prefix, through the command line.

What the readers say of each lie is tested in ``elf/test_image.py`` and ``elf/test_symbols.py``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.elf.image import file_offset, read_image, read_sections
from tests.support.works import Works
from tests.unit.hostile.conftest import Run

Lie = Callable[[bytes], bytes]


def words(form: str, *places: tuple[int, int]) -> Lie:
    """Write numbers at offsets."""

    def lie(data: bytes) -> bytes:
        changed = bytearray(data)
        for at, value in places:
            struct.pack_into(form, changed, at, value)
        return bytes(changed)

    return lie


def tag(number: int, value: int) -> Lie:
    """Let an entry of the dynamic section say something else."""

    def lie(data: bytes) -> bytes:
        changed = bytearray(data)
        at = _dynamic(data)
        while (found := struct.unpack_from("<q", data, at)[0]) != number:
            assert found, f"no entry {number:#x}"
            at += 16
        struct.pack_into("<Q", changed, at + 8, value)
        return bytes(changed)

    return lie


def _dynamic(data: bytes) -> int:
    return next(item.offset for item in read_image(data, "x").segments if item.type == 2)


def _address(data: bytes, number: int) -> int:
    """The file offset that an entry of the dynamic section leads to."""
    at = _dynamic(data)
    while struct.unpack_from("<q", data, at)[0] != number:
        at += 16
    place = file_offset(read_image(data, "x").segments, struct.unpack_from("<Q", data, at + 8)[0])
    assert place is not None
    return place


def gnu_chain_without_end(data: bytes) -> bytes:
    """No word of the chains of DT_GNU_HASH has the bit that ends one."""
    section = next(item for item in read_sections(data, "x") if item.name == ".gnu.hash")
    buckets, _, bloom, _ = struct.unpack_from("<4I", data, section.offset)
    start = section.offset + 16 + 8 * bloom + 4 * buckets
    chains = range(start, section.offset + section.file_size, 4)
    return words("<I", *((at, struct.unpack_from("<I", data, at)[0] & ~1) for at in chains))(data)


def sysv_chain_in_a_circle(data: bytes) -> bytes:
    """The chain of DT_HASH, which lies in place of DT_GNU_HASH, leads to itself."""
    section = next(item for item in read_sections(data, "x") if item.name == ".gnu.hash")
    at = _dynamic(data)
    while struct.unpack_from("<q", data, at)[0] != 0x6FFFFEF5:
        at += 16
    table = struct.pack("<6I", 1, 3, 1, 0, 1, 2)  # one bucket, three symbols, and what follows each of them
    assert section.size >= len(table)
    return words("<q", (at, 4))(data[: section.offset] + table + data[section.offset + len(table) :])


def full_of_sections(count: int, size: int) -> Lie:
    """As many sections as there can be, each of them the whole file."""

    def lie(data: bytes) -> bytes:
        changed = bytearray(data + bytes(size))
        (old,) = struct.unpack_from("<Q", data, 40)
        number, names = struct.unpack_from("<HH", data, 60)
        rows = data[old : old + 64 * number]
        start = len(changed) + -len(changed) % 8
        row = struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0, 0, start, 0, 0, 1, 0)
        changed += bytes(start - len(changed)) + rows + row * (count - number)
        struct.pack_into("<Q", changed, 40, start)
        struct.pack_into("<HHH", changed, 58, 64, count, names)
        return bytes(changed)

    return lie


FAR = 1 << 60
ELFS: dict[str, tuple[Lie, str]] = {
    "cut in the ELF header": (lambda data: data[:40], "RLK506"),
    "cut in the program headers": (lambda data: data[:100], "RLK506"),
    "cut in the middle": (lambda data: data[: len(data) // 2], "RLK506"),
    "program headers past the end": (words("<Q", (32, FAR)), "RLK506"),
    "program headers of size 0": (words("<H", (54, 0)), "RLK506"),
    "65,535 program headers": (words("<H", (56, 0xFFFF)), "RLK506"),
    "segment past the end": (words("<Q", (64 + 32, FAR)), "RLK506"),
    "segments of size 0": (
        words("<Q", *((64 + 56 * number + at, 0) for number in range(4) for at in (32, 40))),
        "RLK506",
    ),
    "section headers past the end": (words("<Q", (40, FAR)), "RLK516.*patchelf"),
    "section headers of size 0": (words("<H", (58, 0)), "RLK516.*patchelf"),
    "65,535 section headers that are not there": (words("<H", (60, 0xFFFF)), "RLK516.*patchelf"),
    "65,279 sections": (full_of_sections(0xFEFF, 0), "RLK516.*sections overlap"),
    "65,279 large sections": (full_of_sections(0xFEFF, 1 << 20), "RLK516.*sections overlap"),
    "names of sections past the end": (words("<H", (62, 0xFEFF)), "RLK516.*patchelf"),
    "string table past the end": (tag(5, FAR), "RLK506"),
    "string table of size 0": (tag(10, 0), "RLK506"),
    "string table without end": (tag(10, FAR), "RLK506"),
    "NEEDED past its strings": (tag(1, FAR), "RLK506"),
    "RUNPATH past its strings": (tag(29, FAR), "RLK506"),
    "symbols past the end": (tag(6, FAR), "RLK506"),
    "symbols of size 0": (tag(11, 0), "RLK506"),
    "relocations past the end": (tag(23, FAR), "RLK506"),
    "hash table past the end": (tag(0x6FFFFEF5, FAR), "RLK506"),
    "hash chain without end": (gnu_chain_without_end, "RLK506"),
    "hash chain in a circle": (sysv_chain_in_a_circle, "RLK506"),
}


LARGE = pytest.mark.slow(reason="two seconds for tables of 4 MB")


@pytest.mark.few(3, reason="other damage of the same kinds")
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=LARGE) if case.startswith("65,279") else case for case in ELFS]
)
def test_elf_files(works: Works, run: Run, tmp_path: Path, case: str) -> None:
    lie, said = ELFS[case]
    path = works.wheel(tmp_path, {"demo/a.so": lie(works.library.read_bytes())})
    answer = run(path)
    assert answer.code == 1, answer
    assert re.search(said, answer.out), answer
    assert answer.err == ""
    assert answer.left == []


@pytest.mark.few(2, reason="the same files in another place")
@pytest.mark.parametrize("case", ELFS)
def test_elf_files_of_a_prefix(works: Works, run: Run, tmp_path: Path, case: str) -> None:
    """The same lies in what the wheel's library needs: what cannot be loaded is not found, and what can is."""
    lie, _ = ELFS[case]
    prefix = tmp_path / "rocm"
    (prefix / "lib").mkdir(parents=True)
    (prefix / "lib/libdeep.so.1").symlink_to(works.prefix / "lib/libdeep.so.1")
    (prefix / "lib/libhip.so.7").write_bytes(lie(works.library.read_bytes()))
    answer = run(works.small(tmp_path), prefix=prefix)
    assert answer.code in (0, 1, 2), answer
    assert answer.err == "" or answer.code == 2
    assert bool(answer.left) == (answer.code == 0)
