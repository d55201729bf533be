"""The files a loader sees: the disk as seen from a root directory, with the wheel's members laid over it.

Nothing of a wheel is unpacked for a simulation: its members appear at the paths where an installer would put them, and every
look-up goes through :class:`Files`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import stat
from collections.abc import Mapping

import msgspec

from relink.elf.image import Image, read_image
from relink.system.errors import ElfError, raise_if_machine_fault
from relink.system.progress import RunBudget
from relink.system.safe_open import NOT_REGULAR, map_file

# MAXSYMLINKS of Linux (fs/namei.c).
_MAX_LINKS = 40


class OpenedFile(msgspec.Struct, frozen=True):
    """What opening one path gives.

    :ivar identity: the same for two paths of one file (device and inode, or the member), and another one when it has changed;
        None when there is no file.
    :ivar image: its facts, when it is an ELF file that can be read.
    :ivar error: the errno of a failed open, 0 otherwise.
    :ivar problem: why there is no image although there is a file.
    :ivar head: the first 64 bytes of a file on disk, which the loader checks first; None for a member
        and for what is no regular file.
    """

    path: str
    identity: tuple[object, ...] | None = None
    image: Image | None = None
    error: int = 0
    problem: str | None = None
    head: bytes | None = None

    @property
    def exists(self) -> bool:
        """Whether open(2) succeeded."""
        return self.identity is not None


def resolve_inside(root: str, path: str) -> str:
    """Return the host path of `path` as seen by a process whose root directory is `root`.

    Absolute symbolic links are followed inside of `root`, as the kernel does after chroot(2). The last component need
    not exist.

    :raises OSError: with ELOOP after 40 links; with EINVAL where no file can have such a path.
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
        except ValueError as error:  # a NUL or a lone surrogate, which JSON can write
            raise OSError(errno.EINVAL, str(error), path) from error
        except OSError as error:
            # EINVAL: this is no link. ENOENT: nothing is there. In both cases the name stays in the path.
            raise_if_machine_fault(error, here)
            done.append(part)
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if link.startswith("/"):
            done = []
        pending.extend(part for part in reversed(link.split("/")) if part)
    return posixpath.join(root, *done)


class _Places(msgspec.Struct):
    """Where the files of an overlay lie, whatever is in them.

    :ivar names: by the path of each, without symbolic links, its name; `directories` are all above them, and above the links.
    :ivar walked: by directory its canonical path; fills up as these are asked for.
    :ivar inside: by directory, and by names, those of the names that are directories in it; fills up likewise.
    """

    names: dict[str, str] = msgspec.field(default_factory=dict)
    directories: frozenset[str] = frozenset()
    walked: dict[str, str] = msgspec.field(default_factory=dict)
    inside: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = msgspec.field(default_factory=dict)


def _with_parents(path: str) -> set[str]:
    """Return a directory and those above it, but for the root."""
    directories: set[str] = set()
    while path not in directories and path != "/":
        directories.add(path)
        path = posixpath.dirname(path)
    return directories


