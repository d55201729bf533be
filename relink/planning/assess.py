"""The one assessment of a wheel, a tree or an installed distribution: what loads, with which edits, and everything that is found.

Takes a :class:`~relink.planning.case.Case`; gives an :class:`Assessment`. run, apply, verify, explain, nix, check, repair and the
copy of a tree call :func:`assess`. Everything that yields findings before something is written is one line of
:data:`PRODUCERS`; a command says there what it does not show, and why. docs/producers.md has the table.
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from relink.elf.image import machine_name
from relink.gpu.coverage import GpuPlan
from relink.loader.process import find_refused
from relink.planning.case import Case, Command, build_context, is_python_named, open_used_places
from relink.planning.checks.executable_stack import stack_findings
from relink.planning.checks.gpu import describe_shrinking, gpu_label, list_dlopened_libraries, plan_gpus
from relink.planning.checks.tags import wheel_tag_findings
from relink.planning.model import ChangedRequirement, FilePlan, Plan, read_plan
from relink.planning.reading import list_required_versions
from relink.planning.resolve.context import ResolveContext, is_below, read_exact_version
from relink.planning.resolve.decide import PlanDraft, decide
from relink.planning.resolve.decision_findings import has_vendors, list_mapped, replaced_findings
from relink.planning.resolve.stubs import StubPlans, add_stubs, plan_forwarders, plan_shims, plan_stubs
from relink.planning.siblings import may_map_other_copies
from relink.planning.site import (
    NOTHING_BESIDE,
    Relocation,
    call_findings,
    choose_platform_tag,
    device_findings,
    find_copies,
    find_hosts,
    find_members_to_drop,
    find_relied_on,
    find_relocation,
    find_vendor_requirements,
    follow_label,
    idle_findings,
    layer_findings,
    list_overlays,
    packages_findings,
    reliance_findings,
    relocation_findings,
    requirement_findings,
)
from relink.providers.prefix import SITE_PACKAGES
from relink.providers.profiles import add_hints, profile_for
from relink.system.errors import UsageError, WheelError
from relink.system.findings.model import Finding, finding, has_errors, select_findings
from relink.system.text import join_truncated, pluralize
from relink.vendors.registry import add_archives, processors_of
from relink.wheel.archive import WheelArchive
from relink.wheel.naming import WheelName, relinked_name
from relink.wheel.source import MemberSource

if TYPE_CHECKING:  # slow to load
    from relink.planning.processes import ImportOutcome

MOST_ATTEMPTS = 30
"""How often one wheel is planned at most, the search for the way out of a refusal included."""


class Attempt(msgspec.Struct, frozen=True):
    """One plan that was made, for `relink explain --trace`.

    :ivar what: what was planned; `result`: whether its links have an error.
    :ivar members: for each member that is edited or lacks something, the strategy and how many edges nothing serves.
    """

    what: str
    result: str
    members: tuple[str, ...] = ()


class Trace(msgspec.Struct):
    """The plans that were made of one wheel, in order; all attempts of a run share one."""

    attempts: list[Attempt] = msgspec.field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether no other plan may be made."""
        return len(self.attempts) >= MOST_ATTEMPTS

    def note(self, what: str, draft: PlanDraft) -> None:
        """Note that a plan was made."""
        errors = [reported for reported in draft.findings if reported.level == "error"]
        result = (
            f"{pluralize(len(errors), 'error')}, {errors[0].code} {errors[0].subject}"
            if errors
            else "no error"
        )
        members = tuple(
            f"{member}: {outcome.strategy}, {pluralize(outcome.issue_count, 'edge')} not served"
            for member, outcome in draft.outcomes.items()
            if outcome.issue_count or outcome.strategy != "nothing"
        )
        self.attempts.append(Attempt(what, result, members))


class Rewrite(msgspec.Struct, frozen=True):
    """The changes of a wheel beside those of its ELF files.

    :ivar changes: whether anything of the wheel changes; without, it keeps its name.
    :ivar sites: the site-packages that have what the result relies on.
    :ivar removed: the members that leave the wheel, but for copies: name → why.
    :ivar is_labelled: whether the output's version names a release, or what the user said.
    """

    output: WheelName
    changes: bool = False
    relocation: Relocation = NOTHING_BESIDE
    sites: tuple[str, ...] = ()
    requirements: tuple[ChangedRequirement, ...] = ()
    removed: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_labelled: bool = True


