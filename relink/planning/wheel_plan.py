"""From a wheel as read, a target and what the user said to a plan: what is decided about each file, and what is found."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from relink.elf.image import machine_name
from relink.elf.symbols import SymbolTable
from relink.gpu import Wanted, with_archives
from relink.loader.python import active_python
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import Target, find_target
from relink.planning.checks.executable_stack import stack_findings
from relink.planning.checks.gpu import dlopened_libraries, plan_gpus
from relink.planning.model.files import metadata_lines
from relink.planning.model.model import Plan, ProviderFacts, TargetFacts, WheelFacts
from relink.planning.options import Options, deciding
from relink.planning.reading import Wheel, required_versions
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.decide import PlanDraft, decide
from relink.planning.resolve.decision_findings import has_vendors, mapped_for
from relink.planning.resolve.layout import Layout
from relink.planning.resolve.stubs import StubPlans, plan_forwarders, plan_stubs, with_stubs
from relink.planning.siblings import find_siblings
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
    layer_findings,
    overlays,
    own_site,
    packages_beside,
    packages_findings,
    siblings_relied_on,
    with_beside,
)
from relink.providers.distribution import read_distribution
from relink.providers.nix_store import compiler_runtime_of, open_closure, open_place
from relink.providers.prefix import Provider
from relink.providers.profiles import profile_for, with_hints
from relink.providers.site_packages import (
    SITE_PACKAGES,
    without_package,
)
from relink.system.errors import UsageError
from relink.system.findings.model import Finding, finding, has_errors, select
from relink.vendors.protocol import Vendor
from relink.vendors.registry import choose_place, open_site, prefix_of_libraries, vendor_of
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import WheelLimits
from relink.wheel.naming import WheelName, parse_wheel_name, relinked


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan with what carrying it out needs beside it.

    :ivar context: what was decided from, with the images as they will be.
    :ivar tables: the symbols of everything in the members' closures.
    :ivar isa: the report's object of GPU code; None where it was not looked at.
    :ivar ways_out: for each way the words of options with which there would be no error; tried. Empty where none are known.
    """

    plan: Plan
    context: ResolveContext
    tables: Tables
    isa: Mapping[str, Any] | None
    ways_out: tuple[tuple[str, ...], ...] = ()

    @property
    def output(self) -> WheelName:
        """The name of the wheel that the plan leads to."""
        return parse_wheel_name(self.plan.output)


def target_of(options: Options) -> Target:
    """Return the target that options name; by default the loader of this machine.

    :raises TargetError: it cannot be found, run or understood.
    """
    return find_target(python=options.python, interpreter=options.interpreter, sysroot=options.sysroot)


def open_providers(options: Options, target: Target) -> tuple[Provider, ...]:
    """Open the prefixes that were named, or else a vendor's libraries of the target's Python, or the one place with them.

    :raises UsageError: none was named, and there is none or more than one.
    """
    if options.prefixes or options.nix_closures:
        prefixes = (_open(path, target, options) for path in options.prefixes)
        closures = (provider for path in options.nix_closures for provider in open_closure(path, target))
        found = (*prefixes, *closures)
    else:
        place = choose_place(target, os.environ, own=not (options.interpreter or options.sysroot))
        found = (replace(_open(place.path, target, options), found_by=place.found_by),)
    return (*found, *compiler_runtime_of(found, target))


def _open(path: str, target: Target, options: Options) -> Provider:
    return open_site(path, target, options.gpus) or open_place(prefix_of_libraries(path, target), target)


def _pair(text: str) -> tuple[str, str]:
    """Take ``OLD=NEW`` apart.

    :raises UsageError: it is not that.
    """
    old, equals, new = text.partition("=")
    if not (old and equals and new) or "/" in text:
        raise UsageError(
            f"--substitute {text}: write it as OLD=NEW, two sonames, such as libfoo.so.1=libfoo.so.2"
        )
    return old, new


def context_of(
    wheel: Wheel,
    target: Target,
    providers: Sequence[Provider],
    options: Options,
    *,
    site: str | None = None,
    layout: Layout | None = None,
) -> ResolveContext:
    """Return what decisions about a wheel are made from.

    :param site: a site-packages whose packages the wheel finds beside it; by default that of a Python which the user named. Of
        the vendor's packages there only those of `providers` are, where these are given.
    :param layout: where its members are installed; by default where nothing is.
    """
    name = wheel.archive.name
    vendor = vendor_of({soname for image in wheel.images.values() for soname in image.needed})
    # An environment may have an earlier build of this very package, which the result replaces.
    providers = [without_package(provider, name.distribution) for provider in providers]
    if layout is None:
        named = is_python_named(options)
        beside = packages_beside(providers, target, named=named)
        layout = Layout(python=_python_version(name, target if beside or site else None))
        if place := site or (own_site(target) if named else None):
            found = with_beside(layout, place, wheel.images, wheel.archive.members, target)
            own = [entry for entry in found if providers and vendor.is_package(entry.split("/")[0])]
            beside |= {entry: real for entry, real in found.items() if entry not in own}
        layout = replace(layout, links=beside)
    links = {f"{layout.site_packages}/{entry}": real for entry, real in layout.links.items()}
    files = Files(target.sysroot, links=links)
    return ResolveContext(
        target=target,
        files=files,
        providers=tuple(providers),
        images=wheel.images,
        layout=layout,
        profile=profile_for(name.distribution, options.profile),
        distribution=read_distribution(target.sysroot),
        vendor=vendor,
        allow_missing=tuple(options.allow_missing),
        substitutes=tuple(_pair(text) for text in options.substitute),
        assume_symbols=tuple(options.assume_symbols),
        preload=tuple(options.preload),
        preload_known=options.preload_known,
        most_loads=(options.limits or WheelLimits()).loads,
        opens=wheel.opens,
        left_out=wheel.left_out,
        siblings=() if layout.tree else find_siblings(wheel.archive, wheel.images, target, files),
        member_directories=frozenset(
            os.path.dirname(layout.path_of(member)) for member in wheel.archive.members
        ),
    )


