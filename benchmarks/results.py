"""What has been measured in this run, for the page, and the machine and the commit that it was measured on."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.cost import Cost, Skipped

MEASURED: Final[dict[str, dict[str, Any]]] = {}
"""Section → case → its facts, and the rows of its table."""


def keep(section: str, case: str, facts: Mapping[str, object], costs: Mapping[str, Cost | Skipped]) -> None:
    rows = {
        name: {"skipped": str(cost)} if isinstance(cost, Skipped) else asdict(cost)
        for name, cost in costs.items()
    }
    MEASURED.setdefault(section, {})[case] = {"facts": dict(facts), "rows": rows}


def machine() -> str:
    """Processor, cores, memory, kernel, Python; no name of the machine."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in info if line.startswith("model name")), "?")
    cores = sum(line.startswith("processor") for line in info)
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / (1 << 20)
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    return f"{model}, {cores} cores, {memory:.0f} GiB of memory; {system}; Python {platform.python_version()}"


def commit() -> str:
    """Return the commit that is checked out, in short, and its day; marked where files of relink are not as in it."""
    root = Path(__file__).parents[1]

    def git(*words: str) -> str:
        return subprocess.check_output(["git", *words], cwd=root, text=True).strip()

    changed = " with changes" if git("status", "--porcelain", "relink", "profiles") else ""
    return git("log", "-1", "--format=%h of %cs") + changed
