"""Real wheels built by the packages that `relink nix` writes, against one output for each package of Debian's ROCm.

RELINK_PYTHON_3_12 names an interpreter of an installation that can be copied (pyenv's, python-build-standalone's).
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relink.cli import app
from relink.elf.image import read_image
from relink.system.safe_open import map_file
from tests.nix.stores import ROOT, confined
from tests.nix.test_hook import hooked, site
from tests.nix.worlds import CASES, World, plain_wheel
from tests.real.conftest import fetch_wheel
from tests.support.cc import shared
from tests.support.wheels import make_wheel

pytestmark = [pytest.mark.real, pytest.mark.slow(reason="packages of whole ROCm libraries are built")]


@pytest.mark.parametrize("name", CASES)
def test_a_wheel_is_built_and_loaded(world: World, name: str) -> None:
    """References are those in search paths; a second build, confined, is identical; the store's loader binds every symbol."""
    nix, package, case = world.nix, world.package(name), CASES[name]
    built = nix.build(package)
    entries: set[str] = set()
    for path in site(built).rglob("*.so*"):
        with map_file(str(path)) as buffer:
            entries |= set((read_image(buffer, path.name).search_path or "").split(":"))
    # What is for other products, such as CUDA, stays as it is.
    store = f"{nix.root}/store/"
    stores = {
        "/".join(entry.split("/")[: store.count("/") + 1]) for entry in entries if entry.startswith(store)
    }
    passed = set(nix.value(f"map (input: input.outPath) {package}.propagatedBuildInputs"))
    assert nix.references(built) == stores | passed
    with confined(nix.tools["link"]) as options:
        log = " ".join(nix.log(package, "--check", *options).split())
    for text in (" Loads", "checked by ld.so for", *case.says):
        assert text in log
    python = nix.build(f"{nix.packages()}.python") / "bin/python3"
    load = nix.run(python, ROOT / "tests/nix/load.py", site(built), f"{nix.root}/store")
    assert ": loaded\n" in load.stdout


def test_a_module_that_wants_an_executable_stack_ends_the_build(world: World, tmp_path: Path) -> None:
    """The store's glibc (2.41 and newer) does not load it, whatever the glibc of this machine does."""
    flags = ["-Wl,-z,execstack"]
    library = shared(tmp_path / "m.so", "int PyInit_m(void){return 1;}", flags=flags)
    files: dict[str, bytes | Path] = {
        "demo/__init__.py": b"",
        "demo/m.cpython-312-x86_64-linux-gnu.so": library,
    }
    wheel = make_wheel(tmp_path / "wheel", files, tag="cp312-cp312-linux_x86_64")
    package = f"{world.nix.packages(hooked(wheel, ''))}.demo"
    log = " ".join(world.nix.log(package, fails=True).split())
    assert "error RLK116 demo/m.cpython-312-x86_64-linux-gnu.so: " in log
    assert "cannot enable executable stack" in log


def as_amd_names_it(wheel: Path, directory: Path) -> Path:
    """A copy with the version and the platform of AMD's own index: no such wheel can be at PyPI."""
    old, new = "1.22.2.post3", "1.18.0"
    path = directory / "onnxruntime_rocm-1.18.0-cp312-cp312-linux_x86_64.whl"
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(path, "w") as sink:
        for item in source.infolist():
            data = source.read(item)
            if item.filename.endswith(("/METADATA", "/WHEEL")):
                data = data.replace(f"Version: {old}".encode(), f"Version: {new}".encode())
                data = data.replace(b"manylinux_2_34_x86_64", b"linux_x86_64")
            elif item.filename.endswith("/RECORD"):
                rows = [line.split(",") for line in data.decode().replace(old, new).splitlines()]
                data = "".join(
                    f"{row[0]},,\n" if "dist-info/" in row[0] else f"{','.join(row)}\n" for row in rows
                ).encode()
            sink.writestr(zipfile.ZipInfo(item.filename.replace(old, new)), data)
    return path


def test_the_way_of_the_owner_of_a_card_that_the_wheel_has_no_code_for(world: World, tmp_path: Path) -> None:
    """Each failure is at evaluation or in one line, and what its line says next is the way on."""
    given = fetch_wheel("onnxruntime-rocm==1.22.2.post3", "onnxruntime_rocm-1.22.2.post3-cp312-*.whl")
    wheel, path = as_amd_names_it(given, tmp_path), tmp_path / "package"
    words = ["nix", str(wheel), "--gpu", "RX 6750 XT", "-o", str(path)]
    refused = CliRunner().invoke(app, words)
    said = "so PyPI does not have it; name its address by --url URL, or the file itself"
    assert said in str(refused.exception)
    written = CliRunner().invoke(app, [*words, "--url", str(wheel)])
    assert written.exit_code == 0, written.output

    def package(rocm: str, more: str = "") -> str:
        numpy = plain_wheel("numpy==2.2.6", "numpy-2.2.6-cp312-*.whl")
        scope = world.nix.with_tools(rocmVersion=rocm).packages(world.dependencies(numpy))
        return f"(((scope: scope.callPackage {path}/package.nix {{ }}) {scope}){more})"

    wrong = world.nix.eval(f"{package('6.4.3')}.drvPath", check=False).stderr
    assert "is marked as broken, refusing to evaluate" in wrong
    others = 'builtins.filter (input: builtins.match ".*hipfft.*" input.name == null) old.buildInputs'
    lacking = f".overridePythonAttrs (old: {{ buildInputs = {others}; relinkGpus = [ ]; }})"
    assert "rocmPackages.hipfft in nixpkgs" in world.nix.log(package("7.2.4", lacking), fails=True)
    log = world.nix.log(package("7.2.4"), fails=True)
    assert "Cannot work yet: no code for this GPU (gfx1031): HSA_OVERRIDE_GFX_VERSION=10.3.0." in log
    assert 'relinkFlags = [ "--allow-isa-gap" ] relinks the wheel all the same.' in log
    allowed = '.overridePythonAttrs (_: { relinkFlags = [ "--allow-isa-gap" ]; })'
    assert "warning RLK401 gfx1031" in world.nix.log(package("7.2.4", allowed))
