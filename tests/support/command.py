"""relink's command line in the process of a test; the fixture `run` of tests/unit gives one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Run"]

Run: TypeAlias = Callable[..., tuple[int, str, str]]
"""Words of a command to (exit code, standard output, standard error)."""
