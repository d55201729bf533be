"""Files whose counts are hostile: small when they are compressed, and meant to take long by what is compared with what."""

from __future__ import annotations

import json
import struct

from tests.unit.gpu.amd import build

__all__ = [
    "kpack_lists",
    "kpack_paths",
    "plan_of",
    "scattered_wrappers",
    "sections_of_wrappers",
]

_HIPF = 0x48495046
_BASE = 0x10000000
_FINDING = {"code": "RLK101", "level": "error", "subject": "", "message": "", "remedy": "", "profile": None}


def kpack_lists(objects: int) -> bytes:
    """A kpack archive whose table is one array of objects of a byte each."""
    names = build.msgpack({"gfx_arches": ["gfx1100"]})[1:]
    toc = b"\x81\xa1x\xdd" + struct.pack(">I", objects) + bytes(objects)
    return b"KPAK" + struct.pack("<IQ", 1, 16) + b"\x82" + names + b"\xa3toc" + toc


def kpack_paths(paths: int) -> bytes:
    """A library with so many search paths for kpack archives."""
    packed = [build.msgpack(f"{number}@GFXARCH@") for number in range(paths)]
    array = b"\xdd" + struct.pack(">I", paths) + b"".join(packed)
    names = build.msgpack({"kernel_name": "k"})[1:]
    return build.library(
        kpack=b"\x82" + names + build.msgpack("kpack_search_paths") + array, kpack_wrappers=1
    )


def plan_of(findings: int) -> str:
    """A plan with so many findings."""
    head = {
        "schema": "relink.plan/1",
        "wheel": {"path": "x", "sha256": "", "name": "", "version": "", "tags": []},
        "output": "",
        "target": {"interpreter": "/ld.so", "glibc": "2.36", "directories": []},
        "providers": [],
        "files": [],
    }
    rows = ",".join([json.dumps(_FINDING)] * findings)
    return json.dumps(head)[:-1] + f', "findings": [{rows}]}}'


def _elf(
    segments: list[tuple[int, int, int, int, int]], body: bytes, shoff: int = 0, shnum: int = 0
) -> bytes:
    """Segments are type, flags, offset, address and size; the last section has the names."""
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, shoff, 0, 64, 56, len(segments), 64, shnum, max(shnum - 1, 0)
    )
    rows = (
        struct.pack("<IIQQQQQQ", kind, flags, at, to, to, size, size, 4096)
        for kind, flags, at, to, size in segments
    )
    return head + b"".join(rows) + body


def scattered_wrappers(count: int) -> bytes:
    """A file without section headers: each wrapper is alone, and as many relocations are looked at for it."""
    start = 64 + 2 * 56
    wrappers = (struct.pack("<IIQQ", _HIPF, 1, 0, 0) + bytes(8)) * count
    relocations = b"".join(
        struct.pack("<QQQ", _BASE + start + 32 * number + 8, 8, 0) for number in range(count)
    )
    at = _BASE + start + len(wrappers)
    tags = b"".join(struct.pack("<QQ", *tag) for tag in ((7, at), (8, len(relocations)), (9, 24), (0, 0)))
    body = wrappers + relocations + tags
    end = start + len(body)
    dynamic = (2, 6, end - len(tags), _BASE + end - len(tags), len(tags))
    return _elf([(1, 6, 0, _BASE, end), dynamic], body)


def sections_of_wrappers(count: int) -> bytes:
    """As many wrappers as sections that are called .hip_fatbin."""
    start, names = 64 + 56, b"\0.hip_fatbin\0.hipFatBinSegment\0.shstrtab\0"
    wrappers = b"".join(struct.pack("<IIQQ", _HIPF, 1, _BASE + start + number, 0) for number in range(count))
    at = start + len(wrappers)
    body = wrappers + names + bytes(-(at + len(names)) % 8)
    table = start + len(body)

    def row(name: int, kind: int, flags: int, place: int, size: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, kind, flags, _BASE + place, place, size, 0, 0, 1, 0)

    rows = [
        bytes(64),
        *[row(1, 1, 2, start, 1)] * count,
        row(13, 1, 3, start, len(wrappers)),
        row(31, 3, 0, at, len(names)),
    ]
    return _elf([(1, 6, 0, _BASE, table)], body + b"".join(rows), table, len(rows))
