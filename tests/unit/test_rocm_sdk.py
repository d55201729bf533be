"""The stand-in for ROCm as pip installs it (tests/support/rocm_sdk.py), of a compiled prefix, held against the real loader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.elf.symbol_reader import read_symbols
from tests.support.rocm_sdk import NODE, Settings, build, skip_with_own_zlib, tiny_prefix, unpack

LOAD = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).hipblasSgemm())"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_prefix(tmp_path_factory.mktemp("tiny") / "rocm")


def test_the_libraries_find_each_other_wherever_they_are(prefix: Path, tmp_path: Path) -> None:
    skip_with_own_zlib()
    site = tmp_path / "venv" / "site-packages"
    unpack(build(prefix, tmp_path), site)
    moved = tmp_path / "moved"
    (tmp_path / "venv").rename(moved)
    library = moved / "site-packages" / "_rocm_sdk_libraries" / "lib" / "libhipblas.so.3"
    run = subprocess.run(
        [sys.executable, "-c", LOAD, str(library)], capture_output=True, text=True, check=True
    )
    assert run.stdout == "4\n"  # the renamed zlib answers 0


def test_the_layout(prefix: Path, tmp_path: Path) -> None:
    wheels = build(prefix, tmp_path, Settings(gpus=("gfx1100", "gfx942")))
    assert sorted(path.name.split("-py3")[0] for path in wheels) == [
        "rocm-7.2.4",
        "rocm_sdk_core-7.2.4",
        "rocm_sdk_device_gfx1100-7.2.4",
        "rocm_sdk_device_gfx942-7.2.4",
        "rocm_sdk_libraries-7.2.4",
    ]
    unpack(wheels, tmp_path / "site")
    files = {
        str(path.relative_to(tmp_path / "site")) for path in (tmp_path / "site").rglob("*") if path.is_file()
    }
    assert "_rocm_sdk_libraries/lib/rocblas/library/Kernels.so-000-gfx942.hsaco" in files
    assert "_rocm_sdk_libraries/.kpack/blas_lib_gfx1100.kpack" in files
    system = tmp_path / "site" / "_rocm_sdk_core" / "lib" / "rocm_sysdeps" / "lib" / "librocm_sysdeps_z.so.1"
    exports = read_symbols(system.read_bytes()).exports["inflate"]
    assert {item.version for item in exports} == {NODE, "ZLIB_1.2.0"}


def test_one_family_and_a_nonce(prefix: Path, tmp_path: Path) -> None:
    settings = Settings(version="7.3.0a20261101", family="gfx110X-all", nonce="_731")
    wheels = build(prefix, tmp_path, settings)
    assert not [path for path in wheels if "device" in path.name]
    unpack(wheels, tmp_path / "site")
    library = tmp_path / "site" / "_rocm_sdk_libraries_gfx110X_all_731" / "lib" / "libhipblas.so.3"
    image = read_image(library.read_bytes(), str(library))
    assert image.search_kind == "rpath"
    assert "$ORIGIN/../../_rocm_sdk_core_731/lib" in (image.search_path or "").split(":")
