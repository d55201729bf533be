"""Findings: everything worth telling a user, with a stable code, collected and reported together by cause.

What one thing is behind, or what says the same of several subjects, is one cause with its subjects.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from relink.system.errors import UsageError
from relink.system.text import group_pairs

Level: TypeAlias = Literal["error", "warning", "info"]


class Rule(msgspec.Struct, frozen=True):
    """One code: what it means, and what to do about it.

    :ivar level: how bad it is unless the case says otherwise.
    :ivar meaning: a paragraph for ``relink rules``.
    :ivar fix: what a user can do.
    :ivar example: one that was really printed, with its remedy; ``…`` shortens paths.
    :ivar repaired: what relink mends by itself where this is found, in a few words; empty where it mends nothing.
    """

    code: str
    title: str
    level: Level
    meaning: str
    fix: str
    example: str = ""
    repaired: str = ""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was found, about one subject (a member, a library, a pattern).

    :ivar profile: the profile (or ``rocm``, the table of ROCm) that it rests on: without that it would be another finding, or
        none. None where it is seen, not assumed.
    :ivar subjects: everything that it is about, `subject` first; that one alone unless more are given.
    :ivar cause: what several findings have in common, where one thing is behind all of them; None where none is known.
    :ivar brief: the message without its evidence, for a list; None where the message is short.
    :ivar step: what to type: options of relink (``--interpreter PATH``), or a command that installs something. None where a
        person has to decide first.
    :ivar choices: where a person has to decide between several such texts: these.
    :ivar without: what the package does without because of it, and the libraries that this lacks, for the verdict.
    """

    code: str
    level: Level
    subject: str
    message: str
    remedy: str
    profile: str | None = None
    subjects: tuple[str, ...] = ()
    cause: str | None = None
    brief: str | None = None
    step: str | None = None
    choices: tuple[str, ...] = ()
    without: str | None = None

    def __post_init__(self) -> None:
        """Let `subject` be the only one where no others are given."""
        if not self.subjects:
            force_setattr(self, "subjects", (self.subject,))  # the class is frozen


# Of a soname: the subject may be a path, too.
_VERSION = re.compile(r"(?<=\.so)\.[^/]*$")
_TABLES = tomllib.loads(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))
RULES = MappingProxyType({code: Rule(code, **facts) for code, facts in sorted(_TABLES.items())})
"""Every code, in order."""


def finding(
    code: str,
    subject: str,
    message: str,
    remedy: str | None = None,
    level: Level | None = None,
    *,
    profile: str | None = None,
    brief: str | None = None,
    step: str | None = None,
) -> Finding:
    """Make a finding of a known code; level and remedy are the rule's unless the case has better ones.

    One with several subjects, or with a cause that it shares with others, is a ``replace`` of it.
    """
    rule = RULES[code]
    return Finding(
        code,
        level or rule.level,
        subject,
        message,
        remedy or rule.fix,
        profile,
        brief=brief,
        step=step,
    )


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether one of them forbids writing."""
    return any(reported.level == "error" for reported in findings)


def select_findings(
    findings: Sequence[Finding], chosen: Sequence[str], ignored: Sequence[str]
) -> tuple[Finding, ...]:
    """Keep the findings that `chosen` names (all, if empty) and `ignored` does not.

    Patterns are globs on the code (``RLK2*``) or on the subject, with or without the version of its soname. Errors are kept
    whatever is chosen, since what follows depends on them; those that are ignored do not count any more.
    A pattern that matches no finding becomes a finding itself, unless it names a code exactly, which may just not have come up;
    that finding can be ignored by its code, and need not be chosen.

    :raises UsageError: a pattern looks like a code and there is none like it.
    """
    for pattern in (*chosen, *ignored):
        if pattern.upper().startswith("RLK") and not any(
            fnmatch.fnmatchcase(code, pattern.upper()) for code in RULES
        ):
            raise UsageError(f"{pattern}: no rule has such a code; `relink rules` lists them")
    kept = [
        reported
        for reported in findings
        if (not chosen or reported.level == "error" or any(_matches(reported, pattern) for pattern in chosen))
        and not any(_matches(reported, pattern) for pattern in ignored)
    ]
    unused = [
        pattern
        for pattern in dict.fromkeys((*chosen, *ignored))
        if pattern.upper() not in RULES and not any(_matches(reported, pattern) for reported in findings)
    ]
    if not any(fnmatch.fnmatchcase("RLK109", pattern.upper()) for pattern in ignored):
        text = "--select or --ignore: matches no finding of this run"
        kept += [finding("RLK109", pattern, text) for pattern in unused]
    return tuple(kept)


def _matches(reported: Finding, pattern: str) -> bool:
    stem = _VERSION.sub("", reported.subject)
    return fnmatch.fnmatchcase(reported.code, pattern.upper()) or any(
        fnmatch.fnmatchcase(name, pattern) for name in (reported.subject, stem, stem.removesuffix(".so"))
    )


ORDER: dict[Level, int] = {"error": 0, "warning": 1, "info": 2}


class Cause(Finding, frozen=True):
    """Findings that share one cause, merged: the worst one, with the subjects of all, each once.

    :ivar findings: the single findings, the one that `code`, `level` and `remedy` are from first. Those of another code follow
        from it: an import that is lost because a version is missing.
    :ivar whole: the message says what it is about; it need not be told with its subjects.
    """

    findings: tuple[Finding, ...] = ()
    whole: bool = False


def causes(findings: Iterable[Finding]) -> tuple[Cause, ...]:
    """Group findings by what is behind them, in the order of the first of each group.

    Findings with the same `cause` are one, whatever their codes: the worst of them, of these the first with a step, speaks for
    all, and the cause is its message; one that is alone has its own message. Without a cause, findings that differ in nothing
    but their subject are one.
    """
    found = []
    for group in group_pairs((_behind(one), one) for one in findings).values():
        # The first of the worst, and rather one that says what to type.
        first = min(group, key=lambda finding: (ORDER[finding.level], finding.step is None))
        own = (finding for finding in group if finding.code == first.code)
        # By identity: two findings may be equal, and both are told.
        rest = [finding for finding in group if finding is not first]
        shared = first.cause if rest else None
        cause = Cause(
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
        found.append(cause)
    return tuple(found)


def _behind(one: Finding) -> tuple[str | None, ...]:
    """Return what findings of one cause have in common."""
    if one.cause is not None:
        return (one.cause,)
    return (one.code, one.level, one.brief or one.message, one.remedy, one.profile)
