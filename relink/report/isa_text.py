"""GPU code for people: a table of architectures and files on a terminal, whole lines in a pipe.

Every cell is a word or a sign, so the colours may be missing; columns that do not fit go below.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from rich.console import Console

from relink.gpu import (
    CoverageLevel,
    FileCoverage,
    Group,
    Item,
    Kernels,
    LibraryCoverage,
    Survey,
    TargetId,
    Wanted,
    table,
)
from relink.report.lines import Grid, Line, Part
from relink.system.text import join_with_and, pluralize

__all__ = ["survey_lines", "survey_table", "survey_text"]

_STYLE = {
    "full": "green",
    "partial": "yellow",
    "slow": "yellow",
    "jit": "cyan",
    "conditional": "yellow",
    "unknown": "magenta",
    "none": "red",
}
_LEGEND = (
    "yes: in all bundles, n/m: in n of m, cond: for one setting of xnack or sramecc, slow: untuned kernels, "
    "jit: compiled on first use, -: none, ?: unknown"
)
_ROW, _COLUMN, _PRODUCTS = 18, 8, 34  # columns of the terminal: the heading of a row, a cell, the products


def survey_text(survey: Survey, gpus: Sequence[Wanted], console: Console) -> list[Part]:
    """Return the survey in the form that fits where it is printed."""
    if console.is_terminal:
        return survey_table(survey, gpus, console.width)
    return list(survey_lines(survey, gpus))


def survey_table(survey: Survey, gpus: Sequence[Wanted], width: int) -> list[Part]:
    """Return the survey for a terminal of `width` columns: what the files are, then a table of all architectures."""
    parts: list[Part] = [_head(survey)]
    columns = _columns(survey, gpus)
    for number, (same, _) in enumerate(columns, 1):
        for index, entry in enumerate(same):
            mark = f"{number:>3}  " if index == 0 else "     "
            parts.append(Line.assemble((mark, "bold"), f"{_shown(survey, entry)}  ", (_what(entry), "dim")))
    if columns:
        parts += [Line(), *_tables(columns, _rows(survey, gpus), gpus, width), Line(_LEGEND, style="dim")]
    parts += [Line(line) for line in _together(survey)]
    parts += _verdicts(survey, gpus)
    parts += [Line(f"warning: {text}", style="yellow") for text in _problems(survey)]
    return parts


def survey_lines(survey: Survey, gpus: Sequence[Wanted]) -> list[Line]:
    """Return the survey for a pipe: one line a file, with all that is known of it."""
    lines = [_head(survey)]
    for entry in survey.items:
        levels = {name: entry.level(TargetId(name)) for name in entry.processors()}
        lines.append(Line(f"{_shown(survey, entry)}: {_what(entry)}: {_by_state(levels) or _nothing(entry)}"))
    lines += [Line(line) for line in _together(survey)]
    lines += _verdicts(survey, gpus)
    lines += [Line(f"warning: {text}") for text in _problems(survey)]
    return lines


def _head(survey: Survey) -> Line:
    code = sum(not isinstance(entry, Kernels) for entry in survey.items)
    text = f": {survey.kind}, {pluralize(survey.read, 'file')} with GPU code read"
    if survey.kind == "file":
        text = ": file"
    elif not code:
        text = f": {survey.kind}, no library with GPU code"
    if survey.plain:
        text += f"; {len(survey.plain)} ELF files without any"
    return Line.assemble((survey.path, "bold"), text)


def _shown(survey: Survey, entry: Item) -> str:
    if survey.kind == "directory":
        return os.path.relpath(entry.path, os.path.realpath(survey.path))
    return entry.path


def _what(entry: Item) -> str:
    """The container, and the kernel files beside it, in a few words."""
    if isinstance(entry, Kernels):
        return f"{entry.files} kernel files"
    file = entry.file if isinstance(entry, LibraryCoverage) else entry
    words = []
    if file.bundles:
        words.append(f"{file.container}, {pluralize(file.bundles, 'bundle')}")
    elif file.embedded:
        words.append(f"{file.embedded} embedded code objects")
    else:
        words.append("no GPU code")
    if isinstance(entry, LibraryCoverage):
        words += [f"{side.files} {side.kind} files" for side in entry.side]
        if entry.role is not None and entry.role.optional:
            words.append("optional")
    return ", ".join(words)


def _nothing(entry: Item) -> str:
    level = entry.level(TargetId("gfx1100"))
    return level.note or ("compiled on first use" if level.state == "jit" else "nothing for any GPU")


def _by_state(levels: dict[str, CoverageLevel]) -> str:
    groups: dict[str, list[str]] = {}
    for name, level in levels.items():
        groups.setdefault(str(level), []).append(name)
    return "; ".join(f"{state} {' '.join(names)}" for state, names in groups.items())


def _columns(
    survey: Survey, gpus: Sequence[Wanted]
) -> list[tuple[list[Item], dict[TargetId, CoverageLevel]]]:
    """Return the columns; files that cover the same in the same way share one."""
    columns: dict[tuple[str, ...], tuple[list[Item], dict[TargetId, CoverageLevel]]] = {}
    for entry in survey.items:
        levels = {row: entry.level(row) for row in _rows(survey, gpus)}
        key = tuple(_cell(level)[0] for level in levels.values())
        columns.setdefault(key, ([], levels))[0].append(entry)
    return list(columns.values())


def _rows(survey: Survey, gpus: Sequence[Wanted]) -> list[TargetId]:
    rows = {TargetId(name): None for name in survey.processors()}
    rows |= dict.fromkeys(gpu.target for gpu in gpus)
    return list(rows)


def _cell(level: CoverageLevel) -> tuple[str, str]:
    """Return the sign of a level, and its colour."""
    sign = {"full": "yes", "conditional": "cond", "unknown": "?", "none": "-"}.get(level.state, level.state)
    if level.state == "partial":
        sign = f"{level.count}/{level.total}"
    return sign, _STYLE[level.state]


def _tables(
    columns: Sequence[tuple[list[Item], dict[TargetId, CoverageLevel]]],
    rows: Sequence[TargetId],
    gpus: Sequence[Wanted],
    width: int,
) -> Iterator[Grid]:
    """Yield as many tables as it takes for their columns to fit; the products only where they fit."""
    per_table = max(1, (width - _ROW) // _COLUMN)
    wanted = {gpu.target for gpu in gpus}
    known = table().processors
    for start in range(0, len(columns), per_table):
        part = columns[start : start + per_table]
        products = start == 0 and width - _ROW - _COLUMN * len(part) >= _PRODUCTS
        result = Grid()
        result.add_column("architecture", no_wrap=True, min_width=_ROW - 2)
        for number in range(start + 1, start + len(part) + 1):
            result.add_column(str(number), no_wrap=True, min_width=_COLUMN - 2)
        if products:
            result.add_column("products", no_wrap=True, overflow="ellipsis", style="dim")
        for row in rows:
            cells = [Line(*_cell(levels[row])) for _, levels in part]
            mark = "> " if row in wanted else "  "
            names = known[row.processor].products if row.processor in known else ()
            result.add_row(
                Line(f"{mark}{row}", style="bold" if row in wanted else ""),
                *cells,
                *([Line(", ".join(names))] if products else []),
            )
        yield result


def _together(survey: Survey) -> Iterator[str]:
    """What the files cover together; one line a group."""
    if not survey.known:
        if survey.items:
            yield "nothing here restricts the GPUs"
        return
    for group in survey.groups:
        together = group.together
        text = join_with_and(together.targets) or "no architecture"
        if together.conditional:
            text += f"; under a condition {join_with_and(together.conditional)}"
        yield f"{_name(group, len(survey.groups))}: {text}"


def _name(group: Group, groups: int) -> str:
    if groups == 1 or not group.name:
        return "all together cover"
    if group.name.startswith("libamdhip64"):
        return f"with {group.name} all together cover"
    return f"with {os.path.basename(group.name)} covered"


def _verdicts(survey: Survey, gpus: Sequence[Wanted]) -> list[Line]:
    lines = []
    for gpu in gpus:
        if survey.covers(gpu.target):
            sure = survey.known or any(isinstance(entry, Kernels) for entry in survey.items)
            word = "covered" if sure else "not restricted: no prebuilt code"
            having = [group for group in survey.groups if not group.lacking(gpu.target)]
            if survey.known and len(having) < len(survey.groups):
                word += f" with {join_with_and([os.path.basename(group.name) for group in having])} only"
            lines.append(Line.assemble((f"{gpu}", "bold"), ": ", (word, "green")))
            continue
        lacking = {
            os.path.basename(entry.path): str(level)
            for group in survey.groups
            for entry, level in group.lacking(gpu.target)
        }
        by = ", ".join(f"{name} ({state})" for name, state in lacking.items()) or "no kernel file is for it"
        lines.append(Line.assemble((f"{gpu}", "bold"), ": ", ("missing", "bold red"), f": {by}"))
    return lines


def _problems(survey: Survey) -> list[str]:
    problems = list(survey.problems)
    for entry in survey.items:
        file = entry.file if isinstance(entry, LibraryCoverage) else entry
        if isinstance(file, FileCoverage):
            problems += [f"{_shown(survey, entry)}: {text}" for text in file.problems[:3]]
    return problems
