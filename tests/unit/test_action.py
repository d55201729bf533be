"""The GitHub Action: valid by GitHub's schema, and its steps do what a job that uses it asks for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.built import ROOT, own_python_first, skip_without_index
from tests.support.works import OUTPUT, Works

SLOW = pytest.mark.slow(reason="several processes; test_run has one")

FILE = ROOT / "action.yml"
ACTION: dict[str, Any] = YAML(typ="safe", pure=True).load(FILE.read_text(encoding="utf-8"))
INSTALL, RELINK = ACTION["runs"]["steps"]


class Job:
    """A job that uses the action, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "temp").mkdir()
        self.environment = own_python_first() | {
            "RUNNER_TEMP": str(directory / "temp"),
            "GITHUB_OUTPUT": str(directory / "outputs"),
            "GITHUB_STEP_SUMMARY": str(directory / "summary.md"),
        }

    def with_this_tree(self) -> Job:
        """relink as the step "Install relink" would have installed it, without an index."""
        program = self.directory / "temp/relink/bin/relink"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m relink "$@"\n')
        program.chmod(0o755)
        return self

    def step(self, step: dict[str, Any], **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run a step as the runner does: expressions filled in, and ``shell: bash``."""
        assert step["shell"] == "bash"
        script = self.directory / "step.sh"
        script.write_text(step["run"])
        values = {name: entry.get("default", "") for name, entry in ACTION["inputs"].items()} | inputs
        filled = {name: _filled(text, values) for name, text in step["env"].items()}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            cwd=self.directory,
            env=self.environment | filled,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def outputs(self) -> dict[str, str]:
        """Read GITHUB_OUTPUT as the runner does."""
        text = (self.directory / "outputs").read_text()
        found = re.findall(r"^(\w+)<<(\S+)\n(.*?)^\2\n", text, re.MULTILINE | re.DOTALL)
        assert "".join(f"{name}<<{mark}\n{value}{mark}\n" for name, mark, value in found) == text
        return {name: value for name, _, value in found}


def _filled(text: str, inputs: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        scope, _, name = match[1].partition(".")
        return inputs[name] if scope == "inputs" else {"action_path": str(ROOT)}[name]

    return re.sub(r"\$\{\{ (.*?) \}\}", value, text)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path).with_this_tree()


def test_github_would_take_it() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions", str(FILE)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_input_reaches_a_step_and_no_script() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{\{ inputs\.(\w+) \}\}", text)) == set(ACTION["inputs"])
    assert not any("${{" in step["run"] for step in ACTION["runs"]["steps"])


def test_run(job: Job, works: Works) -> None:
    works.small(job.directory / "in one")
    done = job.step(RELINK, wheels="in one/*.whl\n", prefix=f"{works.prefix}\n", output="out dir")
    assert done.returncode == 0, done.stdout
    *warnings, verdict = done.stdout.splitlines()
    assert all(line.startswith("::warning title=RLK") for line in warnings), done.stdout
    assert verdict.startswith("::notice title=relink::demo-1.0-")
    title, empty, *told = (job.directory / "summary.md").read_text().splitlines()
    assert (title, empty, len(told)) == ("### relink", "", 2)
    assert re.fullmatch(r"    demo-1\.0-\S+\.whl: Loads; checked by ld\.so for 1 file\.", told[0])
    assert told[1] == f"    Next: pip install 'out dir/{OUTPUT}'"
    assert job.outputs() == {"wheels": f"out dir/{OUTPUT}\n", "sarif": "\n"}
    assert (job.directory / "out dir" / OUTPUT).is_file()


@pytest.mark.slow(reason="a process; test_formats has the annotations")
def test_errors_are_annotations_and_the_step_fails(job: Job, works: Works) -> None:
    works.wheel(job.directory, {"demo/lost.so": works.lost})
    done = job.step(RELINK, wheels="*.whl", prefix=str(works.prefix))
    assert done.returncode == 1
    assert "::error title=RLK101 missing library::" in done.stdout
    assert job.outputs()["wheels"] == ""
    done = job.step(
        RELINK, wheels="*.whl", prefix=str(works.prefix), arguments="--allow-missing\nlibnowhere*\n"
    )
    assert done.returncode == 0, done.stdout
    assert "RLK102" in done.stdout


@pytest.mark.parametrize("words", ["--interpreter\n{loader}\n", "--interpreter={loader}"])
def test_the_target_is_the_python_of_the_job_unless_another_is_named(
    job: Job, works: Works, words: str
) -> None:
    works.small(job.directory)
    asked = job.directory / "asked"
    program = job.directory / "temp/relink/bin/relink"
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{asked}'\n")
    assert job.step(RELINK, wheels="*.whl").returncode == 0
    given = asked.read_text().split("\n")
    python = shutil.which("python3", path=job.environment["PATH"])
    assert given[given.index("--python") + 1] == python
    assert job.step(RELINK, wheels="*.whl", arguments=words.format(loader="/lib/ld.so")).returncode == 0
    assert "--python" not in asked.read_text()
    assert "/lib/ld.so" in asked.read_text()
    assert job.step(RELINK, wheels="*.whl", command="inspect").returncode == 0
    assert "--python" not in asked.read_text()


@SLOW
def test_sarif(job: Job, works: Works) -> None:
    works.wheel(job.directory, {"demo/lost.so": works.lost})
    done = job.step(RELINK, wheels="*.whl", prefix=str(works.prefix), sarif="found.sarif", gpus="gfx1030")
    assert done.returncode == 1
    (run,) = json.loads((job.directory / "found.sarif").read_text())["runs"]
    assert "RLK101" in {item["ruleId"] for item in run["results"]}
    assert job.outputs()["sarif"] == "found.sarif\n"


@SLOW
def test_settings_of_the_checkout_hold(job: Job, works: Works) -> None:
    works.small(job.directory)
    (job.directory / "relink.toml").write_text(f"prefix = ['{works.prefix}']\n")
    done = job.step(RELINK, wheels="*.whl")
    assert done.returncode == 0, done.stdout
    assert f"{job.directory}/relink.toml sets prefix" in done.stdout


@pytest.mark.slow(reason="two processes; relinking runs always")
def test_verify_and_inspect(job: Job, works: Works) -> None:
    works.small(job.directory / "in")
    assert job.step(RELINK, wheels="in/*.whl", prefix=str(works.prefix)).returncode == 0
    done = job.step(RELINK, wheels="dist/*.whl", command="verify")
    assert (done.returncode, "Loads; checked by ld.so" in done.stdout) == (0, True)
    assert job.step(RELINK, wheels="in/*.whl", command="verify").returncode == 1
    assert job.step(RELINK, wheels="in/*.whl\ndist/*.whl", command="inspect").returncode == 0


@SLOW
def test_check(job: Job, works: Works) -> None:
    """Of a tree here; without one of the job's Python."""
    works.wheel(job.directory)
    (job.directory / "tree").mkdir()
    shutil.copy(works.lost, job.directory / "tree/lost.so")
    done = job.step(RELINK, wheels="tree", command="check")
    assert done.returncode == 1
    assert "::error title=RLK101 missing library::" in done.stdout
    assert "    tree: Does not load: " in (job.directory / "summary.md").read_text()
    assert not (job.directory / "dist").exists()
    assert "native code in " in job.step(RELINK, command="check").stdout


@pytest.mark.few(1, reason="a process each")
@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"command": "install", "wheels": "x"}, "the input command is run, verify, inspect or check"),
        ({"wheels": "gone*.whl"}, "gone"),
        ({"wheels": "--help"}, "--help"),
        ({"wheels": '$(touch hit) "; touch hit; `touch hit`'}, "touch hit"),
        ({"wheels": "x.whl", "prefix": "$(touch hit)"}, ""),
    ],
)
def test_what_is_wrong(job: Job, inputs: dict[str, str], says: str) -> None:
    done = job.step(RELINK, **inputs)
    assert done.returncode == 2, done.stdout
    assert says in done.stdout
    assert not (job.directory / "hit").exists()


@pytest.mark.network
def test_installed_from_the_checkout(tmp_path: Path, works: Works) -> None:
    job = Job(tmp_path)
    done = job.step(INSTALL)
    if done.returncode:
        skip_without_index(done.stdout)
    assert done.returncode == 0, done.stdout
    works.small(tmp_path)
    assert job.step(RELINK, wheels="*.whl", prefix=str(works.prefix)).returncode == 0
    assert os.listdir(tmp_path / "dist") == [OUTPUT]
