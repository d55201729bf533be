"""autoRelinkHook: builds by the phases and hooks of a set derived from nixpkgs, with a small ROCm."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

from relink.elf.image import read_image
from tests.nix.stores import ROOT, Nix, confined
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import TAG

INPUTS = "clr rocm-smi"


def hooked(wheel: Path, inputs: str = INPUTS, more: str = "") -> str:
    """A package as nixpkgs has those of wheels, with the hook in the place of autoPatchelfHook; a function of the scope."""
    return (
        'scope: with scope; { numpy = installer; demo = buildPythonPackage { pname = "demo"; version = "1.0"; '
        f"pyproject = false; src = {wheel}; nativeBuildInputs = [ autoRelinkHook pypaInstallHook wheelUnpackHook ]; "
        f"buildInputs = with rocmPackages; [ {inputs} ]; {more} }}; }}"
    )


def package(nix: Nix, wheel: Path, inputs: str = INPUTS, more: str = "") -> str:
    return f"{nix.packages(hooked(wheel, inputs, more))}.demo"


def stores(nix: Nix, *attributes: str) -> list[str]:
    return [str(nix.build(f"{nix.packages()}.{attribute}")) for attribute in attributes]


def site(built: Path) -> Path:
    (found,) = built.glob("lib/python*/site-packages")
    return found


def member(built: Path, name: str = "demo/a.so") -> bytes:
    return (site(built) / name).read_bytes()


def vendors(wheel: Path, name: str = "demo/a.so") -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name)


def test_references_are_exact_and_builds_identical(nix: Nix, vendor_wheel: Path) -> None:
    expression = package(nix, vendor_wheel, more='pythonImportsCheck = [ "demo" ];')
    log = nix.log(expression)
    assert "Loads; checked by ld.so for 2 files." in log
    assert "librocm_smi64.so.7 → librocm_smi64.so.1" in log
    assert "RLK701" not in log
    built = nix.build(expression)
    clr, smi, gcc = stores(nix, "rocmPackages.clr", "rocmPackages.rocm-smi", "machine.compiler.lib")
    assert {path for path in nix.references(built) if "-python3-" not in path} == {clr, smi, gcc}
    image = read_image(member(built), "a.so")
    assert (image.runpath or "").split(":") == ["$ORIGIN", *(f"{path}/lib" for path in (clr, smi, gcc))]
    assert member(built, "demo/plain.so") == vendors(
        vendor_wheel, "demo/plain.so"
    )  # strip and others left it alone
    with confined() as options:
        log = nix.log(expression, "--check", *options)
    assert log.count("sandbox") <= 1


def test_a_failure_says_who_needs_what_and_the_attribute_that_has_it(nix: Nix, vendor_wheel: Path) -> None:
    log = " ".join(nix.log(package(nix, vendor_wheel, "rocm-smi"), fails=True).split())
    assert "libamdhip64.so.7: needed by a.so" in log
    assert "rocmPackages.clr in nixpkgs" in log


def test_inputs_that_others_propagate_are_linked_to(nix: Nix, vendor_wheel: Path) -> None:
    """And rocm-smi under either of its two sonames, which are one ABI."""
    more = (
        'propagatedBuildInputs = [ (runCommand "propagates" { } '
        "''mkdir -p $out/nix-support; echo ${rocmPackages.clr} > $out/nix-support/propagated-build-inputs'') ];"
    )
    (clr,) = stores(nix, "rocmPackages.clr")
    assert clr in nix.references(nix.build(package(nix, vendor_wheel, "rocm-smi", more)))


def test_a_stub_is_written_and_what_may_be_missing_is_let_pass(nix: Nix, lost_wheel: Path) -> None:
    assert "librccl.so.1" in nix.log(package(nix, lost_wheel), fails=True)
    built = nix.build(package(nix, lost_wheel, more='relinkStub = [ "librccl.so.1" ];'))
    stub = site(built) / "demo.libs/relink-stubs/librccl.so.1"
    digest = base64.urlsafe_b64encode(hashlib.sha256(stub.read_bytes()).digest()).decode().rstrip("=")
    record = (site(built) / "demo-1.0.dist-info/RECORD").read_text()
    assert f"demo.libs/relink-stubs/librccl.so.1,sha256={digest},{stub.stat().st_size}\n" in record
    nix.build(package(nix, lost_wheel, more='relinkAllowMissing = [ "librccl.so.*" "libother.so.*" ];'))


def test_a_forwarder_is_written(nix: Nix, tmp_path: Path, vendor_files: Mapping[str, Path]) -> None:
    """A library that the wheel opens without a number leads to the one of the set."""
    opener = shared(
        tmp_path / "o.so",
        'extern void *dlopen(const char *, int); void *o(void){return dlopen("libamdhip64.so", 1);}',
        flags=["-ldl"],
    )
    wheel = make_wheel(
        tmp_path / "wheel", {"demo/__init__.py": b"", "demo/o.so": opener, **vendor_files}, tag=TAG
    )
    built = nix.build(package(nix, wheel, more='relinkForward = [ "libamdhip64.so" ];'))
    forwarder = (site(built) / "demo.libs/relink-stubs/libamdhip64.so").read_bytes()
    assert "libamdhip64.so.7" in read_image(forwarder, "forwarder").needed


def test_flags_are_added_and_the_hook_can_be_switched_off(nix: Nix, vendor_wheel: Path) -> None:
    assert "No such option: --odd" in nix.log(
        package(nix, vendor_wheel, more='relinkFlags = [ "--odd" ];'), fails=True
    )
    built = nix.build(
        package(nix, vendor_wheel, more="dontAutoRelink = true; dontStrip = true; dontPatchELF = true;")
    )
    assert member(built) == vendors(vendor_wheel)


def test_postfixup_of_the_package_and_hooks_beside_it_work(nix: Nix, vendor_wheel: Path) -> None:
    """autoAddDriverRunpath adds to what relink wrote, whichever is named first; the package's own postFixup is not the hook's."""
    driver = (
        'driver = makeSetupHook { name = "driver"; } (writeText "driver.sh" '
        "''postFixupHooks+=(addDriver); addDriver() { ${machine.patchelf}/bin/patchelf --add-rpath /run/opengl-driver/lib "
        "$out/${python.sitePackages}/demo/a.so; }'')"
    )
    expression = hooked(vendor_wheel, more="postFixup = ''echo kept > $out/kept'';")
    expression = expression.replace(
        "nativeBuildInputs = [", f"nativeBuildInputs = let {driver}; in [ driver", 1
    )
    built = nix.build(f"{nix.packages(expression)}.demo")
    assert (built / "kept").read_text() == "kept\n"
    entries = (read_image(member(built), "a.so").runpath or "").split(":")
    assert (entries[0], entries[-1]) == ("$ORIGIN", "/run/opengl-driver/lib")


def test_libraries_of_other_python_packages_come_first(nix: Nix, vendor_wheel: Path) -> None:
    """As torch/lib, whose HIP an import has mapped already."""
    other = (
        "other = runCommand \"other\" { } ''mkdir -p $out/${python.sitePackages}/torch/lib; "
        "cp ${rocmPackages.clr}/lib/libamdhip64.so.7 $out/${python.sitePackages}/torch/lib/''"
    )
    more = f"propagatedBuildInputs = let {other}; in [ other ];"
    built = nix.build(package(nix, vendor_wheel, "clr rocm-smi", more))
    entries = (read_image(member(built), "a.so").runpath or "").split(":")
    assert entries[1].endswith("/site-packages/torch/lib")


def test_gpus_are_those_that_the_set_was_narrowed_to(nix: Nix) -> None:
    hook = nix.build(f"{nix.with_tools(localGpuTargets=['gfx1030', 'gfx1031']).packages()}.autoRelinkHook")
    assert "for gpu in gfx1030 gfx1031; do" in (hook / "nix-support/setup-hook").read_text()


def test_load_tells_what_the_loader_refuses(vendor_wheel: Path, tmp_path: Path) -> None:
    """load.py, which the tests of real wheels run."""
    with zipfile.ZipFile(vendor_wheel) as archive:
        archive.extractall(tmp_path)
    noise = 'extern long write(int, const char *, long); __attribute__((constructor)) void c(void){write(2, "noise", 5);}'
    shared(tmp_path / "demo/noise.so", noise)
    run = subprocess.run(
        ["python3", ROOT / "tests/nix/load.py", tmp_path, "/opt/rocm"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert "demo/a.so: OSError: libamdhip64.so.7: cannot open shared object file" in run.stdout
    assert "demo/plain.so: loaded" in run.stdout
    assert "demo/noise.so: loaded" in run.stdout  # what it prints is no failure