class Files:
    """The file system as the target sees it. Look-ups are cached, so a closure is cheap to compute again.

    :param root: the sysroot; ``/`` for this system's own.
    :param overlay: image by absolute path, for files that are not on disk (the wheel's members).
    :param links: directory by absolute path, for symbolic links that are not on disk (other packages beside the members).
    :ivar budget: what may still be done with them, in all simulations.
    """

    def __init__(
        self,
        root: str = "/",
        overlay: Mapping[str, Image] | None = None,
        links: Mapping[str, str] | None = None,
        budget: RunBudget | None = None,
    ) -> None:
        self.root = root
        self.budget = budget or RunBudget()
        self._seen: dict[str, OpenedFile] = {}
        self._directories: dict[str, bool] = {}
        self._listed: dict[str, tuple[str, ...]] = {}
        self._links: dict[str, str] = {}
        self._link_directories: frozenset[str] = frozenset()
        for path, directory in (links or {}).items():
            self._links[path] = self.canonical(directory)
            self._link_directories |= _with_parents(posixpath.dirname(path))
        self._places = self._find_places({path: path for path in overlay or ()})
        self._images: Mapping[str, Image] = overlay or {}
        self._other: Mapping[str, Image] = {}

    def _find_places(self, paths: Mapping[str, str]) -> _Places:
        known = {
            name: self.canonical(posixpath.dirname(posixpath.normpath(path))) for name, path in paths.items()
        }
        names = {
            posixpath.join(directory, posixpath.basename(paths[name])): name
            for name, directory in known.items()
        }
        return _Places(names, self._link_directories.union(*map(_with_parents, {*known.values()})))

    def with_overlay(self, paths: Mapping[str, str], images: Mapping[str, Image]) -> Files:
        """Return the same disk with another overlay; what was read from the disk stays cached.

        :param paths: absolute path by name.
        :param images: image by name; it is asked whenever a file is opened, so it may change.
        """
        return self._with(self._find_places(paths), images, {})

    def with_image(self, name: str, image: Image) -> Files:
        """Return the same disk and overlay, but for the image of one name."""
        return self._with(self._places, self._images, {name: image})

    def share_disk(self, files: Files) -> None:
        """Give other files of the same root what was read of the disk here, and will be."""
        files._seen, files._directories, files._listed = self._seen, self._directories, self._listed

    def _with(self, places: _Places, images: Mapping[str, Image], other: Mapping[str, Image]) -> Files:
        files = Files(self.root, budget=self.budget)
        self.share_disk(files)
        files._links, files._link_directories = self._links, self._link_directories
        files._places, files._images, files._other = places, images, other
        return files

    def host(self, path: str) -> str:
        """Return the path by which this process reaches the target's `path`."""
        return resolve_inside(self.root, path)

    def open(self, path: str) -> OpenedFile:
        """Open `path` as the loader would and read what it would read. That there is no such file is a fact, not an error.

        :raises MachineError: memory or open files are exhausted, or the disk fails.
        """
        where = path
        names = self._places.names
        if names or self._link_directories:
            directory, _, name = path.rpartition("/")
            known = self._walk(directory)
            if known:
                where = posixpath.join(known, name)
                member = names.get(where) or names.get(self._follow(where))
                if member is not None:
                    image = self._other.get(member) or self._images[member]
                    return OpenedFile(path, ("member", image.path), image)
        opened = self._seen.get(where)
        if opened is None:
            opened = self._seen[where] = self.open_new(where)
        return opened if where == path else msgspec.structs.replace(opened, path=path)

    def is_directory(self, path: str) -> bool:
        """Whether stat(2) says that `path` is a directory."""
        if self._places.names or self._link_directories:
            return bool(self._walk(path))
        return self._is_disk_directory(path)

    def directories_in(self, path: str, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of `names` that are directories in the directory `path`; nothing where that is none."""
        # The loader asks the same of a directory for each library that it looks for.
        known = self._places.inside.get((path, names))
        if known is None:
            there = names if self.is_directory(path) else ()
            known = tuple(name for name in there if self.is_directory(posixpath.join(path, name)))
            self._places.inside[path, names] = known
        return known

    def names_in(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory of the disk; nothing where it cannot be read."""
        if path not in self._listed:
            try:
                self._listed[path] = tuple(sorted(os.listdir(self.host(path))))
            except OSError as error:
                raise_if_machine_fault(error, path)
                self._listed[path] = ()
        return self._listed[path]

    def canonical(self, path: str) -> str:
        """Return an absolute `path` without symbolic links, as the target sees it; what is not on disk has none."""
        done, there = "/", True
        for part in path.split("/"):
            if part == "..":
                done, there = posixpath.dirname(done), True
            elif part not in ("", "."):
                done = posixpath.join(done, part)
                # Below what is no directory there are no links, and nothing need be remembered.
                if there:
                    done = self._follow(done)
                    there = self._is_disk_directory(done)
        return done

    def _walk(self, directory: str) -> str:
        """Canonical `directory`, or an empty string where a component of it is no directory: then ``..`` after it fails, too."""
        real = self._places.walked.get(directory)
        if real is None:
            real = "/"
            for part in directory.split("/"):
                if part == "..":
                    real = posixpath.dirname(real)
                elif part not in ("", "."):
                    real = self._follow(posixpath.join(real, part))
                    if real not in self._places.directories and not self._is_disk_directory(real):
                        real = ""
                        break
            self._places.walked[directory] = real
        return real

    def _follow(self, path: str) -> str:
        """Follow the links of the last component of `path`, whose directory has none any more."""
        real = self._links.get(path)
        if real is None:
            real = path
            host = posixpath.join(self.root, path.lstrip("/"))
            if os.path.islink(host):
                # A loop of links stays in the path; opening it gives ELOOP.
                with contextlib.suppress(OSError):
                    if self.root == "/":
                        real = os.path.realpath(host)
                    else:
                        real = posixpath.join("/", posixpath.relpath(self.host(path), self.root))
            self._links[path] = real
        return real

    def _is_disk_directory(self, path: str) -> bool:
        is_there = self._directories.get(path)
        if is_there is None:
            try:
                is_there = stat.S_ISDIR(os.stat(self.host(path)).st_mode)
            except OSError as error:
                raise_if_machine_fault(error, path)
                is_there = False
            except ValueError:  # a NUL in the path
                is_there = False
            self._directories[path] = is_there
        return is_there

    def open_new(self, path: str) -> OpenedFile:
        """Open and read a file as the loader would, whatever was found at the path before."""
        head = None
        try:
            host = self.host(path)
            info = os.stat(host)
            identity = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
            # Never open a FIFO or a device to look inside.
            if not stat.S_ISREG(info.st_mode):
                return OpenedFile(path, identity, problem=NOT_REGULAR)
            with map_file(host) as buffer:
                head = bytes(buffer[:64])
                return OpenedFile(path, identity, read_image(buffer, path), head=head)
        except ElfError as error:
            problem = error.message.removeprefix(f"{path}: ")
            return OpenedFile(path, identity, problem=problem, head=head)
        except OSError as error:
            raise_if_machine_fault(error, path)
            return OpenedFile(path, error=error.errno or errno.EINVAL)
