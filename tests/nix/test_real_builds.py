"""Real wheels built with a set that is derived from nixpkgs, Debian's ROCm and a Python in the store, and imported there.

RELINK_PYTHON_3_12 names an interpreter of an installation that can be copied (pyenv's, python-build-standalone's).
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from relink.elf.patchelf import find_patchelf
from tests.nix.conftest import ROOT, Nix
from tests.nix.prefix_packages import LOADER, prefix_packages
from tests.nix.test_build import write
from tests.nix.test_derived_set import derived, real
from tests.nix.test_real_wheels import dry_run, store_paths
from tests.nix.test_sandbox import confined
from tests.real.conftest import fetch_prefix, fetch_wheel

pytestmark = [pytest.mark.real, pytest.mark.slow(reason="packages of whole ROCm libraries are built")]
__all__ = ["derived"]


@dataclass(frozen=True)
class Case:
    """A wheel, the prefix that serves it, and what it asks of it."""

    requirement: str
    pattern: str
    prefix: str
    sonames: tuple[str, ...]
    provider: str


CASES = {
    "onnxruntime-migraphx": Case(
        "onnxruntime-migraphx==1.27.1",
        "onnxruntime_migraphx-1.27.1-cp312-*.whl",
        "small",
        ("libamdhip64.so.7", "libmigraphx_c.so.3"),
        "onnxruntime/capi/libonnxruntime_providers_migraphx.so",
    ),
    "onnxruntime-rocm": Case(
        "onnxruntime-rocm==1.22.2.post3",
        "onnxruntime_rocm-1.22.2.post3-cp312-*.whl",
        "full",
        ("libamdhip64.so.7", "libhipblas.so.3", "libMIOpen.so.1", "libhipfft.so.0", "librocm_smi64.so.7"),
        "onnxruntime/capi/libonnxruntime_providers_rocm.so",
    ),
}
ASK = "import onnxruntime, numpy, sys; print(onnxruntime.get_available_providers(), sys.prefix)"


def python_home() -> Path:
    """The installation of Python 3.12 that is copied into the store."""
    interpreter = os.environ.get("RELINK_PYTHON_3_12")
    if not interpreter:
        pytest.skip("RELINK_PYTHON_3_12 names no interpreter for the import")
    ask = [interpreter, "-c", "import sys; print(sys.base_prefix)"]
    return Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())


def with_prefix(nix: Nix, case: Case) -> Nix:
    libraries = fetch_prefix(case.prefix) / "lib" / "x86_64-linux-gnu"
    return nix.with_tools(python="3.12", **prefix_packages(libraries, case.sonames))


def closures(case: Case, nix: Nix, paths: dict[str, str]) -> list[str]:
    """The options that name the packages of what the wheel asks for."""
    asked = [
        name
        for name, facts in nix.tools["copied"].items()
        if {Path(file).name for file in facts["files"]} & {*case.sonames}
    ]
    return [word for name in asked for word in ("--nix-closure", paths[f"rocmPackages.{name}"])]


@pytest.mark.parametrize("name", CASES)
def test_onnxruntime_is_built_and_imported(in_store: Nix, derived: Path, tmp_path: Path, name: str) -> None:
    """References are those planned; a second build, confined by Nix, is identical; the CPU provider is imported in both."""
    case = CASES[name]
    home = python_home()
    wheel = fetch_wheel(case.requirement, case.pattern)
    numpy = fetch_wheel("numpy==2.2.6", "numpy-2.2.6-cp312-*.whl")
    nix = with_prefix(in_store, case)
    paths = store_paths(nix)
    write(wheel, tmp_path / "out", *closures(case, nix, paths))
    of_index = (
        "scope: builtins.mapAttrs (name: _: scope.installer) (builtins.listToAttrs (map (name: { inherit name; value = null; }) "
        '[ "flatbuffers" "packaging" "protobuf" "sympy" "coloredlogs" ])) // { '
        f'numpy = scope.buildPythonPackage {{ pname = "numpy"; version = "2.2.6"; pyproject = false; '
        f"src = {numpy}; dontStrip = true; "
        "nativeBuildInputs = [ scope.wheelUnpackHook scope.pypaInstallHook ]; }; }"
    )
    expression = real(nix, derived, home, packages=of_index)
    package = f"({expression}.built.callPackage {tmp_path}/out/package.nix {{ }})"
    run = nix.run("nix-build", "--no-out-link", "--expr", package)
    assert "Check whether the following modules can be imported: onnxruntime" in run.stderr
    built = Path(run.stdout.split()[-1])

    plan = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    planned = {paths[attribute] for attribute in plan["libraries"]}
    passed = nix.value(f"map (item: item.outPath) {package}.propagatedBuildInputs")
    assert nix.references(built) == planned | {*passed}
    with confined(ROOT, Path(find_patchelf().path).resolve().parent) as options:
        again = nix.run("nix-build", "--no-out-link", "--check", *options, "--expr", package)
    assert "Check whether the following modules can be imported: onnxruntime" in again.stderr

    loader = Path(paths["stdenv.cc.libc"], "lib", LOADER)
    for file in plan["files"]:
        mapped, left_open = dry_run(loader, built / "lib/python3.12/site-packages" / file["path"])
        assert all(path.startswith(f"{nix.root}/store/") for path in mapped), mapped
        assert {symbol for symbol in left_open if not symbol.startswith(("Py", "_Py"))} <= {
            "Provider_GetHost"
        }
    assert case.provider in {file["path"] for file in plan["files"]}

    (python,) = {path for path in passed if "-python3-" in path and "numpy" not in path}
    search = ":".join(f"{path}/lib/python3.12/site-packages" for path in (built, *passed))
    ask = [f"{python}/bin/python3", "-c", ASK]
    said = subprocess.run(ask, env={"PYTHONPATH": search}, capture_output=True, text=True, check=True).stdout
    assert "CPUExecutionProvider" in said
    assert python in said
