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
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from relink.elf.edit import ElfEdit, predict_edit
from relink.elf.image import Image
from relink.loader.closure import Closure, DlopenNames, Edge
from relink.loader.loading import has_stack_flag, load, trace
from relink.loader.search import Environment, expand
from relink.loader.target import GLIBC_SONAMES
from relink.planning.model import STUB_DIRECTORY, Strategy
from relink.planning.resolve.context import ResolveContext, is_below
from relink.planning.resolve.evidence import SubstitutionDecision
from relink.planning.siblings import find_sibling, list_sibling_paths
from relink.providers.prefix import soname_stem
from relink.system.findings.model import Finding, finding
from relink.system.text import group_pairs, join_truncated, pluralize

IssueKind: TypeAlias = Literal["missing", "allowed", "sibling", "incoherent", "withheld", "libc", "shadowed"]


class ResolutionIssue(msgspec.Struct, frozen=True):
    """An edge that is not served as it must be.

    ``missing``: by nothing; ``allowed``: by nothing, as the user says; ``sibling``: by nothing, and another package is to
    bring it; ``incoherent``: from elsewhere although a provider has the soname; ``withheld``: by a runtime of a later provider;
    ``libc``: by a C library that is not the target's own; ``shadowed``: by a library that Python loaded before.
    """

    kind: IssueKind
    edge: Edge
    requester: str
    served_by: str | None = None


def matches_library(pattern: str, soname: str, path: str | None = None) -> bool:
    """Whether a glob names a library: by its soname, its soname without the version, or its path."""
    names = [soname, soname_stem(soname), soname_stem(soname).removesuffix(".so")]
    return any(fnmatch.fnmatchcase(name, pattern) for name in (*names, *([path] if path else [])))


def find_assumed_kind(context: ResolveContext, soname: str) -> Literal["allowed", "sibling"] | None:
    """Return who promises a library that is not there: the user, or a package that is imported before; None for nobody."""
    if any(matches_library(pattern, soname) for pattern in context.allow_missing):
        return "allowed"
    sibling = find_sibling(context.siblings, soname)
    return "sibling" if sibling is not None and sibling.directory is None else None


REMEDY_WITHHELD: Final = "Name the prefix that has the runtime first: its --prefix before the others."


def explain_withheld(context: ResolveContext) -> str:
    """Say why the runtime of a later provider is not taken."""
    return f"a process has one runtime of {context.vendor.product}, and no later --prefix serves it"


def find_own_libc(context: ResolveContext, soname: str = "libc.so.6") -> str | None:
    """Return the path of the target's own copy of a library of glibc, or None where it does not lie beside the loader."""
    path = posixpath.join(context.target.libc_directory, soname)
    return path if context.files.open(path).image is not None else None


def is_libc_elsewhere(context: ResolveContext, soname: str = "libc.so.6") -> bool:
    """Whether a library of glibc lies beside the target's loader, and the loader's default directories lead to another one."""
    own = find_own_libc(context, soname)
    usual = (posixpath.join(directory, soname) for directory in context.target.directories)
    opened = context.files.open
    return own is not None and all(opened(path).identity != opened(own).identity for path in usual)


def check_edges(context: ResolveContext, closure: Closure, root: int) -> tuple[ResolutionIssue, ...]:
    """Return the issues of the member's own closure; edges of the program and its libraries are not checked.

    :param root: the index of the member: objects with a lower one were loaded before.
    """
    issues, scope = [], set(closure.scope)
    for edge in (edge for edge in closure.edges if edge.requester >= root and edge.requester in scope):
        if kind := _issue_kind(context, closure, edge, root):
            served = None if edge.target is None else closure.objects[edge.target].path
            issues.append(ResolutionIssue(kind, edge, closure.objects[edge.requester].path, served))
    return tuple(issues)


