"""The stand-ins for today's ROCm and torch (tests/support), held against the real loader and Python."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support import therock, torch_wheels
from tests.support.elf_builder import SUPPORTED, WHY_NOT

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
CALL = "import sys; sys.path.insert(0, sys.argv[1]); import torch; print(torch._call_rocm())"


def unpack(wheels: Iterable[Path], site: Path) -> Path:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    return site


def imported(site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CALL, str(site)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return therock.pip(tmp_path_factory.mktemp("pip"), "10.0.0")


@pytest.mark.parametrize("kind", torch_wheels.KINDS)
def test_each_torch_is_imported_with_the_rocm_it_is_made_for(
    kind: str, rocm: list[Path], tmp_path: Path
) -> None:
    wheels = torch_wheels.build(tmp_path / "torch", kind)
    site = unpack([*wheels, *(rocm if kind != "bundling" else ())], tmp_path / "site")
    run = imported(site)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 20  # each library of ROCm adds one


@pytest.mark.parametrize("kind", ["split", "whole"])
def test_a_torch_for_pips_rocm_is_not_imported_without_it(kind: str, tmp_path: Path) -> None:
    run = imported(unpack(torch_wheels.build(tmp_path / "torch", kind), tmp_path / "site"))
    assert run.returncode != 0
    assert "rocm_sdk" in run.stderr


def test_a_native_installation_has_links_and_no_info(tmp_path: Path) -> None:
    root = therock.native(tmp_path, "7.14.0", "10.1.0")
    assert sorted(path.name for path in root.iterdir() if not path.is_symlink()) == ["core-10.1", "core-7.14"]
    assert (root / "lib").resolve() == (root / "core-10.1" / "lib").resolve()
    assert not (root / ".info").exists()
    assert (root / "core-7.14/lib/libamdhip64.so.7").readlink() == Path("libamdhip64.so.7.14.60850")
    load = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1], mode=2).hipblasSgemm())"  # RTLD_NOW
    library = root / "lib" / "libhipblas.so.3"
    run = subprocess.run(
        [sys.executable, "-c", load, str(library)], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) > 5
