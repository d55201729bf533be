"""index.budget: what a run needs is counted before it begins."""

from __future__ import annotations

import pytest

from relink.indexes.build.budget import budget_of, check_budget
from relink.indexes.build.build_options import BudgetLimits
from relink.indexes.build.recipe import IndexTarget
from relink.indexes.build.simple_api import ListedWheel
from relink.system.errors import UsageError
from relink.wheel.naming import parse_wheel_name

NAME = parse_wheel_name("demo-1.0-py3-none-any.whl")
TARGET = IndexTarget("one", ("/x",))


def test_what_is_counted() -> None:
    near = ListedWheel(NAME, "file:///x/demo.whl", "aa", 10)
    far = ListedWheel(NAME, "https://x.test/demo.whl", "bb", 100)
    unknown = ListedWheel(NAME, "https://x.test/demo2.whl")
    todo = {wheel: [(TARGET, 1)] * 2 for wheel in (near, far, unknown)}
    budget = budget_of(9, 20, todo)
    assert (budget.wheels, budget.tasks, budget.done) == (9, 20, 14)
    assert (budget.fetches, budget.download, budget.unknown, budget.disk) == (2, 100, 1, 2 * (10 + 100))
    check_budget(budget, BudgetLimits(100, 220))
    for limits in (BudgetLimits(99), BudgetLimits(disk=219)):
        with pytest.raises(UsageError, match="nothing was begun"):
            check_budget(budget, limits)