def _issue_kind(context: ResolveContext, closure: Closure, edge: Edge, root: int) -> IssueKind | None:
    soname = edge.soname
    if edge.target is None:
        # A library that a provider has is not missing: a pattern of --allow-missing that is too wide must not hide it.
        assumed = find_assumed_kind(context, soname) if context.provider_path(soname) is None else None
        return assumed or "missing"
    served = closure.objects[edge.target]
    if soname in GLIBC_SONAMES:
        # glibc and its loader are one build: they share GLIBC_PRIVATE symbols, which change from release to release.
        own = find_own_libc(context, soname)
        wrong = own is not None and context.files.open(own).identity != served.identity
        return "libc" if wrong and served.identity[0] != "loader" else None
    if served.identity[0] == "member":
        return None
    if context.provider_path(soname) is None:
        return "withheld" if edge.target >= root and is_of_later_provider(context, closure, edge) else None
    if context.is_providers(served.identity, soname):
        return None
    # A library that was loaded before the member is in the process in any case: no edit of the member changes that.
    return "shadowed" if edge.target < root else "incoherent"


def is_of_later_provider(context: ResolveContext, closure: Closure, edge: Edge) -> bool:
    """Whether an edge is served by a library of a provider that does not serve it, since an earlier one has it, or as a runtime.

    Where the first provider's own library loads that very runtime (each package of Spack is a prefix), it is the right one.
    """
    if edge.target is None:
        return False
    providers, identity = context.providers, closure.objects[edge.target].identity
    paths = (path for provider in providers for path in provider.libraries.get(edge.soname, ()))
    of_any = any(context.files.open(path).identity == identity for path in paths)
    if not of_any or context.is_providers(identity, edge.soname):
        return False
    places = (
        context.layout.real(closure.objects[other.requester].path)
        for other in closure.edges
        if other.target == edge.target
    )
    return context.provider_path(edge.soname) is not None or not any(
        one.holds(place) for place in places for one in providers if one.named == providers[0].named
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


class SearchPathEntry(msgspec.Struct, frozen=True):
    """One entry as written, and its kind.

    ``wheel``: leads inside of the wheel, ``stub``: to the stubs that relink has added; ``sibling``: another
    package in site-packages, ``sibling-dropped`` where the profile says that the prefix replaces it; ``provider``: a directory of
    a provider; ``serving``: another absolute directory that serves an edge which nothing else does; ``original``: leads into the
    tree that is copied, and not into the copy; ``vendor``: any other; ``empty``, ``relative``: found from the current directory.
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
    directories = {directory for provider in context.providers for directory in provider.directories}
    texts = image.search_path.split(":") if image.search_path else []
    return [SearchPathEntry(text, _entry_kind(context, text, path, directories, serving)) for text in texts]


def _entry_kind(
    context: ResolveContext, text: str, path: str, providers: Collection[str], serving: Collection[str]
) -> EntryKind:
    layout, origin = context.layout, posixpath.dirname(path)
    if not text:
        return "empty"
    expanded = expand(text, origin=origin, target=context.target) or ""
    if not expanded.startswith("/"):
        return "relative"
    # normpath() leaves two slashes at the start, which POSIX gives a meaning of their own.
    directory = "/" + posixpath.normpath(expanded).lstrip("/")
    if layout.tree and is_below(directory, layout.root):
        # With $ORIGIN relative to the root, an entry that is absolute, or that leaves the tree, leads to the original and not
        # to the copy.
        relative = posixpath.relpath(origin, layout.root)
        within = posixpath.normpath(expand(text, origin=relative, target=context.target) or "")
        if within.startswith(("/", "../")):
            return "original"
    # Only $ORIGIN leads into a wheel: an absolute path names one installation of it, on the machine of its maker.
    if "ORIGIN" in text and directory in context.member_directories:
        return "stub" if is_of_stubs(directory) else "wheel"
    if (real := layout.real(directory)) != directory and real in providers:
        return "provider"
    if "ORIGIN" in text and is_below(directory, layout.site_packages):
        parts = directory.removeprefix(f"{layout.site_packages}/").split("/")
        own = parts[0] in context.packages
        # Bazel links against TARGET.runfiles/ and _solib_CPU/, which no wheel installs. Any other directory below a package of
        # the wheel may be another wheel's, as packages of one namespace share a directory.
        built = any(part.endswith(".runfiles") or part.startswith("_solib_") for part in parts[1:])
        if is_of_stubs(directory) or (own and built):
            return "vendor"
        beside = any(context.vendor.packages.is_package(entry.split("/")[0]) for entry in layout.links)
        replaced = beside and any(map(context.vendor.packages.is_package, parts))
        return "sibling-dropped" if replaced or context.profile.drops(text) else "sibling"
    if directory in providers:
        return "provider"
    return "serving" if text in serving else "vendor"


def origin_entries(path: str, directories: Iterable[str]) -> list[str]:
    """Return the search path entries, each once, by which the file at `path` finds directories that move together with it."""
    relative = (posixpath.relpath(directory, posixpath.dirname(path)) for directory in directories)
    return list(dict.fromkeys("$ORIGIN" if to == "." else f"$ORIGIN/{to}" for to in relative))


def is_of_stubs(directory: str) -> bool:
    """Whether a directory is one that relink writes stubs to, by its name."""
    return posixpath.basename(directory) == STUB_DIRECTORY


_ENTRY_MESSAGES: dict[EntryKind, str] = {
    "vendor": "removed from the search path, since nothing is found there: {0}",
    "original": "removed from the search path, since the copy has a place of its own: {0}",
    "empty": "the search path had an empty entry, which is the current directory; removed",
    "relative": "removed from the search path, since it counts from the current directory: {0}",
    "sibling-dropped": "{1} to sibling packages removed, as the profile says: the prefix replaces them",
    "sibling": "entries to sibling packages kept: {0}",
}
"""The message about the entries of a kind: {0} are the entries, {1} their number."""


def search_path_findings(
    member: str, entries: Iterable[SearchPathEntry], profile: str | None = None
) -> Iterator[Finding]:
    """Yield one finding for each kind of entry that is removed, or kept for a reason that the user should know.

    :param profile: the name of the profile that entries to sibling packages were classified by.
    """
    by_kind = group_pairs((entry.kind, entry.text) for entry in entries)
    for kind, message in _ENTRY_MESSAGES.items():
        if texts := by_kind.get(kind):
            text = message.format(join_truncated(texts), pluralize(len(texts), "entry", "entries"))
            code = (
                "RLK204"
                if "sibling" in kind
                else {"empty": "RLK202", "relative": "RLK203"}.get(kind, "RLK201")
            )
            yield finding(code, member, text, profile=profile if kind == "sibling-dropped" else None)


class AddedNeeded(msgspec.Struct, frozen=True):
    """A library that an edit adds to NEEDED, and the reason.

    :ivar reason: ``unfound``: a library that needs it cannot find it; ``dlopened``: an object dlopens it; ``imported``: the
        member imports from it, and names no library for these imports.
    :ivar profile: the profile that knows of a dlopen; None for the user, and for other reasons.
    :ivar evidence: the sentences that show where the imports come from.
    """

    soname: str
    reason: Literal["unfound", "dlopened", "imported"]
    profile: str | None = None
    evidence: tuple[str, ...] = ()


class AddedEntry(msgspec.Struct, frozen=True):
    """An entry that an edit adds to the search path since one other member is a library that nobody else has.

    :ivar path: where that member is installed.
    """

    text: str
    soname: str
    path: str


class Outcome(msgspec.Struct, frozen=True):
    """An edit of one image with its reasons, and the closure that loading the edited image gives.

    :ivar root: the index of the member itself in `closure`.
    :ivar original: the image before the edit, `image` after it; `entries`: the original's search path, entry by entry.
    :ivar needed: the reason for each NEEDED that the edit adds.
    :ivar carried: the reason for each search path entry that leads to another member and that the edit adds.
    :ivar substitutions: the evidence for each NEEDED that was missing before any edit, and the edits of version records.
    """

    strategy: Strategy
    edit: ElfEdit
    original: Image
    image: Image
    closure: Closure
    root: int
    issues: tuple[ResolutionIssue, ...]
    entries: tuple[SearchPathEntry, ...]
    needed: tuple[AddedNeeded, ...] = ()
    carried: tuple[AddedEntry, ...] = ()
    substitutions: Mapping[str, SubstitutionDecision] = msgspec.field(default_factory=dict)

    @property
    def loads(self) -> bool:
        """Whether every edge is served as it must be."""
        return self.closure.fatal is None and not self.issue_count

    @property
    def issue_count(self) -> int:
        """The number of edges that are not served as they must be, without those that no edit can change."""
        return sum(issue.kind not in ("shadowed", "allowed", "sibling") for issue in self.issues)


def simulate_loading(
    context: ResolveContext,
    member: str,
    image: Image,
    *,
    dlopens: DlopenNames | None = None,
    via_library_path: bool = False,
    shell: tuple[str, ...] = (),
) -> Closure:
    """Load `member`, looking as `image`, in the process that will load it: the target's Python, or the target's loader alone.

    :param dlopens: follow what the objects dlopen, too.
    :param via_library_path: with the providers' directories on LD_LIBRARY_PATH, and without any edit. A Python's own libraries
        are found as ever, so that only the member and what it needs can differ.
    :param shell: the entries of the process's LD_LIBRARY_PATH.
    """
    layout, target = context.layout, context.target
    path = layout.path_of(member)
    environment = Environment(target, context.members.with_image(path, image), shell)
    library_path: tuple[str, ...] = ()
    if via_library_path:
        library_path = tuple(
            directory for provider in context.providers for directory in provider.directories
        )
        if image.is_executable and is_libc_elsewhere(context):
            library_path += (target.libc_directory,)
    if target.python is not None and not image.is_executable:
        early = [name for name in context.profile.preload if name in context.images and name != member]
        roots = [*list_sibling_paths(context.siblings), *map(layout.path_of, early), path]
        return load(environment, roots, target.python, dlopens=dlopens, library_path=library_path)
    # A loader without a program: any process that it starts has the loader's own C library mapped.
    libc = None if image.is_executable else find_own_libc(context)
    environment = replace(environment, library_path=library_path or shell)
    return trace(environment, path, [libc] if libc else [], dlopens=dlopens)


def find_strategy(
    context: ResolveContext,
    member: str,
    required: ElfEdit | None = None,
    reasons: tuple[AddedNeeded, ...] = (),
) -> Outcome:
    """Return the first strategy after which `member` loads, or else the one with the fewest issues; no edit comes first.

    A RUNPATH changes what one file finds, a DT_RPATH what all find that the file loads, flattening what the file needs.

    :param required: NEEDED entries that are to be replaced or dropped in any case.
    :param reasons: what is to be added in any case, and why.
    """
    image = context.images[member]
    required = replace(required or ElfEdit(), add=tuple(reason.soname for reason in reasons))
    nothing = _attempt(context, member, "nothing", required, reasons)
    if context.as_it_is:
        return nothing
    interpreter = context.target.interpreter if image.is_executable else None
    wrong_interpreter = interpreter is not None and interpreter != image.interpreter
    clean = all(entry.kept for entry in nothing.entries) and not (
        wrong_interpreter or required or opened_in_wheel(context, member) or list_exposed(context, nothing)
    )
    if clean and nothing.loads:
        return nothing
    edit = replace(required, interpreter=interpreter if wrong_interpreter else None)
    # A file with entries to remove, or another loader to get, cannot stay as it is.
    outcomes = [nothing] if clean else []
    for outcome in _Base(context, member, edit, nothing).attempts():
        # A provider's RUNPATH comes after LD_LIBRARY_PATH, unless the member has what is found by it among its own NEEDED.
        if outcome.loads and (outcome.strategy == "flatten" or not list_exposed(context, outcome)):
            return outcome
        outcomes.append(outcome)
    # First the attempt that uses all that a provider has: what is missing then is truly missing. Then that with the fewest
    # issues. min() takes the first of equals, which is the least invasive one.
    provided = context.provider_path
    unused = [
        sum(issue.kind == "missing" and provided(issue.edge.soname) is not None for issue in attempt.issues)
        for attempt in outcomes
    ]
    return min(zip(unused, outcomes, strict=True), key=lambda pair: (pair[0], pair[1].issue_count))[1]


def list_exposed(context: ResolveContext, outcome: Outcome, *, every: bool = False) -> list[Edge]:
    """Return the edges to libraries of the wheel or of a provider that LD_LIBRARY_PATH comes before, where none is to be.

    :param every: those to other libraries as well, and those that nothing serves.
    """
    if context.search_path != "rpath":
        return []
    closure, scope = outcome.closure, set(outcome.closure.scope)
    return [
        edge
        for edge in closure.edges
        if edge.requester in scope
        and edge.requester >= outcome.root
        and edge.soname not in GLIBC_SONAMES
        and (edge.found_by is None or edge.found_by.rule in ("runpath", "cache", "default"))
        and (
            every
            or (edge.target is not None and closure.objects[edge.target].identity[0] == "member")
            or context.provider_path(edge.soname) is not None
        )
    ]


def clear_stack(context: ResolveContext, member: str, outcome: Outcome) -> Outcome:
    """Return the outcome with an edit that asks for no executable stack, if the user says that the member needs none.

    Without PT_GNU_STACK there is no flag to clear.
    """
    named = any(matches_library(glob, outcome.image.soname or "", member) for glob in context.clear_execstack)
    if not named or context.as_it_is or not has_stack_flag(outcome.image):
        return outcome
    edit = replace(outcome.edit, clear_stack=True)
    return replace(outcome, edit=edit, image=predict_edit(outcome.original, edit))


def _attempt(
    context: ResolveContext,
    member: str,
    strategy: Strategy,
    edit: ElfEdit,
    needed: tuple[AddedNeeded, ...],
    carried: tuple[AddedEntry, ...] = (),
) -> Outcome:
    """Simulate loading `member` after an edit, classify its entries, and check every edge."""
    image = context.images[member]
    edited = predict_edit(image, edit)
    closure = simulate_loading(context, member, edited)
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
    entries = tuple(classify(context, image, path, serving))
    issues = check_edges(context, closure, root)
    return Outcome(strategy, edit, image, edited, closure, root, issues, entries, needed, carried)


class _Base(msgspec.Struct, frozen=True):
    """What every strategy starts from: the member, the edit that is required in any case, and its outcome.

    :ivar tried: the outcome of each edit: that of one strategy may be the first of another.
    """

    context: ResolveContext
    member: str
    edit: ElfEdit
    nothing: Outcome
    tried: dict[ElfEdit, Outcome] = msgspec.field(default_factory=dict)

    def attempts(self) -> Iterator[Outcome]:
        """Yield the outcome of each strategy that edits, the least invasive first."""
        context = self.context
        kind = "rpath" if context.search_path == "rpath" else "runpath"
        needed = predict_edit(self.nothing.original, self.edit).needed
        # A RUNPATH serves the image's own NEEDED only: glibc does not inherit it (elf/dl-load.c, _dl_map_object).
        last = self.attempt("runpath", needed, "runpath")
        if context.search_path != "rpath":
            yield last
        # A DT_RPATH serves all that is loaded for the image, where the requester has no RUNPATH: so all edges count.
        every = [edge.soname for edge in last.closure.edges]
        if context.search_path != "runpath":
            yield self.attempt("rpath", every, "rpath")
        # Flattening adds to NEEDED, in load order, the libraries that the provider's own libraries cannot find by themselves.
        added: dict[str, AddedNeeded] = {}
        while True:
            wanted = [*needed, *added]
            reached = [*wanted, *every] if kind == "rpath" else wanted
            outcome = self.attempt("flatten", reached, kind, tuple(added.values()))
            unserved = [
                issue.edge.soname
                for issue in outcome.issues
                if issue.kind in ("missing", "incoherent", "libc")
            ]
            unserved += (edge.soname for edge in list_exposed(context, outcome))
            more = {
                soname: AddedNeeded(soname, "unfound")
                for soname in unserved
                if soname not in wanted
                and (
                    soname in context.added
                    or context.provider_path(soname)
                    or self.comes_with_the_loader(soname)
                )
            }
            if not more:
                yield outcome
                return
            # The loop ends: every round adds libraries of a provider, which has finitely many.
            added |= more

    def attempt(
        self, strategy: Strategy, wanted: Sequence[str], kind: str, added: tuple[AddedNeeded, ...] = ()
    ) -> Outcome:
        """Simulate the edit with a search path for `wanted` and more NEEDED.

        The wheel's own members come first, then the providers, other packages, and stubs last: a real library goes before its
        stub, wherever it is found.

        :param kind: of the search path, ``runpath`` or ``rpath``.
        """
        context, image = self.context, self.nothing.original
        path_of = context.layout.path_of
        path, sonames = path_of(self.member), context.members.sonames
        carried = carried_entries(context, self.member, self.nothing)
        # The other members that this one is known to dlopen.
        known = context.vendor.libraries.dlopens_of(image.soname, sonames) if image.soname else {}
        of_kind = group_pairs((entry.kind, entry.text) for entry in self.nothing.entries)
        opened = opened_in_wheel(context, self.member)
        stubs = {
            posixpath.dirname(path_of(context.added[soname]))
            for soname in (*wanted, *opened)
            if soname in context.added
        }
        to_stubs = origin_entries(path, sorted(stubs))
        of_providers = [
            context.layout.origin_entry(directory, self.member) for directory in self.directories(wanted)
        ]
        # A forwarder has the name of a provider's library that does not load from there, so the forwarder has to be found
        # first.
        if any(map(context.provider_path, opened)):
            of_providers = [*to_stubs, *of_providers]
        entries = [
            *of_kind.get("wheel", ()),
            *(entry.text for entry in carried),
            *origin_entries(
                path, [posixpath.dirname(path_of(sonames[name])) for name in known if name in sonames]
            ),
            *of_providers,
            *(entry.text for entry in self.nothing.entries if entry.kind in ("sibling", "serving")),
            *to_stubs,
            *of_kind.get("stub", ()),
        ]
        text = ":".join(dict.fromkeys(entries))
        edit = replace(self.edit, add=(*self.edit.add, *(reason.soname for reason in added)))
        # An equal path in the other entry (DT_RPATH, DT_RUNPATH) is a change. An empty path needs no entry.
        if text != (image.search_path or "") or (text and image.search_kind != kind):
            edit = replace(edit, search_path=text, search_kind=kind if text else None)
        if edit not in self.tried:
            needed = (*self.nothing.needed, *added)
            self.tried[edit] = _attempt(context, self.member, strategy, edit, needed, carried)
        outcome = replace(self.tried[edit], strategy=strategy)
        # A directory of a provider that has only what the wheel serves itself would lead what is dlopened to a second runtime.
        own = {
            edge.soname
            for edge in outcome.closure.edges
            if edge.target is not None and outcome.closure.objects[edge.target].identity[0] == "member"
        }
        fewer = [soname for soname in wanted if soname not in own or soname in context.added]
        if len(fewer) < len(wanted) and self.directories(fewer) != self.directories(wanted):
            without = self.attempt(strategy, fewer, kind, added)
            if without.issue_count <= outcome.issue_count:
                return without
        return outcome

    def directories(self, sonames: Sequence[str]) -> list[str]:
        """Return the provider directories that serve `sonames`, in the order of the providers and of their directories.

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


def carried_entries(context: ResolveContext, member: str, nothing: Outcome) -> tuple[AddedEntry, ...]:
    """Return the search path entries by which `member` finds what it needs, nobody has, and one other member is.

    Where several members have the name, none is the right one for sure. A runtime that the wheel brings is taken from there
    though a provider has one, too: the package has that one in its process.

    :param nothing: the outcome without an edit.
    """
    path_of = context.layout.path_of
    carried = []
    for issue in nothing.issues:
        soname, own = issue.edge.soname, issue.edge.requester == nothing.root
        if issue.kind in ("missing", "allowed") and own and soname not in context.added:
            named = (name for name in context.members.named.get(soname, ()) if name != member)
            places = [path_of(name) for name in named if not is_of_stubs(posixpath.dirname(name))]
            is_taken = context.provider_path(soname) is None or context.vendor.libraries.is_runtime(soname)
            if len(places) == 1 and is_taken:
                (entry,) = origin_entries(path_of(member), [posixpath.dirname(places[0])])
                carried.append(AddedEntry(entry, soname, places[0]))
    return tuple(carried)


def opened_in_wheel(context: ResolveContext, member: str) -> list[str]:
    """Return the names that `member` is known to open, and that relink has added to the wheel: forwarders, and stubs."""
    opened = {*context.opens.get(member, ()), *context.profile.dlopens(member)} if context.added else ()
    return [name for name in context.added if name in opened]
