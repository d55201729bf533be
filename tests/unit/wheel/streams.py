"""Deflate streams for tests."""

from __future__ import annotations

import functools
import random
import zlib

from relink.wheel.zipformat import DEFLATED, Member, RangeReader

KIB = 1 << 10


@functools.lru_cache(maxsize=8)
def made(seed: int, size: int) -> bytes:
    """Content like a program's: repetitive, with stretches that do not compress and others of zeros."""
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randrange(1, 12)) for _ in range(200)]
    content = bytearray()
    while len(content) < size:
        kind = rng.random()
        if kind < 0.1:
            content += rng.randbytes(rng.randrange(1, 40 * KIB))
        elif kind < 0.2:
            content += bytes(rng.randrange(1, 40 * KIB))
        else:
            content += b"".join(rng.choices(words, k=4000))
    return bytes(content[:size])


@functools.lru_cache(maxsize=16)
def deflate(content: bytes, level: int, strategy: int = zlib.Z_DEFAULT_STRATEGY, memory: int = 8) -> bytes:
    deflater = zlib.compressobj(level, zlib.DEFLATED, -15, memory, strategy)
    return deflater.compress(content) + deflater.flush()


def reader(stream: bytes) -> RangeReader:
    """What reads bytes of a stream."""
    return lambda offset, length: stream[offset : offset + length]


def member(raw: bytes, content: bytes) -> Member:
    """A member whose stream lies at the beginning of the file."""
    return Member(
        name="demo/a.so",
        method=DEFLATED,
        flags=0,
        crc=zlib.crc32(content),
        compressed_size=len(raw),
        size=len(content),
        header_offset=0,
        data_offset=0,
        mode=0o100644,
        date_time=(2024, 1, 1, 0, 0, 0),
        external_attributes=0,
        create_system=3,
        is_directory=False,
    )
