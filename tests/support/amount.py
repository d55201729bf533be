"""How many generated inputs a test tries: few in `make test`, more in `make test-all`, many in `make fuzz`.

The environment variable RELINK_TESTS chooses the profile. ``all`` is the number that the test names, ``fast`` a tenth
of it, ``fuzz`` twenty times as much. ``rest`` is ``all`` without the tests that ran as much in ``fast``.
"""

from __future__ import annotations

import os
from types import ModuleType

from hypothesis import HealthCheck, Phase, settings

__all__ = ["FACTORS", "PROFILE", "amount", "is_generated", "load_profile", "repeatable"]

FACTORS = {"fast": 0.1, "all": 1.0, "rest": 1.0, "fuzz": 20.0}
DEFAULT_EXAMPLES = 100  # what Hypothesis itself takes for a test that names no number
PROFILE = os.environ.get("RELINK_TESTS") or "fast"


def amount(count: int) -> int:
    """Return how many of the `count` inputs of a whole run this run tries; at least one."""
    return max(1, round(count * FACTORS[PROFILE]))


def is_generated(module: ModuleType) -> bool:
    """Whether the number of inputs of tests in `module` may depend on the profile: `amount` or Hypothesis chooses it."""
    return not {"amount", "given"}.isdisjoint(vars(module))


def repeatable(count: int) -> settings:
    """Settings of a test that is one long run of a seed: nothing is kept for the next run, and no input is called too slow."""
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )


def load_profile() -> None:
    """Register the profiles with Hypothesis and load the chosen one; for tests that name no number of examples."""
    if PROFILE not in FACTORS:
        raise ValueError(f"RELINK_TESTS is {PROFILE!r}; the profiles are {', '.join(FACTORS)}")
    for name, factor in FACTORS.items():
        settings.register_profile(name, max_examples=round(DEFAULT_EXAMPLES * factor), deadline=None)
    settings.load_profile(PROFILE)
