"""What changes in a wheel, and how the result is written: the two arguments of :func:`relink.wheel.writer.write_wheel`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TypeAlias

import msgspec

from relink.system.errors import RelinkError
from relink.wheel import zipformat as z
from relink.wheel.deflate.splice import Piece, Span
from relink.wheel.naming import WheelName
from relink.wheel.zipformat import BytesLike

Content: TypeAlias = BytesLike | Iterable[BytesLike]
"""What a member's new content may be: bytes, or pieces, each of which is valid until the next is asked for."""


def iterate_content(content: Content) -> Iterable[BytesLike]:
    """Return the content as it comes."""
    return (content,) if isinstance(content, bytes | bytearray | memoryview) else content


class Packed(msgspec.Struct, frozen=True):
    """What a member's headers say of its content, which has been written.

    :ivar crc: of the content, as `size` is.
    :ivar pieces: what the stream is made of, if compressed bytes of an old stream are reused; `sha256` of the content then, too.
    """

    crc: int
    compressed_size: int
    size: int
    pieces: tuple[Piece, ...] = ()
    sha256: bytes | None = None


PackedAhead: TypeAlias = tuple[Packed, list[bytes | Span]]
"""What the headers say of a member, and its compressed bytes in order."""


class NewContent(msgspec.Struct, frozen=True):
    """New content of a member: of one that is in the wheel, whose name, position and mode stay, or of one that is added.

    :ivar content: what the member is to contain.
    :ivar size: bytes; required if `content` is in pieces, checked whenever it is given.
    :ivar spans: gives ranges of the content whose compressed bytes are reused (:func:`relink.wheel.deflate.splice.find_spans`);
        may wait until they are known. The content must be unchanged in them and in the
        :data:`~relink.wheel.deflate.stream.WINDOW` bytes before them.
    :ivar mode: permission bits of a member that is added.
    :ivar stored: do not compress it; only of a member that is added.
    :ivar ahead: gives what :func:`relink.wheel.writer.pack_ahead` makes of it, and then `content` is not read again.
    """

    content: Content
    size: int | None = None
    spans: Callable[[], tuple[Span, ...]] = tuple
    mode: int = 0o644
    stored: bool = False
    ahead: Future[PackedAhead | None] | None = None

    @property
    def method(self) -> int:
        """ZIP's number of the compression method."""
        return z.STORED if self.stored else z.DEFLATED

    @property
    def length(self) -> int:
        """How many bytes it gives.

        :raises RelinkError: it is in pieces and has no size: ZIP has to know beforehand whether it is large.
        """
        if self.size is not None:
            return self.size
        if isinstance(self.content, bytes | bytearray | memoryview):
            return memoryview(self.content).nbytes
        raise RelinkError("content given in pieces needs its size")


class Changes(msgspec.Struct, frozen=True):
    """What is different in the output.

    :ivar name: of the output, see :func:`relink.wheel.naming.relinked_name`; the caller keeps the python and abi tags.
    :ivar replacements: new contents by path in the input. The caller has compared the old content with the vendor's RECORD
        (:func:`relink.wheel.record.verify_member`).
    :ivar additions: new members by path in the output (:func:`relink.wheel.writer.output_path`), in the order in which they are
        written. One whose path exists already replaces that member in its position.
    :ivar metadata: lines that are added to METADATA, without their ends.
    :ivar requires: a Requires-Dist in METADATA → the one in its place, None to take it out.
    :ivar removed: paths in the input of members that the output has not.
    """

    name: WheelName
    replacements: Mapping[str, NewContent] = msgspec.field(default_factory=dict)
    additions: Mapping[str, NewContent] = msgspec.field(default_factory=dict)
    metadata: tuple[str, ...] = ()
    requires: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    removed: frozenset[str] = frozenset()


class WriteOptions(msgspec.Struct, frozen=True):
    """How the output is written.

    :ivar epoch: SOURCE_DATE_EPOCH in seconds, the time of changed and added members; None: the time of the input's RECORD.
    :ivar level: of deflate: 1 to 3 are isal's, 4 to 9 zlib's.
    :ivar verify: inflate every copied member and compare it with the vendor's RECORD. Otherwise the vendor's SHA-256 is used
        where RECORD has one.
    :ivar jobs: threads that verify and read back; None: :func:`relink.wheel.record.default_jobs`.
    """

    epoch: int | None = None
    level: int = 3
    verify: bool = True
    jobs: int | None = None
