"""The formats that programs read; here the one that is the documents themselves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest

from relink.report.formats import FORMATS, Results, WheelResult
from relink.system.findings.model import RULES, Finding
from relink.system.text import escape_untrusted
from tests.unit.report.formatted import HOSTILE, commands, log, results

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
    assert location["physicalLocation"]["region"] == {"startLine": 1}
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
    outside = "../" * (len(tmp_path.parts) - 1) + "elsewhere/%C3%BC.whl"
    assert uris == ["dist/x.whl", "dist/x.whl", outside, "../x.whl", "..x/y.whl"]


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


# GitHub


def test_commands_of_errors_come_first_and_infos_do_not_come() -> None:
    text = FORMATS["github"](
        results(
            Finding("RLK202", "warning", "a.so", "an empty entry", "Nothing."),
            Finding("RLK101", "error", "libx.so.1", "100% gone", "Add it."),
            Finding("RLK207", "info", "b.so", "left", "Nothing."),
        )
    )
    assert list(commands(text)) == [
        (
            "error",
            {"title": "RLK101 missing library"},
            "demo-1.0-py3-none-any.whl: libx.so.1: 100% gone\nAdd it.",
        ),
        (
            "warning",
            {"title": f"RLK202 {RULES['RLK202'].title}"},
            "demo-1.0-py3-none-any.whl: a.so: an empty entry\nNothing.",
        ),
    ]
    assert "100%25 gone%0AAdd it." in text


@pytest.mark.parametrize("name", HOSTILE)
def test_the_verdict_is_a_notice(name: str) -> None:
    """Also where nothing was found: the log of the step would be empty."""
    summed = {"level": "info", "text": f"Loads {name}.", "step": "pip install out.whl", "commands": []}
    document = {"schema": "x", "verdict": summed}
    outcome = WheelResult("in/a.whl", None, (), document)
    ((command, properties, message),) = commands(FORMATS["github"](Results((outcome,))))
    assert (command, properties) == ("notice", {"title": "relink"})
    assert message == f"a.whl: Loads {escape_untrusted(name)}.\nNext: pip install out.whl"


def test_one_cause_is_one_annotation() -> None:
    lost = [
        Finding(
            "RLK301", "error", f"{name}.so", "needs GLIBC_2.43", "Elsewhere.", cause="built for another glibc"
        )
        for name in "abc"
    ]
    ((_, _, message),) = commands(FORMATS["github"](results(*lost)))
    assert message == "demo-1.0-py3-none-any.whl: built for another glibc\nElsewhere."
    same = [Finding("RLK204", "warning", f"{name}.so", "gone", "Nothing.") for name in "abc"]
    ((_, _, message),) = commands(FORMATS["github"](results(*same)))
    assert message == "demo-1.0-py3-none-any.whl: a.so, b.so, c.so: gone\nNothing."


def test_a_finding_about_the_wheel_names_it_once() -> None:
    text = FORMATS["github"](
        results(Finding("RLK504", "warning", "demo-1.0-py3-none-any.whl", "tagged", "Nothing."))
    )
    assert [message for _, _, message in commands(text)] == ["demo-1.0-py3-none-any.whl: tagged\nNothing."]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_begin_no_command(name: str) -> None:
    hostile = Results(
        results(Finding("RLK101", "error", name, name, name), path=f"{name}.whl").outcomes, (name,)
    )
    assert [command for command, _, _ in commands(FORMATS["github"](hostile))] == ["error", "error"]


@pytest.mark.parametrize("code", RULES)
def test_every_title_survives_as_a_property(code: str) -> None:
    ((_, properties, _),) = commands(FORMATS["github"](results(Finding(code, "error", "x", "y", "z"))))
    assert properties == {"title": f"{code} {RULES[code].title}"}


ONE, TWO = (
    WheelResult(f"{name}.whl", None, (), {"schema": name, "text": "\udcff\n"}) for name in ("one", "two")
)


def test_one_wheel_is_one_document() -> None:
    text = FORMATS["json"](Results((ONE,)))
    assert json.loads(text) == ONE.document
    assert text.isascii()
    assert text.endswith("}\n")


def test_one_shape_for_one_and_many() -> None:
    alone = json.loads(FORMATS["json"](Results((ONE,), several=False)))
    assert alone == {**ONE.document, "reports": [ONE.document], "failures": []}
    many = json.loads(FORMATS["json"](Results((ONE, TWO), ("three.whl: no archive",), several=True)))
    assert many["reports"] == [ONE.document, TWO.document]
    assert (many["schema"], many["failures"]) == ("relink.reports/1", ["three.whl: no archive"])
    none = json.loads(FORMATS["json"](Results((), ("one.whl: no archive",), several=False)))
    assert (none["schema"], none["reports"], none["failures"]) == (
        "relink.reports/1",
        [],
        ["one.whl: no archive"],
    )


def test_nothing_stands_for_the_only_wheel_that_could_not_be_read() -> None:
    assert FORMATS["json"](Results((), ("one.whl: no archive",))) == ""


def test_the_other_formats_tell_failures_too() -> None:
    failed = Results((ONE,), ("two.whl: no archive",), several=True)
    assert "two.whl: no archive" in FORMATS["sarif"](failed)
    assert FORMATS["github"](failed) == "::error title=relink::two.whl: no archive\n"
