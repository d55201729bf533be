"""``python -m benchmarks [NAME…]``: print how relink compares with its peers on this machine; a benchmark is never a test."""

from __future__ import annotations

import compileall
import importlib
import pkgutil
import platform
import sys
from pathlib import Path

from benchmarks.common import Skipped


def main(wanted: list[str]) -> int:
    names = sorted(
        module.name
        for module in pkgutil.iter_modules([str(Path(__file__).parent)])
        if module.name not in ("__main__", "common")
    )
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    # As pip does at installation: with PYTHONDONTWRITEBYTECODE each run of a command would compile all of relink again.
    compileall.compile_dir(Path(__file__).parents[1] / "relink", quiet=1)
    print(f"Python {platform.python_version()}, {platform.machine()}; the best of several runs, warm cache")
    for name in wanted or names:
        module = importlib.import_module(f"benchmarks.{name}")
        for benchmark in module.BENCHMARKS:
            print(f"\n{name}.{benchmark.__name__}")
            try:
                for line in benchmark():
                    print(f"  {line}", flush=True)
            except Skipped as reason:
                print(f"  skipped: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
