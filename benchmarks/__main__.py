"""``python -m benchmarks [NAME…]``: print how relink compares with its peers on this machine; a benchmark is never a test.

A name is that of a module or of one benchmark (``relink.tensorflow``). Without names all are run, and docs/benchmarks.md is
written: whole, from this run alone.
"""

from __future__ import annotations

import compileall
import importlib
import pkgutil
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.cost import Skipped
from benchmarks.page import write_page


def main(wanted: list[str]) -> int:
    benchmarks: dict[str, Callable[[], Iterator[str]]] = {}
    for found in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if found.name != "__main__":
            module = importlib.import_module(f"benchmarks.{found.name}")
            of_module = getattr(module, "BENCHMARKS", ())
            benchmarks |= {f"{found.name}.{benchmark.__name__}": benchmark for benchmark in of_module}
    unknown = sorted(set(wanted) - benchmarks.keys() - {name.partition(".")[0] for name in benchmarks})
    if unknown:
        print(
            f"no benchmark is called {', '.join(unknown)}; there are {', '.join(benchmarks)}", file=sys.stderr
        )
        return 2
    # As pip does at installation: with PYTHONDONTWRITEBYTECODE each run of a command would compile all of relink again.
    compileall.compile_dir(Path(__file__).parents[1] / "relink", quiet=1)
    print(f"Python {platform.python_version()}, {platform.machine()}; the best of several runs, warm cache")
    skipped: dict[str, str] = {}
    for name, benchmark in benchmarks.items():
        if wanted and name not in wanted and name.partition(".")[0] not in wanted:
            continue
        print(f"\n{name}", flush=True)
        try:
            for line in benchmark():
                print(f"  {line}", flush=True)
        except Skipped as reason:
            print(f"  skipped: {reason}")
            skipped[name] = str(reason)
    if not wanted:
        write_page(skipped)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
