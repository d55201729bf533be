"""Vendors' wheels that were relinked, as input once more: done already for the same ROCm, refused for another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink import Options, relink
from relink.system.errors import UsageError
from tests.real.conftest import fetch_wheel
from tests.real.test_vendor_wheels import own_loader

WHEELS = {
    "onnxruntime-rocm==1.22.2.post3": ("onnxruntime_rocm-1.22.2.post3-cp312-*.whl", ()),
    "jax-rocm7-plugin==0.12.0": ("jax_rocm7_plugin-0.12.0-cp312-*.whl", ()),
    "bitsandbytes==0.50.2": ("bitsandbytes-0.50.2-*.whl", ()),
    "jax-rocm7-pjrt==0.12.0": ("jax_rocm7_pjrt-0.12.0-*.whl", ("auto",)),
}


@pytest.mark.parametrize("name", WHEELS)
def test_relinked_again(name: str, full_prefix: Path, small_prefix: Path, tmp_path: Path) -> None:
    pattern, stub = WHEELS[name]
    vendor = fetch_wheel(name, pattern)

    def options(prefix: Path, place: str) -> Options:
        loader = str(own_loader(full_prefix))
        return Options(
            prefixes=(str(prefix),), interpreter=loader, output_directory=tmp_path / place, stub=stub
        )

    made = Path(relink(vendor, options(full_prefix, "made")).path or "")
    again = relink(made, options(full_prefix, "again"))
    assert (again.ok, again.output) == (True, None)
    with pytest.raises(UsageError, match=f"was relinked from {vendor.name} "):
        relink(made, options(small_prefix, "other"))
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    made.unlink()
