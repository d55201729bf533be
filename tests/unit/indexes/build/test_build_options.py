"""What a user can say about one build: the limits are read."""

from __future__ import annotations

import pytest

from relink.indexes.build.build_options import BudgetLimits, parse_budget
from relink.system.errors import UsageError


def test_limits_are_read() -> None:
    assert parse_budget(["disk=50G", "download=500M"]) == BudgetLimits(500 << 20, 50 << 30)
    assert parse_budget([]) == BudgetLimits()
    with pytest.raises(UsageError) as caught:
        parse_budget(["disk", "memory=1G", "disk=1G"])
    assert len(caught.value.issues) == 2
