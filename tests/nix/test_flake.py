"""The flake: its templates, built where they are put, with the real uv2nix; and autoPatchelfHook beside the hook."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from relink.loader.target import find_target
from tests.nix.stores import ROOT, SET, Nix, sources
from tests.nix.worlds import World, plain_wheel
from tests.real.conftest import fetch_wheel

pytestmark = [pytest.mark.real, pytest.mark.slow(reason="packages of whole ROCm libraries are built")]

SOURCES = {
    "pyproject-nix": "pyproject.nix",
    "uv2nix": "uv2nix",
    "pyproject-build-systems": "build-system-pkgs",
}
PURE = {"flatbuffers": "25.2.10", "packaging": "25.0"}
ASK = "import flatbuffers, packaging, onnxruntime, sys; print(onnxruntime.get_available_providers(), sys.prefix)"
PROVIDER = "libonnxruntime_providers_rocm.so"


@dataclass(frozen=True)
class Flakes:
    """A store, an expression that is nixpkgs, and where flakes are: `nixpkgs`, `relink`, and those of uv2nix."""

    nix: Nix
    pkgs: str
    places: dict[str, Path]

    def build(self, directory: Path, output: str = "") -> Path:
        """What `nix build` makes in a directory: inputs are taken from here, impure, since they name others by absolute paths."""
        given = [
            word for name, path in self.places.items() for word in ("--override-input", name, f"path:{path}")
        ]
        command = [
            "nix",
            "build",
            "--impure",
            "--no-link",
            "--print-out-paths",
            "--no-write-lock-file",
            *given,
        ]
        return Path(self.nix.run(*command, f"path:{directory}{output}").stdout.strip())

    def init(self, directory: Path, template: str, patch: pytest.MonkeyPatch) -> None:
        """`nix flake init -t`, by the name in the registry that docs/nix.md gives relink."""
        directory.mkdir()
        patch.chdir(directory)
        self.nix.run("nix", "flake", "init", "--template", template)


@pytest.fixture
def flakes(world: World, tmp_path: Path) -> Flakes:
    given = sources("nixpkgs.lib", *SOURCES.values())
    uv = shutil.which("uv", path=sysconfig.get_path("scripts"))
    if uv is None:
        pytest.skip("uv is not installed, which uv2nix installs wheels with")
    nix = world.nix
    loader = str(Path(nix.build(f"{nix.packages()}.machine.libc"), "lib", "ld-linux-x86-64.so.2"))
    glibc = find_target(interpreter=loader).glibc
    nix = nix.with_tools(uv=uv, program=sys.executable, elftools=sysconfig.get_path("purelib"), glibc=glibc)
    numpy = plain_wheel("numpy==2.2.6", "numpy-2.2.6-cp312-*.whl")
    pkgs = f"(import {SET}/nixpkgs.nix {{ sources = {given}; set = {nix.packages(world.dependencies(numpy))}; }})"
    places = {name: given / directory for name, directory in SOURCES.items()}
    for name in ("nixpkgs", "relink"):
        places[name] = tmp_path / name
        places[name].mkdir()
    text = f"{{ outputs = _: {{ lib = import {given}/nixpkgs.lib/lib; legacyPackages.x86_64-linux = {pkgs}; }}; }}"
    (places["nixpkgs"] / "flake.nix").write_text(text)
    for name in ("flake.nix", "default.nix", "overlay.nix"):
        shutil.copy(ROOT / name, places["relink"])
    for name in ("nix", "profiles", "examples/nix", "examples/uv2nix"):
        shutil.copytree(ROOT / name, places["relink"] / name)
    # A lock of relink's flake, as Nix would write it with the network.
    own = f"path:{places['relink']}"
    nix.run("nix", "flake", "lock", own, "--override-input", "nixpkgs", f"path:{places['nixpkgs']}")
    nix.run("nix", "registry", "add", "relink", own)
    return Flakes(nix, pkgs, places)


def test_the_template_of_a_package(
    flakes: Flakes, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a package that was written for the same wheel by its address here."""
    directory = tmp_path / "project"
    flakes.init(directory, "relink", monkeypatch)
    places = {name: flakes.places[name] for name in ("nixpkgs", "relink")}
    shown = (directory / "package.nix").read_text()
    written = (world.written["onnxruntime_rocm-1.22.2.post3-cp312"] / "package.nix").read_text()
    for part in ("buildInputs", "dependencies", "meta"):  # the example is what relink writes
        assert next(line for line in shown.splitlines() if part in line) in written
    (directory / "package.nix").write_text(written)
    only = Flakes(flakes.nix, flakes.pkgs, places)
    built = only.build(directory)
    assert built.name.endswith("-python3.12-onnxruntime-rocm-1.22.2.post3")
    shell = only.build(directory, "#devShells.x86_64-linux.default").read_text()
    assert str(built) in Path(shell.strip()).read_text()


