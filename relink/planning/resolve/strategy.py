"""How to make one image load: the least invasive edit that does, found by simulation (docs/architecture.md, decision 2).

Takes a context and a member. Gives an :class:`Outcome`: edit, closure after it, and edges that are not served.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from relink.elf.edit import ElfEdit, result_of
from relink.elf.image import Image
from relink.loader.closure import Closure, DlopenNames
from relink.loader.loading import load, trace
from relink.loader.search import Environment
from relink.loader.target import GLIBC_SONAMES
from relink.planning.model.files import Strategy
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.search_path import (
    SearchPathEntry,
    classify,
    is_of_stubs,
    origin_entries,
)
from relink.planning.resolve.substitution import SubstitutionDecision
from relink.planning.resolve.unserved_edges import ResolutionIssue, check_edges, is_libc_elsewhere, own_libc
from relink.planning.siblings import sibling_paths


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
    path = context.layout.path_of(member)
    root = next(index for index, loaded in enumerate(closure.objects) if loaded.path == path)
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
            *carried_entries(context, self.member, self.nothing.issues),
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
    known = context.vendor.libraries.dlopens_of(own, sonames) if own else {}
    directories = [
        posixpath.dirname(layout.path_of(sonames[soname])) for soname in known if soname in sonames
    ]
    return origin_entries(layout.path_of(member), directories)
