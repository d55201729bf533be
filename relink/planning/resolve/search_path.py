"""The entries of a search path, classified: which are kept, which are removed, and why (docs/architecture.md, decision 6).

Takes an image and where it will be installed. Gives :class:`SearchPathEntry` and RLK201 to RLK204. Empty entries mean the current
directory (elf/dl-load.c, fillin_rpath), and so do relative ones.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from relink.elf.image import Image
from relink.loader.search import expand
from relink.planning.model.files import STUB_DIRECTORY
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.layout import is_below
from relink.system.findings.model import Finding, finding
from relink.system.text import grouped, join_truncated, pluralize

EntryKind: TypeAlias = Literal[
    "wheel",
    "stub",
    "sibling",
    "sibling-dropped",
    "provider",
    "serving",
    "original",
    "vendor",
    "empty",
    "relative",
]
_KEPT = frozenset({"wheel", "stub", "sibling", "provider", "serving"})


@dataclass(frozen=True, slots=True)
class SearchPathEntry:
    """One entry as written, and its kind.

    ``wheel``: leads inside of the wheel, ``stub``: to the stubs that relink has added; ``sibling``: another
    package in site-packages, ``sibling-dropped`` where the profile says that the prefix replaces it; ``provider``: a directory of
    a provider; ``serving``: another absolute directory that serves an edge which nothing else does; ``original``: leads into the
    tree that is copied, and not into the copy; ``vendor``: any other;
    ``empty`` and ``relative``: found from the current directory.
    """

    text: str
    kind: EntryKind

    @property
    def kept(self) -> bool:
        """Whether the edited search path has it."""
        return self.kind in _KEPT


def classify(
    context: ResolveContext, image: Image, path: str, serving: Collection[str]
) -> list[SearchPathEntry]:
    """Classify every entry of an image's search path.

    :param path: where the image will be installed, for ``$ORIGIN``.
    :param serving: entries, as written, that some edge of its closure was found by.
    """
    if not image.search_path:
        return []
    directories = {directory for provider in context.providers for directory in provider.directories}
    return [
        SearchPathEntry(text, _kind(context, text, posixpath.dirname(path), directories, serving))
        for text in image.search_path.split(":")
    ]


def _kind(
    context: ResolveContext,
    text: str,
    origin: str,
    provider_directories: Collection[str],
    serving: Collection[str],
) -> EntryKind:
    layout, target = context.layout, context.target
    if not text:
        return "empty"
    expanded = expand(text, origin=origin, target=target) or ""
    if not expanded.startswith("/"):
        return "relative"
    # normpath() leaves two slashes at the start, which POSIX gives a meaning of their own.
    directory = "/" + posixpath.normpath(expanded).lstrip("/")
    if layout.tree and is_below(directory, layout.root):
        # With $ORIGIN relative to the root, an entry that is absolute, or that leaves the tree, leads to the original and not
        # to the copy.
        within = posixpath.normpath(
            expand(text, origin=posixpath.relpath(origin, layout.root), target=target) or ""
        )
        if within.startswith(("/", "../")):
            return "original"
    # Only $ORIGIN leads into a wheel: an absolute path names one installation of it, on the machine of its maker.
    if "ORIGIN" in text and directory in context.member_directories:
        return "stub" if is_of_stubs(directory) else "wheel"
    if (real := layout.real(directory)) != directory and real in provider_directories:
        return "provider"
    if "ORIGIN" in text and is_below(directory, layout.site_packages):
        if is_of_stubs(directory) or _of_the_build(context, directory):
            return "vendor"
        parts = directory.removeprefix(f"{layout.site_packages}/").split("/")
        beside = any(context.vendor.packages.is_package(entry.split("/")[0]) for entry in layout.links)
        replaced = beside and any(map(context.vendor.packages.is_package, parts))
        return "sibling-dropped" if replaced or context.profile.drops(text) else "sibling"
    if directory in provider_directories:
        return "provider"
    return "serving" if text in serving else "vendor"


def origin_entries(path: str, directories: Iterable[str]) -> list[str]:
    """Return the search path entries, each once, by which the file at `path` finds directories that move together with it."""
    relative = (posixpath.relpath(directory, posixpath.dirname(path)) for directory in directories)
    return list(dict.fromkeys("$ORIGIN" if to == "." else f"$ORIGIN/{to}" for to in relative))


def is_of_stubs(directory: str) -> bool:
    """Whether a directory is one that relink writes stubs to, by its name."""
    return posixpath.basename(directory) == STUB_DIRECTORY


def _of_the_build(context: ResolveContext, directory: str) -> bool:
    """Whether a directory that the wheel does not have is one of Bazel's build tree, below a package of the wheel.

    Bazel links against ``TARGET.runfiles/`` and ``_solib_CPU/``, which no wheel installs. Any other directory may be another
    wheel's, as packages of one namespace share a directory.
    """
    site_packages = context.layout.site_packages
    parts = directory.removeprefix(f"{site_packages}/").split("/")
    package = f"{site_packages}/{parts[0]}"
    own = any(is_below(member, package) for member in context.member_directories)
    return own and any(part.endswith(".runfiles") or part.startswith("_solib_") for part in parts[1:])


_TOLD: dict[EntryKind, str] = {
    "vendor": "removed from the search path, since nothing is found there: {0}",
    "original": "removed from the search path, since the copy has a place of its own: {0}",
    "empty": "the search path had an empty entry, which is the current directory; removed",
    "relative": "removed from the search path, since it counts from the current directory: {0}",
    "sibling-dropped": "{1} to sibling packages removed, as the profile says: the prefix replaces them",
    "sibling": "entries to sibling packages kept: {0}",
}
"""What is said of the entries of a kind: {0} are the entries, {1} their number."""


def removed(member: str, entries: Iterable[SearchPathEntry], profile: str | None = None) -> Iterator[Finding]:
    """Yield one finding for each kind of entry that is removed, or kept for a reason that the user should know.

    :param profile: the name of the profile that entries to sibling packages were classified by.
    """
    by_kind = grouped((entry.kind, entry.text) for entry in entries)
    for kind, text in _TOLD.items():
        if kind in by_kind:
            message = text.format(
                join_truncated(by_kind[kind]), pluralize(len(by_kind[kind]), "entry", "entries")
            )
            code = {"empty": "RLK202", "relative": "RLK203"}.get(
                kind, "RLK204" if "sibling" in kind else "RLK201"
            )
            yield finding(code, member, message, profile=profile if kind == "sibling-dropped" else None)
