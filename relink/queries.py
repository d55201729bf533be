"""Operations that read a wheel and change nothing: its facts, its dependency trees, what the real loader maps, saved reports.

Each takes a path and :class:`~relink.options.Options`, and gives facts that :mod:`relink.report` and :mod:`relink.nix` print.
"""

from __future__ import annotations

import posixpath
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from relink.beside import environment_site, own_site, python_in, reliance_findings
from relink.bounded_json import JSON_LIMIT
from relink.elf.strings import library_names
from relink.errors import UsageError
from relink.files import read_text
from relink.findings.model import Finding, finding, select
from relink.gpu.wanted import wanted_gpus
from relink.loader.dryrun import LoaderMap
from relink.loader.target import Target, find_target
from relink.nix.anew import options_text
from relink.nix.from_plan import package_from_plan
from relink.nix.from_table import package_from_table
from relink.nix.model import Package
from relink.nix.subject import Subject
from relink.options import Options, trusted
from relink.planning import context_of, open_providers, plan_wheel, target_facts
from relink.plans.model import Plan, TargetFacts
from relink.profiles import Profile
from relink.provenance import read_plan
from relink.providers.nix_store import loader_in, store_path
from relink.reading import Wheel, open_wheel
from relink.report.inspection import Inspection, elf_facts
from relink.report.model import Report
from relink.report.saved import planned_report, read_saved
from relink.report.tree import DependencyTree
from relink.resolve.decide import decide
from relink.resolve.proof import system_path
from relink.resolve.siblings import assumed_finding, sibling_of
from relink.resolve.strategy import ResolveContext
from relink.resolve.stubs import plan_stubs, with_stubs
from relink.rocm.advice import missing_remedy, where_to_get, with_hints
from relink.sandbox import find_sandbox, sandbox_findings
from relink.sandbox.environment import DEMO, named_environment
from relink.starting_profile import starting_profile
from relink.verification import Verification, verify
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import WheelLimits

__all__ = [
    "VerifiedWheel",
    "explain",
    "inspect",
    "new_profile",
    "nix_package",
    "run_demo",
    "saved_report",
    "unmatched",
    "verify_wheel",
]


@dataclass(frozen=True, slots=True)
class VerifiedWheel:
    """What the real loader mapped for each ELF member of one wheel."""

    path: str
    target: TargetFacts
    maps: Mapping[str, LoaderMap]
    findings: tuple[Finding, ...]


def verify_wheel(path: Path, options: Options) -> VerifiedWheel:
    """Run the target's loader on every ELF member of a wheel as it is, and compare with the simulation.

    Where no target is given, the target is this machine's own; a wheel that was relinked for another one is not verified by it.
    """
    sandbox = find_sandbox(options.sandbox)
    with ExitStack() as stack:
        archive = stack.enter_context(WheelArchive(path))
        plan = read_plan(archive)
        python = options.python or python_in(options.environment)
        named = python or options.interpreter or options.sysroot
        if plan is not None and not named:
            target = _own_target(plan)
        else:
            target = find_target(python=python, interpreter=options.interpreter, sysroot=options.sysroot)
        wheel = open_wheel(path, stack, target)
        site = _site_of(wheel, plan, target, options)
        context = context_of(wheel, target, (), options, site=site)
        gaps = {name: loaded.gaps for name, loaded in wheel.contents.loaded.items()}
        result = verify(
            archive.path.name,
            archive.chunks,
            list(wheel.images),
            context,
            gaps,
            sandbox=sandbox,
            trust=trusted(options),
        )
        missing = [*_missing(result, context, plan), *_idle(result, context, plan)]
        if plan is not None and site is not None:
            missing += reliance_findings(plan, result.maps, site, target)
        hinted = with_hints(
            (*wheel.findings, *missing, *result.findings, *sandbox_findings(sandbox)), context.profile
        )
        findings = select(tuple(hinted), options.select, options.ignore)
        return VerifiedWheel(str(path), target_facts(target), result.maps, findings)


def _site_of(wheel: Wheel, plan: Plan | None, target: Target, options: Options) -> str | None:
    """The site-packages that is looked at: the one that is named, or that of the target's Python if the wheel relies on it."""
    if options.environment is not None:
        return environment_site(options.environment, context_of(wheel, target, (), options).layout.python)
    return own_site(target) if plan is not None and plan.relies_on else None


