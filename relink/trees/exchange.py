"""New files written aside, put into a tree all at once, and the old ones put back.

:mod:`relink.trees.journal` has what a killed run leaves, and why it is done so.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import posixpath
import stat
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from relink.atomic import atomic_file, remove_stale, sync_directory
from relink.errors import UsageError
from relink.files import file_sha256, open_regular, read_text
from relink.text import join_truncated
from relink.trees.journal import (
    COMMITTING,
    DONE,
    EXCHANGING,
    STAGING,
    Journal,
    KeptFile,
    Pending,
    identity,
    place_of,
    read_journal,
    settle,
    told,
    write_journal,
)
from relink.trees.obstacles import exchange_names, obstacle
from relink.trees.sibling import (
    CopyError,
    Inodes,
    carry_over,
    copy_attributes,
    link_copy,
    remove_copy,
)

__all__ = ["commit", "current", "finish", "stage", "undo"]

_MOST = 1 << 40  # bytes of a file of a tree
_PIECE = 1 << 20  # bytes copied at a time
_COPY, _LISTING = "copy", "listing.json"  # in the journal's directory
_LISTING_LIMIT = 1 << 30  # bytes
_FULL = (errno.ENOSPC, errno.EDQUOT)


def current(tree: Path) -> Journal:
    """Return the journal without the files that another program has replaced or removed since: what is there now is the vendor's.

    :raises UsageError: the journal is damaged.
    """
    journal = read_journal(tree)
    return replace(
        journal, files=tuple(one for one in journal.files if _sha256(tree / one.path) == one.sha256)
    )


def stage(
    tree: Path,
    contents: Mapping[str, Iterable[Any]],
    back: Iterable[str] = (),
    seen: Mapping[str, str] | None = None,
) -> Journal:
    """Write new files beside the tree; :func:`commit` puts them into it, :func:`finish` takes them away.

    :param contents: what each file is to contain, in pieces, by its path relative to the tree.
    :param back: exchanged files whose originals are to come back.
    :param seen: the :func:`identity` of files when they were read.
    :return: the journal; what is pending in it differs from what is there.
    :raises UsageError: a file cannot be written.
    """
    journal = read_journal(tree)
    known = journal.originals
    number = max((int(one) for one in known.values() if one.isdigit()), default=-1)
    pending = [Pending(path, known[path], None) for path in back if path in known]
    for path in contents:
        number += path not in known
        pending.append(Pending(path, known.get(path, str(number)), f"{len(pending)}.new"))
    write_journal(tree, replace(journal, state=STAGING, pending=tuple(pending)))
    there = {one.path: one.sha256 for one in journal.files}
    written = []
    for one in pending:
        target = tree / one.path
        one = replace(one, seen=(seen or {}).get(one.path) or identity(target))  # noqa: PLW2901
        if one.temporary is not None:
            new = place_of(tree) / one.temporary
            one = replace(one, sha256=_write_new(target, new, contents[one.path]))  # noqa: PLW2901
            if there.get(one.path) == one.sha256:
                new.unlink()
                continue
        written.append(one)
    journal = replace(journal, state=STAGING, pending=tuple(written))
    write_journal(tree, journal)
    return journal


def _write_new(target: Path, new: Path, pieces: Iterable[Any]) -> str:
    digest = sha256()
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
            file.flush()
            with contextlib.suppress(OSError):  # another's file, changed by who may not give files away
                copy_attributes(target, new)
            os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
            os.fsync(descriptor)
    except OSError as error:
        raise UsageError(f"{new}: cannot be written ({error.strerror}), so nothing was changed") from error
    return digest.hexdigest()


def commit(tree: Path, journal: Journal) -> str | None:
    """Put what is pending into the tree, in one step where that can be done.

    :return: why it was done file by file, where one step was not possible; else None.
    :raises UsageError: another program has changed one of the files, or there is no room: then nothing has changed. Or a file
        cannot be exchanged; then the next run goes on where this one has stopped.
    """
    _refuse_changed(tree, journal)
    reason = _exchange_directory(tree, journal) if len(journal.pending) > 1 else "one file"
    if reason is None:
        return None
    if journal.pending:
        write_journal(tree, replace(journal, state=COMMITTING))
    _exchange_files(tree, journal)
    return reason if len(journal.pending) > 1 else None


def _refuse_changed(tree: Path, journal: Journal) -> None:
    changed = [one.path for one in journal.pending if identity(tree / one.path) != one.seen]
    if changed:
        finish(tree)
        raise UsageError(
            f"{tree}: another program has changed {join_truncated(changed)} meanwhile, so nothing was exchanged; run the same "
            "command again"
        )


def finish(tree: Path) -> str | None:
    """Finish what a killed run has begun; returns what that was, in words, or None.

    :raises UsageError: a file cannot be exchanged or removed.
    """
    journal = read_journal(tree)
    place = place_of(tree)
    for folder in {place, *((tree / one.path).parent for one in journal.pending)}:
        remove_stale(folder)
    if journal.state == COMMITTING:
        _exchange_files(tree, journal)
        return "a run that was stopped was completed"
    copy = place / _COPY
    if journal.state == EXCHANGING and copy.exists() and copy.stat().st_ino != journal.copy:
        with told(tree):
            listing = json.loads(read_text(place / _LISTING, _LISTING_LIMIT))
            _keep_old_directory(tree, journal, listing)
        return "a run that was stopped was completed"
    settle(tree, replace(journal, state=DONE, pending=()))
    return "a run that had changed nothing yet was taken back" if journal.state != DONE else None


def _exchange_directory(tree: Path, journal: Journal) -> str | None:
    """Exchange the smallest directory that has all of the files; returns why it cannot be done, or None."""
    place, (top, names) = place_of(tree), _smallest(tree, journal)
    copy = place / _COPY
    files = {name: place / (one.temporary or one.kept) for name, one in names.items()}
    try:
        if reason := obstacle(top, place):
            return reason
        listing = link_copy(top, copy, files)
        with atomic_file(place / _LISTING) as file:
            file.write(json.dumps(listing).encode())
        _refuse_changed(tree, journal)
        exchanging = replace(journal, state=EXCHANGING, copy=copy.stat().st_ino)
        write_journal(tree, exchanging)
        exchange_names(copy, top)
    except (OSError, CopyError) as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            finish(tree)
            raise UsageError(f"{place}: {error.strerror}, so nothing was changed") from error
        remove_copy(copy)
        return str(error)
    with told(top):
        for directory in (place, top.parent):
            sync_directory(directory)
        _keep_old_directory(tree, exchanging, listing)
    return None


def _keep_old_directory(tree: Path, journal: Journal, listing: Inodes) -> None:
    """Take the originals out of the directory that had its name before, and what others did there meanwhile."""
    place, (top, names) = place_of(tree), _smallest(tree, journal)
    carry_over(place / _COPY, top, listing)
    files = {one.path: one for one in journal.files}
    for name, one in names.items():
        kept = place / one.kept
        if one.temporary is None:
            files.pop(one.path, None)
            kept.unlink(missing_ok=True)
            continue
        if not kept.exists():
            os.replace(place / _COPY / name, kept)
        files[one.path] = KeptFile(one.path, one.kept, one.sha256)
    settle(tree, Journal(DONE, tuple(files.values())))


def _smallest(tree: Path, journal: Journal) -> tuple[Path, dict[str, Pending]]:
    """Return the smallest directory that has all files that are pending, and these by their names relative to it."""
    top = posixpath.commonpath([posixpath.dirname(one.path) for one in journal.pending])
    return Path(os.path.realpath(tree)) / top, {
        posixpath.relpath(one.path, top or "."): one for one in journal.pending
    }


def _exchange_files(tree: Path, journal: Journal) -> None:
    """Exchange one file after the other."""
    place = place_of(tree)
    files = {one.path: one for one in journal.files}
    for one in journal.pending:
        target, kept = tree / one.path, place / one.kept
        with told(target):
            if one.temporary is None:
                _give_name(kept, target)
                files.pop(one.path, None)
                continue
            new = place / one.temporary
            if new.exists():  # else it has its name already
                if not kept.exists():
                    _keep(target, kept)
                _give_name(new, target)
            files[one.path] = KeptFile(one.path, one.kept, one.sha256)
    for directory in {(tree / one.path).parent for one in journal.pending}:
        sync_directory(directory)
    settle(tree, Journal(DONE, tuple(files.values())))


def undo(tree: Path, only: frozenset[str] | None = None) -> tuple[str, ...]:
    """Put the originals back; returns their paths.

    :param only: paths of files; others stay as they are.
    :raises UsageError: nothing was exchanged, or an exchanged file is another one by now.
    """
    journal = read_journal(tree)
    chosen = [one for one in journal.files if only is None or one.path in only]
    if not chosen:
        raise UsageError(f"{tree}: nothing of it was relinked in place, so there is nothing to undo")
    pending = [Pending(one.path, one.kept, None, seen=identity(tree / one.path)) for one in chosen]
    changed = [one.path for one in chosen if _sha256(tree / one.path) != one.sha256]
    if changed:
        raise UsageError(
            f"{tree}: {join_truncated(changed)} changed since relink wrote it; an undo would lose that. The originals are in "
            f"{place_of(tree)}, by the names in journal.json there"
        )
    commit(tree, replace(journal, pending=tuple(pending)))
    return tuple(one.path for one in chosen)


def _give_name(kept: Path, target: Path) -> None:
    """Give a file of the journal's directory its name in the tree; one that is not there any more has it already."""
    if not kept.exists():
        return
    try:
        os.replace(kept, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(kept, target)
        kept.unlink()


def _keep(target: Path, kept: Path) -> None:
    try:
        os.link(target, kept, follow_symlinks=False)
    except (
        OSError
    ) as error:  # another file system, one without links, or another's file (fs.protected_hardlinks)
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        _copy(target, kept)


def _copy(source: Path, place: Path) -> None:
    """Copy a file with its mode and times; `place` has all of it or what it had before."""
    status = source.stat()
    with os.fdopen(open_regular(source), "rb") as reader, atomic_file(place) as writer:
        while chunk := reader.read(_PIECE):
            writer.write(chunk)
        with contextlib.suppress(OSError):
            os.fchown(writer.fileno(), status.st_uid, status.st_gid)
        os.fchmod(writer.fileno(), stat.S_IMODE(status.st_mode))
        writer.flush()
        os.utime(writer.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def _sha256(path: Path) -> str | None:
    try:
        return file_sha256(path, _MOST)
    except OSError:
        return None
