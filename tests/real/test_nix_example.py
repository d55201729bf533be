"""`relink nix` of the vendor's onnxruntime-rocm, beside examples/nix/package.nix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.report.nix.test_example import DESCRIPTION, differences

pytestmark = pytest.mark.real


def test_the_package_is_the_example_but_for_its_description(rocm_wheel: Path, tmp_path: Path) -> None:
    assert differences(rocm_wheel, tmp_path / "package") == DESCRIPTION
