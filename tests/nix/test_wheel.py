"""relinkWheel: what it makes of a wheel's file name, of ROCm's scope and of its arguments."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from typer.testing import CliRunner

from relink.cli import app
from relink.elf.image import read_image
from relink.elf.patchelf import MINIMUM_VERSION
from tests.nix.stores import ROOT, Nix, python_home
from tests.nix.test_hook import INPUTS, member, stores
from tests.support.cc import shared
from tests.support.wheels import make_wheel

LIMITED = "demo-1.0-cp312-abi3-manylinux_2_34_x86_64.whl"


def wheeled(source: str, more: str = f"buildInputs = with rocmPackages; [ {INPUTS} ];") -> str:
    """More for the scope: a package of a wheel; `source` is what `src` or `srcs` is."""
    return (
        "scope: with scope; { numpy = installer; "
        f'pip-torch = {{ pname = "torch"; rocmSupport = false; version = "2"; }}; demo = relinkWheel {{ {source} {more} }}; }}'
    )


def told(nix: Nix, name: str, more: str = "") -> dict[str, Any]:
    """What a package of a wheel that is not there says of itself."""
    expression = nix.packages(wheeled(f'src = {{ name = "{name}"; outPath = "/nowhere"; }};', more))
    found: dict[str, Any] = nix.value(
        f"let p = {expression}.demo; in {{ inherit (p) pname version misfits; inherit (p.meta) broken platforms; }}"
    )
    return found


@pytest.mark.parametrize(
    ("tags", "python", "fits"),
    [
        ("cp312-cp312-manylinux_2_34_x86_64", "3.12", True),
        ("cp312-cp312-manylinux_2_34_x86_64", "3.13", False),
        ("cp312-abi3-manylinux_2_34_x86_64", "3.11", False),
        ("cp312-abi3-manylinux_2_34_x86_64", "3.12", True),
        ("cp312-abi3-manylinux_2_34_x86_64", "3.13", True),
        ("cp313-cp313t-manylinux_2_34_x86_64", "3.13", False),
        ("py3-none-manylinux_2_34_x86_64", "3.13", True),
        ("py2.py3-none-any", "3.13", True),
        ("py313-none-any", "3.12", False),
        ("cp312-none-linux_x86_64", "3.13", False),
        ("cp311.cp312-cp311.cp312-linux_x86_64", "3.12", True),
        ("cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64", "3.12", True),
        ("cp312-cp312-manylinux_2_34_aarch64", "3.12", False),
        ("cp312-cp312-musllinux_1_2_x86_64", "3.12", False),
        ("cp312-cp312-win_amd64", "3.12", False),
    ],
)
def test_a_misfit_is_broken_and_its_meta_evaluates(nix: Nix, tags: str, python: str, fits: bool) -> None:
    found = told(nix.with_tools(python=python), f"Demo_X-1.0+rocm7-1-{tags}.whl")
    assert (found["pname"], found["version"], found["platforms"]) == ("demo-x", "1.0+rocm7", ["x86_64-linux"])
    assert (found["broken"], found["misfits"] == []) == (not fits, fits)


def test_building_a_misfit_says_why(nix: Nix) -> None:
    expression = nix.with_tools(python="3.13").packages(
        wheeled('src = { name = "demo-1.0-cp312-cp312-linux_x86_64.whl"; };')
    )
    said = nix.eval(f"{expression}.demo.src", check=False).stderr
    assert (
        "it is for cp312 (cp312), the package set has Python 3.13; add the wheel for that Python to srcs"
        in said
    )


def test_versions_that_must_be_equal_and_a_torch_without_rocm(nix: Nix) -> None:
    name = "jax_rocm7_plugin-0.12.0+rocm7-py3-none-any.whl"
    jaxlib = 'sameVersion = [ { pname = "jaxlib"; version = "%s"; } ];'
    assert told(nix, name, jaxlib % "0.12.0")["misfits"] == []
    (why,) = told(nix, name, jaxlib % "0.11.0")["misfits"]
    assert "it is 0.12.0+rocm7 and needs jaxlib of that version, the package set has 0.11.0" in why
    (why,) = told(nix, name, "dependencies = [ scope.pip-torch ];")["misfits"]
    assert "torch of this package set was built without ROCm" in why


@pytest.mark.parametrize("old", [False, True], ids=["extendMkDerivation", "before it"])
def test_one_of_several_wheels_is_built(nix: Nix, vendor_wheel: Path, old: bool) -> None:
    """As the package takes its arguments in nixpkgs of today, and in that of before lib.extendMkDerivation."""
    python = nix.tools["python"]
    source = f'srcs = {{ "3.8" = throw "not this one"; "{python}" = {vendor_wheel}; }};'
    expression = wheeled(source)
    if old:
        lib = 'lib = removeAttrs scope.lib [ "extendMkDerivation" ];'
        expression = expression.replace(
            "relinkWheel {", f"(callPackage {ROOT}/nix/relink-wheel.nix {{ {lib} }}) {{"
        )
    package = f"{nix.packages(expression)}.demo"
    assert nix.value(f"{package}.outputs") == ["out"]
    built = nix.build(package)
    assert built.name.endswith(f"-python{python}-demo-1.0")
    assert ": loaded" in nix.build(f"{package}.tests.load").read_text()
    assert nix.value(f"{package}.updateScript") == ["nix-update"]
    assert nix.value(f"{package}.rocmSupport")


def test_the_final_attributes_are_those_of_the_package(nix: Nix, vendor_wheel: Path) -> None:
    more = f"nativeBuildInputs = []; more = finalAttrs.pname; buildInputs = with scope.rocmPackages; [ {INPUTS} ]; "
    expression = nix.packages(
        f"scope: {{ numpy = scope.installer; demo = scope.relinkWheel (finalAttrs: {{ src = {vendor_wheel}; {more} }}); }}"
    )
    assert nix.value(f"{expression}.demo.more") == "demo"
    assert nix.value(f'({expression}.demo.overrideAttrs {{ pname = "other"; }}).more') == "other"


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_an_abi3_wheel_is_built_for_a_newer_python(nix: Nix, tmp_path: Path, version: str) -> None:
    nix = nix.with_tools(python=version, home=python_home(version))
    hip = shared(tmp_path / "libamdhip64.so.7", "int hip_init(void){return 40;}")
    library = shared(
        tmp_path / "a.abi3.so", "extern int hip_init(void); int g(void){return hip_init();}", needed=[hip]
    )
    files: dict[str, bytes | Path] = {"demo/__init__.py": b"", "demo/a.abi3.so": library}
    wheel = make_wheel(tmp_path / "wheel", files, tag=LIMITED.removeprefix("demo-1.0-").removesuffix(".whl"))
    built = nix.build(f"{nix.packages(wheeled(f'src = {wheel};'))}.demo")
    (clr,) = stores(nix, "rocmPackages.clr")
    assert f"{clr}/lib" in (read_image(member(built, "demo/a.abi3.so"), "a").runpath or "")


def test_a_narrower_rocm_is_not_lost(nix: Nix) -> None:
    """By override, as nixpkgs has it, or by `rocm`; generic targets of the set, too; of a family what is not covered is told."""

    def asked(more: str, *gpus: str) -> tuple[list[str], list[str]]:
        narrow = nix.with_tools(localGpuTargets=gpus) if gpus else nix
        expression = narrow.packages(wheeled('src = { name = "demo-1.0-py3-none-any.whl"; };', more))
        found = narrow.value(f"{{ inherit ({expression}.demo) relinkGpus relinkFlags; }}")
        return found["relinkGpus"], found["relinkFlags"]

    inputs = "buildInputs = [ rocmPackages.clr ];"
    assert asked(inputs) == ([], [])
    assert asked(inputs, "gfx1030") == (["gfx1030"], [])
    assert asked("", "gfx1100", "gfx11-generic") == (["gfx1100", "gfx11-generic"], ["--allow-isa-gap"])
    other = 'rocm = { clr.localGpuTargets = [ "gfx90a" ]; };'
    assert asked(other) == (["gfx90a"], [])
    assert asked(f'{other} gpus = [ "gfx1030" "gfx1031" ];', "gfx906") == (["gfx1030", "gfx1031"], [])


def test_rocm_of_pip_in_the_place_of_the_set(nix: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    """As `rocm`, and as rocmPackages of a package that is written for these."""
    hip = shared(tmp_path / "libamdhip64.so.7", "int hip_init(void){return 40;}")
    smi = shared(tmp_path / "librocm_smi64.so.7", "int rsmi_init(void){return 2;}")
    core = "_rocm_sdk_core/lib"
    files: dict[str, bytes | Path] = {f"{core}/libamdhip64.so.7": hip, f"{core}/librocm_smi64.so.7": smi}
    files["_rocm_sdk_core/__init__.py"] = b""
    sdk = make_wheel(
        tmp_path / "sdk", files, tag="py3-none-linux_x86_64", name="rocm_sdk_core", version="7.13"
    )
    rocm = f'(rocmSdk {{ version = "7.13"; wheels = [ {sdk} ]; gpuTargets = [ "gfx1030" ]; }})'
    for more in (f"rocm = {rocm}; gpus = [ ];", f"buildInputs = with {rocm}; [ clr rocm-smi ]; gpus = [ ];"):
        built = nix.build(f"{nix.packages(wheeled(f'src = {vendor_wheel};', more))}.demo")
        assert "-rocm-sdk-7.13/lib/python3/site-packages/_rocm_sdk_core/lib" in (
            read_image(member(built), "a").runpath or ""
        )
    expression = nix.packages(wheeled(f"src = {vendor_wheel};", f"rocm = {rocm};"))
    assert nix.value(f"{expression}.demo.relinkGpus") == ["gfx1030"]


def test_a_lock_is_compared_with_the_plan_of_the_build(
    in_store: Nix, vendor_wheel: Path, tmp_path: Path
) -> None:
    """Equal where the package set links as before, told where not, and an end of the build only with `strict`."""
    nix = in_store
    places = stores(
        nix, "rocmPackages.clr", "rocmPackages.rocm-smi", "machine.compiler.lib", "machine.compiler.libgcc"
    )
    command = [
        "nix",
        str(vendor_wheel),
        "--url",
        f"file://{vendor_wheel}",
        "--lock",
        "-o",
        str(tmp_path / "out"),
    ]
    refused = CliRunner().invoke(app, command)
    assert "--lock: the plan is made with libraries" in str(refused.exception)
    run = CliRunner().invoke(app, [*command, *(word for path in places for word in ("--prefix", path))])
    assert run.exit_code == 0, run.output
    lock = tmp_path / "out/demo.lock.json"
    assert len(lock.read_text().splitlines()) < 30

    def log(strict: str, *, fails: bool = False) -> str:
        arguments = f"relinkWheel = arguments: scope.relinkWheel (arguments // {{ strict = {strict}; }});"
        scope = nix.packages("scope: { numpy = scope.installer; }")
        package = f"(let scope = {scope}; in scope.callPackage {tmp_path}/out/package.nix {{ {arguments} }})"
        return nix.log(package, fails=fails)

    assert "RLK716" not in log("true")
    again = nix.with_tools(rocmVersion="8.0.0").packages("scope: { numpy = scope.installer; }")
    package = f"((s: s.callPackage {tmp_path}/out/package.nix {{ }}) {again})"
    (why,) = nix.value(f"assert {package}.meta.broken; {package}.misfits")
    assert why.startswith("its lock is for ROCm 7, the package set has 8.0.0;")
    lock.write_text(lock.read_text().replace("rocm-smi/lib", "other/lib"))
    assert "warning RLK716" in log("false")
    assert "error RLK716" in log("true", fails=True)


def test_older_releases_are_replaced(nix: Nix) -> None:
    """What the set has in an older release than relink asks for is built from newer sources; the rest is the set's own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {item.name: item.specifier for item in map(Requirement, project["dependencies"])}
    older = (
        "older = pname: version: { inherit pname version; overridePythonAttrs = more: { inherit pname; } // more; }; "
        + "".join(
            f'{name} = older "{name}" "{"99" if name == "isal" else "0.15"}"; '
            for name in {*asked, "patchelf"}
        )
    )
    expression = (
        f"let scope = {nix.packages()}; {older} in rec {{ "
        f"patchelf_ = p: import {ROOT}/nix/patchelf.nix {{ inherit (scope) lib; fetchurl = a: a; patchelf = p; }}; "
        f"made = import {ROOT}/nix/relink.nix {{ inherit (scope) lib; buildPythonApplication = a: a; fetchPypi = a: a; "
        f"flit-core = 0; hatchling = 0; setuptools = 0; setuptools-scm = 0; inherit {' '.join({*asked, 'patchelf'})}; }}; "
        "found = builtins.listToAttrs (map (p: { name = p.pname; value = p.version; }) made.dependencies); "
        'own = (patchelf_ { version = "0.19.1"; }).version; '
        'built = (patchelf_ { version = "0.15.0"; overrideAttrs = f: f; }).version; }'
    )
    made = nix.value(f"let all = {expression}; in {{ inherit (all) found own built; }}")
    assert made["found"].keys() == asked.keys() - {"patchelf"}
    assert made["found"]["isal"] == "99"
    assert made["found"]["rich"] == "0.15"
    for name in ("auditwheel", "wheel"):
        assert made["found"][name] in asked[name]
    assert Version(made["built"]) >= MINIMUM_VERSION
    assert made["own"] == "0.19.1"


def test_every_file_parses(nix: Nix) -> None:
    for path in [*ROOT.glob("*.nix"), *(ROOT / "nix").glob("*.nix"), *(ROOT / "examples").rglob("*.nix")]:
        nix.run("nix-instantiate", "--parse", path)
