"""Plans, findings, rules and GPU code as text for a terminal or a pipe: gives the parts of :mod:`relink.report.lines`.

Of GPU code it is a line for each file, what they cover together, and whether that is enough for some GPUs.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from msgspec.structs import replace

from relink.gpu.coverage import Coverage, RequestedGpu, Survey, TargetId
from relink.report.lines import NEXT, Line, align_rows
from relink.report.summary import Verdict, product_of, verdict, verification_verdict, why_untried
from relink.system.findings.model import ORDER, RULES, Finding, Rule, causes
from relink.system.text import group_pairs, join_truncated, join_with_and, pluralize

# Names in annotations only; importing them would make every command start more slowly.
if TYPE_CHECKING:
    from relink.loader.dryrun import LoaderMap
    from relink.planning.checks.machine import MachineCheck
    from relink.planning.model import FilePlan
    from relink.report.model import Report

_LEVEL_STYLE = {"error": "bold red", "warning": "yellow", "info": "cyan"}
VERDICT_STYLE = {"error": "bold red", "warning": "yellow", "info": "green"}
_PREFIX = "$PREFIX"
# What ld.so says of a symbol of Python, by the names that relink.loader.binding knows. With a version, a comma would follow the
# name.
_OF_PYTHON = re.compile(r"undefined symbol: _?Py\w+\s*\(")
_MAX_GROUPS = 4
_MAX_SUBJECTS = 3
# Lines of the real loader about one file: a symbol that nothing has is one line.
_MAX_PROBLEMS = 5
# Who wants a symbol that ld.so does not find.
_REQUESTER = re.compile(r"\t\((.+)\)$")
# The most remedies of one code that are printed each by itself.
_MAX_REMEDIES = 2


def plan_text(report: Report) -> Iterator[Line]:
    """What happens to each file, what its search path was before, and each NEEDED with its evidence."""
    for file in report.files:
        state = _change(file) if file.changed else "unchanged" if file.served else "not served, left as it is"
        yield Line.assemble((file.path, "bold"), f"  {state}")
        if file.rpath.before is not None and file.rpath.before != file.rpath.after:
            yield Line(f"    before: {_search_path(file.rpath.kind_before, file.rpath.before)}")
        for entry in file.needed:
            name, after = entry.soname, entry.soname_after
            name = name if after in (name, None) else f"{name} → {after}"
            where = entry.resolved or entry.origin
            origin = "tree" if entry.origin == "wheel" and where.startswith("/") else entry.origin
            by = f"  [{entry.found_by}]" if entry.found_by else ""
            yield Line(f"    {entry.action:10} {name}  {origin}: {where}{by}")
            yield from (Line(f"      {sentence}", style="dim") for sentence in entry.evidence)


def header_text(report: Report, summed: Verdict, *, verbose: bool = False) -> list[Line]:
    """The wheel with its verdict; then the providers, by what those were found that nobody named, and the target.

    The first provider's path is ``$PREFIX`` below.
    """
    parts: list[str | tuple[str, str]] = []
    product = product_of(report)
    for number, provider in enumerate(report.providers):
        version = provider.rocm_version or "of unknown release"
        release = "" if provider.has_none else f"{product} {version} in "
        word = " and" if number else "with"
        notes = [] if number else [_PREFIX]
        if provider.found_by is not None:
            notes.append(f"no --prefix: found by {provider.found_by}")
        if provider.link_to is not None:
            notes.append(f"a link to {provider.link_to}")
        parts += [f"{word} {release}{provider.path}", f" ({', '.join(notes)})" if notes else ""]
    parts.append(f"{', ' if parts else ''}for glibc {report.target.glibc}")
    if verbose:
        parts.append(f" ({report.target.interpreter})")
    name = " ".join(filter(None, (report.wheel.name, report.wheel.version)))
    answer = Line.assemble((f"{name}: ", "bold"), (summed.text, VERDICT_STYLE[summed.level]))
    return [answer, Line.assemble(*parts)]


def shorten_prefix(report: Report, text: str) -> str:
    """Return `text` with the first provider's path written as ``$PREFIX``, as :func:`header_text` says."""
    # A path that is as short as $PREFIX is clearer as it is.
    if not report.providers or len(report.providers[0].path) <= len(_PREFIX):
        return text
    # Not within a longer path: neither `/data/opt/rocm` nor `/opt/rocm-6` is `/opt/rocm`.
    path = rf"(?<![^\s:;,()='\"]){re.escape(report.providers[0].path)}(?![^/\s:;,()])"
    return re.sub(path, lambda _: _PREFIX, text)


