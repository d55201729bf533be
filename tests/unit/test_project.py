"""The project's own files: the changelog's form, hooks that download nothing, markers that make test knows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import relink
from tests.conftest import APART

ROOT = Path(__file__).resolve().parents[2]
GROUPS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
MIGRATION = re.compile(r"From \d+\.\d+\.\d+")


def test_the_changelog_has_its_form() -> None:
    """keepachangelog.com: the newest release first, each with its date, lines in groups."""
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[0] == "Unreleased"
    releases = [re.fullmatch(r"(\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)", heading) for heading in headings[1:]]
    assert all(releases), headings
    numbers = [tuple(map(int, release[1].split("."))) for release in releases if release]
    assert numbers == sorted(numbers, reverse=True)
    assert relink.__version__ in {release[1] for release in releases if release}
    for section in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]:
        found = re.findall(r"^### (.*)$", section, re.MULTILINE)
        notes = [heading for heading in found if MIGRATION.fullmatch(heading)]
        assert found == [group for group in GROUPS if group in found] + notes
        assert len(notes) <= 1
        assert section.count("\n") <= 80
        for group in re.split(r"^### .*$", section, flags=re.MULTILINE)[1:]:
            assert re.search(r"^- ", group, re.MULTILINE), "a group without a line"
            for entry in re.findall(r"^- (?:.*\n)(?:  .*\n)*", group, re.MULTILINE):
                assert entry.rstrip().endswith("."), entry
                assert entry.count("\n") <= 3, entry


def test_hooks_use_the_tools_of_the_project() -> None:
    hooks: Any = YAML(typ="safe").load(ROOT / ".pre-commit-config.yaml")
    assert [source["repo"] for source in hooks["repos"]] == ["local"]
    makefile = (ROOT / "Makefile").read_text()
    for hook in hooks["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        program, *words = hook["entry"].split()
        assert program.startswith(".venv/bin/")
        command = " ".join(
            [program.removeprefix(".venv/bin/"), *(word for word in words if word != "--force-exclude")]
        )
        assert f"$(BIN)/{command}" in makefile, hook


def test_make_test_knows_every_marker() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        listed = tomllib.load(file)["tool"]["pytest"]["ini_options"]["markers"]
    known = {re.split(r"[(:]", line)[0] for line in listed} - {"few"}  # which marks cases as slow
    assert sorted(APART) == sorted(known)
