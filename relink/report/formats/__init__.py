"""The formats of ``--output-format`` that programs read: a name and the function that writes it.

Text is not among them: it is printed for each wheel as soon as that is done, and with the terminal's styles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from relink.report.formats.github import github
from relink.report.formats.results import Results, WheelResult
from relink.report.formats.sarif import sarif

__all__ = ["FORMATS", "Format", "Results", "WheelResult"]

Format: TypeAlias = Callable[[Results], str]
"""What a command found, to all that goes to standard output, with its last line feed; empty where nothing goes there."""


def _json(results: Results) -> str:
    """One document for one wheel, a list where several were named; nothing where the only one could not be read."""
    documents = [outcome.document for outcome in results.outcomes]
    if not results.several and not documents:
        return ""
    return json.dumps(documents if results.several else documents[0], indent=2) + "\n"


FORMATS: Mapping[str, Format] = MappingProxyType({"json": _json, "sarif": sarif, "github": github})
"""The formats by their names."""
