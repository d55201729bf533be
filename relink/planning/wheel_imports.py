"""The import of a wheel that is not installed yet, and what an import says of what is found of single files.

Takes a wheel and the environment that it will be installed into. Gives an :class:`~relink.planning.processes.ImportOutcome` and
findings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from relink.loader.python import PythonFacts
from relink.planning.processes import DistributionFiles, EnvironmentProcesses, ImportOutcome
from relink.planning.reading import Wheel
from relink.planning.resolve.context import ResolveContext, read_exact_version
from relink.planning.resolve.decide import ALONE, PlanDraft
from relink.planning.resolve.import_findings import advise_relinking_first
from relink.planning.siblings import list_sibling_paths, read_required
from relink.providers.prefix import soname_stem
from relink.providers.profiles import profile_for
from relink.python.facts_cache import FactsCache
from relink.python.process import PlannedFiles
from relink.system.findings.model import Finding
from relink.vendors.registry import vendors_of
from relink.wheel.schemes import site_path
from relink.wheel.source import read_member


def plan_distribution(
    wheel: Wheel, context: ResolveContext
) -> tuple[PythonFacts, PlannedFiles, DistributionFiles, Mapping[str, str]] | None:
    """Return the Python, a wheel as it will have it, and the members by their paths there; None where none takes it."""
    source, python, site = wheel.source, context.target.python_facts, context.layout.site_packages
    if python is None or context.layout.tree:
        return None
    exact = read_exact_version(source.name)
    if exact and exact != python.directory_version:
        return None
    names = {below: member for member in source.members if (below := site_path(member))}
    gpu = find_gpu_members(wheel)
    members = {f"{site}/{below}": partial(read_member, source, member) for below, member in names.items()}
    images = {below: context.images[member] for below, member in names.items() if member in context.images}
    preload = [member for member in context.profile.preload if member in images]
    own = [below for below, member in names.items() if member in gpu]
    beside = list_sibling_paths(context.siblings)
    files = DistributionFiles(
        site, source.name.distribution, names, images, gpu=own, preload=preload, beside=beside
    )
    planned = PlannedFiles(members, frozenset(read_required(source)))
    return replace(python, site_packages=(site, *python.site_packages)), planned, files, names


def follow_wheel(wheel: Wheel, context: ResolveContext) -> ImportOutcome | None:
    """Follow the import of a wheel in the environment that it will be installed into; None where no Python is known.

    What it requires and is not there counts as there, and maps nothing.
    """
    found = plan_distribution(wheel, context)
    if found is None:
        return None
    python, planned, distribution, names = found
    target, files, none = context.target, context.members.files, FactsCache(None)
    processes = EnvironmentProcesses(target, python, files, {}, none, tables=context.seen, planned=planned)
    outcome = processes.follow(distribution)
    return replace(outcome, parts={names[below]: part for below, part in outcome.parts.items()})


def find_import_failures(
    wheel: Wheel, context: ResolveContext, draft: PlanDraft, mapped: Collection[tuple[str, str]]
) -> Iterator[Finding]:
    """Yield what ends an import although no library is missing: a package that is imported before has mapped another copy.

    :param mapped: soname and path of what the files map where nothing is imported before.
    """
    imported = follow_wheel(wheel, context)
    if imported is None or imported.assumed or not imported.is_seen:
        return
    stems = {soname_stem(soname) for soname, _ in mapped}
    copies = (path for soname, path in imported.mapped if soname_stem(soname) in stems)
    advice = next(filter(None, (advise_relinking_first(context, path) for path in copies)), None)
    told = {(found.code, found.subject) for found in draft.findings}
    for reported in imported.findings(context.layout.site_packages):
        is_new = reported.code != "RLK101" and (reported.code, reported.subject) not in told
        if reported.level == "error" and is_new:
            yield replace(reported, remedy=advice[0], step=advice[1]) if advice else reported


def apply_import(
    findings: Sequence[Finding],
    outcome: ImportOutcome,
    site: str,
    of_files: Sequence[Finding] = (),
    *,
    is_installed: bool = False,
) -> list[Finding]:
    """Return the findings about single files, and what becomes of the import.

    Those errors go that the process which imports the package has not, where that is seen.

    :param of_files: findings that stay: about files that cannot be read.
    :param is_installed: what opens these files is there, so that an import which opens none of them is seen as well.
    """
    kept = list(findings)
    is_seen = outcome.stopped is None if is_installed else outcome.is_seen
    if is_seen:
        opened = [text for one in outcome.failed for text in (one.event.name, one.failure.refused or "")]
        # A damaged ELF file with which the import does not end.
        kept = [
            replace(reported, level="warning")
            if reported.code == "RLK506"
            and reported.message.startswith("damaged ELF file")
            and not any(reported.subject in text for text in opened)
            else reported
            for reported in findings
        ]
    if outcome.assumed:
        # What the missing modules would have mapped is not known.
        return [*of_files, *kept]
    if is_seen:
        causes = {opening.failure.cause for opening in outcome.failed}
        kept = [
            reported
            for reported in kept
            if (expected := ALONE.get(reported.code) if reported.level == "error" else None) is None
            or not (
                expected.isdisjoint(causes)
                or (reported.code == "RLK101" and outcome.missing.isdisjoint(reported.subjects))
            )
        ]
    kept = [*of_files, *kept]
    errors = [reported for reported in kept if reported.level == "error"]
    told = {subject for reported in errors for subject in reported.subjects}
    told |= {reported.subject for reported in kept if reported.code == "RLK124"}
    codes = {reported.code for reported in errors} - {"RLK101"}
    # What the planner says of the vendor's libraries says more than the process does.
    kept += [
        reported
        for reported in outcome.findings(site)
        if not (told & {*reported.subjects, reported.subject} or reported.code in codes)
    ]
    return kept


def find_gpu_members(wheel: Wheel) -> list[str]:
    """Return the files that are there for a vendor's GPU: they need, are or open a library of the vendor's, or have GPU code."""
    profile = profile_for(wheel.source.name.distribution)
    found = []
    for member, image in wheel.images.items():
        code = wheel.codes.get(member)
        names = (image.soname or "", *image.needed, *wheel.opens.get(member, ()))
        if (code and code.present) or profile.dlopens(member) or vendors_of(names):
            found.append(member)
    return found
