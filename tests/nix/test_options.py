"""What a package can be told beyond its plan: one derivation as ROCm, the name that it provides, versions that must agree."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from relink.elf.image import read_image
from tests.nix.conftest import PYTHON, ROOT, Nix
from tests.nix.test_build import package, write
from tests.support.cc import shared
from tests.support.rocm_sdk import Settings, build
from tests.support.wheels import make_wheel
from tests.support.works import TAG


def said(nix: Nix, directory: Path, more: str = "{ }", *, fails: bool = False) -> str:
    """What the build prints."""
    run = nix.run("nix-build", "--no-out-link", "--expr", package(nix, directory, more), check=False)
    assert (run.returncode != 0) == fails, run.stderr
    return run.stderr


def with_arguments(directory: Path, text: str) -> None:
    path = directory / "package.nix"
    path.write_text(
        path.read_text().replace("  inherit extraLibraries", f"  {text}\n  inherit extraLibraries")
    )


def test_one_derivation_as_rocm(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    """A vendor's archive or a build of one's own has all in one lib/; nothing of rocmPackages is used."""
    write(vendor_wheel, tmp_path / "out")
    pkgs = in_store.packages()
    own = (
        f'let pkgs = {pkgs}; in pkgs.runCommand "rocm" {{ }} '
        "''mkdir -p $out/lib; cp ${pkgs.rocmPackages.clr}/lib/* ${pkgs.rocmPackages.rocm-smi}/lib/* $out/lib/; :''"
    )
    with_arguments(tmp_path / "out", f'rocm = ({own}) // {{ version = "7.2.4"; }};')
    built = in_store.build(package(in_store, tmp_path / "out"))
    gcc = str(in_store.build(f"{pkgs}.gcc"))
    assert in_store.references(built) == {str(in_store.build(own)), gcc}


def test_the_wheels_of_rocm_sdk_as_that_derivation(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    """Its libraries lie in several directories and find each other, the renamed ones of the system too, by $ORIGIN."""
    lib = tmp_path / "prefix" / "lib"
    zlib = shared(lib / "libz.so.1", "int inflate(void){return 1;}")
    below = shared(
        lib / "libhsa-runtime64.so.1",
        "extern int inflate(void); int hsa(void){return inflate();}",
        needed=[zlib],
    )
    hip = "extern int hsa(void); int hip_init(void){return hsa() + 40;}"
    shared(lib / "libamdhip64.so.7", hip, needed=[below])
    shared(lib / "librocm_smi64.so.1", "int rsmi_init(void){return 2;}")
    wheels = build(tmp_path / "prefix", tmp_path, Settings(version="7.2.4", gpus=()))
    write(vendor_wheel, tmp_path / "out")
    listed = " ".join(f'"${{{path}}}"' for path in wheels if "core" in path.name)
    made = f"{in_store.packages()}.callPackage {ROOT}/nix/rocm-sdk.nix {{ }}"
    own = f'({made}) {{ version = "7.2.4"; wheels = [ {listed} ]; gpuTargets = [ "gfx1100" ]; }}'
    with_arguments(tmp_path / "out", f"rocm = {own};")
    built = in_store.build(package(in_store, tmp_path / "out"))
    store = in_store.build(own)
    assert store in [Path(path) for path in in_store.references(built)]
    library = built / f"lib/python{PYTHON}/site-packages/demo/a.so"
    core = f"{store}/lib/python3/site-packages/_rocm_sdk_core/lib"
    assert core in (read_image(library.read_bytes(), "a.so").search_path or "").split(":")
    call = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).g())"
    run = subprocess.run([sys.executable, "-c", call, library], capture_output=True, text=True, check=True)
    assert run.stdout == "43\n"  # the renamed zlib answers 0


def test_another_release_of_that_derivation(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    write(vendor_wheel, tmp_path / "out")
    with_arguments(
        tmp_path / "out",
        f'rocm = {in_store.packages()}.runCommand "rocm" {{ }} "" // {{ version = "6.4"; }};',
    )
    text = said(in_store, tmp_path / "out", fails=True)
    assert "the plan is for ROCm 7, rocm has ROCm 6.4" in text


def test_the_name_of_another_package(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    """What depends on onnxruntime asks METADATA for that name."""
    write(vendor_wheel, tmp_path / "out")
    with_arguments(tmp_path / "out", 'provides = "other-name";')
    built = in_store.build(package(in_store, tmp_path / "out"))
    assert built.name.endswith("-other-name-1.0")
    (info,) = (built / f"lib/python{PYTHON}/site-packages").glob("*.dist-info")
    assert info.name == "other_name-1.0.dist-info"
    assert "\nName: other-name\n" in (info / "METADATA").read_text()
    assert "other_name-1.0.dist-info/METADATA,,\n" in (info / "RECORD").read_text()


def test_versions_that_must_agree(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    write(vendor_wheel, tmp_path / "out")
    pkgs = in_store.packages()
    with_arguments(tmp_path / "out", f"sameVersion = [ {pkgs}.python3Packages.jaxlib ];")
    text = said(in_store, tmp_path / "out", fails=True)
    assert "it is 1.0 and needs jaxlib of that version, the package set has 0; take the wheel of that" in text
    assert "make the package anew: `relink nix WHEEL --rocm-major 7 -o DIR`" in text
    nix = in_store.with_tools(jaxlib="1.0")
    path = tmp_path / "out" / "package.nix"
    path.write_text(path.read_text().replace(pkgs, nix.packages()))
    nix.eval(f"({package(nix, tmp_path / 'out')}).drvPath")


def test_torch_without_rocm(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    """bitsandbytes with nixpkgs' stock torch would find no GPU."""
    write(vendor_wheel, tmp_path / "out")
    torch = f"({in_store.packages()}.python3Packages.torch // {{ rocmSupport = false; }})"
    path = tmp_path / "out" / "package.nix"
    path.write_text(path.read_text().replace("dependencies = [", f"dependencies = [ {torch}"))
    assert "torch of this package set was built without ROCm" in said(in_store, tmp_path / "out", fails=True)
    path.write_text(path.read_text().replace("rocmSupport = false", "rocmSupport = true"))
    in_store.eval(f"({package(in_store, tmp_path / 'out')}).drvPath")


