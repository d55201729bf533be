"""The one assessment of a wheel, a tree or an installed distribution: what loads, with which edits, and everything that is found.

Takes a :class:`~relink.planning.case.Case`; gives an :class:`Assessment`. run, apply, verify, explain, nix, check, repair and the
copy of a tree call :func:`assess`. Everything that yields findings before something is written is one line of
:data:`PRODUCERS`; a command says there what it does not show, and why. docs/findings.md has the table.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property

from relink.elf.image import machine_name
from relink.elf.symbols import SymbolTable
from relink.gpu.coverage import GpuPlan
from relink.planning.case import Case, Command, context_of, is_python_named
from relink.planning.checks.executable_stack import stack_findings
from relink.planning.checks.gpu import dlopened_libraries, plan_gpus
from relink.planning.checks.tags import wheel_tag_findings
from relink.planning.model.files import ChangedRequirement, FilePlan, Reliance
from relink.planning.model.model import ProviderFacts
from relink.planning.reading import required_versions
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.decide import PlanDraft, decide, draft_links
from relink.planning.resolve.decision_findings import has_vendors, mapped_for
from relink.planning.resolve.layout import is_below, version_in_tags
from relink.planning.resolve.stubs import StubPlans, plan_forwarders, plan_stubs, with_stubs
from relink.planning.site_requirements import (
    Relocation,
    find_copies,
    following_label,
    left_out,
    of_vendor,
    platform_of,
    relocation,
    relocation_findings,
    requirement_findings,
)
from relink.planning.surroundings import (
    idle_findings,
    layer_findings,
    overlays,
    packages_findings,
    reliance_findings,
    siblings_relied_on,
)
from relink.providers.prefix import Provider
from relink.providers.profiles import profile_for, with_hints
from relink.system.findings.model import Finding, finding, has_errors, select
from relink.system.text import pluralize
from relink.vendors.protocol import Vendor
from relink.vendors.registry import add_archives, processors_of, release_of
from relink.wheel.archive import WheelArchive
from relink.wheel.naming import WheelName, relinked
from relink.wheel.source import MemberSource

MOST_ATTEMPTS = 40
"""How often one wheel is planned at most, the search for the way out of a refusal included."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One plan that was made and its result, for `relink explain --trace`."""

    what: str
    result: str


