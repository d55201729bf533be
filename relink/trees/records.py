"""RECORD files of a tree into which pip has installed: they list the new files, once these are exchanged."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from relink.elf.image import Buffer
from relink.files import read_bytes
from relink.system_errors import raise_trouble
from relink.wheel.record import hashed

__all__ = ["Hashes", "new_records"]

_LARGEST_RECORD = 64 << 20  # bytes of one RECORD


@dataclass(slots=True)
class Hashes:
    """SHA-256 and size in bytes of new files, by name; those of a file are there once its pieces were read to the end."""

    known: dict[str, tuple[bytes, int]] = field(default_factory=dict)

    def of(self, name: str, pieces: Iterable[Buffer]) -> Iterator[Buffer]:
        """Yield the pieces of a file, and note what they are together."""
        digest, size = hashlib.sha256(), 0
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
            yield piece
        self.known[name] = digest.digest(), size


def new_records(
    tree: Path, originals: Mapping[str, Path], names: Collection[str], hashes: Hashes
) -> dict[str, Iterator[bytes]]:
    """Return the new content of each RECORD at the top of a tree that lists one of `names`; all other lines stay as they are.

    The content can be read once `hashes` knows all `names`.

    :param originals: files that are read in the place of those in the tree.
    """
    found: dict[str, Iterator[bytes]] = {}
    for path in sorted(tree.glob("*.dist-info/RECORD")):
        name = path.relative_to(tree).as_posix()
        try:
            lines = (
                read_bytes(originals.get(name, path), _LARGEST_RECORD)
                .decode("utf-8")
                .splitlines(keepends=True)
            )
        except (OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError):
                raise_trouble(error, str(path))
            continue  # pip could not read it either
        if any(_first(line) in names for line in lines):
            found[name] = _rewritten(lines, hashes)
    return found


def _rewritten(lines: Iterable[str], hashes: Hashes) -> Iterator[bytes]:
    for line in lines:
        name = _first(line)
        if known := hashes.known.get(name or ""):
            entry = hashed(name or "", *known)
            text = io.StringIO(newline="")
            end = line[len(line.rstrip("\r\n")) :]
            csv.writer(text, lineterminator=end).writerow((entry.path, entry.hash_field, entry.size))
            line = text.getvalue()  # noqa: PLW2901
        yield line.encode("utf-8")


def _first(line: str) -> str | None:
    """The path in a line of RECORD."""
    try:
        return next(iter(next(csv.reader([line]), [])), None)
    except csv.Error:
        return None
