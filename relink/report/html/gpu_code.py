"""The section about GPU code: which architectures each file covers, what the runtime can load, and the GPUs of --gpu."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from relink.report.html.markup import (
    EMPTY,
    Html,
    breakable,
    fact_row,
    head_row,
    joined,
    name_of,
    path_of,
    region,
    tag,
)
from relink.system.text import pluralize
from relink.vendors.registry import list_runtime_words

_LEGEND = (
    ("full", "●", "code for it in every bundle"),
    ("partial", "2/3", "in so many of the bundles only"),
    ("only", "cond", "for some settings of the GPU's features only"),
    ("slow", "slow", "untuned kernels"),
    ("jit", "jit", "compiled on first use"),
    ("none", "-", "none"),
    ("unknown", "?", "not known"),
)
_SIGNS = {state: sign for state, sign, _ in _LEGEND}
_VERDICTS = ("ok", "no", "unknown")
_UNKNOWN = "unknown"


class _Remedy(msgspec.Struct, frozen=True):
    text: str


class _File(msgspec.Struct, frozen=True):
    path: str
    container: str
    bundles: int
    targets: tuple[str, ...]
    name: str = ""
    optional: bool = False
    problems: tuple[str, ...] = ()


class _Gpu(msgspec.Struct, frozen=True):
    target: str
    name: str
    products: tuple[str, ...]
    local: bool
    covered: bool
    remedies: tuple[_Remedy, ...] = ()


class _Requirement(msgspec.Struct, frozen=True):
    what: str
    needed: str
    available: str
    verdict: str
    files: tuple[str, ...] = ()


class _Common(msgspec.Struct, frozen=True):
    targets: tuple[str, ...] = ()
    conditional: tuple[str, ...] = ()


class Isa(msgspec.Struct, frozen=True):
    """What the page draws of a report's ``isa`` object; ``report.schema.json`` says what the keys mean."""

    files: tuple[_File, ...]
    libraries: tuple[_File, ...]
    runtime: Mapping[str, Any]
    gpus: tuple[_Gpu, ...]
    common: _Common = _Common()
    requirements: tuple[_Requirement, ...] = ()
    matrix: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)


def gpu_section(isa: Isa | None) -> Html:
    """Return the parts of the section, one after the other."""
    if isa is None:
        text = "This is a plan, and a plan does not say which GPUs the code is for. relink --report and --json do."
        return tag("p", text)
    problems = [
        tag("li", name_of(file.path), f": {text}")
        for file in (*isa.files, *isa.libraries)
        for text in file.problems
    ]
    told = tag("ul", *problems) if problems else EMPTY
    return joined([*(_verdict(gpu) for gpu in isa.gpus), _matrix(isa), told, _runtime(isa)])


def _verdict(gpu: _Gpu) -> Html:
    called = gpu.name or ", ".join(gpu.products)
    where = "in this machine" if gpu.local else "asked for by --gpu"
    head = tag("h3", name_of(gpu.target), " is covered" if gpu.covered else " is not covered")
    about = tag("p", ", ".join(word for word in (called, where) if word), class_="muted")
    items = [tag("li", breakable(remedy.text)) for remedy in gpu.remedies]
    return tag(
        "div",
        head,
        about,
        tag("ul", *items) if items else EMPTY,
        class_=f"gpu {'good' if gpu.covered else 'bad'}",
    )


