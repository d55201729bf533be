"""Opening a wheel so that its largest file is inflated while everything else is being prepared."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from relink.elf.image import is_elf
from relink.errors import WheelError
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import Limits

__all__ = ["open_ahead"]

_WORTH: Final = 32 << 20  # bytes
_SHARE: Final = 8  # what is read meanwhile takes at most so little of the memory that the largest takes


def open_ahead(path: Path, limits: Limits | None = None) -> WheelArchive:
    """Open a wheel and begin to read its largest ELF file, if it is large and all others are far smaller.

    :raises WheelError: it is not a wheel that can be trusted.
    """
    archive = WheelArchive(path, limits=limits)
    members = sorted(archive.members.values(), key=lambda member: member.size, reverse=True)
    others = members[1].size if len(members) > 1 else 0
    try:
        if members[0].size >= max(_WORTH, _SHARE * others) and is_elf(archive.prefix(members[0].name, 4)):
            archive.read_ahead(members[0].name)
    except WheelError:
        archive.close()
        raise
    return archive
