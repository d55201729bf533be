"""The syntax of --limit."""

from __future__ import annotations

import pytest

from relink.system.errors import UsageError
from relink.wheel.limits import NO_LIMITS, WheelLimits, parse_limits


def test_numbers_and_units() -> None:
    found = parse_limits(
        ["members=1000", "total-size=200G", "member-size=1.5k", "ratio=12.5", "directory-size=2m"]
    )
    assert found == WheelLimits(
        members=1000, total_size=200 << 30, member_size=1536, ratio=12.5, directory_size=2 << 20
    )
    assert parse_limits([]) == WheelLimits()
    assert parse_limits(["members=1", "members=2"]).members == 2


@pytest.mark.parametrize(
    "text",
    ["members", "members=", "members=-1", "members=1e9", "x=1", "members=1KK", "member_size=1", "members=٣"],
)
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(UsageError, match="not a limit") as caught:
        parse_limits(["ratio=1", text, "y=2"])
    assert [issue.split(": ")[0] for issue in caught.value.issues] == [text, "y=2"]
    assert "member-size" in caught.value.issues[0]


def test_without_limits_everything_is_allowed() -> None:
    assert NO_LIMITS.members == NO_LIMITS.total_size == NO_LIMITS.ratio == 1 << 62
