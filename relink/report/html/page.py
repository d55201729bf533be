"""The report as one HTML page: no network, no script needed, the same bytes for the same report.

The section of findings: by cause, the worst level first, and within a level what can be done at once first.

The section about dependencies: who loads whom, and by which rule.

The section about the ELF files: the dynamic section of each, before and after.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, partial
from importlib import resources
from typing import Any

import msgspec
from msgspec.structs import replace

from relink.loader.target import GLIBC_SONAMES
from relink.planning.model import FilePlan, Load, NeededDecision, Origin, map_strings
from relink.planning.resolve.context import Layout
from relink.providers.prefix import TREE
from relink.report.html.gpu_code import Isa, gpu_section
from relink.report.html.markup import (
    CHANGES,
    EMPTY,
    FEW,
    Change,
    Html,
    breakable,
    change_mark,
    escape_text,
    fact_row,
    fold,
    fold_items,
    fold_rest,
    head_row,
    inline_source,
    joined,
    name_of,
    path_of,
    region,
    tag,
)
from relink.report.model import Report
from relink.report.summary import product_of, verdict
from relink.report.text import shorten_prefix
from relink.system.bounded_json import read_typed
from relink.system.findings.model import RULES, Cause, Finding, Level, causes
from relink.system.text import group_pairs, pluralize

# A rule of the loader, as relink.loader.search writes it.
_SEARCH_PATH = re.compile(r"(RUNPATH|RPATH) entry .* of (.+)", re.DOTALL)
_DIRECTORY = re.compile(r"(LD_LIBRARY_PATH) entry .|(default directory) .", re.DOTALL)


def rule_phrase(found_by: str, requesters: Collection[str]) -> str:
    """Return the loader's rule in a few words: the directory is seen from the path that was found.

    :param requesters: the objects whose NEEDED it is; one of them need not be named as the owner of a search path.
    """
    if match := _SEARCH_PATH.fullmatch(found_by):
        kind, owner = match.groups()
        return f"by {kind}" if owner in requesters else f"by {kind} of {posixpath.basename(owner)}"
    if match := _DIRECTORY.match(found_by):
        return f"by {match[1] or match[2]}"
    return f"by {found_by}" if found_by == "ld.so.cache" else found_by


class Node(msgspec.Struct, eq=False):
    """A file of the wheel, a library, a soname that nothing serves, or the C library as one.

    :ivar name: its soname in the NEEDED entries; of a member, the file name, or the path where several have that name.
    :ivar path: None where nothing serves it.
    :ivar anchor: the id of the place with its details: its row in the table, or the section of its file.
    :ivar found_by: the rule that found it first.
    :ivar needed_by: what needs it, in order.
    :ivar parts: of the C library, the sonames of its files.
    """

    name: str
    path: str | None
    origin: Origin
    anchor: str
    is_member: bool = False
    found_by: str | None = None
    needed_by: dict[Node, None] = msgspec.field(default_factory=dict)
    parts: list[str] = msgspec.field(default_factory=list)


def graph_of(report: Report) -> tuple[Node, ...]:
    """Return the nodes, members first; of a report without `loads`, what the files' own NEEDED show."""
    nodes: dict[str, Node] = {}

    def enter(key: str, name: str, path: str | None, origin: Origin) -> Node:
        return nodes.setdefault(key, Node(name, path, origin, f"library-{len(nodes)}"))

    def enter_library(soname: str, path: str | None, origin: Origin, found_by: str | None = None) -> Node:
        if path is None:
            return enter(f"nothing {soname}", soname, None, origin)
        if soname in GLIBC_SONAMES:
            node = enter("C library", "C library", posixpath.dirname(path), "platform")
            node.parts += [soname] if soname not in node.parts else []
            return node
        node = enter(posixpath.normpath(path), soname, path, origin)
        # The rule by which another object had the library loaded says more.
        if found_by != "already loaded":
            node.found_by = node.found_by or found_by
        return node

    tree = next((provider.path for provider in report.providers if provider.kind == TREE), None)
    layout = Layout() if tree is None else Layout(tree, tree=True)
    called = Counter(posixpath.basename(file.path) for file in report.files)
    members = [(layout.shown(layout.path_of(file.path)), file) for file in report.files]
    for place, (path, file) in enumerate(members):
        name = posixpath.basename(file.path)
        node = Node(name if called[name] == 1 else file.path, path, "wheel", f"file-{place}", is_member=True)
        nodes.setdefault(posixpath.normpath(path), node)
    for load in report.loads or [
        Load(path, entry.soname_after or entry.soname, entry.resolved, entry.found_by, entry.origin)
        for path, file in members
        for entry in file.needed
        if entry.action != "drop"
    ]:
        start = enter_library(posixpath.basename(load.requester), load.requester, "provider")
        end = enter_library(load.soname, load.resolved, load.origin, load.found_by)
        if start is not end:
            end.needed_by[start] = None
    return tuple(nodes.values())


