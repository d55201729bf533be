"""Copying one file: whole, with its holes, and without a second copy on the disk where the file system can share the blocks."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path

from relink.system.atomic import atomic_file
from relink.system.safe_open import open_regular

__all__ = ["copy_content", "copy_file"]

_FICLONE = 0x40049409  # linux/fs.h
_MOST = 1 << 30  # bytes of one sendfile(2), which takes less than 2 GiB


def copy_file(source: Path, path: Path) -> Path:
    """Copy a regular file with its mode and times; `path` has all of it, or what it had before.

    :raises OSError: `source` is no regular file (EINVAL) or cannot be read, or `path` cannot be written.
    """
    descriptor = open_regular(source)
    try:
        with atomic_file(path) as writer:
            copy_content(descriptor, writer.fileno())
    finally:
        os.close(descriptor)
    shutil.copystat(source, path)
    return path


def copy_content(source: int, target: int) -> None:
    """Copy the content of an open file to one that is empty; what is a hole stays one.

    :raises OSError: it cannot be read or written.
    """
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # another file system, or one without
        size = os.fstat(source).st_size
        os.truncate(target, size)
        end = 0
        while part := _data(source, end, size):
            end = os.lseek(target, part.start, os.SEEK_SET)
            while end < part.stop:
                count = os.sendfile(target, source, end, min(_MOST, part.stop - end))
                end = end + count if count else part.stop  # it was truncated meanwhile


def _data(source: int, start: int, size: int) -> range:
    """Return the next part of a file that is no hole, an empty one at the end (lseek(2), SEEK_DATA)."""
    try:
        begin = os.lseek(source, start, os.SEEK_DATA)
        return range(begin, min(size, os.lseek(source, begin, os.SEEK_HOLE)))
    except OSError as error:
        return range(start, start if error.errno == errno.ENXIO else size)
