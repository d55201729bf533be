"""What works where: each wheel with each target and GPU, as data. The page (`index.html`) and ``matrix.json`` are made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from relink import __version__
from relink.gpu import wanted_gpus
from relink.indexes.build.fingerprint import TargetState
from relink.indexes.build.recipe import IndexTarget

__all__ = ["MATRIX_LIMIT", "MATRIX_SCHEMA", "Cell", "Colour", "colour_of", "matrix_data"]

MATRIX_SCHEMA = "relink.indexes.build-matrix/1"
MATRIX_LIMIT = 256 << 20
"""Bytes of the data of one page, which has at most some ten thousand wheels."""
Colour: TypeAlias = Literal["green", "amber", "red"]
_GOOD = frozenset({"full"})


@dataclass(frozen=True, slots=True)
class Cell:
    """One wheel for one target.

    :ivar filename: of the input.
    :ivar status: as in :class:`relink.indexes.build.work.TaskOutcome`.
    """

    project: str
    version: str
    tags: str
    filename: str
    target: str
    status: str
    record: Mapping[str, Any]


def colour_of(status: str, record: Mapping[str, Any], gpu: str | None) -> Colour:
    """Return green for what works, amber for what works in part or with a warning, red for what does not.

    :param gpu: a target id; None where the target names no GPU.
    """
    if status in ("refused", "failed"):
        return "red"
    warned = record.get("verdict", {}).get("level") != "info"
    if gpu is None:
        return "amber" if warned else "green"
    facts = record.get("gpus", {}).get(gpu)
    if facts is None:  # there is no GPU code in it
        return "amber" if warned else "green"
    if not facts["covered"]:
        return "red"
    return "green" if facts["level"] in _GOOD and not _other_warning(record) else "amber"


def _other_warning(record: Mapping[str, Any]) -> bool:
    """A warning that is not about GPUs: those are in the levels."""
    return any(
        cause["level"] == "warning" and not cause["code"].startswith("RLK4") for cause in record["causes"]
    )


def matrix_data(
    targets: Sequence[IndexTarget],
    states: Mapping[str, TargetState],
    cells: Iterable[Cell],
    changes: Sequence[tuple[float, Mapping[str, Any]]],
) -> dict[str, Any]:
    """Return the matrix as JSON data: texts that many cells have stand in it once.

    :param changes: (seconds since 1970, change), the newest first.
    """
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    columns: list[dict[str, Any]] = [
        {
            "target": target.name,
            "gpus": [
                {"id": str(gpu.target), "name": gpu.name or str(gpu.target), "products": list(gpu.products)}
                for gpu in wanted_gpus(target.gpus)
            ],
            "prefixes": list(states[target.name].paths),
            "fingerprint": states[target.name].fingerprint,
            "machine": states[target.name].machine,
        }
        for target in targets
    ]
    ids = {column["target"]: [gpu["id"] for gpu in column["gpus"]] or [None] for column in columns}
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for cell in cells:
        row = rows.setdefault(
            (cell.project, cell.version, cell.filename),
            {
                "project": cell.project,
                "version": cell.version,
                "tags": cell.tags,
                "wheel": cell.filename,
                "cells": {},
            },
        )
        record = cell.record
        row["cells"][cell.target] = {
            "status": cell.status,
            "colours": [colour_of(cell.status, record, gpu)[0] for gpu in ids[cell.target]],
            "levels": [record.get("gpus", {}).get(gpu, {}).get("level") for gpu in ids[cell.target]],
            "text": number(record.get("verdict", {}).get("text") or record.get("error", "")),
            "causes": [number(_cause_text(cause)) for cause in record.get("causes", ())],
            "command": number(record.get("command", "")),
            "file": (record.get("file") or {}).get("filename"),
            "rocm": number(", ".join(version or "?" for _, version in record.get("rocm", ()))),
        }
    return {
        "schema": MATRIX_SCHEMA,
        "relink": __version__,
        "targets": columns,
        "rows": list(rows.values()),
        "texts": list(texts),
        "changes": [{"time": time, **change} for time, change in changes],
    }


def _cause_text(cause: Mapping[str, Any]) -> str:
    more = f" and {cause['more']} more" if cause.get("more") else ""
    subjects = f" ({', '.join(cause['subjects'])}{more})" if cause["subjects"] else ""
    remedy = f" {cause['remedy']}" if cause["remedy"] else ""
    return f"{cause['code']} {cause['level']}: {cause['message']}{subjects}.{remedy}".strip()