# The most names in a cell of the table that are open.
_MANY_LINKS = 5


def graph_section(nodes: Sequence[Node], glibc: str) -> Html:
    """Return the table of libraries; what nothing serves is first. What becomes of a NEEDED is with its file."""
    # Files of the wheel have a section of their own. The C library, the one node with parts, comes last.
    libraries = sorted(
        (node for node in nodes if not node.is_member),
        key=lambda node: (node.origin != "missing", node.origin != "assumed", bool(node.parts)),
    )
    title = f"Who loads whom: {pluralize(len(libraries), 'library', 'libraries')}"
    heads = head_row("Library", "From", "Where it is found", "Asked for by")
    rows = []
    for node in libraries:
        links = [tag("a", requester.name, href=f"#{requester.anchor}") for requester in node.needed_by]
        who = joined(links, ", ")
        if len(links) > _MANY_LINKS:
            who = tag("details", tag("summary", f"{len(links)} objects"), who)
        cells = (
            tag("th", name_of(node.name), scope="row"),
            tag("td", tag("span", node.origin, class_=f"origin {node.origin}")),
            tag("td", _where(node, glibc), class_="nowhere" if node.path is None else None),
            tag("td", who, class_="who"),
        )
        rows.append(tag("tr", *cells, id=node.anchor))
    return fold(title, region(title, heads, tag("tbody", *rows), class_="libraries"), id="libraries")


def _where(node: Node, glibc: str) -> Html:
    if node.path is None:
        return joined(["nowhere"])
    if node.parts:
        return joined([path_of(f"{node.path}/"), f" glibc {glibc}: {', '.join(node.parts)}"])
    directory, _, name = node.path.rpartition("/")
    # The file's name is in the first column, if it is the soname: then the directory says where it is.
    place = name_of(directory or "/") if name == node.name else path_of(node.path)
    requesters = {requester.path or "" for requester in node.needed_by}
    rule = rule_phrase(node.found_by, requesters) if node.found_by else ""
    return joined([place, tag("span", f" {rule}", class_="rule") if rule else None])


_STRATEGIES = {
    "nothing": "loads as it is",
    "runpath": "a RUNPATH of the directories used",
    "rpath": "a DT_RPATH, which libraries below inherit",
    "flatten": "what its libraries cannot find themselves is added to NEEDED",
}
# The most dropped entries that are open; more are in a closed part.
_MANY = 8


def files_section(files: tuple[FilePlan, ...]) -> Html:
    """Return what happens to the files, those that change first; alike files are one entry.

    An entry is open if it is the only one that changes; what does not change is behind a summary.
    """
    # The number is the file's place in the report, which links of the graph lead to.
    numbered = sorted(enumerate(files), key=lambda item: not item[1].changed)
    groups = group_pairs((_alike(file), (number, file)) for number, file in numbered).values()
    changed = sum(group[0][1].changed for group in groups)
    parts = [_group(group, alone=changed == 1) for group in groups]
    if not parts:
        parts = [tag("p", "The wheel has no ELF file that this loader can meet.")]
    return joined(fold_rest(parts, "entries"))


def _alike(file: FilePlan) -> tuple[Any, ...]:
    """Everything that is shown of a file but its name."""
    own = _own(file)
    entries = tuple(
        (entry.action, entry.soname, entry.soname_after, *_served(entry, own)) for entry in file.needed
    )
    return file.changed, file.served, _sentence(file), file.rpath, file.interpreter, entries


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
    before, after = file.interpreter.before, file.interpreter.after
    if before is not None or after is not None:
        change: Change = "kept" if before == after else "replaced"
        paths = (tag("td", tag("code", path or "none")) for path in (before, after))
        row = tag("tr", tag("td", change_mark(change)), *paths, class_=change)
        parts.insert(0, _table(file, "Interpreter", [row], ("Change", "Before", "After")))
    if others:
        names = [tag("li", path_of(other.path), id=f"file-{place}") for place, other in others]
        parts.insert(0, joined(fold_items(names, "files", class_="alike")))
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


