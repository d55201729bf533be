"""relink: take a wheel built against a vendor's ROCm, give back one that runs on yours."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relink.library import relink
    from relink.options import Options

__all__ = ["Options", "relink"]

# Here, not looked up among what is installed: importlib.metadata takes as long to load as Python itself.
__version__ = "0.1.0"

_HOMES = {"relink": "relink.library", "Options": "relink.options"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: importing relink costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'relink' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
