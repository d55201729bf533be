"""The section about the ELF files: the dynamic section of each, before and after."""

from __future__ import annotations

from collections.abc import Iterator

from relink.plans.model import FilePlan, NeededDecision
from relink.report.html.graph import Change
from relink.report.html.markup import EMPTY, Html, joined, tag
from relink.report.html.words import change_mark, name_of, path_of, region
from relink.resolve.layout import Layout
from relink.text import pluralize

__all__ = ["files_section"]

_STRATEGIES = {
    "nothing": "loads as it is",
    "runpath": "a RUNPATH of the directories used",
    "rpath": "a DT_RPATH, which libraries below inherit",
    "flatten": "what its libraries cannot find themselves is added to NEEDED",
}
_MANY = 12  # dropped entries; more of them are in a closed part
_ACTIONS: dict[str, Change] = {"keep": "kept", "add": "added", "substitute": "replaced", "drop": "dropped"}


def files_section(files: tuple[FilePlan, ...]) -> Html:
    """Return the section; those of files that do not change are closed."""
    parts = [_file(number, file) for number, file in enumerate(files)]
    if not parts:
        parts = [tag("p", "The wheel has no ELF file that this loader can meet.")]
    return tag("section", tag("h2", "Files", id="files"), *parts, aria_labelledby="files")


def _file(number: int, file: FilePlan) -> Html:
    state = "changed" if file.changed else "unchanged" if file.served else "not served"
    title = tag(
        "summary",
        tag("h3", path_of(file.path)),
        tag("span", state, class_=f"state {state.replace(' ', '-')}"),
        tag("span", _sentence(file), class_="muted"),
    )
    tables = [_search_path(file), _needed(file)]
    if file.interpreter.before is not None or file.interpreter.after is not None:
        tables.insert(0, _interpreter(file))
    return tag("details", title, *tables, class_="file", id=f"file-{number}", open=file.changed)


def _sentence(file: FilePlan) -> str:
    if not file.served:
        return "left as it is: the prefixes do not serve it"
    parts = [_STRATEGIES[file.strategy]] if file.changed or file.strategy != "nothing" else ["loads as it is"]
    for action, word in (("add", "added"), ("substitute", "replaced"), ("drop", "dropped")):
        if many := sum(entry.action == action for entry in file.needed):
            parts.append(f"{many} NEEDED {word}")
    if missing := sum(entry.origin == "missing" and entry.action != "drop" for entry in file.needed):
        parts.append(f"{missing} found nowhere")
    parts.append(f"{pluralize(len(file.closure), 'object')} in its closure")
    return ", ".join(parts)


def _interpreter(file: FilePlan) -> Html:
    before, after = file.interpreter.before, file.interpreter.after
    change: Change = "kept" if before == after else "replaced"
    return _table(
        file, "Interpreter", [_row(change, before or "none", after or "none")], ("Change", "Before", "After")
    )


def _search_path(file: FilePlan) -> Html:
    change = file.rpath
    before = [] if change.before is None else change.before.split(":")
    after = [] if change.after is None else change.after.split(":")
    kind_before, kind_after = _kind(change.kind_before, before), _kind(change.kind_after, after)
    title = (
        f"Search path: {kind_before} before, {kind_after} after" if before or after else "Search path: none"
    )
    if (before, change.kind_before) == (after, change.kind_after):
        title = f"Search path: {kind_before}, unchanged" if before else title
    if not before and not after:
        return tag("p", title, class_="none")
    gone = [entry for entry in before if entry not in after]
    rows = [
        _row("kept" if entry in before else "added", entry if entry in before else None, entry)
        for entry in after
    ]
    if len(gone) <= _MANY:
        rows += [_row("dropped", entry, None) for entry in gone]
    shown = _table(file, title, rows, ("Change", "Before", "After"))
    if len(gone) <= _MANY:
        return shown
    summary = f"{len(gone)} entries dropped"
    hidden = _table(
        file, summary, [_row("dropped", entry, None) for entry in gone], ("Change", "Before", "After")
    )
    return joined([shown, tag("details", tag("summary", summary), hidden, class_="more")])


def _kind(kind: str | None, entries: list[str]) -> str:
    if kind is None:
        return "none"
    return f"{kind.upper()} of {pluralize(len(entries), 'entry', 'entries')}"


def _row(change: Change, before: str | None, after: str | None) -> Html:
    return tag(
        "tr",
        tag("td", change_mark(change)),
        tag("td", _entry(before)),
        tag("td", _entry(after)),
        class_=change,
    )


def _entry(text: str | None) -> Html:
    if text is None:
        return EMPTY
    return tag("span", "(empty: the current directory)", class_="muted") if text == "" else name_of(text)


def _needed(file: FilePlan) -> Html:
    if not file.needed:
        return tag("p", "NEEDED: nothing", class_="none")
    changed = sum(entry.action != "keep" for entry in file.needed)
    title = f"NEEDED: {pluralize(len(file.needed), 'entry', 'entries')}, {changed} changed"
    own = Layout().shown(Layout().path_of(file.path))
    rows = [_needed_row(entry, own) for entry in file.needed]
    return _table(file, title, rows, ("Change", "Before", "After", "Served by"))


def _needed_row(entry: NeededDecision, own: str) -> Html:
    change = _ACTIONS[entry.action]
    return tag(
        "tr",
        tag("td", change_mark(change)),
        tag("td", EMPTY if change == "added" else name_of(entry.soname)),
        tag("td", EMPTY if entry.soname_after is None else name_of(entry.soname_after)),
        tag("td", *_served(entry, own)),
        class_=change if entry.origin != "missing" or change == "dropped" else f"{change} lost",
    )


def _served(entry: NeededDecision, own: str) -> Iterator[Html]:
    if entry.action != "drop":
        yield tag("span", entry.origin, class_=f"origin {entry.origin}")
    if entry.resolved is not None:
        yield joined([" ", path_of(entry.resolved)])
    if entry.found_by:
        yield tag("div", entry.found_by.removesuffix(f" of {own}"), class_="rule")
    for sentence in entry.evidence:
        yield tag("div", sentence, class_="evidence")


def _table(file: FilePlan, title: str, rows: list[Html], heads: tuple[str, ...]) -> Html:
    head = tag("thead", tag("tr", *(tag("th", word, scope="col") for word in heads)))
    return region(title, head, tag("tbody", *rows), class_="dynamic", about=file.path)
