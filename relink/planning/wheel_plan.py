"""From an assessment to a plan: the decisions as data; and after a refusal the options with which the same command succeeds.

Source of the words about packages: "Core metadata" and "Dependency specifiers" of the PyPA specifications, PEP 440 for versions.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace
from packaging.version import Version

from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import Target
from relink.planning.assess import Attempt, Trace, assess
from relink.planning.case import Case, choose_target, find_prefixes_with
from relink.planning.model import (
    Plan,
    ProviderFacts,
    Reliance,
    RemovedCode,
    TargetFacts,
    WheelFacts,
)
from relink.planning.options import Options, list_deciding_words
from relink.planning.reading import Wheel
from relink.planning.resolve.context import ResolveContext
from relink.providers.prefix import Provider, find_link_target
from relink.system.findings.model import Finding, causes
from relink.wheel.naming import WheelName, parse_wheel_name
from relink.wheel.source import MemberSource


class PreparedPlan(msgspec.Struct, frozen=True):
    """A plan with the context and GPU facts that `carry_out` needs.

    :ivar context: what was decided from, with the images as they will be, and the symbols of everything in their closures.
    :ivar isa: the report's object of GPU code; None where it was not looked at.
    :ivar ways_out: for each way the words of options with which there would be no error; tried. Empty where none are known. A
        ``--prefix`` among them is in place of those that were named.
    :ivar attempts: the plans that were made before this one, and this one.
    """

    plan: Plan
    context: ResolveContext
    isa: Mapping[str, Any] | None
    ways_out: tuple[tuple[str, ...], ...] = ()
    attempts: tuple[Attempt, ...] = ()

    @property
    def output(self) -> WheelName:
        """The name of the wheel that the plan leads to."""
        return parse_wheel_name(self.plan.output)


_Words: TypeAlias = tuple[tuple[str, str], ...]
"""Options, each with its value."""

_FIELDS: Final = {
    f"--{name.replace('_', '-')}": name
    for name in (
        *("preload", "substitute", "stub", "forward", "ignore", "leave_out", "clear_execstack"),
        "use_host",
        *("interpreter", "python", "search_path"),
    )
}
_ONE_VALUE: Final = {"--interpreter", "--python", "--search-path"}


FindPlaces: TypeAlias = Callable[[Options, Target, Collection[str]], tuple[Provider, ...]]
"""Finds the providers for options, a target and the libraries that are needed."""
Replan: TypeAlias = Callable[[Options], PreparedPlan]
"""Makes the plan of the same wheel with other options."""


def plan_wheel(case: Case, find_places: FindPlaces | None) -> PreparedPlan:
    """Decide everything about one wheel, and after a refusal search for the way out; writes nothing.

    :param find_places: finds the providers of another target, which may be the way out; None: no way out is looked for.
    """
    trace = Trace()
    case = replace(case, seen=case.seen or Tables(Files(case.target.sysroot)))
    planned = _plan_once(case, trace)

    if find_places is None:
        return replace(planned, attempts=tuple(trace.attempts))

    def replan(options: Options) -> PreparedPlan:
        target, places = choose_target(options), case.providers
        seen = case.seen if target.sysroot == case.target.sysroot else None
        if (target, options.prefixes) != (case.target, case.options.prefixes):
            places = find_places(options, target, case.wheel.sought)
        return _plan_once(replace(case, target=target, providers=places, options=options, seen=seen), trace)

    if not (planned.plan.ok or case.options.force):
        ways = _find_other_prefix(planned, case, replan, trace)
        planned = replace(planned, ways_out=ways or find_ways_out(planned, case.options, replan, trace))
    planned = keep_what_helps(planned, case.options, replan, trace)
    plan = replace(planned.plan, findings=planned.context.name_packages(planned.plan.findings))
    return replace(planned, plan=plan, attempts=tuple(trace.attempts))


def _plan_once(case: Case, trace: Trace) -> PreparedPlan:
    """Return the plan that an assessment leads to."""
    assessed = assess(case, trace)
    case, context, made, draft = assessed.case, assessed.context, assessed.rewrite, assessed.draft
    root, vendor, relies_on = case.target.sysroot, context.vendor, made.relocation.relies_on
    # The extra that brings the vendor's packages has no use for a wheel whose own copies were left out.
    extra = None if case.options.requires or assessed.copies else vendor.name
    only_gpus = tuple(str(gpu.target) for gpu in case.options.kept_gpus)
    providers = []
    for one in context.providers:
        release = vendor.libraries.release_of(one, root)
        version, evidence = (release.release, release.evidence) if release else (None, None)
        has_none = release is None and not any(map(vendor.libraries.is_own, one.libraries))
        link_to = find_link_target(one.path, root)
        facts = ProviderFacts(one.kind, one.path, version, evidence, one.found_by, link_to, has_none)
        providers.append(facts)
    plan = Plan(
        wheel=describe_wheel(assessed.source, assessed.source.path.name),
        output=made.output.filename,
        target=describe_target(case.target),
        providers=tuple(providers),
        files=assessed.files,
        findings=assessed.findings,
        loads=draft.loads,
        relies_on=relies_on,
        sites=made.sites,
        relocatable=made.relocation.relocatable,
        metadata=list_metadata_lines(relies_on, extra, vendor.packages.bundles(), only_gpus),
        requirements=made.requirements,
        removed=(*made.removed, *assessed.copies),
        only_gpus=only_gpus,
        removed_code=list_removed_code(case.wheel),
        stubs=assessed.stubs.stubs,
        opened=draft.opened,
        options=list_deciding_words(case.options),
    )
    return PreparedPlan(plan, context, assessed.gpu.block)


def list_metadata_lines(
    relies_on: Iterable[Reliance],
    extra: str | None,
    bundle: Mapping[str, str] | None = None,
    only_gpus: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return the fields of METADATA that say what a result relies on: as an extra, or required; and whose code is left.

    What the vendor's wheel relied on before is the vendor's to say.

    :param extra: what brings the packages; None: installing the wheel installs them, too.
    :param bundle: package → the requirement without a version that brings it, and others with it.
    :param only_gpus: the GPUs that the output has code for, where that of others was taken out.
    """
    wanted: dict[str, None] = {}
    for item in (item for item in relies_on if not item.files):
        requirement = (bundle or {}).get(item.name, item.name)
        with suppress(ValueError):
            version = Version(item.version)
            # The series; and the later ones of it where it is a pre-release, which installers take only where a requirement
            # names one (PEP 440, "Handling of pre-releases").
            series = f"=={version.major}.{version.minor}.*"
            if version.is_prerelease:
                series = f">={version.public},<{version.major}.{version.minor + 1}"
            requirement += series
        wanted[requirement] = None
    platforms = tuple(f"Supported-Platform: {gpu}" for gpu in only_gpus)
    if not wanted:
        return platforms
    if extra is None:
        return (*platforms, *(f"Requires-Dist: {item}" for item in wanted))
    named = (f'Requires-Dist: {item}; extra == "{extra}"' for item in wanted)
    return (*platforms, f"Provides-Extra: {extra}", *named)


