"""`relink isa` against llvm-objdump --offloading, as whole commands; and a full ROCm with all of its kernel files.

RELINK_REAL_PREFIX_FULL names a prefix of Debian's ROCm 7.2.4 (…/usr), RELINK_LLVM_OBJDUMP a command line for llvm-objdump 20
or newer where the one in PATH is older.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.cost import Cost, Skipped, directory, in_turns, measured

RELINK = (sys.executable, "-m", "relink")
NAMES = ("llvm-objdump-23", "llvm-objdump-22", "llvm-objdump-21", "llvm-objdump-20", "llvm-objdump")


def objdump() -> list[str]:
    command = shlex.split(os.environ.get("RELINK_LLVM_OBJDUMP", ""))
    command = command or next(([path] for name in NAMES if (path := shutil.which(name))), [])
    if not command:
        raise Skipped("llvm-objdump is not installed; RELINK_LLVM_OBJDUMP names one elsewhere")
    text = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"LLVM version (\d+)", text)
    if version is None or int(version[1]) < 20:
        raise Skipped(f"llvm-objdump {version[1] if version else 'of unknown version'} is older than 20")
    return command


def libraries(prefix: Path) -> Path:
    return prefix / "lib" / "x86_64-linux-gnu"


def against_objdump() -> Iterator[str]:
    """One library of 707 MB, 235 compressed bundles: llvm-objdump writes 3 GB of code objects beside its input."""
    path = libraries(directory("RELINK_REAL_PREFIX_FULL", "a full ROCm prefix")) / "librocsolver.so.0.7"
    if not path.is_file():
        raise Skipped(f"{path.name} is not in the prefix")
    peer = objdump()

    def theirs(place: Path) -> Cost:
        (place / "x.so").symlink_to(path)
        return measured([[*peer, "--offloading", "x.so"]], place)

    costs = in_turns({"relink isa": partial(_isa, path), "llvm-objdump --offloading": theirs})
    yield from (f"{way:26} {cost}" for way, cost in costs.items())


def full_prefix() -> Iterator[str]:
    """Everything below a full prefix: every ELF file, every kernel file."""
    prefix = directory("RELINK_REAL_PREFIX_FULL", "a full ROCm prefix")
    for way, cost in in_turns({"relink isa": partial(_isa, prefix)}).items():
        yield f"{way:26} {cost}"


def _isa(path: Path, place: Path) -> Cost:
    return measured([[*RELINK, "isa", str(path)]], place, frozenset({0, 1}))


BENCHMARKS = (against_objdump, full_prefix)
