"""A report with the first provider's path written as ``$PREFIX``: what is shown, not what is there to be typed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from relink.report.model import Report
from relink.report.text import in_prefix
from relink.system.findings.model import Finding

__all__ = ["prefixed"]


def prefixed(report: Report) -> Report:
    """Return the report with ``$PREFIX`` in its files, loads, GPU code and findings; remedies and steps keep the path.

    The command, the target and the providers keep their paths, too.
    """
    short = partial(in_prefix, report)
    plan = dataclasses.replace(
        report.plan,
        files=_mapped(report.files, short),
        loads=_mapped(report.loads, short),
        findings=tuple(_finding(found, short) for found in report.findings),
    )
    return dataclasses.replace(report, plan=plan, isa=_mapped(report.isa, short))


def _finding(found: Finding, short: Callable[[str], str]) -> Finding:
    shown: Finding = _mapped(found, short)
    return dataclasses.replace(shown, remedy=found.remedy, step=found.step)


def _mapped(value: Any, short: Callable[[str], str]) -> Any:
    """Return `value` with every str in it replaced: in dataclasses, tuples, lists and mappings, their keys included."""
    if isinstance(value, str):
        return short(value)
    if isinstance(value, tuple | list):
        return type(value)(_mapped(item, short) for item in value)
    if isinstance(value, Mapping):
        return {_mapped(key, short): _mapped(item, short) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: _mapped(getattr(value, field.name), short) for field in dataclasses.fields(value)
        }
        return dataclasses.replace(value, **fields)
    return value
