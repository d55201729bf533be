"""What one more root costs the plan: generated roots over one closure of 60 libraries, which all of them share."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks import results
from benchmarks.cost import Cost
from benchmarks.job import RELINK
from relink.loader.target import find_target
from relink.planning.case import Case
from relink.planning.options import Options
from relink.planning.reading import open_wheel
from relink.planning.wheel_plan import plan_wheel
from relink.providers.prefix import open_prefix
from tests.support.elf_builder import Export, Import, Library
from tests.support.wheels import make_wheel

_LIBRARIES: Final = 60
_ROOTS: Final = (1, 10, 100, 200)
_EXPORTS: Final = 400  # of each library, a tenth of which the next one has, too
_IMPORTS: Final = 100  # of each file


def _soname(number: int) -> str:
    return f"libgen{number}.so.1"


def _prefix(directory: Path) -> None:
    """Write the libraries: each needs the next two, so that the first brings all of them."""
    for number in range(_LIBRARIES):
        needed = [_soname(other) for other in (number + 1, number + 2) if other < _LIBRARIES]
        names = [f"f{number}_{item}" for item in range(_EXPORTS)]
        names += [f"f{number - 1}_{item}" for item in range(_EXPORTS // 10) if number]
        imports = [f"f{number + 1}_{item}" for item in range(_IMPORTS) if number + 1 < _LIBRARIES]
        library = Library(
            soname=_soname(number),
            needed=tuple(needed),
            runpath="$ORIGIN",
            exports=tuple(map(Export, names)),
            imports=tuple(map(Import, imports)),
        )
        library.write(directory / _soname(number))


def _root(number: int) -> Library:
    names = (f"f{item % _LIBRARIES}_{(number + item) % _EXPORTS}" for item in range(_IMPORTS))
    return Library(
        needed=(_soname(0),), imports=tuple(map(Import, names)), exports=(Export(f"init{number}"),)
    )


def plan_of_many_roots() -> Iterator[str]:
    """Processor seconds of one core, beyond reading the wheel."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        place = Path(name)
        (place / "rocm" / "lib").mkdir(parents=True)
        _prefix(place / "rocm" / "lib")
        target = find_target()
        first = 0.0
        for count in _ROOTS:
            files: dict[str, bytes | Path] = {
                f"demo/root{item}.so": _root(item).write(place / f"root{item}.so") for item in range(count)
            }
            wheel = open_wheel(make_wheel(place / str(count), files), stack, target)
            started, start = time.perf_counter(), time.process_time()
            planned = plan_wheel(
                Case(wheel, target, (open_prefix(str(place / "rocm"), target),), Options(), "run")
            )
            took = time.process_time() - start
            first = first or took
            cost = Cost(wall=time.perf_counter() - started, processor=took)
            results.keep("plan of roots", f"{count} roots", {}, {RELINK: cost})
            loaded = sum(len(file.closure) > _LIBRARIES for file in planned.plan.files)
            more = f", {1000 * (took - first) / (count - 1):.1f} ms for each more" if count > 1 else ""
            yield f"{count} roots of {loaded} closures: {took:.2f} s{more}"


BENCHMARKS = (plan_of_many_roots,)
