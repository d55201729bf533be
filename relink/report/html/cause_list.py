"""The section of findings: by cause, the worst level first, and within a level what can be done at once first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from relink.report.html.markup import EMPTY, Html, breakable, joined, tag
from relink.report.html.words import FEW, LEVELS, few_items, name_of
from relink.system.findings.model import RULES, Cause, Finding, Level, causes
from relink.system.text import pluralize

# Named before they are folded.
_MOST_SUBJECTS = 3
# Single findings of one entry; the JSON report has them all.
_MOST_FACTS = 20


def told(findings: Iterable[Finding]) -> list[Cause]:
    """Return the causes in the order of the page; all notes of one code are one."""
    grouped = causes(_as_note(found) if found.level == "info" else found for found in findings)
    return sorted(grouped, key=lambda cause: (list(LEVELS).index(cause.level), _effort(cause)))


def _as_note(found: Finding) -> Finding:
    rule = RULES.get(found.code)
    return replace(found, cause=rule.meaning if rule else found.code)


def _effort(cause: Cause) -> int:
    """0 where it is known what to type, 1 where something is to be decided, 2 where nothing is to be done."""
    return 0 if cause.step else 2 if _idle(cause.remedy) else 1


def _idle(remedy: str) -> bool:
    return not remedy or remedy.startswith("Nothing")


def counted(findings: Iterable[Finding]) -> Counter[Level]:
    """Return how many entries the page has of each level."""
    return Counter(cause.level for cause in told(findings))


def findings_section(findings: Sequence[Finding]) -> Html:
    """Return the section; notes are closed."""
    found = told(findings)
    parts: list[Html] = []
    for level, (title, sign) in LEVELS.items():
        group = [cause for cause in found if cause.level == level]
        if not group:
            continue
        head = tag(
            "h3",
            tag("span", sign, class_="badge", aria_hidden="true"),
            title,
            tag("span", str(len(group)), class_="number"),
        )
        items = [_entry(cause) for cause in group]
        if level == "info":
            parts.append(tag("details", tag("summary", head), tag("ul", *items), class_=f"findings {level}"))
        else:
            parts.append(tag("div", head, *few_items(items, title.lower()), class_=f"findings {level}"))
    if not parts:
        parts.append(tag("p", "Nothing was found that is worth telling."))
    elif len(found) > FEW:
        name = "filter-findings"
        field = tag("input", type="search", id=name, autocomplete="off", spellcheck="false")
        label = tag("label", "Filter findings ", field)
        parts.insert(0, tag("p", label, tag("output", for_=name), class_="filter", hidden=True))
    return tag("section", tag("h2", "Findings", id="findings"), *parts, aria_labelledby="findings")


def _entry(cause: Cause) -> Html:
    rule = RULES.get(cause.code)
    head = tag(
        "p",
        tag("span", cause.code, class_="code"),
        tag("span", rule.title, class_="muted") if rule else None,
        tag("span", f", by the profile {cause.profile}", class_="muted") if cause.profile else None,
    )
    return tag(
        "li",
        head,
        EMPTY if cause.whole else _subjects(cause.subjects),
        tag("p", breakable(cause.message)),
        _next(cause),
        _facts(cause),
        class_="cause",
    )


def _subjects(subjects: Sequence[str]) -> Html:
    named = joined([name_of(subject) for subject in subjects[:_MOST_SUBJECTS]], ", ")
    if len(subjects) <= _MOST_SUBJECTS:
        return tag("p", named, class_="subject")
    rest = [tag("li", name_of(subject)) for subject in subjects[_MOST_SUBJECTS:]]
    summary = tag("summary", named, f" and {len(rest)} more", class_="subject")
    return tag("details", summary, tag("ul", *rest), class_="more")


def _next(cause: Cause) -> Html | None:
    if cause.step:
        word = "Pass " if cause.step.startswith("--") else ""
        return tag("p", tag("b", "Next: "), word, name_of(cause.step), class_="remedy")
    if not cause.remedy:
        return None
    marks = "muted remedy" if _idle(cause.remedy) else "remedy"
    return tag("p", tag("b", "Next: "), breakable(cause.remedy), class_=marks)


def _facts(cause: Cause) -> Html | None:
    """The single findings, closed, where they say more than the cause."""
    if all(found.message == cause.message for found in cause.findings) and not cause.step:
        return None
    items = [
        tag(
            "li",
            name_of(found.subject),
            ": ",
            breakable(found.message),
            joined([" ", tag("i", breakable(found.remedy))])
            if found.remedy != cause.remedy or cause.step
            else None,
        )
        for found in cause.findings[:_MOST_FACTS]
    ]
    if more := len(cause.findings) - len(items):
        items.append(tag("li", f"{more} more are in the report as JSON", class_="muted"))
    summary = "Evidence" if len(cause.findings) == 1 else pluralize(len(cause.findings), "single finding")
    return tag("details", tag("summary", summary), tag("ul", *items), class_="more")
