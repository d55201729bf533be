"""examples/index: the job script for Slurm, the specification for Kubernetes, the workflow."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from ruamel.yaml import YAML

from tests.support.built import ROOT

PLACE = ROOT / "examples" / "index"


def shown(*words: str) -> str:
    run = subprocess.run([sys.executable, *words], cwd=PLACE, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_slurm() -> None:
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    script = shown("slurm.py", "--show")
    assert "#SBATCH --mem=16G" in script
    assert "--resources memory=17179869184" in script
    assert "dask_worker tcp://" in script


def test_kubernetes() -> None:
    pytest.importorskip("dask_kubernetes", reason="dask-kubernetes is not installed")
    spec = json.loads(shown("kubernetes.py", "--show", "example/relink:1", "srv"))
    worker = spec["spec"]["worker"]["spec"]
    assert worker["containers"][0]["volumeMounts"] == [{"name": "srv", "mountPath": "/srv"}]
    assert worker["volumes"][0]["persistentVolumeClaim"]["claimName"] == "srv"
    assert f"memory={16 << 30}" in worker["containers"][0]["args"]


def test_the_workflow_calls_commands_that_exist() -> None:
    steps = YAML(typ="safe").load(PLACE / "workflow.yml")["jobs"]["build"]["steps"]
    commands = [step["run"].partition("rocm-relink relink ")[2].split() for step in steps if "run" in step]
    assert [words[:2] for words in commands] == [["index", "build"], ["index", "check"]]
    for words in commands:
        options = [word for word in words if word.startswith("--")]
        text = subprocess.run(
            [sys.executable, "-m", "relink", *words[:2], "--help"], capture_output=True, text=True, check=True
        ).stdout
        assert [option for option in options if option not in text] == []
