"""Every JSON document that a command prints has a shipped schema, and each line of jq in docs/ci.md finds its keys."""

from __future__ import annotations

import json
import re
import shutil
import venv
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from relink.cli.installing import print_outcomes
from relink.indexes.install.installing import InstallResult
from relink.system.errors import RelinkError
from relink.system.shipped_files import load_schema
from tests.support.built import ROOT
from tests.support.command import Run
from tests.support.reports import sample_report
from tests.support.works import Works

SCHEMA = load_schema("commands")
KINDS = {one["properties"]["schema"]["const"] for one in SCHEMA["oneOf"]}


def valid(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document


def test_each_kind_has_a_schema() -> None:
    printed = set()
    for path in (ROOT / "relink").rglob("*.py"):
        printed |= set(re.findall(r'"(relink\.[a-z.-]+/1)"', path.read_text()))
    files = {"relink.plan/1", "relink.report/1", "relink.reports/1", "relink.indexes.build-matrix/1"}
    assert printed - KINDS == files
    assert printed >= KINDS


@pytest.fixture
def tree(works: Works, tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/lost.so").write_bytes(works.lost.read_bytes())
    return tmp_path / "tree"


def test_what_commands_print(run: Run, works: Works, tree: Path, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    venv.create(tmp_path / "venv")
    (site,) = tmp_path.glob("venv/lib/python3*/site-packages")
    shutil.unpack_archive(wheel, site, "zip")
    commands: dict[str, tuple[tuple[str | Path, ...], bool | None]] = {
        "inspection": (("inspect", wheel), None),
        "comparison": (("diff", wheel, wheel), True),
        "gpu": (("isa", wheel, "--gpu", "gfx1100"), None),
        "doctor": (("doctor",), None),
        "settings": (("config",), None),
        "verification": (("check", tree), False),
        "check": (("check", "--python", tmp_path / "venv/bin/python"), True),
    }
    for kind, (words, ok) in commands.items():
        document = valid(run(*words, "--json")[1])
        assert document["schema"] == f"relink.{kind}/1"
        assert ok is None or document["ok"] is ok
    assert valid(run("verify", wheel, "--json")[1])["verdict"]["text"].startswith("Does not load")


def test_what_was_installed(capsys: pytest.CaptureFixture[str]) -> None:
    failed = RelinkError("b: cannot be read")
    for outcomes, failures in (([], ()), ([], [failed]), ([InstallResult(sample_report(), None)], ())):
        print_outcomes(outcomes, "/venv", failures)
        document = valid(capsys.readouterr().out)
        assert document["ok"] is not bool(outcomes or failures)
        assert document["failures"] == [one.message for one in failures]
    assert document["wheels"][0]["report"]["verdict"]["text"].startswith("Cannot work yet")


def test_the_lines_of_jq_name_keys_of_the_schemas() -> None:
    lines = re.findall(r"`relink .*jq .*`", (ROOT / "docs/ci.md").read_text())
    assert len(lines) == 11
    known = json.dumps([SCHEMA, load_schema("report")]) + '"level" "covered" "name" "needed"'
    for line in lines:
        for key in re.findall(r"\.([a-z]+)\b(?!=)", line.partition("jq")[2]):
            assert f'"{key}"' in known, (line, key)
