"""The regular files below a directory, each once, with limits on number, depth and time; few links out of it are followed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from relink.system.errors import raise_if_machine_fault
from relink.system.text import join_truncated

_MAX_FILES = 1_000_000  # and directories
_MAX_DEPTH = 100
# Seconds; ROCm's 6,000 files take one. The time in which the caller reads them is counted, too.
_MAX_SECONDS = 300
_KERNEL_FILE_SYSTEMS = ("/proc/", "/sys/", "/dev/")
# Nix manual, "Store Path"; Guix has the same.
_STORE_ITEM = re.compile(r"/[0-9a-df-np-sv-z]{32}-[0-9a-zA-Z+\-._?=]+(?:/|\Z)")
_MAX_SHOWN = 4


class _Links:
    """Which symbolic links are followed: those that stay below `top`, and links to files elsewhere except in /proc, /sys, /dev.

    A link to a directory elsewhere may lead anywhere, for example to ``/``. Links into the items of a store are followed: a Nix
    or Guix profile, or what symlinkJoin makes, consists of them.

    :ivar out: the first links that were not followed; `count` says how many.
    """

    def __init__(self, top: str) -> None:
        self.top = top
        self.out: list[str] = []
        self.count = 0

    def follows(self, entry: os.DirEntry[str], *, directory: bool) -> bool:
        real = os.path.realpath(entry.path)
        if real == self.top or real.startswith(self.top.rstrip("/") + "/"):
            return True
        if not real.startswith(_KERNEL_FILE_SYSTEMS) and (not directory or _STORE_ITEM.search(real)):
            return True
        self.count += 1
        if len(self.out) < _MAX_SHOWN:
            self.out.append(f"{entry.path} to {real}")
        return False

    def problem(self) -> str:
        """Say which were not followed."""
        more = f" and {self.count - len(self.out)} more" if self.count > len(self.out) else ""
        return (
            f"{self.top}: links that lead out of it are not followed: {', '.join(self.out)}{more}; "
            "name their targets to look at them"
        )


def walk(top: Path, problems: list[str]) -> Iterator[str]:
    """Yield every regular file below `top` once; what is not looked at, for its place, number, depth or time, is a problem."""
    links = _Links(os.path.realpath(top))
    unread: list[str] = []
    yield from _files(links, problems, unread)
    if links.count:
        problems.append(links.problem())
    if unread:
        problems.append(join_truncated(unread))


def _files(links: _Links, problems: list[str], unread: list[str]) -> Iterator[str]:
    top = links.top
    pending = [(top, 0)]
    seen: set[tuple[int, int]] = set()
    count = 0
    end = time.monotonic() + _MAX_SECONDS
    while pending:
        directory, depth = pending.pop()
        if time.monotonic() > end:
            problems.append(f"{top}: takes more than {_MAX_SECONDS} s; the rest was not looked at")
            return
        try:
            info = os.stat(directory)
            if (info.st_dev, info.st_ino) in seen:
                continue
            seen.add((info.st_dev, info.st_ino))
            with os.scandir(directory) as entries:
                # A file before the links to it, so that it goes by its own name.
                ordered = sorted(
                    # A hostile directory may have more entries than are ever looked at.
                    islice(entries, _MAX_FILES + 1 - count),
                    key=lambda entry: (entry.is_symlink(), entry.name),
                )
        except OSError as error:
            raise_if_machine_fault(error, directory)
            unread.append(f"{directory}: cannot be read ({error.strerror})")
            continue
        below = []
        for entry in ordered:
            count += 1
            if count > _MAX_FILES:
                problems.append(f"{top}: more than {_MAX_FILES} files; the rest was not looked at")
                return
            try:
                is_directory = entry.is_dir()
                if not is_directory and not entry.is_file():
                    continue
                if entry.is_symlink() and not links.follows(entry, directory=is_directory):
                    continue
                if is_directory:
                    if f"{entry.path}/" in _KERNEL_FILE_SYSTEMS and not entry.is_symlink():
                        # `isa /` comes here, and no file of these file systems lies on a disk.
                        continue
                    if depth < _MAX_DEPTH:
                        below.append((entry.path, depth + 1))
                    else:
                        unread.append(f"{entry.path}: more than {_MAX_DEPTH} directories deep, not looked at")
                    continue
                info = entry.stat()
            except OSError as error:
                raise_if_machine_fault(error, entry.path)
                # As a rule a link that leads nowhere.
                continue
            key = (info.st_dev, info.st_ino)
            if info.st_size < 64 or key in seen:
                continue
            seen.add(key)
            yield entry.path
        pending += reversed(below)
