"""The formats of ``--output-format`` that programs read: a name and the function that writes it.

Text is not among them: it is printed for each wheel as soon as that is done, and with the terminal's styles.

Code scanning and editors read SARIF 2.1.0.
https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html is the specification; the sections are named where they decide.
A finding is a result; what it is about is a logical location inside of the wheel, and the wheel is the artifact.

GitHub Actions shows workflow commands as annotations of the run.
https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions has the commands; what is escaped and how is in
``command.ts`` of GitHub's own toolkit. Every line begins with a command of ours: no name out of a wheel can begin one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec

from relink import __version__
from relink.system.findings.model import RULES, Finding, Rule, causes
from relink.system.text import escape_untrusted, format_json, join_truncated


class WheelResult(msgspec.Struct, frozen=True):
    """What a command found about one wheel.

    :ivar path: the wheel, as it was named.
    :ivar sha256: of the wheel, in hex; None where the command does not compute it.
    :ivar document: the JSON document, with its ``schema``.
    """

    path: str
    sha256: str | None
    findings: tuple[Finding, ...]
    document: Mapping[str, Any]


class Results(msgspec.Struct, frozen=True):
    """What a command found about all wheels that it was given.

    :ivar failures: the messages of the wheels that could not be read.
    :ivar several: whether more than one wheel was named; None where the command takes one only.
    """

    outcomes: tuple[WheelResult, ...]
    failures: tuple[str, ...] = ()
    several: bool | None = None


_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
# In a property a colon and a comma have a meaning, too.
_PROPERTY = _DATA | str.maketrans({":": "%3A", ",": "%2C"})


def github(results: Results) -> str:
    """Return a command for each cause of errors and of warnings, errors first: GitHub shows the first ten of a level in a step.

    Infos are left out, as they are in text. A notice has the verdict of each wheel, and what is next.
    """
    lines = [_command("error", "relink", escape_untrusted(message)) for message in results.failures]
    for level in ("error", "warning"):
        for outcome in results.outcomes:
            name = os.path.basename(outcome.path)
            for cause in (cause for cause in causes(outcome.findings) if cause.level == level):
                # What it is about is told unless that is the wheel, or the message says it.
                subjects = [one for one in cause.subjects if one != name and not cause.whole]
                places = (name, *([join_truncated(subjects)] if subjects else ()), cause.message)
                message = f"{escape_untrusted(': '.join(places))}\n{escape_untrusted(cause.remedy)}"
                lines.append(_command(level, f"{cause.code} {RULES[cause.code].title}", message))
    for outcome in results.outcomes:
        if isinstance(summed := outcome.document.get("verdict"), Mapping):
            told = [f"{os.path.basename(outcome.path)}: {summed['text']}"]
            told += [f"Next: {summed['step']}"] if summed["step"] else []
            lines.append(_command("notice", "relink", "\n".join(map(escape_untrusted, told))))
    return "".join(lines)


def _command(name: str, title: str, message: str) -> str:
    return f"::{name} title={title.translate(_PROPERTY)}::{message.translate(_DATA)}\n"


SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}  # 3.27.10
# The place of each rule in the driver's list, which ruleIndex of a result refers to.
_INDEX = {code: number for number, code in enumerate(RULES)}


def sarif(results: Results) -> str:
    """Return one log with one run: all rules, a result for each finding, a notification for each wheel that was not read."""
    told = [{"level": "error", "message": {"text": _plain(message)}} for message in results.failures]
    notifications = {"toolExecutionNotifications": told} if told else {}
    run = {
        "tool": {
            "driver": {
                "name": "relink",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(rule) for rule in RULES.values()],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not told, **notifications}],
        "artifacts": [
            {
                "location": {"uri": _uri(outcome.path)},
                **({"hashes": {"sha-256": outcome.sha256}} if outcome.sha256 is not None else {}),
            }
            for outcome in results.outcomes
        ],
        "results": [
            _result(found, outcome, index)
            for index, outcome in enumerate(results.outcomes)
            for found in outcome.findings
        ],
    }
    return format_json({"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]})


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.title.replace("-", " ").split() if word.isalnum()),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.meaning},
        "defaultConfiguration": {"level": _LEVELS[rule.level]},
        "help": {"text": f"{rule.meaning}\n\nWhat to do: {rule.fix}\n\nFor example:\n\n{rule.example}"},
    }


def _result(found: Finding, outcome: WheelResult, index: int) -> dict[str, Any]:
    # The same finding has them in the next release of the wheel, too (3.27.17); surrogates are escaped.
    parts = [found.code, os.path.basename(outcome.path).partition("-")[0], *found.subjects]
    return {
        "ruleId": found.code,
        "ruleIndex": _INDEX[found.code],
        "level": _LEVELS[found.level],
        "message": {"text": f"{_plain(found.subject)}: {_plain(found.message)}\n\n{_plain(found.remedy)}"},
        "locations": [
            {
                # Code scanning wants a line, and a wheel has none.
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(outcome.path), "index": index},
                    "region": {"startLine": 1},
                },
                "logicalLocations": [
                    {"fullyQualifiedName": escape_untrusted(subject)}
                    for subject in dict.fromkeys(found.subjects)
                ],
            }
        ],
        "partialFingerprints": {"relink/v1": hashlib.sha256(json.dumps(parts).encode()).hexdigest()},
    }


def _plain(text: str) -> str:
    """Return text in which nothing is a link: in a message ``[text](address)`` is one (3.11.6), also out of a wheel's names."""
    return escape_untrusted(text).replace("](", "] (")


def _uri(path: str) -> str:
    """Return a URI that is relative to the current directory: code scanning takes no other."""
    return quote(os.fsencode(os.path.relpath(path)))


Format: TypeAlias = Callable[[Results], str]
"""What a command found, to all that goes to standard output, with its last line feed; empty where nothing goes there."""


SCHEMA = "relink.reports/1"
"""Of a JSON document about several wheels, or about none."""


def join_documents(
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
        return format_json(join_documents(documents, results.failures, several=results.several))
    return format_json(documents[0]) if documents else ""


FORMATS: Mapping[str, Format] = MappingProxyType({"json": _json, "sarif": sarif, "github": github})
"""The formats by their names."""
