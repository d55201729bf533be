"""A copy of a directory made of hard links, and what others changed in the directory while its copy took its place."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from relink.atomic import sync_directory
from relink.errors import RelinkError
from relink.trees.obstacles import mounts_at

__all__ = [
    "CopyError",
    "Inodes",
    "carry_over",
    "copy_attributes",
    "link_copy",
    "remove_copy",
]

Inodes: TypeAlias = dict[str, int]
"""Inode number of all that is below a directory, by relative path; a directory stands before what is in it."""
MOST = 200_000
"""Entries of a directory; links to so many take some seconds."""


class CopyError(RelinkError):
    """A directory cannot be copied by links so that nobody sees a difference."""


def link_copy(top: Path, copy: Path, files: Mapping[str, Path], most: int = MOST) -> Inodes:
    """Make a directory with the content of another one: its files by hard links, new directories with all their attributes.

    :param files: what takes the place of some files of `top`, by their names relative to it; linked as well.
    :return: what was in `top`.
    :raises CopyError: there is too much in it, or a directory cannot be made like the one in `top`.
    :raises OSError: something cannot be linked.
    """
    listing: Inodes = {}
    folders = [""]
    copy.mkdir(0o700)
    for name, entry in _entries(top):
        if len(listing) == most:
            raise CopyError(f"more than {most} files are in {top}")
        listing[name] = entry.inode()
        if entry.is_dir(follow_symlinks=False):
            (copy / name).mkdir(0o700)
            folders.append(name)
        else:
            os.link(files.get(name, top / name), copy / name, follow_symlinks=False)
    for name in reversed(folders):  # a directory's time is set after everything was made in it
        _copy_directory(top / name, copy / name)
    sync_directory(copy)  # a journal of the file system has all that was done before it, too
    return listing


def carry_over(old: Path, new: Path, listing: Inodes) -> None:
    """Do in `new` what others did in `old` after the listing was made: until the exchange, that was the directory of that name.

    What others have changed in `new` by now stays as they have made it.

    :raises OSError: something cannot be linked or removed.
    """
    now = {name: entry.inode() for name, entry in _entries(old)}
    gone = [name for name in listing if name not in now]
    for name in reversed(gone):
        with contextlib.suppress(FileNotFoundError):
            if _inode(new / name) == listing[name]:
                (new / name).unlink()
            elif stat.S_ISDIR((new / name).lstat().st_mode):
                with contextlib.suppress(OSError):  # others have put something into it
                    (new / name).rmdir()
    for name, inode in now.items():
        if listing.get(name) == inode:
            continue
        if (old / name).is_dir() and not (old / name).is_symlink():
            with contextlib.suppress(FileExistsError):
                (new / name).mkdir(0o700)
                _copy_directory(old / name, new / name)
        elif _inode(new / name) == listing.get(name):
            (new / name).unlink(missing_ok=True)
            os.link(old / name, new / name, follow_symlinks=False)


def remove_copy(directory: Path) -> None:
    """Remove a directory whose files have their names elsewhere; it stays where something is mounted in it."""
    with contextlib.suppress(OSError):
        if mounts_at(Path(os.path.realpath(directory))):
            return
        for folder, _, _ in os.walk(directory):
            os.chmod(folder, 0o700)
        shutil.rmtree(directory)


def copy_attributes(source: Path, target: Path) -> None:
    """Give a file or directory the owner, the extended attributes and the mode of another one.

    :raises OSError: one of them cannot be given; the mode comes last.
    """
    status, made = source.stat(), target.stat()
    if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
        os.chown(target, status.st_uid, status.st_gid)
    theirs, ours = _attributes(source), _attributes(target)
    for name in ours.keys() - theirs.keys():
        os.removexattr(target, name)
    for name, value in theirs.items():
        if ours.get(name) != value:
            os.setxattr(target, name, value)
    os.chmod(target, stat.S_IMODE(status.st_mode))


def _copy_directory(source: Path, target: Path) -> None:
    try:
        copy_attributes(source, target)
    except OSError as error:
        raise CopyError(
            f"a copy of {source} cannot have its owner and attributes ({error.strerror})"
        ) from error
    status = source.stat()
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _attributes(path: Path) -> dict[str, bytes]:
    try:
        return {name: os.getxattr(path, name) for name in os.listxattr(path)}
    except OSError as error:
        if error.errno == errno.ENOTSUP:  # a file system without
            return {}
        raise


def _inode(path: Path) -> int | None:
    """The inode number of a file that is no directory, or None."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return None if stat.S_ISDIR(status.st_mode) else status.st_ino


def _entries(top: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield all below a directory by its relative name, a directory before what is in it; no symbolic link is followed."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(top / folder) as entries:
            found = list(entries)
        for entry in found:
            name = f"{folder}/{entry.name}" if folder else entry.name
            yield name, entry
            if entry.is_dir(follow_symlinks=False):
                waiting.append(name)
