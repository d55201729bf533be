"""The workflow of examples/ci: valid by GitHub's schema, and its steps do what they are for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.built import ROOT, build, own_python_first, skip_without_index, venv_on_ours

FILE = ROOT / "examples/ci/gpu-coverage.yml"
WORKFLOW: dict[str, Any] = YAML(typ="safe", pure=True).load(FILE.read_text(encoding="utf-8"))


def test_github_would_take_it() -> None:
    check = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        str(FILE),
    ]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real
def test_the_steps(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, bitsandbytes_wheel: Path
) -> None:
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / build(tmp_path_factory).wheel.name).symlink_to(build(tmp_path_factory).wheel)
    base = own_python_first()
    base |= {
        "PATH": f"{venv_on_ours(tmp_path / 'python')}:{base['PATH']}",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }
    base["PIP_NO_INDEX"] = (
        "1"  # the newest release there is here, so that this test does not change with the vendor's
    )
    base["PIP_FIND_LINKS"] = f"{base.get('PIP_FIND_LINKS', '')} {bitsandbytes_wheel.parent}".strip()
    base |= {name: str(value) for name, value in WORKFLOW["env"].items()}
    *preparing, deciding, keeping = [step for step in WORKFLOW["jobs"]["coverage"]["steps"] if "run" in step]
    for step in preparing:
        done = _run(step["run"], tmp_path, base)
        if done.returncode:
            skip_without_index(done.stdout)
        assert done.returncode == 0, done.stdout
    covered = _run(deciding["run"], tmp_path, base)
    assert covered.returncode == 0, covered.stdout
    lost = _run(deciding["run"], tmp_path, base | {"GPUS": f"{base['GPUS']} gfx906"})
    assert lost.returncode == 1, lost.stdout
    assert "gfx906" in lost.stdout.splitlines()[-1]
    assert "gfx1030 (" in lost.stdout
    assert keeping["if"] == "always()"
    assert _run(keeping["run"], tmp_path, base).returncode == 0
    assert lost.stdout in (tmp_path / "summary").read_text()


def _run(script: str, directory: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does for ``shell: bash``."""
    assert WORKFLOW["defaults"]["run"]["shell"] == "bash"
    file = directory / "step.sh"
    file.write_text(script)
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(file)],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
