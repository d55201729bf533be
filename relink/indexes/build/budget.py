"""What a run is about to fetch and to write, told before it begins, and the limits that it may not exceed."""

from __future__ import annotations

from dataclasses import dataclass

from relink.indexes.build.build_options import BudgetLimits
from relink.indexes.build.tasks import Todo
from relink.indexes.install.cache import cached_sha256s
from relink.system.errors import UsageError

__all__ = ["BuildBudget", "budget_of", "check_budget"]


@dataclass(frozen=True, slots=True)
class BuildBudget:
    """What a run is about to do.

    :ivar download: bytes to fetch as far as sources say; `unknown` wheels have no size there.
    :ivar disk: bytes that the site may grow by at most: each result as large as its input.
    """

    wheels: int
    tasks: int
    done: int
    fetches: int
    download: int
    unknown: int
    disk: int


def budget_of(
    wheels: int,
    planned: int,
    todo: Todo,
) -> BuildBudget:
    """Return what a run is about to do.

    :param planned: tasks there are in all.
    """
    pending = sum(map(len, todo.values()))
    cached = cached_sha256s()
    fetches = [wheel for wheel in todo if not wheel.url.startswith("file:") and wheel.sha256 not in cached]
    disk = sum((wheel.size or 0) * len(targets) for wheel, targets in todo.items())
    return BuildBudget(
        wheels,
        planned,
        planned - pending,
        len(fetches),
        sum(wheel.size or 0 for wheel in fetches),
        sum(wheel.size is None for wheel in fetches),
        disk,
    )


def check_budget(budget: BuildBudget, limits: BudgetLimits) -> None:
    """Refuse a run that would exceed a limit.

    :raises UsageError: it would.
    """
    for name, needed, limit in (
        ("download", budget.download, limits.download),
        ("disk", budget.disk, limits.disk),
    ):
        if limit is not None and needed > limit:
            raise UsageError(
                f"this run would need {needed >> 20} MiB of {name}, and --limit {name} allows {limit >> 20} MiB; "
                "nothing was begun. Raise the limit, or take fewer releases (latest = 1)"
            )