def _own_target(plan: Plan) -> Target:
    """Return this machine's own target, if the plan inside of a wheel is for its loader.

    Whoever made the wheel wrote the plan: no program is run, and no root directory entered, because a wheel names it.

    :raises UsageError: the plan is for another loader.
    """
    target, facts = find_target(), plan.target
    if (facts.interpreter, facts.sysroot) == (target.interpreter, target.sysroot):
        return target if facts.python is not None else find_target(interpreter=target.interpreter)
    root = f" --sysroot {facts.sysroot}" if facts.sysroot != "/" else ""
    raise UsageError(
        f"the wheel was relinked for another loader than this machine's, {facts.interpreter}, and no program is run because "
        f"a wheel names it; if that one is yours, name it: --interpreter {facts.interpreter}{root}"
    )


def _missing(result: Verification, context: ResolveContext, plan: Plan | None) -> Iterator[Finding]:
    """What the loader did not find: an error, unless it was allowed when the wheel was relinked, or no variant needs it."""
    allowed = {found.subject for found in plan.findings if found.code == "RLK102"} if plan else set()
    by_soname: dict[str, list[str]] = {}
    for member, found in result.maps.items():
        if found.missing and context.profile.is_variant(member):
            names = ", ".join(dict.fromkeys(found.missing))
            text = f"the loader does not find {names}"
            yield finding("RLK103", member, text, profile=context.profile.name)
            continue
        if found.missing and (why := context.profile.why_optional(member)):
            text = f"the loader does not find {', '.join(dict.fromkeys(found.missing))}; {why}"
            yield finding("RLK124", member, text, profile=context.profile.name)
            continue
        for name in dict.fromkeys(found.missing):
            by_soname.setdefault(name, []).append(member)
    early = {context.images[item].soname: item for item in context.profile.preload if item in context.images}
    for name, members in by_soname.items():
        sibling = sibling_of(context.siblings, name)
        if sibling is not None and sibling.directory is None:
            yield assumed_finding(sibling, [name], members)
            continue
        code = "RLK102" if name in allowed else "RLK101"
        text = f"needed in the closure of {', '.join(members)}; the loader does not find it"
        if name in early:
            text += f" by itself, and the package loads {early[name]} before"
            yield finding("RLK115", name, text, profile=context.profile.name)
            continue
        yield finding(
            code,
            name,
            text,
            missing_remedy(name, context.distribution, context.providers) if code == "RLK101" else None,
        )


def _idle(result: Verification, context: ResolveContext, plan: Plan | None) -> Iterator[Finding]:
    """Stubs whose library is there now: the loader takes it instead, or would if they were gone."""
    members = [member for member in result.maps if not context.images[member].is_executable]
    for stub in plan.stubs if plan is not None else ():
        own = context.layout.shown(context.layout.path_of(stub.path))
        objects = (entry for one in result.maps.values() for entry in one.objects)
        found = {posixpath.normpath(path) for name, path in objects if name == stub.soname}
        if real := sorted(found - {own}):
            yield finding("RLK127", stub.soname, f"the loader takes {real[0]}; the stub in the wheel is idle")
        elif members and (path := system_path(context, members[0], stub.soname)):
            yield finding("RLK127", stub.soname, f"{path} is there now, and the stub in the wheel is taken")