@dataclass(slots=True)
class Trace:
    """The plans that were made of one wheel, in order; all attempts of a run share one."""

    attempts: list[Attempt] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether no other plan may be made."""
        return len(self.attempts) >= MOST_ATTEMPTS

    def note(self, what: str, made: Assessment) -> None:
        """Note that a plan was made, and what is wrong with its links: the rest of the findings may never be asked for."""
        errors = [reported for reported in made.draft.findings if reported.level == "error"]
        result = "no error" if not errors else pluralize(len(errors), "error")
        if errors:
            result += f", the first is {errors[0].code} {errors[0].subject}"
        self.attempts.append(Attempt(what, result))


@dataclass(frozen=True)
class Assessment:
    """What is known of a case: how its files are linked, and what follows from that.

    :ivar draft: what is decided about linking the files.
    :ivar stubs: the stubs and forwarders that are written.
    :ivar copies: the copies of the vendor's libraries that leave the wheel; `case.wheel` has them no longer.
    """

    case: Case
    draft: PlanDraft
    stubs: StubPlans
    copies: tuple[str, ...] = ()

    @property
    def context(self) -> ResolveContext:
        """The context with the images as they will be."""
        return self.draft.context

    @property
    def source(self) -> MemberSource:
        """Where the members come from."""
        return self.case.wheel.source

    @property
    def vendor(self) -> Vendor:
        """The vendor whose libraries the files need."""
        return self.context.vendor

    @property
    def is_python_named(self) -> bool:
        """Whether the user named the Python that will load the result."""
        return is_python_named(self.case.options)

    @cached_property
    def files(self) -> tuple[FilePlan, ...]:
        """The decisions about the ELF members, without stubs."""
        return tuple(file for file in self.draft.files if file.path in self.case.wheel.images)

    @cached_property
    def site_facts(self) -> tuple[tuple[Reliance, ...], tuple[str, ...]]:
        """The packages that are no providers and have libraries of it, and the site-packages that these lie in."""
        return siblings_relied_on(self.files, self.context.providers, self.case.target)

    @cached_property
    def vendor_requirements(self) -> tuple[ChangedRequirement, ...]:
        """The requirements of the vendor's packages that change."""
        if not self.is_rewritten:
            return ()
        return of_vendor(self.source, self.vendor, self.context.providers)

    @cached_property
    def dropped_members(self) -> dict[str, str]:
        """The members that leave the wheel, but for copies: name → why."""
        if not self.is_rewritten:
            return {}
        return left_out(self.context.profile, self.source.members, self.context.providers)

    @property
    def is_rewritten(self) -> bool:
        """Whether a wheel may come of it: a tree stays one, and what is only looked at stays as it is."""
        return not (self.context.layout.tree or self.context.as_it_is)

    @cached_property
    def changes(self) -> bool:
        """Whether anything of the input changes."""
        if self.case.as_it_is:
            return False
        asked = bool(self.stubs.stubs or self.vendor_requirements or self.dropped_members)
        return asked or any(file.changed for file in self.files)

    @cached_property
    def relocation(self) -> Relocation:
        """What the result relies on outside of the wheel."""
        if not self.changes:
            return Relocation((), {})
        context = self.context
        linked, interpreter = context.layout.links, self.case.target.interpreter
        return relocation(self.files, context.providers, linked, interpreter, self.site_facts[0])

    @cached_property
    def provider_facts(self) -> tuple[ProviderFacts, ...]:
        """What a plan says of its providers."""
        root, vendor = self.case.target.sysroot, self.vendor
        return tuple(_provider_facts(provider, root, vendor) for provider in self.context.providers)

    @cached_property
    def local_label(self) -> str | None:
        """The local version label of the output; None where the version stays."""
        options = self.case.options
        if options.keep_version or options.local_version:
            return None if options.keep_version else options.local_version
        root, find = self.case.target.sysroot, self.vendor.libraries.release_of
        found = (release for provider in self.context.providers if (release := find(provider, root)))
        return next((release.label for release in found), None)

    @property
    def is_release_unknown(self) -> bool:
        """Whether the output's label cannot name a release, as no provider says which it is."""
        options = self.case.options
        return self.local_label is None and not (options.keep_version or options.local_version)

    @cached_property
    def output(self) -> WheelName:
        """The name of the wheel that is written."""
        name, wheel = self.source.name, self.case.wheel
        if not self.changes:
            return name
        machine = self.case.target.header.machine
        platform = f"linux_{machine_name(machine)}"
        if self.relocation.relocatable:
            versions = required_versions(wheel.tables.values())
            platform = platform_of(name.platform, versions, self.files, machine)
        local = "relinked" if self.is_release_unknown else self.local_label
        return relinked(name, local=local, platform=platform, replaces=self.vendor.packages.version_label)

    @cached_property
    def requirements(self) -> tuple[ChangedRequirement, ...]:
        """All requirements that change: those that name the wheel's own label follow that of the output."""
        if not (self.is_rewritten and self.changes):
            return self.vendor_requirements
        return (*self.vendor_requirements, *following_label(self.source, self.output, self.vendor))

    @cached_property
    def gpu(self) -> GpuPlan:
        """Whether the files, and the libraries that they reach, have code for the GPUs."""
        context, wheel = self.context, self.case.wheel
        sites = overlays(context.providers, context.layout, self.case.target, named=self.is_python_named)
        with ExitStack() as stack:
            # Other wheels are opened for their archives of code alone, and only where a library names such an archive.
            named = any(code.in_archives for code in wheel.codes.values())
            others = [
                stack.enter_context(WheelArchive(path, limits=wheel.contents.limits))
                for path in (wheel.contents.beside if named else ())
            ]
            codes = add_archives(wheel.codes, self.source, context.layout.path_of, sites, others)
        return plan_gpus(
            context,
            codes,
            self.files,
            self.case.gpus,
            dlopened=dlopened_libraries(self.draft),
            release=(self.source.name.distribution, self.source.name.version.public),
            allow_gap=self.case.options.allow_isa_gap,
        )

    @cached_property
    def found(self) -> tuple[Finding, ...]:
        """Everything that is found and that the command shows, whatever the user selects."""
        command = self.case.command
        every = (one for producer in PRODUCERS if producer.is_shown(command) for one in producer.find(self))
        return tuple(with_hints(every, self.context.profile))

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What of that the user selects, and does not ignore."""
        return select(self.found, self.case.options.select, self.case.options.ignore)


@dataclass(frozen=True, slots=True)
class Producer:
    """What yields findings about an assessment.

    :ivar subject: what it looks at, for the table.
    :ivar not_in: the commands that do not show it → why.
    """

    subject: str
    find: Callable[[Assessment], Iterable[Finding]]
    not_in: Mapping[Command, str] = field(default_factory=dict)

    def is_shown(self, command: Command) -> bool:
        """Whether a command shows its findings."""
        return command not in self.not_in


def _find_stacks(assessed: Assessment) -> Iterable[Finding]:
    mapped = {file.path: [path for _, path in file.closure] for file in assessed.files}
    return stack_findings(assessed.source, assessed.context, assessed.case.wheel.tables, mapped)


def _find_layers(assessed: Assessment) -> Iterable[Finding]:
    if assessed.context.layout.tree:
        return ()
    context, named = assessed.context, assessed.is_python_named
    return layer_findings(context.providers, context.target, context.vendor, named=named)


def _find_python_of_programs(assessed: Assessment) -> Iterable[Finding]:
    """Yield RLK208 for each program beside site-packages that gets a search path into that of one Python."""
    layout, name = assessed.context.layout, assessed.source.name
    if layout.tree or version_in_tags(name) is not None:
        return
    known = assessed.is_python_named and assessed.case.target.python_facts is not None
    for file in assessed.files:
        place = posixpath.dirname(layout.path_of(file.path))
        before = (file.rpath.before or "").split(":")
        for entry in (file.rpath.after or "").split(":") if not is_below(place, layout.site_packages) else ():
            found = posixpath.normpath(entry.replace("$ORIGIN", place))
            if entry not in before and is_below(found, layout.site_packages):
                text = (
                    f"search path entry {entry} is that of one Python, and the wheel's tags are for several"
                )
                yield finding("RLK208", file.path, text, level="info" if known else None)


def _find_gpu_code(assessed: Assessment) -> Iterable[Finding]:
    # An environment is checked for the GPUs that are there or that were named, and for no others.
    return assessed.gpu.findings if assessed.case.gpus or assessed.case.command != "check" else ()


def _find_packages(assessed: Assessment) -> Iterable[Finding]:
    gpus = processors_of(assessed.case.options.requested_gpus, assessed.vendor)
    return packages_findings(assessed.source, assessed.context, assessed.files, gpus)


def _find_changes(assessed: Assessment) -> Iterable[Finding]:
    """Yield what becomes of the wheel's name, tags and requirements; or RLK507, where nothing of it changes."""
    if not assessed.changes:
        product = assessed.vendor.product
        as_it_is = assessed.context.as_it_is
        alone = f"needs no {product}: left as it is" if as_it_is else "every file loads as it is"
        yield finding("RLK507", assessed.source.path.name, alone)
        return
    if assessed.is_release_unknown:
        where = ", ".join(provider.path for provider in assessed.provider_facts)
        yield finding("RLK508", where, "the output's version ends in +relinked")
    output, profile = assessed.output.filename, assessed.context.profile
    yield from relocation_findings(assessed.relocation, output)
    yield from requirement_findings(assessed.requirements, assessed.dropped_members, output, profile)


