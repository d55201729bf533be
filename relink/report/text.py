"""What a person reads on a terminal, or in a pipe: tables by rich, plain where there is no terminal."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from relink.findings.model import RULES, Finding, Rule

if TYPE_CHECKING:  # names in annotations only; a command that prints need not load the whole road
    from relink.loader.dryrun import LoaderMap
    from relink.plans.model import FilePlan, NeededDecision
    from relink.report.model import Report

__all__ = [
    "findings_text",
    "plan_text",
    "rule_text",
    "rules_table",
    "safe",
    "show",
    "summary_text",
    "verification_text",
]

_LEVEL_STYLE = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(10), *range(11, 32), *range(127, 160))}
_WIDE = 1 << 16  # columns of a pipe: no path is longer
_ORDER = {"error": 0, "warning": 1, "info": 2}


def show(console: Console, *parts: RenderableType) -> None:
    """Print `parts` below each other; long lines wrap on a terminal only, so that a pipe gets whole lines."""
    parts = tuple(_printable(part) if isinstance(part, Text) else part for part in parts)
    if console.is_terminal:
        for part in parts:
            console.print(part)
        return
    plain = Console(file=io.StringIO(), width=_WIDE, color_system=None)
    with plain.capture() as lines:
        for part in parts:
            plain.print(part, soft_wrap=isinstance(part, Text))
    for line in lines.get().removesuffix("\n").split("\n") if parts else ():
        console.print(Text(line.rstrip()), soft_wrap=True)


def _printable(text: Text) -> Text:
    """A name out of a file must not steer the terminal."""
    return Text(safe(text.plain), style=text.style) if safe(text.plain) != text.plain else text


def safe(text: str) -> str:
    """Return `text` with control characters spelled out, line ends excepted."""
    return text.translate(_CONTROLS)


def plan_text(report: Report, *, verbose: bool) -> list[Text]:
    """What happens to each file: a few lines for one that changes, nothing but the name for others with `verbose`."""
    lines = []
    for file in report.files:
        if file.changed:
            lines.append(Text.assemble((file.path, "bold"), f"  {_strategy(file)}"))
            lines += _change_lines(file)
        elif verbose:
            lines.append(
                Text(
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


def _change_lines(file: FilePlan) -> list[Text]:
    lines = []
    rpath, interpreter = file.rpath, file.interpreter
    if (rpath.before, rpath.kind_before) != (rpath.after, rpath.kind_after):
        for kind, path, mark, style in (
            (rpath.kind_before, rpath.before, "-", "red"),
            (rpath.kind_after, rpath.after, "+", "green"),
        ):
            if path is not None:
                lines.append(Text(f"  {mark} {(kind or '').upper()} {_shortened(path)}", style=style))
    if interpreter.before != interpreter.after:
        lines.append(Text(f"  - interpreter {interpreter.before}", style="red"))
        lines.append(Text(f"  + interpreter {interpreter.after}", style="green"))
    for entry in file.needed:
        if entry.action == "substitute":
            lines.append(Text(f"  ~ NEEDED {entry.soname} → {entry.soname_after}", style="yellow"))
        elif entry.action == "drop":
            lines.append(Text(f"  - NEEDED {entry.soname}", style="red"))
    added = [entry.soname for entry in file.needed if entry.action == "add"]
    if added:
        lines.append(Text(f"  + NEEDED {' '.join(added)}", style="green"))
    return lines


def _shortened(path: str) -> str:
    entries = path.split(":")
    if len(entries) > 8:
        return f"{':'.join(entries[:3])}:… ({len(entries)} entries)"
    return path


def _needed_lines(file: FilePlan) -> list[Text]:
    lines = []
    for entry in file.needed:
        lines.append(Text(f"    {_needed_line(entry)}"))
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
    """The findings, errors last so that they are what stays on the screen; infos with `verbose` only.

    A remedy that several findings in a row share is told once, behind them.
    """
    shown = [found for found in findings if verbose or found.level != "info"]
    shown.sort(key=lambda found: (-_ORDER[found.level], found.code))
    lines = []
    for number, found in enumerate(shown):
        head = (f"{found.level} {found.code} ", _LEVEL_STYLE[found.level])
        rests = f" [profile {found.profile}]" if found.profile else ""
        lines.append(Text.assemble(head, (found.subject, "bold"), f": {found.message}{rests}"))
        following = shown[number + 1].remedy if number + 1 < len(shown) else None
        if found.level != "info" and found.remedy != following and not found.remedy.startswith("Nothing"):
            lines.append(Text(f"    → {found.remedy}", style="dim"))
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


def verification_text(maps: Mapping[str, LoaderMap], findings: Sequence[Finding]) -> list[Text]:
    """What the real loader mapped for each member, and what is wrong."""
    lines = []
    for member, found in maps.items():
        lines.append(
            Text(f"{member}: {len(found.objects)} objects, {len(found.missing)} not found", style="bold")
        )
        lines += [Text(f"  {name} => {path}", style="dim") for name, path in found.objects]
        lines += [Text(f"  {name} => not found", style="red") for name in found.missing]
        lines += [Text(f"  {line}", style="yellow") for line in found.problems]
    return [*lines, *findings_text(findings, verbose=True)]


def rules_table() -> Table:
    """Every finding code, a line each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("code", "level", "title"):
        table.add_column(heading)
    for rule in RULES.values():
        table.add_row(rule.code, Text(rule.level, style=_LEVEL_STYLE[rule.level]), Text(rule.title))
    return table


def rule_text(rule: Rule) -> list[Text]:
    """One rule in full."""
    return [
        Text.assemble((f"{rule.code} ", _LEVEL_STYLE[rule.level]), (rule.title, "bold"), f" ({rule.level})"),
        Text(rule.meaning),
        Text(f"→ {rule.fix}"),
        Text("\nFor example:", style="dim"),
        *(Text(f"  {line}") for line in rule.example.splitlines()),
    ]
