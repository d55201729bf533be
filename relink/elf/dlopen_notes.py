"""The dlopen metadata of one ELF file: ``.note.dlopen``, by which a build says what the file may dlopen.

Source: https://uapi-group.org/specifications/specs/elf_dlopen_metadata/. The notes are advice, so damage in them is no error.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from relink.system.bounded_json import parse_json

__all__ = ["DlopenNote", "dlopen_notes"]

_NOTE_TYPE = 0x407C0C0A
_NOTE_OWNER = b"FDO"


@dataclass(frozen=True, slots=True)
class DlopenNote:
    """One entry of a ``.note.dlopen`` section (systemd's ELF dlopen metadata): sonames in order of preference."""

    sonames: tuple[str, ...]
    feature: str
    priority: str


def dlopen_notes(data: bytes, *, little_endian: bool, align: int) -> Iterator[DlopenNote]:
    """Yield the dlopen metadata among the notes of one PT_NOTE segment (gABI, "Note Section"); a damaged note ends the walk.

    :param data: the content of the segment.
    :param align: its p_align. Notes are padded to 8 bytes where it is 8, else to 4.
    """
    order = "<" if little_endian else ">"
    step = 8 if align == 8 else 4
    position = 0
    while position + 12 <= len(data):
        name_size, size, kind = struct.unpack_from(order + "III", data, position)
        name_start = position + 12
        start = name_start + -(-name_size // step) * step
        if start + size > len(data):
            return
        name = data[name_start : name_start + name_size].rstrip(b"\0")
        if kind == _NOTE_TYPE and name == _NOTE_OWNER:
            yield from _parse(data[start : start + size])
        position = start + -(-size // step) * step


def _parse(payload: bytes) -> Iterator[DlopenNote]:
    """Yield the entries of one note; what is not as the specification says ends it, without harm to the rest."""
    with contextlib.suppress(ValueError, AttributeError, TypeError, KeyError):
        for entry in parse_json(payload.split(b"\0", 1)[0].decode()):
            sonames = entry["soname"]
            names = (sonames,) if isinstance(sonames, str) else tuple(str(name) for name in sonames)
            yield DlopenNote(names, str(entry.get("feature", "")), str(entry.get("priority", "recommended")))
