"""What changes in a wheel, and how the result is written: the two arguments of :func:`relink.wheel.writer.write_wheel`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from relink.wheel import zipformat as z
from relink.wheel.deflate.splice import Span
from relink.wheel.member_content import Content
from relink.wheel.naming import WheelName

__all__ = ["Addition", "Changes", "Replacement", "WriteOptions", "method_of", "spans_of"]


@dataclass(frozen=True, slots=True)
class Replacement:
    """New content of a member that is in the wheel. Its name, position and mode stay.

    :ivar content: what the member is to contain.
    :ivar size: bytes; required if `content` is an iterable of pieces, checked whenever it is given.
    :ivar spans: gives ranges of the content whose compressed bytes are reused (:func:`relink.wheel.deflate.splice.find_spans`);
        may wait until they are found. The content must be unchanged in them and in the
        :data:`~relink.wheel.deflate.inflate.WINDOW` bytes before them.
    """

    content: Content
    size: int | None = None
    spans: Callable[[], tuple[Span, ...]] = tuple


@dataclass(frozen=True, slots=True)
class Addition:
    """A member to add.

    :ivar content: what the member is to contain.
    :ivar size: bytes; as for :class:`Replacement`.
    :ivar mode: permission bits.
    :ivar stored: do not compress it.
    """

    content: Content
    size: int | None = None
    mode: int = 0o644
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """What is different in the output.

    :ivar name: of the output, see :func:`relink.wheel.naming.relinked`; the caller keeps the python and abi tags.
    :ivar replacements: new contents by path in the input. The caller has compared the old content with the vendor's RECORD
        (:func:`relink.wheel.record.verify_member`).
    :ivar additions: new members by path in the output (:func:`relink.wheel.writer.output_path`), in the order in which they are
        written. One whose path exists already replaces that member in its position.
    :ivar metadata: lines that are added to METADATA, without their ends.
    """

    name: WheelName
    replacements: Mapping[str, Replacement] = field(default_factory=dict)
    additions: Mapping[str, Addition] = field(default_factory=dict)
    metadata: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How the output is written.

    :ivar epoch: SOURCE_DATE_EPOCH in seconds, the time of changed and added members; None: the time of the input's RECORD.
    :ivar level: of deflate: 1 to 3 are isal's, 4 to 9 zlib's.
    :ivar verify: inflate every copied member and compare it with the vendor's RECORD. Otherwise the vendor's SHA-256 is used
        where RECORD has one.
    :ivar jobs: threads that verify and deflate; None: :func:`relink.wheel.record.default_jobs`.
    :ivar max_memory: bytes of new members, before they are deflated, that are deflated ahead of their turn; None: 256 MiB.
    """

    epoch: int | None = None
    level: int = 3
    verify: bool = True
    jobs: int | None = None
    max_memory: int | None = None


def spans_of(new: Replacement | Addition) -> tuple[Span, ...]:
    """Return the ranges of new content whose compressed bytes are reused; waits until they are found."""
    return new.spans() if isinstance(new, Replacement) else ()


def method_of(new: Replacement | Addition) -> int:
    """Return ZIP's number of the compression method."""
    return z.STORED if isinstance(new, Addition) and new.stored else z.DEFLATED