def test_a_second_version_by_dlopen_is_told(
    in_store: Nix, vendor_files: Mapping[str, Path], tmp_path: Path
) -> None:
    """What the planner calls RLK130: HIP dlopens comgr, which needs another version of a library that is loaded already."""
    rocm = dict(in_store.tools["rocm"])
    rocm["rocm-runtime"] = {
        name: {"source": "int hsa(void){return 1;}", "needs": []} for name in ("libhsa-runtime64.so.1",)
    }
    rocm["old"] = {"libhsa-runtime64.so.0": {"source": "int hsa(void){return 0;}", "needs": []}}
    rocm["rocm-comgr"] = {"libamd_comgr.so.3": {"source": "int comgr(void){return 0;}", "needs": ["old"]}}
    rocm["clr"] = {
        "libamdhip64.so.7": {"source": "int hip_init(void){return 40;}", "needs": ["rocm-runtime"]}
    }
    nix = in_store.with_tools(rocm=rocm)
    wheel = make_wheel(tmp_path / "wheel", dict(vendor_files), tag=TAG)
    write(wheel, tmp_path / "out")
    plan = json.loads((tmp_path / "out" / "demo.json").read_text())
    assert {"library": "libamdhip64.so", "sonames": ["libamd_comgr.so.*"]} in plan["dlopens"]
    quiet = said(nix, tmp_path / "out")
    assert "RLK130" not in quiet, "HIP's search path does not lead to comgr"
    # nixpkgs' clr has comgr in its search path, which it does not need by NEEDED.
    rocm["clr"]["libamdhip64.so.7"]["finds"] = ["rocm-comgr"]
    text = said(in_store.with_tools(rocm=rocm), tmp_path / "out")
    pair = "libhsa-runtime64.so.1 and libhsa-runtime64.so.0 in one process"
    assert f"relink: warning: demo/a.so: {pair}, one of them by dlopen (relink rules RLK130)" in text
    rocm["clr"]["libamdhip64.so.7"]["needs"] = ["rocm-runtime", "old"]
    text = said(in_store.with_tools(rocm=rocm), tmp_path / "out", fails=True)
    assert "relink: demo/a.so: libhsa-runtime64.so." in text
    assert "in one process (relink rules RLK130)" in text
