"""``python -m benchmarks.check [--record] [CASE…]``: relink against the commits that benchmarks/record.toml names.

The working tree and the best commit of a case run in turns, so that other work on the machine meets both. Processor time is what
is compared, since other work changes it little; wall time is printed. Beside it stand counts of what both do
(:mod:`benchmarks.counted`), which do not vary. ``--record`` names the current commit in the cases in which it is better.
"""

from __future__ import annotations

import compileall
import json
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from benchmarks.cost import Cost, Skipped, bench_directory, measured
from benchmarks.shapes import make_environment, make_members, make_modules
from benchmarks.torch_shape import Shape, make_prefix, make_wheel
from benchmarks.wheel_file import NAME

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "benchmarks" / "record.toml"
COUNTED: Final = ROOT / "benchmarks" / "counted.py"
_TURNS: Final = 5
_LIMIT: Final = 1 / 0.85
"""Times the record's processor time: what takes no longer is never called slower."""
_SPREADS: Final = 4
_BYTES: Final = 1.01
"""Times what the record counts of bytes: texts of relink's own in the output are no regression."""
_WHOLE: Final = ("opened", "processes", "flushes")
_ANSWERS: Final = frozenset({0, 1})


@dataclass(frozen=True)
class Case:
    """A command of relink, given the place where `make` has put what it reads."""

    make: Callable[[Path], object]
    words: Callable[[Path], Sequence[str]]


def _make_large(place: Path) -> None:
    shape = Shape(large=32, small=1, members=4, symbols=3000, libraries=20)
    make_wheel(place / NAME, make_prefix(place, shape), shape)


def _relink(place: Path, *more: str) -> Sequence[str]:
    return str(place / NAME), "--prefix", str(place / "rocm"), *more


CASES: Final = {
    "large_files": Case(_make_large, _relink),
    "members": Case(partial(make_members, count=2000), _relink),
    "modules": Case(partial(make_modules, count=300), lambda place: _relink(place, "--dry-run")),
    "environment": Case(
        partial(make_environment, count=30),
        lambda place: ("check", str(place / "venv"), "--prefix", str(place / "rocm")),
    ),
}


@dataclass(frozen=True)
class Ratio:
    """The working tree's time divided by the record's: the median of several turns, and how far off that may be."""

    median: float
    spread: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Ratio:
        median = statistics.median(ratios)
        deviation = statistics.median(abs(ratio - median) for ratio in ratios)
        return cls(median, deviation / len(ratios) ** 0.5)

    @property
    def limit(self) -> float:
        """The largest median that is no regression."""
        return max(_LIMIT, 1 + _SPREADS * self.spread)


def grown_counts(now: Mapping[str, int], record: Mapping[str, int], grown: Mapping[str, float]) -> list[str]:
    """Return a line for each count that is larger than in the record.

    :param grown: the factors by which counts may be larger, as the record says.
    """
    return [
        f"{name}: {count}, and the record {record.get(name, 0)}"
        for name, count in now.items()
        if count > record.get(name, 0) * grown.get(name, 1 if name in _WHOLE else _BYTES)
    ]


def read_record() -> dict[str, dict[str, Any]]:
    """Return the tables of record.toml, by case."""
    return tomllib.loads(RECORD.read_text(encoding="utf-8"))


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True).stdout


def _unpack(commit: str, place: Path) -> Path:
    """Write relink as it was at a commit; returns the directory.

    :raises Skipped: this clone does not have the commit.
    """
    tree = place / commit
    if not tree.exists():
        try:
            # Settings are looked for in pyproject.toml of the directory that a run starts in, which is read in both trees.
            content = _git("archive", commit, "relink", "profiles", "pyproject.toml")
        except (OSError, subprocess.CalledProcessError) as error:
            raise Skipped(
                f"commit {commit[:8]} is not in this clone; git fetch --unshallow brings it"
            ) from error
        with tarfile.open(fileobj=BytesIO(content)) as archive:
            archive.extractall(tree, filter="data")
        compileall.compile_dir(tree / "relink", quiet=1)
    return tree


def _run(tree: Path, start: Sequence[str], words: Sequence[str], place: Path) -> Cost:
    """Run relink of a tree once; what it writes is removed."""
    with tempfile.TemporaryDirectory(dir=place) as name:
        output = () if words[0] == "check" or "--dry-run" in words else ("-o", f"{name}/out")
        return measured([[sys.executable, *start, *words, *output]], Path(name), _ANSWERS, cwd=tree)


def _count(tree: Path, words: Sequence[str], place: Path) -> dict[str, int]:
    counts = place / "counts.json"
    _run(tree, [str(COUNTED), str(counts)], words, place)
    found: dict[str, int] = json.loads(counts.read_text())
    return found


def compare(case: Case, tables: Mapping[str, Any], place: Path, trees: Path) -> tuple[str, list[str], bool]:
    """Return a line about a case, the regressions, and whether the working tree is better than the record.

    :raises Skipped: the record's commit cannot be had, or does not run here.
    """
    place.mkdir()
    case.make(place)
    words, record = case.words(place), _unpack(tables["commit"], trees)
    theirs, ours = _count(record, words, place), _count(ROOT, words, place)
    wrong = grown_counts(ours, theirs, tables.get("grown", {}))
    turns: list[tuple[Cost, Cost]] = []
    # Once more where it is slower: what other work did meanwhile is no regression.
    for _ in range(2):
        for _ in range(_TURNS):
            first, second = (_run(tree, ["-m", "relink"], words, place) for tree in (record, ROOT))
            turns.append((first, second))
        processor = Ratio.of([second.processor / first.processor for first, second in turns])
        if processor.median <= processor.limit:
            break
    else:
        wrong.append(
            f"processor time is {processor.median:.3f} of the record's; the limit is {processor.limit:.3f}"
        )
    wall = statistics.median(second.wall / first.wall for first, second in turns)
    seconds = statistics.median(second.processor for _, second in turns)
    line = (
        f"processor time {seconds:.2f} s, {processor.median:.3f} of {tables['commit'][:8]}'s in {len(turns)} turns "
        f"(±{processor.spread:.3f}, limit {processor.limit:.3f}); wall {wall:.3f}; {ours}"
    )
    return line, wrong, not wrong and processor.median < 1 - processor.spread


def main(arguments: list[str]) -> int:
    compileall.compile_dir(ROOT / "relink", quiet=1)
    failed = False
    wanted = [word for word in arguments if word != "--record"] or list(CASES)
    with tempfile.TemporaryDirectory(prefix="relink-check-", dir=bench_directory()) as name:
        for case in wanted:
            try:
                line, wrong, better = compare(CASES[case], read_record()[case], Path(name) / case, Path(name))
            except Skipped as reason:
                print(f"NOT COMPARED: {case}: {reason}", file=sys.stderr)
                continue
            print(f"{case}: {line}", flush=True)
            for text in wrong:
                print(f"regression: {case}: {text}", file=sys.stderr)
            failed = failed or bool(wrong)
            if better and "--record" in arguments:
                commit = _git("rev-parse", "HEAD").decode().strip()
                table = re.compile(rf'(?m)^(\[{case}\]\ncommit = ")[0-9a-f]+')
                RECORD.write_text(table.sub(rf"\g<1>{commit}", RECORD.read_text("utf-8")), "utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
