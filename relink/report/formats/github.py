"""Findings as workflow commands of GitHub Actions, which shows them as annotations of the run.

https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions has the commands; what is escaped and how is in
``command.ts`` of GitHub's own toolkit. Every line begins with a command of ours: no name out of a wheel can begin one.
"""

from __future__ import annotations

import os

from relink.report.formats.results import Results
from relink.system.findings.model import RULES, Cause, causes
from relink.system.text import escaped, join_truncated

_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
# In a property a colon and a comma have a meaning, too.
_PROPERTY = _DATA | str.maketrans({":": "%3A", ",": "%2C"})


def github(results: Results) -> str:
    """Return a command for each cause of errors and of warnings, errors first: GitHub shows the first ten of a level in a step.

    Infos are left out, as they are in text.
    """
    lines = [_command("error", "relink", escaped(message)) for message in results.failures]
    for level in ("error", "warning"):
        for outcome in results.outcomes:
            name = os.path.basename(outcome.path)
            lines += [
                _command(
                    level,
                    f"{cause.code} {RULES[cause.code].title}",
                    f"{escaped(': '.join(_places(name, cause)))}\n{escaped(cause.remedy)}",
                )
                for cause in causes(outcome.findings)
                if cause.level == level
            ]
    return "".join(lines)


def _places(wheel: str, cause: Cause) -> tuple[str, ...]:
    """Return the wheel, what the cause is about unless that is the wheel or the message says it, and the message."""
    subjects = [] if cause.whole else [subject for subject in cause.subjects if subject != wheel]
    return (wheel, *([join_truncated(subjects)] if subjects else ()), cause.message)


def _command(name: str, title: str, message: str) -> str:
    return f"::{name} title={title.translate(_PROPERTY)}::{message.translate(_DATA)}\n"
