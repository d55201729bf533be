"""nixfmt (RFC 166 style) changes no Nix file: neither those of this repository, nor those that `relink nix` writes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from relink.report.nix.emit import package_nix
from relink.report.nix.model import Package
from tests.nix.conftest import ROOT
from tests.unit.report.nix.packages import PACKAGES, PLAIN

OURS = sorted(
    path.relative_to(ROOT).as_posix()
    for place in ("*.nix", "nix/*.nix", "examples/*/*.nix", "tests/nix/**/*.nix")
    for path in ROOT.glob(place)
)
WRITTEN: dict[str, Sequence[Package]] = {
    **{name: [package] for name, package in PACKAGES.items()},
    "bare": [replace(PLAIN, gpus=(), dependencies=(), imports=())],
    "one of each": [replace(PLAIN, gpus=("gfx1030",), dependencies=("numpy",))],
    "several Pythons": [PLAIN, replace(PLAIN, python="3.13")],
    "same version": [replace(PLAIN, same_version=("jaxlib",), siblings=("jax-rocm7-pjrt",))],
}


def check_format(*paths: Path) -> None:
    """Let nixfmt look at files; skip where it is not."""
    program = shutil.which("nixfmt")
    if program is None:
        pytest.skip("nixfmt is not on PATH (Debian, PyPI and npm have none; nixpkgs has)")
    run = subprocess.run([program, "--check", *paths], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("name", OURS)
def test_a_file_of_this_repository(name: str) -> None:
    check_format(ROOT / name)


@pytest.mark.parametrize("vendor", [True, False], ids=["vendored", "by the overlay"])
@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written(tmp_path: Path, name: str, vendor: bool) -> None:
    path = tmp_path / "package.nix"
    path.write_text(package_nix(WRITTEN[name], vendor=vendor))
    check_format(path)
