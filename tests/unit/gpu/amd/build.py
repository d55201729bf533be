"""Makes device code files for the tests, byte by byte: code objects, bundles, compressed bundles, host libraries."""

from __future__ import annotations

import hashlib
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isal import isal_zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HOST = "host-x86_64-unknown-linux-gnu-"
PAGE = 4096
TEXT = 0x40000  # how far the read-only segment's addresses lie above its offsets
BASE = 0x70000  # and the writable one's
MACHS = {
    "gfx90a": 0x3F,
    "gfx908": 0x30,
    "gfx906": 0x2F,
    "gfx940": 0x40,
    "gfx942": 0x4C,
    "gfx1010": 0x33,
    "gfx1030": 0x36,
    "gfx1031": 0x37,
    "gfx1100": 0x41,
    "gfx1101": 0x46,
    "gfx1200": 0x48,
    "gfx10-3-generic": 0x53,
    "gfx11-generic": 0x54,
    "gfx9-4-generic": 0x5F,
}
FEATURES = {
    "gfx90a": "sx",
    "gfx908": "sx",
    "gfx906": "sx",
    "gfx940": "sx",
    "gfx942": "sx",
    "gfx9-4-generic": "sx",
}


def flags_of(target: str, generic: int = 0) -> int:
    processor, *features = target.split(":")
    flags = MACHS[processor] | generic << 24
    named = {f[:-1]: 3 if f[-1] == "+" else 2 for f in features}
    for letter, name, shift in (("x", "xnack", 8), ("s", "sramecc", 10)):
        if letter in FEATURES.get(processor, ""):
            flags |= named.get(name, 1) << shift
    return flags


def code_object(target: str = "gfx1100", *, abi: int = 4, flags: int | None = None, size: int = 256) -> bytes:
    if flags is None:
        flags = flags_of(target, 1 if "generic" in target else 0)
    head = b"\x7fELF\x02\x01\x01\x40" + bytes([abi]) + bytes(7)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 64, 0, flags, 64, 56, 0, 64, 0, 0)
    return head + bytes(size - len(head))


def hip(target: str, kind: str = "hipv4") -> str:
    return f"{kind}-amdgcn-amd-amdhsa--{target}"


def entries_of(*targets: str) -> dict[str, bytes]:
    return {hip(target): code_object(target) for target in targets}


def raw(entries: Mapping[str, bytes], *, align: int = PAGE, host: bool = True) -> bytes:
    rows = {
        name.encode("utf-8", "surrogateescape"): code
        for name, code in (({HOST: b""} if host else {}) | dict(entries)).items()
    }
    header = 32 + sum(24 + len(name) for name in rows)
    at = -(-header // align) * align
    head, body = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(rows)), b""
    for name, code in rows.items():
        place = at + len(body)
        head += struct.pack("<QQQ", place, len(code), len(name)) + name
        body += code + bytes(-len(code) % align if code else 0)
    return head + bytes(at - len(head)) + body if body else head


def ccob(content: bytes, version: int = 3, method: str = "zstd", *, size: int | None = None) -> bytes:
    if method == "zstd":
        payload = zstd.compress(content)
    else:  # isal takes a twentieth of the time for hundreds of megabytes
        payload = zlib.compress(content) if len(content) < 1 << 20 else isal_zlib.compress(content, 1)
    digest = int.from_bytes(hashlib.md5(content).digest()[:8], "little")  # noqa: S324 - what the format uses
    header = {1: 20, 2: 24, 3: 32}[version]
    total = header + len(payload) if size is None else size
    head = b"CCOB" + struct.pack("<HH", version, {"zlib": 0, "zstd": 1}[method])
    if version == 1:
        head += struct.pack("<IQ", len(content), digest)
    elif version == 2:
        head += struct.pack("<IIQ", total, len(content), digest)
    else:
        head += struct.pack("<QQQ", total, len(content), digest)
    return head + payload


