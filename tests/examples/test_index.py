"""examples/index: the job script for Slurm, the specification for Kubernetes, the workflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.support.built import ROOT, skip_without_index

PLACE = ROOT / "examples" / "index"


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """dask-jobqueue and dask-kubernetes, with what their import needs beside Dask."""
    place = tmp_path_factory.mktemp("libraries")

    def install(*words: str) -> None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(place), *words]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            skip_without_index(run.stderr)
            pytest.fail(run.stderr[-2000:])

    install("--no-deps", "dask-jobqueue", "dask-kubernetes")
    (found,) = distributions(name="dask-kubernetes", path=[str(place)])
    install(*(text for text in found.requires or () if text.startswith("kr8s")))
    return place


def shown(libraries: Path, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(libraries), "PYTHONWARNINGS": "ignore"}
    run = subprocess.run(
        [sys.executable, *words], cwd=PLACE, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.network
def test_slurm(libraries: Path) -> None:
    script = shown(libraries, "slurm.py", "--show")
    assert script.startswith("#!")
    assert "#SBATCH --mem=16G" in script
    assert "--resources memory=17179869184" in script
    assert "dask_worker tcp://" in script


@pytest.mark.network
def test_kubernetes(libraries: Path) -> None:
    """The specification of both pods; the workers have the command line of a Dask worker with its memory."""
    spec = json.loads(shown(libraries, "kubernetes.py", "--show", "example/relink:1", "srv"))
    assert spec["kind"] == "DaskCluster"
    for part in ("worker", "scheduler"):
        pod = spec["spec"][part]["spec"]
        (container,) = pod["containers"]
        assert container["image"] == "example/relink:1"
        assert container["volumeMounts"] == [{"name": "srv", "mountPath": "/srv"}]
        assert pod["volumes"] == [{"name": "srv", "persistentVolumeClaim": {"claimName": "srv"}}]
        assert container["resources"]["limits"] == {"memory": "16Gi"}
    (worker,) = spec["spec"]["worker"]["spec"]["containers"]
    assert worker["args"][:2] == ["dask", "worker"]
    assert worker["args"][worker["args"].index("--resources") + 1] == f"memory={16 << 30}"


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
