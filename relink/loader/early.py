"""Reading libraries before it is certain that they are needed, as long as there is nothing else to do."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from relink.elf.image import Image
from relink.loader.tables import Tables

__all__ = ["library_names", "read_early"]

_NAME: Final = re.compile(rb"lib[\w.+-]{1,80}?\.so(?:\.[\w.]{1,40})?(?=\0)")


def library_names(data: bytes) -> list[str]:
    """Return what could be a soname in part of a file, in order, each once."""
    return [*dict.fromkeys(name.decode("ascii") for name in _NAME.findall(data))]


def read_early(
    tables: Tables,
    find: Callable[[str], str | None],
    sonames: Iterable[str],
    go_on: Callable[[], bool],
) -> None:
    """Read the symbols of the libraries that `sonames` lead to, and of those that these need, one by one.

    What is read decides nothing; what turns out to be needed is known to `tables` and its files then.

    :param find: the path of a library, or None.
    """
    queue = deque(sonames)
    images: list[tuple[tuple[object, ...], str, Image]] = []
    seen: set[str] = set()
    while queue and go_on():
        soname = queue.popleft()
        path = None if soname in seen else find(soname)
        seen.add(soname)
        if path is None:
            continue
        found = tables.files.open(path)
        if found.image is not None and found.identity is not None:
            tables.read(found.identity, path)
            queue += found.image.needed
            images.append((found.identity, path, found.image))
    for image in images:
        if not go_on():
            break
        tables.dlopened(*image)