def chain(bundles: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """Return the bundles one after the other at multiples of 4096, and where each begins."""
    data, places = b"", []
    for bundle in bundles:
        data += bytes(-len(data) % PAGE)
        places.append(len(data))
        data += bundle
    return data, places


@dataclass(frozen=True)
class Piece:
    name: str
    data: bytes
    kind: int = 1
    flags: int = 2
    align: int = 16


def library(
    bundles: Sequence[bytes] = (),
    *,
    relocation: str = "rela",
    wrappers: bool = True,
    sections: bool = True,
    kpack: bytes | None = None,
    kpack_wrappers: int = 0,
    extra: Sequence[Piece] = (),
    pointers: Sequence[int] | None = None,
    kind: int = 3,
) -> bytes:
    """Return a host library: a read-only segment, and a writable one with the wrappers and DT_RELA or DT_RELR.

    `relocation`: rela (slot empty, as LLD), rela-in-place (as GNU ld), relr, none. `pointers` replace the wrappers'
    targets, counted from the start of ``.hip_fatbin``.
    """
    fatbin, places = chain(bundles)
    pieces = [Piece(".hip_fatbin", fatbin, align=PAGE)] if bundles else []
    pieces += extra
    if kpack is not None:
        pieces.append(Piece(".rocm_kpack_ref", kpack))
    out = bytearray(64 + 3 * 56)
    table: list[tuple[str, int, int, int, int, int]] = []
    for piece in pieces:
        out += bytes(-len(out) % piece.align)
        table.append(
            (
                piece.name,
                piece.kind,
                piece.flags,
                len(out) + TEXT if piece.flags & 2 else 0,
                len(out),
                len(piece.data),
            )
        )
        out += piece.data
    start = next((row[4] for row in table if row[0] == ".hip_fatbin"), 0)
    targets = [start + place + TEXT for place in (places if pointers is None else pointers)]
    out += bytes(-len(out) % PAGE)
    writable = len(out)
    segment = len(out)
    slots = []
    if wrappers:
        for target in targets:
            slots.append(len(out) + 8 + BASE)
            held = 0 if relocation == "rela" else target
            out += struct.pack("<IIQQ", 0x48495046, 1, held, 0)
        for number in range(kpack_wrappers):
            out += struct.pack("<IIQQ", 0x4B504948, 1, 0, number)
        table.append((".hipFatBinSegment", 1, 3, segment + BASE, segment, len(out) - segment))
    relocs = len(out)
    tags: list[tuple[int, int]] = []
    if relocation.startswith("rela"):
        rows = [(0x500, 8, 7), *((slot, 8, target) for slot, target in zip(slots, targets, strict=False))]
        out += b"".join(struct.pack("<QQQ", *row) for row in rows)
        tags = [(7, relocs + BASE), (8, 24 * len(rows)), (9, 24)]
    elif relocation == "relr" and slots:
        words = [slots[0]]
        bitmap = 0
        for slot in slots[1:]:
            bitmap |= 1 << ((slot - slots[0] - 8) // 8 + 1)
        words += [bitmap | 1] if bitmap else []
        out += struct.pack(f"<{len(words)}Q", *words)
        tags = [(36, relocs + BASE), (35, 8 * len(words)), (37, 8)]
    dynamic = len(out)
    out += b"".join(struct.pack("<QQ", *tag) for tag in [*tags, (0, 0)])
    end = len(out)
    shoff = 0
    rows_out: list[bytes] = []
    if sections:
        names = b"\0"
        for name, sh_kind, flags, address, offset, size in [*table, (".shstrtab", 3, 0, 0, 0, 0)]:
            at = len(names)
            names += name.encode() + b"\0"
            rows_out.append(struct.pack("<IIQQQQIIQQ", at, sh_kind, flags, address, offset, size, 0, 0, 1, 0))
        rows_out[-1] = struct.pack("<IIQQQQIIQQ", len(names) - 10, 3, 0, 0, end, len(names), 0, 0, 1, 0)
        out += names
        out += bytes(-len(out) % 8)
        shoff = len(out)
        out += bytes(64) + b"".join(rows_out)
    shnum = len(rows_out) + 1 if sections else 0
    out[:64] = (b"\x7fELF\x02\x01\x01" + bytes(9)) + struct.pack(
        "<HHIQQQIHHHHHH", kind, 62, 1, 0, 64, shoff, 0, 64, 56, 3, 64, shnum, max(0, shnum - 1)
    )
    segments = [
        (1, 5, 0, TEXT, writable),
        (1, 6, writable, writable + BASE, end - writable),
        (2, 6, dynamic, dynamic + BASE, end - dynamic),
    ]
    out[64:232] = b"".join(
        struct.pack("<IIQQQQQQ", p_type, flags, offset, vaddr, vaddr, size, size, PAGE)
        for p_type, flags, offset, vaddr, size in segments
    )
    return bytes(out)


def msgpack(value: object) -> bytes:
    """Pack what kpack uses: maps, arrays, strings, small and large numbers."""
    if isinstance(value, dict):
        body = b"".join(msgpack(k) + msgpack(v) for k, v in value.items())
        return (
            bytes([0x80 | len(value)]) if len(value) < 16 else b"\xde" + struct.pack(">H", len(value))
        ) + body
    if isinstance(value, list):
        body = b"".join(msgpack(item) for item in value)
        return (
            bytes([0x90 | len(value)]) if len(value) < 16 else b"\xdd" + struct.pack(">I", len(value))
        ) + body
    if isinstance(value, str):
        text = value.encode()
        return (bytes([0xA0 | len(text)]) if len(text) < 32 else b"\xd9" + bytes([len(text)])) + text
    if isinstance(value, bool) or value is None:
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return bytes([value]) if 0 <= value < 128 else b"\xcf" + struct.pack(">Q", value)
    raise TypeError(type(value))


def kpack_archive(
    contents: Mapping[str, Sequence[str]],
    architectures: Sequence[str] | None = None,
    *,
    version: int = 1,
    **more: object,
) -> bytes:
    """An archive; `architectures` are those of the contents, unless named; `more` goes into its table of contents."""
    toc = {
        key: {t: {"type": "hsaco", "ordinal": i, "original_size": 1000} for i, t in enumerate(v)}
        for key, v in contents.items()
    }
    blob = b"blob" * 20
    named = (
        sorted({t for v in contents.values() for t in v}) if architectures is None else list(architectures)
    )
    packed = msgpack({"gfx_arches": named, "compression_scheme": "none", "toc": toc, **more})
    return b"KPAK" + struct.pack("<IQ", version, 16 + len(blob)) + blob + packed
