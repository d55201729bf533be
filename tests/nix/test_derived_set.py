"""Packages with a set that is derived from nixpkgs (lib, stdenv, mk-python-derivation, hooks), and with nixpkgs' own lib.

RELINK_NIX_SOURCES names a directory with checkouts: `corepkgs` and `nix-lib` of ekala-project (the set and its lib),
`nixpkgs.lib` of nix-community; `uv2nix` and `pyproject.nix` for the last test. Nothing of them is part of this repository;
without them the tests skip and say so.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import installer
import pytest

from tests.nix.conftest import ROOT, Nix
from tests.nix.test_build import stores, write
from tests.nix.test_real_wheels import VISIBLE
from tests.real.conftest import fetch_wheel

REAL = Path(__file__).parent / "real"


def sources(*names: str) -> Path:
    """The directory of checkouts, or a skip that says what is lacking."""
    given = os.environ.get("RELINK_NIX_SOURCES")
    if not given:
        pytest.skip("RELINK_NIX_SOURCES is not set: no nixpkgs-derived set here")
    lacking = [name for name in names if not (Path(given) / name).is_dir()]
    if lacking:
        pytest.skip(f"RELINK_NIX_SOURCES has no {', '.join(lacking)}")
    return Path(given)


@pytest.fixture(scope="session")
def derived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the set that takes its lib from beside it, instead of fetching it."""
    given = sources("corepkgs", "nix-lib", "nixpkgs.lib")
    copy = tmp_path_factory.mktemp("set") / "set"
    shutil.copytree(given / "corepkgs", copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    (copy / "pins.nix").write_text(f"{{ lib = {given / 'nix-lib'}; }}\n")
    return copy


def real(nix: Nix, derived: Path, home: Path | None = None, **more: str) -> str:
    """The expression of tests/nix/real; `more` are its arguments.

    :param home: a Python's installation, to be copied into the store; else this one is started where it is.
    """
    python = {"home": str(home)} if home else {"interpreter": os.path.realpath("/proc/self/exe")}
    tools = nix.with_tools(**python, installer=str(Path(installer.__file__).parent))
    path = nix.root / "real.json"
    path.write_text(json.dumps(tools.tools))
    given = "".join(f"{name} = {value}; " for name, value in more.items())
    return (
        f"(import {REAL} {{ set = {derived}; tools = builtins.fromJSON (builtins.readFile {path}); {given}}})"
    )


def test_a_package_is_built_and_imported(
    in_store: Nix, derived: Path, vendor_wheel: Path, tmp_path: Path
) -> None:
    """By the real phases: unpack, installer, fixup with strip, the dry run, the import check. References are exact."""
    write(vendor_wheel, tmp_path / "out")
    expression = real(in_store, derived, packages="scope: { numpy = scope.installer; }")
    package = f"({expression}.built.callPackage {tmp_path}/out/package.nix {{ }})"
    assert in_store.value(f"{package}.outputs") == ["out"]
    run = in_store.run("nix-build", "--no-out-link", "--expr", package)
    built = Path(run.stdout.split()[-1])
    for said in ("wheelUnpackPhase", "pypaInstallPhase", "pythonImportsCheckPhase"):
        assert f"Executing {said}" in run.stderr
    clr, smi, gcc = stores(in_store, "rocmPackages.clr", "rocmPackages.rocm-smi", "gcc")
    direct = {path for path in in_store.references(built) if "python" not in path and "installer" not in path}
    assert direct == {clr, smi, gcc}
    in_store.run("nix-build", "--no-out-link", "--check", "--expr", package)


def test_a_plan_of_a_split_gcc_is_built(
    in_store: Nix, derived: Path, vendor_wheel: Path, tmp_path: Path
) -> None:
    """Proved against store paths, libgcc's among them."""
    names = ("rocmPackages.clr", "rocmPackages.rocm-smi", "gcc", "stdenv.cc.cc.libgcc")
    places = stores(in_store, *names)
    write(vendor_wheel, tmp_path / "out", *(word for path in places for word in ("--prefix", path)))
    expression = real(in_store, derived, packages="scope: { numpy = scope.installer; }")
    built = in_store.build(f"({expression}.built.callPackage {tmp_path}/out/package.nix {{ }})")
    assert set(places[:3]) <= in_store.references(built)


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "stub"), [*((name, ()) for name in VISIBLE), ("jax_rocm7_pjrt-0.12.0", ("--stub", "auto"))]
)
def test_every_wheel_evaluates(
    in_store: Nix, derived: Path, tmp_path: Path, name: str, stub: tuple[str, ...]
) -> None:
    """With the set's mk-python-derivation, and relink's own functions with nixpkgs' lib; what has a stub is not in the set."""
    requirement = VISIBLE[name]
    if requirement is None and not os.environ.get("RELINK_REAL_WHEELS"):
        pytest.skip(f"{name} is looked at only where RELINK_REAL_WHEELS has it")
    wheel = fetch_wheel(requirement or name, f"{name}-*.whl")
    write(wheel, tmp_path, *stub, url=None)
    plan = json.loads(next(tmp_path.glob("*.json")).read_text())
    stubbed = {one["soname"] for one in plan["stubs"]}
    attributes = [item for item, sonames in plan["libraries"].items() if not stubbed.issuperset(sonames)]
    rocm: dict[str, Any] = {
        item.partition(".")[2]: {} for item in attributes if item.startswith("rocmPackages.")
    }
    python = plan["python"] or "3.12"
    release = f"{plan['rocm'] or 7}.2.4"
    nix = in_store.with_tools(rocm=rocm, python=python, jaxlib=plan["version"], rocmVersion=release)
    extra = "".join(
        f"{item.partition('.')[2]} = set.standin.gcc; "
        for item in attributes
        if item.startswith("extraLibraries.")
    )
    written = (tmp_path / "package.nix").read_text()
    # What the set has no package of, as a package that is there.
    lone = (
        "jax-rocm7-pjrt",
        "jaxlib",
        "fastrlock",
        "torch",
        "flatbuffers",
        "protobuf",
        "sympy",
        "coloredlogs",
    )
    wanted = [item for item in lone if f"  {item},\n" in written]
    others = "".join(
        f'{item} = {{ pname = "{item}"; type = "derivation"; name = "{item}"; version = "{plan["version"]}"; '
        f'outPath = "/nowhere"; drvPath = "/nowhere"; outputName = "out"; outputs = [ "out" ]; }}; '
        for item in wanted
    )
    lib = f"import {sources('nixpkgs.lib')}/nixpkgs.lib/lib"
    run = nix.eval(
        f"let set = {real(nix, derived)}; scope = set.evaluated; "
        f"package = scope.callPackage {tmp_path}/package.nix {{ {others}extraLibraries = {{ {extra}}}; "
        f"relinkWheel = scope.callPackage {tmp_path}/relink/relink-wheel.nix {{ lib = {lib}; }}; }}; in "
        "{ inherit (package) name outputs; meta = { inherit (package.meta) description platforms maintainers; }; "
        "license = package.meta.license.spdxId; d = package.drvPath; }"
    )
    found = json.loads(run.stdout)
    if stub:
        assert stubbed == {"libamd_smi.so.26", "librccl.so.1", "librocprofiler-sdk.so.1"}
    assert all(soname in run.stderr for soname in stubbed)
    assert found["outputs"] == ["out"]
    assert found["name"].endswith(f"-{plan['pname']}-{plan['version']}")
    assert found["license"] in ("MIT", "Apache-2.0")
    assert not found["meta"]["description"].endswith(".")


