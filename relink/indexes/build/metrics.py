"""A run in figures: JSON for cron and CI, and a text file for Prometheus.

Source: Prometheus's documentation, "Text-based format" and the node exporter's textfile collector.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relink.indexes.build.running import Summary
from relink.system.atomic import atomic_file
from relink.system.errors import UsageError

__all__ = ["SUMMARY_SCHEMA", "metrics_text", "summary_json", "write_metrics"]

SUMMARY_SCHEMA = "relink.indexes.build-summary/1"
_HELP = {
    "wheels": "Wheels that the sources have.",
    "tasks": "Wheels times targets.",
    "done_before": "Tasks that were done before this run.",
    "fetched": "Wheels fetched in this run.",
    "written": "Wheels relinked in this run.",
    "original": "Wheels of this run that need no relinking.",
    "refused": "Wheels refused in this run.",
    "failed": "Tasks of this run that could not be done.",
    "source_failures": "Sources or projects that could not be read.",
    "bytes_fetched": "Bytes of wheels fetched in this run.",
    "bytes_written": "Bytes of wheels written in this run.",
    "seconds": "Duration of the run.",
    "red": "Wheels of the site that do not work for a target.",
}


def summary_json(summary: Summary, *, ok: bool) -> dict[str, Any]:
    """Return a run as JSON data."""
    data = asdict(summary)
    data["slowest"] = [
        {"seconds": seconds, "wheel": wheel, "target": target} for seconds, wheel, target in summary.slowest
    ]
    return {"schema": SUMMARY_SCHEMA, "ok": ok, **data}


def metrics_text(summary: Summary, now: float, *, ok: bool) -> str:
    """Return a run as Prometheus reads it; every figure is a gauge of the last run.

    :param now: seconds since 1970.
    """
    facts = asdict(summary)
    rows = [(f"relink_index_{name}", _HELP[name], facts[name]) for name in _HELP]
    rows.append(("relink_index_ok", "1 where the exit code is 0.", int(ok)))
    rows.append(
        ("relink_index_end_time_seconds", "When the run ended, in seconds since 1970.", round(now, 3))
    )
    return "".join(
        f"# HELP {name} {text}\n# TYPE {name} gauge\n{name} {value}\n" for name, text, value in rows
    )


def write_metrics(summary: Summary, path: Path, *, ok: bool) -> None:
    """Write the file whole, as the collector may read at any time.

    :raises UsageError: it cannot be written.
    """
    try:
        with atomic_file(path) as file:
            file.write(metrics_text(summary, time.time(), ok=ok).encode())
    except OSError as error:
        raise UsageError(f"{path}: the figures cannot be written ({error.strerror})") from error