def _find_idle_stubs(assessed: Assessment) -> Iterable[Finding]:
    plan = assessed.case.plan
    return idle_findings(plan, assessed.files, assessed.context) if plan is not None else ()


def _find_reliance(assessed: Assessment) -> Iterable[Finding]:
    case = assessed.case
    if case.plan is None or case.site is None:
        return ()
    return reliance_findings(case.plan, assessed.files, case.site, case.target)


_IN_PLAN = "the plan has them already: nothing is decided anew"
_NO_OUTPUT = "no wheel is written"
_NOT_LINKED = "no libraries were named to link it to"
_TREES = "its trees show it"
_OTHER = "it shows who loads whom; `relink WHEEL --dry-run` has everything"
_AS_INSTALLED = "an installer has accepted it"

PRODUCERS: list[Producer] = [
    Producer(
        "the archive, RECORD, METADATA, and files that cannot be read",
        lambda assessed: assessed.case.wheel.findings,
        {"apply": _IN_PLAN, "explain": _OTHER},
    ),
    Producer(
        "tags: which Python installs it",
        lambda assessed: wheel_tag_findings(assessed.source, assessed.case.target, assessed.case.options),
        {
            "tree": "a directory has no tags",
            "apply": _IN_PLAN,
            "verify": "the files are asked about, whoever installs them",
            "explain": _OTHER,
            "nix without libraries": "nixpkgs chooses the Python",
            "check": _AS_INSTALLED,
        },
    ),
    Producer(
        "stubs and forwarders",
        lambda assessed: assessed.stubs.findings,
        {
            "apply": _IN_PLAN,
            "verify": _NO_OUTPUT,
            "nix without libraries": _NOT_LINKED,
            "check": _NO_OUTPUT,
        },
    ),
    Producer(
        "libraries, search paths, versions, symbols and dlopen",
        lambda assessed: assessed.draft.findings,
        {"apply": _IN_PLAN, "explain": _TREES, "nix without libraries": _NOT_LINKED},
    ),
    Producer(
        "programs that find site-packages",
        _find_python_of_programs,
        {"apply": _IN_PLAN, "explain": _TREES},
    ),
    Producer("executable stacks", _find_stacks, {"apply": _IN_PLAN}),
    Producer(
        "several site-packages of one Python",
        _find_layers,
        {
            "tree": "a directory is not installed",
            "apply": _IN_PLAN,
            "verify": "--in names the site-packages",
            "explain": _OTHER,
            "check": "all of them are checked",
        },
    ),
    Producer(
        "the vendor's packages beside it, and Python code that loads libraries by name",
        _find_packages,
        {"apply": _IN_PLAN, "explain": _OTHER},
    ),
    Producer(
        "name, tags and requirements of the result",
        _find_changes,
        {
            "apply": _IN_PLAN,
            "verify": _NO_OUTPUT,
            "explain": _OTHER,
            "nix without libraries": _NOT_LINKED,
            "check": _NO_OUTPUT,
        },
    ),
    Producer(
        "GPU code",
        _find_gpu_code,
        {
            "apply": _IN_PLAN,
            "explain": "it has no part in who loads whom",
            "nix without libraries": _NOT_LINKED,
        },
    ),
    Producer("stubs whose library is there now", _find_idle_stubs),
    Producer("what the result relies on beside it", _find_reliance),
]
"""Everything that yields findings, in the order in which they are shown."""


