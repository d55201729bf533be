"""relink diff on vendors' wheels and what relink makes of them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from relink.comparison import diff
from relink.elf.gaps import find_gaps
from relink.elf.image import read_image
from tests.real.test_vendor_wheels import run
from tests.support.wheels import changed

pytestmark = pytest.mark.real


def relinked(wheel: Path, prefix: Path, directory: Path) -> Path:
    report = run(wheel, prefix, directory)
    assert report.output is not None
    return Path(report.output.path)


def test_only_what_the_plan_says(migraphx_wheel: Path, small_prefix: Path, tmp_path: Path) -> None:
    found = diff(migraphx_wheel, relinked(migraphx_wheel, small_prefix, tmp_path))
    assert (found.verdict, found.unexplained) == ("only what the plan says", ())
    assert sum(change.elf is not None for change in found.changed) == 3


def test_one_bit_of_what_patchelf_never_saw(rocm_wheel: Path, full_prefix: Path, tmp_path: Path) -> None:
    """A bit of GPU code, in the middle of 513 MB."""
    output = relinked(rocm_wheel, full_prefix, tmp_path)
    assert diff(rocm_wheel, output).verdict == "only what the plan says"
    name = "onnxruntime/capi/libonnxruntime_providers_rocm.so"
    with zipfile.ZipFile(output) as archive:
        data = bytearray(archive.read(name))
    gap = max(find_gaps(data, read_image(data, name)), key=len)
    at = gap.start + len(gap) // 2
    data[at] ^= 1
    found = diff(rocm_wheel, changed(output, tmp_path / "tampered", {name: bytes(data)}))
    assert found.verdict == "unexplained"
    assert any(f"{name}: bytes {at:#x}..{at + 1:#x}" in text for text in found.unexplained), found.unexplained
