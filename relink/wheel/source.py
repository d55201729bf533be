"""Where members come from: a wheel's archive, the files of a tree, or those of an installed distribution.

Each is a class of its own with what :class:`MemberSource` names; the functions here are what they have in common.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol

from relink.system.errors import RelinkError, WheelError
from relink.system.progress import OnProgress
from relink.system.spool import Filling, Room, Spool, make_anonymous_memory, write_into
from relink.wheel.deflate.stream import Checkpoint
from relink.wheel.naming import WheelName
from relink.wheel.zipformat import Member

READ_LIMIT = 64 << 20
"""Bytes of a member that is read as a whole: metadata, never a library."""


class MemberSource(Protocol):
    """What planning asks of the files of one distribution. Methods may be called from several threads at once.

    `dist_info` is the name of the metadata directory, and `data_dir` that of the ``.data`` directory, None where there is none.
    """

    @property
    def path(self) -> Path:
        """The archive, or the directory that the names of members are relative to."""

    @property
    def name(self) -> WheelName:
        """The name and version of the distribution."""

    @property
    def members(self) -> Mapping[str, Member]:
        """The members by name."""

    @property
    def dist_info(self) -> str:
        """The name of the ``.dist-info`` directory; empty where there is none."""

    @property
    def data_dir(self) -> str | None:
        """The name of the ``.data`` directory, None where there is none."""

    def may_be_elf(self, name: str) -> bool:
        """Whether a member is to be looked at as an ELF file: what can be said of it without reading it."""

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a member in pieces.

        :raises WheelError: it cannot be read, or is not what the source claims.
        """

    def read_into(
        self, name: str, on_progress: OnProgress = lambda _: None, *, spool: Spool | None = None
    ) -> memoryview:
        """Return the content of a member in one buffer, which goes with its last view: :func:`load_member`."""

    def read_lazily(
        self, name: str, on_progress: OnProgress, signatures: Collection[bytes], spool: Spool | None
    ) -> tuple[memoryview, list[Checkpoint]]:
        """Return the content of a large member, in which parts may be missing until :func:`relink.system.spool.fill` is asked.

        :param signatures: pages that begin with one of these will be asked for.
        :return: the buffer, and the checkpoints of its deflated stream, where it is one.
        """

    def sha256(self, on_progress: OnProgress = lambda _: None) -> str:
        """Return a SHA-256 of the source, in hexadecimal."""

    def close(self) -> None:
        """Close what is open; nothing can be read after that."""


def find_member(source: MemberSource, name: str) -> Member:
    """Return the member called `name`.

    :raises WheelError: there is none.
    """
    try:
        return source.members[name]
    except KeyError:
        raise WheelError(f"{source.path.name} has no member {name!r}") from None


def read_member(source: MemberSource, name: str, limit: int = READ_LIMIT) -> bytes:
    """Return the whole content of a member.

    :raises WheelError: it is longer than `limit` bytes, or not what the source claims.
    """
    size = find_member(source, name).size
    if size > limit:
        raise WheelError(f"{source.path.name}: {name!r} has {size} bytes; at most {limit} are expected")
    return b"".join(source.chunks(name))


def read_prefix(source: MemberSource, name: str, length: int) -> bytes:
    """Return the first `length` bytes of a member, or all if there are fewer, reading little more than that.

    :raises WheelError: the content is damaged as far as it was looked at.
    """
    parts: list[bytes] = []
    missing = length
    for data in source.chunks(name):
        parts.append(data[:missing])
        missing -= len(parts[-1])
        if not missing:
            break
    return b"".join(parts)


def load_member(
    source: MemberSource,
    name: str,
    on_progress: OnProgress = lambda _: None,
    *,
    spool: Spool | None = None,
) -> memoryview:
    """Return the whole content of a member in one buffer of its own; nothing else holds a copy.

    The buffer is anonymous memory, writable, that goes back to the system with the last reference to it; ``.obj`` is
    the :class:`mmap.mmap`, which can be searched.

    :param on_progress: called with the number of bytes read since the last call.
    :param spool: what is too large for memory is in a file that is mapped read-only, instead.
    :raises WheelError: the content is not what the source claims.
    :raises RelinkError: there is not that much memory, or no room on the disk.
    """
    size = find_member(source, name).size
    if not size:
        # Nothing is filled, but CRC and size are compared.
        read_member(source, name)
        return memoryview(bytearray())
    try:
        filling = Filling(spool, size) if spool and size > spool.whole else None
        view = memoryview(b"") if filling else make_anonymous_memory(size)
    except (OSError, OverflowError) as error:
        raise RelinkError(
            f"{source.path.name}: {name!r} has {size} bytes, more than there is memory for ({error}); free some"
        ) from error
    room: Room = filling.room if filling else lambda start, stop: view[start:stop]
    position = 0
    with filling or nullcontext():
        for data in source.chunks(name):
            write_into(room, position, data)
            position += len(data)
            on_progress(len(data))
        return filling.finished() if filling else view
