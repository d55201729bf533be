"""Edges that are not served as they must be: by nothing, by another copy than a provider's, or by a foreign C library.

Takes a member's closure. Gives :class:`ResolutionIssue`, which strategies try to solve and findings tell.
"""

from __future__ import annotations

import fnmatch
import posixpath
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from relink.loader.closure import Closure, Edge
from relink.loader.target import GLIBC_SONAMES
from relink.planning.resolve.context import ResolveContext
from relink.planning.siblings import sibling_of
from relink.providers.prefix import soname_stem

IssueKind: TypeAlias = Literal["missing", "allowed", "sibling", "incoherent", "withheld", "libc", "shadowed"]


@dataclass(frozen=True, slots=True)
class ResolutionIssue:
    """An edge that is not served as it must be.

    ``missing``: by nothing; ``allowed``: by nothing, as the user says; ``sibling``: by nothing, and another package is to
    bring it; ``incoherent``: from elsewhere although a provider has the soname; ``withheld``: by a runtime of a later provider's;
    ``libc``: by a C library that is not the target's own; ``shadowed``: by what Python loaded before.
    """

    kind: IssueKind
    edge: Edge
    requester: str
    served_by: str | None = None


def matches_library(pattern: str, soname: str, path: str | None = None) -> bool:
    """Whether a glob names a library: by its soname, its soname without the version, or its path."""
    names = [soname, soname_stem(soname), soname_stem(soname).removesuffix(".so")]
    return any(fnmatch.fnmatchcase(name, pattern) for name in (*names, *([path] if path else [])))


def assumed_kind(context: ResolveContext, soname: str) -> Literal["allowed", "sibling"] | None:
    """Return who says that a library which is not there will be: the user, or a package that is imported before; else None."""
    if any(matches_library(pattern, soname) for pattern in context.allow_missing):
        return "allowed"
    sibling = sibling_of(context.siblings, soname)
    return "sibling" if sibling is not None and sibling.directory is None else None


REMEDY_WITHHELD: Final = "Name the prefix that has the runtime first: its --prefix before the others."


def why_withheld(context: ResolveContext) -> str:
    """Say why a later provider's runtime is not taken."""
    return f"a process has one runtime of {context.vendor.product}, and no later --prefix serves it"


def own_libc(context: ResolveContext, soname: str = "libc.so.6") -> str | None:
    """Return the path of the target's own copy of a library of glibc, or None where it does not lie beside the loader."""
    path = posixpath.join(context.target.libc_directory, soname)
    return path if context.files.open(path).image is not None else None


def is_libc_elsewhere(context: ResolveContext, soname: str = "libc.so.6") -> bool:
    """Whether a library of glibc lies beside the target's loader, and the loader's default directories lead to another one."""
    own = own_libc(context, soname)
    usual = (posixpath.join(directory, soname) for directory in context.target.directories)
    opened = context.files.open
    return own is not None and all(opened(path).identity != opened(own).identity for path in usual)


def check_edges(context: ResolveContext, closure: Closure, root: int) -> tuple[ResolutionIssue, ...]:
    """Look at every edge of the root's own closure; what the program needs for itself is not checked.

    :param root: the index of the member: what has a lower one was loaded before.
    """
    issues, scope = [], set(closure.scope)
    for edge in (edge for edge in closure.edges if edge.requester >= root and edge.requester in scope):
        if kind := _issue_kind(context, closure, edge, root):
            served = None if edge.target is None else closure.objects[edge.target].path
            issues.append(ResolutionIssue(kind, edge, closure.objects[edge.requester].path, served))
    return tuple(issues)


def _issue_kind(context: ResolveContext, closure: Closure, edge: Edge, root: int) -> IssueKind | None:
    """Return what is wrong with an edge, or None."""
    soname = edge.soname
    if edge.target is None:
        # What a provider has is not missing: a pattern of --allow-missing that is too wide must not keep a library from being
        # found.
        assumed = assumed_kind(context, soname) if context.provider_path(soname) is None else None
        return assumed or "missing"
    served = closure.objects[edge.target]
    if soname in GLIBC_SONAMES:
        # glibc and its loader are one build: they share GLIBC_PRIVATE symbols, which change from release to release.
        own = own_libc(context, soname)
        wrong = own is not None and context.files.open(own).identity != served.identity
        return "libc" if wrong and served.identity[0] != "loader" else None
    if served.identity[0] == "member":
        return None
    if context.provider_path(soname) is None:
        return "withheld" if edge.target >= root and is_of_later_provider(context, closure, edge) else None
    if context.is_providers(served.identity, soname):
        return None
    # What was loaded before the root is in the process whatever the member says: no edit of the member changes that.
    return "shadowed" if edge.target < root else "incoherent"


def is_of_later_provider(context: ResolveContext, closure: Closure, edge: Edge) -> bool:
    """Whether an edge is served by a library that its provider does not serve, since an earlier one has it, or as a runtime.

    Where the first provider's own library loads that very runtime (each package of Spack is a prefix), it is the right one.
    """
    if edge.target is None or not context.is_of_another(closure.objects[edge.target].identity, edge.soname):
        return False
    return context.provider_path(edge.soname) is not None or not any(
        other.target == edge.target and context.is_of_first(closure.objects[other.requester].path)
        for other in closure.edges
    )
