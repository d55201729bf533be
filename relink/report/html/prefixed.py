"""A report with the first provider's path written as ``$PREFIX``: what is shown, not what is there to be typed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

from relink.planning.model.embedded import mapped
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
        files=mapped(report.files, short),
        loads=mapped(report.loads, short),
        findings=tuple(_finding(found, short) for found in report.findings),
    )
    return dataclasses.replace(report, plan=plan, isa=mapped(report.isa, short))


def _finding(found: Finding, short: Callable[[str], str]) -> Finding:
    shown: Finding = mapped(found, short)
    return dataclasses.replace(shown, remedy=found.remedy, step=found.step)