class Assessment(msgspec.Struct, frozen=True, dict=True):
    """The facts about a case: how its files are linked, and all that follows.

    :ivar draft: what is decided about linking the files.
    :ivar stubs: the stubs and forwarders that are written.
    :ivar copies: the copies of the vendor's libraries that leave the wheel; `case.wheel` has them no longer.
    :ivar imported: what becomes of the package's import, where that was followed: a file does not load alone.
    """

    case: Case
    draft: PlanDraft
    stubs: StubPlans
    copies: tuple[str, ...] = ()
    imported: ImportOutcome | None = None

    @property
    def context(self) -> ResolveContext:
        """The context with the images as they will be."""
        return self.draft.context

    @property
    def source(self) -> MemberSource:
        """Where the members come from."""
        return self.case.wheel.source

    @cached_property
    def files(self) -> tuple[FilePlan, ...]:
        """The decisions about the ELF members, without stubs."""
        return tuple(file for file in self.draft.files if file.path in self.case.wheel.images)

    @cached_property
    def rewrite(self) -> Rewrite:
        """The changes of the wheel's name, tags and requirements; none where its files stay as they are."""
        return _rewrite(self)

    @cached_property
    def placed_context(self) -> ResolveContext:
        """The context with providers; where none was named, the places that the loader takes the vendor's libraries from."""
        context = self.context
        if context.providers or not self.case.as_it_is:
            return context
        taken = (pair for file in self.files if file.served for pair in file.closure)
        own = [path for name, path in taken if context.vendor.libraries.is_own(name)]
        return replace(context, providers=open_used_places(own, self.case.target))

    @cached_property
    def gpu(self) -> GpuPlan:
        """Whether the files, and the libraries that they reach, have code for the GPUs."""
        context, wheel, target = self.placed_context, self.case.wheel, self.case.target
        draft = replace(self.draft, context=context)
        sites = list_overlays(
            context.providers, context.layout, target, named=is_python_named(self.case.options)
        )
        with ExitStack() as stack:
            # Other wheels are opened for their archives of code alone, and only where a library names such an archive.
            named = any(code.in_archives for code in wheel.codes.values())
            others = [
                stack.enter_context(WheelArchive(path, limits=wheel.contents.limits))
                for path in (wheel.contents.beside if named else ())
            ]
            codes = add_archives(
                wheel.remaining, self.source, context.layout.path_of, sites, others, self.rewrite.removed
            )
        return plan_gpus(
            context,
            {name: code for name, code in codes.items() if name in wheel.images or not wheel.images}
            | {name: code for name, code in wheel.kernels.items() if name not in wheel.other_kernels},
            self.files,
            self.case.gpus,
            dlopened=list_dlopened_libraries(draft),
            release=(self.source.name.distribution, self.source.name.version.public),
            made_from=_read_plan_inside(self.case),
            allow_gap=self.case.options.allow_isa_gap,
        )

    @cached_property
    def found(self) -> tuple[Finding, ...]:
        """All findings that the command shows, whatever the user selects."""
        shown = (producer for producer in PRODUCERS if self.case.command not in producer.not_in)
        return tuple(
            add_hints((one for producer in shown for one in producer.find(self)), self.context.profile)
        )

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The findings that the user selects and does not ignore."""
        return select_findings(self.found, self.case.options.select, self.case.options.ignore)


def _read_plan_inside(case: Case) -> Plan | None:
    """Return the plan that relink wrote into the wheel; None where there is none, or none that can be read: it is a claim."""
    if case.plan is not None and case.command == "verify":
        return case.plan
    with suppress(UsageError, WheelError):
        return read_plan(case.wheel.source)
    return None


def _rewrite(assessed: Assessment) -> Rewrite:
    case, context, source, files = assessed.case, assessed.context, assessed.source, assessed.files
    options, target, vendor, providers = case.options, case.target, context.vendor, context.providers
    # A tree stays one, and what is only looked at stays as it is.
    stays = context.layout.tree or context.as_it_is
    asked = () if stays else find_vendor_requirements(source, vendor, providers, options.kept_gpus)
    kept = (case.wheel.images, f"{source.dist_info}/")
    members = [name for name in source.members if name not in kept[0] and not name.startswith(kept[1])]
    removed = {} if stays else find_members_to_drop(context.profile, members, providers, options.leave_out)
    removed |= {
        name: f"it is for {gpus} alone (--only-gpu)" for name, gpus in case.wheel.other_kernels.items()
    }
    shrinks = bool(options.kept_gpus)
    changes = bool(assessed.stubs.stubs or asked or removed or shrinks) or any(file.changed for file in files)
    if case.as_it_is or not changes:
        return Rewrite(source.name)
    siblings, sites = find_relied_on(files, providers, target)
    moves = find_relocation(files, providers, context.layout.links, target.interpreter, siblings)
    # Where nothing is linked anew the files need what they needed.
    platform = f"linux_{machine_name(target.header.machine)}" if case.wheel.images else source.name.platform
    if moves.relocatable:
        versions = list_required_versions(case.wheel.tables.values())
        platform = choose_platform_tag(source.name.platform, versions, files, target.header.machine)
    releases = (vendor.libraries.release_of(provider, target.sysroot) for provider in providers)
    label = options.local_version or next((release.label for release in releases if release), None)
    if label is not None and not options.local_version:
        label = _label_of_older_runtime(files, context) or label
    output = relinked_name(
        source.name,
        local=None if options.keep_version else label or "relinked",
        platform=platform,
        replaces=vendor.packages.version_label,
    )
    if shrinks and not (options.keep_version or options.local_version):
        output = relinked_name(
            output if label else source.name, local=gpu_label(options.kept_gpus), platform=platform
        )
    # These requirements follow the label of the output.
    following = () if stays else follow_label(source, output, vendor)
    own = (provider.path for provider in providers if provider.kind == SITE_PACKAGES)
    labelled = bool(options.keep_version or label is not None or shrinks)
    return Rewrite(output, True, moves, (*own, *sites), (*asked, *following), removed, labelled)


def _label_of_older_runtime(files: Sequence[FilePlan], context: ResolveContext) -> str | None:
    """Return the label of files that use another runtime than the newest of a place, whose release this is; else None."""
    runtime = context.vendor.libraries.runtime

    def majors(names: Iterable[str]) -> set[int]:
        numbers = (name.removeprefix(f"{runtime}.").partition(".")[0] for name in names)
        return {int(number) for number in numbers if re.fullmatch(r"[0-9]{1,9}", number)}

    used = majors(name for file in files for name, path in file.closure if context.is_held(path))
    newest = majors(name for provider in context.providers for name in provider.libraries)
    return f"{context.vendor.name}{max(used)}" if used and max(used) < max(newest, default=0) else None


class Producer(msgspec.Struct, frozen=True):
    """A source of findings about an assessment.

    :ivar subject: what it looks at, for the table.
    :ivar not_in: the commands that do not show it → why.
    """

    subject: str
    find: Callable[[Assessment], Iterable[Finding]]
    not_in: Mapping[Command, str] = msgspec.field(default_factory=dict)


def _find_stacks(assessed: Assessment) -> Iterable[Finding]:
    mapped = {file.path: [path for _, path in file.closure] for file in assessed.files}
    cleared = [file.path for file in assessed.files if file.clear_stack]
    return stack_findings(assessed.source, assessed.context, mapped, cleared)


def _find_unread(assessed: Assessment) -> Iterator[Finding]:
    """Yield RLK506 for tables with a damage that the loader does not see: an error where patchelf would edit the file."""
    for file in assessed.files:
        if unread := assessed.case.wheel.tables[file.path].unread:
            why = "what edits it reads them" if file.changed else "loading the file does not read that"
            text = f"damaged symbol tables ({join_truncated(unread)}): {why}"
            yield finding("RLK506", file.path, text, level=None if file.changed else "warning")


def _find_refused(assessed: Assessment) -> Iterator[Finding]:
    """Yield RLK116 for each file that dlopen refuses although the loader's dry run takes it."""
    draft, layout = assessed.draft, assessed.context.layout
    for member in draft.closures:
        closure = draft.outcomes[member].closure
        for loaded, reason in find_refused(closure, assessed.context.seen, assessed.case.target):
            own = loaded.path == layout.path_of(member)
            what = "it" if own else f"{layout.shown(loaded.path)}, which it needs"
            yield finding("RLK116", member, f"dlopen does not load {what}: {reason}")


