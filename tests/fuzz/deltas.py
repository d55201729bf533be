"""Deltas of relinked wheels that somebody changed: what comes out is the vendor's wheel, or nothing does."""

from __future__ import annotations

import random
import struct

from relink.original import open_contents
from relink.wheel.archive import WheelArchive
from relink.wheel.reverse_delta import DELTA_MAGIC, DELTA_MEMBER
from tests.fuzz.inputs import NUMBERS, Scene, damaged

__all__ = ["check_delta", "make_delta"]

_FIXED = len(DELTA_MAGIC) + 32  # bytes before the numbers


def make_delta(scene: Scene, rng: random.Random) -> bytes:
    """A relinked wheel in which bytes of the delta, or numbers of it, are others; each has its place and size."""
    wheel = scene.pair[1]
    with WheelArchive(wheel) as archive:
        member = archive.member(f"{archive.dist_info}/{DELTA_MEMBER}")
    whole = bytearray(wheel.read_bytes())
    place = range(member.data_offset, member.data_offset + member.size)
    data = bytearray(whole[place.start : place.stop])
    if rng.random() < 0.3:
        data = bytearray(damaged(bytes(data), rng)[: len(data)].ljust(len(data), b"\0"))
    else:
        count = struct.unpack_from("<Q", data, _FIXED + 8)[0]
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = _FIXED + 8 * rng.randrange(2 + 3 * count)
            old = struct.unpack_from("<Q", data, at)[0]
            new = rng.choice((old + rng.randrange(-9, 10), rng.choice(NUMBERS), rng.randrange(len(whole))))
            struct.pack_into("<Q", data, at, new % (1 << 64))
    whole[place.start : place.stop] = data
    return bytes(whole)


def check_delta(scene: Scene, data: bytes) -> None:
    vendor, relinked = scene.pair
    path = scene.scratch / relinked.name
    path.write_bytes(data)
    with open_contents(path) as contents, WheelArchive(vendor) as archive:
        if contents.archive.comes_out:
            assert contents.archive.sha256() == archive.sha256()
            assert contents.archive.members == archive.members
        else:
            assert [found.code for found in contents.findings] == ["RLK541"]
