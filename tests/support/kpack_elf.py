"""Libraries and programs as TheRock's splitter leaves them: device code gone, program headers moved to a trailing PT_LOAD.

What is done follows the description in ROCm's shared/kpack (its packaging document, and what its tools say of themselves):

1. ``.rocm_kpack_ref`` is appended, with a new table of section names and a new section header table behind it;
2. it gets a PT_LOAD of its own, page aligned, behind all addresses; where the program header table has no room for one more,
   the table moves to the end of the file, with room for a multiple of sixteen entries, into another read-only PT_LOAD;
3. wrappers get the magic HIPK, their number, and a pointer to ``.rocm_kpack_ref``, as does the relocation of that pointer;
4. whole pages of ``.hip_fatbin`` are taken out of the file: the segment around them is divided, and in memory they are zeros;
5. in an executable, the segment of the moved table is put where its address is its offset (for Linux 4.18).

The input has to be x86-64 with section headers, as a compiler makes it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.cc import cc
from tests.unit.gpu.amd.build import msgpack

PAGE = 4096
LOAD, INTERP, PHDR, RELRO = 1, 3, 6, 0x6474E552
HIPF, HIPK = 0x48495046, 0x4B504948
SPARE = 16
REFERENCE = ".rocm_kpack_ref"
_PROGRAM = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")

SOURCE = r"""
extern int dep(void);
struct wrapper { unsigned magic, version; const volatile void *code; unsigned long number; };
static const volatile char code[%(fat)d] __attribute__((section(".hip_fatbin"), aligned(4096), used)) = {[0 ... %(last)d] = 'C'};
volatile struct wrapper wrappers[] __attribute__((section(".hipFatBinSegment"), visibility("hidden"))) = {%(wrappers)s};
static char room[%(bss)d]; volatile _Thread_local int local = 5; const char *volatile words[] = {"one", "two", "three"};
int check(void) {
  const volatile unsigned char *reference = wrappers[0].code;
  room[sizeof room - 1] = 1;
  for (unsigned number = 0; number < %(count)d; number++)
    if (wrappers[number].magic != 0x4b504948 || wrappers[number].number != number || wrappers[number].code != reference) return 1;
  if (reference[0] != 0x82 || reference[1] != 0xab || reference[2] != 'k') return 2;
  for (unsigned at = 0; at < %(zeroed_to)d; at += 512) if (code[at]) return 3;
  if (words[1][1] != 'w' || local != 5 || dep() != 40) return 4;
  return 0;
}
"""
MAIN = "int main(void) { return check(); }\n"


@dataclass
class Program:
    """One program header."""

    type: int
    flags: int
    offset: int
    address: int
    physical: int
    file_size: int
    memory_size: int
    align: int

    def pack(self) -> bytes:
        return _PROGRAM.pack(*(getattr(self, name) for name in self.__dataclass_fields__))


class _File:
    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.phoff, self.shoff = struct.unpack_from("<QQ", data, 32)
        phnum, _, shnum, self.names = struct.unpack_from("<HHHH", data, 56)
        self.programs = [
            Program(*row) for row in _PROGRAM.iter_unpack(data[self.phoff : self.phoff + 56 * phnum])
        ]
        self.sections = [
            list(row) for row in _SECTION.iter_unpack(data[self.shoff : self.shoff + 64 * shnum])
        ]

    def name_of(self, section: list[int]) -> str:
        start = self.sections[self.names][4] + section[0]
        return self.data[start : self.data.index(0, start)].decode()

    def section(self, name: str) -> list[int]:
        return next(one for one in self.sections if self.name_of(one) == name)

    @property
    def end(self) -> int:
        """The first page behind all addresses."""
        return max(up(one.address + one.memory_size) for one in self.programs if one.type == LOAD)

    def pad(self) -> int:
        self.data += bytes(-len(self.data) % PAGE)
        return len(self.data)

    def bytes(self) -> bytes:
        struct.pack_into("<QQ", self.data, 32, self.phoff, self.shoff)
        struct.pack_into("<HHHH", self.data, 56, len(self.programs), 64, len(self.sections), self.names)
        for at, program in enumerate(self.programs):
            self.data[self.phoff + 56 * at : self.phoff + 56 * at + 56] = program.pack()
        for at, section in enumerate(self.sections):
            _SECTION.pack_into(self.data, self.shoff + 64 * at, *section)
        return bytes(self.data)


def up(value: int) -> int:
    return -(-value // PAGE) * PAGE


def reference(name: str, paths: Sequence[str]) -> bytes:
    return msgpack({"kernel_name": name, "kpack_search_paths": list(paths)})


def split(data: bytes, content: bytes, *, table: bool = True, pin: bool = True, phdr: bool = False) -> bytes:
    """Return the file without its device code.

    :param content: of ``.rocm_kpack_ref`` (:func:`reference`).
    :param table: move the program headers; they have to be, unless the linker left room for more.
    :param pin: step 5, which older splitters did not have.
    :param phdr: add a PT_PHDR where the linker has made none, as LLD makes one in libraries too.
    """
    file = _File(data)
    _add_section(file, content)
    if phdr and not any(one.type == PHDR for one in file.programs):
        file.programs.insert(0, Program(PHDR, 4, 0, 0, 0, 0, 0, 8))
    place = file.end
    section = file.section(REFERENCE)
    section[2], section[3], section[4] = 2, place, file.pad()
    file.data += content
    file.programs.append(Program(LOAD, 4, section[4], place, place, len(content), len(content), PAGE))
    _redirect(file, place)
    _take_out(file)
    if table:
        _move_table(file, pin=pin)
    return file.bytes()


def _add_section(file: _File, content: bytes) -> None:
    at = len(file.data)
    file.data += content
    names = file.sections[file.names]
    old = bytes(file.data[names[4] : names[4] + names[5]])
    names[4], names[5] = len(file.data), len(old) + len(REFERENCE) + 1
    file.data += old + REFERENCE.encode() + b"\0"
    file.sections.append([len(old), 1, 0, 0, at, len(content), 0, 0, 1, 0])
    file.data += bytes(-len(file.data) % 8)
    file.shoff = len(file.data)
    file.data += bytes(64 * len(file.sections))


def _redirect(file: _File, place: int) -> None:
    segment = file.section(".hipFatBinSegment")
    pointers = {}
    for number in range(segment[5] // 24):
        at = segment[4] + 24 * number
        assert struct.unpack_from("<I", file.data, at)[0] == HIPF
        struct.pack_into("<I", file.data, at, HIPK)
        struct.pack_into("<QQ", file.data, at + 8, place, number)
        pointers[segment[3] + 24 * number + 8] = place
    for section in file.sections:
        if section[1] == 4:  # SHT_RELA
            for at in range(section[4], section[4] + section[5], 24):
                if struct.unpack_from("<Q", file.data, at)[0] in pointers:
                    struct.pack_into("<QQ", file.data, at + 8, 8, place)


def _take_out(file: _File) -> None:
    fat = file.section(".hip_fatbin")
    start, stop = up(fat[4]), (fat[4] + fat[5]) // PAGE * PAGE
    stop -= (stop - start) % max(one.align for one in file.programs if one.type == LOAD)
    if stop <= start:
        return
    size = stop - start
    number, load = next(
        (n, one)
        for n, one in enumerate(file.programs)
        if one.type == LOAD and one.offset <= start < one.offset + one.file_size
    )
    shift = load.address - load.offset
    before = replace(load, file_size=start - load.offset, memory_size=start - load.offset)
    gone = Program(LOAD, load.flags, start, start + shift, start + shift, 0, size, load.align)
    rest = load.offset + load.file_size - stop
    after = Program(
        LOAD,
        load.flags,
        stop,
        stop + shift,
        stop + shift,
        rest,
        load.memory_size - (stop - load.offset),
        load.align,
    )
    parts = [one for one in (before, gone, after) if one.memory_size > 0]
    file.programs[number : number + 1] = parts
    del file.data[start:stop]
    for program in file.programs:
        if program.offset >= stop:
            program.offset -= size
    for section in file.sections:
        if section[4] >= stop:
            section[4] -= size
    fat[1] = 8  # SHT_NOBITS
    file.shoff -= size if file.shoff >= stop else 0


def _move_table(file: _File, *, pin: bool) -> None:
    address, count = file.end, len(file.programs) + 1
    size = 56 * -(-count // SPARE) * SPARE
    place = file.pad()
    executable = any(one.type == INTERP for one in file.programs)
    shift = min((one for one in file.programs if one.type == LOAD), key=lambda one: one.address)
    if pin and executable:
        delta = shift.address - shift.offset
        place = max(place, address - delta)
        file.data += bytes(place - len(file.data))
        address = place + delta
    for program in file.programs:
        if program.type == PHDR:
            program.offset, program.address, program.physical = place, address, address
            program.file_size = program.memory_size = size
    file.programs.append(Program(LOAD, 4, place, address, address, size, size, PAGE))
    file.data += bytes(size)
    file.phoff = place


def compile_input(
    path: Path,
    dependency: Path,
    *,
    wrappers: int = 2,
    fat: int = 3 * PAGE + 100,
    bss: int = 64,
    flags: Sequence[str] = (),
    program: bool = False,
) -> Path:
    """Compile a library (or a PIE) with device code that is not split yet; ``check()`` is 0 in the split one."""
    text = SOURCE % {
        "fat": fat,
        "last": fat - 1,
        "bss": bss,
        "count": wrappers,
        "wrappers": ", ".join([f"{{{HIPF:#x}, 1, code, 0}}"] * wrappers),
        "zeroed_to": 0 if any("max-page-size" in flag for flag in flags) else fat // PAGE * PAGE,
    }
    kind = ["-pie", "-fPIE"] if program else ["-shared", "-fPIC", f"-Wl,-soname,{path.name}"]
    base = ["-O1", "-Wl,--no-as-needed", "-Wl,--enable-new-dtags,-rpath,/nowhere"]
    return cc(text + (MAIN if program else ""), path, *kind, *base, *flags, needed=[dependency])
