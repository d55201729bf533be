"""The tables of docs/benchmarks.md and its plots, from what one run has measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks import results
from benchmarks.job import RELINK

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
PAGE: Final = DOCS / "benchmarks.md"
PLOT: Final = DOCS / "benchmarks.svg"
PLOT_OF_MODULES: Final = DOCS / "benchmarks-modules.svg"
_MEASURED: Final = re.compile(r"(?<=<!-- measured -->\n).*(?=<!-- end -->)", re.DOTALL)
_GROWTH: Final = "changed bytes"
_MODULES: Final = "modules"


def write_page(skipped: Mapping[str, str]) -> None:
    """Write the tables and the plots anew, of all that has been measured in this run.

    :param skipped: why a benchmark was not run, by its name.
    """
    known = results.MEASURED
    lines = [f"Commit {results.commit()}. {results.machine()}.", "", *_cases(known.get("cases", {}))]
    lines += [*_growth(known), *(f"- Not measured: {name}: {why}" for name, why in skipped.items()), ""]
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_MEASURED.sub(lambda _: "\n" + "\n".join(lines) + "\n", text), encoding="utf-8")
    if _GROWTH in known:
        _plot(PLOT, known[_GROWTH], "changed_bytes", 1e9, "GB of ELF files that change", "wall")
    if _MODULES in known:
        _plot(PLOT_OF_MODULES, known[_MODULES], "modules", 1, "extension modules, dry run", "processor")


def _cases(cases: dict[str, Any]) -> Iterator[str]:
    yield "| wheel | way | wall, s | of relink | processor, s | of relink | peak MB | flush, s | output MB |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for case, kept in cases.items():
        facts, rows = kept["facts"], kept["rows"]
        about = (
            f"**{case}**: {facts['wheel'] / 1e6:.0f} MB; {facts['files']} ELF files of "
            f"{facts['bytes'] / 1e6:.0f} MB, the largest {facts['largest'] / 1e6:.0f} MB; {facts['changed']} of "
            f"{facts['changed_bytes'] / 1e6:.0f} MB change"
        )
        for number, (way, row) in enumerate(rows.items()):
            yield f"| {about if number == 0 else ''} | {way} | {_row(row, rows[RELINK])} |"
    yield ""


def _row(row: dict[str, Any], base: dict[str, Any]) -> str:
    if "skipped" in row:
        return " | ".join(["failed", *[""] * 6])
    times = []
    for key in ("wall", "processor"):
        ratio = f"{row[key] / base[key]:.1f}" if base.get(key) else ""
        times += [f"{row[key]:.2f}", ratio]
    flush, output = f"{row['flush']:.1f}", f"{row['output'] / 1e6:.1f}" if row["output"] else "none"
    return " | ".join([*times, f"{row['memory'] / 1e6:.0f}", flush, output])


def _growth(known: dict[str, Any]) -> Iterator[str]:
    if _GROWTH in known:
        yield f"![Seconds and memory by the bytes that change]({PLOT.name})"
        yield ""
    if _MODULES in known:
        yield f"![Seconds and memory by the number of extension modules]({PLOT_OF_MODULES.name})"
        yield ""
    yield "| relink, by | | wall, s | processor, s | peak MB |"
    yield "| --- | --- | --- | --- | --- |"
    for section in (_GROWTH, "untouched bytes", "members", "roots", _MODULES):
        for number, (case, kept) in enumerate(known.get(section, {}).items()):
            row = kept["rows"][RELINK]
            memory = f"{row['memory'] / 1e6:.0f}" if row.get("memory") else ""
            if "skipped" not in row:
                times = f"{row['wall']:.2f} | {row['processor']:.2f}"
                yield f"| {'' if number else section} | {case} | {times} | {memory} |"
    yield ""


def _plot(path: Path, cases: dict[str, Any], fact: str, unit: float, label: str, time: str) -> None:
    """Draw seconds, of the wall or the processor, and memory of each way by a fact of the cases."""
    from matplotlib import rc_context  # noqa: PLC0415 - nothing else of the benchmarks needs it
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    axes = figure.subplots(1, 2)
    ways = dict.fromkeys(way for kept in cases.values() for way in kept["rows"])
    for axis, key, measure, scale in (
        (axes[0], time, "seconds of processor time" if time == "processor" else "seconds", 1.0),
        (axes[1], "memory", "peak memory of all processes, GB", 1e9),
    ):
        for way in ways:
            points = sorted(
                (kept["facts"][fact] / unit, kept["rows"][way][key] / scale)
                for kept in cases.values()
                if "skipped" not in kept["rows"].get(way, {"skipped": ""})
            )
            axis.plot(*zip(*points, strict=True), marker="o", markersize=3, label=way)
        axis.set(xlabel=label, ylabel=measure, xlim=(0, None), ylim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    with rc_context({"svg.hashsalt": "relink", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