def list_removed_code(wheel: Wheel) -> tuple[RemovedCode, ...]:
    """Return the ranges of a wheel's members that get other bytes."""
    return tuple(
        RemovedCode(path, one.offset, one.size, one.entry, one.sha256, one.kept or None)
        for path, removal in wheel.removals.items()
        for one in removal.ranges
    )


def describe_target(target: Target) -> TargetFacts:
    """Describe the target for a plan."""
    return TargetFacts(target.interpreter, target.glibc, target.directories, target.python, target.sysroot)


def describe_wheel(source: MemberSource, path: str) -> WheelFacts:
    """Describe the wheel for a plan.

    :param path: as it is to be shown.
    """
    name = source.name
    return WheelFacts(path, source.sha256(), name.distribution, str(name.version), tuple(name.expanded_tags))


def _find_other_prefix(
    planned: PreparedPlan, case: Case, replan: Replan, trace: Trace
) -> tuple[tuple[str, ...], ...]:
    """Return the ways out with another prefix of the machine in place of those that are used; nothing if none is known.

    It has the vendor's libraries that are missing, or the runtime where that is: what else it lacks may have a way out.
    """
    libraries = planned.context.vendor.libraries
    missing = {found.subject for found in planned.plan.findings if found.code == "RLK101"}
    if not missing and any(found.code == "RLK130" for found in planned.plan.findings):
        missing = {*case.wheel.sought}
    wanted = {*filter(libraries.is_runtime, missing)} or {*filter(libraries.is_own, missing)}
    if wanted and not case.options.nix_closures:
        for path in find_prefixes_with(wanted, case.target, case.options):
            if trace.is_full:
                break
            options = dataclasses.replace(case.options, prefixes=(path,))
            other = replan(options)
            ways = ((),) if other.plan.ok else find_ways_out(other, options, replan, trace)
            if ways:
                return tuple(("--prefix", path, *way) for way in ways)
    return ()


