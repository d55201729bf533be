"""How the bytes of a wheel come out of the wheel that was written from it: a member of the output, as it is read.

The member is stored, not deflated, and is the last but RECORD. It begins with :data:`DELTA_MAGIC` and :func:`digest_of` the
members of the output; the number of bytes of the original and the number of steps, each as an unsigned little-endian integer of
eight bytes. Then come the steps, three such integers each: an offset in the output, how many bytes are copied from there, and how
many bytes follow them that the member has itself. These come at its end, one step's behind another's.

What is copied lies in the output in the same order as in the original, and nothing is copied twice. So the original is not larger
than the output, and reading it takes no longer.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from relink.errors import WheelError
from relink.wheel.byte_types import RangeReader
from relink.wheel.zipformat import STORED, Member

__all__ = [
    "DELTA_MAGIC",
    "DELTA_MEMBER",
    "DELTA_SIZES",
    "DELTA_STEP",
    "MOST_STEPS",
    "ReverseDelta",
    "digest_of",
    "read_delta",
]

DELTA_MEMBER: Final = "relink.delta"
"""In the dist-info directory."""
DELTA_MAGIC: Final = b"relink delta 1\n"
_DIGEST: Final = 32  # bytes
DELTA_SIZES: Final = struct.Struct("<2Q")
DELTA_STEP: Final = struct.Struct("<3Q")
MOST_STEPS: Final = 300_000
"""There are one or two for a member, and one for each reused part of a changed one; more take too much memory."""


@dataclass(frozen=True, slots=True)
class ReverseDelta:
    """The parts of an output that are, one behind the other, its original.

    :ivar size: of the original in bytes.
    :ivar starts: where each part begins in the original; `places`: where it begins in the output.
    """

    size: int
    starts: tuple[int, ...]
    places: tuple[int, ...]

    def read(self, output: RangeReader, offset: int, length: int) -> bytes:
        """Return bytes of the original.

        :raises WheelError: it ends before them; or as `output`.
        """
        if offset < 0 or offset + length > self.size:
            raise WheelError(
                f"bytes {offset} to {offset + length} are not in the original, which has {self.size}"
            )
        parts = [output(part.start, len(part)) for part in self._ranges(offset, length)]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _ranges(self, offset: int, length: int) -> Iterator[range]:
        end = offset + length
        number = bisect_right(self.starts, offset) - 1
        while offset < end:
            following = self.starts[number + 1] if number + 1 < len(self.starts) else self.size
            stop = min(end, following)
            start = self.places[number] + offset - self.starts[number]
            yield range(start, start + stop - offset)
            offset, number = stop, number + 1


def digest_of(members: Iterable[Member]) -> bytes:
    """Return a SHA-256 of the names, sizes and CRCs of members: what differs once somebody has changed one of them."""
    digest = hashlib.sha256()
    for member in members:
        digest.update(f"{member.name}\0{member.size} {member.crc}\n".encode("utf-8", "surrogatepass"))
    return digest.digest()


def read_delta(member: Member, output: RangeReader, others: Iterable[Member]) -> ReverseDelta:
    """Read the delta of an output.

    :param others: the members of the output without the delta and RECORD, in their order.
    :raises WheelError: it is damaged, or not one of this version; or the output was changed since.
    """
    fixed = len(DELTA_MAGIC) + _DIGEST + DELTA_SIZES.size
    if member.method != STORED or member.size < fixed:
        raise WheelError(f"{member.name} is not as relink writes it")
    head = output(member.data_offset, fixed)
    size, count = DELTA_SIZES.unpack(head[-DELTA_SIZES.size :])
    own = (
        member.data_offset + fixed + count * DELTA_STEP.size
    )  # where the bytes begin that the member has itself
    end = member.data_offset + member.size
    if not head.startswith(DELTA_MAGIC) or count > MOST_STEPS or own > end:
        raise WheelError(f"{member.name} is damaged, or of another version of relink")
    if head[len(DELTA_MAGIC) : -DELTA_SIZES.size] != digest_of(others):
        raise WheelError("the wheel was changed after relink had written it")
    table = output(member.data_offset + fixed, count * DELTA_STEP.size)
    starts: list[int] = []
    places: list[int] = []
    at = copied_until = 0
    for place, copied, mine in DELTA_STEP.iter_unpack(table):
        if copied and not copied_until <= place <= place + copied <= member.header_offset:
            raise WheelError(f"{member.name} is damaged: it copies what is not there, or twice")
        if mine > end - own:
            raise WheelError(f"{member.name} is damaged: it ends early")
        for begin, length in ((place, copied), (own, mine)):
            if length:
                starts.append(at)
                places.append(begin)
                at += length
        own += mine
        copied_until = place + copied if copied else copied_until
    if (at, own) != (size, end):
        raise WheelError(f"{member.name} is damaged: its sizes do not agree")
    return ReverseDelta(size, tuple(starts), tuple(places))
