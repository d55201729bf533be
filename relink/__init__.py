"""relink: take a wheel built against a vendor's ROCm, give back one that runs on yours."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relink.library import apply, diff, explain, inspect, plan, relink, relink_tree, verify
    from relink.planning.model import Plan
    from relink.planning.options import Options
    from relink.report.model import Report
    from relink.system.errors import (
        ElfError,
        MachineError,
        PatchelfError,
        ProviderError,
        RelinkError,
        SandboxError,
        TargetError,
        UsageError,
        WheelError,
    )

__all__ = [
    "ElfError",
    "MachineError",
    "Options",
    "PatchelfError",
    "Plan",
    "ProviderError",
    "RelinkError",
    "Report",
    "SandboxError",
    "TargetError",
    "UsageError",
    "WheelError",
    "apply",
    "diff",
    "explain",
    "inspect",
    "plan",
    "relink",
    "relink_tree",
    "verify",
]

# Written here and not looked up among what is installed: importlib.metadata takes as long to load as Python itself.
__version__ = "0.3.0"

_HOMES = {
    "Options": "relink.planning.options",
    "Plan": "relink.planning.model",
    "Report": "relink.report.model",
    **dict.fromkeys(
        ("apply", "diff", "explain", "inspect", "plan", "relink", "relink_tree", "verify"),
        "relink.library",
    ),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: importing relink costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'relink' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "relink.system.errors")), name)
