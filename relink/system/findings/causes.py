"""Findings by cause: what one thing is behind, or what says the same of several subjects, is one cause with its subjects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from relink.system.findings.model import Finding, Level

__all__ = ["Cause", "causes"]

_ORDER: dict[Level, int] = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Cause(Finding):
    """One thing that was found, with everything that it is about: `subjects` of the findings that have its code, each once.

    :ivar findings: the single findings, the one that `code`, `level` and `remedy` are from first. Those of another code follow
        from it: an import that is lost because a version is missing.
    :ivar whole: the message says what it is about; it need not be told with its subjects.
    """

    findings: tuple[Finding, ...] = ()
    whole: bool = False


def causes(findings: Iterable[Finding]) -> tuple[Cause, ...]:
    """Group findings by what is behind them, in the order of the first of each group.

    Findings with the same `cause` are one, whatever their codes: the worst of them, of these the first, speaks for all, and the
    cause is its message; one that is alone has its own message. Without a cause, findings that differ in nothing but their
    subject are one.
    """
    groups: dict[tuple[str | None, ...], list[Finding]] = {}
    for finding in findings:
        key: tuple[str | None, ...]
        if finding.cause is not None:
            key = (finding.cause,)
        else:
            key = (
                finding.code,
                finding.level,
                finding.brief or finding.message,
                finding.remedy,
                finding.profile,
            )
        groups.setdefault(key, []).append(finding)
    return tuple(_cause(group) for group in groups.values())


def _cause(group: Sequence[Finding]) -> Cause:
    first = min(group, key=lambda finding: _ORDER[finding.level])  # the first of the worst
    own = [finding for finding in group if finding.code == first.code]
    # By identity: two findings may be equal, and both are told.
    rest = [finding for finding in group if finding is not first]
    shared = first.cause if rest else None
    return Cause(
        first.code,
        first.level,
        first.subject,
        shared or first.brief or first.message,
        first.remedy,
        first.profile,
        tuple(dict.fromkeys(subject for finding in own for subject in finding.subjects)),
        step=first.step,
        findings=(first, *rest),
        whole=shared is not None,
    )