UV = """
let
  lib = import SOURCES/nixpkgs.lib/lib;
  set = (SET).base;
  # Programs that the set lacks, and that nothing here runs.
  more = {
    uv = set.zlib;
    ugrep = set.gnugrep;
  };
  pkgs = set // more // {
    inherit pkgs;
    buildPackages = set.buildPackages // more;
    callPackage = lib.callPackageWith pkgs;
    newScope = extra: lib.callPackageWith (pkgs // extra);
  };
  pyproject-nix = import SOURCES/pyproject.nix { inherit lib; };
  uv2nix = import SOURCES/uv2nix { inherit lib pyproject-nix; };
  workspace = uv2nix.lib.workspace.loadWorkspace { workspaceRoot = WORKSPACE; };
  flake = (import ROOT/flake.nix).outputs {
    self = { };
    nixpkgs.legacyPackages.x86_64-linux = pkgs;
  };
  none = _: _: { pythonManylinuxPackages.manylinux2014 = [ ]; };
  plain = (pkgs.callPackage pyproject-nix.build.packages { python = set.PYTHON; }).overrideScope (
    lib.composeExtensions none (workspace.mkPyprojectOverlay { sourcePreference = "wheel"; })
  );
  relinked = plain.overrideScope (flake.lib.uvOverlay { plans = WORKSPACE + "/plans"; });
  names = package: map (input: input.name) package.nativeBuildInputs;
in
{
  before = names plain.demo;
  after = names relinked.demo;
  changed = relinked.demo.drvPath != plain.demo.drvPath;
  same = relinked.other.drvPath == plain.other.drvPath;
}
"""


def test_uv2nix_evaluates_with_the_overlay(
    in_store: Nix, derived: Path, vendor_wheel: Path, tmp_path: Path
) -> None:
    """uv2nix itself: the wheel that has a plan gets the hook beside autoPatchelfHook, another one stays as it is."""
    given = sources("uv2nix", "pyproject.nix")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    digest = hashlib.sha256(vendor_wheel.read_bytes()).hexdigest()
    listed = '"demo", "other"'
    (workspace / "pyproject.toml").write_text(
        f'[project]\nname = "env"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = [{listed}]\n'
    )
    source = 'source = { registry = "https://example.org/simple" }'
    (workspace / "uv.lock").write_text(
        'version = 1\nrequires-python = ">=3.11"\n'
        f'[[package]]\nname = "demo"\nversion = "1.0"\n{source}\n'
        f'wheels = [{{ url = "https://example.org/{vendor_wheel.name}", hash = "sha256:{digest}", size = 1 }}]\n'
        f'[[package]]\nname = "other"\nversion = "1.0"\n{source}\n'
        f'wheels = [{{ url = "https://example.org/other-1.0-py3-none-any.whl", hash = "sha256:{"1" * 64}", size = 1 }}]\n'
        '[[package]]\nname = "env"\nversion = "1"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "demo" }, { name = "other" }]\n'
    )
    write(vendor_wheel, workspace / "plans", "--uv-lock", str(workspace / "uv.lock"), url=None)
    text = UV
    for name, value in {
        "SOURCES": str(given),
        "SET": real(in_store, derived),
        "WORKSPACE": str(workspace),
        "ROOT": str(ROOT),
        "PYTHON": f"python{in_store.tools['python'].replace('.', '')}",
    }.items():
        text = text.replace(name, value)
    found = in_store.value(text)
    assert found["before"] == ["pyproject-hook", "auto-patchelf-hook"]
    assert found["after"] == ["pyproject-hook", "auto-patchelf-hook", "relink-hook"]
    assert found["changed"]
    assert found["same"]
