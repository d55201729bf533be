"""Operations that read a wheel and change nothing: its facts, its dependency trees, what the real loader maps, saved reports.

Each takes a path and :class:`~relink.planning.options.Options`, and gives facts that :mod:`relink.report` and
:mod:`relink.report.nix` print.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from glob import escape
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from relink.loader.dryrun import LoaderMap
from relink.make.verification import verify
from relink.planning.assess import Assessment, Attempt, Trace, assess
from relink.planning.case import Case, build_context, choose_target, open_providers
from relink.planning.contents import Contents
from relink.planning.model import Plan, TargetFacts, read_plan
from relink.planning.options import Options, check_trust
from relink.planning.reading import read_members, read_wheel
from relink.planning.resolve.context import Layout, ResolveContext
from relink.planning.resolve.strategy import find_assumed_kind
from relink.planning.site import find_environment_python, find_environment_site, find_own_site
from relink.planning.wheel_imports import apply_import, follow_wheel
from relink.planning.wheel_plan import describe_target, describe_wheel
from relink.providers.nix_store import find_loader_in, store_path
from relink.providers.profiles import Profile, add_hints
from relink.report.inspection import Inspection, elf_facts
from relink.report.model import OutputFacts, Report, read_saved
from relink.report.nix.package import Package, package_of
from relink.report.summary import Verdict, verdict, verification_verdict
from relink.report.tree import DependencyTree
from relink.runs.relink_tree import open_tree, relink_tree
from relink.runs.relink_wheel import refuse_relinked, vendors_wheel
from relink.system.bounded_json import JSON_LIMIT
from relink.system.errors import RelinkError, UsageError, describe_failure
from relink.system.findings.model import Finding, has_errors, select_findings
from relink.system.programs import DEMO, make_named_environment
from relink.system.safe_open import read_text
from relink.system.sandbox.start import Sandbox, find_sandbox, sandbox_findings
from relink.system.shipped_files import shipped_directory
from relink.vendors.registry import VENDORS, find_driver_vendor, find_local_gpus
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import WheelLimits


class VerifiedWheel(msgspec.Struct, frozen=True):
    """The real loader's map of each ELF member of one wheel, and the findings.

    :ivar made_from: the filename of the vendor's wheel, where relink wrote this one.
    """

    path: str
    target: TargetFacts
    maps: Mapping[str, LoaderMap]
    findings: tuple[Finding, ...]
    made_from: str | None = None

    @property
    def ok(self) -> bool:
        """Whether no finding is an error, as exit code 0 says."""
        return not has_errors(self.findings)


def verify_wheel(path: Path, options: Options) -> VerifiedWheel:
    """Assess a wheel without edits, run the target's loader on every ELF member, and compare.

    Where no target is given, the target is this machine's own; a wheel that was relinked for another one is not verified by it.
    The plan inside of a wheel is a claim: it adds findings, and lowers none. What may be missing is `options.allow_missing`.
    """
    with ExitStack() as stack:
        return _verify(path, options, stack)[0]


def _verify(path: Path, options: Options, stack: ExitStack) -> tuple[VerifiedWheel, Assessment]:
    sandbox = find_sandbox(options.sandbox)
    options = dataclasses.replace(
        options, python=options.python or find_environment_python(options.environment)
    )
    target = choose_target(options)
    contents = stack.enter_context(Contents(path, options.limits))
    plan = read_plan(contents.archive)
    facts = plan.target if plan is not None else target
    named = options.python or options.interpreter or options.sysroot
    # Whoever made the wheel wrote the plan: no program is run, and no root directory entered, because a wheel names it.
    if not named and (facts.interpreter, facts.sysroot) != (target.interpreter, target.sysroot):
        root = f" --sysroot {facts.sysroot}" if facts.sysroot != "/" else ""
        raise UsageError(
            f"the wheel was relinked for another loader than this machine's, {facts.interpreter}, and no program is run because "
            f"a wheel names it; if that one is yours, name it: --interpreter {facts.interpreter}{root}"
        )
    wheel = read_wheel(contents, target, removed=plan.removed_code if plan else ())
    site = find_own_site(target)
    if options.environment is not None:
        python = build_context(Case(wheel, target, (), options, "verify")).layout.python
        site = find_environment_site(options.environment, python)
    gpus = tuple(options.requested_gpus or (() if options.sysroot else find_local_gpus()))
    case = Case(wheel, target, (), options, "verify", gpus, site=site, plan=plan)
    name = contents.archive.name
    vendor = vendors_wheel(plan, name.distribution, str(name.version)) if plan is not None else None
    return _ask_loader(path, case, sandbox, vendor.filename if vendor else None, None)


def _ask_loader(
    path: Path, case: Case, sandbox: Sandbox | None, made_from: str | None, links: Mapping[str, str] | None
) -> tuple[VerifiedWheel, Assessment]:
    """Assess files as they are, run the target's loader on each, and compare; `links` are the symbolic links beside them."""
    wheel, options, assessed = case.wheel, case.options, assess(case)
    source, loaded, draft = wheel.source, wheel.contents.loaded, assessed.draft
    left = {file.path for file in draft.files if not file.served} & {*draft.context.optional}
    result = verify(
        source.path.name,
        lambda name: (source.chunks(name), loaded[name].gaps if name in loaded else ()),
        [member for member in wheel.images if member not in draft.carried | left],
        assessed.context,
        sandbox=sandbox,
        trust=check_trust(options),
        links=links,
    )
    # What the loader says of something that was found already is said once.
    known = {(reported.code, reported.subject) for reported in assessed.found}
    more = [one for one in result.findings if (one.code, one.subject) not in known]
    found, context = [*assessed.found, *more, *sandbox_findings(sandbox)], assessed.context
    imported = assessed.imported or follow_wheel(wheel, context)
    if imported is not None:
        outcome = imported.keep_failures(lambda one: not _is_promised(one.missing, context))
        found = apply_import(found, outcome, context.layout.site_packages)
    hinted = context.name_packages((*add_hints(found, context.profile),))
    findings = select_findings(hinted, options.select, options.ignore)
    return VerifiedWheel(str(path), describe_target(case.target), result.maps, findings, made_from), assessed