def plan_links(
    wheel: Wheel,
    target: Target,
    providers: Sequence[Provider],
    options: Options,
    layout: Layout | None = None,
) -> tuple[StubPlans, PlanDraft]:
    """Decide what each member is linked to, with the stubs that are asked for: all that a plan has but GPUs, packages and names.

    :param layout: as for :func:`context_of`.
    """
    context = context_of(wheel, target, providers, options, layout=layout)
    stubs = plan_stubs(context, wheel.tables, options.stub, wheel.archive.name.distribution)
    context, tables = with_stubs(context, wheel.tables, stubs.stubs)
    forwarders = plan_forwarders(context, tables, options.forward, wheel.archive.name.distribution)
    added = StubPlans((*stubs.stubs, *forwarders.stubs), (*stubs.findings, *forwarders.findings))
    context, tables = with_stubs(context, tables, forwarders.stubs)
    asks = not context.layout.tree and of_vendor(wheel.archive, context.vendor, context.providers)
    # A wheel that has nothing to do with the vendor stays as it is, unless something of it changes in any case.
    if not (context.layout.tree or added.stubs or asks) and (alone := _left_alone(context, wheel, tables)):
        return added, alone
    return added, decide(context, tables)


def _left_alone(context: ResolveContext, wheel: Wheel, tables: Mapping[str, SymbolTable]) -> PlanDraft | None:
    """Return the draft of a wheel that has nothing to do with the vendor, as it is; None for another one, or one that fails so.

    It has no link to the vendor's libraries or to what else a prefix alone has, no GPU code, and opens none of them.
    """
    own = context.vendor.is_own
    names = (name for image in wheel.images.values() for name in image.needed)
    if any(map(own, names)) or any(code.bundles or code.kpack for code in wheel.codes.values()):
        return None
    draft = decide(replace(context, providers=(), as_it_is=True), tables)
    if has_errors(draft.findings) or any(own(edge.name) for edge in draft.opened):
        return None
    outcomes = draft.outcomes.values()
    return None if any(has_vendors(context, mapped_for(outcome)) for outcome in outcomes) else draft


def plan_wheel(
    wheel: Wheel,
    target: Target,
    providers: Sequence[Provider],
    options: Options,
    gpus: Sequence[Wanted] = (),
    layout: Layout | None = None,
) -> PreparedPlan:
    """Decide everything about one wheel, and check whether the result runs on `gpus`; writes nothing.

    Copies of the vendor's libraries leave the wheel, if it loads and runs with those of the prefix.

    :param layout: as for :func:`context_of`.
    """
    name, subject = wheel.archive.name, wheel.archive.path.name
    vendor = vendor_of({soname for image in wheel.images.values() for soname in image.needed})
    profile = profile_for(name.distribution, options.profile)
    copies = None if layout and layout.tree else find_copies(wheel, profile, vendor, providers)
    if copies is None:
        return _plan(wheel, target, providers, options, gpus, layout)
    why = copies.told
    if copies.removed:
        rest = replace(copies.rest, findings=(*wheel.findings, finding("RLK541", subject, why)))
        planned = _plan(rest, target, providers, options, gpus, layout, copies.removed)
        if planned.plan.ok:
            return planned
        error = next(found for found in planned.plan.findings if found.level == "error")
        why = f"it would not do with the prefix's: {error.code} {error.subject}: {error.message}"
    stay = finding("RLK546", subject, f"the wheel's own copies of the libraries stay: {why}")
    return _plan(replace(wheel, findings=(*wheel.findings, stay)), target, providers, options, gpus, layout)


