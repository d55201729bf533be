"""The matrix as one HTML page: it works from a file, without a server and without a network, and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from relink.indexes.build.matrix import CELL_STATES
from relink.report.html.markup import Html, tag

__all__ = ["CELL_WORDS", "PROJECTS", "matrix_page"]

CELL_WORDS = {"works": "works", "compiles": "works, compiled on first use", "part": "works in part", "lacks": "lacks this card",
         "refused": "not published", "failed": "not tried yet"}  # fmt: skip
"""The states in words; those of the page are in matrix.js."""
PROJECTS = "projects"
"""Where a site has a page for each project, which only a large one has; so is the list of them called in ``matrix.json``."""

_DIALOG = Html(
    '<dialog aria-labelledby="what"><h2 id="what"></h2><div id="more"></div>'
    '<p><button id="close" type="button">Close</button></p></dialog>'
)


def matrix_page(data: Mapping[str, Any], project: str | None = None) -> str:
    """Return the page.

    :param data: as :func:`relink.indexes.build.matrix.matrix_data` gives it; with the names of projects where each has a page.
    :param project: the project whose page it is; None for the page of all.
    """
    up = "../" if project else ""
    title = "What works with which ROCm and which card"
    title = f"{project}: {title[0].lower()}{title[1:]}" if project else title
    style, script = _asset("matrix.css"), _asset("matrix.js")
    policy = (
        f"default-src 'none'; style-src '{_source(style)}'; script-src '{_source(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    # Nothing of it can end the element or begin a comment (HTML, "Restrictions for contents of script elements").
    text = json.dumps({**data, "up": up}, separators=(",", ":")).replace("<", "\\u003c")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"relink {data['relink']}"),
        tag("title", title),
        Html(f'<link rel="alternate" type="application/atom+xml" title="Changes" href="{up}changes.atom">'),
        tag("style", style),
    )
    body = tag(
        "body",
        tag(
            "header",
            tag("h1", title),
            tag("p", _counts(data), class_="lead"),
            *_about(data, up),
            _search(),
            tag("p", id="found", role="status"),
        ),
        tag(
            "main",
            tag("noscript", tag("p", "The table needs JavaScript; matrix.json has the same as data.")),
            tag(
                "div",
                Html('<table><caption class="unseen">Releases by target and GPU</caption><thead></thead><tbody></tbody></table>'),
                id="frame",
                tabindex="0",
                role="region",
                aria_label="Matrix",
            ),
            tag("h2", "Targets"),
            tag("div", *_targets(data, up), id="targets"),
        ),
        _DIALOG,
        tag("footer", _foot(project, up), tag("p", f"Written by relink {data['relink']}.")),
        Html(f'<script type="application/json" id="data">{text}</script>'),
        tag("script", script),
    )  # fmt: skip
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _counts(data: Mapping[str, Any]) -> str:
    cells = Counter(
        state for row in data["rows"] for cell in row["cells"].values() for state in cell["states"]
    )
    counts = "; ".join(
        f"{cells[number]} {CELL_WORDS[name]}" for number, name in enumerate(CELL_STATES) if cells[number]
    )
    return f"{len(data['rows'])} wheels, {len(data['targets'])} targets. Cells: {counts}."


def _about(data: Mapping[str, Any], up: str) -> list[Html]:
    """Where the rest is, if the page does not have all."""
    if up:
        return [tag("p", tag("a", "All projects", href=f"{up}index.html"))]
    if PROJECTS not in data:
        return []
    count = len(data[PROJECTS])
    return [tag("p", f"The newest release of each of {count} projects; its name leads to the others.")]


def _foot(project: str | None, up: str) -> Html:
    same = f"{project}.json" if project else "matrix.json"
    return tag(
        "p",
        tag("a", same, href=same),
        " has the same as data, ",
        tag("a", "changes.atom", href=f"{up}changes.atom"),
        " what has changed.",
    )


def _search() -> Html:
    options = "".join(
        f'<option value="{number}">{CELL_WORDS[name]}</option>' for number, name in enumerate(CELL_STATES)
    )
    return Html(
        '<div id="tools"><label for="search">Package, version or card</label>'
        '<input id="search" type="search" autocomplete="off" placeholder="RX 6750 XT">'
        '<span><label for="only">Show</label> <select id="only"><option value="">everything</option>'
        f"{options}</select></span></div>"
    )


def _targets(data: Mapping[str, Any], up: str) -> list[Html]:
    found = []
    for target in data["targets"]:
        name = target["target"]
        address = f"{name}/simple/"
        rows = [
            ("Index", tag("a", address, href=f"{up}{address}index.html")),
            ("Find-links page", tag("a", f"{name}/find-links.html", href=f"{up}{name}/find-links.html")),
            ("Release", tag("span", f"{target['release']} in {', '.join(target['prefixes'])}")),
            ("Fingerprint", tag("code", target["fingerprint"][:16])),
            ("GPUs", tag("span", ", ".join(gpu["name"] for gpu in target["gpus"]) or "none named")),
        ]
        terms = [part for term, value in rows for part in (tag("dt", term), tag("dd", value))]
        found.append(tag("section", tag("h3", name), tag("dl", *terms)))
    return found


@cache
def _asset(name: str) -> Html:
    return Html((resources.files(__package__) / name).read_text(encoding="utf-8"))


def _source(text: str) -> str:
    """Return the source expression of Content Security Policy Level 3, section 2.3.1, that allows this inline text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
