"""GPU code for people: a line for each file, what they cover together, and whether that is enough for some GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

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
)
from relink.report.lines import Line
from relink.system.text import grouped, join_with_and, pluralize


def survey_text(survey: Survey, gpus: Sequence[Wanted]) -> Iterator[Line]:
    """Yield the survey: one line a file, with all that is known of it."""
    yield _head(survey)
    for entry in survey.items:
        levels = {name: entry.level(TargetId(name)) for name in entry.processors()}
        yield Line(f"{_shown(survey, entry)}: {_what(entry)}: {_by_state(levels) or _nothing(entry)}")
    yield from map(Line, _together(survey))
    yield from _verdicts(survey, gpus)
    yield from (Line(f"warning: {text}", style="yellow") for text in _problems(survey))


def _head(survey: Survey) -> Line:
    text = f": {survey.kind}, {pluralize(survey.read, 'file')} with GPU code read"
    if survey.kind == "file":
        text = ": file"
    elif all(isinstance(entry, Kernels) for entry in survey.items):
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
    words = [f"{file.embedded} embedded code objects" if file.embedded else "no GPU code"]
    if file.bundles:
        words = [f"{file.container}, {pluralize(file.bundles, 'bundle')}"]
    if isinstance(entry, LibraryCoverage):
        words += [f"{side.files} {side.kind} files" for side in entry.side]
        if entry.role is not None and entry.role.optional:
            words.append("optional")
    return ", ".join(words)


def _nothing(entry: Item) -> str:
    # No GPU is named in the entry, so any one stands for all.
    level = entry.level(TargetId("gfx1100"))
    return level.note or ("compiled on first use" if level.state == "jit" else "nothing for any GPU")


def _by_state(levels: dict[str, CoverageLevel]) -> str:
    groups = grouped((str(level), name) for name, level in levels.items())
    return "; ".join(f"{state} {' '.join(names)}" for state, names in groups.items())


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


def _verdicts(survey: Survey, gpus: Sequence[Wanted]) -> Iterator[Line]:
    for gpu in gpus:
        if survey.covers(gpu.target):
            sure = survey.known or any(isinstance(entry, Kernels) for entry in survey.items)
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


def _problems(survey: Survey) -> list[str]:
    problems = list(survey.problems)
    for entry in survey.items:
        file = entry.file if isinstance(entry, LibraryCoverage) else entry
        if isinstance(file, FileCoverage):
            problems += [f"{_shown(survey, entry)}: {text}" for text in file.problems[:3]]
    return problems
