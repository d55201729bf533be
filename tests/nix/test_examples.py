"""examples/nix: what is shown is what relink writes, and all of it evaluates."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.nix.conftest import ROOT, Nix
from tests.nix.test_build import stores, write
from tests.real.conftest import fetch_wheel

EXAMPLES = ROOT / "examples" / "nix"
NAMES = ("clr", "hipblas", "hipfft", "miopen", "rocm-smi", "roctracer")


@pytest.fixture
def rocm(in_store: Nix) -> Nix:
    """Stub packages of the names that the examples use, one library each."""
    return in_store.with_tools(
        rocm={name: {f"lib{name}.so": {"source": "int a;", "needs": []}} for name in NAMES}
    )


@pytest.mark.real
def test_the_package_and_the_flake(rocm: Nix, tmp_path: Path) -> None:
    """The package is what relink writes; the flake has it in a shell."""
    wheel = fetch_wheel("onnxruntime-rocm==1.22.2.post3", "onnxruntime_rocm-1.22.2.post3-cp312-*.whl")
    write(wheel, tmp_path, "--gpu", "gfx1030", url=None)
    shown = (EXAMPLES / "package.nix").read_text()
    written = (tmp_path / "package.nix").read_text()
    assert shown[shown.index("{\n") :] == written[written.index("{\n") :]

    for name in ("package.nix", "flake.nix"):
        shutil.copyfile(EXAMPLES / name, tmp_path / name)
    found = rocm.value(
        f"let pkgs = {rocm.packages()}; outputs = (import {tmp_path}/flake.nix).outputs "
        "{ nixpkgs.legacyPackages.x86_64-linux = pkgs; }; package = outputs.packages.x86_64-linux.default; in "
        "{ inherit (package) name; inherit (outputs.devShells.x86_64-linux.default) drvPath; "
        "libraries = builtins.attrNames package.relinkPlan.libraries; }"
    )
    assert found["name"] == "onnxruntime-rocm-1.22.2.post3"
    assert [f"rocmPackages.{name}" for name in NAMES] == found["libraries"][:-1]
    assert found["drvPath"].endswith(".drv")


def test_the_shell(rocm: Nix) -> None:
    """Its join is what `relink --prefix $ROCM` sees through."""
    shell = (
        f"import {EXAMPLES}/shell.nix {{ pkgs = {rocm.packages()}; relink = {rocm.packages()}.patchelf; }}"
    )
    joined = Path(rocm.value(f"(builtins.toString ({shell}).ROCM)"))
    rocm.build(shell)
    expected = {f"{path}/lib" for path in stores(rocm, *(f"rocmPackages.{name}" for name in NAMES))}
    assert {str(library.resolve().parent) for library in (joined / "lib").iterdir()} == expected