def _matrix(isa: Isa) -> Html:
    if not isa.matrix:
        if any(file.bundles for file in (*isa.files, *isa.libraries)):
            return tag("ul", *(tag("li", name_of(f.path), f": {', '.join(f.targets)}") for f in isa.files))
        return tag("p", "Neither the wheel nor the libraries it reaches restrict the GPUs by prebuilt code.")
    columns = list(dict.fromkeys(name for row in isa.matrix.values() for name in row))
    wanted = {gpu.target: "in this machine" if gpu.local else "asked for by --gpu" for gpu in isa.gpus}
    marks: list[str | None] = []
    for last, name in zip(["", *columns], columns, strict=False):
        begins = last and _family(name) != _family(last)
        marks.append(
            " ".join([*(["wanted"] if name in wanted else []), *(["family"] if begins else [])]) or None
        )
    head = [
        tag(
            "th",
            tag("span", name, class_="upright"),
            tag("span", f" {wanted[name]}", class_="unseen") if name in wanted else None,
            scope="col",
            class_=mark,
        )
        for name, mark in zip(columns, marks, strict=True)
    ]
    known = {file.path: file for file in (*isa.files, *isa.libraries)}
    wheel = {file.path for file in isa.files}
    rows = []
    for path, row in isa.matrix.items():
        file = known.get(path)
        words = ["wheel" if path in wheel else file.name if file else "library"]
        words += [f"{file.container}, {pluralize(file.bundles, 'bundle')}"] if file and file.bundles else []
        words += ["optional"] if file and file.optional else []
        head_cell = (
            tag("code", posixpath.basename(path), title=path),
            tag("span", " · ".join(words), class_="muted"),
        )
        cells = (_cell(row.get(name, "unknown"), mark) for name, mark in zip(columns, marks, strict=True))
        rows.append(tag("tr", tag("th", *head_cell, scope="row"), *cells))
    together = dict.fromkeys(isa.common.conditional, "under a condition") | dict.fromkeys(
        isa.common.targets, "yes"
    )
    feet = [_foot("All together", marks, [together.get(name, "no") for name in columns])]
    for key, text in list_runtime_words().items():
        # A saved report may have anything in runtime, so kinds are checked here.
        names = isa.runtime.get(key)
        if isinstance(names, list):
            feet.append(_foot(text, marks, ["yes" if name in names else "no" for name in columns]))
    title = f"How far {pluralize(len(rows), 'file')} cover {pluralize(len(columns), 'architecture')}"
    table = region(
        title,
        tag("thead", tag("tr", tag("th", "File", scope="col"), *head)),
        tag("tbody", *rows),
        tag("tbody", *feet, class_="together"),
        class_="matrix",
    )
    met = {_state(row.get(name, "unknown")) for row in isa.matrix.values() for name in columns}
    met |= {"only"} if isa.common.conditional else set()
    legend = [
        *(
            tag("li", tag("span", sign, class_=f"cell {state}", aria_hidden="true"), f" {text}")
            for state, sign, text in _LEGEND
            if state in met
        ),
        *(tag("li", f"▾ marks the GPU {text}: {name}") for name, text in wanted.items()),
    ]
    return joined([table, tag("ul", *legend, class_="legend")])


def _family(name: str) -> str:
    """The major version: gfx90a is of gfx9, gfx1030 of gfx10."""
    return name.partition("-")[0].partition(":")[0][:-2]


def _state(level: str) -> str:
    # A level may have a count or a note behind its word.
    word = level.partition(" ")[0]
    return word if word in _SIGNS else "unknown"


def _cell(level: str, mark: str | None) -> Html:
    state = _state(level)
    share = level.removeprefix("partial (").removesuffix(")").replace(" of ", "/")
    sign = share if state == "partial" else _SIGNS[state]
    return _signed(sign, level, state, mark, title=level)


def _signed(sign: str, level: str, state: str, mark: str | None, title: str | None = None) -> Html:
    """Return a cell that shows a sign, and says a level where no sign can be seen."""
    return tag(
        "td",
        tag("span", sign, aria_hidden="true"),
        tag("span", level, class_="unseen"),
        class_=f"cell {state} {mark}" if mark else f"cell {state}",
        title=title,
    )


def _foot(text: str, marks: Sequence[str | None], values: Sequence[str]) -> Html:
    signs = {"yes": ("✓", "full"), "no": ("-", "none"), "under a condition": ("cond", "only")}
    cells = (
        _signed(signs[value][0], value, signs[value][1], mark)
        for value, mark in zip(values, marks, strict=True)
    )
    return tag("tr", tag("th", text, scope="row"), *cells)


def _runtime(isa: Isa) -> Html:
    if not isa.runtime:
        return tag("p", "Nothing here needs a GPU runtime.")
    words = {key: word for key, word in list_runtime_words().items() if key in isa.runtime}
    lists = {key for key in words if isinstance(isa.runtime[key], list)}
    values = {
        word: ("yes" if value else "no") if isinstance(value := isa.runtime[key], bool) else str(value)
        for key, word in words.items()
        if key not in lists
    }
    rows = [fact_row(word, value) for word, value in values.items() if value != _UNKNOWN]
    libraries = isa.runtime.get("libraries")
    if isinstance(libraries, dict):
        rows += [fact_row(name_of(str(name)), path_of(str(path))) for name, path in libraries.items()]
    if unknown := [word for word, value in values.items() if value == _UNKNOWN]:
        rows.append(fact_row("not known", "; ".join(unknown)))
    parts = [region("What the runtime can load", tag("tbody", *rows), class_="facts")]
    if isa.requirements:
        head = head_row("What", "Needed", "There is", "Verdict", "Asked for by")
        body = [
            tag(
                "tr",
                tag("th", row.what, scope="row"),
                tag("td", row.needed),
                tag("td", row.available),
                tag("td", row.verdict, class_=f"verdict-{row.verdict}" if row.verdict in _VERDICTS else None),
                tag(
                    "td",
                    joined([tag("code", posixpath.basename(path), title=path) for path in row.files], ", "),
                ),
            )
            for row in isa.requirements
        ]
        title = "What the code asks of the runtime"
        parts.append(region(title, head, tag("tbody", *body), class_="requirements"))
    return joined(parts)