def assess(case: Case, trace: Trace | None = None) -> Assessment:
    """Assess a case: decide what its files are linked to, or see what they load as they are.

    A wheel is planned in several attempts: each is planned whole, and the result says whether another one follows.

    :param trace: takes the attempts; full, it ends them.
    """
    trace = trace if trace is not None else Trace()
    setup = _first_setup(case)
    while True:
        made = _attempt(setup)
        trace.note(setup.what, made)
        following = None if trace.is_full else _following(setup, made)
        if following is None:
            return made
        setup = following


@dataclass(frozen=True, slots=True)
class _Setup:
    """What one attempt is made with.

    :ivar alone: the files stay as they are, and no provider counts: for a wheel that may have nothing to do with a vendor.
    :ivar copies: as in :class:`Assessment`; `whole` is the case with them.
    """

    case: Case
    what: str
    context: ResolveContext
    tables: Mapping[str, SymbolTable]
    stubs: StubPlans
    alone: bool = False
    copies: tuple[str, ...] = ()
    whole: Case | None = None


def _first_setup(case: Case) -> _Setup:
    """Return how a case is planned first: without the wheel's own copies of libraries, where it has such."""
    if case.as_it_is or (case.layout and case.layout.tree):
        return _setup_of(case, "the files as they are" if case.as_it_is else "the files of the directory")
    wheel = case.wheel
    profile = profile_for(wheel.source.name.distribution, case.options.profile)
    copies = find_copies(wheel, profile, case.vendor, case.providers)
    if copies is None:
        return _setup_of(case, "the wheel")
    if not copies.removed:
        return _with_copies(case, copies.told)
    left = finding("RLK541", wheel.source.path.name, copies.told)
    rest = replace(case, wheel=replace(copies.rest, findings=(*wheel.findings, left)))
    setup = _setup_of(rest, "without the wheel's own copies of libraries")
    return replace(setup, copies=copies.removed, whole=case)


