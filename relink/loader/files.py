"""The files a loader sees: the disk as seen from a root directory, with the wheel's members laid over it.

Nothing of a wheel is unpacked to ask what the loader would do with it; its members are put at the paths where an
installer would put them, and every look-up asks here.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from relink.elf.image import Image, map_file, read_image
from relink.errors import ElfError

__all__ = ["Candidate", "Files", "resolve_inside"]

_MAX_LINKS = 40  # Linux, fs/namei.c: MAXSYMLINKS


@dataclass(frozen=True, slots=True)
class Candidate:
    """What opening one path gives.

    :ivar identity: the same for two paths of one file (device and inode, or the member); None when there is no file.
    :ivar image: its facts, when it is an ELF file that can be read.
    :ivar error: the errno of a failed open, 0 otherwise.
    :ivar problem: why there is no image although there is a file.
    """

    path: str
    identity: tuple[object, ...] | None = None
    image: Image | None = None
    error: int = 0
    problem: str | None = None

    @property
    def exists(self) -> bool:
        """Whether open(2) succeeded."""
        return self.identity is not None


def resolve_inside(root: str, path: str) -> str:
    """Return the host path of `path` as seen by a process whose root directory is `root`.

    Absolute symbolic links are followed inside of `root`, as the kernel does after chroot(2). The last component need
    not exist.

    :raises OSError: with ELOOP after 40 links.
    """
    if root in ("", "/"):
        return path
    pending = [part for part in reversed(path.split("/")) if part]
    done: list[str] = []
    links = 0
    while pending:
        part = pending.pop()
        if part == ".":
            continue
        if part == "..":
            if done:
                done.pop()
            continue
        here = posixpath.join(root, *done, part)
        try:
            link = os.readlink(here)
        except OSError:
            done.append(part)
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if link.startswith("/"):
            done = []
        pending.extend(part for part in reversed(link.split("/")) if part)
    return posixpath.join(root, *done)


class Files:
    """The file system as the target sees it. Look-ups are remembered, so a closure is cheap to compute again.

    :param root: the sysroot; ``/`` for this system's own.
    :param overlay: image by absolute path, for files that are not on disk (the wheel's members).
    """

    def __init__(self, root: str = "/", overlay: Mapping[str, Image] | None = None) -> None:
        self.root = root
        self._overlay = dict(overlay or {})
        self._overlay_directories = {
            parent
            for path in self._overlay
            for parent in _parents(path)
            if not os.path.lexists(self.host(parent))
        }
        self._seen: dict[str, Candidate] = {}
        self._directories: dict[str, bool] = {}

    def with_overlay(self, overlay: Mapping[str, Image]) -> Files:
        """Return the same disk with another overlay; what was read from the disk stays remembered."""
        other = Files(self.root, overlay)
        other._seen = self._seen
        other._directories = self._directories
        return other

    def host(self, path: str) -> str:
        """Return the path by which this process reaches the target's `path`."""
        return resolve_inside(self.root, path)

    def open(self, path: str) -> Candidate:
        """Open `path` as the loader would and read what it would read. Never raises: errors are facts here."""
        member = self._overlay.get(posixpath.normpath(path)) if self._overlay else None
        if member is not None:
            return Candidate(path, ("member", member.path), member)
        found = self._seen.get(path)
        if found is None:
            found = self._seen[path] = self._open(path)
        return found

    def is_directory(self, path: str) -> bool:
        """Whether stat(2) says that `path` is a directory."""
        if posixpath.normpath(path) in self._overlay_directories:
            return True
        found = self._directories.get(path)
        if found is None:
            try:
                found = os.path.isdir(self.host(path))
            except OSError:
                found = False
            self._directories[path] = found
        return found

    def _open(self, path: str) -> Candidate:
        try:
            host = self.host(path)
            info = os.stat(host)
            identity = (info.st_dev, info.st_ino)
            if not stat.S_ISREG(info.st_mode):  # never open a FIFO or a device to look inside
                return Candidate(path, identity, problem="not a regular file")
            with map_file(host) as buffer:
                return Candidate(path, identity, read_image(buffer, path))
        except ElfError as error:
            return Candidate(path, identity, problem=error.message.removeprefix(f"{path}: "))
        except OSError as error:
            return Candidate(path, error=error.errno or errno.EIO)


def _parents(path: str) -> list[str]:
    parents = []
    while (path := posixpath.dirname(path)) not in ("", "/"):
        parents.append(path)
    return parents
