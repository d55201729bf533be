"""The formats read as the programs read them that they are for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

from relink.report.formats import Results, WheelResult
from relink.system.findings.model import Finding

SCHEMA = json.loads(Path(__file__).with_name("sarif-2.1.0.schema.json").read_text(encoding="utf-8"))
HOSTILE = (
    "[click](https://example.org)",
    "a\n::error title=x::y",
    "\u202egnp.so",
    "\udcff",
    "%0A::set-output name=x::y",
    "{0}",
    "\x1b[31m",
    "::stop-commands::x",
)


def log(text: str) -> dict[str, Any]:
    """The one run of a SARIF log that fits its schema."""
    document = json.loads(text)
    jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker()).validate(document)
    (run,) = document["runs"]
    assert isinstance(run, dict)
    return run


def commands(text: str) -> Iterator[tuple[str, dict[str, str], str]]:
    """Read workflow commands as the runner does (ActionCommand.cs): name, properties and message."""
    assert text == "" or text.endswith("\n")
    for line in text.splitlines():
        match = re.fullmatch(r"::(\w+)(?: (.*?))?::(.*)", line)
        assert match is not None, line
        properties = dict(part.split("=", 1) for part in (match[2] or "").split(",") if part)
        undone = {key: _undone(value, "%3A:", "%2C,") for key, value in properties.items()}
        yield match[1], undone, _undone(match[3])


def _undone(value: str, *more: str) -> str:
    for code in (*more, "%0D\r", "%0A\n", "%25%"):
        value = value.replace(code[:3], code[3:])
    return value


def results(*findings: Finding, path: str = "dist/demo-1.0-py3-none-any.whl") -> Results:
    return Results((WheelResult(path, "0" * 64, findings, {"schema": "x"}),))
