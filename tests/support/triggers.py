"""Which test triggers which finding, and what a finding has to look like."""

from __future__ import annotations

import re

from relink.plan.findings import Finding

__all__ = ["TRIGGERS", "plain_words", "printed", "same_words", "unfinished"]

TRIGGERS: dict[str, tuple[str, ...]] = {}
"""Test → the codes that it triggers. tests/conftest.py holds the test to it, tests/unit/test_rules.py that every code is here."""


def printed(found: Finding) -> str:
    """A finding as the command line prints it, in full."""
    return f"{found.level} {found.code} {found.subject}: {found.message}\n    → {found.remedy}"


def plain_words(text: str) -> list[str]:
    """The words of a sentence, without names, numbers, and how many of a list are shown."""
    words = (word.strip("(),.;:…") for word in text.split())
    plain = (word for word in words if re.fullmatch(r"[a-z][a-z'-]+", word))
    return [word for word in plain if word not in ("and", "more")]


def same_words(first: str, second: str) -> bool:
    """Whether two findings are one sentence about different things."""
    return plain_words(first) == plain_words(second)


def unfinished(found: Finding) -> bool:
    """Whether a finding lacks its thing, its reason or its next step, or one of them ends in mid-air."""
    sentences = (found.subject, found.message, found.remedy)
    return any(not text.strip() or re.search(r"[\s,;:(\[]$", text) or "None" in text for text in sentences)
