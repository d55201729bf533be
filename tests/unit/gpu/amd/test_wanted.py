"""What --gpu means: a target id, a product, or what is in the machine (test_device.py reads that)."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.gpu.amd.wanted import seen_gpus, wanted_gpus
from relink.gpu.coverage import TargetId
from relink.system.errors import UsageError
from tests.unit.gpu.amd.test_device import node


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


def test_gpus_that_nobody_asked_for(tmp_path: Path) -> None:
    for number, version in enumerate((100300, 110000, 100300)):
        node(tmp_path, number, gfx_target_version=version)
    found = seen_gpus(str(tmp_path), {})
    assert [(str(gpu.target), gpu.local, gpu.asked) for gpu in found] == [
        ("gfx1030", True, False),
        ("gfx1100", True, False),
    ]
    assert all(gpu.asked for gpu in wanted_gpus(["auto"], str(tmp_path), {}))


def test_none_is_seen_where_there_is_none(tmp_path: Path) -> None:
    assert seen_gpus(str(tmp_path), {}) == ()
