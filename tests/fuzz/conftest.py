"""Long runs on demand: what is marked ``fuzz`` needs ``-m fuzz``; and how much was compared shows at the end of the output."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from tests.support.command import run
from tests.support.works import Works, build_works

__all__ = ["COUNTED", "SEED", "run", "works"]

COUNTED = "compared "
# Where long runs start. The processes of one run inherit the number from the first one, and it is printed at the end.
SEED = int(os.environ.setdefault("RELINK_FUZZ_SEED", str(random.SystemRandom().randrange(1 << 32))))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "fuzz" in str(config.getoption("markexpr")):
        return
    skip = pytest.mark.skip(reason="a long run: `make fuzz`, or pytest -m fuzz")
    for item in items:
        if item.get_closest_marker("fuzz"):
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    total: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):
            for name, value in report.user_properties:
                if str(name).startswith(COUNTED) and isinstance(value, int):
                    total[str(name)] += value
    for name, value in sorted(total.items()):
        terminalreporter.write_line(f"{name}: {value}")
    if "fuzz" in str(terminalreporter.config.getoption("markexpr")):
        terminalreporter.write_line(f"RELINK_FUZZ_SEED={SEED}")


@pytest.fixture(scope="session")
def works(tmp_path_factory: pytest.TempPathFactory) -> Works:
    return build_works(tmp_path_factory.mktemp("works"))
