"""Progress of a run: seconds by stage, and bytes done out of a total.

What one run may still do: whatever loops over what files say asks it first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

import msgspec

from relink.system.errors import BudgetError

OnBytes: TypeAlias = Callable[[int, int], None]
"""Takes the bytes that are done and those that there are in all."""
OnProgress: TypeAlias = Callable[[int], object]
"""Takes the bytes done since the last call; may be called on any thread."""


Watch: TypeAlias = Callable[[], AbstractContextManager[tuple[Callable[[str], None], OnBytes]]]
"""Begins to show a run; gives what is told each stage, and the bytes of it."""


@contextmanager
def unwatched() -> Iterator[tuple[Callable[[str], None], OnBytes]]:
    """Show nothing."""
    yield (lambda _: None), (lambda _done, _total: None)


class Count(msgspec.Struct):
    """Adds up bytes that are done, on any thread, and reports the sum.

    :ivar total: bytes in all.
    """

    total: int
    on_bytes: OnBytes
    done: int = 0
    _lock: threading.Lock = msgspec.field(default_factory=threading.Lock)

    def add(self, more: int) -> None:
        """Report `more` bytes as done."""
        with self._lock:
            self.done += more
            # patchelf makes files a little larger than counted.
            self.on_bytes(min(self.done, self.total), self.total)


class Clock(msgspec.Struct):
    """Measures the seconds that each stage takes.

    :ivar on_stage: called with the name of each stage when it begins.
    :ivar on_bytes: passed on to what reads and writes.
    :ivar timings: seconds by stage.
    """

    on_stage: Callable[[str], None] = lambda _: None
    on_bytes: OnBytes = lambda _done, _total: None
    timings: dict[str, float] = msgspec.field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time spent inside to the stage of that name."""
        self.on_stage(name)
        begin = time.perf_counter()
        yield
        self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - begin


LOADS = 200_000
"""Files that loading each ELF file may map, added up over the files, where the user names no limit."""
MAPPED_PER_LOAD, LEAST_MAPPED = 5, 10_000
"""Files that may be mapped for each load, and besides: a plan tries several edits (TensorFlow 2.14: 9,604 for 3,024 loads)."""


class RunBudget(msgspec.Struct):
    """What one run may still do.

    :ivar most_loads: the limit ``loads``.
    :ivar mapped: files that its simulations have mapped; `printed`: bytes that loaders may still print.
    """

    most_loads: int = LOADS
    mapped: int = 0
    printed: int = 256 << 20

    def map_file(self) -> None:
        """Count a file that a simulation maps.

        :raises BudgetError: there were too many.
        """
        self.mapped += 1
        if self.mapped > MAPPED_PER_LOAD * self.most_loads + LEAST_MAPPED:
            self._refuse("map", self.mapped - 1)

    def check_loads(self, loads: int) -> None:
        """Check the files that loading each ELF file maps, added up over the files.

        :raises BudgetError: there are too many.
        """
        if loads > self.most_loads:
            self._refuse("load", self.most_loads)

    def _refuse(self, what: str, most: int) -> None:
        raise BudgetError(
            f"the ELF files of the wheel {what} more than {most} files, added up over all of them; --limit "
            f"loads={2 * self.most_loads} allows twice as many, and takes that much time and memory"
        )
