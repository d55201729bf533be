"""Versions that libraries require in vain, by what is behind it: one supplier, or the target's C library."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from relink.loader.tables import Tables
from relink.loader.target import GLIBC_SONAMES
from relink.loader.versions_check import check_versions
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.strategy import Outcome
from relink.system.text import grouped, pluralize


@dataclass(frozen=True, slots=True)
class VersionGap:
    """What one object requires of another that does not define it.

    :ivar requester: path of the object with the version record; `supplier` of the one that lacks the versions.
    :ivar file: the soname that the record names.
    :ivar highest: the highest version of that family that there is, or a phrase.
    """

    requester: str
    file: str
    supplier: str
    versions: tuple[str, ...]
    highest: str


@dataclass(frozen=True, slots=True)
class VersionGaps:
    """All gaps of one wheel's closures.

    :ivar lost: (path of the requester, file, version) of all gaps.
    :ivar sentences: what is behind the gaps of one file, by its soname.
    :ivar mismatch: that Python has the C library of another loader, or None: what glibc's libraries lack follows from that.
    """

    gaps: tuple[VersionGap, ...]
    lost: frozenset[tuple[str, str | None, str | None]] = frozenset()
    sentences: Mapping[str, str] = field(default_factory=dict)
    mismatch: str | None = None

    def cause_of(self, file: str | None, version: str | None, requester: str) -> str | None:
        """Return the cause of an import that is lost because `file` lacks its version, or None where that is not the reason."""
        if self.mismatch is not None and file in GLIBC_SONAMES:
            return self.mismatch
        return self.sentences.get(file or "") if (requester, file, version) in self.lost else None


def python_mismatch(context: ResolveContext, outcomes: Iterable[Outcome]) -> str | None:
    """Return that the target's Python has another C library than the target's loader, in a sentence; None where it has that one.

    glibc's libraries and its loader are one thing, so such a process aborts before Python begins.
    """
    for outcome in outcomes:
        for issue in outcome.issues:
            edge, closure = issue.edge, outcome.closure
            if issue.kind == "libc" and edge.target is not None and edge.target < closure.roots[0]:
                return (
                    f"{context.target.python}, run by {context.target.interpreter}, maps {issue.served_by}: not the C library "
                    f"of that loader, which is in {context.target.libc_directory}"
                )
    return None


def version_gaps(context: ResolveContext, outcomes: Iterable[Outcome], tables: Tables) -> VersionGaps:
    """Return what the version records of the closures ask for in vain, each pair of objects once."""
    outcomes = list(outcomes)
    mismatch = python_mismatch(context, outcomes)
    versions: dict[tuple[str, str, str], dict[str, None]] = {}
    highest: dict[tuple[str, str, str], str] = {}
    shown = context.layout.shown
    for outcome in outcomes:
        for missing in check_versions(outcome.closure, tables):
            key = (shown(missing.requester), missing.file, shown(missing.supplier))
            versions.setdefault(key, {})[missing.version] = None
            highest[key] = max(missing.defined, key=_order, default="none of that family")
    gaps = tuple(VersionGap(*key, tuple(names), highest[key]) for key, names in versions.items())
    lost = frozenset((gap.requester, gap.file, version) for gap in gaps for version in gap.versions)
    # glibc's libraries are one thing with one version, that of the target's loader.
    by_supplier = grouped(("" if gap.file in GLIBC_SONAMES else gap.file, gap) for gap in gaps)
    sentences: dict[str, str] = {}
    for file, same in by_supplier.items():
        needs = f"{_requesters(context, same)} up to {max((name for gap in same for name in gap.versions), key=_order)}"
        if file:
            sentences[file] = f"{needs} of {file}; {same[0].supplier} goes up to {same[0].highest}"
        else:
            own = context.target.glibc or max((gap.highest for gap in same), key=_order)
            sentences |= dict.fromkeys(
                (gap.file for gap in same), mismatch or f"{needs}; the target has {own}"
            )
    return VersionGaps(gaps, lost, sentences, mismatch)


def _requesters(context: ResolveContext, gaps: list[VersionGap]) -> str:
    """``27 libraries of the prefix need``; the one library by its name."""
    paths = list(dict.fromkeys(gap.requester for gap in gaps))
    if len(paths) == 1:
        return f"{posixpath.basename(paths[0])} needs"
    ours = sum(any(provider.holds(path) for provider in context.providers) for path in paths)
    prefixes = "the prefix" if len(context.providers) == 1 else "the prefixes"
    parts = [
        f"{pluralize(ours, 'library', 'libraries')} of {prefixes}" if ours else "",
        pluralize(len(paths) - ours, "other file" if ours else "file") if len(paths) > ours else "",
    ]
    return f"{' and '.join(filter(None, parts))} need"


def _order(version: str) -> list[int]:
    # At most 18 digits of a number: int() of a long one takes time, and refuses more than 4,300 digits
    # (sys.get_int_max_str_digits). A hostile version may have as many.
    return [int(number) for number in re.findall(r"\d{1,18}", version)]


def loader_of_a_prefix(context: ResolveContext) -> str | None:
    """Return the loader that a prefix carries: it was built with another C library than the target's."""
    own = context.target.interpreter
    directories = (directory for provider in context.providers for directory in provider.directories)
    paths = (posixpath.join(directory, posixpath.basename(own)) for directory in directories)
    return next((path for path in paths if path != own and context.files.open(path).image is not None), None)
