"""GPU code for people: a line for each file, what they cover together, and whether that is enough for some GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from relink.gpu.coverage import Coverage, CoverageLevel, Group, RequestedGpu, Survey, TargetId
from relink.report.lines import Line
from relink.system.text import group_pairs, join_with_and, pluralize


def survey_text(survey: Survey, gpus: Sequence[RequestedGpu]) -> Iterator[Line]:
    """Yield the survey: one line a file, with all that is known of it."""
    yield _head(survey)
    for entry in survey.items:
        levels = {name: entry.level(TargetId(name)) for name in entry.processors()}
        yield Line(
            f"{_shown(survey, entry)}: {entry.summary}: {_by_state(levels) or _nothing(survey, entry)}"
        )
    yield from map(Line, _together(survey))
    yield from _verdicts(survey, gpus)
    yield from (Line(f"warning: {text}", style="yellow") for text in _problems(survey))


def _head(survey: Survey) -> Line:
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


def _nothing(survey: Survey, entry: Coverage) -> str:
    # No GPU is named in the entry, so any one stands for all.
    level = entry.level(survey.example)
    return level.note or ("compiled on first use" if level.state == "jit" else "nothing for any GPU")


def _by_state(levels: dict[str, CoverageLevel]) -> str:
    groups = group_pairs((str(level), name) for name, level in levels.items())
    return "; ".join(f"{state} {' '.join(names)}" for state, names in groups.items())


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
        yield f"{_name(group, len(survey.groups))}: {text}"


def _name(group: Group, groups: int) -> str:
    if groups == 1 or not group.name:
        return "all together cover"
    if group.is_runtime:
        return f"with {group.name} all together cover"
    return f"with {os.path.basename(group.name)} covered"


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


def _problems(survey: Survey) -> list[str]:
    problems = list(survey.problems)
    for entry in survey.items:
        problems += [f"{_shown(survey, entry)}: {text}" for text in entry.problems[:3]]
    return problems
