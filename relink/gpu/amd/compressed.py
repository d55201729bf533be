"""Compressed bundles ("CCOB"): the header of versions 1 to 3, and a bounded look at what is inside.

Layout: clang's OffloadBundler.cpp, RawCompressedBundleHeader; packed, little-endian.
Only as much is decompressed as the header of the bundle inside needs, so a bomb costs no more than a bundle.
"""

from __future__ import annotations

import struct
import sys
import zlib
from dataclasses import dataclass

from relink.elf.source import ByteSource

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["MAGIC", "CompressedHeader", "Inflater", "parse_header", "zstd"]

MAGIC = b"CCOB"
# Bytes of the payload that are read at once.
_STEP = 16 * 1024
# Bytes of the payload more than come out of it; a compressor stores what it cannot shrink with some bytes a block.
_SPARE = 256 * 1024
_METHODS = {0: "zlib", 1: "zstd"}
# version: header size, struct after the 8 common bytes
_LAYOUTS = {1: (20, "<IQ"), 2: (24, "<IIQ"), 3: (32, "<QQQ")}


@dataclass(frozen=True, slots=True)
class CompressedHeader:
    """`size` counts the header too and is None in version 1, which does not say where it ends."""

    version: int
    method: str
    header_size: int
    size: int | None
    uncompressed_size: int


def parse_header(data: bytes | memoryview) -> CompressedHeader | str:
    """Read the header from the first 32 bytes; a string says why it is none."""
    if len(data) < 8 or bytes(data[:4]) != MAGIC:
        return "no CCOB header"
    version, method = struct.unpack_from("<HH", data, 4)
    layout = _LAYOUTS.get(version)
    if layout is None:
        return f"CCOB version {version} is not known (1 to 3 are)"
    if method not in _METHODS:
        return f"CCOB compression method {method} is not known (0 zlib, 1 zstd)"
    header_size, form = layout
    if len(data) < header_size:
        return f"the CCOB header is cut off after {len(data)} bytes"
    fields = struct.unpack_from(form, data, 8)
    size = None if version == 1 else fields[0]
    if size is not None and size < header_size:
        return f"CCOB says {size} bytes, less than its own header"
    return CompressedHeader(version, _METHODS[method], header_size, size, fields[-2])


class _Window:
    """The payload's bytes as a file-like object that reads small pieces, so that only what is decompressed is read."""

    def __init__(self, source: ByteSource, start: int, end: int) -> None:
        self._source, self._at, self._end = source, start, end

    def read(self, size: int = -1) -> bytes:
        size = _STEP if size < 0 else min(size, _STEP)
        data = bytes(self._source.read_at(self._at, min(size, self._end - self._at)))
        self._at += len(data)
        return data


class Inflater:
    """The first bytes of a payload, on demand: :meth:`at_least` grows `data` and never beyond `limit`.

    :ivar taken: bytes of the payload that were read. Blocks may be empty, so `data` alone bounds no work.
    :ivar problem: why no more came, when less came than was asked for.
    """

    def __init__(
        self, source: ByteSource, header: CompressedHeader, start: int, end: int, limit: int
    ) -> None:
        self.data = b""
        self.taken = 0
        self.problem = ""
        self._limit = limit
        self._window = _Window(source, start + header.header_size, end)
        # No method of the object is kept in the object: such a circle would keep the decompressor until a garbage collection.
        self._zstd = zstd.ZstdDecompressor() if header.method == "zstd" else None
        self._zlib = zlib.decompressobj()
        if header.method == "zstd":
            head = bytes(
                source.read_at(start + header.header_size, min(18, end - start - header.header_size))
            )
            try:
                size = zstd.get_frame_info(head).decompressed_size
            except zstd.ZstdError as error:
                self.problem = f"the zstd payload cannot be read: {error}"
                self._window = _Window(source, end, end)
                return
            if size not in (header.uncompressed_size, None):
                self.problem = (
                    f"CCOB says {header.uncompressed_size} bytes uncompressed, its zstd frame {size}"
                )
            # The default limit of the window is 128 MiB, which clang stays below; only what is written is touched.

    def at_least(self, wanted: int) -> bool:
        """Grow `data` to `wanted` bytes; False when the payload ends, is damaged, or the limit is below it."""
        reach = min(wanted, self._limit)
        try:
            while len(self.data) < reach:
                piece = self._more(reach - len(self.data))
                if not piece:
                    return False
                self.data += piece
        except (zstd.ZstdError, zlib.error) as error:
            self.problem = f"the payload is damaged: {error}"
            return False
        return reach == wanted

    def _more(self, size: int) -> bytes:
        if self._zstd is None:
            return self._inflate(size)
        while not self._zstd.eof:
            pending = self._next() if self._zstd.needs_input else b""
            if self._zstd.needs_input and not pending:
                break
            if piece := self._zstd.decompress(pending, size):
                return piece
        return b""

    def _next(self) -> bytes:
        if self.taken > self._limit + _SPARE:
            self.problem = f"the payload takes {self.taken} bytes for {len(self.data)}; the rest is not read"
            return b""
        piece = self._window.read()
        self.taken += len(piece)
        return piece

    def _inflate(self, size: int) -> bytes:
        while not self._zlib.eof:
            pending = self._zlib.unconsumed_tail or self._next()
            if not pending:
                break
            if piece := self._zlib.decompress(pending, size):
                return piece
        return b""
