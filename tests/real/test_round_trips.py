"""Vendors' wheels relinked for a prefix, for ROCm as pip installs it, and back: the same bytes as on the direct way.

The stand-in of pip's ROCm is unpacked, and not installed: nothing of a wheel is loaded by the Python that it is for.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from relink import Options, relink
from relink.loader.target import find_target
from tests.real.conftest import fetch_wheel
from tests.real.test_vendor_wheels import own_loader
from tests.support.rocm_sdk import build, copy_c_library, unpack

WHEELS = {
    "onnxruntime-rocm==1.22.2.post3": ("onnxruntime_rocm-1.22.2.post3-cp312-*.whl", ()),
    "jax-rocm7-plugin==0.12.0": ("jax_rocm7_plugin-0.12.0-cp312-*.whl", ()),
    "bitsandbytes==0.50.2": ("bitsandbytes-0.50.2-*.whl", ()),
    "jax-rocm7-pjrt==0.12.0": ("jax_rocm7_pjrt-0.12.0-*.whl", ("auto",)),
}


@pytest.fixture(scope="module")
def site(full_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("sdk")
    loader = copy_c_library(next(full_prefix.glob("lib/*/ld-linux-*.so.*")), root / "glibc")
    wheels = [fetch_wheel(name, pattern) for name, (pattern, _) in WHEELS.items()]
    place = root / "venv/lib/python3.12/site-packages"
    unpack(build(full_prefix, root, target=find_target(interpreter=str(loader)), wheels=wheels), place)
    shutil.rmtree(root / "wheels")  # gigabytes
    yield place
    shutil.rmtree(root)


@pytest.mark.parametrize("name", WHEELS)
@pytest.mark.parametrize("second", ["pip's ROCm", "another prefix"])
def test_there_and_back(
    name: str, second: str, request: pytest.FixtureRequest, full_prefix: Path, tmp_path: Path
) -> None:
    pattern, stub = WHEELS[name]
    wheel = fetch_wheel(name, pattern)
    other = request.getfixturevalue("site" if second == "pip's ROCm" else "small_prefix")

    def made(source: Path, prefix: Path, place: str) -> Path:
        options = Options(
            prefixes=(str(prefix),),
            interpreter=str(own_loader(full_prefix)),
            output_directory=tmp_path / place,
            stub=stub,
            force=True,  # that something is missing there is not what this is about
        )
        report = relink(source, options)
        assert not [found for found in report.findings if found.code == "RLK541"]
        return Path(report.path or "")

    to_a, to_b = made(wheel, full_prefix, "a"), made(wheel, other, "b")
    over = made(to_a, other, "over")
    back = made(over, full_prefix, "back")
    same = made(to_a, full_prefix, "same")
    assert to_a.read_bytes() != to_b.read_bytes()
    assert (over.name, over.read_bytes() == to_b.read_bytes()) == (to_b.name, True)
    assert (back.name, back.read_bytes() == to_a.read_bytes()) == (to_a.name, True)
    assert (same.name, same.read_bytes() == to_a.read_bytes()) == (to_a.name, True)
    shutil.rmtree(tmp_path)
