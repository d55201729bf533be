"""Reports for tests with other plans in them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from relink.report.model import Report

__all__ = ["replanned"]


def replanned(report: Report, **changes: Any) -> Report:
    """Return the report with other fields: those that it has itself, and else those of its plan."""
    own = {field.name: changes.pop(field.name) for field in fields(Report) if field.name in changes}
    return replace(report, plan=replace(report.plan, **changes), **own)
