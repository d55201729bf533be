"""Names in an extension module that may be those of modules that it imports in C. No proof that it does: events say ``inferred``.

Where they stand: PyImport_ImportModule and Cython's __Pyx_ImportModule take a C string; PyCapsule_Import takes the name of an
attribute of a module (``datetime.datetime_CAPI``); Cython before 3.1 has every name of the source as a C string, and later ones
join the strings, and compress them where that pays, which the module undoes with zlib as it is imported
(Cython/Utility/StringTools.c).
"""

from __future__ import annotations

import re
import zlib

import msgspec

from relink.elf.dynamic import Buffer
from relink.elf.image import read_sections
from relink.system.errors import ElfError

_CAPSULE = re.compile(rb"(?<=\0)([A-Za-z_][\w.]*)\.\w*C_?API(?=\0)")
_NAME = re.compile(rb"(?<![^\0])\w[\w.]{2,80}(?=\0)")
_JOINED = re.compile(rb"(?:[\w.]|[^\w\0]){80,}")
_WORD = re.compile(r"[\w.]{40,}")
_COMPRESSED = re.compile(rb"x[\x5e\x9c\xda]")
# Bytes that are searched of a section, names that are taken of an extension, and characters of joined strings.
_SEARCHED, _NAMES, _TEXT = 64 << 20, 5_000, 1 << 18
# Bytes that compressed strings give, and places at which they are tried.
_INFLATED, _TRIES = 1 << 20, 2_000


class ExtensionNames(msgspec.Struct, frozen=True):
    """What stands in an extension's data.

    :ivar certain: modules that it imports for sure.
    :ivar names: whole strings, in the order of the file.
    :ivar joined: strings without ends, in which a name may stand anywhere.
    """

    certain: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    joined: str = ""


def read_extension_names(buffer: Buffer) -> ExtensionNames:
    """Return the names in the data of an extension; none for a file without section headers."""
    try:
        sections = [one for one in read_sections(buffer, "") if one.name.startswith((".rodata", ".data"))]
    except ElfError:
        return ExtensionNames()
    certain: dict[str, None] = {}
    names: dict[str, None] = {}
    joined: list[str] = []
    for section in sections:
        end = min(section.offset + min(section.file_size, _SEARCHED), len(buffer))
        data = bytes(buffer[section.offset : end])
        certain |= dict.fromkeys(found[1].decode("ascii", "replace") for found in _CAPSULE.finditer(data))
        for text in _inflate(data) if b"\0zlib\0" in data else ():
            certain["zlib"] = None
            joined.append(text)
        if b"__pyx_capi__" in data:
            joined += [
                found[0].decode("ascii", "replace")
                for found in _JOINED.finditer(data)
                if b"__name__" in found[0]
            ]
        for found in _NAME.finditer(data):
            if len(names) >= _NAMES:
                break
            names[found[0].decode("ascii", "replace")] = None
    # A sentence of a docstring names modules, too: names that are joined stand in words that no sentence has.
    words = [word for text in joined for word in _WORD.findall(text)]
    return ExtensionNames(tuple(certain), tuple(names), " ".join(words)[:_TEXT])


def _inflate(data: bytes) -> list[str]:
    """Return what streams of zlib in `data` give that hold names of Cython."""
    found = []
    for tried, at in enumerate(_COMPRESSED.finditer(data)):
        if tried > _TRIES:
            break
        decoder = zlib.decompressobj()
        try:
            text = decoder.decompress(data[at.start() : at.start() + _INFLATED], _INFLATED)
        except zlib.error:
            continue
        if decoder.eof and b"__name__" in text:
            found.append(text.decode("ascii", "replace"))
    return found