def _is_promised(sonames: Collection[str], context: ResolveContext) -> bool:
    """Whether nothing is missing but what the user or packages that are not installed bring, and libraries of a driver."""
    promised = {soname for soname in sonames if find_assumed_kind(context, soname)}
    return bool(promised) and all(map(find_driver_vendor, {*sonames} - promised))


def check_tree(directory: Path, options: Options) -> tuple[VerifiedWheel, Verdict]:
    """Assess a directory's programs and libraries where they lie; the command in the verdict was tried.

    LD_LIBRARY_PATH of this shell does not count, and a plugin may import what a program of the directory exports.
    """
    sandbox, target = find_sandbox(options.sandbox), choose_target(options)
    source, known = open_tree(directory, options)
    gpus = tuple(options.requested_gpus or find_local_gpus())
    with Contents(source.path, source=source) as contents:
        wheel = read_members(contents, target, beside=source.files)
        programs = [wheel.tables[name] for name, image in wheel.images.items() if image.is_executable]
        exported = {escape(name) for table in programs for name in table.exports}
        known = dataclasses.replace(known, assume_symbols=sorted(exported))
        case = Case(wheel, target, (), known, "check tree", gpus, Layout(str(source.path), tree=True))
        found, _ = _ask_loader(directory, case, sandbox, None, source.links)
    summed = replace(verification_verdict(str(directory), found.maps, found.findings), step=None, commands=())
    if found.ok:
        return found, summed
    if os.environ.get("LD_LIBRARY_PATH"):
        summed = replace(summed, text=f"{summed.text} LD_LIBRARY_PATH of this shell is not counted.")
    new = f"{source.path if Path.cwd().is_relative_to(source.path) else source.path.name}-relinked"
    while os.path.lexists(new):
        new += "-again"
    words = [word for prefix in options.prefixes for word in ("--prefix", prefix)]
    words += ["--python", options.python] if options.python else []
    command = ("relink", os.path.normpath(directory), *words, "-o", new)
    with suppress(RelinkError):
        tried = relink_tree(directory, dataclasses.replace(options, dry_run=True, command=command))
        if not tried.ok:
            later = verdict(tried)
            return found, replace(summed, step=later.step, commands=later.commands)
        if any(file.changed for file in tried.files):
            summed = replace(summed, step=shlex.join(command), commands=(shlex.join(command),))
    return found, summed


def read_report(path: Path, options: Options | None = None) -> tuple[Report, bool]:
    """Read a saved report, or the plan in a ``relink.json`` or in a relinked wheel as a report.

    :param options: of a relinked wheel, the loader to ask.
    :return: the report, and whether it was made from a plan alone: then it has neither an output nor GPU code.
    :raises RelinkError: the file cannot be read, or is none of these.
    """
    if path.suffix == ".whl":
        with WheelArchive(path) as archive:
            plan = read_plan(archive)
        if plan is None:
            again = f"`relink {shlex.quote(str(path))} --report FILE.html`"
            raise UsageError(f"{path}: relink has not made this wheel, so there is no plan in it; {again}")
        options = options or Options()
        try:
            return _relinked_as_it_is(path, plan, options), False
        except RelinkError:
            if options.interpreter is not None:
                raise
        # The wheel may be for the loader of another machine: then the plan's word is all that there is.
        return Report((), plan, None), True
    if options is not None and options.interpreter is not None:
        raise UsageError(f"--interpreter is for a relinked wheel, and {path} is none")
    with describe_failure(UsageError, f"{path}: cannot be read"):
        content = read_text(path, JSON_LIMIT, errors="replace")
    return read_saved(content, str(path))