def text_shortener(report: Report) -> Callable[[str], str]:
    """Return what shortens the texts of findings: ``$PREFIX``, and "the wheel" for the one that the header names."""
    return lambda text: "the wheel" if text == report.wheel.path else shorten_prefix(report, text)


def change_text(report: Report) -> Iterator[Line]:
    """A line for each group of files that change alike: their new search path and interpreter, and what happens to NEEDED."""
    changed = (file for file in report.files if file.changed)
    groups = group_pairs((shorten_prefix(report, _change(file)), file.path) for file in changed)
    for change, members in list(groups.items())[:_MAX_GROUPS]:
        names = members[0].rpartition("/")[2] if len(members) == 1 else f"{len(members)} files"
        yield Line.assemble("  ", (names, "bold"), f": {change}")
    if more := sum(map(len, list(groups.values())[_MAX_GROUPS:])):
        yield Line(f"  {pluralize(more, 'more file')} in other ways; -v shows each")


def _change(file: FilePlan) -> str:
    rpath, interpreter = file.rpath, file.interpreter
    parts = []
    if (rpath.before, rpath.kind_before) != (rpath.after, rpath.kind_after):
        parts.append(_search_path(rpath.kind_after, rpath.after))
    if interpreter.before != interpreter.after:
        parts.append(f"interpreter {interpreter.after}")
    for entry in file.needed:
        if entry.action == "substitute":
            parts.append(f"{entry.soname} → {entry.soname_after}")
        elif entry.action == "drop":
            parts.append(f"{entry.soname} dropped")
    if added := sum(entry.action == "add" for entry in file.needed):
        parts.append(f"{pluralize(added, 'library', 'libraries')} added (NEEDED)")
    return ", ".join(parts)


def _search_path(kind: str | None, path: str | None) -> str:
    if not path:
        return "no search path"
    entries = path.split(":")
    short = f"{':'.join(entries[:3])}:… ({len(entries)} entries)" if len(entries) > 8 else path
    return f"{(kind or '').upper()} {short}"


def findings_text(
    findings: Sequence[Finding],
    *,
    verbose: bool,
    shown: Callable[[str], str] = lambda text: text,
    said: str = "",
) -> list[Line]:
    """The findings by cause, errors last so that they are what stays on the screen; with `verbose` each by itself, infos too.

    A remedy that several in a row share is printed once, behind them.

    :param shown: shortens paths in subjects and messages, not in remedies: these are there to be typed.
    :param said: the next step that is printed below: the options in it are not told for an error as well.
    """
    if verbose:
        every = sorted(findings, key=_place)
        told = [(one, (one.subject, "bold"), f": {one.message}{_rests(one)}", one.remedy) for one in every]
        return list(_blocks(told))
    listed = sorted((cause for cause in causes(findings) if cause.level != "info"), key=_place)
    counts = Counter(cause.code for cause in listed)
    blocks: list[tuple[Finding, tuple[str, str], str, str]] = []
    for cause in listed:
        remedy = cause.remedy
        if cause.step and cause.step.startswith("--"):
            remedy = "" if cause.step in said and cause.level == "error" else f"Pass {cause.step}"
        elif counts[cause.code] > _MAX_REMEDIES:
            remedy = f"{RULES[cause.code].fix} What to do about each: -v"
        start = "" if cause.whole else join_truncated([*map(shown, cause.subjects)], _MAX_SUBJECTS)
        message = f"{': ' if start else ''}{shown(cause.message)}{_rests(cause)}"
        blocks.append((cause, (start, "bold"), message, remedy))
    return list(_blocks(blocks))


def repaired_text(findings: Sequence[Finding]) -> list[Line]:
    """One line for all that relink mends by itself, or none."""
    codes = dict.fromkeys(reported.code for reported in findings if RULES[reported.code].repaired)
    text = ", ".join(RULES[code].repaired for code in codes)
    return [Line.assemble(("info ", _LEVEL_STYLE["info"]), f"repaired: {text}")] if text else []


def _place(cause: Finding) -> tuple[int, str]:
    return -ORDER[cause.level], cause.code


def _rests(cause: Finding) -> str:
    return f" [profile {cause.profile}]" if cause.profile else ""


def _blocks(blocks: Sequence[tuple[Finding, tuple[str, str], str, str]]) -> Iterator[Line]:
    """A line each for (finding, subject, message, remedy), and the remedy where the next has another."""
    following = [remedy for *_, remedy in blocks[1:]]
    for (found, subject, message, remedy), then in zip_longest(blocks, following):
        yield Line.assemble((f"{found.level} {found.code} ", _LEVEL_STYLE[found.level]), subject, message)
        if found.level != "info" and remedy not in ("", then) and not remedy.startswith("Nothing"):
            yield Line(f"    → {remedy}", style="dim")