def _search_path(file: FilePlan) -> Html:
    change = file.rpath
    before = [] if change.before is None else change.before.split(":")
    after = [] if change.after is None else change.after.split(":")
    kind_before, kind_after = (
        "none" if kind is None else f"{kind.upper()} of {pluralize(len(entries), 'entry', 'entries')}"
        for kind, entries in ((change.kind_before, before), (change.kind_after, after))
    )
    if not before and not after:
        return tag("p", "Search path: none", class_="none")
    unchanged = (before, change.kind_before) == (after, change.kind_after)
    told = f"{kind_before}, unchanged" if unchanged else f"{kind_before} before, {kind_after} after"
    added = [_change("added", entry) for entry in after if entry not in before]
    dropped = [_change("dropped", entry) for entry in before if entry not in after]
    kept = [tag("li", _path_entry(entry)) for entry in after if entry in before]
    parts = [tag("p", f"Search path: {told}", class_="caption")]
    if added or dropped:
        few_dropped = dropped if len(dropped) <= _MANY else ()
        parts.append(tag("ul", *added, *few_dropped, class_="changes"))
    if len(dropped) > _MANY:
        parts.append(fold(f"{len(dropped)} entries dropped", tag("ul", *dropped, class_="changes")))
    return joined([*parts, _kept(kept, len(kept))])


def _change(change: Change, entry: str) -> Html:
    return tag("li", change_mark(change), " ", _path_entry(entry), class_=change)


def _kept(items: list[Html], number: int) -> Html | None:
    """What stays as it is, closed."""
    if not items:
        return None
    return fold(f"{pluralize(number, 'entry', 'entries')} unchanged", tag("ul", *items), class_="more kept")


def _path_entry(text: str) -> Html:
    return tag("span", "(empty: the current directory)", class_="muted") if text == "" else tag("code", text)


def _needed(file: FilePlan) -> Html:
    if not file.needed:
        return tag("p", "NEEDED: nothing", class_="none")
    changed = sum(entry.action != "keep" for entry in file.needed)
    title = f"NEEDED: {pluralize(len(file.needed), 'entry', 'entries')}, {changed} changed"
    own = _own(file)
    rows = []
    for entry in (entry for entry in file.needed if not _quiet(entry)):
        change = CHANGES[entry.action]
        cells = (
            tag("td", change_mark(change)),
            tag("td", EMPTY if change == "added" else name_of(entry.soname)),
            tag("td", EMPTY if entry.soname_after is None else name_of(entry.soname_after)),
            tag("td", *_served(entry, own)),
        )
        lost = entry.origin == "missing" and change != "dropped"
        rows.append(tag("tr", *cells, class_=f"{change} lost" if lost else change))
    quiet = list(filter(_quiet, file.needed))
    places = group_pairs((joined(_served(entry, own)), entry.soname) for entry in quiet)
    items = [tag("li", tag("code", ", ".join(names)), " ", place) for place, names in places.items()]
    kept = _kept(items, len(quiet))
    heads = ("Change", "Before", "After", "Served by")
    return joined([_table(file, title, rows, heads) if rows else tag("p", title, class_="caption"), kept])


def _quiet(entry: NeededDecision) -> bool:
    """Whether nothing became of the entry, and it is found under its name."""
    under_its_name = posixpath.basename(entry.resolved or "") == entry.soname
    return entry.action == "keep" and under_its_name and not entry.evidence


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
    return region(title, head_row(*heads), tag("tbody", *rows), class_="dynamic", about=file.path)


LEVELS: dict[Level, tuple[str, str]] = {
    "error": ("Errors", "✕"),
    "warning": ("Warnings", "!"),
    "info": ("Notes", "i"),
}
# The most subjects that are named before the rest is folded.
_MOST_SUBJECTS = 3
# Single findings of one entry; the JSON report has them all.
_MOST_FACTS = 20


def visible_causes(findings: Iterable[Finding]) -> list[Cause]:
    """Return the causes in the order of the page; all notes of one code are one."""
    notes = {code: rule.meaning for code, rule in RULES.items()}
    merged = causes(
        replace(found, cause=notes.get(found.code, found.code)) if found.level == "info" else found
        for found in findings
    )
    # Where it is known what to type comes first, then where something is to be decided, then where nothing is to be done.
    return sorted(
        merged,
        key=lambda cause: (list(LEVELS).index(cause.level), 0 if cause.step else 1 + _idle(cause.remedy)),
    )


def _idle(remedy: str) -> bool:
    return not remedy or remedy.startswith("Nothing")


