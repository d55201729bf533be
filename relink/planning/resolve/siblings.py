"""Sibling packages: other distributions whose import maps libraries that members of this wheel need by soname.

An extension of PyTorch names libtorch.so and libc10.so and no directory for them. It is imported after torch, and the loader
takes what is mapped already under a soname (glibc elf/dl-load.c, _dl_map_object). Such a library is resolved where the package is
installed for the target, and is assumed to be there where that cannot be seen.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from relink.loader.closure import Closure
from relink.providers.profiles import Profile
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated

__all__ = ["Sibling", "assumed_finding", "sibling_findings", "sibling_of", "sibling_paths"]


@dataclass(frozen=True, slots=True)
class Sibling:
    """Another package that is there when members of the wheel are imported.

    :ivar profile: what is known of it, with the libraries that its import maps.
    :ivar why: how the wheel says that it needs the package.
    :ivar directory: where it is installed for the target; None where no Python of the target is known, or that has it not.
    :ivar searched: directories in which it was looked for; empty where no Python of the target is known.
    :ivar libraries: soname → path of those that members need and that are there.
    """

    profile: Profile
    why: str
    directory: str | None = None
    searched: tuple[str, ...] = ()
    libraries: Mapping[str, str] = field(default_factory=dict)


def sibling_of(siblings: Iterable[Sibling], soname: str) -> Sibling | None:
    """Return the package whose import maps a library of that soname."""
    return next((item for item in siblings if item.profile.where_brought(soname) is not None), None)


def sibling_paths(siblings: Iterable[Sibling]) -> list[str]:
    """Return the libraries of installed siblings, which are mapped before the wheel's members."""
    return [path for sibling in siblings for path in sibling.libraries.values()]


def assumed_finding(sibling: Sibling, sonames: Iterable[str], members: Iterable[str]) -> Finding:
    """Return RLK118: libraries that `members` need and that a sibling is assumed to bring, since it is not there to be asked."""
    name, who = sibling.profile.name, join_truncated([posixpath.basename(item) for item in members])
    places = f"it is not installed in {join_truncated(list(sibling.searched))}"
    looked = places if sibling.searched else "no Python of the target is known"
    text = f"{join_truncated(list(sonames))} of {who} come by its import ({sibling.why}), which is assumed: {looked}"
    return finding("RLK118", name, text, profile=name)


def sibling_findings(siblings: Iterable[Sibling], closures: Mapping[str, Closure]) -> Iterator[Finding]:
    """Yield RLK118 and RLK119: what a sibling package is assumed to bring, and what is taken from an installed one.

    :param closures: those of the members that are served.
    """
    for sibling in siblings:
        assumed: dict[str, dict[str, None]] = {}
        taken: dict[str, dict[str, None]] = {}
        for member, closure in closures.items():
            for edge in closure.edges:
                path = None if edge.target is None else closure.objects[edge.target].path
                if path is not None and path == sibling.libraries.get(edge.soname):
                    taken.setdefault(edge.soname, {})[member] = None
                elif (
                    path is None and sibling.directory is None and sibling.profile.where_brought(edge.soname)
                ):
                    assumed.setdefault(edge.soname, {})[member] = None
        if assumed:
            yield assumed_finding(sibling, assumed, _all(assumed))
        if taken:
            who = join_truncated([posixpath.basename(item) for item in _all(taken)])
            text = f"{join_truncated(list(taken))} of {who} are those of {sibling.directory} ({sibling.why})"
            yield finding("RLK119", sibling.profile.name, text, profile=sibling.profile.name)


def _all(needed: Mapping[str, Mapping[str, None]]) -> list[str]:
    """Return the members of all libraries, each once."""
    return list(dict.fromkeys(member for members in needed.values() for member in members))
