"""The last lines of a run: what came of it in one sentence, and what to type next. A pure function of the report."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from relink.loader.target import GLIBC_SONAMES
from relink.providers.distribution import FAMILIES
from relink.providers.prefix import major_minor
from relink.system.findings.model import RULES, Cause, Finding, Level, causes
from relink.system.text import group_pairs, join_some, join_truncated, join_with_and, pluralize

# Names in annotations only; importing them would make every command start more slowly.
if TYPE_CHECKING:
    from relink.report.model import Report
    from relink.vendors.protocol import Vendor

INSTALLS = re.compile(
    rf"(?P<command>(?:{'|'.join(filter(None, FAMILIES.values()))})(?: -t [a-z][\w-]*)?)"
    r"(?P<packages>(?: [A-Za-z0-9][\w.+-]*)+)",
    re.ASCII,
)
"""A command that has the system's packages installed: of a saved report, a stranger's maybe, none else is offered as such."""
_REPAIRS = re.compile(r"relink repair [a-z][\w-]*(?: --prefix [\w/.+-]+)* --python [\w/.+-]+", re.ASCII)
_FETCHES = re.compile(r"relink fetch [\w.+!=-]+", re.ASCII)
_PYTHON = re.compile(r"\$ORIGIN/\S*lib/python(3\.\d+)/", re.ASCII)
# The first way out that a remedy has: another release, a variable, a package, an option.
_WAY = re.compile(
    r"^Use [^:;]{1,130}|\b[A-Z][A-Z_]+=\d+(?:[.,]\d+)*|pip install [\w.-]+|--[a-z-]+ '[^']{1,200}'", re.ASCII
)
_VARIABLE = re.compile(r"Set (?P<setting>[A-Z][A-Z_]+=\d+(?:\.\d+)*),", re.ASCII)
# What is told of a file that nothing loads, of RECORD, of the version's label, and of this machine's sandbox.
_HARMLESS = {"RLK116", "RLK502", "RLK508", "RLK604"}
_ON_A_GPU = {"RLK401", "RLK427", "RLK428"}
_MAX_REASONS = 3
_MAX_GPUS = 8
_DRY = "--dry-run"
_PREFIX = "--prefix"
# Errors that say that the wheel would not work; others say why nothing was written all the same.
_CANNOT_WORK = {
    *("RLK101", "RLK104", "RLK105", "RLK107", "RLK111", "RLK116", "RLK130", "RLK132"),
    *("RLK301", "RLK302", "RLK305", "RLK401", "RLK405", "RLK427", "RLK428"),
}

# Why relink has not tried a command that it prints: the reasons are a closed list.
_CHANGES = "it changes the environment"
_SETS = "it changes your shell"
_DOWNLOADS = "it needs the network and changes the environment"
_ROOT = "it needs root and the network"


class Verdict(msgspec.Struct, frozen=True):
    """What came of one run.

    :ivar level: the worst that is in it: ``info`` where the wheel loads and nothing is left to decide.
    :ivar step: what to type or to do next.
    :ivar commands: of that what can be typed as it is (DIR is the reader's), in order; "the same command" written out where it
        is known.
    """

    level: Level
    text: str
    step: str | None = None
    commands: tuple[str, ...] = ()


def verdict_to_json(summed: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON data; each command with the reason why relink has not tried it, where it has not."""
    commands = [{"command": command, "untried": why_untried(command) or None} for command in summed.commands]
    return {"level": summed.level, "text": summed.text, "step": summed.step, "commands": commands}


def why_untried(command: str) -> str:
    """Return why relink has not tried a command that it prints; empty where it has, or where the command only tells something.

    The reasons are a closed list. A command `relink WHEEL …` or `relink DIR …` was planned in the run that prints it, and so was
    `relink repair`, for the files that are installed; what is to be named in it first (DIR) nobody can try.
    """
    try:
        words = shlex.split(command)
    except ValueError:  # a report that relink did not write
        return ""
    match words:
        case ["relink", "repair" | "install", *rest]:
            return _CHANGES if "--wheel" in rest else _DOWNLOADS
        case ["export", *_]:
            return _SETS
        case ["relink", "fetch", *_] | ["pip", "download", *_]:
            return "it needs the network"
        case ["relink", *rest]:
            return "DIR is to be named" if "DIR" in rest else ""
        case ["pip", "install", *rest] | ["uv", "pip", "install", *rest]:
            return _CHANGES if any(word.endswith(".whl") for word in rest) else _DOWNLOADS
        case [_, "-m", "pip", "install", *_] | ["uv", *_]:
            return _DOWNLOADS
    return _ROOT


def verdict(report: Report) -> Verdict:
    """Return the verdict: whether the wheel loads now, by what that is known, on which GPUs it runs, and what is next."""
    every = causes(report.findings)
    errors = [cause for cause in every if cause.level == "error"]
    if errors:
        return _failed(report, errors)
    parts = [_with_losses(_loads(report), every)]
    if report.plan.relocatable:
        packages = [f"{package.name} {major_minor(package.version)}" for package in report.plan.relies_on]
        # The way from bin/ to site-packages has the version of a Python in it.
        paths = (str(file.rpath.after) for file in report.files if file.changed)
        python = next((f" of Python {found[1]}" for found in map(_PYTHON.search, paths) if found), "")
        parts.append(f"Relocatable: works in any venv{python} with {join_with_and(packages)}")
    parts += _list_assumed(every)
    if report.plan.only_gpus:
        taken = f"Code for other GPUs than {join_with_and(report.plan.only_gpus)} is taken out"
        written = report.output
        if written is not None and written.size:
            taken += f": {written.size / 1e6:.1f} MB in place of {written.size_before / 1e6:.1f} MB"
        parts.append(taken)
    # The GPUs that the wheel and all libraries that it reaches have code for.
    elif gpus := list(((report.isa or {}).get("common") or {}).get("targets") or ()):
        parts.append(f"GPUs: {join_truncated(gpus, _MAX_GPUS)}")
    # The GPUs of this machine that were asked for or seen, and whether each has all code that it needs.
    here = []
    for gpu in (gpu for gpu in (report.isa or {}).get("gpus") or () if gpu["local"]):
        masks = [f": {one['text']}" for one in gpu.get("remedies", ()) if one["kind"] == "mask"]
        here.append(
            f"{gpu['target']} ({'covered' if gpu['covered'] else 'not covered'}{''.join(masks[-1:])})"
        )
    if here:
        parts.append(f"Of this machine: {join_truncated(here, _MAX_GPUS)}")
    return Verdict(_without_errors(every), f"{'. '.join(parts)}.", *_installing(report))


def _without_errors(every: Iterable[Cause]) -> Level:
    left = [cause for cause in every if cause.level == "warning" and cause.code not in _HARMLESS]
    return "warning" if left else "info"


def _list_assumed(every: Iterable[Cause]) -> list[str]:
    """Return sentences about what is taken for there: what the user says, and what packages that are not installed bring."""
    subjects = group_pairs((cause.code, subject) for cause in every for subject in cause.subjects)
    sentences = []
    if allowed := subjects.get("RLK102"):
        verb = "is" if len(allowed) == 1 else "are"
        sentences.append(f"{join_truncated(allowed)} {verb} to be there at run time, as --allow-missing says")
    if brought := subjects.get("RLK118"):
        sentences.append(f"What comes by the import of {join_truncated(brought)} was not looked at")
    return sentences


def verification_verdict(
    wheel: str, asked: Collection[str], findings: Sequence[Finding], made_from: str | None = None
) -> Verdict:
    """Return the verdict of `relink verify`: whether the real loader loads a wheel's files as they are.

    :param wheel: its path; `asked`: the members that the loader was asked about.
    :param made_from: the vendor's wheel, where relink wrote this one: that one is relinked again, since no other is.
    """
    every = causes(findings)
    errors = [cause for cause in every if cause.level == "error"]
    if not errors:
        confirmed = f"; checked by ld.so for {pluralize(len(asked), 'file')}" if asked else ""
        loads = _with_losses(f"Loads{confirmed}", every)
        if loads == "Loads":
            loads = "No ELF file for this loader: nothing to check"
        return Verdict(_without_errors(every), f"{'. '.join([loads, *_list_assumed(every)])}.")
    missing = any(cause.code in ("RLK101", "RLK104") for cause in errors)
    lacking = _list_lacking(errors)
    where = _place_that_has(lacking) if lacking else "another one"
    step = f"relink {os.path.basename(made_from or wheel)} for {where} (--prefix DIR)"
    todo = (step, ()) if missing and not any(cause.step for cause in errors) else _step(errors)
    on_gpus = all(cause.code.startswith("RLK4") for cause in errors)
    start = "Loads, but does not work on the GPU" if on_gpus else "Does not load"
    return Verdict("error", f"{start}: {_why(errors)}.", *todo)


def _loads(report: Report) -> str:
    changed = sum(file.changed for file in report.files)
    if not report.files and report.plan.only_gpus:
        return "How its files load was not looked at: no place with the libraries was named or found"
    if not report.files and (report.isa or {}).get("files"):
        return "Only GPU kernels, no ELF file for the loader: nothing to relink"
    if not report.files:
        return "No ELF file in the wheel: nothing to relink"
    alone = next((found.message for found in report.findings if found.code == "RLK507"), "")
    if not changed and alone.startswith("needs no"):
        return f"{alone[:1].upper()}{alone[1:]}"
    if not changed:
        return "Loads as it is: no file has to change"
    if report.output is None:
        return f"Would load: {changed} of {pluralize(len(report.files), 'ELF file')} would change"
    if report.verified is None:
        return "Should load; ld.so was not asked"
    return f"Loads; checked by ld.so for {pluralize(report.verified, 'file')}"


def _with_losses(loads: str, every: Iterable[Cause]) -> str:
    """Say what the package does without: ``Loads, without dense solvers (librocsolver.so.0); checked …``."""
    reported = (finding for cause in every for finding in cause.findings)
    lost = list(dict.fromkeys(finding.without for finding in reported if finding.without))
    word, *rest = loads.split(";", 1)
    return ";".join((f"{word}, without {join_some(lost, 4)}", *rest)) if lost else loads


def _installing(report: Report) -> tuple[str | None, tuple[str, ...]]:
    """The step after a run without errors, and the commands of it."""
    if report.output is not None:
        words = list_serving_words(report.findings)
        if words and (again := _again([*report.command, *words])):
            return f"again, so that what the package opens is found: {again[0]}", again
        command = f"pip install {shlex.quote(report.output.path)}"
        step = command
        tag = re.match(r"cp3(\d+)-(abi3)?", report.wheel.tags[0], re.ASCII) if report.wheel.tags else None
        # Where no Python was compared with the wheel: the pip of another one than the wheel's fails.
        if tag is not None and any(reported.code == "RLK522" for reported in report.findings):
            step = f"by the pip of CPython 3.{tag[1]}{' or newer' if tag[2] else ''}: {command}"
        offered = any(found.code == "RLK210" and found.step for found in report.findings)
        if offered and (again := _again([*report.command, "--search-path", "rpath"])):
            return f"{step}; or, for shells with this LD_LIBRARY_PATH: {again[0]}", (command, *again)
        return step, (command,)
    again = _again(word for word in report.command if word != _DRY) if _DRY in report.command else ()
    return "the same command without --dry-run", again


def list_serving_words(findings: Iterable[Finding]) -> list[str]:
    """Return the options that were seen to serve what the package opens in vain (RLK132), as words of a command line."""
    steps = dict.fromkeys(found.step for found in findings if found.code == "RLK132" and found.step)
    with suppress(ValueError):  # quotes that are not closed, in a report that relink did not write
        return [word for step in steps if step for word in shlex.split(step)]
    return []


def _again(words: Iterable[str]) -> tuple[str, ...]:
    """The command of a report with other words, or nothing: a report of the API has none, a stranger's may be any."""
    command = shlex.join(words)
    return (command,) if command.startswith("relink ") else ()


def _failed(report: Report, errors: Sequence[Cause]) -> Verdict:
    cannot = any(cause.code in _CANNOT_WORK for cause in errors)
    start = "Cannot work yet" if cannot else "Nothing written"
    if report.output is not None:
        start = f"Written to {report.output.path} in spite of"
    ways = (report.way_out, *report.other_ways_out) if report.way_out else ()
    why, paths = _why(errors), [provider.path for provider in report.providers]
    if paths and all(provider.has_none for provider in report.providers):
        from relink.vendors.registry import vendors_of  # noqa: PLC0415 - slow to load, and here only

        # No provider has any of the vendor's libraries, of which some are missing.
        if vendors_of(_list_lacking(errors)):
            why = "; ".join(filter(None, (f"no {product_of(report)} is in {join_with_and(paths)}", why)))
    return Verdict("error", f"{start}: {why}.", *_step(errors, report.command, ways))


def _why(errors: Sequence[Cause]) -> str:
    # What another wheel or another C library mends comes first.
    first = sorted(errors, key=lambda cause: not cause.code.startswith(("RLK301", "RLK52")))
    reasons = list(dict.fromkeys(_reasons(first)))
    more = f" and {len(reasons) - _MAX_REASONS} more" if len(reasons) > _MAX_REASONS else ""
    return "; ".join(reasons[:_MAX_REASONS]) + more


def _reasons(errors: Iterable[Cause]) -> Iterable[str]:
    missing = _list_lacking(errors)
    opened = [subject for cause in errors if cause.code == "RLK132" for subject in cause.subjects]
    for cause in errors:
        match cause.code:
            case "RLK132":
                number = pluralize(len(opened), "library", "libraries")
                yield f"{number} that the package opens {'is' if len(opened) == 1 else 'are'} not found"
            case "RLK101":
                yield f"{pluralize(len(missing), 'library is', 'libraries are')} missing"
            case "RLK301" if any(
                f" of {name};" in one.message for one in cause.findings for name in GLIBC_SONAMES
            ):
                # A wheel's own files have no absolute path.
                whose = {"the prefix" if one.startswith("/") else "the wheel" for one in cause.subjects}
                verb = "was" if len(whose) == 1 else "were"
                yield f"{join_with_and(sorted(whose))} {verb} built for a newer glibc than the target's"
            case _ if cause.whole and cause.code == "RLK302":
                yield cause.message
            case "RLK130" if (vendor := _vendor_twice([cause])) is not None:
                yield f"two {vendor.libraries.runtime_name}s would be loaded"
            case _:
                # A newer relink may have written the report, with codes that this one does not know.
                rule = RULES.get(cause.code)
                way = _WAY.search(cause.remedy) if cause.code in _ON_A_GPU else None
                how = f": {re.sub('^Use', 'use', way[0])}" if way else ""
                yield f"{rule.title if rule else cause.code} ({join_truncated(cause.subjects, 1)}){how}"


def _step(
    errors: Sequence[Cause], command: Sequence[str] = (), ways: Sequence[Sequence[str]] = ()
) -> tuple[str, tuple[str, ...]]:
    """Return what to type or to do after errors, and what of it can be typed as it is.

    That is the packages to install, or the command that was seen to succeed; else what one of the errors asks for.

    :param command: that of the run; `ways`: the words that make it succeed, where these are known.
    """
    missing = [cause for cause in errors if cause.code == "RLK101"]
    # No Python here installs the wheel (RLK521), or not the one that was named (RLK520). That comes first, since all else was
    # compared with this Python.
    wrong = next((cause for cause in errors if cause.code in ("RLK521", "RLK520")), None)
    if ways and wrong is None:
        pairs = [*pairwise(["", *command])]
        # A prefix that the way out names is in place of those of the command.
        bare = [word for last, word in pairs if _PREFIX not in (last, word.partition("=")[0])]
        found = [_again([*(bare if _PREFIX in way else command), *way]) for way in ways]
        text = "; or ".join(
            "".join(again) or f"again with {shlex.join(way)}" for again, way in zip(found, ways, strict=True)
        )
        place = ways[0][1] if ways[0][0] == _PREFIX else None
        # The commands that install all that is missing; none where some of it has no package, or more is wrong.
        others = [cause for cause in errors if cause.code not in ("RLK101", "RLK104")]
        whole = not others and all(cause.step for cause in missing)
        if installs := [part for part in join_packages(missing) if whole and INSTALLS.fullmatch(part)]:
            without = join_with_and([cause.subjects[0] for cause in missing])
            how = f"with {place}" if place else f"to go on without {without}"
            text = f"{'; '.join(installs)}, then the same command; or, {how}: {text}"
        elif place:
            text = f"{place} serves the wheel: {text}"
        elif some := [part for part in join_packages(missing) if not others and INSTALLS.fullmatch(part)]:
            own = join_with_and([cause.subjects[0] for cause in missing if cause.step])
            text = f"{text}; or, with {own} itself: {'; '.join(some)}, then the same command"
            found.append((*some,))
        return text, (*installs, *chain.from_iterable(found))
    # Another option than a Python's is offered where it was tried: then it is among the ways out.
    if wrong is not None and wrong.step and wrong.step.startswith("--"):
        with suppress(ValueError):  # quotes that are not closed, in a report that relink did not write
            return f"again with {wrong.step}", _again([*command, *shlex.split(wrong.step)])
    if wrong is not None:
        fetch = [wrong.step] if wrong.step and _FETCHES.fullmatch(wrong.step) else []
        return ": ".join([f"{wrong.remedy[:1].lower()}{wrong.remedy[1:].rstrip('.')}", *fetch]), (*fetch,)
    if (twice := _vendor_twice(errors)) is not None:
        agree = (
            f"a {twice.product} whose libraries agree on one {twice.libraries.runtime_name} (--prefix DIR)"
        )
        return f"{agree}, then the same command", ()
    if missing:
        parts, unknown = join_packages(missing), [cause.subjects[0] for cause in missing if not cause.step]
        from relink.vendors.registry import has_runtime  # noqa: PLC0415 - slow to load, and here only

        if has_runtime(unknown):  # what the system has packages of is another release
            parts, unknown = [], _list_lacking(errors)
        typed = [part for part in parts if INSTALLS.fullmatch(part)]
        if unknown:
            parts.append(f"{_place_that_has(unknown)} (--prefix DIR)")
        # The command is offered once more only where nothing is left that has to be found first.
        return f"{'; '.join(parts)}, then the same command", (*typed, *(() if unknown else _again(command)))
    # What is to be installed because of other errors; which pip that is, the reader knows.
    steps = dict.fromkeys(cause.step for cause in errors if cause.step)
    typed = [
        step
        for step in steps
        if step.startswith("pip install ") or INSTALLS.fullmatch(step) or _REPAIRS.fullmatch(step)
    ]
    if not typed and (export := find_export(errors)):
        typed = [export]
    if typed:
        return f"{'; '.join(typed)}, then the same command", (*typed, *_again(command))
    rules = f"relink rules {errors[0].code}"
    return rules, (rules,)


def find_export(errors: Iterable[Finding]) -> str | None:
    """Return the command that sets the one environment variable with which no error is left, or None."""
    settings = {match["setting"] if (match := _VARIABLE.match(error.remedy)) else None for error in errors}
    setting = settings.pop() if len(settings) == 1 else None
    return setting and f"export {setting}"


def product_of(report: Report) -> str:
    """Return what the vendor calls the libraries that the files of a report need: ``ROCm``."""
    from relink.vendors.registry import vendor_of, vendors_of  # noqa: PLC0415 - slow to load, and here only

    needed = [entry for file in report.files for entry in file.needed]
    # A wheel with a part for each of several vendors is linked to the libraries of one.
    linked = {entry.soname for entry in needed if entry.origin == "provider"}
    return vendor_of(linked if vendors_of(linked) else {entry.soname for entry in needed}).product


def _vendor_twice(found: Iterable[Cause]) -> Vendor | None:
    """The vendor whose runtime would be loaded twice, if there is one."""
    subjects = {subject for cause in found if cause.code == "RLK130" for subject in cause.subjects}
    if not subjects:
        return None
    from relink.vendors.registry import VENDORS  # noqa: PLC0415 - slow to load, and here only

    return next(
        (vendor for vendor in VENDORS if vendor.libraries.runtime.removesuffix(".so") in subjects), None
    )


def _list_lacking(errors: Iterable[Cause]) -> list[str]:
    """The libraries that are missing."""
    return [subject for cause in errors if cause.code == "RLK101" for subject in cause.subjects]


def _place_that_has(sonames: Sequence[str]) -> str:
    """A product of the one vendor that has all of some libraries; of others no vendor's product is advised."""
    from relink.vendors.registry import vendor_that_has  # noqa: PLC0415 - slow to load, and here only

    vendor, *more = {vendor_that_has(soname) for soname in sonames}
    product = vendor.product if vendor is not None and not more else "prefix"
    return f"a {product} that has {join_truncated(sonames)}"


def join_packages(missing: Iterable[Cause | Finding]) -> list[str]:
    """Return one command for all packages that one tool installs, of the commands for each missing library."""
    commands: dict[str, dict[str, None]] = {}
    for step in filter(None, (cause.step for cause in missing)):
        found = INSTALLS.fullmatch(step)
        command, packages = (found["command"], found["packages"].split()) if found else (step, [])
        commands.setdefault(command, {}).update(dict.fromkeys(packages))
    return [" ".join([command, *packages]) for command, packages in commands.items()]
