"""`nix flake init -t`: what the templates give evaluates as a flake, with recorded interfaces of uv2nix, and with itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.nix.conftest import STANDIN, Nix
from tests.nix.test_build import write
from tests.nix.test_derived_set import derived, real, sources
from tests.nix.test_flake import flake
from tests.support.wheels import make_wheel

__all__ = ["derived", "flake"]
UV = ("pyproject-nix", "uv2nix", "pyproject-build-systems")
RECORDED = "{ outputs = _: { lib = import STANDIN/lib.nix; legacyPackages.x86_64-linux = SET; }; }"
REAL = """
{
  outputs = _: {
    lib = import SOURCES/nixpkgs.lib/lib;
    legacyPackages.x86_64-linux =
      let
        set = (SET).base;
        # Programs that the set lacks, and that nothing here runs.
        more = { uv = set.zlib; ugrep = set.gnugrep; };
        pkgs = set // more // {
          inherit pkgs;
          mkShell = attributes: set.stdenv.mkDerivation ({ name = "shell"; } // attributes);
          buildPackages = set.buildPackages // more;
          callPackage = set.lib.callPackageWith pkgs;
          newScope = extra: set.lib.callPackageWith (pkgs // extra);
        };
      in
      pkgs;
  };
}
"""


@pytest.fixture
def wheel(vendor_files: Mapping[str, Path], tmp_path: Path) -> Path:
    tag = "cp312-cp312-linux_x86_64"  # the templates' Python
    return make_wheel(tmp_path / "wheel", {"demo/__init__.py": b"", **vendor_files}, tag=tag)


@pytest.fixture(params=["recorded", "real"])
def inputs(request: pytest.FixtureRequest, in_store: Nix, tmp_path: Path) -> dict[str, Path]:
    """The flakes that stand for nixpkgs and what uv2nix consists of."""
    nixpkgs = tmp_path / "nixpkgs"
    nixpkgs.mkdir()
    if request.param == "recorded":
        text = RECORDED.replace("STANDIN", str(STANDIN)).replace("SET", in_store.packages())
        places = dict.fromkeys(UV, STANDIN / "uv2nix")
    else:
        given = sources("uv2nix", "pyproject.nix", "build-system-pkgs")
        expression = real(in_store, request.getfixturevalue("derived"))
        text = REAL.replace("SOURCES", str(given)).replace("SET", expression)
        names = ("pyproject.nix", "uv2nix", "build-system-pkgs")
        places = dict(zip(UV, (given / name for name in names), strict=True))
    (nixpkgs / "flake.nix").write_text(text)
    return {"nixpkgs": nixpkgs, **places}


def evaluated(nix: Nix, directory: Path, output: str, inputs: Mapping[str, Path]) -> str:
    """The derivation of an output, with all inputs from directories; impure, since those name others by absolute paths."""
    given = [word for name, path in inputs.items() for word in ("--override-input", name, f"path:{path}")]
    command = (
        "nix",
        "eval",
        "--impure",
        "--raw",
        f"path:{directory}#{output}.drvPath",
        "--no-write-lock-file",
    )
    return nix.run(*command, *given).stdout


def init(nix: Nix, flake: Path, name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir()
    monkeypatch.chdir(directory)
    # `flake init` takes no --override-input.
    nix.run("nix", "flake", "lock", f"path:{flake}", "--override-input", "nixpkgs", f"path:{STANDIN}")
    nix.run("nix", "flake", "init", "--template", f"path:{flake}#{name}")


def test_the_plain_template(
    in_store: Nix,
    flake: Path,
    wheel: Path,
    inputs: Mapping[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = tmp_path / "project"
    init(in_store, flake, "default", directory, monkeypatch)
    write(wheel, directory)
    found = evaluated(in_store, directory, "packages.x86_64-linux.default", {"nixpkgs": inputs["nixpkgs"]})
    assert found.endswith("-demo-1.0.drv")
    evaluated(in_store, directory, "devShells.x86_64-linux.default", {"nixpkgs": inputs["nixpkgs"]})


def test_the_template_for_uv2nix(
    in_store: Nix,
    flake: Path,
    wheel: Path,
    inputs: Mapping[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = tmp_path / "project"
    init(in_store, flake, "uv2nix", directory, monkeypatch)
    (directory / "pyproject.toml").write_text(
        '[project]\nname = "env"\nversion = "1"\nrequires-python = "==3.12.*"\ndependencies = ["demo"]\n'
    )
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (directory / "uv.lock").write_text(
        'version = 1\nrequires-python = "==3.12.*"\n[[package]]\nname = "demo"\nversion = "1.0"\n'
        'source = { registry = "https://example.org/simple" }\n'
        f'wheels = [{{ url = "file://{wheel}", hash = "sha256:{digest}", size = 1 }}]\n'
        '[[package]]\nname = "env"\nversion = "1"\nsource = { virtual = "." }\ndependencies = [{ name = "demo" }]\n'
    )
    write(wheel, directory / "relink", "--uv-lock", str(directory / "uv.lock"), url=None)
    given = {**inputs, "relink": flake}
    found = evaluated(in_store, directory, "packages.x86_64-linux.default", given)
    assert "-rocm-env" in found
    (plan,) = (directory / "relink").glob("*.json")
    text = json.loads(plan.read_text())
    text["rocm"] = 5
    plan.write_text(json.dumps(text))
    with pytest.raises(AssertionError, match="the plan is for ROCm 5"):
        evaluated(in_store, directory, "packages.x86_64-linux.default", given)
