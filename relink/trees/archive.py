"""The ELF files of a directory, read as if they were the members of a wheel."""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from packaging.version import Version

from relink.elf.constants import EM_AMDGPU
from relink.elf.image import is_elf
from relink.errors import UsageError, WheelError
from relink.files import open_regular, read_start
from relink.progress import OnProgress
from relink.providers.prefix import TREE, Provider, soname_stem
from relink.spool import Room
from relink.system_errors import raise_trouble
from relink.trees.journal import identity
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
    """A directory in the place of a wheel: its regular ELF files are the members, by their paths relative to it.

    :param path: the directory.
    :param originals: files that are read in the place of members, by the member's name.
    :param only: the names of the members, if not all files are.
    :ivar seen: the :func:`relink.trees.journal.identity` of the members in the tree.
    :ivar links: the symbolic links to files and directories inside, by name; with their texts.
    :raises UsageError: it cannot be listed, or has more files than `limits` allow.
    """

    seen: Mapping[str, str]
    links: Mapping[str, str]
    originals: Mapping[str, Path]

    def __init__(
        self,
        path: Path,
        *,
        originals: Mapping[str, Path] | None = None,
        only: frozenset[str] | None = None,
        limits: WheelLimits | None = None,
    ) -> None:
        self.path = path
        self.dist_info, self.data_dir = "", None
        self._sha256: str | None = None
        self.originals = dict(originals or {})
        members: dict[str, Member] = {}
        links: dict[str, str] = {}
        seen: dict[str, str] = {}
        most = (limits or WheelLimits()).members
        count = 0
        for name, status in _entries(path):
            count += 1
            if count > most:
                raise UsageError(f"{path}: more than {most} files; --limit members=N allows more")
            if only is not None and name not in only:
                continue
            if stat.S_ISLNK(status.st_mode):
                links[name] = os.readlink(path / name)
            elif stat.S_ISREG(status.st_mode) and _is_elf(self._place(name)):
                size = os.stat(self._place(name)).st_size
                seen[name] = identity(path / name)
                members[name] = Member(
                    name, 0, 0, 0, size, size, 0, 0, status.st_mode, _LONG_AGO, 0, 3, is_directory=False
                )
        if not members:
            raise UsageError(f"{not_a_wheel(path)}; no ELF file is in it either")
        self.members = MappingProxyType(members)
        self.links = MappingProxyType(links)
        self.seen = MappingProxyType(seen)
        self.size = sum(member.size for member in members.values())
        text = "".join(char if char.isalnum() and char.isascii() else "_" for char in path.resolve().name)
        self.name = WheelName(text.strip("_") or "tree", Version("0"), "0", "", "py3", "none", "any")

    def _place(self, name: str) -> Path:
        return self.originals.get(name, self.path / name)

    def provider(self, root: str) -> Provider:
        """Return the tree itself as a place that libraries come from: what is in one of its directories serves another.

        :param root: its absolute path, without symbolic links.
        """
        found: dict[str, list[str]] = {}
        directories: dict[str, None] = {}
        for name in sorted((*self.members, *self.links), key=lambda name: (name.count("/"), name)):
            base = posixpath.basename(name)
            place = posixpath.join(root, name)
            if soname_stem(base) != base or base.endswith(".so"):
                if name in self.links and not (self.path / name).is_file():
                    continue
                found.setdefault(base, []).append(place)
                directories[posixpath.dirname(place)] = None
        libraries = {base: tuple(paths) for base, paths in sorted(found.items())}
        return Provider(TREE, root, tuple(directories), MappingProxyType(libraries))

    def close(self) -> None:
        """Nothing is open between two calls."""

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield a file's content in chunks.

        :raises WheelError: it cannot be read, or has another size by now.
        """
        left = self.member(name).size
        try:
            with os.fdopen(open_regular(self._place(name)), "rb", buffering=0) as file:
                while left >= 0 and (data := file.read(_AT_ONCE)):
                    left -= len(data)
                    if left >= 0:
                        yield data
        except OSError as error:
            raise_trouble(error, str(self.path / name))
            raise WheelError(f"{self.path / name} cannot be read: {error.strerror}") from error
        if left:
            raise WheelError(f"{self.path / name} has changed while it was read")

    def _fill(
        self,
        name: str,
        room: Room,
        on_progress: OnProgress,
        restart: Callable[[], object] = lambda: None,
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


def _entries(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield what is below a directory, and is none, by relative name, in order; no symbolic link is followed."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(root / folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise_trouble(error, str(root / folder))
            raise UsageError(f"{root / folder}: cannot be listed ({error.strerror})") from error
        for entry in found:
            name = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                waiting.append(name)
            else:
                yield name, entry.stat(follow_symlinks=False)


def _is_elf(path: Path) -> bool:
    """Whether a file is ELF, and no GPU code object: libraries of ROCm have thousands of those beside them."""
    try:
        head = read_start(path, 20)
    except OSError as error:
        raise_trouble(error, str(path))
        return False
    return is_elf(head) and head[18:20] != _AMDGPU
