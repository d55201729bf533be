"""The hooks for repositories that use relink: run by pre-commit in such a repository, out of a clone of this one."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.built import ROOT, build, own_python_first, skip_without_index
from tests.support.command import Run
from tests.support.works import Works

HOOKS: list[dict[str, Any]] = YAML(typ="safe", pure=True).load(
    (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
)
_GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "init.defaultBranch=main"]


def test_pre_commit_would_take_them() -> None:
    check = [sys.executable, "-m", "pre_commit", "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml")]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_commands(run: Run, works: Works, tmp_path: Path) -> None:
    wheels = works.small(tmp_path), works.wheel(tmp_path / "lost", {"demo/lost.so": works.lost})
    (tmp_path / "relink.toml").write_text(f"prefix = ['{works.prefix}']\n")
    entries = {hook["id"]: shlex.split(hook["entry"])[1:] for hook in HOOKS}
    assert run(*entries["relink"], wheels[0])[0] == 0
    assert run(*entries["relink"], *wheels)[0] == 1
    assert run(*entries["relink-settings"])[0] == 0
    (tmp_path / "relink.toml").write_text("gpu = []\n")
    assert run(*entries["relink-settings"])[0] == 2


@pytest.mark.network
@pytest.mark.slow(reason="pre-commit installs relink and all that it depends on")
def test_in_a_repository(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, works: Works) -> None:
    ours = build(tmp_path_factory).unpack(tmp_path)
    revision = _committed(ours)
    theirs = tmp_path / "theirs"
    works.small(theirs / "wheels")
    (theirs / "relink.toml").write_text(f"prefix = ['{works.prefix}']\n")
    hooks = "".join(f"      - id: {hook['id']}\n" for hook in HOOKS)
    (theirs / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {ours}\n    rev: {revision}\n    hooks:\n{hooks}"
    )
    _committed(theirs)
    done = _pre_commit(theirs, tmp_path)
    if done.returncode:
        skip_without_index(done.stdout)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("Passed") == len(HOOKS), done.stdout
    works.wheel(theirs / "wheels", {"demo/lost.so": works.lost})
    (theirs / "relink.toml").write_text(f"prefix = ['{works.prefix}']\ngpu = []\n")
    _committed(theirs)
    done = _pre_commit(theirs, tmp_path)
    assert done.returncode == 1
    assert done.stdout.count("Failed") == len(HOOKS), done.stdout
    assert "did you mean gpus?" in done.stdout


def _committed(directory: Path) -> str:
    for words in (["init", "-q"], ["add", "-A", "-f"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*_GIT, "-C", str(directory), *words], check=True, capture_output=True)
    done = subprocess.run(
        [*_GIT, "-C", str(directory), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def _pre_commit(directory: Path, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never"],
        cwd=directory,
        env=own_python_first() | {"PRE_COMMIT_HOME": str(home / "home"), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
