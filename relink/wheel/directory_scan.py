"""The state of reading one ZIP file's structure: the file, the members so far, and the defects so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from relink.system.errors import WheelError
from relink.wheel.byte_types import RangeReader
from relink.wheel.zipformat import Member

__all__ = ["DirectoryScan", "unreadable"]

_NAME_SHOWN = 200  # characters
_MOST_DEFECTS = 100  # that are reported: a hostile wheel has room for millions


@dataclass(slots=True)
class DirectoryScan:
    """A directory being read: the defects so far, and where each member's bytes begin and end.

    :ivar read: gives exactly as many bytes as it is asked for, or raises WheelError.
    :ivar file_size: bytes.
    :ivar issues: one sentence for each defect.
    :ivar extents: offset of the local header, offset behind the data, and name of each member whose local header was read.
    """

    read: RangeReader
    file_size: int
    issues: list[str] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)
    extents: list[tuple[int, int, str]] = field(default_factory=list)

    def add(self, name: str, defect: str) -> None:
        """Add a defect, up to a number that a person can read."""
        if len(self.issues) < _MOST_DEFECTS:
            shown = name if len(name) <= _NAME_SHOWN else f"{name[:_NAME_SHOWN]}…"
            self.issues.append(f"{shown!r}: {defect}" if name else defect)
        elif len(self.issues) == _MOST_DEFECTS:
            self.issues.append("and more")


def unreadable(reason: str) -> WheelError:
    """Return the error for a structure of which no member can be read."""
    return WheelError("the ZIP structure cannot be read", [reason])
