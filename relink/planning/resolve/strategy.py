"""Find the least invasive edit that makes one image load, by simulation (docs/architecture.md, decision 2).

Takes a context and a member. Gives an :class:`Outcome`: the edit with its reasons, the closure after the edit, and a
:class:`ResolutionIssue` for each edge that is served by nothing, by another copy than a provider's, or by a foreign C library.
Search path entries are classified on the way (:class:`SearchPathEntry`, RLK201 to RLK204; decision 3). An empty entry means the
current directory (elf/dl-load.c, fillin_rpath), and so does a relative one.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from relink.elf.edit import ElfEdit, result_of
from relink.elf.image import Image
from relink.loader.closure import Closure, DlopenNames, Edge
from relink.loader.loading import load, trace
from relink.loader.search import Environment, expand
from relink.loader.target import GLIBC_SONAMES
from relink.planning.model.files import STUB_DIRECTORY, Strategy
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.evidence import SubstitutionDecision
from relink.planning.resolve.layout import is_below
from relink.planning.siblings import sibling_of, sibling_paths
from relink.providers.prefix import soname_stem
from relink.system.findings.model import Finding, finding
from relink.system.text import grouped, join_truncated, pluralize

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


@dataclass(frozen=True, slots=True)
class Outcome:
    """An edit of one image, and what loading it gives then.

    :ivar root: the index of the member itself in `closure`.
    :ivar original: the image before the edit, `image` after it; `entries`: the original's search path, entry by entry.
    :ivar substitutions: what the evidence allows for each NEEDED that was missing before any edit, by soname.
    :ivar preloaded: the sonames that are added since an object dlopens them, with the profile that knows of it; None: the user.
    :ivar forgotten: the sonames that are added since imports need them, with the evidence.
    """

    strategy: Strategy
    edit: ElfEdit
    original: Image
    image: Image
    closure: Closure
    root: int
    issues: tuple[ResolutionIssue, ...]
    entries: tuple[SearchPathEntry, ...]
    substitutions: Mapping[str, SubstitutionDecision] = field(default_factory=dict)
    preloaded: Mapping[str, str | None] = field(default_factory=dict)
    forgotten: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def with_reasons_of(self, other: Outcome) -> Outcome:
        """Return the outcome with the evidence that another one of the same member was found by."""
        return replace(
            self,
            substitutions=other.substitutions,
            preloaded=other.preloaded,
            forgotten=other.forgotten,
        )

    @property
    def loads(self) -> bool:
        """Whether every edge is served as it must be."""
        return self.closure.fatal is None and not self.issue_count

    @property
    def issue_count(self) -> int:
        """The number of edges that are not served as they must be, without those that no edit can change."""
        return sum(issue.kind not in ("shadowed", "allowed", "sibling") for issue in self.issues)


def simulate(
    context: ResolveContext,
    member: str,
    image: Image,
    *,
    dlopens: DlopenNames | None = None,
    via_library_path: bool = False,
) -> Closure:
    """Load `member`, looking as `image`, in the process that will load it: the target's Python, or the target's loader alone.

    :param dlopens: follow what the objects dlopen, too.
    :param via_library_path: with the providers' directories on LD_LIBRARY_PATH, and without any edit. A Python's own libraries
        are found as ever, so that only the member and what it needs can differ.
    """
    layout = context.layout
    path = layout.path_of(member)
    directories = tuple(directory for provider in context.providers for directory in provider.directories)
    if image.is_executable and is_libc_elsewhere(context):
        directories += (context.target.libc_directory,)
    library_path = directories if via_library_path else ()
    in_python = Environment(context.target, context.members.with_image(path, image))
    environment = replace(in_python, library_path=library_path)
    if image.is_executable:
        return trace(environment, path, dlopens=dlopens)
    preloads = [
        layout.path_of(name) for name in context.profile.preload if name in context.images and name != member
    ]
    if context.target.python is not None:
        roots = [*sibling_paths(context.siblings), *preloads, path]
        return load(in_python, roots, context.target.python, dlopens=dlopens, library_path=library_path)
    # A loader without a program: any process that it starts has the loader's own C library mapped.
    libc = own_libc(context)
    return trace(environment, path, [libc] if libc else [], dlopens=dlopens)


def find_strategy(context: ResolveContext, member: str, required_edit: ElfEdit | None = None) -> Outcome:
    """Return the first strategy after which `member` loads, or else the one with the fewest issues; no edit comes first.

    :param required_edit: NEEDED entries that are to be replaced, dropped or added in any case.
    """
    image = context.images[member]
    required_edit = required_edit or ElfEdit()
    nothing = _attempt(context, member, image, "nothing", required_edit)
    if context.as_it_is:
        return nothing
    interpreter = context.target.interpreter if image.is_executable else None
    wrong_interpreter = interpreter is not None and interpreter != image.interpreter
    clean = all(entry.kept for entry in nothing.entries) and not (
        wrong_interpreter or required_edit or opened_in_wheel(context, member)
    )
    if clean and nothing.loads:
        return nothing
    edit = replace(required_edit, interpreter=interpreter if wrong_interpreter else None)
    base = _Base(context, member, image, edit, nothing)
    # A file with entries to remove, or another loader to get, cannot stay as it is.
    outcomes = [nothing] if clean else []
    # In this order: a RUNPATH changes what one file finds, a DT_RPATH what all find that it loads, flattening what it needs.
    for outcome in base.attempts():
        if outcome.loads:
            return outcome
        outcomes.append(outcome)

    def badness(attempt: Outcome) -> tuple[int, int]:
        """First what uses all that a provider has: what is missing then is truly missing. Then the fewest issues."""
        unused = (
            issue.kind == "missing" and context.provider_path(issue.edge.soname) is not None
            for issue in attempt.issues
        )
        return sum(unused), attempt.issue_count

    # min() takes the first of equals, which is the least invasive one.
    return min(outcomes, key=badness)


def _attempt(
    context: ResolveContext, member: str, image: Image, strategy: Strategy, edit: ElfEdit
) -> Outcome:
    """Simulate loading `member` after an edit, classify its entries, and check every edge."""
    edited = result_of(image, edit)
    closure = simulate(context, member, edited)
    # A Python dlopens the member last. A library that was dlopened before may have mapped it by another spelling of the path.
    root = 0 if image.is_executable or context.target.python is None else closure.roots[-1]
    path = closure.objects[root].path
    # A directory that belongs to no provider stays in the search path where it has what no provider has.
    serving = {
        how.entry
        for loaded in closure.objects
        if (how := loaded.found_by).owner == path
        and how.entry is not None
        and not context.provider_path(loaded.name)
    }
    entries = classify(context, image, path, serving)
    issues = check_edges(context, closure, root)
    return Outcome(strategy, edit, image, edited, closure, root, issues, tuple(entries))


@dataclass(frozen=True, slots=True)
class _Base:
    """What every strategy starts from: the image, the edit that is required in any case, and what loading it gave as it is.

    :ivar tried: the outcome of each edit: that of one strategy may be the first of another.
    """

    context: ResolveContext
    member: str
    image: Image
    edit: ElfEdit
    nothing: Outcome
    tried: dict[ElfEdit, Outcome] = field(default_factory=dict)

    @property
    def needed(self) -> tuple[str, ...]:
        """What the image needs after the required edit."""
        return result_of(self.image, self.edit).needed

    def attempt(self, strategy: Strategy, edit: ElfEdit) -> Outcome:
        if edit not in self.tried:
            self.tried[edit] = _attempt(self.context, self.member, self.image, strategy, edit)
        return replace(self.tried[edit], strategy=strategy)

    def with_path(self, wanted: Sequence[str], kind: str) -> ElfEdit:
        """Return the edit with a search path of the entries that are kept and those that serve `wanted`, if it is another.

        The wheel's own members come first, then the providers, other packages, and stubs last.
        """
        context = self.context
        entries = [entry for entry in self.nothing.entries if entry.kept and entry.kind != "provider"]
        own = [
            *(entry.text for entry in entries if entry.kind == "wheel"),
            *carried_entries(context, self.member, self.nothing),
            *dlopened_entries(context, self.member),
        ]
        others = [entry.text for entry in entries if entry.kind not in ("wheel", "stub")]
        # Stubs come last: a real library goes before its stub, wherever it is found.
        stubs = [entry.text for entry in entries if entry.kind == "stub"]
        opened = opened_in_wheel(context, self.member)
        path_of = context.layout.path_of
        stubs_of = {
            posixpath.dirname(path_of(context.added[soname]))
            for soname in (*wanted, *opened)
            if soname in context.added
        }
        added = origin_entries(path_of(self.member), sorted(stubs_of))
        of_providers = [
            context.layout.origin_entry(directory, self.member) for directory in self.directories(wanted)
        ]
        # A forwarder has the name of a provider's library that does not load from there, so the forwarder has to be found
        # first.
        if any(map(context.provider_path, opened)):
            of_providers = [*added, *of_providers]
        text = ":".join(dict.fromkeys([*own, *of_providers, *others, *added, *stubs]))
        # An equal path in the other entry (DT_RPATH, DT_RUNPATH) is a change. An empty path needs no entry.
        if text == (self.image.search_path or "") and (not text or self.image.search_kind == kind):
            return self.edit
        return replace(self.edit, search_path=text, search_kind=kind if text else None)

    def directories(self, sonames: Sequence[str]) -> list[str]:
        """The provider directories that serve `sonames`, in the order of the providers and of their directories.

        The C library needs no directory, unless the simulation without an edit found another one: then the provider's directory
        that has the target's own, or that of the loader which a program is given.
        """
        context = self.context
        unserved = {issue.edge.soname for issue in self.nothing.issues if issue.kind == "libc"}
        used = {
            posixpath.dirname(path)
            for soname in sonames
            if (soname not in GLIBC_SONAMES or soname in unserved) and (path := context.provider_path(soname))
        }
        every = (directory for provider in context.providers for directory in provider.directories)
        last = [context.target.libc_directory] if any(map(self.comes_with_the_loader, sonames)) else []
        return [*(directory for directory in every if directory in used), *last]

    def comes_with_the_loader(self, soname: str) -> bool:
        """Whether a library of glibc lies beside the loader that a program is given, where that does not look by itself."""
        context = self.context
        if self.edit.interpreter is None or soname not in GLIBC_SONAMES or context.provider_path(soname):
            return False
        return is_libc_elsewhere(context, soname)

    def attempts(self) -> Iterator[Outcome]:
        """Yield the outcome of each strategy that edits, the least invasive first."""
        # A RUNPATH serves the image's own NEEDED only: glibc does not inherit it (elf/dl-load.c, _dl_map_object).
        last = self.attempt("runpath", self.with_path(self.needed, "runpath"))
        yield last
        # A DT_RPATH serves all that is loaded for the image, where the requester has no RUNPATH: so all edges count.
        yield self.attempt("rpath", self.with_path([edge.soname for edge in last.closure.edges], "rpath"))
        yield self.flattened()

    def flattened(self) -> Outcome:
        """Add to NEEDED, in load order, what the provider's own libraries cannot find by themselves."""
        context = self.context
        added = list(self.edit.add)
        while True:
            needed = [*self.needed, *added]
            outcome = self.attempt("flatten", replace(self.with_path(needed, "runpath"), add=tuple(added)))
            unserved = (
                issue.edge.soname
                for issue in outcome.issues
                if issue.kind in ("missing", "incoherent", "libc")
            )
            had = (
                soname
                for soname in unserved
                if soname in context.added
                or context.provider_path(soname)
                or self.comes_with_the_loader(soname)
            )
            more = dict.fromkeys(soname for soname in had if soname not in needed)
            if not more:
                return outcome
            # The loop ends: every round adds libraries of a provider, which has finitely many.
            added += more


def carried_entries(context: ResolveContext, member: str, nothing: Outcome) -> list[str]:
    """Return the search path entries by which `member` finds what it needs, nobody has, and one other member is.

    Where several members have the name, none is the right one for sure.
    """
    layout = context.layout
    path = layout.path_of(member)
    directories = []
    for issue in nothing.issues:
        soname, own = issue.edge.soname, issue.edge.requester == nothing.root
        if issue.kind in ("missing", "allowed") and own and soname not in context.added:
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
    known = context.vendor.libraries.dlopens_of(own, sonames) if own else {}
    directories = [
        posixpath.dirname(layout.path_of(sonames[soname])) for soname in known if soname in sonames
    ]
    return origin_entries(layout.path_of(member), directories)
