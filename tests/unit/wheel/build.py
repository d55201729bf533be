"""Wheels for tests: good ones by the standard library, hostile ones byte by byte."""

from __future__ import annotations

import base64
import hashlib
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from isal import isal_zlib

FILENAME = "demo_pkg-1.0-cp312-cp312-manylinux_2_34_x86_64.whl"
DIST_INFO = "demo_pkg-1.0.dist-info"
METADATA = b"Metadata-Version: 2.1\nName: demo-pkg\nVersion: 1.0\nRequires-Dist: numpy>=1\n\nVersion: 9 in the text\n"
WHEEL = (
    b"Wheel-Version: 1.0\nGenerator: maker (1)\nRoot-Is-Purelib: false\n"
    b"Tag: cp312-cp312-manylinux_2_34_x86_64\n\n"
)
MOMENT = (2024, 5, 6, 7, 8, 10)


def record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    quoted = f'"{name}"' if "," in name else name
    return f"{quoted},sha256={digest},{len(data)}\n"


def dist_info_files(files: Mapping[str, bytes], dist_info: str = DIST_INFO) -> dict[str, bytes]:
    """``files`` with METADATA, WHEEL and a right RECORD, where they are not among them."""
    every = dict(files)
    every.setdefault(f"{dist_info}/METADATA", METADATA)
    every.setdefault(f"{dist_info}/WHEEL", WHEEL)
    record = f"{dist_info}/RECORD"
    lines = [record_line(name, data) for name, data in every.items() if name != record and name[-1] != "/"]
    every.setdefault(record, "".join([*lines, f"{record},,\n"]).encode())
    return every


def make_wheel(
    directory: Path,
    files: Mapping[str, bytes] | None = None,
    *,
    filename: str = FILENAME,
    dist_info: str = DIST_INFO,
    modes: Mapping[str, int] | None = None,
    stored: frozenset[str] = frozenset(),
) -> Path:
    """Write a wheel with :mod:`zipfile`, members in the given order, dist-info last."""
    path = directory / filename
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in dist_info_files(files or {"demo_pkg/a.py": b"a = 1\n"}, dist_info).items():
            info = zipfile.ZipInfo(name, MOMENT)
            info.external_attr = (modes or {}).get(name, 0o100644) << 16
            if name.endswith("/"):
                info.external_attr = 0o40755 << 16 | 0x10
            info.compress_type = zipfile.ZIP_STORED if name in stored else zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return path


def deflate(data: bytes) -> bytes:
    if len(data) > 1 << 20:  # a bomb: isal takes a tenth of the time
        fast = isal_zlib.compressobj(1, isal_zlib.DEFLATED, -15)
        return fast.compress(data) + fast.flush()
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    return deflater.compress(data) + deflater.flush()


@dataclass
class Entry:
    """One member, each of whose fields may lie. None: the truth, or for ``local_*`` what the directory says."""

    name: bytes
    data: bytes = b""
    method: int = 8
    flags: int = 0
    crc: int | None = None
    compressed: bytes | None = None
    compressed_size: int | None = None
    size: int | None = None
    attributes: int = 0o100644 << 16
    made_by: int = 3 << 8 | 20
    extra: bytes = b""
    disk: int = 0
    offset: int | None = None
    local_name: bytes | None = None
    local_method: int | None = None
    local_flags: int | None = None
    local_crc: int | None = None
    local_compressed_size: int | None = None
    local_size: int | None = None
    local_extra: bytes = b""
    local_signature: bytes = b"PK\x03\x04"
    descriptor: bytes = b""
    padding: bytes = b""


def _or(value: int | None, truth: int) -> int:
    return truth if value is None else value


@dataclass
class RawZip:
    """A ZIP file made of lies: entries, and what the end record says."""

    entries: list[Entry]
    prepended: bytes = b""
    before_end: bytes = b""
    trailing: bytes = b""
    comment: bytes = b""
    count: int | None = None
    directory_size: int | None = None
    directory_offset: int | None = None
    disk: int = 0
    zip64: bool = False
    zip64_count: int | None = None
    zip64_offset: int | None = None
    zip64_size: int = 44
    extensible: bytes = b""
    locator_offset: int | None = None
    offsets: list[int] = field(default_factory=list)

    def build(self) -> bytes:
        out = bytearray(self.prepended)
        central = bytearray()
        for e in self.entries:
            raw = e.compressed if e.compressed is not None else (deflate(e.data) if e.method == 8 else e.data)
            crc = _or(e.crc, zlib.crc32(e.data))
            csize = _or(e.compressed_size, len(raw))
            size = _or(e.size, len(e.data))
            at = len(out)
            self.offsets.append(at)
            name = e.name if e.local_name is None else e.local_name
            out += struct.pack(
                "<4s5H3L2H",
                e.local_signature,
                20,
                _or(e.local_flags, e.flags),
                _or(e.local_method, e.method),
                0x3A00,
                0x58A6,
                _or(e.local_crc, crc),
                _or(e.local_compressed_size, csize),
                _or(e.local_size, size),
                len(name),
                len(e.local_extra),
            )
            out += name + e.local_extra + raw + e.descriptor + e.padding
            central += struct.pack(
                "<4s6H3L5H2L",
                b"PK\x01\x02",
                e.made_by,
                20,
                e.flags,
                e.method,
                0x3A00,
                0x58A6,
                crc,
                csize,
                size,
                len(e.name),
                len(e.extra),
                0,
                e.disk,
                0,
                e.attributes,
                _or(e.offset, at),
            )
            central += e.name + e.extra
        start = len(out)
        out += central
        out += self.before_end
        count = _or(self.count, len(self.entries))
        size = _or(self.directory_size, len(central))
        offset = _or(self.directory_offset, start)
        if self.zip64:
            at = len(out)
            count64 = _or(self.zip64_count, count)
            offset64 = _or(self.zip64_offset, start)
            out += struct.pack(
                "<4sQ2H2L4Q", b"PK\x06\x06", self.zip64_size, 45, 45, 0, 0, count64, count64, size, offset64
            )
            out += self.extensible
            out += struct.pack("<4sLQL", b"PK\x06\x07", 0, _or(self.locator_offset, at), 1)
        out += struct.pack(
            "<4s4H2LH", b"PK\x05\x06", self.disk, self.disk, count, count, size, offset, len(self.comment)
        )
        return bytes(out + self.comment + self.trailing)


def good_entries(files: Mapping[str, bytes] | None = None) -> list[Entry]:
    """The entries of a wheel that nothing is wrong with."""
    return [
        Entry(name.encode(), data)
        for name, data in dist_info_files(files or {"demo_pkg/a.py": b"a = 1\n" * 9}).items()
    ]


def write_raw(directory: Path, raw: RawZip, filename: str = FILENAME) -> Path:
    path = directory / filename
    path.write_bytes(raw.build())
    return path
