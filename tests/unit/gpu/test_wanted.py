"""What --gpu means: a target id, a product, or what is in the machine (test_device.py reads that)."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.errors import UsageError
from relink.gpu.target_id import TargetId
from relink.gpu.wanted import wanted_gpus


def test_a_target_and_a_product() -> None:
    named, product = wanted_gpus(["gfx1100", " RX 6750 XT "])
    assert (named.target, named.name, named.local) == (TargetId("gfx1100"), "", False)
    assert str(named).startswith("gfx1100 (")
    assert (product.target, product.name) == (TargetId("gfx1031"), "RX 6750 XT")
    assert str(product) == "gfx1031 (RX 6750 XT)"


def test_each_architecture_comes_once_under_its_first_name() -> None:
    assert [wanted.name for wanted in wanted_gpus(["RX 6750 XT", "gfx1031", "gfx1030"])] == ["RX 6750 XT", ""]
    assert wanted_gpus([]) == ()


@pytest.mark.parametrize("text", ["", "gfx", "RX 1 XT", "autos"])
def test_what_means_nothing(text: str) -> None:
    with pytest.raises(UsageError, match=f"--gpu {text}: no target id"):
        wanted_gpus(["gfx1100", text])


def test_a_machine_without_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--gpu auto finds none: "):
        wanted_gpus(["AUTO"], str(tmp_path), {})
