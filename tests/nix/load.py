"""Load every library of a directory as its user will: by dlopen(3) with RTLD_NOW, each in a process of its own.

A library is relocated and its symbols are bound before its initialisers run. These may want a GPU and end the process, which says
nothing about the loader. A symbol that others of the same directory supply counts as there: a package loads those first.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LOAD = (
    "import ctypes, sys\nfor path in sys.argv[1:]: ctypes.CDLL(path, ctypes.RTLD_GLOBAL | 2)"  # 2 is RTLD_NOW
)


def load(paths: Sequence[Path]) -> str:
    """Return what the loader has against them, "" for nothing; "ended" where an initialiser ended the process."""
    command = [sys.executable, "-c", LOAD, *map(str, paths)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode == 0:  # what libraries print is no failure
        return ""
    return "ended" if run.returncode < 0 else "".join(run.stderr.strip().splitlines()[-1:])


def is_elf(path: Path) -> bool:
    """Whether it is a file with ELF's mark."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def main(directory: str, store: str) -> bool:
    """Say of each library what comes of it; returns whether one fails that relink linked to a package of the store.

    What relink left as it is is for another product, or its user does without it: the build's log has that. What wants an
    executable stack no new loader takes; where anything loads it, the build has ended with that.
    """
    libraries = [path for path in sorted(Path(directory).rglob("*.so*")) if path.is_file() and is_elf(path)]
    said = {path: load([path]) for path in libraries}
    quiet = [path for path, wrong in said.items() if not wrong]
    failed = not said
    for path, first in said.items():
        beside = [other for other in quiet if other.parent == path.parent]
        wrong = load([*beside, path]) if "undefined symbol" in first else first
        loaded = wrong in ("", "ended")
        failed |= not (loaded or "executable stack" in wrong) and store.encode() in path.read_bytes()
        sys.stdout.write(f"{path.relative_to(directory)}: {'loaded' if loaded else wrong}\n")
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
