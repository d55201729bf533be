"""What one run may still do: whatever loops over what files say asks it first."""

from __future__ import annotations

import msgspec

from relink.system.errors import BudgetError

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
