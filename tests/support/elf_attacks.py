"""ELF files that make the real loader run code, or write to memory that is not theirs, in a dry run."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from relink.elf.image import read_image
from relink.system.safe_open import map_file
from tests.support.cc import cc, shared
from tests.support.elf_builder import Export, Import, Library, build

DRY_RUN = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", "LD_BIND_NOW": "yes", "LC_ALL": "C"}
FAR = 0x7F000000
"""An address far behind the end of any of these objects, which ends before 0x3000."""

_CANARY = r"""
static long call(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
static void canary(void) { call(2, (long)"@", 0101, 0644); call(60, 0, 0, 0); }
"""


def asked(
    interpreter: str, program: Path | str, preload: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Ask the loader as relink does, but with nothing in between."""
    more = {"LD_PRELOAD": str(preload)} if preload else {}
    return subprocess.run(
        [interpreter, str(program)], env=DRY_RUN | more, capture_output=True, text=True, check=False
    )


def audited(directory: Path, canary: Path, tag: str) -> tuple[Path, Path]:
    """Return a program whose DT_AUDIT (or DT_DEPAUDIT) names the library beside it, and that library, which makes `canary`."""
    source = _CANARY.replace("@", str(canary))
    source += "unsigned la_version(unsigned v) { canary(); return v; }\n"
    source += "__attribute__((constructor)) static void begin(void) { canary(); }\n"
    library = shared(directory / "libaud.so", source)
    option = {"DT_AUDIT": "--audit", "DT_DEPAUDIT": "--depaudit"}[tag]
    flags = (f"-Wl,{option},libaud.so", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed")
    return cc("int main(void) { return 0; }", directory / "prog", *flags), library


def resolving(output: Path, canary: Path) -> Path:
    """Return a library with an IFUNC symbol and an IRELATIVE relocation, whose resolver makes `canary`."""
    source = (
        _CANARY.replace("@", str(canary))
        + r"""
    static void *pick(void) { canary(); return 0; }
    int f(void) __attribute__((ifunc("pick")));
    static int g(void) __attribute__((ifunc("pick")));
    int (*global)(void) = f;
    int h(void) { return f() + g() + global(); }
    """
    )
    return shared(output, source)


def jumping(output: Path, canary: Path) -> Path:
    """Return a library that looks a symbol up in vain, with a relative relocation of the address of code that makes `canary`."""
    source = (
        _CANARY.replace("@", str(canary))
        + r"""
    void *slot = (void *)canary;
    extern int nowhere(void);
    int f(void) { return nowhere(); }
    """
    )
    return shared(output, source, flags=["-fvisibility=hidden"])


def moved(library: Path, target: int) -> bytes:
    """Return the library of :func:`jumping` with another target of its relative relocation."""
    data = bytearray(library.read_bytes())
    # The table lies in the first segment, whose addresses are offsets.
    (table,) = (value for _, tag, value in dynamic_entries(bytes(data)) if tag == 7)
    struct.pack_into("<Q", data, table, target & ((1 << 64) - 1))
    return bytes(data)


def loader_words(interpreter: str, program: str, library: Path) -> Iterator[int]:
    """Yield the addresses of the loader's own writable words, as `library` sees them when it is preloaded.

    Their distance is the same in each process: the kernel puts one next to the other.
    """
    told = asked(interpreter, program, library).stdout
    bases = dict(re.findall(r"^\t(?:\S+ => )?(\S+) \((0x[0-9a-f]+)\)$", told, re.MULTILINE))
    distance = int(bases[interpreter], 16) - int(bases[str(library)], 16)
    with map_file(os.path.realpath(interpreter)) as buffer:
        segments = read_image(buffer, interpreter).segments
    (data,) = (segment for segment in segments if segment.type == 1 and segment.flags & 2)
    for word in range(data.address, data.address + data.memory_size, 8):
        yield distance + word


def rewritten(**more: object) -> bytes:
    """Return a small library that is good but for what is given (see :class:`tests.support.elf_builder.Library`)."""
    usual = {"soname": "libx.so", "exports": (Export("f"),), "imports": (Import("nowhere"),)}
    return build(Library(**(usual | more)))  # type: ignore[arg-type]


def writing(kind: str, target: int) -> bytes:
    """Return a library whose one relocation of a kind writes to `target`."""
    types = {
        "RELATIVE": (8, 0), "64": (1, 2), "GLOB_DAT": (6, 2), "JUMP_SLOT": (7, 2), "DTPMOD64": (16, 2), "DTPOFF64": (17, 2),
        "TPOFF64": (18, 0), "TLSDESC": (36, 0), "COPY": (5, 2), "IRELATIVE": (37, 0), "32": (10, 2),
    }  # fmt: skip
    if kind == "RELR":
        return rewritten(relr=(target,))
    if kind == "JMPREL":
        data = rewritten(relocations=((target, 7, 2, 0),))
        return retagged(data, {7: 23, 8: 2, 9: 20}, {9: 7})
    number, symbol = types[kind]
    return resegmented(rewritten(relocations=((target, number, symbol, 64),)), 1, flags=7)


def retagged(data: bytes, tags: dict[int, int], values: dict[int, int] | None = None) -> bytes:
    """Return a built library with other tags in the dynamic array, and other values by the old tag."""
    changed = bytearray(data)
    for at, tag, value in dynamic_entries(data):
        struct.pack_into("<QQ", changed, at, tags.get(tag, tag), (values or {}).get(tag, value))
    return bytes(changed)


def dynamic_entries(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the offset, the tag and the value of each dynamic entry."""
    for number in range(struct.unpack_from("<H", data, 56)[0]):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", data, 64 + 56 * number)
        if kind == 2:
            for at in range(offset, offset + size, 16):
                yield (at, *struct.unpack_from("<QQ", data, at))


def resegmented(data: bytes, kind: int, **fields: int) -> bytes:
    """Return a file with other fields in its first program header of a kind: offset, address, file_size, memory_size, align."""
    places = {"type": (0, "<I"), "flags": (4, "<I"), "offset": (8, "<Q"), "address": (16, "<Q"), "file_size": (32, "<Q"),
              "memory_size": (40, "<Q"), "align": (48, "<Q")}  # fmt: skip
    changed = bytearray(data)
    start = struct.unpack_from("<Q", data, 32)[0]
    for number in range(struct.unpack_from("<H", data, 56)[0]):
        at = start + 56 * number
        if struct.unpack_from("<I", data, at)[0] == kind:
            for name, value in fields.items():
                place, form = places[name]
                struct.pack_into(form, changed, at + place, value)
            return bytes(changed)
    raise ValueError(f"no program header of type {kind}")
