"""Files as the loader opens them, and the header that it wants."""

from __future__ import annotations

from pathlib import Path

from relink.elf.image import Header
from relink.loader.seen_files import Files, OpenedFile
from tests.support.elf_builder import Library

HEADER = Header(64, little_endian=True, osabi=0, abi_version=0, kind=3, machine=62)


def candidate(library: Library, tmp_path: Path, cut: int | None = None) -> OpenedFile:
    path = library.write(tmp_path / "lib.so")
    path.write_bytes(path.read_bytes()[:cut])
    return Files().open(str(path))