def _find_replaced(assessed: Assessment) -> Iterable[Finding]:
    """Yield RLK210 where the files will be loaded by a Python of this machine, in a shell such as this one."""
    draft, options = assessed.draft, assessed.case.options
    value = "" if options.interpreter or options.sysroot else os.environ.get("LD_LIBRARY_PATH", "")
    # Tokens ($ORIGIN) are the loader's to expand, and an empty entry is the current directory.
    entries = (
        entry if entry[:1] in ("/", "$") else os.path.abspath(entry) for entry in re.split("[:;]", value)
    )
    outcomes = {file.path: draft.outcomes[file.path] for file in draft.files if file.served}
    return replaced_findings(assessed.context, outcomes, tuple(entries) if value else ())


def _find_python_of_programs(assessed: Assessment) -> Iterator[Finding]:
    """Yield RLK208 for each program beside site-packages that gets a search path into that of one Python."""
    layout, case = assessed.context.layout, assessed.case
    if layout.tree or read_exact_version(assessed.source.name) is not None:
        return
    known = is_python_named(case.options) and case.target.python_facts is not None
    for file in assessed.files:
        place, before = posixpath.dirname(layout.path_of(file.path)), (file.rpath.before or "").split(":")
        for entry in (file.rpath.after or "").split(":") if not is_below(place, layout.site_packages) else ():
            found = posixpath.normpath(entry.replace("$ORIGIN", place))
            if entry not in before and is_below(found, layout.site_packages):
                text = (
                    f"search path entry {entry} is that of one Python, and the wheel's tags are for several"
                )
                yield finding("RLK208", file.path, text, level="info" if known else None)


