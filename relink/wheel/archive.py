"""A wheel as an archive that can be trusted: opened by its central directory, all defects reported at once.

Nothing here writes, and nothing here interprets a member. Python's ``zipfile`` is not used: it gives no access to compressed
bytes, overlooks most disagreements between local headers and central directory, and has one file position for all threads.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Self

from relink.system.errors import WheelError, describe_failure, raise_if_machine_fault
from relink.system.progress import OnProgress
from relink.system.safe_open import open_regular
from relink.system.spool import Spool
from relink.wheel.deflate.ranges import load_lazily
from relink.wheel.deflate.stream import CHUNK, Checkpoint, content, raw_content
from relink.wheel.directory import NoArchiveError, read_directory
from relink.wheel.limits import WheelLimits
from relink.wheel.naming import WheelName, explain_not_a_wheel, parse_wheel_name
from relink.wheel.schemes import (
    ENTRY_POINTS,
    find_scheme_defects,
    find_script_defects,
    find_special_directories,
    installed_path,
)
from relink.wheel.source import READ_LIMIT, find_member, load_member, read_member
from relink.wheel.zipformat import Member, RangeReader


class WheelArchive:
    """An open wheel. All methods may be called from several threads at once.

    :param path: the file.
    :param limits: sizes and counts that it may not exceed.
    :raises WheelError: unreadable, not a regular file, or with structural defects; ``issues`` has them all.

    ``members`` are in the central directory's order. ``dist_info`` and ``data_dir`` are the names of the directories, without a
    slash; ``data_dir`` is None if there is none.
    """

    path: Path
    name: WheelName
    size: int
    members: Mapping[str, Member]
    dist_info: str
    data_dir: str | None

    def __init__(self, path: Path | str, *, limits: WheelLimits | None = None) -> None:
        self.path = Path(path)
        self._sha256: str | None = None
        self._lock = threading.Lock()
        if problem := explain_not_a_wheel(self.path):
            raise WheelError(problem)
        with describe_failure(WheelError, f"{self.path} cannot be opened"):
            self._fd = open_regular(self.path)
        try:
            self.size = os.fstat(self._fd).st_size
            self._read_structure(limits or WheelLimits())
        except BaseException:
            self.close()
            raise

    def _read_structure(self, limits: WheelLimits) -> None:
        issues: list[str] = []
        name = None
        try:
            name = parse_wheel_name(self.path.name)
        except WheelError as error:
            issues.append(error.message)
        try:
            members, defects = read_directory(self._pread, self.size, limits)
        except NoArchiveError as error:
            text = f"{self.path.name} {error.message}"
            raise WheelError(text, [*issues, *error.issues], name.fetching if name else None) from error
        except WheelError as error:
            issues.extend(error.issues or [error.message])
            raise self._refused(issues) from error
        issues.extend(defects)
        dist_info, data_dir, more = find_special_directories(members, name)
        issues.extend(more)
        issues.extend(find_scheme_defects(members, data_dir))
        if issues or name is None:
            raise self._refused(issues)
        self.name = name
        self.members = MappingProxyType(members)
        self.dist_info = dist_info
        self.data_dir = data_dir
        if (member := f"{dist_info}/{ENTRY_POINTS}") in members:
            programs = (installed_path(name) for name in members)
            names = [path.removeprefix("bin/") for path in programs if path.startswith("bin/")]
            if issues := find_script_defects(self.read(member), names):
                raise self._refused(issues)

    def _refused(self, issues: list[str]) -> WheelError:
        return WheelError(
            f"{self.path.name} is not a wheel that can be trusted; get it again, or have its maker build it anew",
            issues,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; nothing can be read after that. Closing twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _pread(self, offset: int, length: int) -> bytes:
        """Read exactly ``length`` bytes at ``offset``."""
        try:
            data = os.pread(self._fd, length, offset)
            if len(data) < length:
                # The kernel gives at most 2 GiB at once, and network file systems less than they could.
                parts = [data]
                missing = length - len(data)
                while missing and (data := os.pread(self._fd, missing, offset + length - missing)):
                    parts.append(data)
                    missing -= len(data)
                if missing:
                    raise WheelError(f"{self.path} ends {missing} bytes early: has it been changed?")
                data = b"".join(parts)
        except OSError as error:
            if error.errno == errno.EBADF:
                raise ValueError(f"{self.path} has been closed") from error
            raise_if_machine_fault(error, f"{self.path} cannot be read")
            raise WheelError(f"{self.path} cannot be read: {error.strerror}") from error
        return data

    def may_be_elf(self, name: str) -> bool:
        """Whether a member is a file."""
        return not self.members[name].is_directory

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content in chunks of at most 1 MiB; the last one comes only if CRC and size are right.

        :raises WheelError: the content is not what the directory claims.
        """
        member = find_member(self, name)
        with self._named_errors():
            yield from content(self._pread, member)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Put the file's name in front of what is wrong with a member."""
        try:
            yield
        except WheelError as error:
            raise WheelError(f"{self.path.name}: {error.message}", error.issues) from error

    def read(self, name: str, limit: int = READ_LIMIT) -> bytes:
        """Return the content of a member: :func:`relink.wheel.source.read_member`."""
        return read_member(self, name, limit)

    def read_into(
        self, name: str, on_progress: OnProgress = lambda _: None, *, spool: Spool | None = None
    ) -> memoryview:
        """Return the content of a member in one buffer: :func:`relink.wheel.source.load_member`."""
        return load_member(self, name, on_progress, spool=spool)

    def read_lazily(
        self,
        name: str,
        on_progress: OnProgress,
        signatures: Collection[bytes] = (),
        spool: Spool | None = None,
    ) -> tuple[memoryview, list[Checkpoint]]:
        """Return a content that is in memory where it is asked for: :func:`relink.wheel.deflate.ranges.load_lazily`."""
        with self._named_errors():
            return load_lazily(self._pread, find_member(self, name), on_progress, signatures, spool)

    def raw_reader(self, name: str) -> RangeReader:
        """Return what reads a member's bytes as they are in the archive, compressed or not, unchecked."""
        start = find_member(self, name).data_offset
        return lambda offset, length: self._pread(start + offset, length)

    def file(self) -> BinaryIO:
        """Return the archive as a file of its own, for another reader; the caller closes it."""
        return os.fdopen(os.dup(self._fd), "rb")

    def raw(self, name: str) -> Iterator[bytes]:
        """Yield the member's bytes as they are in the archive, compressed or not, unchecked."""
        return raw_content(self._pread, find_member(self, name))

    def sha256(self, on_progress: OnProgress = lambda _: None) -> str:
        """Return the SHA-256 of the whole file, in hexadecimal. It is computed once.

        :param on_progress: called with the number of bytes before each is read; what it raises ends the computation.
        """
        with self._lock:
            if self._sha256 is None:
                digest = hashlib.sha256()
                for offset in range(0, self.size, CHUNK):
                    on_progress(CHUNK)
                    digest.update(self._pread(offset, min(CHUNK, self.size - offset)))
                self._sha256 = digest.hexdigest()
            return self._sha256
