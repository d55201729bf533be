"""Reports for tests with other plans in them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from relink.report.model import Report

__all__ = ["replanned"]


def replanned(report: Report, **changes: Any) -> Report:
    """Return the report with other fields: those that it has itself, and else those of its plan."""
    own = {name: changes.pop(name) for name in Report.__struct_fields__ if name in changes}
    return replace(report, plan=replace(report.plan, **changes), **own)
