"""The formats of ``--output-format`` that programs read: a name and the function that writes it.

Text is not among them: it is printed for each wheel as soon as that is done, and with the terminal's styles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from relink import __version__
from relink.report.formats.github import github
from relink.report.formats.results import Results
from relink.report.formats.sarif import sarif
from relink.system.text import json_text

Format: TypeAlias = Callable[[Results], str]
"""What a command found, to all that goes to standard output, with its last line feed; empty where nothing goes there."""


SCHEMA = "relink.reports/1"
"""Of a JSON document about several wheels, or about none."""


def collected(
    documents: Sequence[Mapping[str, Any]], failures: Sequence[str], *, several: bool
) -> dict[str, Any]:
    """Return one JSON document, of one shape for one wheel and for many: `reports` has the document of each.

    Where one wheel is named, the keys of its document are at the top, too.
    """
    reports = {"reports": [dict(document) for document in documents], "failures": list(failures)}
    if several or not documents:
        return {"schema": SCHEMA, "relink": __version__, **reports}
    return {**documents[0], **reports}


def _json(results: Results) -> str:
    """One document; nothing where a command that takes one wheel could not read it."""
    documents = [outcome.document for outcome in results.outcomes]
    if results.several is not None:
        return json_text(collected(documents, results.failures, several=results.several))
    return json_text(documents[0]) if documents else ""


FORMATS: Mapping[str, Format] = MappingProxyType({"json": _json, "sarif": sarif, "github": github})
"""The formats by their names."""
