"""The matrix as one HTML page: it works from a file, without a server and without a network, and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from string import Template
from typing import Any


def matrix_page(data: Mapping[str, Any], project: str | None = None) -> str:
    """Return the page.

    :param data: as :func:`relink.indexes.build.matrix.matrix_data` gives it; with the names of projects where each has a page.
    :param project: the project whose page it is; None for the page of all.
    """
    up, title = "../" if project else "", "What works with which ROCm and which card"
    style, script = _asset("matrix.css"), _asset("matrix.js")
    # Nothing of it can end the element or begin a comment (HTML, "Restrictions for contents of script elements").
    text = json.dumps({**data, "up": up}, separators=(",", ":")).replace("<", "\\u003c")
    return Template(_asset("matrix.html")).substitute(
        style=style,
        style_source=_source(style),
        script=script,
        script_source=_source(script),
        release=html.escape(data["relink"]),
        title=html.escape(f"{project}: {title[0].lower()}{title[1:]}" if project else title),
        up=up,
        same=f"{project}.json" if project else "matrix.json",
        data=text,
    )


@cache
def _asset(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """Return the source expression of Content Security Policy Level 3, section 2.3.1, that allows this inline text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
