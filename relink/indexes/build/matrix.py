"""What works where: each wheel with each target and GPU, as data (``matrix.json``) and as one HTML page (`index.html`).

The page works from a file, without a server and without a network, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from string import Template
from typing import Any

from relink import __version__
from relink.indexes.build.recipe import IndexTarget
from relink.indexes.build.simple_api import name_of
from relink.vendors.registry import gpu_products, products, requested_gpus

MATRIX_SCHEMA = "relink.indexes.build-matrix/1"
MATRIX_LIMIT = 256 << 20
"""Bytes of the data of one page, which has at most some ten thousand wheels."""
PROJECTS = "projects"
"""Where a site has a page for each project, which only a large one has; so is the list of them called in ``matrix.json``."""
CELL_STATES = ("works", "compiles", "part", "lacks", "refused", "failed")
"""Of a wheel on a GPU, from best to worst: it loads and has kernels; they are compiled on first use; it has only some of them, or
slow ones, or it is not known; it loads and lacks them: `relink WHEEL --gpu` refuses it, and the index has it; it does not load,
and the index does not have it; it could not be tried."""
_OF_GPU = {"none": "lacks", "jit": "compiles", "full": "works"}


def state_of(status: str, record: Mapping[str, Any], gpu: str | None) -> str:
    """Return one of :data:`CELL_STATES`: what relink itself says of the wheel, and of that GPU.

    :param gpu: a target id; None where the target names no GPU.
    """
    if status in ("refused", "failed"):
        return status
    # A wheel without GPU code has no entry, and works on each GPU.
    found = record.get("gpus", {}).get(gpu, "full")
    return _OF_GPU.get(found, "part")


def matrix_data(
    targets: Sequence[IndexTarget],
    indexes: Mapping[str, Mapping[str, Any]],
    cells: Iterable[tuple[Any, Mapping[str, Any]]],
    changes: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the matrix as JSON data: texts that many cells have stand in it once.

    :param indexes: what each is for, by target.
    :param cells: `filename`, `target` and `status` of each result, and its record (:mod:`relink.indexes.build.work`).
    :param changes: the newest first.
    """
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    gpus = {target.name: requested_gpus(target.gpus) for target in targets}
    columns = []
    for name, own in gpus.items():
        cards = [
            {"id": str(gpu.target), "name": gpu.name or str(gpu.target), "products": list(gpu.products)}
            for gpu in own
        ]
        columns.append({"target": name, "gpus": cards, **indexes[name]})
    rows: dict[str, dict[str, Any]] = {}
    for cell, record in cells:
        wheel, file = name_of(cell["filename"]), record.get("file")
        about = {
            "project": wheel.canonical,
            "version": str(wheel.version),
            "tags": f"{wheel.python}-{wheel.abi}",
        }
        row = rows.setdefault(wheel.filename, {**about, "wheel": wheel.filename, "cells": {}})
        ids: list[str | None] = [str(gpu.target) for gpu in gpus[cell["target"]]] or [None]
        row["cells"][cell["target"]] = {
            "status": cell["status"],
            "states": [CELL_STATES.index(state_of(cell["status"], record, gpu)) for gpu in ids],
            "text": number(record.get("verdict", {}).get("text") or record.get("error", "")),
            "causes": [number(text) for text in record.get("causes", ())],
            "command": number(record.get("command", "")),
            "file": file and file["filename"],
        }
    return {
        "schema": MATRIX_SCHEMA,
        "relink": __version__,
        "targets": columns,
        "rows": list(rows.values()),
        "texts": list(texts),
        "states": list(CELL_STATES),
        "products": {processor: list(names) for processor, names in gpu_products().items()},
        "changes": list(changes),
    }


def matrix_page(data: Mapping[str, Any], project: str | None = None) -> str:
    """Return the page.

    :param data: as :func:`relink.indexes.build.matrix.matrix_data` gives it; with the names of projects where each has a page.
    :param project: the project whose page it is; None for the page of all.
    """
    up, title = "../" if project else "", f"What works with which {products()} and which card"
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