def findings_section(findings: Sequence[Finding]) -> Html:
    """Return the findings by level; notes are closed."""
    found = visible_causes(findings)
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
            parts.append(tag("div", head, *fold_items(items, title.lower()), class_=f"findings {level}"))
    if not parts:
        parts.append(tag("p", "Nothing was found that is worth telling."))
    elif len(found) > FEW:
        name = "filter-findings"
        field = tag("input", type="search", id=name, autocomplete="off", spellcheck="false")
        label = tag("label", "Filter findings ", field)
        parts.insert(0, tag("p", label, tag("output", for_=name), class_="filter", hidden=True))
    return joined(parts)


def _entry(cause: Cause) -> Html:
    rule = RULES.get(cause.code)
    head = tag(
        "p",
        tag("span", cause.code, class_="code"),
        tag("span", rule.title, class_="muted") if rule else None,
        tag("span", f", by the profile {cause.profile}", class_="muted") if cause.profile else None,
    )
    named = joined([name_of(subject) for subject in cause.subjects[:_MOST_SUBJECTS]], ", ")
    subjects = EMPTY if cause.whole else tag("p", named, class_="subject")
    if not cause.whole and (rest := cause.subjects[_MOST_SUBJECTS:]):
        summary = tag("span", named, f" and {len(rest)} more", class_="subject")
        subjects = fold(summary, tag("ul", *(tag("li", name_of(subject)) for subject in rest)))
    return tag(
        "li",
        head,
        subjects,
        tag("p", breakable(cause.message)),
        _next(cause),
        _cause_facts(cause),
        class_="cause",
    )


def _next(cause: Cause) -> Html | None:
    if cause.step:
        word = "Pass " if cause.step.startswith("--") else ""
        return tag("p", tag("b", "Next: "), word, name_of(cause.step), class_="remedy")
    if not cause.remedy:
        return None
    marks = "muted remedy" if _idle(cause.remedy) else "remedy"
    return tag("p", tag("b", "Next: "), breakable(cause.remedy), class_=marks)


def _cause_facts(cause: Cause) -> Html | None:
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
    return fold(summary, tag("ul", *items))


