"""Of each command that relink prints: whether relink has tried it, and why not."""

from __future__ import annotations

import pytest

from relink.providers.distribution import FAMILIES
from relink.report.commands import why_untried

ROOT, NETWORK = "it needs root and the network", "it needs the network"
CHANGES, BOTH = "it changes the environment", "it needs the network and changes the environment"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("relink 'my w.whl' --prefix /opt/rocm --stub librccl.so.1", ""),
        ("relink rules RLK302", ""),
        ("relink doctor", ""),
        ("relink w.whl --prefix DIR", "DIR is to be named"),
        ("relink repair torch --python v/bin/python", BOTH),
        ("relink repair torch --wheel w.whl", CHANGES),
        ("relink fetch jax", NETWORK),
        ("pip download --no-deps https://example.com/a.whl", NETWORK),
        ("export HSA_OVERRIDE_GFX_VERSION=10.3.0", "it changes your shell"),
        ("pip install '/a b/w.whl' -c constraints.txt", CHANGES),
        ("pip install numpy", BOTH),
        ("v/bin/python -m pip install numpy", BOTH),
        ("uv pip install --python v/bin/python w.whl", CHANGES),
        ("uv add --project . w.whl", BOTH),
        ("'", ""),
        *((f"{install} rocblas", ROOT) for install in FAMILIES.values() if install),
    ],
)
def test_why(command: str, why: str) -> None:
    assert why_untried(command) == why
