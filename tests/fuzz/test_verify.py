"""Mutated ELF files through `verify`, the loader in its sandbox: 0 escapes, hangs, too much memory, wrong answers.

250 mutants in `make test-all`, a tenth of them in `make test`, RELINK_FUZZ_VERIFY (20,000) in `make fuzz`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.loader.dryrun import LoaderMap
from relink.runs.questions import VerifiedWheel
from tests.fuzz import verifying
from tests.fuzz.conftest import COUNTED
from tests.support.amount import amount
from tests.support.forking import run as forked
from tests.support.works import Works

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the mutants have relocations of x86-64"
)

FEW = amount(250)
LONG = int(os.environ.get("RELINK_FUZZ_VERIFY", "20000"))
BATCH = 1_000  # mutants of one process
ROOT = Path(__file__).resolve().parents[2]

Property = Callable[[str, object], None]


def hunt(works: Works, scratch: Path, first: int, count: int, record_property: Property) -> None:
    arguments: list[str | Path] = [works.root, scratch, str(first), str(count)]
    ended = forked(*arguments, program="tests.fuzz.verifying:main", cwd=ROOT, strict=True, timeout=None)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["mutants"] == count
    assert found["asked"] > count / 5, "the loader was hardly asked"
    for name in ("mutants", "refused", "asked", "died"):
        record_property(f"{COUNTED}verify: {name}", found.get(name, 0))


def test_some(works: Works, tmp_path: Path, record_property: Property) -> None:
    hunt(works, tmp_path / "scratch", 0, FEW, record_property)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(0, LONG, BATCH))
def test_many(works: Works, tmp_path: Path, first: int, record_property: Property) -> None:
    hunt(works, tmp_path / "scratch", 1_000 + first, min(BATCH, LONG - first), record_property)


def test_the_hunt_sees(works: Works, tmp_path: Path) -> None:
    """A loader that dies without an error, a file and a process that are left.

    In a process of its own: whatever else a process of tests does meanwhile would be told, too.
    """
    found = VerifiedWheel("x", None, {}, ())  # type: ignore[arg-type]
    dead = LoaderMap((), (), ("killed by signal 11",), died=True)
    wrong: list[str] = []
    assert verifying.judge(found, {"demo/m000.so": [("in the sandbox", dead)]}, wrong, 1)["died"] == 1
    assert "no error, although the loader died" in wrong[0]

    script = """
import subprocess, sys
from collections import Counter
from pathlib import Path
from tests.fuzz import verifying
scratch = Path(sys.argv[2])
def batch(*_, **__):
    (scratch.parent / "elsewhere").write_bytes(b"")
    (scratch / "left").write_bytes(b"")
    child.append(subprocess.Popen(["sleep", "60"]))
    return Counter(mutants=1), []
child = []
verifying.verify_batch = batch
scene = verifying.scene_of(Path(sys.argv[1]), scratch)
scene.scratch.mkdir()
failed = verifying.run(scene, 0, 1)
child[0].kill()
sys.exit(failed)
"""
    command = [sys.executable, "-c", script, str(works.root), str(tmp_path / "scratch")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert "elsewhere" in ended.stdout
    assert "left in the temporary directory: left" in ended.stdout
    assert "a process is left" in ended.stdout