def _find_calls(assessed: Assessment) -> Iterable[Finding]:
    context = assessed.placed_context
    # A wheel without a file that is linked may open libraries by name all the same.
    context = replace(context, providers=context.providers or assessed.case.providers)
    return call_findings(assessed.case.wheel.contents.calls if context.providers else (), context)


def _find_changes(assessed: Assessment) -> Iterator[Finding]:
    """Yield the changes of the wheel's name, tags and requirements; or RLK507, where nothing changes."""
    context, made = assessed.context, assessed.rewrite
    if not made.changes:
        alone = (
            f"needs no {context.vendor.product}: left as it is"
            if context.as_it_is
            else "every file loads as it is"
        )
        yield finding("RLK507", assessed.source.path.name, alone)
        return
    if not made.is_labelled:
        where = ", ".join(provider.path for provider in context.providers)
        yield finding("RLK508", where or assessed.source.path.name, "the output's version ends in +relinked")
    if kept := assessed.case.options.kept_gpus:
        yield describe_shrinking(assessed.case.wheel, kept, made.output.filename)
    if not context.layout.tree:
        gpus = processors_of(assessed.case.gpus, context.vendor)
        yield from device_findings(assessed.source, context.vendor, gpus, made.requirements)
    yield from relocation_findings(made.relocation, made.output.filename)
    removed = {
        name: why for name, why in made.removed.items() if name not in assessed.case.wheel.other_kernels
    }
    yield from requirement_findings(made.requirements, removed, made.output.filename, context.profile)


def _find_gpu_code(assessed: Assessment) -> Iterable[Finding]:
    # An environment is checked for the GPUs that are there or that were named, and for no others.
    return assessed.gpu.findings if assessed.case.gpus or assessed.case.command != "check" else ()


def _find_pick(assessed: Assessment) -> Iterable[Finding]:
    """Return which of its libraries Python picks in the environment whose Python is named."""
    if not is_python_named(assessed.case.options):
        return ()
    from relink.planning.picks import find_wheel_pick  # noqa: PLC0415 - slow to load

    return find_wheel_pick(assessed.case.wheel, assessed.context, assessed.files)


