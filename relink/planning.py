"""From a wheel, a target and what the user said to a plan: what is decided about each file, and what is found."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relink.checks.gpu import GpuPlan, dlopened_libraries, plan_gpus
from relink.elf.image import machine_name
from relink.errors import UsageError
from relink.findings.model import Finding, finding, select
from relink.gpu.wanted import Wanted
from relink.loader.files import Files
from relink.loader.tables import Tables
from relink.loader.target import Target
from relink.plans.model import Plan, ProviderFacts, TargetFacts, WheelFacts
from relink.profiles import profile_for
from relink.providers.distribution import read_distribution
from relink.providers.nix_store import NIX_STORE, open_closure, open_place, runtime_of, store_path
from relink.providers.prefix import Provider, default_prefixes
from relink.reading import Wheel
from relink.resolve.decide import Decisions, decide
from relink.resolve.layout import Layout
from relink.resolve.strategy import Situation
from relink.rocm.advice import with_hints
from relink.wheel.limits import Limits
from relink.wheel.naming import WheelName, relinked

__all__ = [
    "LEVELS",
    "Decided",
    "Options",
    "Planned",
    "complete_plan",
    "decide_wheel",
    "open_providers",
    "plan_wheel",
    "selected",
    "situation_of",
    "store_paths",
    "target_facts",
]

LEVELS = {"fast": 2, "balanced": 3, "small": 6}
"""Levels of :class:`relink.wheel.zipwriter.ZipWriter`, by the words of ``--compress``; README.md has what they cost."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user can say about one run, by the names of the command line's options.

    :ivar prefixes: the providers, in order of preference; $ROCM_PATH or /opt/rocm where none is given.
    :ivar gpus: the GPUs that must be covered: target ids, product names, or ``auto`` for those of this machine.
    :ivar compress: how changed files are deflated, a key of `LEVELS`.
    :ivar jobs: threads that verify and write; None: as many as pay.
    :ivar max_memory: bytes that several members may take that are deflated at once; None: the writer's own.
    :ivar verify_record: hold the files against the vendor's RECORD.
    :ivar limits: what the wheel may ask of this machine.
    :ivar epoch: SOURCE_DATE_EPOCH in seconds; None takes the times from the input.
    :ivar nix_closures: store paths whose closures are providers, after the prefixes.
    :ivar profile: the name or the file of a profile; None takes the one for the wheel's distribution, ``none`` takes none.
    :ivar gc_root: the directory for garbage collector roots of the store paths that the output names.
    """

    prefixes: tuple[str, ...] = ()
    nix_closures: tuple[str, ...] = ()
    gc_root: str | None = None
    profile: str | None = None
    output_directory: Path = Path()
    python: str | None = None
    interpreter: str | None = None
    sysroot: str | None = None
    allow_missing: tuple[str, ...] = ()
    substitute: tuple[str, ...] = ()
    assume_symbols: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    keep_version: bool = False
    local_version: str | None = None
    verify: bool = True
    force: bool = False
    gpus: tuple[str, ...] = ()
    allow_isa_gap: bool = False
    dry_run: bool = False
    compress: str = "balanced"
    jobs: int | None = None
    verify_record: bool = True
    max_memory: int | None = None
    epoch: int | None = None
    command: tuple[str, ...] = ()
    limits: Limits | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with what it was made from, the name of the wheel that it leads to, and the GPUs that can run it."""

    plan: Plan
    output: WheelName
    situation: Situation
    decisions: Decisions
    gpu: GpuPlan


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided about the files of a wheel, and what it is called then; nothing is known of GPUs."""

    situation: Situation
    decisions: Decisions
    output: WheelName
    findings: tuple[Finding, ...]


def open_providers(options: Options, target: Target) -> tuple[Provider, ...]:
    """Open the prefixes that were named, or else the usual ones.

    :raises UsageError: there is none.
    """
    prefixes = options.prefixes
    if not prefixes and not options.nix_closures:
        prefixes = default_prefixes(os.environ)
    if not prefixes and not options.nix_closures:
        raise UsageError("no ROCm: name one by --prefix DIR, or set ROCM_PATH (there is no /opt/rocm here)")
    closures = (provider for path in options.nix_closures for provider in open_closure(path, target))
    found = (*(open_place(prefix, target) for prefix in prefixes), *closures)
    return (*found, *runtime_of(found, target))


def store_paths(plan: Plan) -> tuple[str, ...]:
    """Return the store paths that the files of a plan will name, in the plan's order; nothing where no provider is in a store."""
    if not any(provider.kind == NIX_STORE for provider in plan.providers):
        return ()
    texts = [
        text
        for file in plan.files
        for text in (*(file.rpath.after or "").split(":"), file.interpreter.after or "")
    ]
    return tuple(dict.fromkeys(path for text in texts if (path := store_path(text))))


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


