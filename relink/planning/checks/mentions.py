"""What a copy of a directory still names of the original, so that it does not work without it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import join, normpath

from relink.elf.image import is_elf, read_image
from relink.planning.resolve.layout import is_below
from relink.system.errors import ElfError
from relink.system.findings.model import Finding, finding
from relink.system.safe_open import map_file, read_start

_ORIGIN = re.compile(r"\$(?:ORIGIN\b|\{ORIGIN\})/?")
_LOOKED_AT = 64 << 10  # bytes of a text


def mentions(copy: Path, destination: Path, originals: tuple[str, ...]) -> Iterator[Finding]:
    """Yield RLK544 for each of the ELF files, symbolic links, scripts, .pth and .pc files of a copy that leads to the original.

    :param copy: where the copy is, and `destination`: where it will be.
    :param originals: absolute paths of the original; the first one without symbolic links.
    """

    def leads_back(path: str, folder: str) -> bool:
        """Whether a path, from a directory of the copy, leads to the original: itself, by links, or out of the copy and back."""
        here = normpath(join(destination, folder, path))
        ways = (here, normpath(join(originals[0], folder, path)), os.path.realpath(here))
        return not is_below(here, str(destination)) and any(
            is_below(way, top) for way in ways for top in originals
        )

    for directory, below, files in os.walk(copy):
        folder = os.path.relpath(directory, copy)
        for base in sorted(below + files):
            paths = _paths_of(join(directory, base), originals)
            if what := next((what for what, path in paths if leads_back(path, folder)), None):
                yield finding("RLK544", normpath(join(folder, base)), f"its {what} leads to {originals[0]}")


def _paths_of(file: str, originals: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the paths that a file names, from its directory, and what each is."""
    if os.path.islink(file):
        yield "target", os.readlink(file)
        return
    if not os.path.isfile(file):
        return
    head = read_start(file, 4)
    if is_elf(head):
        try:
            with map_file(file) as buffer:
                image = read_image(buffer, file)
        except ElfError:  # no loader takes it
            return
        for text in (*(image.rpath or "").split(":"), *(image.runpath or "").split(":")):
            yield "search path", _ORIGIN.sub("", text)
        for text in (*image.needed, *image.filters, image.interpreter or ""):
            if "/" in text:
                yield "NEEDED or interpreter", _ORIGIN.sub("", text)
    elif head.startswith(b"#!") or file.endswith((".pth", ".pc")):
        data = read_start(file, _LOOKED_AT)
        if any(re.search(re.escape(os.fsencode(path)) + rb"(?![\w.+-])", data) for path in originals):
            yield "text", originals[0]
        lines = os.fsdecode(data).splitlines()
        if head.startswith(b"#!"):
            yield from (("interpreter", word) for word in lines[0][2:].split()[:1])
        elif file.endswith(".pth"):
            yield from (("path", line) for line in lines if not line.startswith(("#", "import")))
