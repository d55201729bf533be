"""A uv.lock with onnxruntime-rocm, built by the real uv2nix and pyproject.nix: with relink's overlay, and without it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from relink.loader.target import find_target
from tests.nix.conftest import ROOT, Nix
from tests.nix.prefix_packages import LOADER
from tests.nix.test_build import write
from tests.nix.test_derived_set import derived, real, sources
from tests.nix.test_real_builds import ASK, CASES, closures, python_home, with_prefix
from tests.nix.test_real_wheels import dry_run, store_paths
from tests.real.conftest import fetch_wheel

pytestmark = [pytest.mark.real, pytest.mark.slow(reason="packages of whole ROCm libraries are built")]
__all__ = ["derived"]

CASE = CASES["onnxruntime-rocm"]
PURE = {"flatbuffers": "25.2.10", "packaging": "25.0"}


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
    text += (
        f'[[package]]\nname = "env"\nversion = "1"\nsource = {{ virtual = "." }}\ndependencies = [{needed}]\n'
    )
    (directory / "uv.lock").write_text(text)


def digests(wheel: Path) -> dict[str, str]:
    """sha256 of each member that a wheel installs into site-packages, but for its own records."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: hashlib.sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
            if not name.endswith("/") and ".dist-info/" not in name and ".data/" not in name
        }


def test_a_lock_is_built_with_the_overlay_and_fails_without(
    in_store: Nix, derived: Path, tmp_path: Path
) -> None:
    given = sources("uv2nix", "pyproject.nix", "nixpkgs.lib")
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed, which uv2nix installs wheels with")
    home = python_home()
    wheel = fetch_wheel(CASE.requirement, CASE.pattern)
    wheels = {"onnxruntime-rocm": wheel, "numpy": fetch_wheel("numpy==2.2.6", "numpy-2.2.6-cp312-*.whl")}
    wheels |= {
        name: fetch_wheel(f"{name}=={version}", f"{name}-{version}-*.whl") for name, version in PURE.items()
    }
    workspace = tmp_path / "workspace"
    lock(workspace, wheels)
    nix = with_prefix(in_store, CASE)
    paths = store_paths(nix)
    plans = workspace / "plans"
    write(wheel, plans, "--uv-lock", str(workspace / "uv.lock"), *closures(CASE, nix, paths), url=None)
    (path,) = plans.iterdir()
    plan = json.loads(path.read_text())

    loader = Path(paths["stdenv.cc.libc"], "lib", LOADER)
    more = {
        "uv": uv,
        "program": os.path.realpath(sys.executable),
        "elftools": sysconfig.get_path("purelib"),
        "glibc": find_target(interpreter=str(loader)).glibc,
    }
    nix = nix.with_tools(**more)
    expression = real(nix, derived, home)
    made = (
        f"(import {ROOT}/tests/nix/real/uv2nix.nix {{ sources = {given}; set = {expression}; workspace = {workspace}; "
        f"tools = builtins.fromJSON (builtins.readFile {nix.root}/real.json); "
        f"overlay = ((import {ROOT}/flake.nix).outputs {{ self = {{ }}; nixpkgs.legacyPackages.x86_64-linux = {{ }}; }})"
        f".lib.uvOverlay {{ plans = {plans}; }}; }})"
    )

    fails = nix.run("nix-build", "--no-out-link", "--expr", f"{made}.plain.onnxruntime-rocm", check=False)
    assert fails.returncode != 0
    missing = set(re.findall(r"could not satisfy dependency (\S+) wanted by", fails.stderr))
    assert {"libamdhip64.so.7", "libMIOpen.so.1", "librocm_smi64.so.1"} <= missing
    assert "auto-patchelf failed to find all the required dependencies" in fails.stderr

    package = nix.build(f"{made}.relinked.onnxruntime-rocm")
    nix.run("nix-build", "--no-out-link", "--check", "--expr", f"{made}.relinked.onnxruntime-rocm")
    site = package / "lib/python3.12/site-packages"
    edited = {file["path"] for file in plan["files"]}
    vendors = digests(wheel)
    assert edited < vendors.keys()
    for member, digest in vendors.items():  # strip and autoPatchelf changed nothing
        found = hashlib.sha256((site / member).read_bytes()).hexdigest()
        assert (found == digest) == (member not in edited), member
    for file in plan["files"]:
        mapped, _ = dry_run(loader, site / file["path"])
        assert all(path.startswith(f"{nix.root}/store/") for path in mapped), mapped
    planned = {paths[attribute] for attribute in plan["libraries"]}
    assert planned <= nix.references(package)

    environment = nix.build(f'let made = {made}; in made.relinked.mkVirtualEnv "env" made.deps')
    said = subprocess.run(
        [environment / "bin" / "python", "-c", f"import flatbuffers, packaging; {ASK}"],
        env={},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "CPUExecutionProvider" in said
    assert str(environment) in said
