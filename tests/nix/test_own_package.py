"""The flake's own package, by the phases and hooks of a set derived from nixpkgs that has older releases than relink asks for."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from relink import __version__
from tests.nix.stores import ROOT, Nix, python_home
from tests.real.conftest import CACHE

pytestmark = [pytest.mark.real, pytest.mark.slow(reason="isal is compiled")]

WHEELS = [
    *(
        "build",
        "flit-core<4",
        "hatchling",
        "msgspec",
        "pip",
        "pyelftools",
        "rich",
        "setuptools",
        "setuptools-scm>=8,<10",
    ),
    *("typer<0.29", "zlib-ng", "backports.zstd"),
]
NEWER = ["auditwheel==6.8.2", "isal==1.9.1", "wheel==0.48.0"]
OLD = {"auditwheel": "6.5.1", "isal": "1.8.0", "wheel": "0.46.1"}
"""What nixpkgs had when this was written."""
PLATFORMS = ["--platform=manylinux_2_28_x86_64", "--platform=manylinux_2_17_x86_64"]


def fetch_packages() -> Path:
    """Wheels for Python 3.12 and the archives of sources, from the package index, once."""
    directory = CACHE / "own"
    if (directory / "ready").exists():
        return directory
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(directory)]
    binary = ["--only-binary=:all:", "--python-version=3.12", *PLATFORMS, *WHEELS]
    archives = [*NEWER, f"wheel=={OLD['wheel']}"]
    for options in (binary, *(["--no-deps", "--no-binary=:all:", item] for item in archives)):
        run = subprocess.run([*pip, *options], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            pytest.skip(f"{options[-1]} and others cannot be downloaded here: {run.stderr.strip()[-200:]}")
    (directory / "ready").touch()
    return directory


def scope(directory: Path) -> str:
    """More for the set of Python packages: a package of each wheel; the older ones build as nixpkgs' do."""
    wheels = {
        canonicalize_name(path.name.partition("-")[0]): path for path in sorted(directory.glob("*.whl"))
    }
    text = ""
    for name, path in wheels.items():
        with zipfile.ZipFile(path) as archive:
            member = min(
                (item for item in archive.namelist() if item.endswith(".dist-info/METADATA")), key=len
            )
            lines = archive.read(member).decode().splitlines()
        asked = [Requirement(line[15:]) for line in lines if line.startswith("Requires-Dist: ")]
        plain = {
            canonicalize_name(item.name)
            for item in asked
            if item.marker is None or item.marker.evaluate({"extra": "", "python_version": "3.12"})
        }
        needed = " ".join(f"scope.{item}" for item in sorted(plain & wheels.keys()))
        text += (
            f'{name} = scope.buildPythonPackage {{ pname = "{name}"; version = "{path.name.split("-")[1]}"; '
            f"pyproject = false; src = {path}; nativeBuildInputs = [ scope.pypaInstallHook ]; dontUnpack = true; "
            f"preInstall = ''mkdir dist; ln -s $src dist/{path.name}''; "
            f"dependencies = [ {needed} ]; }}; "
        )
    text += (
        f'wheel = scope.buildPythonPackage {{ pname = "wheel"; version = "{OLD["wheel"]}"; pyproject = true; '
        f"src = {directory}/wheel-{OLD['wheel']}.tar.gz; nativeBuildInputs = [ scope.flit-core ]; "
        "dependencies = [ scope.packaging ]; }; "
    )
    for older in ("auditwheel", "isal"):
        needed = {"auditwheel": "scope.packaging scope.pyelftools"}.get(older, "")
        text += (
            f'{older} = scope.buildPythonPackage {{ pname = "{older}"; version = "{OLD[older]}"; pyproject = true; '
            'src = throw "the older release is not built"; patches = [ ./nowhere.patch ]; '
            'nativeBuildInputs = [ (throw "of the older release") ]; build-system = [ ]; doCheck = true; '
            f"env.PYTHON_ISAL_LINK_DYNAMIC = true; dependencies = [ {needed} ]; }}; "
        )
    return (
        f"scope: {{ {text}fetchPypi = {{ pname, version, hash }}: scope.fetchurl {{ "
        'name = "${pname}-${version}.tar.gz"; '
        f'url = "file://{directory}/${{pname}}-${{version}}.tar.gz"; inherit hash; }}; }}'
    )


def test_it_is_built_with_newer_releases(nix: Nix, tmp_path: Path) -> None:
    """Runtime dependencies are checked by the set's hook, and the command runs with the packages of the store."""
    home = python_home("3.12")
    if not Path("/usr/include/isa-l.h").exists():
        pytest.skip("isa-l's header is not here (apt-get install libisal-dev)")
    directory = fetch_packages()
    source = tmp_path / "source"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if not name.startswith("tests/") and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    nix = nix.with_tools(python="3.12", home=home)
    package = f"({nix.packages(scope(directory))}.callPackage {source}/nix/relink.nix {{ }})"
    run = nix.run("nix-build", "--no-out-link", "--expr", package)
    built = Path(run.stdout.split()[-1])
    assert f"Checking runtime dependencies for rocm_relink-{__version__}-py3-none-any.whl" in run.stderr
    said = subprocess.run(
        [built / "bin" / "relink", "--version"], env={}, capture_output=True, text=True, check=True
    )
    assert __version__ in said.stdout
    closure = nix.run("nix-store", "-qR", built).stdout
    for requirement in NEWER:
        name, _, version = requirement.partition("==")
        assert f"-python3.12-{name}-{version}\n" in closure
        assert f"{name}-{OLD[name]}" not in closure
