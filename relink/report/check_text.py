"""What `relink check` prints: the answer, a line for each distribution that has something to say, and the command that mends."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relink.report.lines import Line
from relink.report.text import findings_text
from relink.system.text import join_truncated, pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relink.planning.model.environment import EnvironmentCheck

__all__ = ["check_text", "environment_verdict"]

_STYLE = {"error": "bold red", "warning": "yellow", "info": "green"}


def environment_verdict(check: EnvironmentCheck) -> tuple[str, str]:
    """Return the level and the sentence about an environment as a whole."""
    wrong = [one.name for one in check.distributions if one.level == "error"]
    number = pluralize(len(check.distributions), "package with native code", "packages with native code")
    if wrong:
        verb = "does" if len(wrong) == 1 else "do"
        return "error", f"{join_truncated(wrong)} {verb} not work; {number} in {check.prefix}."
    if any(found.level == "error" for found in check.findings):
        return "error", f"Does not work together: {number} in {check.prefix}."
    warned = any(one.level == "warning" for one in check.distributions) or bool(check.findings)
    return ("warning" if warned else "info"), f"Works: {number} in {check.prefix}."


def check_text(check: EnvironmentCheck, repair: Sequence[str], *, verbose: bool) -> list[Line]:
    """Return the lines about an environment.

    :param repair: the words of the command that mends it, behind ``relink``.
    """
    return [*_answer(check), *_distributions(check, verbose=verbose), *_answer(check), *_next(check, repair)]


def _answer(check: EnvironmentCheck) -> Iterator[Line]:
    level, text = environment_verdict(check)
    yield Line(text, style=_STYLE[level])


def _distributions(check: EnvironmentCheck, *, verbose: bool) -> Iterator[Line]:
    for one in check.distributions:
        if verbose or one.level != "info":
            yield Line.assemble((f"  {one.name} {one.version}: ", "bold"), (one.text, _STYLE[one.level]))
        if verbose:
            yield from findings_text(one.findings, verbose=True)
    yield from findings_text(check.findings, verbose=verbose)


def _next(check: EnvironmentCheck, repair: Sequence[str]) -> Iterator[Line]:
    if check.mendable:
        yield Line(f"Next: {shlex.join(['relink', *repair])}")
    elif not check.ok:
        yield Line("Next: relink doctor")