def find_ways_out(
    planned: PreparedPlan, options: Options, replan: Replan, trace: Trace
) -> tuple[tuple[str, ...], ...]:
    """Find options with which the plan has no error: their words, as they stand on a command line; nothing if none are known.

    What is proposed for a finding is what the finding itself names, and for a missing library another version of it, or a stub.
    Each proposal is planned, and one that is refused gives way to the next. There are several ways out only where a person can
    decide between them, which a finding says (`Finding.choices`). No option changes what a finding says of GPUs that are not
    covered, of a licence or of a second runtime.

    :param trace: full, it ends the search.
    """
    ways = max((len(error.choices) for error in planned.plan.findings if error.level == "error"), default=0)
    tried = (_way_out(planned, options, replan, number, trace) for number in range(max(ways, 1)))
    return tuple(dict.fromkeys(filter(None, tried)))


def _way_out(
    planned: PreparedPlan, options: Options, replan: Replan, choice: int, trace: Trace
) -> tuple[str, ...]:
    """Return one way out: that with the choice of that number."""
    proposed: dict[tuple[str, str], list[_Words]] = {}
    attempt = planned
    while errors := [error for error in attempt.plan.findings if error.level == "error"]:
        # RLK104 only sums up. What the nearest variant lacks has findings too, and serving that is what helps.
        errors = [error for error in errors if error.code != "RLK104"] or errors
        # Another C library comes first, since it decides what else is found.
        errors = [error for error in errors if (error.step or "").startswith("--interpreter ")] or errors
        subjects = {subject for _, subject in proposed}
        firsts = [(cause.findings[0], subject) for cause in causes(errors) for subject in cause.subjects]
        # One option may be the proposal for several subjects: its turn comes once.
        for key, (first, subject) in {_key(*one, proposed, subjects): one for one in firsts}.items():
            if key not in proposed:
                proposed[key] = list(_proposals(attempt.context, first, subject, options, choice))
            else:
                # The first proposal was tried, and the finding is still an error: the next one has its turn.
                proposed[key] = proposed[key][1:]
            if not proposed[key]:
                return ()
        if trace.is_full:
            return ()
        attempt = replan(_with(options, _chosen(proposed)))
    return tuple(word for words in _chosen(proposed) for word in words)


def _key(
    first: Finding,
    subject: str,
    proposed: Mapping[tuple[str, str], Sequence[_Words]],
    subjects: Iterable[str],
) -> tuple[str, str]:
    """Return the key under which proposals for a finding are kept; a refused proposal has the key of its finding."""
    if first.code in ("RLK114", "RLK126") and subject in subjects:
        return next(key for key in proposed if key[1] == subject)
    step = "; ".join(first.choices) or first.step
    return step or first.code, "" if step and step.startswith("--") else subject


