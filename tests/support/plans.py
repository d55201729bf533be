"""Plans of files for tests, written as JSON has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relink.planning.model.files import FilePlan, FileRecord

__all__ = ["planned_as", "recorded"]


def recorded(*fields: Any, **named: Any) -> FilePlan:
    """Return the plan that a record of these fields (:class:`FileRecord`) stands for."""
    return FileRecord(*fields, **named).plan()


def planned_as(file: FilePlan, **fields: Any) -> FilePlan:
    """Return the plan with other fields in its record."""
    return replace(FileRecord.of(file), **fields).plan()
