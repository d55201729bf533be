"""A copy of a tree with other content in some of its files, and in the RECORD files that list these.

Modes, times, symbolic links as they stand, hard links inside of the tree, and holes are kept. Set-id bits, capabilities and
owners are not: nobody but who makes the copy gives it rights. What is neither a file nor a link is left out.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from relink.runs.tree_archive import TreeArchive
from relink.system.copying import copy_content
from relink.system.errors import UsageError
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated
from relink.wheel.changes import Content, pieces
from relink.wheel.record import RecordEntry, hashed, with_new_hashes

__all__ = ["TreeCopy"]

_SET_ID = stat.S_ISUID | stat.S_ISGID
_LARGEST_RECORD = 64 << 20  # bytes, as of a wheel


@dataclass(slots=True)
class TreeCopy:
    """A copy that is being written.

    :ivar target: an empty directory; `new`: what some files are to contain.
    :ivar link: a file that stays as it is becomes one more name of the original's, unless that has rights of others.
    """

    archive: TreeArchive
    target: Path
    new: Mapping[str, Content]
    link: bool = False
    _known: dict[str, RecordEntry] = field(default_factory=dict)  # of the new files
    _made: dict[tuple[object, ...], Path] = field(default_factory=dict)  # a file of several names → the first
    _others: list[str] = field(default_factory=list)  # that another user owns

    def write(self) -> Iterator[Finding]:
        """Write all of it, and yield what the copy has not.

        :raises RelinkError: a file of the tree cannot be read or linked, or has changed since it was listed.
        :raises OSError: a file cannot be written.
        """
        entries = self.archive.entries
        records = {name for name in entries if name.endswith(".dist-info/RECORD")}
        for name in sorted(entries, key=lambda name: name in records):  # these list the new files
            yield from self._write(name, self._record(name) if name in records else self.new.get(name))
        for name in reversed(entries):  # a directory's time is set after all was made in it
            if stat.S_ISDIR(entries[name].st_mode):
                _finish(self.target / name, entries[name])
        if self._others:
            text = f"of other users, and yours in the copy: {join_truncated(self._others)}"
            yield finding("RLK543", str(self.archive.path), text)

    def _write(self, name: str, new: Content | None) -> Iterator[Finding]:
        status, path = self.archive.entries[name], self.target / name
        kind, rights = stat.S_IFMT(status.st_mode), status.st_mode & _SET_ID != 0
        if kind == stat.S_IFLNK:
            path.symlink_to(self.archive.links[name])
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)
            return
        if kind == stat.S_IFDIR:
            path.mkdir(0o700, exist_ok=not name)
        elif kind == stat.S_IFREG:
            source = self.archive.open_file(name)
            try:
                with suppress(OSError):  # it has none
                    rights |= bool(os.getxattr(source, "security.capability"))
                self._write_file(name, source, new, may_link=self.link and not rights)
            finally:
                os.close(source)
        else:
            yield finding("RLK540", name, "left out of the copy: a FIFO, a socket or a device")
            return
        if rights:
            yield finding("RLK545", name or ".", "without its set-id bits and capabilities in the copy")
        if status.st_uid != os.geteuid():
            self._others.append(name or ".")

    def _write_file(self, name: str, source: int, new: Content | None, *, may_link: bool) -> None:
        path, status, digest, size = self.target / name, self.archive.entries[name], hashlib.sha256(), 0
        if new is None and may_link and status.st_uid == os.geteuid():
            try:  # by its descriptor (proc(5)): it is the file that was listed, whatever has its name by now
                os.link(f"/proc/self/fd/{source}", path, src_dir_fd=source)
            except OSError as error:
                raise UsageError(f"{name}: cannot be linked ({error.strerror}); leave --link out") from error
            return
        with path.open("xb") as file:
            if new is None:
                copy_content(source, file.fileno())
            else:
                for piece in pieces(new):
                    digest.update(piece)
                    size += file.write(piece)
                self._known[name] = hashed(name, digest.digest(), size)
        self.archive.check(name, source)
        _finish(path, status)
        first = self._made.setdefault((status.st_dev, status.st_ino, new and digest.digest()), path)
        if first != path:
            path.unlink()
            os.link(first, path)

    def _record(self, name: str) -> Content | None:
        """Return a RECORD with the hashes of the new files; None where it lists none of them."""
        status = self.archive.entries[name]
        if not self._known or not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_RECORD:
            return None
        site, data = posixpath.dirname(posixpath.dirname(name)) or ".", b"".join(self.archive.chunks(name))
        new = with_new_hashes(data, {posixpath.relpath(path, site): row for path, row in self._known.items()})
        return None if new == data else new


def _finish(path: Path, status: os.stat_result) -> None:
    os.chmod(path, stat.S_IMODE(status.st_mode) & ~_SET_ID)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
