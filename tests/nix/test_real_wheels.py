"""Real wheels: one built with Debian's ROCm in a store and held against its loader; every one that is here, evaluated."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from relink.elf.image import read_image
from relink.system.safe_open import map_file
from tests.nix.conftest import Nix
from tests.nix.prefix_packages import LOADER, prefix_packages
from tests.nix.test_build import write
from tests.nix.test_format import check_format
from tests.real.conftest import fetch_prefix, fetch_wheel

pytestmark = pytest.mark.real

PROVIDER = "onnxruntime/capi/libonnxruntime_providers_migraphx.so"
VISIBLE = {
    "onnxruntime_migraphx-1.27.1-cp312": "onnxruntime-migraphx==1.27.1",
    "onnxruntime_rocm-1.22.2.post3-cp312": "onnxruntime-rocm==1.22.2.post3",
    "onnxruntime_rocm-1.22.2.post3-cp311": None,  # None: looked at where it is, not fetched
    "bitsandbytes-0.50.2": "bitsandbytes==0.50.2",
    "jax_rocm7_pjrt-0.12.0": None,
    "jax_rocm7_plugin-0.12.0": None,
    "cupy_rocm_5_0-13.3.0-cp312": None,
}


@pytest.fixture
def debian(in_store: Nix, request: pytest.FixtureRequest) -> Nix:
    """Packages of Debian's libraries; `param` says whether they find each other by themselves, as nixpkgs' do."""
    libraries = fetch_prefix("small") / "lib" / "x86_64-linux-gnu"

    return in_store.with_tools(
        **prefix_packages(libraries, ("libamdhip64.so.7", "libmigraphx_c.so.3"), by_themselves=request.param)
    )


def store_paths(nix: Nix) -> dict[str, str]:
    """Attribute of a plan → store path."""
    attributes = {f"rocmPackages.{name}": f"rocmPackages.{name}" for name in nix.tools["copied"]}
    attributes |= {f"pkgs.{name}": name for name in nix.tools["extra"]}
    # What lib.getLib takes of a compiler.
    attributes |= {"stdenv.cc.cc": "stdenv.cc.cc.lib", "stdenv.cc.libc": "libc"}
    return {name: str(nix.build(f"{nix.packages()}.{place}")) for name, place in attributes.items()}


def dry_run(loader: Path, library: Path) -> tuple[set[str], set[str]]:
    """What the loader maps (paths), and the symbols that it leaves open, by a call of its own."""
    environment = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", "LD_BIND_NOW": "yes"}
    command: list[str | Path] = [loader, "--inhibit-cache", "--library-path", loader.parent, library]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    text = run.stdout + run.stderr
    assert "not found" not in text, text
    return (
        set(re.findall(r"^\t(?:\S+ => )?(/\S+) \(0x", text, re.MULTILINE)),
        set(re.findall(r"undefined symbol: ([^,\s]+)", text)),
    )


@pytest.mark.parametrize("debian", [True, False], indirect=True, ids=["by-themselves", "flattened"])
def test_migraphx_with_debians_rocm(debian: Nix, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    wheel = fetch_wheel("onnxruntime-migraphx==1.27.1", "onnxruntime_migraphx-1.27.1-cp312-*.whl")
    paths = store_paths(debian)
    loader = Path(paths["stdenv.cc.libc"], "lib", LOADER)
    by_themselves = request.node.callspec.params["debian"]
    if by_themselves:  # the loader and libstdc++ are those that the libraries were built with
        options = ["--prefix", paths["rocmPackages.clr"], "--nix-closure", paths["rocmPackages.migraphx"]]
    else:
        places = [path for attribute, path in paths.items() if attribute != "stdenv.cc.libc"]
        options = [word for path in places for word in ("--prefix", path)]
        options += ["--interpreter", str(loader)]
    output = write(wheel, tmp_path / "out", *options)
    assert "RLK710" not in output
    plan = json.loads((tmp_path / "out" / "onnxruntime-migraphx.json").read_text())
    direct = {"rocmPackages.clr", "rocmPackages.migraphx", "stdenv.cc.cc"}
    assert plan["libraries"].keys() == (direct if by_themselves else paths.keys() - {"stdenv.cc.libc"})
    assert (plan["rocm"], plan["proved"]) == (7, True)

    package = f"{debian.packages()}.python312Packages.callPackage {tmp_path}/out/package.nix {{ }}"
    built = debian.build(package)
    assert debian.references(built) == {paths[attribute] for attribute in plan["libraries"]}
    debian.run("nix-build", "--no-out-link", "--check", "--expr", package)

    provider = next(file for file in plan["files"] if file["path"] == PROVIDER)
    with map_file(str(built / "lib/python3.12/site-packages" / PROVIDER)) as buffer:
        image = read_image(buffer, PROVIDER)
    assert list(image.needed[len(image.needed) - len(provider["add"]) :]) == provider["add"]
    assert bool(provider["add"]) != by_themselves
    entries = [
        item["text"] or f"{paths[item['attribute']]}/{item['directory']}"
        for item in provider["search_path"]["entries"]
    ]
    assert (image.runpath or "").split(":") == entries
    for file in plan["files"]:
        library = built / "lib/python3.12/site-packages" / file["path"]
        mapped, left_open = dry_run(loader, library)
        assert all(path.startswith(f"{debian.root}/store/") for path in mapped), mapped
        assert {symbol for symbol in left_open if not symbol.startswith(("Py", "_Py"))} <= {
            "Provider_GetHost"
        }
    assert (
        f"{paths['rocmPackages.clr']}/lib/libamdhip64.so.7"
        in dry_run(loader, built / "lib/python3.12/site-packages" / PROVIDER)[0]
    )


@pytest.mark.parametrize("debian", [True], indirect=True, ids=["by-themselves"])
def test_a_host_that_is_too_old_for_the_store(debian: Nix, tmp_path: Path) -> None:
    """Debian's newest libraries want a newer glibc than most hosts have; with the store's own loader there is no such error."""
    from relink.loader.target import find_target  # noqa: PLC0415

    if tuple(map(int, find_target().glibc.split("."))) >= (2, 38):
        pytest.skip("this machine's glibc is new enough for these libraries")
    wheel = fetch_wheel("onnxruntime-migraphx==1.27.1", "onnxruntime_migraphx-1.27.1-cp312-*.whl")
    paths = store_paths(debian)
    options = ["--prefix", paths["rocmPackages.clr"], "--nix-closure", paths["rocmPackages.migraphx"]]
    output = write(wheel, tmp_path / "out", *options, "--interpreter", find_target().interpreter, code=1)
    assert "error RLK301" in output
    assert "libraries of the prefixes" in output
    assert "need up to GLIBC_2.43; the target has 2.36" in output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", VISIBLE)
def test_every_wheel_gives_a_package_that_evaluates(in_store: Nix, tmp_path: Path, name: str) -> None:
    """By the table alone: what is written parses, and evaluates to a derivation that asks the index for this file."""
    requirement = VISIBLE[name]
    if requirement is None and not os.environ.get("RELINK_REAL_WHEELS"):
        pytest.skip(f"{name} is looked at only where RELINK_REAL_WHEELS has it")
    wheel = fetch_wheel(requirement or name, f"{name}-*.whl")
    write(wheel, tmp_path, url=None)
    for path in (tmp_path / "package.nix", *(tmp_path / "relink").glob("*.nix")):
        in_store.run("nix-instantiate", "--parse", path)
    if shutil.which("nixfmt"):
        check_format(tmp_path / "package.nix")
    plan = json.loads(next(tmp_path.glob("*.json")).read_text())
    lacking = [
        attribute.partition(".")[2]
        for attribute in plan["libraries"]
        if attribute.startswith("extraLibraries.")
    ]
    rocm: dict[str, Any] = {
        attribute.partition(".")[2]: {}
        for attribute in plan["libraries"]
        if attribute.startswith("rocmPackages.")
    }
    release = f"{plan['rocm'] or 7}.2.4"
    nix = in_store.with_tools(rocm=rocm, jaxlib=plan["version"], rocmVersion=release)
    call = f"{nix.packages()}.python312Packages.callPackage {tmp_path}/package.nix"
    extra = "".join(f"{name} = {nix.packages()}.gcc; " for name in lacking)
    beside = "jax-rocm7-pjrt"
    given = (
        f"{beside} = {nix.packages()}.python312Packages.jaxlib; "
        if f"  {beside},\n" in (tmp_path / "package.nix").read_text()
        else ""
    )
    found = nix.value(
        f"let p = {call} {{ {given}extraLibraries = {{ {extra}}}; }}; in "
        "{ inherit (p) name meta; src = p.src.name; d = p.drvPath; }"
    )
    if lacking:
        assert (
            f"there is no extraLibraries.{lacking[0]}"
            in nix.eval(f"({call} {{ }}).drvPath", check=False).stderr
        )
    assert found["src"] == wheel.name
    assert found["name"] == f"{plan['pname']}-{plan['version']}"
    assert found["meta"]["license"]["spdxId"] in ("MIT", "Apache-2.0")
