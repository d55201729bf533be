"""Real wheels built by the packages that `relink nix` writes, against one output for each package of Debian's ROCm.

RELINK_PYTHON_3_12 names an interpreter of an installation that can be copied (pyenv's, python-build-standalone's).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.system.safe_open import map_file
from tests.nix.stores import ROOT, confined
from tests.nix.test_hook import hooked, site
from tests.nix.worlds import CASES, World
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
