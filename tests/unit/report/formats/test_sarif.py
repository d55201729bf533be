"""SARIF, by its schema.

``sarif-2.1.0.schema.json`` is the specification's schema, as the npm package @microsoft/jest-sarif 1.0.0-beta.0 (MIT) has it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest

from relink.report.formats import FORMATS
from relink.report.formats.results import Results
from relink.system.findings.model import RULES, Finding
from tests.unit.report.formats.formatted import HOSTILE, log, results

# SARIF


def test_the_schema_is_held() -> None:
    """The validator refuses a log that is none: a test that any document passes says nothing."""
    document = json.loads(
        FORMATS["sarif"](results(Finding("RLK101", "error", "libx.so.1", "gone", "Add it.")))
    )
    document["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError, match="fatal"):
        log(json.dumps(document))


def test_every_rule_is_in_the_log_with_its_help() -> None:
    rules = log(FORMATS["sarif"](Results(())))["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    for rule in rules:
        assert RULES[rule["id"]].fix in rule["help"]["text"]
        assert RULES[rule["id"]].meaning in rule["fullDescription"]["text"]
        assert re.fullmatch(r"[A-Z]\w+", rule["name"]), rule["name"]


def test_a_result_has_its_wheel_and_its_subjects() -> None:
    found = Finding(
        "RLK202", "warning", "a.so", "an empty entry", "Nothing.", subjects=("a.so", "b.so", "a.so")
    )
    run = log(FORMATS["sarif"](results(found, path="dist/a b:c-1.whl")))
    (result,) = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "RLK202"
    (location,) = result["locations"]
    artifact = location["physicalLocation"]["artifactLocation"]
    assert run["artifacts"][artifact["index"]]["hashes"] == {"sha-256": "0" * 64}
    assert artifact["uri"] == "dist/a%20b%3Ac-1.whl"
    assert [place["fullyQualifiedName"] for place in location["logicalLocations"]] == ["a.so", "b.so"]


@pytest.mark.parametrize(("level", "named"), [("error", "error"), ("warning", "warning"), ("info", "note")])
def test_levels(level: Any, named: str) -> None:
    run = log(FORMATS["sarif"](results(Finding("RLK101", level, "x", "y", "z"))))
    assert run["results"][0]["level"] == named


def test_a_path_below_the_current_directory_is_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    uris = [
        log(FORMATS["sarif"](results(path=path)))["artifacts"][0]["location"]["uri"]
        for path in (f"{tmp_path}/dist/x.whl", "./dist/x.whl", "/elsewhere/ü.whl", "../x.whl", "..x/y.whl")
    ]
    assert uris == ["dist/x.whl", "dist/x.whl", "file:///elsewhere/%C3%BC.whl", "../x.whl", "..x/y.whl"]


def test_the_fingerprint_is_that_of_the_next_release() -> None:
    found = Finding("RLK101", "error", "libx.so.1", "gone from 1.0", "Add it.")
    later = Finding("RLK101", "error", "libx.so.1", "gone from 2.0", "Add it.")
    other = Finding("RLK101", "error", "liby.so.1", "gone from 1.0", "Add it.")
    prints = [
        log(FORMATS["sarif"](results(item, path=path)))["results"][0]["partialFingerprints"]["relink/v1"]
        for item, path in ((found, "demo-1.0-x.whl"), (later, "demo-2.0-x.whl"), (other, "demo-1.0-x.whl"))
    ]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_in_sarif(name: str) -> None:
    run = log(
        FORMATS["sarif"](
            Results((results(Finding("RLK101", "error", name, name, name), path=name)).outcomes, (name,))
        )
    )
    text = (
        run["results"][0]["message"]["text"]
        + run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    )
    assert "](" not in text
    assert all(character.isprintable() or character == "\n" for character in text)
    assert unquote(run["artifacts"][0]["location"]["uri"], errors="surrogateescape") == name.replace(
        "//", "/"
    )
