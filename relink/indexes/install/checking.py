"""`relink check`: each distribution of an environment as the environment's own Python would load it, and what does not work.

Only sources, headers, dynamic sections, symbols and the headers of GPU code are read. Nothing of the environment runs but its
Python, which says where it looks. What loads is what a process maps that imports the package (:mod:`relink.planning.processes`);
what the GPU part does is the planner's answer (:mod:`relink.planning.resolve`), for the files as they are.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace as replace_fields
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from relink.gpu.coverage import RequestedGpu
from relink.indexes.install.environment import RealImport, TargetEnvironment, identify, import_all
from relink.indexes.install.replacing import find_interrupted
from relink.loader.python import ask_python
from relink.loader.seen_files import Files
from relink.loader.target import Target, find_target
from relink.planning.assess import assess
from relink.planning.case import Case
from relink.planning.contents import Contents
from relink.planning.model import PLAN_MEMBER, to_data
from relink.planning.options import Options
from relink.planning.picks import pick_findings
from relink.planning.processes import (
    DistributionFiles,
    EnvironmentProcesses,
    FailedOpening,
    ImportOutcome,
    top_modules,
)
from relink.planning.reading import SymbolFiles, Wheel, read_members
from relink.planning.resolve.context import Layout
from relink.planning.wheel_imports import apply_import, find_gpu_members
from relink.providers.prefix import soname_stem
from relink.providers.profiles import add_hints, profile_for
from relink.python.facts_cache import FactsCache, user_cache_directory
from relink.python.process import PlannedFiles
from relink.report.check_text import (
    DOCTOR,
    NOT_FOLLOWED,
    Checked,
    EnvironmentCheck,
    Imported,
    Proposal,
    environment_verdict,
)
from relink.report.summary import verdict_to_json
from relink.system.errors import MemberError, UsageError, WheelError, describe_failure
from relink.system.findings.model import Finding, Level, finding, has_errors, select_findings
from relink.system.progress import OnProgress
from relink.system.safe_open import map_file, open_regular, read_bytes
from relink.system.spool import Spool
from relink.system.text import group_pairs, join_truncated, join_with_and
from relink.vendors.protocol import Vendor
from relink.vendors.registry import (
    RECOGNIZED,
    VENDORS,
    find_driver_vendor,
    find_local_gpus,
    find_other_stack,
    find_places,
    list_kernel_suffixes,
    list_products,
    processors_of,
    vendor_of,
    vendors_of,
)
from relink.wheel.deflate.stream import Checkpoint
from relink.wheel.metadata import read_metadata
from relink.wheel.naming import WheelName
from relink.wheel.record import RecordKind, parse_record
from relink.wheel.source import READ_LIMIT
from relink.wheel.zipformat import Member

_NATIVE = re.compile(r"\.so(?:\.[\w.]+)?$")
_MENDABLE = {"RLK101", "RLK104", "RLK105", "RLK111", "RLK130", "RLK132", "RLK301", "RLK302"}
# The modules of a package without native code that are looked at, how many of them, and how far.
_SHALLOW = re.compile(r"[^/]+(?:/[^/]+)?\.py")
_MOST_MODULES = 2_000
_MODULE_BYTES = 1 << 20
_LIBRARY_NAME = re.compile(rb"\blib[A-Za-z0-9_+-]+\.so(?:\.\d+)*")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_PIECE = 1 << 16


class InstalledSource:
    """The files of an installed distribution, as RECORD lists them.

    :param site: the site-packages that the names are relative to.
    :ivar native: what has the name of a library, and `absent` those of them that are not there.
    :ivar opens_vendors: a module has the name of a vendor's library, which it may open.
    """

    def __init__(
        self, site: Path, dist_info: str, names: Iterable[str], *, opens_vendors: bool = False
    ) -> None:
        self.path, self.dist_info, self.data_dir = site, dist_info, None
        self.opens_vendors = opens_vendors
        names = [*names]
        self.native = [*filter(_NATIVE.search, names)]
        self.absent = [name for name in self.native if not os.path.lexists(site / name)]
        self.members = {
            name: Member(name, 0, 0, 0, 0, 0, 0, 0, 0, _LONG_AGO, 0, 3, is_directory=False)
            for name in names
            if name not in self.absent
        }
        name, _, self.version = dist_info.removesuffix(".dist-info").rpartition("-")
        self.name = WheelName(name, Version("0"), self.version, "", "py3", "none", "any")

    def may_be_elf(self, name: str) -> bool:
        """Whether a file has the name of a library or of GPU kernels."""
        return name.endswith(list_kernel_suffixes()) or _NATIVE.search(name) is not None

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file in small pieces, since often only the first few bytes are looked at.

        :raises MemberError: the file cannot be read, or is larger than a module or METADATA.
        """
        path = self.path / name
        opened = describe_failure(MemberError, f"{path} cannot be read")
        with opened, os.fdopen(open_regular(path, root=str(self.path)), "rb", 0) as file:
            for _ in range(READ_LIMIT // _PIECE):
                if not (data := file.read(_PIECE)):
                    return
                yield data
        raise MemberError(f"{path} has more than {READ_LIMIT} bytes")

    def read_into(
        self, name: str, on_progress: OnProgress = lambda _: None, *, spool: Spool | None = None
    ) -> memoryview:
        """Map a file: of a large one only the headers are read.

        :raises MemberError: the file cannot be read.
        """
        del on_progress, spool
        path = self.path / name
        with describe_failure(MemberError, f"{path} cannot be read"), map_file(path) as buffer:
            return memoryview(buffer)

    def read_lazily(
        self, name: str, on_progress: OnProgress, signatures: Collection[bytes], spool: Spool | None
    ) -> tuple[memoryview, list[Checkpoint]]:
        """Map a file, as :meth:`read_into`."""
        del signatures
        return self.read_into(name, on_progress, spool=spool), []

    def sha256(self, on_progress: OnProgress = lambda _: None) -> str:
        """Return nothing: no plan is made of what is installed."""
        del on_progress
        return ""

    def close(self) -> None:
        """Do nothing: no file is open between two calls."""


class _World(msgspec.Struct, frozen=True):
    """What all distributions share: the target, and the GPUs.

    :ivar has_other: packages of a vendor are installed that relink links no wheel to.
    :ivar runs_other: the driver of such a vendor is loaded here, and no GPU is here or asked for that relink knows.
    :ivar processes: those of the environment's Python, with what was read of the disk.
    :ivar owners: the distribution that has a library, by the library's file name.
    :ivar tells_events: what each import opens is part of the answer.
    :ivar imports: what came of importing each distribution, by its dist-info, where that was asked for.
    """

    target: Target
    processes: EnvironmentProcesses
    gpus: tuple[RequestedGpu, ...]
    has_other: bool
    runs_other: bool
    owners: Mapping[str, InstalledSource]
    tells_events: bool
    imports: Mapping[str, RealImport]


def check_environment(
    environment: TargetEnvironment,
    options: Options,
    why: str | None = None,
    *,
    imports: bool = False,
    proposes: bool = False,
) -> EnvironmentCheck:
    """Check every distribution with native code in an environment.

    :param options: the GPUs, and which findings count.
    :param why: the distribution that alone is looked at, with what its import opens.
    :param imports: import each distribution in a process: its code runs, and what happens is the verdict.
    :param proposes: plan the repair of what does not work, by `options`, whose command is that repair.
    :raises TargetError: its Python cannot be asked.
    :raises UsageError: `why` is not installed.
    """
    target = find_target(python=environment.python)
    files = Files(target.sysroot)
    gpus = tuple(options.requested_gpus or find_local_gpus())
    names = [entry for site in environment.site if site.is_dir() for entry in os.listdir(site)]
    has_other = any(vendor.packages.is_package(name) for vendor in RECOGNIZED for name in names)
    python = target.python_facts or ask_python(environment.python)
    unreadable: list[Finding] = []
    sources = [found for site in environment.site for found in _distributions(site, unreadable)]
    named = sources
    if why is not None:
        wanted = canonicalize_name(why)
        named = [source for source in sources if canonicalize_name(source.name.distribution) == wanted]
        if not named:
            raise UsageError(f"{why} is not installed in {environment.prefix}, or has no native code")
    checked: list[Checked] = []
    sonames: dict[str, None] = {}
    others: dict[str, tuple[Vendor, str]] = {}
    proposals: list[Proposal] = []
    read = 0
    with closing(FactsCache(user_cache_directory() / "facts.sqlite")) as cache:
        absent = frozenset(f"{source.path}/{name}" for source in sources for name in source.absent)
        planned = PlannedFiles(absent=absent)
        processes = EnvironmentProcesses(target, python, files, os.environ, cache, planned=planned)
        tops = {
            source.dist_info: modules
            for source in (named if imports else ())
            if (modules := top_modules(source.name.distribution, source.members, processes.interpreter))
        }
        world = _World(
            target,
            processes,
            gpus,
            has_other,
            not gpus and any(os.path.exists(vendor.libraries.driver_file) for vendor in RECOGNIZED),
            {posixpath.basename(name): source for source in reversed(sources) for name in source.native},
            why is not None,
            import_all(environment.python, tops) if imports else {},
        )
        for source in named:
            try:
                with Contents(source.path, source=source, keeps=False) as contents:
                    symbols = SymbolFiles(str(source.path), processes.read_symbols, cache)
                    wheel = read_members(contents, target, symbols=symbols)
                    text = "RECORD lists it, and it is not there"
                    gone = (finding("RLK101", name, text) for name in source.absent)
                    wheel = replace(wheel, findings=(*gone, *wheel.findings))
                    read += len(wheel.images)
                    # What is for another machine is no image.
                    is_native = wheel.images or any(found.code == "RLK505" for found in wheel.findings)
                    shown = is_native or wheel.kernels or source.opens_vendors or source.native
                    if not shown and not has_errors(wheel.findings):
                        continue
                    files.budget.mapped = 0
                    one, mapped = _checked(source, wheel, world, options)
                    # What works but for what opens the vendor's library: a prefix may have that.
                    in_vain = one.level == "warning" and any(f.code == "RLK132" for f in one.findings)
                    if proposes and (one.mendable or (in_vain and not one.relinked)):
                        from relink.indexes.install.proposing import propose  # noqa: PLC0415 - slow to load

                        repair = replace_fields(options, python=environment.python)
                        proposal = propose(wheel, target, repair, gpus, processes.tables)
                        if proposal is not None and (one.mendable or proposal.commands != DOCTOR):
                            proposals.append(proposal)
                    elif proposes and one.level == "error" and not one.relinked:
                        from relink.indexes.install.proposing import propose_again  # noqa: PLC0415 - slow to load

                        again = propose_again(environment, one, source.path / source.dist_info)
                        proposals += [again] if again else []
            except WheelError as error:  # the others can be looked at
                reason = str(error).partition("; --limit")[0]  # which `relink check` does not have
                unreadable.append(_unreadable(source.dist_info, reason))
                continue
            checked.append(one)
            needed = (soname for image in wheel.images.values() for soname in image.needed)
            if not one.needs and (other := next(filter(None, map(find_other_stack, needed)), None)):
                others[one.name] = other
            sonames |= dict.fromkeys(mapped)
    if what := find_interrupted(environment):
        remedy = "The next `relink install` or `relink repair` of this environment puts it back."
        unreadable.append(finding("RLK554", what, "was being replaced when relink was killed", remedy))
        # What else is to be done is known once all is as it was.
        proposals = [Proposal(what.partition(" ")[0])] if proposes else []
    relinked = ((canonicalize_name(one.name), one.version) for one in checked if one.relinked)
    together = [
        *unreadable,
        *_drivers(checked),
        *pin_findings(environment, dict(relinked)),
        *_runtimes(checked, environment),
        *_other_stacks(checked, others, world, options),
        *_packages(environment, target, sonames, options),
    ]
    findings = _selected(together, options)
    stacks = (found for found in findings if (found.code, found.level) == ("RLK551", "error"))
    wrong = {found.subject: f"does not work on the GPU: it {found.message}" for found in stacks}
    distributions = (
        replace(one, level="error", text=wrong[one.name])
        if one.name in wrong and one.level != "error"
        else one
        for one in sorted(checked, key=lambda one: one.name.lower())
    )
    command = tuple(options.command) if proposes else ()
    return EnvironmentCheck(
        str(environment.prefix), tuple(distributions), findings, read, tuple(proposals), command
    )


def pin_findings(environment: TargetEnvironment, versions: Mapping[str, str]) -> Iterator[Finding]:
    """Yield RLK556 for installed distributions that require a package (canonical name → version) with another local label."""
    sites = environment.site if versions else ()
    for file in (one for site in sites for one in sorted(site.glob("*.dist-info/METADATA"))):
        requirements: list[tuple[str, Requirement]] = []
        with suppress(OSError, WheelError):
            requirements += read_metadata(read_bytes(file, READ_LIMIT)).requirements()
        for text, wanted in requirements:
            version = versions.get(canonicalize_name(wanted.name))
            pinned = "+" in str(wanted.specifier) and "extra" not in str(wanted.marker)
            if version and pinned and not wanted.specifier.contains(version, prereleases=True):
                by = file.parent.name.partition("-")[0]
                yield finding("RLK556", by, f"requires {text}, not {wanted.name} {version}")


def _unreadable(dist_info: str, reason: str, level: Level = "error") -> Finding:
    return finding(
        "RLK554", dist_info.removesuffix(".dist-info"), f"was not looked at: {reason}", level=level
    )


def _distributions(site: Path, unreadable: list[Finding]) -> Iterator[InstalledSource]:
    """Yield the distributions of a site-packages that have a file which looks native; without RECORD nobody knows the files.

    :param unreadable: those whose RECORD cannot be read come into it.
    """
    for entry in sorted(os.listdir(site)) if site.is_dir() else ():
        if not entry.endswith(".dist-info"):
            continue
        try:
            record = read_bytes(site / entry / "RECORD", READ_LIMIT, root=str(site))
        except OSError as error:
            # Packages of Debian and of some other systems have none, and are managed by these.
            level: Level = "warning" if error.errno == errno.ENOENT else "error"
            unreadable.append(_unreadable(entry, f"its RECORD cannot be read ({error.strerror})", level))
            continue
        try:
            rows, issues = parse_record(record)
        except WheelError as error:
            unreadable.append(_unreadable(entry, str(error)))
            continue
        if damaged := [issue.message for issue in issues if issue.kind is RecordKind.MALFORMED]:
            unreadable.append(_unreadable(entry, f"not all of its RECORD can be read ({damaged[0]})"))
        # RECORD lists scripts as ../../../bin/NAME, and a hostile one any file: only what is below site-packages is read.
        names = [posixpath.normpath(row.path) for row in rows if "\0" not in row.path]
        names = [name for name in names if not name.startswith(("..", "/"))]
        if any(text.encode() in record for text in (".so", *(f"{one}," for one in list_kernel_suffixes()))):
            try:
                read_metadata(read_bytes(site / entry / "METADATA", READ_LIMIT, root=str(site)))
            except (WheelError, OSError) as error:
                unreadable.append(_unreadable(entry, str(error)))
                continue
            yield InstalledSource(site, entry, names)
            continue
        # A module that opens libraries by ctypes or cffi, and has the name of a vendor's library.
        for module in islice(filter(_SHALLOW.fullmatch, names), _MOST_MODULES):
            try:
                content = read_bytes(site / module, _MODULE_BYTES, root=str(site))
            except OSError:
                continue
            libraries = {found.decode() for found in _LIBRARY_NAME.findall(content)}
            if (b"ctypes" in content or b"cffi" in content) and vendors_of(libraries):
                yield InstalledSource(site, entry, names, opens_vendors=True)
                break


def _checked(
    source: InstalledSource, wheel: Wheel, world: _World, options: Options
) -> tuple[Checked, dict[str, None]]:
    """Return what is to be said of one distribution, and the sonames that it maps."""
    name = source.name.distribution
    gpu = find_gpu_members(wheel)
    preload = [member for member in profile_for(name).preload if member in wheel.images]
    hosts = {
        owner.name.distribution: owner.members
        for image in wheel.images.values()
        for soname in image.needed
        if (owner := world.owners.get(soname)) is not None and owner is not source
    }
    files = DistributionFiles(str(source.path), name, source.members, wheel.images, gpu, preload, hosts)
    python = world.processes.python
    if world.has_other and not has_errors(wheel.findings) and profile_for(name).variants:
        # Variants are that vendor's business whose own packages are installed; which one Python picks may be told.
        findings = _selected([*pick_findings(python, files, vendor_of(wheel.needed))], options)
        level, text = _judge(findings, vendor_of(wheel.needed), gpu_part=True)
        return Checked(canonicalize_name(name), source.version, level, text, findings=findings), {}
    predicted = world.processes.follow(files)
    opened_drivers = [one for one in (*predicted.failed, *predicted.lost.values()) if _is_driver(one)]
    drivers = tuple(dict.fromkeys(name for opening in opened_drivers for name in opening.missing))
    outcome = predicted.keep_failures(lambda opening: not _is_driver(opening))
    imported = None
    if (real := world.imports.get(source.dist_info)) is not None:
        missed, invented = real.differs([path for _, path in predicted.mapped], world.imports[""])
        ends = [opening.why for opening in predicted.failed if opening.event.when == "certain"]
        # What an import would have mapped after it fails is not known.
        differences = (missed, invented) if real.error is None else ((), ())
        ended = real.error and " ".join(real.error.split())
        imported = Imported(ended, next(iter(ends), predicted.stopped), *differences)
        outcome = _as_it_happened(outcome, real)
    judged = [member for member in gpu if outcome.parts[member] != "foreign"]
    # The planner is asked about the files that are there for the GPU.
    tables = {member: wheel.tables[member] for member in judged}
    images = {member: wheel.images[member] for member in judged}
    part = replace(wheel, images=images, tables=tables, findings=())
    layout = Layout(str(source.path), tree=True)
    assessed = assess(
        Case(part, world.target, (), options, "check", world.gpus, layout, seen=world.processes.tables)
    )
    # RLK124 of the planner tells what the profile calls optional of the GPU part.
    optional = {f"{source.path}/{one.subject}" for one in assessed.found if one.code == "RLK124"}
    failed = (one for one in outcome.failed if one.event.when == "certain" or one.event.name not in optional)
    outcome = replace(outcome, failed=tuple(failed))
    files_found = wheel.findings
    tops = top_modules(name, source.members, world.processes.interpreter)
    # Of a namespace package an import does nothing.
    has_source = any(one in source.members for top in tops for one in (f"{top}.py", f"{top}/__init__.py"))
    if has_source and not (gpu or outcome.stopped or outcome.failed):
        files_found = tuple(_tell_unused(one, wheel.images) for one in files_found)
    every = apply_import(assessed.found, outcome, str(source.path), files_found, is_installed=True)
    unserved = [file.path for file in assessed.files if not file.served]
    picked = pick_findings(python, files, assessed.context.vendor, unserved)
    if imported is not None and imported.error is not None:
        every.append(finding("RLK555", name, imported.error))
    findings = _selected([*every, *add_hints(picked, assessed.context.profile)], options)
    findings = assessed.context.name_packages(findings)
    loaded = [*outcome.mapped, *(pair for file in assessed.files if file.served for pair in file.closure)]
    vendor = assessed.context.vendor
    runtime = vendor.libraries.runtime
    runtimes: dict[str, None] = {}
    for path in (path for soname, path in loaded if soname_stem(soname) == runtime):
        image, stem = assessed.context.files.open(path).image, soname_stem(posixpath.basename(path))
        # A forwarder has nothing itself and leads to a library of its own name, in another version.
        if image is None or stem not in map(soname_stem, image.needed):
            runtimes[os.path.realpath(path)] = None
    needs = any(vendor.libraries.is_own(soname) for image in wheel.images.values() for soname in image.needed)
    errors = [reported for reported in findings if reported.level == "error"]
    relinked = f"{source.dist_info}/{PLAN_MEMBER}" in source.members
    level, text = _judge(findings, vendor, gpu_part=needs)
    # What cannot be read may be what opens the file that does not load.
    unsure = outcome.stopped or (outcome.unsure if outcome.lost or source.absent else None)
    if unsure and not errors:
        level, text = "warning", f"{NOT_FOLLOWED}: {unsure}"
    unfound = [f.subject for f in findings if f.code == "RLK132" and soname_stem(f.subject) == runtime]
    found = any(edge.resolved and soname_stem(edge.name) == runtime for edge in assessed.draft.opened)
    if level == "info" and unfound and not (runtimes or found or world.runs_other):
        level, text = "warning", f"works, but for what opens {join_truncated(unfound)}, which is not found"
    checked = Checked(
        canonicalize_name(name),
        source.version,
        level,
        text,
        relinked,
        tuple(runtimes),
        needs,
        mendable=needs
        and not relinked
        and any(reported.code in _MENDABLE for reported in errors)
        and not any(one.code == "RLK128" and one.subject not in source.members for one in errors),
        findings=findings,
        parts=outcome.parts,
        drivers=drivers,
        imported=imported,
        events=tuple(outcome.describe_events(str(source.path))) if world.tells_events else (),
    )
    return checked, dict.fromkeys(soname for soname, _ in loaded)


def _as_it_happened(outcome: ImportOutcome, real: RealImport) -> ImportOutcome:
    """Return what was predicted of an import, without what was seen not to fail."""

    def failed(opening: FailedOpening) -> bool:
        return (opening.event.when != "certain" or real.error is not None) and not (
            real.mapped.keys() & identify([opening.event.name]).keys()
        )

    return replace(outcome.keep_failures(failed), stopped=None)


def _tell_unused(reported: Finding, images: Collection[str]) -> Finding:
    """Return what is said of a file that is gone or cannot be read, where the import ends well: not of a module at the top."""
    is_damaged = reported.code == "RLK506" and reported.subject not in images
    if "/" not in reported.subject or not (is_damaged or reported.code == "RLK101"):
        return reported
    told = finding("RLK124", reported.subject, f"{reported.message}; the import goes on without it")
    return replace(told, without=f"{reported.subject} ({'damaged' if is_damaged else 'not there'})")


def _is_driver(opening: FailedOpening) -> bool:
    """Whether a dlopen fails since this machine has not the driver."""
    return bool(opening.missing) and all(map(find_driver_vendor, opening.missing))


def _selected(findings: Sequence[Finding], options: Options) -> tuple[Finding, ...]:
    """Return the findings that count; a pattern may be about another package than this one, so none is told to match nothing."""
    chosen = select_findings(findings, options.select, options.ignore)
    return tuple(reported for reported in chosen if reported in findings)


def _judge(findings: Sequence[Finding], vendor: Vendor, *, gpu_part: bool) -> tuple[Level, str]:
    """Return the level of a distribution, and a sentence: first what it means, then by which libraries."""
    errors = [reported for reported in findings if reported.level == "error"]
    if not errors:
        lost = list(dict.fromkeys(reported.without for reported in findings if reported.without))
        return ("warning", f"works, without {join_truncated(lost)}") if lost else ("info", "works")
    what = "its GPU part does not load" if gpu_part else "does not load"
    missing = list(dict.fromkeys(reported.subject for reported in errors if reported.code == "RLK101"))
    for reported in errors:
        if reported.code == "RLK555":
            return "error", f"does not work: {reported.message}"
        if reported.code == "RLK128":
            return "error", f"its GPU part does not load: {reported.subject} {reported.message}"
    if missing:
        return "error", f"{what}: {join_truncated(missing)} not found"
    for reported in errors:
        match reported.code:
            case "RLK130" if reported.subject == vendor.libraries.runtime.removesuffix(".so"):
                return "error", f"does not work on the GPU: {reported.message}"
            case "RLK401" | "RLK405" | "RLK427" | "RLK428":
                return "error", f"has no code for this GPU: {reported.subject}: {reported.message}"
            case "RLK104" | "RLK132":
                return "error", f"{what}: {reported.message}"
    return "error", f"{what}: {errors[0].subject}: {errors[0].message}"


def _runtimes(checked: Sequence[Checked], environment: TargetEnvironment) -> Iterator[Finding]:
    """Yield RLK130 where distributions bring different files of the vendor's runtime into one process."""
    by_path = group_pairs((path, one.name) for one in checked for path in one.runtimes)
    if len(by_path) > 1:
        who = "; ".join(f"{join_truncated(names)}: {path}" for path, names in by_path.items())
        names = tuple(dict.fromkeys(name for names in by_path.values() for name in names))
        text = f"{len(by_path)} copies of the GPU runtime are in one process where these are imported together: {who}"
        bringing = [
            one.name for one in checked if any(_is_own(one, path, environment) for path in one.runtimes)
        ]
        # What leaves the package is known for some, as torch; another package keeps the copy that it brings.
        kept = [name for name in dict.fromkeys(bringing) if not profile_for(name).bundled]
        python = shlex.quote(environment.python)
        steps = [f"relink repair {name} --prefix DIR --python {python}" for name in names if name not in kept]
        remedy = f"Relink each for one prefix: {'; '.join(steps)}" if steps else ""
        if kept:
            verb = "brings its" if len(kept) == 1 else "bring their"
            without = "install a build without it, or do not import it beside the others."
            remedy += f"{'. ' if steps else ''}{join_with_and(kept)} {verb} own copy: {without}"
        yield replace(finding("RLK130", names[0], text, remedy, level="warning"), subjects=names)


def _is_own(one: Checked, path: str, environment: TargetEnvironment) -> bool:
    """Whether a library is a file of a distribution, and not in one of a vendor's packages."""
    sites = [f"{os.path.realpath(site)}/" for site in environment.site]
    inner = [path.removeprefix(site) for site in sites if path.startswith(site)]
    first = inner[0].partition("/")[0] if inner else ""
    return any(name in one.parts for name in inner) and not any(
        vendor.packages.is_package(first) for vendor in VENDORS
    )


def _drivers(checked: Sequence[Checked]) -> Iterator[Finding]:
    """Yield RLK553 for each vendor whose driver this machine has not, and whose driver packages open."""
    needing = group_pairs(
        (find_driver_vendor(soname), (one.name, soname)) for one in checked for soname in one.drivers
    )
    for vendor, pairs in needing.items():
        if vendor is not None:
            names = list(dict.fromkeys(name for name, _ in pairs))
            text = (
                f"needs the driver of {vendor.product}, which this machine has not: {join_truncated(names)}"
            )
            yield finding("RLK553", pairs[0][1], text)


def _other_stacks(
    checked: Sequence[Checked], others: Mapping[str, tuple[Vendor, str]], world: _World, options: Options
) -> list[Finding]:
    """Return RLK551 for packages of another vendor alone, where there is something of a vendor that relink links to.

    None where the machine is for that other vendor: a ROCm can be there because something else requires a part of it.

    It is an error where the user names a GPU.

    :param others: the other vendor whose library each of these needs, and the library.
    """
    if not others or world.runs_other:
        return []
    needing = [one.name for one in checked if one.needs]
    gpus = [str(gpu.target) for gpu in world.gpus]
    beside = f", and {join_truncated(needing)} for {list_products()}" if needing else ""
    if not beside and gpus:
        beside = f", and not for {join_truncated(gpus)}"
    elif not beside and (options.prefixes or find_places(world.target, os.environ)):
        beside = f", and this machine has {list_products()}"
    level: Level | None = "error" if options.requested_gpus else None
    return [
        finding("RLK551", name, f"is built for {vendor.product} (it needs {soname}){beside}", level=level)
        for name, (vendor, soname) in (others.items() if beside else ())
    ]


def _packages(
    environment: TargetEnvironment, target: Target, sonames: Iterable[str], options: Options
) -> Iterator[Finding]:
    """Yield what is to be said about the vendor's own packages: mixed releases, a device package that is missing."""
    for vendor in VENDORS:
        for site in environment.site:
            if vendor.packages.find_site(str(site), target) is not None:
                gpus = processors_of(options.requested_gpus, vendor)
                provider = vendor.packages.open_site(str(site), target, gpus)
                yield from vendor.packages.site_findings(provider, sonames, target, gpus)


def to_json(check: EnvironmentCheck) -> dict[str, Any]:
    """Return the result as JSON data."""
    summed = verdict_to_json(environment_verdict(check))
    told = {"ok": check.ok, "mendable": list(check.mendable), "verdict": summed}
    return {"schema": "relink.check/1", **to_data(check), **told}
