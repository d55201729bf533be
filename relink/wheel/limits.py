"""Limits of a wheel's sizes and counts, and their syntax on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

from relink.system.errors import UsageError
from relink.system.progress import LOADS

_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([KMGTkmgt]?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class WheelLimits:
    """Sizes (in bytes) and counts that a wheel may not exceed; all but ``loads`` are checked before anything is inflated.

    :param members: entries in the archive.
    :param directory_size: bytes of the central directory, which is read into memory.
    :param member_size: one member, inflated.
    :param total_size: all members, inflated.
    :param ratio: inflated size of all members to the size of the file. Vendor wheels reach 14; only asked
        of wheels that inflate to more than ``ratio_from`` bytes.
    :param ratio_from: see ``ratio``.
    :param loads: files that loading each ELF member maps, added up over the members: of n members of which each needs the next,
        it is n²/2. bitsandbytes, of 16, has 235.
    """

    members: int = 100_000
    directory_size: int = 256 << 20
    member_size: int = 32 << 30
    total_size: int = 128 << 30
    ratio: float = 250.0
    ratio_from: int = 256 << 20
    loads: int = LOADS


NO_LIMITS = WheelLimits(*(1 << 62 for _ in fields(WheelLimits)))
"""For a wheel that relink has written itself: it may have a little more of everything than the one that was allowed."""


def parse_limits(texts: Iterable[str]) -> WheelLimits:
    """Read limits from ``NAME=N`` as on the command line: ``members=1000``, ``total-size=200G``, ``ratio=500``.

    :raises UsageError: there is no such limit, or N is not a number; names all of them.
    """
    names = [entry.name.replace("_", "-") for entry in fields(WheelLimits)]
    values: dict[str, float] = {}
    issues: list[str] = []
    for text in texts:
        name, _, number = text.partition("=")
        match = _NUMBER.fullmatch(number)
        if name not in names or match is None:
            issues.append(
                f"{text}: write it like members=1000 or total-size=200G; there are {', '.join(names)}"
            )
            continue
        exact = float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " ")
        values[name.replace("-", "_")] = exact if name == "ratio" else int(exact)
    if issues:
        raise UsageError("--limit: not a limit", issues)
    return WheelLimits(**values)  # type: ignore[arg-type]