def _with_copies(case: Case, why: str) -> _Setup:
    wheel, text = case.wheel, f"the wheel's own copies of the libraries stay: {why}"
    stay = finding("RLK546", wheel.source.path.name, text)
    return _setup_of(
        replace(case, wheel=replace(wheel, findings=(*wheel.findings, stay))), "with its own copies"
    )


def _setup_of(case: Case, what: str) -> _Setup:
    context, tables = context_of(case), case.wheel.tables
    options, name = case.options, case.wheel.source.name.distribution
    if case.as_it_is:
        if case.command == "apply" and case.plan is not None:
            context, tables = with_stubs(context, tables, case.plan.stubs)
        # Most of an environment has nothing to do with a vendor.
        alone = case.command == "check" and not (context.siblings or _opens_vendor(context, case))
        return _Setup(case, what, context, tables, StubPlans(), alone)
    stubs = plan_stubs(context, tables, options.stub, name)
    context, tables = with_stubs(context, tables, stubs.stubs)
    forwarders = plan_forwarders(context, tables, options.forward, name)
    context, tables = with_stubs(context, tables, forwarders.stubs)
    added = StubPlans((*stubs.stubs, *forwarders.stubs), (*stubs.findings, *forwarders.findings))
    # A wheel that has nothing to do with the vendor stays as it is, unless something of it changes in any case.
    asks = not context.layout.tree and of_vendor(case.wheel.source, context.vendor, context.providers)
    alone = not (context.layout.tree or added.stubs or asks or _names_vendor(context, case))
    return _Setup(case, f"{what}, as it is" if alone else what, context, tables, added, alone)


def _names_vendor(context: ResolveContext, case: Case) -> bool:
    """Whether a file needs a library of the vendor's, or has GPU code."""
    names = (name for image in case.wheel.images.values() for name in image.needed)
    codes = case.wheel.codes.values()
    return any(map(context.vendor.libraries.is_own, names)) or any(code.present for code in codes)


def _opens_vendor(context: ResolveContext, case: Case) -> bool:
    """Whether a file needs, is, or may open a library of the vendor's, or has GPU code."""
    names = [image.soname or "" for image in context.images.values()]
    names += [name for opened in context.opens.values() for name in opened]
    known = any(map(context.profile.dlopens, context.images))
    return known or any(map(context.vendor.libraries.is_own, names)) or _names_vendor(context, case)


def _attempt(setup: _Setup) -> Assessment:
    if setup.alone and setup.case.command == "check":
        return Assessment(setup.case, draft_links(setup.context), setup.stubs)
    context = replace(setup.context, providers=(), as_it_is=True) if setup.alone else setup.context
    return Assessment(setup.case, decide(context, setup.tables), setup.stubs, setup.copies)


def _following(setup: _Setup, made: Assessment) -> _Setup | None:
    """Return what is tried after an attempt; None where its result is taken."""
    if setup.alone:
        return (
            None
            if _is_unrelated(setup.context, made)
            else replace(setup, alone=False, what="linked to the providers")
        )
    errors = (reported for reported in made.findings if reported.level == "error")
    if setup.whole is not None and (error := next(errors, None)) is not None:
        why = f"it would not do with the prefix's: {error.code} {error.subject}: {error.message}"
        return _with_copies(setup.whole, why)
    return None


def _is_unrelated(context: ResolveContext, made: Assessment) -> bool:
    """Whether a wheel loads as it is, and opens and maps nothing of the vendor's nor of what a prefix alone has.

    :param context: with the providers, which do not count in the attempt.
    """
    draft, own = made.draft, context.vendor.libraries.is_own
    if has_errors(draft.findings) or any(own(edge.name) for edge in draft.opened):
        return False
    if not all(outcome.loads for outcome in draft.outcomes.values()):
        return False
    return not any(has_vendors(context, mapped_for(outcome)) for outcome in draft.outcomes.values())


def _provider_facts(provider: Provider, sysroot: str, vendor: Vendor) -> ProviderFacts:
    release = vendor.libraries.release_of(provider, sysroot) or release_of(provider, sysroot)
    version, evidence = (release.release, release.evidence) if release else (None, None)
    return ProviderFacts(provider.kind, provider.path, version, evidence, provider.found_by)
