"""What `relink nix` writes: evaluated and built by Nix with a set derived from nixpkgs; and the packages of this repository."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from typer.testing import CliRunner

from relink.cli import app
from relink.elf.image import read_image
from relink.elf.patchelf import MINIMUM_VERSION
from relink.report.nix.emit import package_nix
from tests.nix.stores import ROOT, Nix, python_home
from tests.nix.test_hook import hooked, member, stores
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.unit.report.nix.test_emit import forms


@dataclass(frozen=True)
class Written:
    """A package.nix, and what is in the scope of Python packages beside it."""

    path: Path
    scope: str = "numpy = scope.installer;"

    def expression(self, nix: Nix, more: str = "") -> str:
        packages = nix.packages(f"scope: {{ {self.scope} }}")
        return f"((scope: scope.callPackage {self.path} {{ {more} }}) {packages})"


def write(*words: str | Path, output: Path, scope: str = "numpy = scope.installer;") -> Written:
    """`relink nix`, with each wheel by its own address here."""
    run = CliRunner().invoke(app, ["nix", *map(str, words), "-o", str(output)])
    assert run.exit_code == 0, run.output
    return Written(output / "package.nix", scope)


def test_it_is_built_and_links_exactly_what_is_used(nix: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    written = write(vendor_wheel, "--url", vendor_wheel, output=tmp_path / "package")
    package = written.expression(nix)
    assert nix.value(f"{package}.outputs") == ["out"]
    built = nix.build(package)
    clr, smi, gcc = stores(nix, "rocmPackages.clr", "rocmPackages.rocm-smi", "machine.compiler.lib")
    assert {path for path in nix.references(built) if "-python3-" not in path} >= {clr, smi, gcc}
    nix.log(package, "--check")


@pytest.mark.parametrize(("version", "fits"), [("7.2.4", True), ("8.0.0", False), ("6.4.3", False)])
def test_another_major_of_rocm_is_broken_at_evaluation(
    nix: Nix, vendor_wheel: Path, tmp_path: Path, version: str, fits: bool
) -> None:
    """With the line of package.nix, where a comment says why; nothing of ROCm is built for it."""
    written = write(vendor_wheel, "--url", vendor_wheel, output=tmp_path / "package")
    package = written.expression(nix.with_tools(rocmVersion=version))
    assert nix.value(f"{package}.meta.broken") is not fits
    said = nix.eval(f"{package}.drvPath", check=False)
    assert (said.returncode == 0) == fits
    if not fits:
        assert "is marked as broken, refusing to evaluate" in said.stderr
        assert "# The wheel needs libamdhip64.so.7.\n    broken = " in written.path.read_text()


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ('relinkFlags = [ "--odd" ];', "No such option: --odd"),
        ("buildInputs = [ ];", "libamdhip64.so.7: needed by a.so"),
    ],
)
def test_what_is_overridden_reaches_the_hook(
    nix: Nix, vendor_wheel: Path, tmp_path: Path, attributes: str, said: str
) -> None:
    package = write(vendor_wheel, "--url", vendor_wheel, output=tmp_path / "package").expression(nix)
    overridden = f"({package}.overridePythonAttrs (_: {{ {attributes} }}))"
    assert said in " ".join(nix.log(overridden, fails=True).split())


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_one_of_several_wheels_is_built(nix: Nix, tmp_path: Path, version: str) -> None:
    """And a Python without a wheel is told by nixpkgs."""
    library = shared(tmp_path / "plain.so", "int p(void){return 1;}")
    wheels = [
        make_wheel(
            tmp_path / tag, {f"demo/{tag}.py": b"", "demo/p.so": library}, tag=f"{tag}-{tag}-linux_x86_64"
        )
        for tag in ("cp312", "cp313")
    ]
    addresses = [word for wheel in wheels for word in ("--url", wheel)]
    written = write(*wheels, *addresses, output=tmp_path / "package")
    nix = nix.with_tools(python=version, home=python_home(version))
    site = next(nix.build(written.expression(nix, "")).glob("lib/python*/site-packages"))
    assert (site / f"demo/cp{version.replace('.', '')}.py").exists()
    other = written.expression(nix.with_tools(python="3.14"))
    assert "not supported for interpreter" in nix.eval(f"{other}.drvPath", check=False).stderr


def test_every_form_evaluates(nix: Nix, tmp_path: Path) -> None:
    """With a scope that has what each asks for; another ROCm than the wheel's, and another jaxlib, are broken."""
    for name, packages in forms().items():
        (tmp_path / f"{name}.nix").write_text(package_nix(packages))
    long = "x" * 60
    names = ("demo-1.0-py3-none-any.whl", "12.whl", "13.whl", f"../{long}/{long}.whl")
    for path in (tmp_path / name for name in names):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    expression = (
        f'let scope = {nix.with_tools(python="3.12").packages()}; given = name: let f = import ({tmp_path} + "/${{name}}.nix"); '
        'asked = builtins.mapAttrs (_: _: scope.installer // { version = "0"; }) (builtins.functionArgs f); '
        'package = f (asked // builtins.intersectAttrs asked (scope // { fetchPypi = _: builtins.toFile "x.whl" ""; })); '
        "in { broken = package.meta.broken or false; "
        "path = if package.meta.broken or false then null else builtins.stringLength package.drvPath; }; "
        f"in builtins.listToAttrs (map (name: {{ inherit name; value = given name; }}) {json_list(forms())})"
    )
    found = nix.value(expression)
    assert {name for name, one in found.items() if one["broken"]} == {
        *("plugin", "plugins", "several-plugins", "torch", "plugin-torch", "sibling")
    }
    assert all(one["broken"] or one["path"] for one in found.values())


