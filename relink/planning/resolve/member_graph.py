"""Which members of a wheel have the file of a soname that a search path does not lead to."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.search_path import is_of_stubs, origin_entries
from relink.planning.resolve.unserved_edges import ResolutionIssue

__all__ = ["carried_entries", "dlopened_entries", "opened_in_wheel"]


def carried_entries(context: ResolveContext, member: str, issues: Iterable[ResolutionIssue]) -> list[str]:
    """Return the search path entries by which `member` finds what it needs, nobody has, and one other member is.

    Where several members have the name, none is the right one for sure.
    """
    layout = context.layout
    path = layout.path_of(member)
    directories = []
    for issue in issues:
        soname = issue.edge.soname
        if issue.kind in ("missing", "allowed") and issue.requester == path and soname not in context.added:
            named = (name for name in context.members.named.get(soname, ()) if name != member)
            carrying = [name for name in named if not is_of_stubs(posixpath.dirname(name))]
            if len(carrying) == 1 and context.provider_path(soname) is None:
                directories.append(posixpath.dirname(layout.path_of(carrying[0])))
    return origin_entries(path, directories)


def opened_in_wheel(context: ResolveContext, member: str) -> list[str]:
    """Return the names that `member` is known to open, and that relink has added to the wheel: forwarders, and stubs."""
    opened = {*context.opens.get(member, ()), *context.profile.dlopens(member)}
    return [name for name in context.added if name in opened]


def dlopened_entries(context: ResolveContext, member: str) -> list[str]:
    """Return the search path entries by which `member` finds the other members that it is known to dlopen."""
    layout, own = context.layout, context.images[member].soname
    sonames = context.members.sonames
    known = context.vendor.dlopens_of(own, sonames) if own else {}
    directories = [
        posixpath.dirname(layout.path_of(sonames[soname])) for soname in known if soname in sonames
    ]
    return origin_entries(layout.path_of(member), directories)
