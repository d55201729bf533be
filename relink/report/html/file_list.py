"""The section about the ELF files: the dynamic section of each, before and after."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import Any

from relink.planning.model.files import FilePlan, NeededDecision
from relink.planning.resolve.layout import Layout
from relink.report.html.graph import CHANGES, Change
from relink.report.html.markup import EMPTY, Html, joined, tag
from relink.report.html.words import change_mark, few, few_items, name_of, path_of, region, rule_phrase
from relink.system.text import grouped, pluralize

_STRATEGIES = {
    "nothing": "loads as it is",
    "runpath": "a RUNPATH of the directories used",
    "rpath": "a DT_RPATH, which libraries below inherit",
    "flatten": "what its libraries cannot find themselves is added to NEEDED",
}
# Dropped entries; more of them are in a closed part.
_MANY = 8


def files_section(files: tuple[FilePlan, ...]) -> Html:
    """Return the section: what happens to the files, those that change first; alike files are one entry.

    An entry is open if it is the only one that changes; what does not change is behind a summary.
    """
    numbered = sorted(enumerate(files), key=lambda item: not item[1].changed)
    groups = grouped((_alike(file), (number, file)) for number, file in numbered).values()
    changed = sum(group[0][1].changed for group in groups)
    parts = [_group(group, alone=changed == 1) for group in groups]
    if not parts:
        parts = [tag("p", "The wheel has no ELF file that this loader can meet.")]
    return tag("section", tag("h2", "Files", id="files"), *few(parts, "entries"), aria_labelledby="files")


def _alike(file: FilePlan) -> tuple[Any, ...]:
    """Everything that is shown of a file but its name."""
    own = _own(file)
    shown = tuple(
        (entry.action, entry.soname, entry.soname_after, *_served(entry, own)) for entry in file.needed
    )
    return file.changed, file.served, _sentence(file), file.rpath, file.interpreter, shown


def _own(file: FilePlan) -> str:
    return Layout().shown(Layout().path_of(file.path))


def _group(files: Sequence[tuple[int, FilePlan]], *, alone: bool) -> Html:
    (number, file), *others = files
    state = "changed" if file.changed else "unchanged" if file.served else "not served"
    title = tag(
        "summary",
        tag("h3", path_of(file.path), f" and {len(others)} more" if others else None),
        tag("span", state, class_=f"state {state.replace(' ', '-')}"),
        tag("span", _sentence(file), class_="muted"),
    )
    parts = [_search_path(file), _needed(file)]
    if file.interpreter.before is not None or file.interpreter.after is not None:
        parts.insert(0, _interpreter(file))
    if others:
        names = [tag("li", path_of(other.path), id=f"file-{place}") for place, other in others]
        parts.insert(0, joined(few_items(names, "files", class_="alike")))
    return tag("details", title, *parts, class_="file", id=f"file-{number}", open=alone and file.changed)


def _sentence(file: FilePlan) -> str:
    if not file.served:
        return "left as it is: no prefix has it"
    parts = [_STRATEGIES[file.strategy]]
    if file.strategy == "runpath" and file.rpath.after is None and file.rpath.before is not None:
        parts = ["no search path is needed"]
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
    row = tag(
        "tr",
        tag("td", change_mark(change)),
        tag("td", tag("code", before or "none")),
        tag("td", tag("code", after or "none")),
        class_=change,
    )
    return _table(file, "Interpreter", [row], ("Change", "Before", "After"))


def _search_path(file: FilePlan) -> Html:
    change = file.rpath
    before = [] if change.before is None else change.before.split(":")
    after = [] if change.after is None else change.after.split(":")
    kind_before, kind_after = _kind(change.kind_before, before), _kind(change.kind_after, after)
    if not before and not after:
        return tag("p", "Search path: none", class_="none")
    unchanged = (before, change.kind_before) == (after, change.kind_after)
    told = f"{kind_before}, unchanged" if unchanged else f"{kind_before} before, {kind_after} after"
    added = [_change("added", entry) for entry in after if entry not in before]
    dropped = [_change("dropped", entry) for entry in before if entry not in after]
    kept = [tag("li", _entry(entry)) for entry in after if entry in before]
    parts = [tag("p", f"Search path: {told}", class_="caption")]
    if added or dropped:
        few_dropped = dropped if len(dropped) <= _MANY else ()
        parts.append(tag("ul", *added, *few_dropped, class_="changes"))
    if len(dropped) > _MANY:
        summary = tag("summary", f"{len(dropped)} entries dropped")
        parts.append(tag("details", summary, tag("ul", *dropped, class_="changes"), class_="more"))
    return joined([*parts, _kept(kept, len(kept))])


def _change(change: Change, entry: str) -> Html:
    return tag("li", tag("b", change), " ", _entry(entry), class_=change)


def _kept(items: list[Html], number: int) -> Html | None:
    """What stays as it is, closed."""
    if not items:
        return None
    summary = tag("summary", f"{pluralize(number, 'entry', 'entries')} unchanged")
    return tag("details", summary, tag("ul", *items), class_="more kept")


def _kind(kind: str | None, entries: list[str]) -> str:
    return "none" if kind is None else f"{kind.upper()} of {pluralize(len(entries), 'entry', 'entries')}"


def _entry(text: str) -> Html:
    return tag("span", "(empty: the current directory)", class_="muted") if text == "" else tag("code", text)


def _needed(file: FilePlan) -> Html:
    if not file.needed:
        return tag("p", "NEEDED: nothing", class_="none")
    changed = sum(entry.action != "keep" for entry in file.needed)
    title = f"NEEDED: {pluralize(len(file.needed), 'entry', 'entries')}, {changed} changed"
    own = _own(file)
    rows = [_needed_row(entry, own) for entry in file.needed if not _quiet(entry)]
    quiet = list(filter(_quiet, file.needed))
    places = grouped((joined(_served(entry, own)), entry.soname) for entry in quiet)
    items = [tag("li", tag("code", ", ".join(names)), " ", place) for place, names in places.items()]
    kept = _kept(items, len(quiet))
    heads = ("Change", "Before", "After", "Served by")
    return joined([_table(file, title, rows, heads) if rows else tag("p", title, class_="caption"), kept])


def _quiet(entry: NeededDecision) -> bool:
    """Whether nothing became of the entry, and it is found under its name."""
    under_its_name = posixpath.basename(entry.resolved or "") == entry.soname
    return entry.action == "keep" and under_its_name and not entry.evidence


def _needed_row(entry: NeededDecision, own: str) -> Html:
    change = CHANGES[entry.action]
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
        path = posixpath.normpath(entry.resolved)
        directory, _, name = path.rpartition("/")
        # The name is in the row already.
        same = name == entry.soname_after and directory
        yield joined([" ", tag("code", directory) if same else path_of(path)])
    if entry.found_by:
        yield tag("span", f" {rule_phrase(entry.found_by, [own])}", class_="rule")
    yield from (tag("div", sentence, class_="evidence") for sentence in entry.evidence)


def _table(file: FilePlan, title: str, rows: list[Html], heads: tuple[str, ...]) -> Html:
    head = tag("thead", tag("tr", *(tag("th", word, scope="col") for word in heads)))
    return region(title, head, tag("tbody", *rows), class_="dynamic", about=file.path)
