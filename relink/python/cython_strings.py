"""The strings of a module that Cython made: from 3.1 on they are joined, with an array of their lengths, and may be compressed.

From 3.3 on they are compressed by an LZSS of Cython's own, before by zlib, which the module imports then
(generate_pystring_constants in Cython/Compiler/Code.py, and Cython/Utility/StringTools.c).
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, islice, pairwise, takewhile

import msgspec

from relink.elf.dynamic import Buffer
from relink.elf.image import read_sections

EVERY = (b"__name__", b"__main__", b"__test__")
"""Strings of all modules of Cython."""
_CYTHON = b"cython_runtime"  # a module that all of Cython's make
_JOINED = re.compile(rb"(?<![^\0])[^\0]{80,}")
_COMPRESSED = re.compile(rb"x[\x5e\x9c\xda]")
# The start of an LZSS stream: at least three bytes that refer to none before them, as the lowest bits say. The shortest strings
# come first, and "\0" and "\1" may be among them.
_LZSS = re.compile(
    rb"(?=[%s](?:\0\x01[\t\n -~]|[\0\t\n -~][\t\n -~]{2}))" % re.escape(bytes(range(7, 256, 8))), re.DOTALL
)
_ALIGNED = 32  # bytes, by which compilers align what is long
_LENGTHS = re.compile(rb"(?:[^\0][\0-\x7f]\0\0){6,}", re.DOTALL)
# Bytes that compressed strings give, those of all tries, the tries, and the bytes of the lengths of strings.
_INFLATED, _ALL_INFLATED, _TRIES, _INDEX = 1 << 20, 8 << 20, 2_000, 80_000
# Bytes that are searched of a section, places of a string in the joined ones, and places where these may begin.
_SEARCHED, _MARKS, _FIRSTS = 64 << 20, 64, 1 << 17


class CythonStrings(msgspec.Struct, frozen=True):
    """What the data of a module of Cython has.

    :ivar text: its strings, where they are joined.
    :ivar strings: the same in their order, where the data has their lengths.
    :ivar inflating: modules that inflate them.
    """

    text: bytes = b""
    strings: Sequence[bytes] = ()
    inflating: tuple[str, ...] = ()


def read_cython_strings(buffer: Buffer) -> CythonStrings | None:
    """Return the strings of a module of Cython, as far as they are joined; None of other modules.

    :raises ElfError: its sections cannot be read.
    """
    is_cython = False
    for section in read_sections(buffer, ""):
        if section.name.startswith(".rodata"):
            end = min(section.offset + min(section.file_size, _SEARCHED), len(buffer))
            data = bytes(buffer[section.offset : end])
            is_cython |= _CYTHON in data
            for text, inflating in islice(_joined_texts(data), _CYTHON in data):
                return CythonStrings(text, split_strings(text, data), inflating)
    return CythonStrings() if is_cython else None


def _joined_texts(data: bytes) -> Iterator[tuple[bytes, tuple[str, ...]]]:
    """Yield texts in which Cython has joined the strings of a source, and the modules that inflate each."""
    for found in _JOINED.finditer(data):
        if all(one in found[0] for one in EVERY):
            yield found[0], ()
    # A module that zlib inflates has the name of that; others would take the time for nothing.
    for found in islice(_COMPRESSED.finditer(data) if b"\0zlib\0" in data else (), _TRIES):
        decoder = zlib.decompressobj()
        with suppress(zlib.error):
            text = decoder.decompress(data[found.start() : found.start() + _INFLATED], _INFLATED)
            if decoder.eof and all(one in text for one in EVERY):
                yield text, ("zlib",)
    left = _ALL_INFLATED
    heads = bytearray(4 * (len(data) // _ALIGNED))
    for number in range(4):
        heads[number::4] = data[number : len(data) // _ALIGNED * _ALIGNED : _ALIGNED]
    for start in (found.start() // 4 * _ALIGNED for found in _LZSS.finditer(heads) if found.start() % 4 == 0):
        if left > 0:
            text = inflate_lzss(data, start)
            left -= len(text)
            if all(one in text for one in EVERY):
                yield text, ()
                break


def inflate_lzss(data: bytes, start: int) -> bytes:
    """Return what a stream gives up to the first reference to what is not there: its end, which no byte marks, and some more.

    A byte says of the next eight parts by a bit each, the lowest first, whether it is a byte (1) or a reference, of two or three
    bytes: how many bytes there are between its end and what it repeats, and how long that is, less 3.
    """
    text = bytearray()
    with suppress(IndexError):
        while len(text) < _INFLATED:
            bits, start = data[start] | 0x100, start + 1
            while bits > 1:
                if bits & 1:
                    text.append(data[start])
                    start += 1
                else:
                    between, size = data[start], data[start + 1]
                    start += 2
                    if between >= 0x80 and size < 0x80:
                        between, size = between + ((size & 0x60) << 2), size & 0x1F
                    elif between >= 0x80:
                        between, size = between + ((size & 0x7F) << 7), data[start]
                        start += 1
                    at = len(text) - between - size - 3
                    if at < 0:
                        return bytes(text)
                    text += text[at : at + size + 3]
                bits >>= 1
    return bytes(text)


def split_strings(text: bytes, data: bytes) -> list[bytes]:
    """Return the strings of a joined text, by the array of their lengths; none where it is not found, as where code makes it.

    A first string that is empty is left out.
    """
    # One of them may begin with the end of the string before it.
    marks = [[*islice(_places(one, text), _MARKS)] for one in EVERY]
    done, left = 0, _FIRSTS
    for found in _LENGTHS.finditer(data):
        start = found.start() + -found.start() % 4
        if start < done:
            continue
        lengths = array("I", data[start : min(start + _INDEX, len(data) // 4 * 4)])
        ends = [0, *accumulate(takewhile(lambda length: length < 0x8000, lengths))]
        places, done = set(ends), start + 4 * len(ends)
        fewest = min(marks, key=len)
        firsts = islice((end - mark for mark in fewest for end in ends), left)
        left -= len(fewest) * len(ends)
        for first in firsts:
            if all(
                any(first + mark in places and first + mark + 8 in places for mark in each) for each in marks
            ):
                return [text[one - first : other - first] for one, other in pairwise(ends) if one >= first]
        if left <= 0:
            break
    return []


def _places(part: bytes, text: bytes) -> Iterator[int]:
    """Yield where a part begins in a text; it may overlap itself."""
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + 1)
