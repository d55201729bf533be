"""Plans in files of their own: written with digests of what they rest on, read on another day."""

from __future__ import annotations

import json
from pathlib import Path

from relink.planning.model.basis import with_contents
from relink.planning.model.model import Plan, from_json, to_json
from relink.system.atomic import atomic_file
from relink.system.bounded_json import JSON_LIMIT
from relink.system.errors import UsageError
from relink.system.safe_open import read_text

__all__ = ["load", "save"]


def save(plan: Plan, path: Path) -> None:
    """Write a plan as JSON; :meth:`relink.planning.model.model.Plan.save` has the errors."""
    text = json.dumps(to_json(with_contents(plan)), indent=1) + "\n"
    try:
        with atomic_file(path) as file:  # what lies there, a FIFO for one, is not opened
            file.write(text.encode())
    except OSError as error:
        raise UsageError(f"{path}: the plan cannot be written ({error.strerror})") from error


def load(path: Path) -> Plan:
    """Read a plan; :meth:`relink.planning.model.model.Plan.load` has the errors."""
    try:
        text = read_text(path, JSON_LIMIT)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: the plan cannot be read ({error})") from error
    return from_json(text)
