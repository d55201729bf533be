"""What a person reads on a terminal, or in a pipe: tables by rich, plain where there is no terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from relink.loader.closure import Closure, Edge
from relink.plan.findings import RULES, Finding, Rule
from relink.plan.layout import Layout
from relink.plan.model import FilePlan, NeededDecision
from relink.report.model import Report

__all__ = ["findings_text", "plan_text", "rule_text", "rules_table", "show", "summary_text", "why_text"]

_LEVEL_STYLE = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_ORDER = {"error": 0, "warning": 1, "info": 2}


def show(console: Console, *parts: RenderableType) -> None:
    """Print `parts` below each other; long lines wrap on a terminal only, so that a pipe gets whole lines."""
    for part in parts:
        console.print(part, soft_wrap=not console.is_terminal, markup=False, highlight=False)


def plan_text(report: Report, *, verbose: bool) -> RenderableType:
    """What happens to each file: one table of the files, and with `verbose` one line a NEEDED below."""
    table = Table(title=None, box=None, pad_edge=False, header_style="bold")
    for heading in ("file", "strategy", "search path", "NEEDED", "closure"):
        table.add_column(heading, overflow="fold")
    for file in report.files:
        changed = "style" if file.changed else "dim"
        table.add_row(
            Text(file.path, style="" if file.changed else "dim"),
            file.strategy if file.served else "not served",
            _search_path(file),
            _needed_summary(file),
            f"{len(file.closure)} objects",
            style=None if changed == "style" else "dim",
        )
    if not verbose:
        return table
    return Group(table, *(line for file in report.files for line in _needed_lines(file)))


def _search_path(file: FilePlan) -> str:
    if file.rpath.after is None:
        return "(none)" if file.rpath.before is None else "removed"
    kind = "" if file.rpath.kind_after == "runpath" else "DT_RPATH "
    return kind + file.rpath.after.replace(":", "\n")


def _needed_summary(file: FilePlan) -> str:
    parts = []
    for action, word in (("add", "added"), ("substitute", "replaced"), ("drop", "dropped")):
        count = sum(entry.action == action for entry in file.needed)
        if count:
            parts.append(f"{count} {word}")
    missing = sum(entry.origin == "missing" for entry in file.needed)
    if missing:
        parts.append(f"{missing} missing")
    return ", ".join(parts) or "unchanged"


def _needed_lines(file: FilePlan) -> list[Text]:
    lines = [Text(f"\n{file.path}", style="bold")]
    for entry in file.needed:
        lines.append(Text(f"  {_needed_line(entry)}"))
        lines += [Text(f"      {sentence}", style="dim") for sentence in entry.evidence]
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


def findings_text(findings: Sequence[Finding], *, verbose: bool) -> list[Text]:
    """The findings, errors last so that they are what stays on the screen; infos with `verbose` only."""
    lines = []
    for found in sorted(findings, key=lambda item: -_ORDER[item.level]):
        if found.level == "info" and not verbose:
            continue
        line = Text.assemble(
            (f"{found.level} {found.code} ", _LEVEL_STYLE[found.level]),
            (found.subject, "bold"),
            f": {found.message}",
        )
        if found.level != "info" and not found.remedy.startswith("Nothing"):
            line.append(f"\n    → {found.remedy}", style="dim")
        lines.append(line)
    return lines


def summary_text(report: Report) -> Text:
    """One line: what came of it."""
    counts = {level: sum(found.level == level for found in report.findings) for level in _ORDER}
    tally = ", ".join(
        f"{count} {level}{'s' if count > 1 else ''}" for level, count in counts.items() if count
    )
    changed = sum(file.changed for file in report.files)
    if report.output is not None:
        text = f"{report.output.path}  ({changed} of {len(report.files)} ELF files changed; {tally or 'no findings'})"
        return Text(text, style="green" if report.ok else "yellow")
    if not report.ok:
        return Text(f"nothing written: {tally}", style="bold red")
    return Text(f"{changed} of {len(report.files)} ELF files would change; {tally or 'no findings'}")


def why_text(closure: Closure, layout: Layout, edges: Sequence[Edge]) -> list[Text]:
    """Explain edges: who asked, by which rule it was found, or everything that was tried."""
    lines = []
    for edge in edges:
        requester = layout.shown(closure.objects[edge.requester].path)
        lines.append(Text(f"{requester} needs {edge.soname}", style="bold"))
        if edge.target is not None:
            lines.append(Text(f"  found: {layout.shown(closure.objects[edge.target].path)}"))
            lines.append(Text(f"  by: {layout.shown(str(edge.found_by))}"))
        else:
            lines.append(Text("  not found", style="red"))
        for tried in edge.tried:
            where = layout.shown(str(tried.found_by))
            lines.append(Text(f"  tried {layout.shown(tried.path)} ({where}): {tried.reason}", style="dim"))
    return lines


def rules_table() -> Table:
    """Every finding code, a line each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("code", "level", "title"):
        table.add_column(heading)
    for rule in RULES.values():
        table.add_row(rule.code, Text(rule.level, style=_LEVEL_STYLE[rule.level]), escape(rule.title))
    return table


def rule_text(rule: Rule) -> list[Text]:
    """One rule in full."""
    return [
        Text.assemble((f"{rule.code} ", _LEVEL_STYLE[rule.level]), (rule.title, "bold"), f" ({rule.level})"),
        Text(rule.meaning),
        Text(f"→ {rule.fix}"),
    ]