def keep_what_helps(planned: PreparedPlan, options: Options, replan: Replan, trace: Trace) -> PreparedPlan:
    """Return the plan with only those options in its warnings that were seen to help.

    An option helps where, planned with it, the warning is gone, and no error or warning is there that was not before.
    """
    offers: dict[str, _Words] = {
        reported.step: words
        for reported in planned.plan.findings
        if reported.level == "warning" and reported.step and (words := _read_words(reported.step))
    }
    before = {*_list_problems(planned)}
    refused: dict[str, str] = {}
    chosen = [*offers]
    while chosen:
        if not planned.plan.ok or trace.is_full:
            refused |= dict.fromkeys(chosen, "it can be tried once there is no error")
            break
        after = _list_problems(
            replan(_with(options, tuple(words for one in chosen for words in offers[one])))
        )
        new = [text for key, text in after.items() if key not in before]
        stay = {one.step for one in planned.plan.findings if (one.code, one.subject) in after}
        wrong = {}
        for step in chosen:
            about = (text for text in new if any(value in text for _, value in offers[step]))
            if why := next(about, "the warning stays" if step in stay else None):
                wrong[step] = why
        if new and not wrong:
            # Nothing says which of them it is: the last one goes, as the others are tried without it.
            wrong = {chosen[-1]: new[0]}
        if not wrong:
            break
        refused |= wrong
        chosen = [step for step in chosen if step not in wrong]
    kept = tuple(
        replace(reported, step=None, remedy=f"{reported.step} is not advised: {refused[reported.step]}")
        if reported.step and refused.get(reported.step)
        else reported
        for reported in planned.plan.findings
    )
    return replace(planned, plan=replace(planned.plan, findings=kept))


def _list_problems(planned: PreparedPlan) -> dict[tuple[str, str], str]:
    """Return the errors of a plan, and the warnings about its files: code and subject → a line for people.

    A warning about the name of the result (RLK5xx) is there for each wheel that changes.
    """
    return {
        (reported.code, reported.subject): f"{reported.code} {reported.subject}: {reported.message}"
        for reported in planned.plan.findings
        if reported.level == "error" or (reported.level == "warning" and reported.code < "RLK5")
    }


def _read_words(step: str) -> _Words:
    """Return the options of a text such as ``--preload NAME``; none where it is something else."""
    try:
        words = shlex.split(step) if step.startswith("--") else []
    except ValueError:
        return ()
    if len(words) % 2 or not _FIELDS.keys() >= {*words[::2]}:
        return ()
    return tuple(zip(words[::2], words[1::2], strict=True))


def _proposals(
    context: ResolveContext, first: Finding, subject: str, options: Options, choice: int = 0
) -> Iterator[_Words]:
    """Yield options for one finding, the least that they ask to be believed first.

    :param choice: the number of the text that is taken where a finding has several.
    """
    step = first.choices[min(choice, len(first.choices) - 1)] if first.choices else first.step
    if words := _read_words(step or ""):
        # `relink install` and `relink repair` take the target from the environment that they change.
        if words[0][0] not in _ONE_VALUE or {*options.command[1:2]}.isdisjoint(("install", "repair")):
            yield words
    elif first.code == "RLK101":
        for provider in context.providers if not context.vendor.libraries.is_runtime(subject) else ():
            yield from ((("--substitute", f"{subject}={near}"),) for near in provider.nearest(subject))
        if context.is_optional(subject):
            yield (("--stub", subject),)


def _chosen(proposed: Mapping[tuple[str, str], Sequence[_Words]]) -> _Words:
    """The proposal that is tried next for each finding, each option once."""
    return tuple(dict.fromkeys(words for several in proposed.values() if several for words in several[0]))


def _with(options: Options, chosen: _Words) -> Options:
    """Return the options with others added; they count as given by the user."""
    for word, value in chosen:
        name = _FIELDS[word]
        new = value if word in _ONE_VALUE else (*getattr(options, name), value)
        options = dataclasses.replace(options, **{name: new})  # type: ignore[arg-type]
    return options