def verdict_text(summed: Verdict) -> list[Line]:
    """The verdict, and what is next; a command is on a line of its own, which no terminal's width breaks."""
    lines = [Line(summed.text, style=VERDICT_STYLE[summed.level])]
    if summed.step is None:
        return lines
    rest, word = summed.step, NEXT
    for command in summed.commands:
        before, named, after = rest.partition(command)
        told = f"{word}{before if named else rest}".strip(" ,;") or "then"
        if why := why_untried(command):
            told = f"{told.removesuffix(':')} (not tried: {why}):".lstrip()
        if told:
            lines.append(Line(told))
        lines.append(command_line(command))
        rest, word = after, ""
    if rest := rest.strip(" ,;"):
        lines.append(Line(f"{word}{rest}"))
    return lines


def command_line(command: str) -> Line:
    """A command to be copied: on a line of its own, whole also where the terminal is narrower."""
    return Line(f"    {command}", no_wrap=True)


def several_text(reports: Sequence[Report]) -> list[Line]:
    """A table of several wheels: each with its verdict."""
    rows: list[tuple[str | Line, str | Line]] = [("wheel", "verdict")]
    for report in reports:
        summed = verdict(report)
        name = f"{report.wheel.name} {report.wheel.version}"
        rows.append((name, Line(summed.text, style=VERDICT_STYLE[summed.level])))
    return align_rows(rows)


def verification_text(
    wheel: str, maps: Mapping[str, LoaderMap], findings: Sequence[Finding], made_from: str | None = None
) -> list[Line]:
    """What the real loader mapped for each member, what is wrong, and the verdict.

    Symbols that the Python has that will import the member are counted, not listed: no other file supplies them.
    """
    summed = verification_verdict(wheel, maps, findings, made_from)
    name = os.path.basename(wheel).removesuffix(".whl").split("-")[:2]
    every = [
        replace(cause, subject=join_truncated(cause.subjects, _MAX_SUBJECTS))
        if len(cause.findings) > 1
        else cause.findings[0]
        for cause in causes(findings)
    ]
    return tree_text(" ".join(name), maps, every, summed, verbose=True)


def tree_text(
    name: str, maps: Mapping[str, LoaderMap], findings: Sequence[Finding], summed: Verdict, *, verbose: bool
) -> list[Line]:
    """The verdict about files as they are, what is wrong, and what is next; what was mapped for each file, if `verbose`."""
    lines: list[Line] = []
    # A line for each file that errors about libraries or symbols concern.
    about = {os.path.normpath(found.subject) for found in findings if found.level == "error"}
    for member, mapped in () if verbose else sorted(maps.items()):
        wanting = (os.path.normpath(match[1]) for match in map(_REQUESTER.search, mapped.problems) if match)
        names = sorted(about.intersection(mapped.missing))
        names += [f"symbols of {os.path.basename(path)}" for path in sorted(about.intersection(wanting))]
        lines += [Line(f"  {member}: {join_truncated(names)} not found")] if names else []
    for member, mapped in maps.items() if verbose else ():
        libraries = pluralize(len(mapped.objects), "library", "libraries")
        lines.append(Line(f"{member}: {libraries} found, {len(mapped.missing)} not found", style="bold"))
        lines += [
            *(Line(f"  {name} => {path}", style="dim") for name, path in mapped.objects),
            *(Line(f"  {name} => not found", style="red") for name in mapped.missing),
        ]
        problems = [line for line in mapped.problems if not _OF_PYTHON.match(line)]
        shown = problems[:_MAX_PROBLEMS]
        lines += [Line(f"  ld.so: {' '.join(line.split())}", style="yellow") for line in shown]
        if more := len(problems) - len(shown):
            lines.append(Line(f"  ld.so: and {pluralize(more, 'line')} more", style="yellow"))
        if count := len(mapped.problems) - len(problems):
            lines.append(
                Line(f"  {pluralize(count, 'symbol')} left to the Python that imports it", style="dim")
            )
    first = Line.assemble((f"{name}: ", "bold"), (summed.text, VERDICT_STYLE[summed.level]))
    if summed.commands and not verbose:  # what to do
        findings = [replace(found, remedy="") for found in findings]
    lines += findings_text(findings, verbose=verbose)
    return [first, *lines, *(verdict_text(summed) if verbose or lines or summed.step else ())]


