"""The option that chooses a format, on each command that has it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from relink.cli.formats import OutputFormat
from relink.report.formats import FORMATS
from tests.support.command import Run
from tests.support.wheels import changed
from tests.support.works import OUTPUT, Works
from tests.unit.report.formats.formatted import commands, log


def test_the_option_offers_every_format() -> None:
    assert {item.value for item in OutputFormat} == {"text", *FORMATS}


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
    prefix = ("--prefix", works.prefix)
    code, out, _ = run("diff", vendor, relinked, *prefix, "--output-format", "sarif")
    assert (code, log(out)["results"]) == (0, [])
    with zipfile.ZipFile(relinked) as archive:
        content = archive.read("demo/plain.so")
    other = changed(relinked, tmp_path / "other", {"demo/plain.so": content + b"\0"})
    code, out, _ = run("diff", vendor, other, "--output-format", "sarif")
    assert (code, log(out)["results"]) == (0, [])  # listed, and not judged
    code, out, _ = run("diff", vendor, other, *prefix, "--output-format", "sarif")
    assert code == 1
    texts = [item["message"]["text"] for item in log(out)["results"] if item["ruleId"] == "RLK621"]
    assert any("demo/plain.so: the content is not " in text for text in texts)
    code, out, _ = run("diff", vendor, other, *prefix, "--output-format", "github")
    assert [name for name, _, _ in commands(out)] == ["error"] * len(texts)


@pytest.mark.parametrize("command", ["run", "inspect", "verify"])
def test_two_formats(run: Run, tmp_path: Path, command: str) -> None:
    code, out, err = run(command, tmp_path / "x.whl", "--json", "--output-format", "sarif")
    assert (code, out) == (2, "")
    assert "--json and --output-format sarif are two formats" in err
