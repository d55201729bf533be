"""The command line's entry: ``relink`` and ``python -m relink``. What is set here holds for the whole process."""

from __future__ import annotations

import atexit
import gc
import sys

# Hardly any object of a run is in a reference cycle, so the garbage collector need not search often: neither while modules are
# imported, which is why this comes first.
gc.set_threshold(50_000, 20, 50)

from relink.cli import main as run_command  # noqa: E402

# Seconds that a thread waits for the interpreter lock before it asks for it. Python's 5 ms are ten MiB of inflating or hashing.
_SWITCH_INTERVAL = 0.0001
# malloc gives memory of a larger block back to the kernel each time, until one was freed (mallopt(3), M_MMAP_THRESHOLD): a fifth
# of reading a wheel went into page faults of pieces of one MiB.
_KEPT_BY_MALLOC = 8 << 20


def main() -> None:
    """Run the command line and end the process; :func:`relink.cli.main` has the exit codes."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    bytes(_KEPT_BY_MALLOC)
    # At its end the interpreter searches for cycles once more, which takes 50 ms. Frozen objects are left out.
    atexit.register(gc.freeze)
    run_command()


if __name__ == "__main__":
    main()
