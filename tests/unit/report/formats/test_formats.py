"""The formats that programs read: SARIF by its schema, GitHub's commands as GitHub reads them, and the option that chooses.

``sarif-2.1.0.schema.json`` is the specification's schema, as the npm package @microsoft/jest-sarif 1.0.0-beta.0 (MIT) has it.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest

from relink.cli.formats import OutputFormat
from relink.findings.model import RULES, Finding
from relink.report.formats import FORMATS, Results, WheelResult
from tests.support.command import Run
from tests.support.wheels import changed
from tests.support.works import OUTPUT, Works

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


def test_the_option_offers_every_format() -> None:
    assert {item.value for item in OutputFormat} == {"text", *FORMATS}


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


# On the command line


def test_run(run: Run, works: Works, tmp_path: Path) -> None:
    vendor = works.wheel(tmp_path / "in", {"demo/lost.so": works.lost})
    words = (vendor, "--prefix", works.prefix)
    code, out, err = run(*words, "--output-format", "sarif")
    assert (code, err) == (1, "")
    found = log(out)
    assert found["artifacts"][0]["location"]["uri"] == f"in/{vendor.name}"
    assert ("RLK101", "error") in {(item["ruleId"], item["level"]) for item in found["results"]}
    code, out, err = run(*words, "--output-format", "github")
    assert (code, err) == (1, "")
    assert {name for name, _, _ in commands(out)} == {"error"}
    as_json = run(*words, "--json")
    chosen = run(*words, "--output-format", "json")
    assert json.loads(chosen[1])["findings"] == json.loads(as_json[1])["findings"]
    assert run(*words, "--output-format", "text")[1] == run(*words)[1]


def test_a_wheel_that_cannot_be_read_is_in_the_log(run: Run, works: Works, tmp_path: Path) -> None:
    (tmp_path / "bad-1-py3-none-any.whl").write_bytes(b"no archive")
    words = ("bad-1-py3-none-any.whl", works.small(tmp_path), "--prefix", works.prefix, "--dry-run")
    code, out, err = run(*words, "--output-format", "sarif")
    assert code == 2
    found = log(out)
    assert len(found["artifacts"]) == 1
    invocation = found["invocations"][0]
    assert invocation["executionSuccessful"] is False
    (told,) = invocation["toolExecutionNotifications"]
    assert "bad-1-py3-none-any.whl" in told["message"]["text"]
    assert "bad-1-py3-none-any.whl" in err
    code, out, _ = run(*words, "--output-format", "github")
    assert code == 2
    assert ("error", {"title": "relink"}) in [(name, properties) for name, properties, _ in commands(out)]


def test_inspect_and_verify(run: Run, works: Works, tmp_path: Path) -> None:
    vendor = works.small(tmp_path / "in")
    assert run("inspect", vendor, "--output-format", "github")[0] == 0
    code, out, _ = run("inspect", vendor, "--output-format", "sarif")
    assert code == 0
    assert log(out)["artifacts"][0]["location"]["uri"] == f"in/{vendor.name}"
    assert log(out)["artifacts"][0]["hashes"]["sha-256"]
    code, out, _ = run("verify", vendor, "--output-format", "sarif")
    assert code == 1
    assert [item["ruleId"] for item in log(out)["results"] if item["level"] == "error"]
    code, out, _ = run("verify", vendor, "--output-format", "github")
    assert code == 1
    assert "error" in {name for name, _, _ in commands(out)}


def test_a_difference_that_no_plan_explains(run: Run, works: Works, tmp_path: Path) -> None:
    vendor = works.wheel(tmp_path / "vendor")
    assert run(vendor, "--prefix", works.prefix, "-o", tmp_path)[0] == 0
    relinked = tmp_path / OUTPUT
    code, out, _ = run("diff", vendor, relinked, "--output-format", "sarif")
    assert (code, log(out)["results"]) == (0, [])
    with zipfile.ZipFile(relinked) as archive:
        content = archive.read("demo/plain.so")
    other = changed(relinked, tmp_path / "other", {"demo/plain.so": content + b"\0"})
    code, out, _ = run("diff", vendor, other, "--output-format", "sarif")
    assert code == 1
    texts = [item["message"]["text"] for item in log(out)["results"] if item["ruleId"] == "RLK621"]
    assert any("demo/plain.so: changed, and the plan leaves it as it is" in text for text in texts)
    code, out, _ = run("diff", vendor, other, "--output-format", "github")
    assert [name for name, _, _ in commands(out)] == ["error"] * len(texts)


@pytest.mark.parametrize("command", ["run", "inspect", "verify"])
def test_two_formats(run: Run, tmp_path: Path, command: str) -> None:
    code, out, err = run(command, tmp_path / "x.whl", "--json", "--output-format", "sarif")
    assert (code, out) == (2, "")
    assert "--json and --output-format sarif are two formats" in err
