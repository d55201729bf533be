"""``python -m benchmarks.check [--record]``: relink against auditwheel on a small generated wheel, for continuous integration.

The two run in turns, so that other work on the machine meets both. What is compared with benchmarks/recorded.json is the ratio
of their times, as the median of the turns: of processor time, which other work changes little, and of wall time, in which
waiting shows, too. ``--record`` writes that file anew, after a change that is meant to change the ratio.
"""

from __future__ import annotations

import compileall
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cost import Cost, bench_directory, in_turns
from benchmarks.job import AUDITWHEEL, RELINK, Job, plan_job, ways
from benchmarks.torch_shape import Shape, make_prefix, make_wheel
from benchmarks.wheel_file import NAME

RECORDED: Final = Path(__file__).with_name("recorded.json")
_SHAPE: Final = Shape(large=16, small=1, members=20, symbols=3000, libraries=20)
_TURNS: Final = 5
_TURNS_TO_RECORD: Final = 15
_LEAST: Final = 0.25
"""Of the recorded ratio: a change that is smaller than this is never called a regression."""
_NOISE: Final = 4
"""Times the recorded spread: neither is a change that is smaller than this."""


@dataclass(frozen=True)
class Ratio:
    """relink's time divided by auditwheel's: the median of several turns, and their median distance from it."""

    median: float
    spread: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Ratio:
        median = statistics.median(ratios)
        return cls(round(median, 4), round(statistics.median(abs(ratio - median) for ratio in ratios), 4))

    @property
    def limit(self) -> float:
        """The largest ratio that is no regression."""
        return self.median + max(_NOISE * self.spread, _LEAST * self.median)


def regressions(recorded: dict[str, Ratio], now: dict[str, Ratio]) -> list[str]:
    """Return one line for each kind of time whose median is beyond the limit of what was recorded."""
    return [
        f"{kind} time: relink takes {ratio.median:.3f} of auditwheel's; recorded: {recorded[kind].median:.3f}, "
        f"the limit is {recorded[kind].limit:.3f}"
        for kind, ratio in now.items()
        if ratio.median > recorded[kind].limit
    ]


def measure(job: Job, turns: int) -> list[dict[str, float]]:
    """Return the ratios of each turn, by kind of time.

    :raises Skipped: relink or auditwheel fails.
    """
    chosen = {way: run for way, run in ways(job).items() if way in (RELINK, AUDITWHEEL)}
    ratios = []
    for _ in range(turns):
        costs = in_turns(chosen, turns=1)
        ours, theirs = costs[RELINK], costs[AUDITWHEEL]
        for cost in (ours, theirs):
            if not isinstance(cost, Cost):
                raise cost
        assert isinstance(ours, Cost)
        assert isinstance(theirs, Cost)
        ratios.append({"processor": ours.processor / theirs.processor, "wall": ours.wall / theirs.wall})
    return ratios


def _summed(ratios: Sequence[dict[str, float]]) -> dict[str, Ratio]:
    return {kind: Ratio.of([turn[kind] for turn in ratios]) for kind in ratios[0]}


def main(arguments: list[str]) -> int:
    compileall.compile_dir(Path(__file__).parents[1] / "relink", quiet=1)
    with tempfile.TemporaryDirectory(prefix="relink-check-", dir=bench_directory()) as name:
        place = Path(name)
        prefix = make_prefix(place, _SHAPE)
        make_wheel(place / NAME, prefix, _SHAPE)
        job = plan_job(place / NAME, ["--prefix", str(prefix)])
        measure(job, 1)  # into the page cache
        if arguments == ["--record"]:
            found = _summed(measure(job, _TURNS_TO_RECORD))
            text = {kind: {"median": ratio.median, "spread": ratio.spread} for kind, ratio in found.items()}
            RECORDED.write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")
            print(f"recorded {RECORDED.name}: {found}")
            return 0
        recorded = {kind: Ratio(**value) for kind, value in json.loads(RECORDED.read_text()).items()}
        turns = measure(job, _TURNS)
        wrong = regressions(recorded, _summed(turns))
        if wrong:  # once more: what other work did meanwhile is no regression
            turns += measure(job, _TURNS)
            wrong = regressions(recorded, _summed(turns))
    for kind, ratio in _summed(turns).items():
        print(
            f"{kind} time: {ratio.median:.3f} of auditwheel's in {len(turns)} turns (±{ratio.spread:.3f}); "
            f"recorded: {recorded[kind].median:.3f}, the limit is {recorded[kind].limit:.3f}"
        )
    for line in wrong:
        print(f"regression: {line}", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