def _find_import_failures(assessed: Assessment) -> Iterable[Finding]:
    """Return what ends the import in the Python that is named, where other packages are imported before.

    A missing library is told by who looks at the files.
    """
    context, mapped = assessed.context, [pair for file in assessed.files for pair in file.closure]
    named = is_python_named(assessed.case.options)
    if not (named and may_map_other_copies(context.siblings, mapped, context.files)):
        return ()
    from relink.planning.wheel_imports import find_import_failures  # noqa: PLC0415 - slow to load, and few wheels need it

    return find_import_failures(assessed.case.wheel, context, assessed.draft, mapped)


# Why a command does not show something.
_PLANNED: Mapping[Command, str] = {"apply": "the plan has it already: nothing is decided anew"}
_WRITES_NOTHING: Mapping[Command, str] = dict.fromkeys(
    ("verify", "check", "check tree"), "no wheel is written"
)
_UNLINKED: Mapping[Command, str] = {"nix without libraries": "no libraries were named to link it to"}
_DRAWN: Mapping[Command, str] = {"explain": "its trees show it"}
_ELSEWHERE: Mapping[Command, str] = {
    "explain": "it shows who loads whom; `relink WHEEL --dry-run` has everything"
}
_ANYWHERE: Mapping[Command, str] = dict.fromkeys(
    ("nix", "nix without libraries"), "the package runs in other shells than this one"
)
_IMPORTED: Mapping[Command, str] = {"check": "the processes that import it show it"}
_FOLLOWED: Mapping[Command, str] = {
    "verify": "it follows the import when the loader has been asked",
    "check": "the processes that import it show it",
    **dict.fromkeys(("tree", "check tree"), "no package is imported"),
    **dict.fromkeys(("nix", "nix without libraries"), "its environment is made later"),
}
_PICKED: Mapping[Command, str] = {command: why for command, why in _FOLLOWED.items() if command != "verify"}
_OF_FILES: Mapping[Command, str] = {
    "tree": "a directory is not installed",
    "verify": "the files are asked about, wherever they were installed",
    "check": "the files are asked about, where they were installed",
    "check tree": "the files are asked about, where they are",
}

PRODUCERS: list[Producer] = [
    Producer(
        "the archive, RECORD, METADATA, and files that cannot be read",
        lambda assessed: assessed.case.wheel.findings,
        {**_PLANNED, **_ELSEWHERE},
    ),
    Producer(
        "tags: which Python installs it",
        lambda assessed: wheel_tag_findings(assessed.source, assessed.case.target, assessed.case.options),
        {**_PLANNED, **_ELSEWHERE, **_UNLINKED, **_OF_FILES},
    ),
    Producer(
        "stubs and forwarders",
        lambda assessed: assessed.stubs.findings,
        {**_PLANNED, **_WRITES_NOTHING, **_UNLINKED},
    ),
    Producer(
        "libraries, search paths, versions, symbols and dlopen",
        lambda assessed: assessed.draft.findings,
        {**_PLANNED, **_DRAWN, **_UNLINKED},
    ),
    Producer("programs that find site-packages", _find_python_of_programs, {**_PLANNED, **_DRAWN}),
    Producer("tables of which the loader reads a part", _find_unread, {**_PLANNED, **_ELSEWHERE}),
    Producer("executable stacks", _find_stacks, _PLANNED),
    Producer("static TLS and the processor's ISA level", _find_refused, _PLANNED),
    Producer(
        "the import after that of other packages",
        _find_import_failures,
        {**_PLANNED, **_ELSEWHERE, **_FOLLOWED},
    ),
    Producer("the library that Python picks by torch", _find_pick, {**_PLANNED, **_ELSEWHERE, **_PICKED}),
    Producer(
        "LD_LIBRARY_PATH of the shell", _find_replaced, {**_PLANNED, **_DRAWN, **_IMPORTED, **_ANYWHERE}
    ),
    Producer(
        "several site-packages of one Python",
        lambda assessed: layer_findings(assessed.context, named=is_python_named(assessed.case.options)),
        {**_PLANNED, **_ELSEWHERE, **_OF_FILES},
    ),
    Producer(
        "the vendor's packages beside it",
        lambda assessed: packages_findings(
            assessed.placed_context, assessed.files, assessed.case.options.requested_gpus
        ),
        {**_PLANNED, **_ELSEWHERE},
    ),
    Producer(
        "Python code that loads libraries by name",
        _find_calls,
        {**_PLANNED, **_ELSEWHERE, **_IMPORTED},
    ),
    Producer(
        "name, tags and requirements of the result",
        _find_changes,
        {**_PLANNED, **_ELSEWHERE, **_UNLINKED, **_WRITES_NOTHING},
    ),
    Producer("GPU code", _find_gpu_code, {**_PLANNED, **_ELSEWHERE, **_UNLINKED}),
    Producer(
        "stubs whose library is there now",
        lambda assessed: idle_findings(assessed.case.plan, assessed.files, assessed.context),
    ),
    Producer(
        "what the result relies on beside it",
        lambda assessed: reliance_findings(
            assessed.case.plan, assessed.files, assessed.case.site, assessed.case.target
        ),
    ),
]
"""Everything that yields findings, in the order in which they are shown."""