def json_list(names: Iterable[str]) -> str:
    """A list of strings in Nix."""
    return f"[ {' '.join(json.dumps(name) for name in names)} ]"


def test_which_wheels_of_uv2nix_get_the_hook(nix: Nix) -> None:
    """Those for ROCm, with clr; extensions of torch with torch, which builds of pyproject.nix do not have by themselves."""
    wheels = {"torch": "2.9+rocm7.0", "torch-cluster-rocm": "1.6", "numpy": "2.2", "rocm-sdk-core": "7.0"}
    packages = "".join(f"{name} = wheel {json.dumps(version)}; " for name, version in wheels.items())
    expression = (
        'let wheel = version: { inherit version; src.name = "x-linux_x86_64.whl"; overrideAttrs = f: f { }; }; '
        'of = _: { autoRelinkHook.override = _: "hook"; }; '
        f'prev = {{ pkgs = {{ inherit ({nix.packages()}) lib; rocmPackages.clr = "clr"; }}; {packages} }}; '
        f'made = import {ROOT}/nix/uv-overlay.nix of {{ }} (prev // {{ torch = "torch"; }}) prev; '
        'in builtins.mapAttrs (_: package: package.buildInputs or null) (removeAttrs made [ "pkgs" ])'
    )
    assert nix.value(expression) == {
        "torch": ["clr"],
        "torch-cluster-rocm": ["clr", "torch"],
        "numpy": None,
        "rocm-sdk-core": None,
    }


def test_what_was_in_an_earlier_release_names_its_successor(nix: Nix) -> None:
    for name, successor in (("relinkWheel", "autoRelinkHook"), ("rocmSdk", "examples/nix/rocm-sdk.nix")):
        said = nix.eval(f"{nix.packages()}.own.{name}", check=False).stderr
        assert f"{name} was removed from relink: " in said
        assert successor in said


def test_rocm_of_pip_as_a_package(nix: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    """examples/nix/rocm-sdk.nix."""
    hip = shared(tmp_path / "libamdhip64.so.7", "int hip_init(void){return 40;}")
    smi = shared(tmp_path / "librocm_smi64.so.7", "int rsmi_init(void){return 2;}")
    core = "_rocm_sdk_core/lib"
    files: dict[str, bytes | Path] = {f"{core}/libamdhip64.so.7": hip, f"{core}/librocm_smi64.so.7": smi}
    files["_rocm_sdk_core/__init__.py"] = b""
    sdk = make_wheel(
        tmp_path / "sdk", files, tag="py3-none-linux_x86_64", name="rocm_sdk_core", version="7.13"
    )
    rocm = f'(scope.callPackage {ROOT}/examples/nix/rocm-sdk.nix {{ version = "7.13"; wheels = [ {sdk} ]; }})'
    package = nix.packages(hooked(vendor_wheel).replace("with rocmPackages; [ clr rocm-smi ]", f"[ {rocm} ]"))
    built = nix.build(f"{package}.demo")
    assert "-rocm-sdk-7.13/lib/python3/site-packages/_rocm_sdk_core/lib" in (
        read_image(member(built), "a").runpath or ""
    )


def test_the_packages_of_this_repository(nix: Nix) -> None:
    """relink takes the package set's releases of what pyproject.toml requires; patchelf is built where the set's is too old."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {item.name.replace(".", "-") for item in map(Requirement, project["dependencies"])}
    expression = (
        f"let scope = {nix.packages()}; older = pname: {{ inherit pname; }}; "
        f"patchelf_ = p: import {ROOT}/nix/patchelf.nix {{ inherit (scope) lib; fetchurl = a: a; patchelf = p; }}; in {{ "
        f"required = map (p: p.pname) (import {ROOT}/nix/relink.nix {{ inherit (scope) lib; buildPythonApplication = a: a; "
        "patchelf = 0; python.pythonOlder = _: true; python.pkgs = "
        f"{{ {''.join(f'{name} = older {json.dumps(name)}; ' for name in asked)}}}; }}).dependencies; "
        'own = (patchelf_ { version = "0.19.1"; }).version; '
        'built = (patchelf_ { version = "0.15.0"; overrideAttrs = f: f; }).version; }'
    )
    made = nix.value(expression)
    assert {*made["required"]} == asked - {"patchelf"}
    assert Version(made["built"]) >= MINIMUM_VERSION
    assert made["own"] == "0.19.1"


def test_a_line_of_documentation_rebuilds_nothing(nix: Nix, tmp_path: Path) -> None:
    """The source of relink is what is installed of it."""

    def source(directory: Path) -> str:
        call = (
            f"f = import {directory}/nix/relink.nix; lib = ({nix.packages()}).lib; "
            "all = builtins.mapAttrs (_: _: null) (builtins.functionArgs f); "
            'made = f (all // { inherit lib; buildPythonApplication = a: a; patchelf = "/p"; });'
        )
        return str(nix.value(f"let {call} in toString made.src"))

    copy = tmp_path / "source"
    for name in (
        "relink/__init__.py",
        "nix/relink.nix",
        "pyproject.toml",
        "hatch_build.py",
        "LICENSE",
        "docs/relink.1",
    ):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    for name in ("profiles/a.toml", "examples/demo/demo.py"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).touch()
    before = source(copy)
    for name in ("docs/nix.md", "README.md", "tests/x.py", "CHANGELOG.md", "nix/other.nix"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text("another line")
    assert source(copy) == before
    (copy / "relink/__init__.py").write_text('__version__ = "9"\n')
    assert source(copy) != before


def test_every_file_parses(nix: Nix) -> None:
    for path in [*ROOT.glob("*.nix"), *(ROOT / "nix").glob("*.nix"), *(ROOT / "examples").rglob("*.nix")]:
        nix.run("nix-instantiate", "--parse", path)