def saved_report(path: Path) -> tuple[Report, bool]:
    """Read a saved report, or the plan in a ``relink.json`` or in a relinked wheel as a report.

    :return: the report, and whether it was made from a plan: then it has neither an output nor GPU code.
    :raises RelinkError: the file cannot be read, or is none of these.
    """
    if path.suffix == ".whl":
        with WheelArchive(path) as archive:
            plan = read_plan(archive)
        if plan is None:
            raise UsageError(
                f"{path}: relink has not made this wheel, so there is no plan in it; `relink {path.name} --report FILE.html`"
            )
        return planned_report(plan), True
    try:
        content = read_text(path, JSON_LIMIT, errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    return read_saved(content, str(path))


def inspect(path: Path, limits: WheelLimits | None = None) -> Inspection:
    """Say what a wheel is, before anything is decided."""
    with ExitStack() as stack:
        wheel = open_wheel(path, stack, limits=limits)
        archive = wheel.archive
        members = archive.members.values()
        return Inspection(
            path=str(path),
            sha256=archive.sha256(),
            name=archive.name.distribution,
            version=str(archive.name.version),
            tags=tuple(archive.name.expanded_tags),
            members=len(members),
            size=archive.size,
            unpacked=sum(member.size for member in members),
            files=tuple(elf_facts(image, wheel.tables[name]) for name, image in wheel.images.items()),
            findings=wheel.findings,
        )


def explain(path: Path, options: Options) -> tuple[DependencyTree, ...]:
    """Return what loading each ELF member of a wheel maps once it is relinked, as :mod:`relink.report.tree` draws it.

    The GPU code is not looked at: it has no part in who loads whom.

    :raises RelinkError: the wheel cannot be read, or there is no such target or prefix.
    """
    with ExitStack() as stack:
        target = find_target(python=options.python, interpreter=options.interpreter, sysroot=options.sysroot)
        providers = open_providers(options, target)
        wheel = open_wheel(path, stack, target, options.limits)
        base = context_of(wheel, target, providers, options)
        stubs = plan_stubs(base, wheel.tables, options.stub, wheel.archive.name.distribution)
        draft = decide(*with_stubs(base, wheel.tables, stubs.stubs))
    context = draft.context
    closures = {file.path: draft.outcomes[file.path].closure for file in draft.files}
    missing = {edge.soname for closure in closures.values() for edge in closure.missing}
    sources = {
        soname: where
        for soname in missing
        if (where := where_to_get(soname, context.distribution, context.providers))
    }
    return tuple(DependencyTree(file, closures[file.path], context.layout, sources) for file in draft.files)


def new_profile(path: Path, limits: WheelLimits | None = None) -> str:
    """Return a profile to begin with, as TOML, from what can be seen in a wheel.

    :raises RelinkError: the wheel cannot be read.
    """
    with ExitStack() as stack:
        wheel = open_wheel(path, stack, limits=limits)
        archive = wheel.archive
        strings = {}
        for member, image in wheel.images.items():
            content = archive.read_into(member)
            strings[member] = library_names(content, image)
            content.release()
        name = archive.name
        return starting_profile(
            name.distribution, name.filename, archive.members, wheel.images, wheel.tables, strings
        )


def unmatched(profile: Profile, path: Path) -> list[str]:
    """Return what a profile says that names nothing in a wheel, a line each.

    :raises RelinkError: the wheel cannot be read.
    """
    with ExitStack() as stack:
        wheel = open_wheel(path, stack)
        entries = {entry for image in wheel.images.values() for entry in (image.search_path or "").split(":")}
        return list(profile.unmatched(wheel.archive.members, entries))


def nix_package(path: Path, options: Options, *, url: str | None = None, major: int | None = None) -> Package:
    """Make a package for Nix of a wheel: proved with the libraries that were named, or from the table where none were.

    Where store paths were named and no loader, it is that of their C library: the one that a package built with them runs under.
    """
    gpus = wanted_gpus(options.gpus)
    with ExitStack() as stack:
        target = _nix_target(options)
        wheel = open_wheel(path, stack, target)
        context = context_of(wheel, target, (), options)
        subject = Subject(
            archive=wheel.archive,
            images=wheel.images,
            tables=wheel.tables,
            codes=wheel.codes,
            layout=context.layout,
            profile=context.profile,
            target=target,
            url=url,
            major=major,
            gpus=tuple(str(gpu.target) for gpu in gpus),
            allow_missing=tuple(options.allow_missing),
            assume_symbols=tuple(options.assume_symbols),
            siblings=context.siblings,
            again=options_text(options),
        )
        if not (options.prefixes or options.nix_closures):
            package = package_from_table(subject, context, options.stub)
            findings: tuple[Finding, ...] = (*wheel.findings, *package.findings)
        else:
            planned = plan_wheel(wheel, target, open_providers(options, target), options, gpus)
            package = package_from_plan(subject, planned.plan)
            findings = (*planned.plan.findings, *package.findings)
    return replace(package, findings=select(findings, options.select, options.ignore))


def _nix_target(options: Options) -> Target:
    interpreter = options.interpreter
    if interpreter is None and options.python is None and options.sysroot is None:
        places = [
            item
            for item in (*options.nix_closures, *options.prefixes)
            if store_path(str(Path(item).resolve()))
        ]
        interpreter = next((found for item in places if (found := loader_in(item))), None)
    target = find_target(python=options.python, interpreter=interpreter, sysroot=options.sysroot)
    if store_path(target.libc_directory) is None:
        return target
    # nixpkgs' loader has no cache, and its own directory as the only default one.
    return replace(target, directories=(target.libc_directory,), cache=None)


def run_demo(arguments: Sequence[str]) -> int:
    """Run the demo in this interpreter; returns its exit code. It lies in the package, or beside it in a source tree."""
    package = Path(__file__).resolve().parent
    places = [package / "_demo" / "demo.py", package.parent / "examples" / "demo" / "demo.py"]
    script = next((place for place in places if place.is_file()), None)
    if script is None:
        raise UsageError("the demo is not part of this installation; take it from the source's examples/demo")
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, env=named_environment(DEMO), check=False).returncode