def doctor_text(check: MachineCheck) -> list[Line]:
    """Return what `relink doctor` prints: the machine, each prefix, then what is wrong."""
    lines = [Line("This machine", style="bold")]
    lines += [Line(f"  {text}", style=style) for found in check.diagnoses for text, style in found.rows]
    for path, release, rows in (prefix for found in check.diagnoses for prefix in found.prefix_rows):
        lines += [Line(), Line.assemble((path, "bold"), f"  {release}")]
        lines += [Line(f"  {text}", style=style) for text, style in rows]
    lines += [Line(), *findings_text(check.findings, verbose=True)]
    return [*lines, Line("The packages of an environment: relink check")]


def rules_table() -> list[Line]:
    """Every finding code, a line each."""
    rows = [
        (rule.code, Line(rule.level, style=_LEVEL_STYLE[rule.level]), rule.title) for rule in RULES.values()
    ]
    return align_rows([("code", "level", "title"), *rows])


def rule_text(rule: Rule) -> list[Line]:
    """One rule in full."""
    return [
        Line.assemble((f"{rule.code} ", _LEVEL_STYLE[rule.level]), (rule.title, "bold"), f" ({rule.level})"),
        Line(rule.meaning),
        Line(f"→ {rule.fix}"),
        Line(),
        Line("For example:", style="dim"),
        *(Line(f"  {line}") for line in rule.example.splitlines()),
    ]


def survey_text(survey: Survey, gpus: Sequence[RequestedGpu]) -> Iterator[Line]:
    """Yield the survey: one line a file, with all that is known of it."""
    yield _survey_head(survey)
    for entry in survey.items:
        groups = group_pairs((str(entry.level(TargetId(name))), name) for name in entry.processors())
        told = "; ".join(f"{state} {' '.join(names)}" for state, names in groups.items())
        if not told:
            # No GPU is named in the entry, so any one stands for all.
            level = entry.level(survey.example)
            told = level.note or ("compiled on first use" if level.state == "jit" else "nothing for any GPU")
        yield Line(f"{_shown(survey, entry)}: {entry.summary}: {told}")
    yield from map(Line, _together(survey))
    yield from _verdicts(survey, gpus)
    problems = list(survey.problems)
    for entry in survey.items:
        problems += [f"{_shown(survey, entry)}: {text}" for text in entry.problems[:3]]
    yield from (Line(f"warning: {text}", style="yellow") for text in problems)


def _survey_head(survey: Survey) -> Line:
    text = f": {survey.kind}, {pluralize(survey.read, 'file')} with GPU code read"
    if survey.kind == "file":
        text = ": file"
    elif len(survey.kernel_files) == len(survey.items):
        text = f": {survey.kind}, no library with GPU code"
    if survey.plain:
        text += f"; {len(survey.plain)} ELF files without any"
    return Line.assemble((survey.path, "bold"), text)


def _shown(survey: Survey, entry: Coverage) -> str:
    if survey.kind == "directory":
        return os.path.relpath(entry.path, os.path.realpath(survey.path))
    return entry.path


def _together(survey: Survey) -> Iterator[str]:
    """What the files cover together; one line a group."""
    if not survey.known:
        if processors := {name for one in survey.kernel_files for name in one.processors()}:
            yield f"kernel files are there for {join_with_and(sorted(processors))}"
        elif survey.items:
            yield "nothing here restricts the GPUs"
        return
    for group in survey.groups:
        together = group.together
        text = join_with_and(together.targets) or "no architecture"
        if together.conditional:
            text += f"; under a condition {join_with_and(together.conditional)}"
        name = "all together cover"
        if len(survey.groups) > 1 and group.name:
            is_runtime, base = group.is_runtime, os.path.basename(group.name)
            name = f"with {group.name} all together cover" if is_runtime else f"with {base} covered"
        yield f"{name}: {text}"


def _verdicts(survey: Survey, gpus: Sequence[RequestedGpu]) -> Iterator[Line]:
    for gpu in gpus:
        if survey.covers(gpu.target):
            # A library that its callers can do without restricts nothing, and may have code all the same.
            served = any(item.level(gpu.target).state in ("full", "slow") for item in survey.items)
            sure = survey.known or served
            word = "covered" if sure else "not restricted: no prebuilt code"
            having = [group for group in survey.groups if not group.lacking(gpu.target)]
            if survey.known and len(having) < len(survey.groups):
                word += f" with {join_with_and([os.path.basename(group.name) for group in having])} only"
            yield Line.assemble((f"{gpu}", "bold"), ": ", (word, "green"))
            continue
        lacking = {
            os.path.basename(entry.path): str(level)
            for group in survey.groups
            for entry, level in group.lacking(gpu.target)
        }
        by = ", ".join(f"{name} ({state})" for name, state in lacking.items()) or "no kernel file is for it"
        yield Line.assemble((f"{gpu}", "bold"), ": ", ("missing", "bold red"), f": {by}")
