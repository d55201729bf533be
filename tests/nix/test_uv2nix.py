"""A uv.lock with onnxruntime-rocm, built by the real uv2nix and pyproject.nix: with relink's overlay, and without it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from relink.elf.patchelf import find_patchelf
from relink.loader.target import find_target
from tests.nix.conftest import ROOT, SET, sources
from tests.nix.test_hook import site
from tests.nix.test_real import World, plain_wheel, world
from tests.real.conftest import fetch_wheel

pytestmark = [pytest.mark.real, pytest.mark.slow(reason="packages of whole ROCm libraries are built")]
__all__ = ["world"]

PURE = {"flatbuffers": "25.2.10", "packaging": "25.0"}
ASK = "import flatbuffers, packaging, onnxruntime, sys; print(onnxruntime.get_available_providers(), sys.prefix)"
PROVIDER = "onnxruntime/capi/libonnxruntime_providers_rocm.so"
LIBRARIES = "rocmPackages: with rocmPackages; [ clr hipblas hipfft miopen rocm-smi roctracer ]"


def lock(directory: Path, wheels: dict[str, Path]) -> None:
    """A workspace whose project needs these wheels, with the lock that uv writes for it."""
    directory.mkdir()
    listed = ", ".join(json.dumps(name) for name in wheels)
    (directory / "pyproject.toml").write_text(
        f'[project]\nname = "env"\nversion = "1"\nrequires-python = "==3.12.*"\ndependencies = [{listed}]\n'
    )
    text = 'version = 1\nrequires-python = "==3.12.*"\n'
    for name, wheel in wheels.items():
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        text += (
            f'[[package]]\nname = "{name}"\nversion = "{wheel.name.split("-")[1]}"\n'
            'source = { registry = "https://example.org/simple" }\n'
            f'wheels = [{{ url = "file://{wheel}", hash = "sha256:{digest}", size = {wheel.stat().st_size} }}]\n'
        )
    needed = ", ".join(f'{{ name = "{name}" }}' for name in wheels)
    text += f'[[package]]\nname = "env"\nversion = "1"\nsource = {{ virtual = "." }}\ndependencies = [{needed}]\n'
    (directory / "uv.lock").write_text(text)


def test_a_lock_is_built_with_the_overlay_and_fails_without(world: World, tmp_path: Path) -> None:
    given = sources("uv2nix", "pyproject.nix", "nixpkgs.lib")
    uv = shutil.which("uv", path=sysconfig.get_path("scripts"))
    if uv is None:
        pytest.skip("uv is not installed, which uv2nix installs wheels with")
    wheel = fetch_wheel("onnxruntime-rocm==1.22.2.post3", "onnxruntime_rocm-1.22.2.post3-cp312-*.whl")
    wheels = {"onnxruntime-rocm": wheel, "numpy": plain_wheel("numpy==2.2.6", "numpy-2.2.6-cp312-*.whl")}
    wheels |= {
        name: plain_wheel(f"{name}=={version}", f"{name}-{version}-*.whl") for name, version in PURE.items()
    }
    workspace = tmp_path / "workspace"
    lock(workspace, wheels)
    nix = world.nix
    loader = Path(nix.build(f"{nix.packages()}.machine.libc"), "lib", "ld-linux-x86-64.so.2")
    more = {"uv": uv, "program": sys.executable, "elftools": sysconfig.get_path("purelib"), "glibc": find_target(interpreter=str(loader)).glibc}
    nix = nix.with_tools(**more)
    made = (
        f"(let set = {nix.packages()}; in import {SET}/uv2nix.nix {{ inherit set; inherit (set) tools; "
        f"sources = {given}; workspace = {workspace}; "
        f"overlay = set.own.uvOverlay {{ libraries = {LIBRARIES}; wheels = [ \"numpy\" ]; }}; }})"
    )

    missing = set(
        re.findall(
            r"could not satisfy dependency (\S+) wanted by", nix.log(f"{made}.plain.onnxruntime-rocm", fails=True)
        )
    )
    assert {"libamdhip64.so.7", "libMIOpen.so.1", "librocm_smi64.so.1"} <= missing

    log = nix.log(f"{made}.relinked.onnxruntime-rocm")
    assert "Loads; checked by ld.so for 3 files." in log
    package = nix.build(f"{made}.relinked.onnxruntime-rocm")
    nix.log(f"{made}.relinked.onnxruntime-rocm", "--check")
    with zipfile.ZipFile(wheel) as archive:  # strip and autoPatchelf changed nothing
        shared = "onnxruntime/capi/libonnxruntime_providers_shared.so"
        assert (site(package) / shared).read_bytes() == archive.read(shared)
    run = subprocess.run([find_patchelf().path, "--print-rpath", site(package) / PROVIDER], capture_output=True, text=True, check=True)
    assert f"{nix.build(f'{made}.plain.pkgs.rocmPackages.clr')}/lib" in run.stdout.split(":")

    environment = nix.build(f'let made = {made}; in made.relinked.mkVirtualEnv "env" made.deps')
    said = subprocess.run([environment / "bin" / "python", "-c", ASK], env={}, capture_output=True, text=True, check=True).stdout
    assert "CPUExecutionProvider" in said
    assert str(environment) in said


def test_which_wheels_get_the_hook(world: World) -> None:
    """By their name, their version (torch of AMD's index), or a profile; those that are ROCm itself do not."""
    names = {
        "onnxruntime-rocm": "1", "onnxruntime-migraphx": "1", "bitsandbytes": "0.50", "torch": "2.9.1+rocm7.2", "numpy": "2", "rocm-sdk-core": "7",
        "rocm": "7", "a-rocm": "1", "pytorch-triton": "3", "jax-rocm7-plugin": "0.12", "skipped-rocm": "1",
    }  # fmt: skip
    given = "".join(f'{name} = {{ version = "{version}"; overrideAttrs = f: f {{ }} // {{ asked = true; }}; }}; ' for name, version in names.items())
    overlay = 'set.own.uvOverlay { wheels = [ "pytorch-triton" ]; except = [ "skipped-rocm" ]; }'
    found = world.nix.value(
        f"let set = {world.nix.packages()}; prev = {{ {given} pkgs = set; }}; final = set; "
        f"in builtins.mapAttrs (_: p: builtins.length p.buildInputs) "
        f"(set.lib.filterAttrs (_: p: p ? asked) ({overlay} final prev))"
    )
    assert sorted(found) == [
        "a-rocm", "bitsandbytes", "jax-rocm7-plugin", "onnxruntime-migraphx", "onnxruntime-rocm", "pytorch-triton", "torch",
    ]  # fmt: skip
    # Without a list, all of rocmPackages that relink knows of and that the set has.
    assert set(found.values()) == {len(world.nix.tools["copied"].keys() & {*KNOWN})}


KNOWN = (
    *("amdsmi", "clr", "hipblas", "hipblaslt", "hipfft", "hiprand", "hipsolver", "hipsparse", "hipsparselt", "migraphx", "miopen", "rccl"),
    *("rocalution", "rocblas", "rocfft", "rocm-comgr", "rocm-core", "rocm-runtime", "rocm-smi", "rocprofiler-register", "rocprofiler-sdk"),
    *("rocrand", "rocsolver", "rocsparse", "roctracer", "rpp", "aqlprofile", "hsakmt", "aotriton", "hiprt"),
)
