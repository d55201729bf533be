"""relink's ELF reader and pyelftools on sound and damaged files, and the differences that are known.

`KNOWN` says which of the two is right, by the gABI (System V ABI, "Object Files", "Program Loading and Dynamic Linking"), by the
LSB ("Symbol Versioning") or by what ld.so and Linux do where these leave it open. Three faults of relink's own reader that were
found here are mended: it took strings from the ELF header where DT_STRTAB was missing, took the last of several PT_INTERP, and
refused a file without program headers where e_phoff leads nowhere.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from relink.elf.dynamic import Memory, Strings
from relink.elf.edit import ElfEdit
from relink.elf.image import Image, file_offset, read_image
from relink.elf.symbol_reader import read_symbols
from relink.system.errors import ElfError
from tests.fuzz.inputs import NUMBERS
from tests.support.elf_builder import Export, Import, Library, build
from tests.support.pyelftools_reader import Reading, VersionNeeds, planned_needs, read_with_pyelftools

_DYN: Final = struct.Struct("<QQ")
_PROGRAM: Final = struct.Struct("<IIQQQQQQ")
_TAGS: Final = (
    0,
    1,
    4,
    5,
    6,
    10,
    11,
    14,
    15,
    29,
    0x6FFFFEF5,
    0x6FFFFFF0,
    0x6FFFFFFE,
    0x6FFFFFFF,
    0x7FFFFFFF,
    0x12345678,
)
_TYPES: Final = (0, 1, 2, 3, 4, 6, 7, 0x6474E551, 0x6474E553, 0x70000001, 0x12345678)
_SONAMES: Final = ("liba.so.1", "libb.so.1", "libc.so.6", "x", "", "lib\udcff.so", "n" * 70)


def sound(rng: random.Random) -> bytes:
    """Return a library with what the readers compare."""
    names = tuple(rng.choices(_SONAMES, k=rng.randrange(4)))
    imports = tuple(
        Import(f"s{number}", rng.choice((None, "V_1", "V_2")), rng.choice(names or ("libz.so",)))
        for number in range(rng.randrange(4))
    )
    return build(
        Library(
            rng.choice((None, "libx.so.1")),
            names,
            rpath=rng.choice((None, None, "/old")),
            runpath=rng.choice((None, "$ORIGIN:/p", "")),
            interpreter=rng.choice((None, "/lib/ld.so")),
            exports=(Export("f", rng.choice((None, "V_0"))),),
            imports=imports,
            hash=rng.choice(("gnu", "both", "sysv")),
        )
    )


def _programs(data: bytes) -> list[int]:
    return [64 + 56 * number for number in range(struct.unpack_from("<H", data, 56)[0])]


def _entries(data: bytes) -> list[int]:
    """The offsets of the dynamic array's entries."""
    for at in _programs(data):
        kind, _, offset, _, _, size, *_ = _PROGRAM.unpack_from(data, at)
        if kind == 2:
            return list(range(offset, offset + size, _DYN.size))
    return []


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Change one to three fields of the tables that the readers look at: a number, a tag, a string, a record, or an order."""
    changed = bytearray(data)
    entries, programs = _entries(data), _programs(data)
    values: dict[int, int] = dict(_DYN.unpack_from(data, at) for at in entries)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        number = rng.choice((*NUMBERS, *values.values(), rng.randrange(len(data))))
        match rng.randrange(12):
            case 0 | 1:
                struct.pack_into("<Q", changed, rng.choice(entries) + 8, number)
            case 2:
                struct.pack_into("<Q", changed, rng.choice(entries), rng.choice(_TAGS))
            case 3:
                one, other = rng.choice(entries), rng.choice(entries)
                changed[one : one + 16], changed[other : other + 16] = (
                    changed[other : other + 16],
                    changed[one : one + 16],
                )
            case 4:
                one, other = rng.choice(entries), rng.choice(entries)
                changed[one : one + 16] = changed[other : other + 16]
            case 5:
                start, size = values.get(5, 0), values.get(10, 1)
                changed[start + rng.randrange(size)] = rng.choice((0, 0, 0x2F, 0x41, 0xFF))
            case 6:
                changed[values.get(5, 0) + values.get(10, 1) - 1] = 0x41
            case 7:
                at = rng.choice(programs)
                place, form = rng.choice(
                    ((4, "<I"), (8, "<Q"), (16, "<Q"), (32, "<Q"), (40, "<Q"), (48, "<Q"))
                )
                struct.pack_into(
                    form, changed, at + place, number & (0xFFFFFFFF if form == "<I" else (1 << 64) - 1)
                )
            case 8:
                struct.pack_into("<I", changed, rng.choice(programs), rng.choice(_TYPES))
            case 9:
                one, other = rng.choice(programs), rng.choice(programs)
                changed[one : one + 56], changed[other : other + 56] = (
                    changed[other : other + 56],
                    changed[one : one + 56],
                )
            case 10 if 0x6FFFFFFE in values:
                at = values[0x6FFFFFFE] + 4 * rng.randrange(16)
                if at + 4 <= len(changed):
                    place, form, mask = rng.choice(
                        ((0, "<H", 0xFFFF), (2, "<H", 0xFFFF), (0, "<I", 0xFFFFFFFF))
                    )
                    struct.pack_into(form, changed, at + place, rng.choice((number, 0, 1, 16, 32)) & mask)
            case _:
                place, form = rng.choice(
                    (
                        (4, "B"),
                        (5, "B"),
                        (16, "<H"),
                        (18, "<H"),
                        (32, "<Q"),
                        (54, "<H"),
                        (56, "<H"),
                        (40, "<Q"),
                    )
                )
                struct.pack_into(form, changed, place, number & ((1 << 8 * struct.calcsize(form)) - 1))
    return bytes(changed if rng.random() < 0.9 else changed[: rng.randrange(len(changed))])


@dataclass(frozen=True)
class Answers:
    """What both say of a file: facts, or a reason not to read it. `problems` are those that make relink refuse the wheel."""

    image: Image | None
    needs: VersionNeeds
    ours: str
    other: Reading | None
    theirs: str


def answers(data: bytes) -> Answers:
    image: Image | None = None
    needs: VersionNeeds = ()
    other, ours, theirs = None, "", ""
    try:
        image = read_image(data, "x")
        table = read_symbols(data)
        needs = planned_needs(table.verneeds, ElfEdit())
        with memoryview(data) as view:
            memory = Memory(view)
            memory.read_header()
            Strings(memory)
        # Where there is no symbol table, those of the string table are not among the table's.
        ours = "; ".join(dict.fromkeys((*memory.problems, *table.problems)))
    except ElfError as error:
        ours = error.message
    try:
        other = read_with_pyelftools(data)
    except ElfError as error:
        theirs = error.message
    return Answers(image, needs, ours, other, theirs)


def differing(found: Answers) -> tuple[str, ...]:
    """Return the fields that both have read, and read otherwise."""
    image, other = found.image, found.other
    if image is None or other is None:
        return ()
    names = ("needed", "rpath", "runpath", "soname", "interpreter", "segments")
    fields = [name for name in names if getattr(image, name) != getattr(other, name)]
    return (*fields, *(["needs"] if found.needs != other.needs else []))


_DYNAMIC: Final = frozenset({"needed", "rpath", "runpath", "soname", "needs"})
REFUSED: Final = "refused by relink", "refused by pyelftools"


@dataclass(frozen=True)
class Known:
    """A difference on damaged files.

    :ivar fields: in which it shows: names of :class:`Reading`'s, or one of `REFUSED`.
    :ivar applies: whether a file has this damage.
    :ivar right: which of the two answers as the specification says.
    """

    fields: frozenset[str]
    applies: Callable[[bytes, Answers], bool]
    right: str
    reason: str


def _says(*words: str) -> Callable[[bytes, Answers], bool]:
    """The damage is one that relink reports, with these words; a wheel is refused if it has to edit such a member (RLK506)."""
    return lambda _, found: any(word in found.ours for word in words)


def _dynamic_elsewhere(_: bytes, found: Answers) -> bool:
    """Whether the last PT_DYNAMIC has an offset that is not where its address is mapped from."""
    if found.image is None:
        return False
    last = [one for one in found.image.segments if one.type == 2][-1:]
    return any(file_offset(found.image.segments, one.address) != one.offset for one in last)


def _open_interpreter(data: bytes, found: Answers) -> bool:
    """Whether the first PT_INTERP has no zero byte in it."""
    if found.image is None:
        return False
    first = [one for one in found.image.segments if one.type == 3][:1]
    return any(b"\0" not in data[one.offset : one.offset + one.file_size] for one in first)


KNOWN: Final = {
    "a string beyond the string table": Known(
        _DYNAMIC | {*REFUSED},
        _says(
            "string table is empty or does not end",
            "DT_STRSZ is missing",
            "outside of DT_STRTAB",
            "name outside of the string",
        ),
        "relink",
        "relink takes the next table for the end of the strings, as tables do not overlap; pyelftools reads what lies behind.",
    ),
    "no symbol table": Known(
        frozenset({"needs", REFUSED[1]}),
        _says("names no symbol table or no string table"),
        "relink",
        "gABI: DT_STRTAB and DT_SYMTAB are mandatory. relink reports that and reads no version needs; pyelftools reads them.",
    ),
    "counts of version needs": Known(
        frozenset({"needs", REFUSED[1]}),
        _says("DT_VERNEEDNUM is", "record of DT_VERNEED counts", "DT_VERNEED has"),
        "relink",
        "LSB has the counts and the chains (vn_next, vna_next); ld.so follows the chains (elf/dl-version.c), and so does relink, "
        "which reports a count that differs. pyelftools goes by the counts, and does not read vn_version.",
    ),
    "a dynamic array without DT_NULL": Known(
        _DYNAMIC | {REFUSED[1]},
        _says("the dynamic segment has no end"),
        "relink",
        "gABI: DT_NULL marks the end. relink reports that the segment has none, pyelftools reads to the file's end.",
    ),
    "PT_DYNAMIC at another offset than its address": Known(
        _DYNAMIC | {*REFUSED},
        _dynamic_elsewhere,
        "relink",
        "ld.so uses p_vaddr alone (elf/dl-load.c), pyelftools p_offset. In a sound file they are the same bytes.",
    ),
    "an interpreter without end": Known(
        frozenset({"interpreter", REFUSED[1]}),
        _open_interpreter,
        "relink",
        "gABI: PT_INTERP has the size of the name; Linux refuses one without a zero byte. pyelftools reads past the segment.",
    ),
    "segments past the end of the file": Known(
        frozenset({REFUSED[0]}),
        _says("ends past the end of the file"),
        "relink",
        "ld.so maps what is not there, and the process dies of SIGBUS; pyelftools reads a segment's content only if asked.",
    ),
    "program headers of another size": Known(
        frozenset({REFUSED[0]}),
        _says("program headers of"),
        "relink",
        "ld.so refuses an e_phentsize that is not the structure's size (elf/dl-load.c, open_verify); pyelftools goes by it.",
    ),
    "an e_phnum of 0xffff": Known(
        frozenset({REFUSED[0]}),
        _says("65535 program headers at"),
        "relink",
        "gABI: PN_XNUM leaves the number to the first section header. ld.so knows no PN_XNUM, and refuses what does not fit into "
        "the file; pyelftools is not shown the section headers (relink.make.output).",
    ),
    "PT_DYNAMIC that is not loaded": Known(
        frozenset({REFUSED[0]}),
        _says("PT_DYNAMIC lies in no PT_LOAD"),
        "relink",
        "ld.so reads the dynamic array in memory; pyelftools reads it in the file.",
    ),
}


def unexplained(data: bytes, found: Answers) -> set[str]:
    """Return the fields in which the readers differ, but for those that a known difference covers."""
    fields = {*differing(found)}
    if found.image is None and found.other is not None:
        fields.add(REFUSED[0])
    if found.image is not None and found.other is None:
        fields.add(REFUSED[1])
    return fields.difference(*(known.fields for known in KNOWN.values() if known.applies(data, found)))