def html_page(report: Report, *, plan: bool = False) -> str:
    """Return the page.

    :param plan: the report is what a plan says: nothing is known of an output, nor of GPUs.
    :raises UsageError: the report's ``isa`` object has another shape than ``report.schema.json`` says.
    """
    report = prefixed(report)
    nodes = graph_of(report)
    isa: Isa | None = None
    if report.isa is not None:
        isa = read_typed(Isa, dict(report.isa), "report.isa", strict=False)
    style, script = _asset("page.css"), _asset("page.js")
    # The page shows names out of a stranger's wheel. Should one get past the escaping, no script of its own would run.
    policy = (
        f"default-src 'none'; style-src '{inline_source(style)}'; script-src '{inline_source(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content=f"relink {report.relink}"),
        tag("title", f"{report.wheel.name} {report.wheel.version}: relink report"),
        tag("style", style),
    )
    sections = {
        "findings": ("Findings", findings_section(report.findings)),
        "dependencies": ("Dependencies", graph_section(nodes, report.target.glibc)),
        "gpu": ("GPU code", gpu_section(isa)),
        "files": ("Files", files_section(report.files)),
        "facts": ("Facts", _facts(report)),
    }
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, (title, _) in sections.items()]
    parts = [
        tag("section", tag("h2", title, id=name), content, aria_labelledby=name)
        for name, (title, content) in sections.items()
    ]
    body = tag(
        "body",
        tag("a", "Skip to the findings", href="#findings", class_="skip"),
        tag("header", *_header(report, nodes, isa, plan=plan)),
        tag("nav", tag("ul", *links), aria_label="Sections"),
        tag("main", *parts),
        tag(
            "footer", tag("p", f"Written by relink {report.relink}. The page needs no network and no script.")
        ),
        tag("script", script),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


@cache
def _asset(name: str) -> Html:
    return Html((resources.files(__package__) / name).read_text(encoding="utf-8"))


def _header(report: Report, nodes: Sequence[Node], isa: Isa | None, *, plan: bool) -> Iterator[Html]:
    wheel = report.wheel
    yield tag("p", "relink plan" if plan else "relink report", class_="kicker")
    yield tag("h1", tag("bdi", wheel.name), " ", tag("bdi", wheel.version, class_="version"))
    if plan:
        # Nothing is known of an output, and no command of whoever wrote the plan is offered.
        changed = sum(file.changed for file in report.files)
        every = pluralize(len(report.files), "ELF file")
        what = f"{changed} of {every} change." if changed else "No file changes."
        asked = (
            " Whether the wheel loads is told by ",
            name_of("relink verify WHEEL"),
            ", on a machine that has its loader.",
        )
        yield tag("p", tag("strong", "The plan of a wheel."), f" {what}", *asked, class_="verdict plain")
    else:
        yield from _verdict(report)
    yield tag("dl", *_counts(report, nodes, isa), class_="counts")
    if report.providers and shorten_prefix(report, report.providers[0].path) != report.providers[0].path:
        words = (name_of("$PREFIX"), " stands for ", name_of(report.providers[0].path), ".")
        yield tag("p", *words, class_="prefix")


def _verdict(report: Report) -> Iterator[Html]:
    """What came of it, and what to type next, as the text of the run ends with it."""
    found = verdict(report)
    yield tag("p", tag("strong", breakable(found.text)), class_=f"verdict {found.level}")
    if found.step is None:
        return
    # The button copies what is shown, so a command that is cut or has characters spelled out is not offered.
    commands = [command for command in found.commands if escape_text(command) == command]
    if commands != [found.step]:
        yield tag("p", tag("b", "Next: "), breakable(found.step), class_="step")
    for number, command in enumerate(commands):
        name = f"command-{number}"
        button = tag("button", "Copy", type="button", class_="copy", data_copy=name, hidden=True)
        yield tag("p", tag("code", breakable(command), id=name), " ", button, class_="command")
    if commands:
        yield tag("output", id="copied", class_="unseen")


def _counts(report: Report, nodes: Sequence[Node], isa: Isa | None) -> Iterator[Html]:
    changed = sum(file.changed for file in report.files)
    origins = Counter(node.origin for node in nodes)
    missing, assumed = origins["missing"], origins["assumed"]
    entries = Counter(cause.level for cause in visible_causes(report.findings))
    counts: list[tuple[str, str, str]] = [
        (str(entries[level]), title, level) for level, (title, _) in LEVELS.items()
    ]
    counts += [
        (f"{changed} of {len(report.files)}", "ELF files change", ""),
        (str(sum(not node.is_member and node.path is not None for node in nodes)), "libraries loaded", ""),
    ]
    if missing or not assumed:
        counts.append((str(missing), "found nowhere", "error"))
    if assumed:
        counts.append((str(assumed), "assumed to be there", "warning"))
    if isa is not None and isa.common.targets:
        counts.append((str(len(isa.common.targets)), "GPU architectures", ""))
    for number, title, level in counts:
        word = title.lower() if level else title
        yield tag("div", tag("dt", word), tag("dd", number), class_=level if number != "0" else None)


def _facts(report: Report) -> Html:
    wheel, target = report.wheel, report.target
    rows: list[tuple[str, Html]] = [
        ("Wheel", path_of(wheel.path)),
        ("its sha256", name_of(wheel.sha256)),
        ("its tags", joined([name_of(item) for item in wheel.tags], ", ")),
    ]
    if report.output is not None:
        rows += [("Output", path_of(report.output.path)), ("its sha256", name_of(report.output.sha256))]
    product = product_of(report)
    for provider in report.providers:
        unknown = f"no {product}" if provider.has_none else f"{product}, release unknown"
        release = f"{product} {provider.rocm_version}" if provider.rocm_version else unknown
        evidence = joined([" by ", name_of(provider.evidence)]) if provider.evidence else EMPTY
        rows.append(
            (f"Provider ({provider.kind})", joined([path_of(provider.path), f": {release}", evidence]))
        )
    rows += [
        ("Loader", joined([path_of(target.interpreter), f", glibc {target.glibc}"])),
        ("its directories", joined([name_of(item) for item in target.directories], ", ")),
        ("Python", path_of(target.python) if target.python else Html("none: the loader alone")),
    ]
    if target.sysroot != "/":
        rows.append(("System root", path_of(target.sysroot)))
    if report.command:
        rows.append(("Command", name_of(" ".join(report.command))))
    if report.timings:
        # Rounded as in the JSON, so that the page made from a saved report is the same.
        spent = ", ".join(f"{stage} {round(seconds, 4):.2f} s" for stage, seconds in report.timings.items())
        rows.append(("Time", joined([spent])))
    return region("This run", tag("tbody", *(fact_row(*row) for row in rows)), class_="facts")


def prefixed(report: Report) -> Report:
    """Return the report with ``$PREFIX`` in its files, loads, GPU code and findings; remedies and steps keep the path.

    The command, the target and the providers keep their paths, too.
    """
    short = partial(shorten_prefix, report)
    plan = replace(
        report.plan,
        files=map_strings(report.files, short),
        loads=map_strings(report.loads, short),
        findings=tuple(
            replace(map_strings(found, short), remedy=found.remedy, step=found.step)
            for found in report.findings
        ),
    )
    return replace(report, plan=plan, isa=map_strings(report.isa, short))
