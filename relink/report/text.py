"""Plans, findings and rules as text for a terminal or a pipe: gives the parts of :mod:`relink.report.lines`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from relink.findings.model import RULES, Finding, Rule
from relink.report.lines import Grid, Line

if TYPE_CHECKING:  # names in annotations only; importing them would make every command start more slowly
    from relink.loader.dryrun import LoaderMap
    from relink.plans.model import FilePlan, NeededDecision
    from relink.report.model import Report

__all__ = [
    "findings_text",
    "found_text",
    "plan_text",
    "rule_text",
    "rules_table",
    "summary_text",
    "verification_text",
]

_LEVEL_STYLE = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_ORDER = {"error": 0, "warning": 1, "info": 2}


def found_text(report: Report) -> list[Line]:
    """Which ROCm was taken, where the user named none: what is printed first."""
    return [
        Line(
            f"no --prefix: {provider.path} is taken (ROCm {provider.rocm_version or 'of an unknown release'}, "
            f"found by {provider.found_by})"
        )
        for provider in report.providers
        if provider.found_by is not None
    ]


def plan_text(report: Report, *, verbose: bool) -> list[Line]:
    """What happens to each file: a few lines for one that changes, nothing but the name for others with `verbose`."""
    lines = []
    for file in report.files:
        if file.changed:
            lines.append(Line.assemble((file.path, "bold"), f"  {_strategy(file)}"))
            lines += _change_lines(file)
        elif verbose:
            lines.append(
                Line(
                    f"{file.path}  {'unchanged' if file.served else 'not served, left as it is'}", style="dim"
                )
            )
        if verbose:
            lines += _needed_lines(file)
    return lines


def _strategy(file: FilePlan) -> str:
    counts = {
        word: sum(entry.action == action for entry in file.needed)
        for action, word in (("add", "added"), ("substitute", "replaced"), ("drop", "dropped"))
    }
    parts = [f"{count} NEEDED {word}" for word, count in counts.items() if count]
    missing = sum(entry.origin == "missing" and entry.action == "keep" for entry in file.needed)
    if missing:
        parts.append(f"{missing} missing")
    parts.append(f"{len(file.closure)} objects in its closure")
    return ", ".join(parts)


def _change_lines(file: FilePlan) -> list[Line]:
    lines = []
    rpath, interpreter = file.rpath, file.interpreter
    if (rpath.before, rpath.kind_before) != (rpath.after, rpath.kind_after):
        for kind, path, mark, style in (
            (rpath.kind_before, rpath.before, "-", "red"),
            (rpath.kind_after, rpath.after, "+", "green"),
        ):
            if path is not None:
                lines.append(Line(f"  {mark} {(kind or '').upper()} {_shortened(path)}", style=style))
    if interpreter.before != interpreter.after:
        lines.append(Line(f"  - interpreter {interpreter.before}", style="red"))
        lines.append(Line(f"  + interpreter {interpreter.after}", style="green"))
    for entry in file.needed:
        if entry.action == "substitute":
            lines.append(Line(f"  ~ NEEDED {entry.soname} → {entry.soname_after}", style="yellow"))
        elif entry.action == "drop":
            lines.append(Line(f"  - NEEDED {entry.soname}", style="red"))
    added = [entry.soname for entry in file.needed if entry.action == "add"]
    if added:
        lines.append(Line(f"  + NEEDED {' '.join(added)}", style="green"))
    return lines


def _shortened(path: str) -> str:
    entries = path.split(":")
    if len(entries) > 8:
        return f"{':'.join(entries[:3])}:… ({len(entries)} entries)"
    return path


def _needed_lines(file: FilePlan) -> list[Line]:
    lines = []
    for entry in file.needed:
        lines.append(Line(f"    {_needed_line(entry)}"))
        lines += [Line(f"      {sentence}", style="dim") for sentence in entry.evidence]
    return lines


def _needed_line(entry: NeededDecision) -> str:
    name = (
        entry.soname
        if entry.soname_after in (entry.soname, None)
        else f"{entry.soname} → {entry.soname_after}"
    )
    where = entry.resolved or entry.origin
    return f"{entry.action:10} {name}  {entry.origin}: {where}" + (
        f"  [{entry.found_by}]" if entry.found_by else ""
    )


def findings_text(findings: Sequence[Finding], *, verbose: bool) -> list[Line]:
    """The findings, errors last so that they are what stays on the screen; infos with `verbose` only.

    A remedy that several findings in a row share is printed once, behind them.
    """
    shown = [found for found in findings if verbose or found.level != "info"]
    shown.sort(key=lambda found: (-_ORDER[found.level], found.code))
    lines = []
    for number, found in enumerate(shown):
        head = (f"{found.level} {found.code} ", _LEVEL_STYLE[found.level])
        rests = f" [profile {found.profile}]" if found.profile else ""
        lines.append(Line.assemble(head, (found.subject, "bold"), f": {found.message}{rests}"))
        following = shown[number + 1].remedy if number + 1 < len(shown) else None
        if found.level != "info" and found.remedy != following and not found.remedy.startswith("Nothing"):
            lines.append(Line(f"    → {found.remedy}", style="dim"))
    return lines


def summary_text(report: Report) -> Line:
    """One line: what came of it."""
    counts = {level: sum(found.level == level for found in report.findings) for level in _ORDER}
    tally = ", ".join(
        f"{count} {level}{'s' if count > 1 else ''}" for level, count in counts.items() if count
    )
    changed = sum(file.changed for file in report.files)
    if report.output is not None:
        text = f"{report.output.path}  ({changed} of {len(report.files)} ELF files changed; {tally or 'no findings'})"
        return Line(text, style="green" if report.ok else "yellow")
    if not report.ok:
        return Line(f"nothing written: {tally}", style="bold red")
    return Line(f"{changed} of {len(report.files)} ELF files would change; {tally or 'no findings'}")


def verification_text(maps: Mapping[str, LoaderMap], findings: Sequence[Finding]) -> list[Line]:
    """What the real loader mapped for each member, and what is wrong."""
    lines = []
    for member, found in maps.items():
        lines.append(
            Line(f"{member}: {len(found.objects)} objects, {len(found.missing)} not found", style="bold")
        )
        lines += [Line(f"  {name} => {path}", style="dim") for name, path in found.objects]
        lines += [Line(f"  {name} => not found", style="red") for name in found.missing]
        lines += [Line(f"  ld.so: {line}", style="yellow") for line in found.problems]
    return [*lines, *findings_text(findings, verbose=True)]


def rules_table() -> Grid:
    """Every finding code, a line each."""
    table = Grid()
    for heading in ("code", "level", "title"):
        table.add_column(heading)
    for rule in RULES.values():
        table.add_row(rule.code, Line(rule.level, style=_LEVEL_STYLE[rule.level]), Line(rule.title))
    return table


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
