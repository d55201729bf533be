"""Which members of a wheel need which, and which have the file of a soname that a search path does not lead to."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relink.elf.image import Image
from relink.loader.seen_files import Files
from relink.planning.resolve.layout import Layout
from relink.planning.resolve.search_path import is_of_stubs
from relink.planning.resolve.unserved_edges import ResolutionIssue

if TYPE_CHECKING:
    from relink.planning.resolve.strategy import ResolveContext

__all__ = ["Members", "carried_entries", "dlopened_entries", "members_of", "reached"]


@dataclass(frozen=True, slots=True)
class Members:
    """What is known of the places and names of a wheel's ELF members: no edit changes any of it.

    :ivar files: what a loader sees, with the members where they are installed.
    :ivar at: path → the member that is installed there; the last, if there are several.
    :ivar sonames: soname → the last member with it.
    :ivar named: file name, by which the loader searches → the members that have it, and no other soname.
    """

    files: Files
    at: Mapping[str, str]
    sonames: Mapping[str, str]
    named: Mapping[str, list[str]]

    def with_image(self, path: str, image: Image) -> Files:
        """Return what a loader sees where the member that is installed at `path` looks as `image`."""
        return self.files.with_image(self.at[path], image)


def members_of(images: Mapping[str, Image], layout: Layout, files: Files) -> Members:
    """Return where the members are, for all roots of the wheel.

    :param images: may change afterwards, but for the sonames; `files`: the disk without the members.
    """
    paths = {member: layout.path_of(member) for member in images}
    at = {path: member for member, path in paths.items()}
    named: dict[str, list[str]] = {}
    for member in images:
        file_name = posixpath.basename(member)
        if images[member].soname in (file_name, None):
            named.setdefault(file_name, []).append(member)
    sonames = {image.soname: member for member, image in images.items() if image.soname}
    return Members(files.with_overlay(paths, images), at, sonames, named)


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


def carried_entries(context: ResolveContext, member: str, issues: Iterable[ResolutionIssue]) -> list[str]:
    """Return the search path entries by which `member` finds what it needs, nobody has, and one other member is.

    Where several members have the name, none is the right one for sure.
    """
    layout = context.layout
    path = layout.path_of(member)
    places = []
    for issue in issues:
        soname = issue.edge.soname
        if issue.kind in ("missing", "allowed") and issue.requester == path and soname not in context.added:
            named = (name for name in context.members.named.get(soname, ()) if name != member)
            found = [name for name in named if not is_of_stubs(posixpath.dirname(name))]
            if len(found) == 1 and context.provider_path(soname) is None:
                places.append(posixpath.dirname(layout.path_of(found[0])))
    return _entries(path, places)


def dlopened_entries(context: ResolveContext, member: str) -> list[str]:
    """Return the search path entries by which `member` finds the other members that it is known to dlopen."""
    layout, own = context.layout, context.images[member].soname
    sonames = context.members.sonames
    known = context.vendor.dlopens_of(own, sonames) if own else {}
    places = [posixpath.dirname(layout.path_of(sonames[soname])) for soname in known if soname in sonames]
    return _entries(layout.path_of(member), places)


def _entries(path: str, places: Iterable[str]) -> list[str]:
    relative = (posixpath.relpath(place, posixpath.dirname(path)) for place in places)
    return list(dict.fromkeys("$ORIGIN" if to == "." else f"$ORIGIN/{to}" for to in relative))
