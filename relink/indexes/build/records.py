"""What is kept of one result, as JSON data: for the site, the matrix and its history."""

from __future__ import annotations

import os
import shlex
from dataclasses import fields, replace
from typing import Any

from relink.indexes.build.recipe import IndexTarget
from relink.planning.options import words_of
from relink.report.model import Report
from relink.report.summary import verdict
from relink.system.errors import RelinkError
from relink.system.findings.model import causes
from relink.wheel.naming import WheelName

__all__ = ["TEXT", "record_of", "record_of_error"]

_SUBJECTS = 6  # of one cause that are kept
TEXT = 1200
"""Characters of one sentence that is kept."""


def record_of(report: Report, name: WheelName, target: IndexTarget) -> dict[str, Any]:
    """Return what the site and the matrix say of a result.

    :param name: of the input.
    """
    # Its directory is that of the task, and gone when anybody reads this.
    output = report.output and replace(report.output, path=os.path.basename(report.output.path))
    found = verdict(replace(report, output=output))
    isa = report.isa or {}
    return {
        "verdict": {"level": found.level, "text": found.text[:TEXT]},
        "causes": [
            {
                "code": cause.code,
                "level": cause.level,
                "subjects": list(cause.subjects[:_SUBJECTS]),
                "more": max(0, len(cause.subjects) - _SUBJECTS),
                "message": cause.message[:TEXT],
                "remedy": cause.remedy[:TEXT],
            }
            for cause in causes(report.findings)
            if cause.level != "info"
        ],
        "gpus": {gpu["target"]: gpu["state"] for gpu in isa.get("gpus", ())},
        "rocm": [[provider.path, provider.rocm_version] for provider in report.providers],
        "command": _command(name, target),
        "verified": report.verified,
    }


def _command(name: WheelName, target: IndexTarget) -> str:
    """The command that does the same for one wheel, for a person to see all of what it says."""
    words = words_of(target, (entry.name for entry in fields(target) if entry.name != "name"))
    return shlex.join(["relink", f"{name.distribution}=={name.version}", *words])


def record_of_error(error: RelinkError) -> dict[str, Any]:
    """Return the same for a wheel that cannot be read."""
    cause = {"code": "", "level": "error", "subjects": [], "more": 0, "remedy": ""}
    return {
        "verdict": {"level": "error", "text": error.message[:TEXT]},
        "causes": [cause | {"message": str(error)[:TEXT]}],
        "gpus": {},
        "rocm": [],
        "command": "",
        "verified": None,
    }
