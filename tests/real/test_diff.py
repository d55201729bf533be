"""relink diff on vendors' wheels and what relink makes of them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from relink.elf.gaps import find_gaps
from relink.elf.image import read_image
from relink.library import diff, relink
from relink.planning.options import Options
from tests.real.test_vendor_wheels import own_loader
from tests.support.wheels import changed

pytestmark = pytest.mark.real


def relinked(wheel: Path, prefix: Path, directory: Path) -> tuple[Path, Options]:
    options = Options(
        prefixes=(str(prefix),),
        interpreter=str(own_loader(prefix)),
        output_directory=directory,
        ignore=("RLK130",),  # of Debian's MIGraphX
    )
    return Path(relink(wheel, options).path or ""), options


def test_only_what_relink_makes(migraphx_wheel: Path, small_prefix: Path, tmp_path: Path) -> None:
    output, options = relinked(migraphx_wheel, small_prefix, tmp_path)
    found = diff(migraphx_wheel, output, options)
    assert (found.verdict, found.unexplained) == ("only what the plan says", ())
    assert sum(change.path.endswith(".so") or ".so." in change.path for change in found.changed) == 3


def test_one_bit_of_what_patchelf_never_saw(rocm_wheel: Path, full_prefix: Path, tmp_path: Path) -> None:
    """A bit of GPU code, in the middle of 513 MB."""
    output, options = relinked(rocm_wheel, full_prefix, tmp_path)
    assert diff(rocm_wheel, output, options).verdict == "only what the plan says"
    name = "onnxruntime/capi/libonnxruntime_providers_rocm.so"
    with zipfile.ZipFile(output) as archive:
        data = bytearray(archive.read(name))
    gap = max(find_gaps(data, read_image(data, name)), key=len)
    at = gap.start + len(gap) // 2
    data[at] ^= 1
    found = diff(rocm_wheel, changed(output, tmp_path / "tampered", {name: bytes(data)}), options)
    assert found.verdict == "unexplained"
    assert f"{name}: the content is not what relink writes" in found.unexplained
