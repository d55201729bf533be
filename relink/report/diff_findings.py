"""What `relink diff` found, as findings: for the formats that have nothing else."""

from __future__ import annotations

import os

from relink.findings.model import Finding, finding
from relink.report.diff_text import WheelDiff

__all__ = ["diff_findings"]


def diff_findings(found: WheelDiff) -> tuple[Finding, ...]:
    """Return an RLK621 for each difference that no plan explains."""
    name = os.path.basename(found.new.path)
    return tuple(
        finding("RLK621", name, f"{difference}; no plan explains this difference")
        for difference in found.unexplained
    )
