"""Findings as SARIF 2.1.0, which code scanning and editors read.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html is the specification; the sections are named where they decide.
A finding is a result; what it is about is a logical location inside of the wheel, and the wheel is the artifact.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from relink import __version__
from relink.report.formats.results import Results, WheelResult
from relink.system.findings.model import RULES, Finding, Rule
from relink.system.text import escaped, json_text

SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}  # 3.27.10
# The place of each rule in the driver's list, which ruleIndex of a result refers to.
_INDEX = {code: number for number, code in enumerate(RULES)}


def sarif(results: Results) -> str:
    """Return one log with one run: all rules, a result for each finding, a notification for each wheel that was not read."""
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
        "invocations": [_invocation(results.failures)],
        "artifacts": [_artifact(outcome) for outcome in results.outcomes],
        "results": [
            _result(found, outcome, index)
            for index, outcome in enumerate(results.outcomes)
            for found in outcome.findings
        ],
    }
    return json_text({"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]})


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
    return {
        "ruleId": found.code,
        "ruleIndex": _INDEX[found.code],
        "level": _LEVELS[found.level],
        "message": {"text": f"{_plain(found.subject)}: {_plain(found.message)}\n\n{_plain(found.remedy)}"},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": _uri(outcome.path), "index": index}},
                "logicalLocations": [
                    {"fullyQualifiedName": escaped(subject)} for subject in dict.fromkeys(found.subjects)
                ],
            }
        ],
        "partialFingerprints": {"relink/v1": _fingerprint(found, outcome)},
    }


def _plain(text: str) -> str:
    """Return text in which nothing is a link: in a message ``[text](address)`` is one (3.11.6), also out of a wheel's names."""
    return escaped(text).replace("](", "] (")


def _fingerprint(found: Finding, outcome: WheelResult) -> str:
    """Return what the same finding has in the next release of the wheel, too: code, distribution and subjects (3.27.17)."""
    distribution = os.path.basename(outcome.path).partition("-")[0]
    parts = json.dumps([found.code, distribution, *found.subjects])  # surrogates are escaped
    return hashlib.sha256(parts.encode()).hexdigest()


def _artifact(outcome: WheelResult) -> dict[str, Any]:
    hashes = {"hashes": {"sha-256": outcome.sha256}} if outcome.sha256 is not None else {}
    return {"location": {"uri": _uri(outcome.path)}, **hashes}


def _invocation(failures: Sequence[str]) -> dict[str, Any]:
    told = [{"level": "error", "message": {"text": _plain(message)}} for message in failures]
    return {"executionSuccessful": not told, **({"toolExecutionNotifications": told} if told else {})}


def _uri(path: str) -> str:
    """Return a URI that is relative to the current directory where the wheel is below it: code scanning takes no other."""
    relative = os.path.relpath(path) if os.path.isabs(path) else os.path.normpath(path)
    if os.path.isabs(path) and relative.startswith(f"..{os.sep}"):
        return Path(path).as_uri()
    return quote(os.fsencode(relative))