def situation_of(
    wheel: Wheel,
    target: Target,
    providers: Sequence[Provider],
    options: Options,
    files: Files | None = None,
) -> Situation:
    """Return what decisions about a wheel are made from.

    :param files: the target's, some of which have been looked at.
    """
    name = wheel.archive.name
    layout = Layout(python=_python_version(name))
    return Situation(
        target=target,
        files=files or Files(target.sysroot),
        providers=tuple(providers),
        images=wheel.images,
        layout=layout,
        profile=profile_for(name.distribution, options.profile),
        distribution=read_distribution(target.sysroot),
        allow_missing=options.allow_missing,
        substitutes=tuple(_pair(text) for text in options.substitute),
        assume_symbols=options.assume_symbols,
        preload=options.preload,
        member_directories=frozenset(
            os.path.dirname(layout.path_of(member)) for member in wheel.archive.members
        ),
    )


def plan_wheel(
    wheel: Wheel,
    target: Target,
    providers: Sequence[Provider],
    options: Options,
    gpus: Sequence[Wanted] = (),
) -> Planned:
    """Decide everything about one wheel, and see whether it runs on `gpus`; touches no file."""
    return complete_plan(wheel, decide_wheel(wheel, target, providers, options), options, gpus)


def decide_wheel(
    wheel: Wheel,
    target: Target,
    providers: Sequence[Provider],
    options: Options,
    known: Tables | None = None,
) -> Decided:
    """Decide about the files of a wheel.

    :param known: symbols of other files that have been read already.
    """
    name = wheel.archive.name
    situation = situation_of(wheel, target, providers, options, known.files if known else None)
    decisions = decide(situation, wheel.tables, known)
    findings = [*wheel.findings, *decisions.findings]
    output = name
    if any(file.changed for file in decisions.files):
        local, more = _local_version(providers, options)
        findings += more
        output = relinked(name, local=local, platform=f"linux_{machine_name(target.header.machine)}")
    else:
        findings.append(finding("RLK507", wheel.archive.path.name, "every file loads as it is"))
    return Decided(situation, decisions, output, tuple(findings))


def complete_plan(wheel: Wheel, decided: Decided, options: Options, gpus: Sequence[Wanted]) -> Planned:
    """Make the plan of what was decided, with what there is to say of the GPUs."""
    archive, situation, decisions = wheel.archive, decided.situation, decided.decisions
    name, target, providers = archive.name, situation.target, situation.providers
    gpu = plan_gpus(
        wheel.codes,
        decisions.files,
        providers,
        gpus,
        sysroot=target.sysroot,
        profile=situation.profile,
        release=(name.distribution, name.version.public),
        allow_gap=options.allow_isa_gap,
        dlopened=dlopened_libraries(decisions),
    )
    plan = Plan(
        wheel=WheelFacts(
            archive.path.name,
            archive.sha256(),
            name.distribution,
            str(name.version),
            tuple(name.expanded_tags),
        ),
        output=decided.output.filename,
        target=target_facts(target),
        providers=tuple(
            ProviderFacts(
                provider.kind,
                provider.path,
                provider.rocm.release if provider.rocm else None,
                provider.rocm.evidence if provider.rocm else None,
            )
            for provider in providers
        ),
        files=decisions.files,
        findings=selected((*decided.findings, *gpu.findings), situation, options),
        loads=decisions.loads,
    )
    return Planned(plan, decided.output, situation, decisions, gpu)


def selected(findings: Sequence[Finding], situation: Situation, options: Options) -> tuple[Finding, ...]:
    """Return the findings that the user wants to hear of, each with what helps."""
    return select(tuple(with_hints(findings, situation.profile)), options.select, options.ignore)


def target_facts(target: Target) -> TargetFacts:
    """Return what a plan says of its target."""
    return TargetFacts(target.interpreter, target.glibc, target.directories, target.python, target.sysroot)


def _python_version(name: WheelName) -> str:
    tag = next((tag for tag in name.python.split(".") if tag.startswith("cp3")), "")
    return f"3.{tag[3:]}" if tag[3:].isdigit() else "3"


def _local_version(providers: Sequence[Provider], options: Options) -> tuple[str | None, list[Finding]]:
    if options.keep_version:
        return None, []
    if options.local_version:
        return options.local_version, []
    release = next((provider.rocm.release for provider in providers if provider.rocm), None)
    if release:
        return f"rocm{release}", []
    where = ", ".join(provider.path for provider in providers)
    return "relinked", [finding("RLK508", where, "the output's version ends in +relinked")]