# The commands that ask what the import of a wheel does without.
_IMPORTS: frozenset[Command] = frozenset({"run", "verify", "explain", "nix"})


class _Setup(msgspec.Struct, frozen=True):
    """The inputs of one attempt.

    :ivar alone: the files stay as they are, and no provider counts: for a wheel that may have nothing to do with a vendor.
    :ivar leave_optional: parts that the package does without are left, if the providers cannot serve them.
    :ivar copies: as in :class:`Assessment`; `whole` is the case with them.
    :ivar imported: what becomes of the package's import, once that has been followed.
    """

    case: Case
    what: str
    context: ResolveContext
    stubs: StubPlans
    alone: bool = False
    leave_optional: bool = True
    copies: tuple[str, ...] = ()
    whole: Case | None = None
    imported: ImportOutcome | None = None


def assess(case: Case, trace: Trace | None = None) -> Assessment:
    """Assess a case: decide the libraries that its files are linked to, or see which they load unchanged.

    A wheel is planned in several attempts. Each is planned whole, and its result says whether another one follows: a wheel that
    may have nothing to do with a vendor first as it is, one with copies of libraries first without these.

    :param trace: takes the attempts; full, it ends them.
    """
    trace = trace if trace is not None else Trace()
    setup = _first_setup(case)
    while True:
        context = replace(setup.context, providers=(), as_it_is=True) if setup.alone else setup.context
        draft = decide(context, leave_optional=setup.leave_optional)
        made = Assessment(setup.case, draft, setup.stubs, setup.copies, setup.imported)
        trace.note(setup.what, draft)
        following = None if trace.is_full else _following(setup, made)
        if following is None:
            return made
        setup = following


def _first_setup(case: Case) -> _Setup:
    """Return the first attempt for a case: a wheel with copies of libraries is planned without them."""
    wheel = case.wheel
    if case.options.use_host and case.command == "tree":
        raise UsageError("--use-host is for a wheel; of a directory no file is left out")
    if case.as_it_is or not case.is_installed:
        return _setup_of(case, "the files as they are" if case.as_it_is else "the files of the directory")
    if case.options.use_host:
        hosts, providers = find_hosts(wheel, case.options.use_host, case.vendor, case.providers)
        left = finding("RLK541", wheel.source.path.name, hosts.explanation)
        rest = replace(case, wheel=replace(hosts.rest, findings=(*wheel.findings, left)), providers=providers)
        return replace(_setup_of(rest, "with libraries of the host"), copies=hosts.removed)
    profile = profile_for(wheel.source.name.distribution, case.options.profile)
    copies = find_copies(wheel, profile, case.vendor, case.providers)
    if copies is None:
        return _setup_of(case, "the wheel")
    if not copies.removed:
        return _with_copies(case, copies.explanation)
    left = finding("RLK541", wheel.source.path.name, copies.explanation)
    rest = replace(case, wheel=replace(copies.rest, findings=(*wheel.findings, left)))
    setup = _setup_of(rest, "without the wheel's own copies of libraries")
    return replace(setup, copies=copies.removed, whole=case)


