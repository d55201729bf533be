"""The package that `relink nix` writes, built by real Nix with the stand-in for nixpkgs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relink.cli import app
from relink.elf.image import map_file, read_image
from relink.loader.target import find_target
from tests.nix.conftest import PYTHON, Nix


def write(wheel: Path, directory: Path, *options: str, code: int = 0, url: str | None = "file") -> str:
    address = [] if url is None else ["--url", f"file://{wheel}"]
    run = CliRunner().invoke(app, ["nix", str(wheel), "-o", str(directory), *address, *options])
    assert run.exit_code == code, run.output
    return run.output


def package(nix: Nix, directory: Path, more: str = "{ }", **arguments: str) -> str:
    return f"{nix.packages(**arguments)}.python3Packages.callPackage {directory}/package.nix {more}"


def stores(nix: Nix, *attributes: str) -> list[str]:
    return [str(nix.build(f"{nix.packages()}.{attribute}")) for attribute in attributes]


def check_built(nix: Nix, built: Path, *, ordered: bool = True) -> None:
    """What the package has; the order of the search path is that of the prefixes, which a closure does not say."""
    library = built / f"lib/python{PYTHON}/site-packages/demo/a.so"
    with map_file(str(library)) as buffer:
        image = read_image(buffer, "a.so")
    assert image.needed == ("libamdhip64.so.7", "librocm_smi64.so.1", "libstdc++.so.6")
    clr, smi, gcc, libc = stores(nix, "rocmPackages.clr", "rocmPackages.rocm-smi", "gcc", "libc")
    entries = (image.search_path or "").split(":")
    wanted = ["$ORIGIN", f"{clr}/lib", f"{smi}/lib", f"{gcc}/lib"]
    assert entries == wanted if ordered else (entries[0] == "$ORIGIN" and sorted(entries) == sorted(wanted))
    assert nix.references(built) == {clr, smi, gcc}
    loader = Path(libc, "lib", Path(find_target().interpreter).name)
    listed = subprocess.run(
        [loader, "--inhibit-cache", "--list", library], capture_output=True, text=True, check=True
    ).stdout
    paths = [line.split("=> ")[1].split(" (")[0] for line in listed.splitlines() if "=> " in line]
    assert len(paths) == 4
    assert all(path.startswith(str(nix.root / "store")) for path in paths)


def test_made_from_the_table(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    output = write(vendor_wheel, tmp_path / "out")
    assert "RLK710" in output
    built = in_store.build(package(in_store, tmp_path / "out"))
    check_built(in_store, built)
    again = in_store.run(
        "nix-build", "--no-out-link", "--check", "--expr", package(in_store, tmp_path / "out")
    )
    assert again.stdout.strip() == str(built)


@pytest.mark.parametrize("how", ["prefixes", "closure"])
def test_proved_with_store_paths(in_store: Nix, vendor_wheel: Path, tmp_path: Path, how: str) -> None:
    clr, smi = stores(in_store, "rocmPackages.clr", "rocmPackages.rocm-smi")
    option = {"prefixes": "--prefix", "closure": "--nix-closure"}[how]
    output = write(vendor_wheel, tmp_path / "out", option, clr, option, smi)
    assert "RLK710" not in output
    check_built(in_store, in_store.build(package(in_store, tmp_path / "out")), ordered=how == "prefixes")
