"""What was measured, kept in .cache/bench from one run to the next, until it is measured again or made into the page."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.cost import Cost, Skipped

FILE: Final = Path(__file__).resolve().parents[1] / ".cache" / "bench" / "results.json"


def known() -> dict[str, dict[str, Any]]:
    """Section → case → what was kept."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def keep(section: str, case: str, facts: Mapping[str, object], costs: Mapping[str, Cost | Skipped]) -> None:
    rows = {
        name: {"skipped": str(cost)} if isinstance(cost, Skipped) else asdict(cost)
        for name, cost in costs.items()
    }
    everything = known()
    everything.setdefault(section, {})[case] = {
        "date": time.strftime("%Y-%m-%d"),
        "facts": dict(facts),
        "rows": rows,
    }
    everything["machine"] = {"text": machine()}
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(everything, indent=1))


def machine() -> str:
    """Processor, cores, memory, kernel, Python; no name of the machine."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in info if line.startswith("model name")), "?")
    cores = sum(line.startswith("processor") for line in info)
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / (1 << 20)
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    return f"{model}, {cores} cores, {memory:.0f} GiB of memory; {system}; Python {platform.python_version()}"
