"""Mutated ELF files through `verify`, the loader in its sandbox: 0 escapes, hangs, too much memory, wrong answers.

250 mutants in `make test-all`, a tenth of them in `make test`, RELINK_FUZZ_VERIFY (20,000) in `make fuzz`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.loader.dryrun import LoaderMap
from relink.runs.questions import VerifiedWheel
from tests.fuzz import verifying
from tests.fuzz.conftest import COUNTED
from tests.fuzz.hostile import scene_of
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


def test_the_hunt_sees(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that dies without an error, one that does not end, a file and a process that are left."""
    scene = scene_of(works.root, tmp_path / "scratch")
    scene.scratch.mkdir()
    found = VerifiedWheel("x", None, {}, ())  # type: ignore[arg-type]
    dead = LoaderMap((), (), ("killed by signal 11",), died=True)
    wrong: list[str] = []
    assert verifying.judge(found, {"demo/m000.so": [("in the sandbox", dead)]}, wrong, 1)["died"] == 1
    assert "no error, although the loader died" in wrong[0]

    def batch(*_: object, **__: object) -> tuple[Counter[str], list[str]]:
        (tmp_path / "elsewhere").write_bytes(b"")
        (tmp_path / "scratch" / "left").write_bytes(b"")
        children.append(subprocess.Popen(["sleep", "60"]))
        return Counter(mutants=1), []

    children: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(verifying, "verify_batch", batch)
    lines: list[str] = []
    monkeypatch.setattr(verifying.sys.stdout, "write", lines.append)  # type: ignore[attr-defined]
    try:
        assert verifying.run(scene, 0, 1) == 3
    finally:
        for child in children:
            child.kill()
            child.wait()
    said = "".join(lines)
    assert "elsewhere" in said
    assert "left in the temporary directory: left" in said
    assert "a process is left" in said
