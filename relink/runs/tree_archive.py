"""A directory as it was listed; its ELF files are read as if they were the members of a wheel."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from packaging.version import Version

from relink.elf.constants import EM_AMDGPU
from relink.elf.image import is_elf
from relink.system.errors import UsageError, WheelError
from relink.system.progress import OnProgress
from relink.system.safe_open import open_regular
from relink.system.spool import Room
from relink.system.system_errors import raise_if_machine_fault
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import WheelLimits
from relink.wheel.lookalikes import not_a_wheel
from relink.wheel.naming import WheelName
from relink.wheel.zipformat import Member

__all__ = ["TreeArchive"]

_AT_ONCE = 1 << 20
_AMDGPU = EM_AMDGPU.to_bytes(2, "little")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


class TreeArchive(WheelArchive):
    """A directory in the place of a wheel; its ELF files are the members, but for GPU code objects, which lie there by thousands.

    :param path: without symbolic links.
    :ivar entries: lstat(2) of all that is in it, by relative path: "" for itself, a directory before what is in it.
    :ivar links: the texts of the symbolic links; none is followed.
    :raises UsageError: it cannot be listed, has more files than `limits` allow, or has no ELF file.
    :raises WheelError: a file cannot be read.
    """

    def __init__(self, path: Path, limits: WheelLimits | None = None) -> None:
        self.path = path
        self.dist_info, self.data_dir = "", None
        self._sha256, self._fd = None, -1  # nothing is open between two calls
        self.entries = {"": path.stat()}
        most = (limits or WheelLimits()).members
        for folder, below, files in os.walk(path, onerror=_unlistable):
            within = os.path.relpath(folder, path)
            for base in sorted(below + files):
                name = base if within == "." else f"{within}/{base}"
                self.entries[name] = os.lstat(os.path.join(folder, base))
            if len(self.entries) > most:
                raise UsageError(f"{path}: more than {most} files; --limit members=N allows more")
        self.links: dict[str, str] = {}
        members: dict[str, Member] = {}
        for name, status in self.entries.items():
            mode, size = status.st_mode, status.st_size
            if stat.S_ISLNK(mode):
                self.links[name] = os.readlink(path / name)
            elif stat.S_ISREG(mode) and self._is_elf(name):
                facts = (name, 0, 0, 0, size, size, 0, 0, mode, _LONG_AGO, 0, 3)
                members[name] = Member(*facts, is_directory=False)
        if not members:
            raise UsageError(f"{not_a_wheel(path)}; no ELF file is in it either")
        self.members = members
        text = "".join(char if char.isalnum() and char.isascii() else "_" for char in path.name)
        self.name = WheelName(text.strip("_") or "tree", Version("0"), "0", "", "py3", "none", "any")

    def _is_elf(self, name: str) -> bool:
        with os.fdopen(self.open_file(name), "rb", buffering=0) as file:
            head = file.read(20)
        return is_elf(head) and head[18:20] != _AMDGPU

    def open_file(self, name: str) -> int:
        """Open a regular file, the very one that was listed; returns its descriptor.

        :raises WheelError: it cannot be opened, or is another one by now.
        """
        try:
            descriptor = open_regular(self.path / name, root=str(self.path))
        except OSError as error:
            raise_if_machine_fault(error, str(self.path / name))
            raise WheelError(f"{self.path / name} cannot be read: {error.strerror}") from error
        try:
            self.check(name, descriptor)
        except WheelError:
            os.close(descriptor)
            raise
        return descriptor

    def check(self, name: str, descriptor: int) -> None:
        """Refuse an open file that is not what was listed any more."""
        now, then = os.fstat(descriptor), self.entries[name]
        same = (now.st_dev, now.st_ino, now.st_size) == (then.st_dev, then.st_ino, then.st_size)
        if not (same and now.st_mtime_ns == then.st_mtime_ns):
            raise WheelError(f"{self.path / name} has changed while it was read; run the same command again")

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield a file's content in chunks; raises as :meth:`open_file`."""
        left = self.entries[name].st_size
        with os.fdopen(self.open_file(name), "rb", buffering=0) as file:
            while data := file.read(min(_AT_ONCE, left)):
                left -= len(data)
                yield data
            self.check(name, file.fileno())

    def _fill(
        self, name: str, room: Room, on_progress: OnProgress, restart: Callable[[], object] = lambda: None
    ) -> None:
        del restart  # a file is what it is
        self._fill_by_chunks(name, room, on_progress)

    def sha256(self, on_progress: OnProgress = lambda _: None) -> str:
        """Return a SHA-256 of the names and contents of all members, in hexadecimal."""
        if self._sha256 is None:
            digest = hashlib.sha256()
            for name, member in sorted(self.members.items()):
                digest.update(f"{len(os.fsencode(name))} {member.size} ".encode() + os.fsencode(name))
                for data in self.chunks(name):
                    on_progress(len(data))
                    digest.update(data)
            self._sha256 = digest.hexdigest()
        return self._sha256


def _unlistable(error: OSError) -> None:
    raise_if_machine_fault(error)
    raise UsageError(f"{error.filename}: cannot be listed ({error.strerror})") from error