def _plan(
    wheel: Wheel,
    target: Target,
    providers: Sequence[Provider],
    options: Options,
    gpus: Sequence[Wanted],
    layout: Layout | None,
    copies: Sequence[str] = (),
) -> PreparedPlan:
    """Decide everything about a wheel; `copies` are the members that it is planned without."""
    archive = wheel.archive
    name = archive.name
    stubs, draft = plan_links(wheel, target, providers, options, layout)
    context = draft.context
    layout, providers = context.layout, context.providers
    facts = tuple(_provider_facts(provider, target.sysroot, context.vendor) for provider in providers)
    files = tuple(file for file in draft.files if file.path in wheel.images)
    findings = [*wheel.findings, *stubs.findings, *draft.findings]
    mapped = {file.path: [path for _, path in file.closure] for file in files}
    findings += stack_findings(archive, context, wheel.tables, mapped)
    siblings, layers = siblings_relied_on(files, providers, target)
    moves = relocation(files, providers, layout.links, target.interpreter, siblings)
    named = is_python_named(options)
    vendor = context.vendor
    if not layout.tree:
        findings += layer_findings(providers, target, vendor, named=named)
    findings += packages_findings(archive, context, files, options.gpus)
    output = name
    stays = layout.tree or context.as_it_is
    asked = () if stays else of_vendor(archive, vendor, providers)
    removed = {} if stays else left_out(context.profile, archive.members, providers)
    changes = bool(stubs.stubs or asked or removed) or any(file.changed for file in files)
    if changes:
        local, more = _local_version(facts, options, vendor)
        findings += more
        machine = target.header.machine
        platform = f"linux_{machine_name(machine)}"
        if moves.relocatable:
            platform = platform_of(name.platform, required_versions(wheel.tables.values()), files, machine)
        output = relinked(name, local=local, platform=platform, replaces=vendor.version_label)
        findings += relocation_findings(moves, output.filename)
        # Only now, since these requirements follow the label of the output.
        asked += () if stays else following_label(archive, output, vendor)
        findings += requirement_findings(asked, removed, output.filename, context.profile)
    else:
        moves = Relocation((), {})
        alone = (
            f"needs no {vendor.product}: left as it is" if context.as_it_is else "every file loads as it is"
        )
        findings.append(finding("RLK507", archive.path.name, alone))
    sites = overlays(providers, layout, target, named=named)
    with ExitStack() as stack:
        contents = wheel.contents
        # Other wheels are opened for their kpack archives alone, and only where a library names such an archive.
        beside = contents.beside if any(code.kpack for code in wheel.codes.values()) else ()
        others = [stack.enter_context(WheelArchive(path, limits=contents.limits)) for path in beside]
        codes = with_archives(wheel.codes, archive, layout.path_of, sites, others)
    gpu = plan_gpus(
        context,
        codes,
        files,
        gpus,
        dlopened=dlopened_libraries(draft),
        release=(name.distribution, name.version.public),
        allow_gap=options.allow_isa_gap,
    )
    findings += gpu.findings
    plan = Plan(
        wheel=wheel_facts(archive, archive.path.name),
        output=output.filename,
        target=target_facts(target),
        providers=facts,
        files=files,
        findings=select(tuple(with_hints(findings, context.profile)), options.select, options.ignore),
        loads=draft.loads,
        relies_on=moves.relies_on,
        sites=(*(item.path for item in providers if item.kind == SITE_PACKAGES), *layers) if changes else (),
        relocatable=moves.relocatable,
        metadata=metadata_lines(
            moves.relies_on, None if options.requires or copies else vendor.table, vendor.bundles()
        ),
        requirements=asked,
        removed=(*removed, *copies),
        stubs=stubs.stubs,
        opened=draft.opened,
        options=deciding(options),
    )
    return PreparedPlan(plan, context, draft.tables, gpu.block)


def is_python_named(options: Options) -> bool:
    """Whether the user named the Python that will load the result, by an option or by an active environment."""
    return bool(options.python or active_python(os.environ))


def target_facts(target: Target) -> TargetFacts:
    """Return what a plan says of its target."""
    return TargetFacts(target.interpreter, target.glibc, target.directories, target.python, target.sysroot)


def wheel_facts(archive: WheelArchive, path: str) -> WheelFacts:
    """Return what a plan says of its wheel.

    :param path: as it is to be shown.
    """
    name = archive.name
    return WheelFacts(path, archive.sha256(), name.distribution, str(name.version), tuple(name.expanded_tags))


def _provider_facts(provider: Provider, sysroot: str, vendor: Vendor) -> ProviderFacts:
    release = vendor.release_of(provider, sysroot)
    version, evidence = (release.release, release.evidence) if release else (None, None)
    return ProviderFacts(provider.kind, provider.path, version, evidence, provider.found_by)


def _python_version(name: WheelName, target: Target | None = None) -> str:
    """The version in a directory's name: that of the wheel's tag, or of the target's Python where the wheel is for any."""
    tag = next((tag for tag in name.python.split(".") if tag.startswith("cp3")), "")
    if tag[3:].isdigit():
        return f"3.{tag[3:]}"
    facts = target.python_facts if target is not None else None
    return f"3.{facts.version[1]}" if facts is not None else "3"


def _local_version(
    providers: Sequence[ProviderFacts], options: Options, vendor: Vendor
) -> tuple[str | None, list[Finding]]:
    chosen = None if options.keep_version else options.local_version
    if options.keep_version or chosen:
        return chosen, []
    release = next((provider.rocm_version for provider in providers if provider.rocm_version), None)
    if release:
        return f"{vendor.table}{release}", []
    where = ", ".join(provider.path for provider in providers)
    return "relinked", [finding("RLK508", where, "the output's version ends in +relinked")]
