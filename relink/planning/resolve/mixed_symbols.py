"""Findings on libraries that answer another library's symbols in its place."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from relink.loader.duplicates import SharedSymbols
from relink.planning.resolve.strategy import ResolveContext
from relink.system.findings.model import Finding, Level, finding
from relink.system.text import join_truncated, pluralize

__all__ = ["mixed_symbols"]


def mixed_symbols(context: ResolveContext, found: Iterable[SharedSymbols]) -> Iterator[Finding]:
    """Yield one finding a pair of files, whatever paths lead to them, with one cause a library that is answered for.

    Between two members of the wheel it is an info: what the vendor built together is the vendor's to mix.
    """
    shown = context.layout.shown
    pairs: dict[tuple[str, str], SharedSymbols] = {}
    for shared in found:
        if shared.mixed:
            pairs.setdefault((shown(shared.first), shown(shared.second)), shared)
    interposing: dict[tuple[str, Level], list[str]] = {}
    own = context.layout.own
    for first, second in pairs:
        level: Level = "info" if first.startswith(own) and second.startswith(own) else "warning"
        interposing.setdefault((second, level), []).append(first)
    for (second, level), firsts in interposing.items():
        names = join_truncated([posixpath.basename(path) for path in firsts])
        sentence = f"{names} export symbols of {second} too, and answer them in its place"
        cause = sentence if len(firsts) > 1 else None
        for first in firsts:
            shared = pairs[first, second]
            same = pluralize(shared.count, "symbol")
            start = f"{first} exports {same} of the same name"
            examples = join_truncated(list(shared.examples))
            end = f"and answers {shared.mixed} of them in this library's place"
            yield finding(
                "RLK131",
                second,
                f"{start} ({examples}) {end}",
                level=level,
                cause=cause,
                brief=f"{start} {end}",
            )
