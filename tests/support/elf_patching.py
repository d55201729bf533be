"""ELF files that are changed in place, a field at a time."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Elf:
    """A 64-bit little-endian file that is changed in place.

    :ivar dynamic: by tag the place of its entry in the file.
    """

    data: bytearray
    headers: list[int] = field(default_factory=list)
    dynamic: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        start, size, count = (
            *struct.unpack_from("<Q", self.data, 32),
            *struct.unpack_from("<HH", self.data, 54),
        )
        self.headers = [start + size * number for number in range(count)]
        for at in self.headers:
            if self.word(at, "I") == 2:
                place = self.word(at + 8)
                while tag := self.word(place):
                    self.dynamic.setdefault(tag, place)
                    place += 16

    def word(self, at: int, kind: str = "Q") -> int:
        return int(struct.unpack_from(f"<{kind}", self.data, at)[0])

    def put(self, at: int, value: int, kind: str = "Q") -> None:
        struct.pack_into(f"<{kind}", self.data, at, value & (1 << 8 * struct.calcsize(kind)) - 1)

    def value(self, tag: int) -> int:
        return self.word(self.dynamic[tag] + 8) if tag in self.dynamic else 0

    def place(self, tag: int) -> int:
        """Return the offset of the table that an entry names; 0 where there is none."""
        address = self.value(tag)
        for at in self.headers if address else ():
            offset, first, size = self.word(at + 8), self.word(at + 16), self.word(at + 32)
            if self.word(at, "I") == 1 and first <= address < first + size:
                return offset + address - first
        return 0

    def header(self, kind: int) -> int | None:
        return next((at for at in self.headers if self.word(at, "I") == kind), None)

    def relocations(self) -> list[int]:
        return [
            place + 24 * number
            for table, size in ((7, 8), (23, 2))
            if (place := self.place(table))
            for number in range(self.value(size) // 24)
        ]

    def text(self, at: int) -> str:
        start = self.place(5) + at
        return self.data[start : self.data.index(0, start)].decode(errors="replace")


def set_isa_needed(path: Path, bits: int) -> None:
    """Have a library that the linker made for the x86-64 baseline ask for other levels of the processor."""
    data = bytearray(path.read_bytes())
    at = data.index(struct.pack("<II", 0xC0008002, 4))
    struct.pack_into("<I", data, at + 8, bits)
    path.write_bytes(data)
