"""A store with Debian's ROCm as one output for each package, and what `relink nix` writes of real wheels: shared by the tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.nix.prefix_packages import prefix_packages
from tests.nix.stores import Nix, make_store, python_home, remove_store, sources
from tests.real.conftest import fetch_prefix, fetch_wheel


@dataclass(frozen=True)
class Case:
    """A wheel, and what the package is written with.

    :ivar says: what the log of the build has.
    """

    requirement: str
    options: tuple[str, ...] = ()
    imported: bool = False
    says: tuple[str, ...] = ()


CASES = {
    "onnxruntime_rocm-1.22.2.post3-cp312": Case(
        "onnxruntime-rocm==1.22.2.post3",
        imported=True,
        # The wheel's other library has an RWE GNU_STACK, which a new glibc does not load; nothing names it.
        says=("librocm_smi64.so.1 → librocm_smi64.so.7", "RLK116 onnxruntime/capi/libonnxruntime.so.1.22.2"),
    ),
    "onnxruntime_migraphx-1.27.1-cp312": Case("onnxruntime-migraphx==1.27.1", imported=True),
    "bitsandbytes-0.50.2": Case("bitsandbytes==0.50.2"),
    "jax_rocm7_plugin-0.12.0-cp312": Case("jax-rocm7-plugin==0.12.0"),
    "jax_rocm7_pjrt-0.12.0": Case(
        "jax-rocm7-pjrt==0.12.0",
        ("--stub", "auto"),
        says=("librocm_sysdeps_drm.so.2", "librocm_sysdeps_numa.so.1"),
    ),
}
DEPENDENCIES = ("coloredlogs", "flatbuffers", "packaging", "protobuf", "sympy", "torch", "jax-rocm7-pjrt")


@dataclass(frozen=True)
class World:
    """A store with Debian's ROCm, and the packages that were written: name → directory."""

    nix: Nix
    written: dict[str, Path]

    def dependencies(self, numpy: Path, version: str = "0") -> str:
        """Packages for the set's scope. What is not built here stands for what a wheel depends on; `version` is jaxlib's."""
        others = " ".join(f"{item} = scope.installer;" for item in DEPENDENCIES)
        return (
            f'scope: {{ {others} jaxlib = scope.installer // {{ version = "{version}"; }}; numpy = scope.buildPythonPackage {{ '
            f'pname = "numpy"; version = "2.2.6"; pyproject = false; src = {numpy}; buildInputs = [ scope.zlib ]; '
            "nativeBuildInputs = [ scope.autoRelinkHook scope.wheelUnpackHook scope.pypaInstallHook ]; }; }"
        )

    def package(self, name: str) -> str:
        """The derivation of a wheel, by what was written."""
        # What is not built here is not imported, and has no version that could be the wheel's.
        more = (
            "" if CASES[name].imported else ".overridePythonAttrs { pythonImportsCheck = [ ]; meta = { }; }"
        )
        numpy = plain_wheel("numpy==2.2.6", "numpy-2.2.6-cp312-*.whl")
        return (
            f"(((scope: scope.callPackage {self.written[name]}/package.nix {{ }}) "
            f"{self.nix.packages(self.dependencies(numpy, name.split('-')[1]))}){more})"
        )


def plain_wheel(requirement: str, pattern: str) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RELINK_REAL_WHEELS", raising=False)
        return fetch_wheel(requirement, pattern)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    libraries = fetch_prefix("full") / "lib" / "x86_64-linux-gnu"
    sources("corepkgs", "nix-lib")
    home = python_home("3.12")
    root = Path(os.path.realpath(tmp_path_factory.mktemp("real")))
    written: dict[str, Path] = {}
    wanted: dict[str, set[str]] = {}
    for name, case in CASES.items():
        wheel = fetch_wheel(case.requirement, f"{name}-*.whl")
        written[name] = root / "packages" / name
        command = [
            sys.executable,
            "-m",
            "relink",
            "nix",
            str(wheel),
            "--url",
            str(wheel),
            "-o",
            str(written[name]),
        ]
        said = subprocess.run([*command, *case.options], capture_output=True, text=True, check=True).stdout
        for attribute, sonames in re.findall(r"^((?:rocmPackages|pkgs)\.\S+)  (.*)$", said, re.MULTILINE):
            wanted.setdefault(attribute, set()).update(sonames.split(", "))
    there = {soname for sonames in wanted.values() for soname in sonames if (libraries / soname).exists()}
    there |= {"libamdhip64.so.7", "librocm_smi64.so.7", "libdrm.so.2", "libdrm_amdgpu.so.1", "libnuma.so.1"}
    made = make_store(root)
    packages = prefix_packages(libraries, there)
    for attribute in wanted:  # of those that Debian has not there is an empty one
        scope = "copied" if attribute.startswith("rocmPackages") else "extra"
        packages[scope].setdefault(attribute.partition(".")[2], {"files": {}, "needs": []})
    nix = made.with_tools(python="3.12", home=home, **packages)
    name = "/lib/x86_64-linux-gnu"  # in the loader's file the link stands in its place
    link_name = f"{tempfile.gettempdir()}/relink-"
    link_name += str(os.getpid()).zfill(len(name) - len(link_name))
    if len(link_name) != len(name):
        pytest.skip(f"{tempfile.gettempdir()} is too long for the name of a link in the loader")
    nix = nix.with_tools(link=link_name)
    link = Path(nix.tools["link"])
    link.unlink(missing_ok=True)
    link.symlink_to(f"{nix.value(f'{nix.packages()}.machine.libc.outPath')}/lib")
    yield World(nix, written)
    link.unlink()
    remove_store(root)
