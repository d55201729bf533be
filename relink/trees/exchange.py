"""New files written beside the old ones of a tree, exchanged with them, and the old ones put back.

:mod:`relink.trees.journal` has what a killed run leaves, and why it is done so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from relink.atomic import atomic_file, remove_stale
from relink.errors import UsageError
from relink.files import file_sha256, open_regular
from relink.text import join_truncated
from relink.trees.journal import (
    COMMITTING,
    DONE,
    STAGING,
    Journal,
    KeptFile,
    Pending,
    place_of,
    read_journal,
    settle,
    told,
    write_journal,
)

__all__ = ["commit", "finish", "stage", "undo"]

_MOST = 1 << 40  # bytes of a file of a tree
_PIECE = 1 << 20  # bytes copied at a time


def stage(tree: Path, contents: Mapping[str, Iterable[Any]], back: Iterable[str] = ()) -> Journal:
    """Write new files beside those that they are to replace; :func:`commit` exchanges them, :func:`finish` takes them away.

    :param contents: what each file is to contain, in pieces, by its path relative to the tree.
    :param back: exchanged files whose originals are to come back.
    :return: the journal; what is pending in it differs from what is there.
    :raises UsageError: a file cannot be written.
    """
    journal = read_journal(tree)
    known = journal.originals
    number = max((int(one) for one in known.values() if one.isdigit()), default=-1)
    token = os.urandom(8).hex()
    pending = [Pending(path, known[path], None) for path in back if path in known]
    for at, path in enumerate(contents):
        number += path not in known
        pending.append(Pending(path, known.get(path, str(number)), f".relink-{token}-{at}.new"))
    journal = replace(journal, state=STAGING, pending=tuple(pending))
    write_journal(tree, journal)
    there = {one.path: one.sha256 for one in journal.files}
    written = []
    for one in pending:
        if one.temporary is not None:
            target = tree / one.path
            digest = _write_new(target, target.with_name(one.temporary), contents[one.path])
            one = replace(one, sha256=digest)  # noqa: PLW2901
            if there.get(one.path) == digest:
                target.with_name(one.temporary or "").unlink()
                continue
        written.append(one)
    journal = replace(journal, pending=tuple(written))
    write_journal(tree, journal)
    return journal


def _write_new(target: Path, new: Path, pieces: Iterable[Any]) -> str:
    digest = sha256()
    try:
        status = target.stat()
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
            with contextlib.suppress(OSError):  # another's file, changed by who may not give files away
                os.fchown(descriptor, status.st_uid, status.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        raise UsageError(f"{new}: cannot be written ({error.strerror}), so nothing was changed") from error
    return digest.hexdigest()


def commit(tree: Path, journal: Journal) -> Journal:
    """Exchange what is pending; returns the journal afterwards.

    :raises UsageError: a file cannot be exchanged; the next run goes on where this one has stopped.
    """
    if journal.pending:
        write_journal(tree, replace(journal, state=COMMITTING))
    return _exchange(tree, journal)


def finish(tree: Path) -> str | None:
    """Finish what a killed run has begun; returns what that was, in words, or None.

    :raises UsageError: a file cannot be exchanged or removed.
    """
    journal = read_journal(tree)
    remove_stale(place_of(tree))
    for folder in {(tree / one.path).parent for one in journal.pending}:
        remove_stale(folder)
    if journal.state == STAGING:
        for one in journal.pending:
            if one.temporary is not None:
                (tree / one.path).with_name(one.temporary).unlink(missing_ok=True)
        settle(tree, replace(journal, state=DONE, pending=()))
        return "a run that had changed nothing yet was taken back"
    if journal.state == COMMITTING:
        _exchange(tree, journal)
        return "a run that was stopped was completed"
    return None


def _exchange(tree: Path, journal: Journal) -> Journal:
    place = place_of(tree)
    files = {one.path: one for one in journal.files}
    for one in journal.pending:
        target, kept = tree / one.path, place / one.kept
        with told(target):
            if one.temporary is None:
                _put_back(target, kept)
                files.pop(one.path, None)
                continue
            new = target.with_name(one.temporary)
            if new.exists():  # else it has its name already
                if not kept.exists():
                    _keep(target, kept)
                os.replace(new, target)
            files[one.path] = KeptFile(one.path, one.kept, one.sha256)
    _sync({(tree / one.path).parent for one in journal.pending})
    done = Journal(DONE, tuple(files.values()))
    settle(tree, done)
    return done


def undo(tree: Path, only: frozenset[str] | None = None) -> tuple[str, ...]:
    """Put the originals back; returns their paths.

    :param only: paths of files; others stay as they are.
    :raises UsageError: nothing was exchanged, or an exchanged file is another one by now.
    """
    journal = read_journal(tree)
    chosen = [one for one in journal.files if only is None or one.path in only]
    if not chosen:
        raise UsageError(f"{tree}: nothing of it was relinked in place, so there is nothing to undo")
    changed = [one.path for one in chosen if _sha256(tree / one.path) != one.sha256]
    if changed:
        raise UsageError(
            f"{tree}: {join_truncated(changed)} changed since relink wrote it; an undo would lose that. The originals are in "
            f"{place_of(tree)}, by the names in journal.json there"
        )
    commit(tree, replace(journal, pending=tuple(Pending(one.path, one.kept, None) for one in chosen)))
    return tuple(one.path for one in chosen)


def _put_back(target: Path, kept: Path) -> None:
    """Give an original its name again; one that is not there any more has it already."""
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


def _sync(directories: Iterable[Path]) -> None:
    for directory in directories:
        with contextlib.suppress(OSError):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _sha256(path: Path) -> str | None:
    try:
        return file_sha256(path, _MOST)
    except OSError:
        return None
