"""The files of a site: each wheel in a directory that is called by its SHA-256, with what lies beside it.

Beside a wheel lie its metadata (PEP 658), and of a relinked one the bill of materials and the in-toto statement.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relink.indexes.install.cache import LARGEST, cache_directory
from relink.make.added_members import SBOM_MEMBER, json_bytes
from relink.system.atomic import copy_file, publish_directory
from relink.system.safe_open import file_sha256
from relink.wheel.archive import WheelArchive
from relink.wheel.metadata import read_metadata

METADATA, STATEMENT_FILE, SBOM_FILE = ".metadata", ".intoto.json", ".cdx.json"
METADATA_LIMIT = 16 << 20
"""Bytes of METADATA; the largest of real wheels has some hundred KiB."""


def place_wheel(wheel: Path, files: Path, place: Path, statement: Mapping[str, Any] | None) -> dict[str, Any]:
    """Put a wheel, and what lies beside it, into the directory of its content: all of it appears at once.

    :param place: a working directory of the same file system.
    """
    sha256 = file_sha256(wheel, LARGEST)
    made = place / "made"
    made.mkdir()
    with WheelArchive(wheel) as archive:
        beside = read_beside(archive)
    for ending, content in beside.items():
        (made / f"{wheel.name}{ending}").write_bytes(content)
    if statement is not None:
        (made / f"{wheel.name}{STATEMENT_FILE}").write_bytes(json_bytes(dict(statement)))
    if wheel.is_relative_to(place):
        wheel.replace(made / wheel.name)
    else:
        _copy(wheel, made / wheel.name)
    final = files / sha256[:2] / sha256
    if not _is_there(made, final):
        final.parent.mkdir(exist_ok=True)
        made.chmod(0o755)
        with contextlib.suppress(FileNotFoundError):
            final.rename(place / "damaged")
        try:
            publish_directory(made, final)
        except OSError:  # another worker has just done the same
            if not _is_there(made, final):
                raise
    return {
        "filename": wheel.name,
        "sha256": sha256,
        "size": (final / wheel.name).stat().st_size,
        "metadata": hashlib.sha256(beside[METADATA]).hexdigest(),
        "requires_python": read_metadata(beside[METADATA]).requires_python,
        "statement": statement is not None,
    }


def read_beside(archive: WheelArchive) -> dict[str, bytes]:
    """Return what lies beside a wheel and is in it, too, by the ending of its name."""
    found = {METADATA: archive.read(f"{archive.dist_info}/METADATA", METADATA_LIMIT)}
    if (sbom := f"{archive.dist_info}/{SBOM_MEMBER}") in archive.members:
        found[SBOM_FILE] = archive.read(sbom)
    return found


def _is_there(made: Path, final: Path) -> bool:
    """Whether a directory has all that is to be in it, with its content; of a statement any."""
    try:
        return all(
            (final / path.name).is_file()
            if path.name.endswith(STATEMENT_FILE)
            else file_sha256(final / path.name, LARGEST) == file_sha256(path, LARGEST)
            for path in made.iterdir()
        )
    except OSError:
        return False


def _copy(source: Path, destination: Path) -> None:
    """Copy a wheel; one of the cache, which nobody changes, becomes one file of two names where that can be."""
    if source.is_relative_to(cache_directory()):
        with contextlib.suppress(OSError):
            os.link(source, destination)
            return
    copy_file(source, destination)