def _relinked_as_it_is(path: Path, plan: Plan, options: Options) -> Report:
    """Return a report of a relinked wheel: the edits in its plan, the loader's answers now, and its own GPU code.

    Nothing that the plan names is read, and no provider counts: the plan is a claim.

    :raises RelinkError: the wheel cannot be read, or its loader cannot be asked here.
    """
    with ExitStack() as stack:
        checked, assessed = _verify(path, options, stack)
        output = OutputFacts(str(path), assessed.source.sha256())
        isa = assessed.gpu.block
    known = {(found.code, found.subject) for found in checked.findings}
    planned = (found for found in plan.findings if (found.code, found.subject) not in known)
    plan = replace(plan, findings=(*planned, *checked.findings))
    return Report((), plan, output, isa=isa, verified=len(checked.maps))


def inspect(path: Path, limits: WheelLimits | None = None) -> Inspection:
    """Describe a wheel, before anything is decided."""
    with Contents(path, limits) as contents:
        wheel, archive = read_wheel(contents), contents.archive
        members = archive.members.values()
        return Inspection(
            **asdict(describe_wheel(archive, str(path))),
            members=len(members),
            size=archive.size,
            unpacked=sum(member.size for member in members),
            files=tuple(elf_facts(image, wheel.tables[name]) for name, image in wheel.images.items()),
            findings=wheel.findings,
        )


class Explanation(msgspec.Struct, frozen=True):
    """The libraries that each ELF member of a wheel maps once the wheel is relinked.

    :ivar attempts: the plans that were made, in order.
    """

    trees: tuple[DependencyTree, ...]
    findings: tuple[Finding, ...]
    attempts: tuple[Attempt, ...]


def explain(path: Path, options: Options) -> Explanation:
    """Explain which libraries each ELF member of a wheel maps once the wheel is relinked; :mod:`relink.report.tree` draws them.

    :raises RelinkError: the wheel cannot be read, or there is no such target or prefix.
    """
    trace = Trace()
    target = choose_target(options)
    with Contents(path, options.limits) as contents:
        wheel = read_wheel(contents, target)
        case = Case(wheel, target, open_providers(options, target, wheel.sought), options, "explain")
        assessed = assess(case, trace)
        findings = assessed.findings
    draft, context = assessed.draft, assessed.context
    outcomes = {file.path: draft.outcomes[file.path] for file in draft.files}
    missing = {edge.soname for outcome in outcomes.values() for edge in outcome.closure.missing}
    sources = {
        soname: where
        for soname in missing
        if (where := context.vendor.libraries.where_to_get(soname, context.distribution, context.providers))
    }
    trees = (
        DependencyTree(file, outcomes[file.path].closure, outcomes[file.path].root, context.layout, sources)
        for file in draft.files
    )
    return Explanation(tuple(trees), findings, tuple(trace.attempts))


def find_unmatched(profile: Profile, path: Path) -> list[str]:
    """Return the statements of a profile that name nothing in a wheel, a line each.

    :raises RelinkError: the wheel cannot be read.
    """
    with Contents(path) as contents:
        wheel = read_wheel(contents)
        entries = {entry for image in wheel.images.values() for entry in (image.search_path or "").split(":")}
        return list(profile.unmatched(wheel.archive.members, entries))


def nix_package(path: Path, options: Options, address: str | None = None) -> Package:
    """Make a package for Nix of a wheel, and plan the wheel with the libraries that were named.

    Where store paths were named and no loader, it is that of their C library: the one that a package built with them runs under.
    """
    with ExitStack() as stack:
        interpreter = options.interpreter
        if interpreter is None and options.python is None and options.sysroot is None:
            named = (*options.nix_closures, *options.prefixes)
            places = [item for item in named if store_path(str(Path(item).resolve()))]
            interpreter = next((found for item in places if (found := find_loader_in(item))), None)
        target = choose_target(dataclasses.replace(options, interpreter=interpreter))
        if store_path(target.libc_directory) is not None:
            # nixpkgs' loader has no cache, and its own directory as the only default one.
            target = replace(target, directories=(target.libc_directory,), cache=None)
        contents = stack.enter_context(Contents(path, options.limits))
        refuse_relinked(contents.archive)
        wheel = read_wheel(contents, target)
        gpus = options.requested_gpus
        targets = dataclasses.replace(options, gpus=[str(gpu.target) for gpu in gpus])
        case = Case(wheel, target, (), options, "nix without libraries")
        package = package_of(wheel.archive, build_context(case), targets, address)
        if options.prefixes or options.nix_closures:
            case = replace(
                case, providers=open_providers(options, target, wheel.sought), command="nix", gpus=gpus
            )
        findings = select_findings((*assess(case).found, *package.findings), options.select, options.ignore)
    return replace(package, findings=findings)


def run_demo(arguments: Sequence[str]) -> int:
    """Run the demo in this interpreter; return its exit code. The demo lies in the package, or beside it in a source tree."""
    script = shipped_directory("examples/demo") / "demo.py"
    if not script.is_file():
        raise UsageError("the demo is not part of this installation; take it from the source's examples/demo")
    command = [sys.executable, str(script), *arguments]
    variables = (name for vendor in VENDORS for name in vendor.gpus.variables)
    return subprocess.run(command, env=make_named_environment((*DEMO, *variables)), check=False).returncode