def _with_copies(case: Case, why: str) -> _Setup:
    wheel, text = case.wheel, f"the wheel's own copies of the libraries stay: {why}"
    stay = finding("RLK546", wheel.source.path.name, text)
    # The libraries that a wheel brings and that a provider has for the driver of this machine.
    vendor, names = case.vendor, [image.soname for image in wheel.images.values()]
    hosts = {
        name: of_host
        for name in (names if vendor.libraries.needs_host(case.target.sysroot) else ())
        if name
        and (of_host := vendor.libraries.of_host(name))
        and any(place.find(name) for place in case.providers)
    }
    if hosts:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in hosts.items())
        step = " ".join(f"--use-host {shlex.quote(name)}" for name in hosts)
        text = f"{text}; but this machine's are to be taken: {reasons}"
        stay = finding("RLK546", wheel.source.path.name, text, level="warning", step=step)
    kept = replace(case, wheel=replace(wheel, findings=(*wheel.findings, stay)))
    return _setup_of(kept, "with its own copies of libraries")


def _setup_of(case: Case, what: str) -> _Setup:
    """Return how a case is planned, with the stubs and forwarders that are asked for."""
    context, options = build_context(case), case.options
    if case.as_it_is:
        if case.command == "apply" and case.plan is not None:
            context = add_stubs(context, case.plan.stubs)
        return _Setup(case, what, context, StubPlans())
    added = StubPlans()
    for plan, wanted in (
        (plan_stubs, options.stub),
        (plan_shims, options.stub),
        (plan_forwarders, options.forward),
    ):
        made = plan(context, wanted, case.wheel.source.name.distribution)
        context = replace(context, shims={**context.shims, **made.uses})
        context = add_stubs(context, made.stubs)
        added = StubPlans((*added.stubs, *made.stubs), (*added.findings, *made.findings))
    # A wheel that has nothing to do with the vendor stays as it is, unless something of it changes in any case.
    own, names = context.vendor.libraries.is_own, case.wheel.needed
    related = any(map(own, names)) or any(code.present for code in case.wheel.codes.values())
    asks = (
        context.layout.tree
        or added.stubs
        or options.leave_out
        or options.clear_execstack
        or options.kept_gpus
        or find_vendor_requirements(case.wheel.source, context.vendor, context.providers)
    )
    alone = not (related or asks)
    return _Setup(case, f"{what}, as it is" if alone else what, context, added, alone)


def _following(setup: _Setup, made: Assessment) -> _Setup | None:
    """Return the next attempt; None where the result is taken."""
    if made.draft.is_in_vain:
        return replace(setup, leave_optional=False, what=f"{setup.what}, optional parts included")
    if setup.alone:
        return (
            None
            if _is_unrelated(setup.context, made)
            else replace(setup, alone=False, what="linked to the providers")
        )
    if setup.imported is None and setup.case.command in _IMPORTS and made.draft.lacks:
        from relink.planning.wheel_imports import follow_wheel  # noqa: PLC0415 - slow to load, and few wheels need it

        imported = follow_wheel(setup.case.wheel, made.context)
        if imported is not None:
            context = replace(setup.context, optional=imported.find_optional())
            what = f"{setup.what}, without what its import does without"
            return replace(setup, imported=imported, context=context, what=what)
    errors = (reported for reported in made.findings if reported.level == "error")
    if setup.whole is not None and (error := next(errors, None)) is not None:
        return _with_copies(
            setup.whole, f"it would not do with the prefix's: {error.code} {error.subject}: {error.message}"
        )
    return None


def _is_unrelated(context: ResolveContext, made: Assessment) -> bool:
    """Whether a wheel loads unchanged, and maps or opens no library that the vendor or a prefix alone has.

    :param context: with the providers, which do not count in the attempt.
    """
    draft, own = made.draft, context.vendor.libraries.is_own
    if has_errors(draft.findings) or any(own(edge.name) for edge in draft.opened):
        return False
    outcomes = [draft.outcomes[file.path] for file in draft.files if file.served]
    return not any(not outcome.loads or has_vendors(context, list_mapped(outcome)) for outcome in outcomes)
