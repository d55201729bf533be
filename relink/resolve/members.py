"""Which members of a wheel need which."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from relink.elf.image import Image

__all__ = ["reached"]


def reached(images: Mapping[str, Image]) -> dict[str, set[str]]:
    """Return the members that each member reaches by NEEDED within the wheel, itself among them."""
    by_name = {image.soname or posixpath.basename(member): member for member, image in images.items()}
    found: dict[str, set[str]] = {}
    for member in images:
        there, waiting = {member}, [member]
        while waiting:
            for soname in images[waiting.pop()].needed:
                if (other := by_name.get(soname)) and other not in there:
                    there.add(other)
                    waiting.append(other)
        found[member] = there
    return found
