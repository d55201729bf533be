"""The workflows, the action and the example: valid by GitHub's schema, without a finding of zizmor, and of one version."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import relink
from tests.support.built import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FILES = [*WORKFLOWS, ROOT / "action.yml", ROOT / "examples/ci/gpu-coverage.yml"]
RELEASE: dict[str, Any] = YAML(typ="safe", pure=True).load(ROOT / ".github/workflows/release.yml")


def zizmor(*paths: Path) -> subprocess.CompletedProcess[str]:
    """Run zizmor with the persona that finds most of what is no matter of taste; no audit that asks GitHub."""
    words = ["--offline", "--no-config", "--no-progress", "--strict-collection", "--color", "never"]
    return subprocess.run(
        [Path(sys.executable).with_name("zizmor"), *words, "--persona", "auditor", *paths],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_zizmor_finds_nothing(file: Path) -> None:
    done = zizmor(file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"completed {file}" in done.stderr, "it was not looked at"


def test_zizmor_would_find_something(tmp_path: Path) -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    (tmp_path / "action.yml").write_text(text.replace('touch "$started"', "touch ${{ inputs.output }}"))
    done = zizmor(tmp_path / "action.yml")
    assert done.returncode != 0
    assert "template-injection" in done.stdout


@pytest.mark.skipif(
    shutil.which("actionlint") is None, reason="needs actionlint, which has to be installed by itself"
)
@pytest.mark.parametrize(
    "file", [file for file in FILES if file.name != "action.yml"], ids=lambda path: path.name
)
def test_actionlint_finds_nothing(file: Path) -> None:
    done = subprocess.run(["actionlint", "-no-color", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.name)
def test_github_would_take_it(file: Path) -> None:
    check = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        str(file),
    ]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_action_is_pinned_by_one_commit() -> None:
    used: dict[str, set[str]] = {}
    for file in FILES:
        for name, at in re.findall(r"uses: (\S+)@(.*)", file.read_text(encoding="utf-8")):
            assert re.fullmatch(r"[0-9a-f]{40} # v\d+\.\d+\.\d+", at), (file, name)
            used.setdefault(name, set()).add(at)
    assert [name for name, pins in used.items() if len(pins) > 1] == []
    assert "pypa/gh-action-pypi-publish" in used


def test_only_the_job_that_publishes_may_sign_and_it_builds_nothing() -> None:
    jobs = RELEASE["jobs"]
    assert RELEASE["permissions"] == {}
    assert jobs["build"]["permissions"] == {"contents": "read"}
    assert jobs["publish"]["permissions"] == {"id-token": "write", "attestations": "write"}
    assert all("run" not in step for step in jobs["publish"]["steps"])
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    assert "password" not in text


def test_the_version_is_in_one_place() -> None:
    version = re.escape(relink.__version__)
    paths = [*ROOT.glob("*.toml"), *ROOT.glob("*.nix"), *ROOT.glob("nix/**/*"), *ROOT.glob("relink/**/*.py")]
    holders = [
        path.relative_to(ROOT).as_posix()
        for path in paths
        if path.is_file() and re.search(rf"[\"'v]{version}[\"']", path.read_text(encoding="utf-8"))
    ]
    assert holders == ["relink/__init__.py"]
