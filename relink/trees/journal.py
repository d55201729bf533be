"""What is exchanged in a tree, and what a killed run leaves: a journal beside the tree, with the originals.

The new files are written into the journal's directory; the tree is not touched until all of them are there and were verified.
Then the smallest directory that holds all files to be changed is copied by hard links, with the new files in the copy, and copy
and directory exchange their names in one system call (:mod:`relink.trees.sibling`): at each moment a tree is what it was before,
or what it is to be. The journal says *exchanging* around that call, so the next run, or ``--undo``, can tell which it is.

Where that cannot be done (:mod:`relink.trees.obstacles`) the journal is set to *committing*, each original is kept by a hard
link, and each new file is renamed over it. A run that is killed then leaves a mixture, which the next run completes. A single
file needs no more than that.

No file is ever written into: others may share its inode (uv and conda hard-link what they install).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from relink.atomic import atomic_file
from relink.bounded_json import JSON_LIMIT
from relink.errors import UsageError
from relink.files import read_text
from relink.trees.sibling import remove_copy

__all__ = [
    "COMMITTING",
    "DONE",
    "EXCHANGING",
    "STAGING",
    "Journal",
    "KeptFile",
    "Pending",
    "held",
    "identity",
    "place_of",
    "read_journal",
    "settle",
    "told",
    "write_journal",
]

STAGING, EXCHANGING, COMMITTING, DONE = "staging", "exchanging", "committing", "done"
_NAME = "journal.json"


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file of the tree that is another one now.

    :ivar path: relative to the tree.
    :ivar kept: the name of the original in the journal's directory.
    :ivar sha256: of what is in the tree, in hexadecimal.
    """

    path: str
    kept: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Pending:
    """A file that is to be exchanged.

    :ivar temporary: the name of the new file, in the journal's directory; None: the original comes back.
    :ivar seen: what the file was when it was read or looked at, as :func:`identity` has it.
    """

    path: str
    kept: str
    temporary: str | None
    sha256: str = ""
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Journal:
    """What was exchanged in a tree, and what is about to be.

    :ivar copy: the inode number of the copy that is being exchanged with a directory of the tree.
    """

    state: str = DONE
    files: tuple[KeptFile, ...] = ()
    pending: tuple[Pending, ...] = ()
    copy: int = 0

    @property
    def originals(self) -> Mapping[str, str]:
        """Path of each exchanged file → the name of its original."""
        return {one.path: one.kept for one in self.files}


def place_of(tree: Path) -> Path:
    """Return the directory of a tree's journal: beside it, so that originals are kept by links, and outside of it."""
    real = Path(os.path.realpath(tree))
    return real.parent / f".{real.name}.relink"


def identity(path: Path) -> str:
    """Return which file a path leads to, and its size and time: what differs once another program has changed it; "" for none."""
    try:
        status = path.lstat()
    except OSError:
        return ""
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"


@contextlib.contextmanager
def held(tree: Path) -> Iterator[None]:
    """Work on a tree, alone.

    :raises UsageError: another process works on it, or the directory beside the tree cannot be made.
    """
    place = place_of(tree)
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise UsageError(
            f"{place}: cannot be made ({error.strerror}); what --undo needs is kept there, so nothing was changed"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{tree}: another relink works on it; wait until that has ended") from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        with contextlib.suppress(OSError):  # something was kept
            place.rmdir()
        os.close(descriptor)


def read_journal(tree: Path) -> Journal:
    """Return the journal of a tree; one of no files where there is none.

    :raises UsageError: it is damaged.
    """
    path = place_of(tree) / _NAME
    try:
        data = json.loads(read_text(path, JSON_LIMIT))
        files = tuple(KeptFile(**one) for one in data["files"])
        pending = tuple(Pending(**one) for one in data["pending"])
        journal = Journal(data["state"], files, pending, int(data.get("copy", 0)))
    except FileNotFoundError:
        return Journal()
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UsageError(
            f"{path}: cannot be read ({error}), so the originals in {path.parent} are yours to put back"
        ) from error
    named: list[KeptFile | Pending] = [*journal.files, *journal.pending]
    for one in named:
        if not all(isinstance(value, str | None) for value in asdict(one).values()):
            raise UsageError(f"{path}: is damaged, so the originals in {path.parent} are yours to put back")
        names = [one.kept, getattr(one, "temporary", None) or "x"]
        if (
            os.path.isabs(one.path)
            or ".." in one.path.split("/")
            or any("/" in name or name in ("", "..") for name in names)
        ):
            raise UsageError(
                f"{path}: {one.path!r} is outside of the tree; the file is damaged, or not relink's"
            )
    return journal


def write_journal(tree: Path, journal: Journal) -> None:
    """Write the journal of a tree, whole or not at all.

    :raises UsageError: it cannot be written.
    """
    document = {
        "state": journal.state,
        "files": list(map(asdict, journal.files)),
        "pending": list(map(asdict, journal.pending)),
        "copy": journal.copy,
    }
    with told(place_of(tree)), atomic_file(place_of(tree) / _NAME) as file:
        file.write(json.dumps(document).encode())


def settle(tree: Path, journal: Journal) -> None:
    """Write a journal in which nothing is pending, or none where nothing is exchanged; remove all beside it but the originals."""
    place = place_of(tree)
    if journal.files:
        write_journal(tree, journal)
    else:
        (place / _NAME).unlink(missing_ok=True)
    stays = {_NAME, *journal.originals.values()}
    for name in os.listdir(place):
        if name in stays:
            continue
        if (place / name).is_dir() and not (place / name).is_symlink():
            remove_copy(place / name)
        else:
            with contextlib.suppress(OSError):
                (place / name).unlink()


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn an error of the system about `path` into one that says how to go on."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be exchanged ({error.strerror}); run the same command again to go on"
        ) from error
