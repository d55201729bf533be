"""Damaged and made-up wheels, ELF files, bundles, RECORDs, plans…: an answer or a RelinkError, soon, in bounded memory, and no
file outside of the temporary directory.

2,000 inputs in `make test-all`, a tenth of them in `make test`, RELINK_FUZZ_EXAMPLES (100,000) in `make fuzz`.
What once found something lies in ``seeds/KIND/`` and is tried every time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.fuzz.conftest import COUNTED, SEED
from tests.fuzz.hostile import ALONE, KINDS, SECONDS, Kind, attempt, scene_of
from tests.fuzz.watch import watched
from tests.support.amount import amount
from tests.support.forking import run as forked
from tests.support.works import Works

ORDINARY = amount(2_000)
ORDINARY_ALONE = amount(300)
LONG = int(os.environ.get("RELINK_FUZZ_EXAMPLES", "100000"))
SEEDS = Path(__file__).parent / "seeds"
ROOT = Path(__file__).resolve().parents[2]
BATCH = 2_000  # inputs of one process

Property = Callable[[str, object], None]


def hunt(works: Works, scratch: Path, kind: str, first: int, count: int) -> int:
    """Try `count` inputs in a process of its own; returns how many ran.

    A process that is killed for its memory, or that hangs where nothing can interrupt it, fails too.
    """
    arguments: list[str | Path] = [works.root, scratch, kind, str(first), str(count)]
    ended = forked(*arguments, program="tests.fuzz.hostile:main", cwd=ROOT, strict=True, timeout=None)
    last = scratch / "last"
    assert ended.returncode == 0, f"{ended.stdout}{ended.stderr}\nthe last input is {last}"
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["failed"] == 0
    return int(told["ran"])


@pytest.mark.few(2, reason="a process each; all kinds in make test-all")
@pytest.mark.parametrize("kind", KINDS)
def test_some(works: Works, tmp_path: Path, kind: str, record_property: Property) -> None:
    count = round(ORDINARY * KINDS[kind].share)
    assert hunt(works, tmp_path / "scratch", kind, 0, count) == count
    record_property(f"{COUNTED}hostile inputs", count)


def batches(kinds: Mapping[str, Kind]) -> Iterator[tuple[str, int, int]]:
    """What is tried on demand, in portions that several workers can share: kind, number of the first input, how many."""
    for name, kind in kinds.items():
        count = round(LONG * kind.share)
        for first in range(0, count, BATCH):
            yield name, ORDINARY + first, min(BATCH, count - first)


@pytest.mark.few(1, reason="a process each; all kinds in make test-all")
@pytest.mark.parametrize("kind", ALONE)
def test_some_of_those_alone(works: Works, tmp_path: Path, kind: str, record_property: Property) -> None:
    count = round(ORDINARY_ALONE * ALONE[kind].share)
    assert hunt(works, tmp_path / "scratch", kind, 0, count) == count
    record_property(f"{COUNTED}{kind} inputs", count)


@pytest.mark.fuzz
@pytest.mark.parametrize(("kind", "first", "count"), list(batches(KINDS)))
def test_many(
    works: Works, tmp_path: Path, kind: str, first: int, count: int, record_property: Property
) -> None:
    assert hunt(works, tmp_path / "scratch", kind, SEED + first, count) == count
    record_property(f"{COUNTED}hostile inputs", count)


@pytest.mark.fuzz
@pytest.mark.parametrize(("kind", "first", "count"), list(batches(ALONE)))
def test_many_of_those_alone(
    works: Works, tmp_path: Path, kind: str, first: int, count: int, record_property: Property
) -> None:
    assert hunt(works, tmp_path / "scratch", kind, SEED + first, count) == count
    record_property(f"{COUNTED}{kind} inputs", count)


def test_the_shares_are_all_of_it() -> None:
    assert sum(kind.share for kind in KINDS.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    "seed", sorted(SEEDS.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_what_once_found_something(
    works: Works, tmp_path: Path, seed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_of(works.root, tmp_path / "scratch")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with watched(tmp_path) as outside:
        attempt(scene, (KINDS | ALONE)[seed.parent.name], seed.read_bytes(), outside)


# That the hunt itself sees what it is for


def trial(works: Works, tmp_path: Path, check: str, seconds: int) -> str:
    """Run the hunt with one kind whose check is `check` and may take `seconds`; returns what it says."""
    script = f"""
import os, sys, time
from pathlib import Path
from tests.fuzz import hostile
hostile.SECONDS = {seconds}
def check(scene, data):
    {check}
hostile.KINDS["trial"] = hostile.Kind(lambda scene, rng: b"x", check, 0)
scene = hostile.scene_of(Path(sys.argv[1]), Path(sys.argv[2]))
sys.exit(hostile.run(scene, "trial", 0, 1))
"""
    command = [sys.executable, "-c", script, str(works.root), str(tmp_path / "scratch")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    return ended.stdout + ended.stderr


ALIKE = pytest.mark.slow(reason="a process each; a hang, an error and a file outside are tried always")


@pytest.mark.few(0, reason="a process each")
@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("while True: pass", "Hang: more than 1 s"),
        pytest.param("time.sleep(60)", "Hang: more than 1 s", marks=ALIKE),
        pytest.param("bytearray(1 << 40)", "MemoryError", marks=ALIKE),
        pytest.param("b'x' * (300 << 20)", "MiB were held at once", marks=ALIKE),
        ("{}[1]", "KeyError"),
        pytest.param("os.abort()", "", marks=ALIKE),
        ("Path('../elsewhere').write_bytes(b'')", "outside of the temporary directory"),
        pytest.param(
            "os.mkdir('/tmp/relink-hostile-trial'); os.rmdir('/tmp/relink-hostile-trial')",
            "outside of the temp",
            marks=ALIKE,
        ),
        pytest.param(
            "os.symlink('x', scene.scratch.parent.parent / 'link')",
            "outside of the temporary directory",
            marks=ALIKE,
        ),
    ],
)
def test_the_hunt_sees(
    works: Works, tmp_path: Path, check: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path / "here")
    # A busy machine may give a process its memory slowly: only a hang is cut short.
    assert said in trial(works, tmp_path, check, 1 if said.startswith("Hang") else SECONDS)