def lock(directory: Path, wheels: dict[str, Path]) -> None:
    """A project that needs these wheels, with the lock that uv writes for it."""
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


def test_the_template_of_uv2nix(flakes: Flakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is built by the real uv2nix, and imports the wheel."""
    directory = tmp_path / "project"
    flakes.init(directory, "relink#uv2nix", monkeypatch)
    wheels = {
        "onnxruntime-rocm": fetch_wheel(
            "onnxruntime-rocm==1.22.2.post3", "onnxruntime_rocm-1.22.2.post3-cp312-*.whl"
        ),
        "numpy": plain_wheel("numpy==2.2.6", "numpy-2.2.6-cp312-*.whl"),
    }
    wheels |= {
        name: plain_wheel(f"{name}=={version}", f"{name}-{version}-*.whl") for name, version in PURE.items()
    }
    lock(directory, wheels)
    environment = flakes.build(directory)
    python = environment / "bin" / "python"
    said = subprocess.run([python, "-c", ASK], env={}, capture_output=True, text=True, check=True).stdout
    assert "CPUExecutionProvider" in said
    assert str(environment) in said


def test_which_wheels_of_a_lock_get_the_hook(flakes: Flakes) -> None:
    """By their name, their version (torch of AMD's index), or a profile; those that are ROCm itself do not."""
    versions = {"torch": "2.9.1+rocm7.2", "triton": "3"}
    names = [
        "onnxruntime-rocm",
        "bitsandbytes",
        "torch",
        "numpy",
        "rocm-sdk-core",
        "rocm",
        "a-rocm",
        "triton",
        "skipped-rocm",
        "pure-rocm",
    ]
    given = "".join(
        f'{name} = {{ version = "{versions.get(name, "1")}"; overrideAttrs = f: f {{ }} // {{ asked = 1; }}; '
        f'src.name = "{name}-1-{"none-any" if name == "pure-rocm" else "x"}.whl"; }}; '
        for name in names
    )
    overlay = 'pkgs.own.uvOverlay { wheels = [ "triton" ]; except = [ "skipped-rocm" ]; }'
    found = flakes.nix.value(
        f"let pkgs = {flakes.pkgs}; given = {{ {given} }}; made = {overlay} pkgs (given // {{ inherit pkgs; }}); "
        "in builtins.mapAttrs (_: p: builtins.length p.buildInputs) (pkgs.lib.filterAttrs (_: p: p ? asked) made)"
    )
    assert sorted(found) == ["a-rocm", "bitsandbytes", "onnxruntime-rocm", "torch", "triton"]
    assert found["a-rocm"] == 2  # clr, and torch, which it may be an extension of
    assert found["torch"] == 1


def test_beside_auto_patchelf(flakes: Flakes, world: World) -> None:
    """autoPatchelfHook fails; told to ignore what is missing, it builds, and the provider does not load."""
    name = "onnxruntime_rocm-1.22.2.post3-cp312"
    wheel = fetch_wheel("onnxruntime-rocm==1.22.2.post3", f"{name}-*.whl")

    def patched(ignored: str) -> str:
        return (
            f"(with {flakes.pkgs}; buildPythonPackage {{ "
            'pname = "patched"; version = "1"; pyproject = false; dontStrip = true; '
            f"src = {wheel}; nativeBuildInputs = [ autoPatchelfHook pypaInstallHook wheelUnpackHook ]; "
            "buildInputs = with rocmPackages; [ clr hipblas hipfft miopen rocm-smi roctracer machine.compiler.lib ]; "
            f"autoPatchelfIgnoreMissingDeps = [ {ignored} ]; }})"
        )

    def loaded(package: Path) -> dict[str, str]:
        command = [
            f"{flakes.nix.build(f'{flakes.pkgs}.python312')}/bin/python3",
            ROOT / "tests/nix/load.py",
            package,
            package.parent,
        ]
        lines = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, check=False
        ).stdout.splitlines()
        return {line.partition(": ")[0].rpartition("/")[2]: line.partition(": ")[2] for line in lines}

    log = flakes.nix.log(patched(""), fails=True)
    missing = set(re.findall(r"could not satisfy dependency (\S+) wanted by", log))
    assert missing == {"librocm_smi64.so.1", "libroctracer64.so.4"}
    before = loaded(flakes.nix.build(patched('"*"')))
    assert "librocm_smi64.so.1: cannot open shared object file" in before[PROVIDER]
    after = loaded(flakes.nix.build(world.package(name)))
    assert after[PROVIDER] == "loaded"
