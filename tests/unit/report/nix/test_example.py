"""What `relink nix` writes for onnxruntime-rocm, beside what nixpkgs would merge, which examples/nix/package.nix is.

The wheel is a stand-in of the same names; tests/real asks the vendor's.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from typer.testing import CliRunner

from relink.cli import app
from tests.support.built import ROOT
from tests.support.cc import shared
from tests.support.wheels import changed, make_wheel

EXAMPLE = ROOT / "examples/nix/package.nix"
CAPI = "onnxruntime/capi"
# What each library of 1.22.2.post3 for cp312 needs.
LIBRARIES = {
    "libonnxruntime_providers_shared.so": (),
    "onnxruntime_pybind11_state.so": ("libstdc++.so.6", "libm.so.6", "libgcc_s.so.1"),
    "libonnxruntime.so.1.22.2": ("libstdc++.so.6", "libm.so.6", "libgcc_s.so.1"),
    "libonnxruntime_providers_rocm.so": (
        *("libhipblas.so.3", "libMIOpen.so.1", "libhipfft.so.0", "librocm_smi64.so.1", "libroctracer64.so.4"),
        *("libamdhip64.so.7", "libstdc++.so.6", "libm.so.6", "libgcc_s.so.1"),
    ),
}
METADATA = """\
Metadata-Version: 2.1
Name: onnxruntime-rocm
Version: 1.22.2.post3
Summary: ONNX Runtime is a runtime accelerator for Machine Learning models (ROCm build)
Home-page: https://github.com/microsoft/onnxruntime
Download-URL: https://github.com/microsoft/onnxruntime/releases
Author: Microsoft
License: MIT License
Platform: manylinux_2_34_x86_64
Requires-Python: >=3.10

"""
# The example's description is nixpkgs' style: it does not begin with the name.
DESCRIPTION = [
    '-    description = "Runtime accelerator for machine learning models (ROCm build)";',
    '+    description = "ONNX Runtime is a runtime accelerator for Machine Learning models (ROCm build)";',
]


def differences(wheel: Path, directory: Path) -> list[str]:
    """What `relink nix` writes of a wheel, compared with the example, by line."""
    run = CliRunner().invoke(app, ["nix", str(wheel), "-o", str(directory)])
    assert run.exit_code == 0, run.output
    written = (directory / "package.nix").read_text().splitlines()
    lines = difflib.unified_diff(EXAMPLE.read_text().splitlines(), written, n=0, lineterm="")
    return [line for line in lines if line[:2] in ("- ", "+ ")]


def stand_in(directory: Path) -> Path:
    """A wheel that is called like the vendor's, says the same of itself, and needs the same libraries."""
    names = {name for needed in LIBRARIES.values() for name in needed}
    made = {name: shared(directory / name, "int a;") for name in sorted(names)}
    files: dict[str, bytes | Path] = {"onnxruntime/__init__.py": b"", f"{CAPI}/__init__.py": b""}
    for name, needed in LIBRARIES.items():
        flags = ["-Wl,--no-as-needed"]
        files[f"{CAPI}/{name}"] = shared(
            directory / "own" / name, needed=[made[n] for n in needed], flags=flags
        )
    tag = "cp312-cp312-manylinux_2_34_x86_64"
    wheel = make_wheel(directory / "plain", files, name="onnxruntime_rocm", version="1.22.2.post3", tag=tag)
    edits = {"onnxruntime_rocm-1.22.2.post3.dist-info/METADATA": METADATA.encode()}
    return changed(wheel, directory / "wheel", edits)


def test_the_package_is_the_example_but_for_its_description(tmp_path: Path) -> None:
    """And for the hash, since the wheel is another."""
    found = differences(stand_in(tmp_path), tmp_path / "package")
    hashes = [line for line in found if line[1:].startswith("    hash = ")]
    assert [line[0] for line in hashes] == ["-", "+"]
    assert [line for line in found if line not in hashes] == DESCRIPTION
