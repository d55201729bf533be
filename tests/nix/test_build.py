"""The package that `relink nix` writes, built by real Nix with the stand-in for nixpkgs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relink.cli import app
from relink.elf.image import read_image
from relink.elf.patchelf import find_patchelf
from relink.loader.target import find_target
from relink.system.errors import ProviderError, UsageError
from relink.system.safe_open import map_file
from tests.nix.conftest import C_CXX, C_GCC, PYTHON, Nix
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import TAG


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
    clr, smi, gcc = stores(nix, "rocmPackages.clr", "rocmPackages.rocm-smi", "gcc")
    entries = (image.search_path or "").split(":")
    wanted = ["$ORIGIN", f"{clr}/lib", f"{smi}/lib", f"{gcc}/lib"]
    assert entries == wanted if ordered else (entries[0] == "$ORIGIN" and sorted(entries) == sorted(wanted))
    assert nix.references(built) == {clr, smi, gcc}
    check_loads(nix, built)


def check_loads(nix: Nix, built: Path, member: str = "demo/a.so") -> None:
    """The loader of the stand-in's C library, by itself, finds everything, and all of it in the store."""
    library = built / f"lib/python{PYTHON}/site-packages" / member
    (libc,) = stores(nix, "libc")
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


@pytest.mark.parametrize("first", ["gcc", "libgcc"])
def test_a_compiler_in_several_outputs(
    in_store: Nix, vendor_files: Mapping[str, Path], tmp_path: Path, first: str
) -> None:
    """libgcc_s.so.1 beside libstdc++ is a link into an output of its own: whichever is found first, the plan evaluates."""
    library = shared(tmp_path / "libgcc_s.so.1", C_GCC)
    cxx = shared(tmp_path / "libstdc++.so.6", C_CXX)
    used = "extern int unwind(void), cxx(void); int u(void){return unwind() + cxx();}"
    user = shared(tmp_path / "user.so", used, needed=[library, cxx], flags=["-Wl,-rpath,/opt/rocm/lib"])
    wheel = make_wheel(tmp_path / "wheel", {**vendor_files, "demo/user.so": user}, tag=TAG)
    names = ["rocmPackages.clr", "rocmPackages.rocm-smi", "gcc", "stdenv.cc.cc.libgcc"]
    clr, smi, gcc, libgcc = stores(in_store, *names)
    compiler = (gcc, libgcc) if first == "gcc" else (libgcc, gcc)
    options = [word for path in (clr, smi, *compiler) for word in ("--prefix", path)]
    write(wheel, tmp_path / "out", *options)
    plan = json.loads((tmp_path / "out" / "demo.json").read_text())
    assert {name.removeprefix("rocmPackages.") for name in plan["libraries"]} == (
        {"clr", "rocm-smi", "stdenv.cc.cc"} | ({"stdenv.cc.cc.libgcc"} if first == "libgcc" else set())
    )
    assert all(plan["libraries"].values()), "a path that serves nothing is in the plan"
    built = in_store.build(package(in_store, tmp_path / "out"))
    expected = {clr, smi, gcc} | ({libgcc} if first == "libgcc" else set())
    assert in_store.references(built) == expected


def test_a_root_keeps_the_package(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    write(vendor_wheel, tmp_path / "out")
    link = tmp_path / "result"
    in_store.run("nix-build", "--out-link", link, "--expr", package(in_store, tmp_path / "out"))
    built = link.resolve()
    direct = in_store.references(built)
    assert len(direct) == 3
    blas = Path(stores(in_store, "rocmPackages.rocblas")[0])
    in_store.run("nix-collect-garbage")
    assert all(Path(path).is_dir() for path in direct)
    check_loads(in_store, built)
    assert not blas.exists(), "what nothing refers to is collected, or this test shows nothing"
    link.unlink()
    in_store.run("nix-collect-garbage")
    assert not built.exists()
    assert not any(Path(path).exists() for path in direct)


def test_from_the_index(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    """Without --url it is nixpkgs' fetchPypi that makes the address, of the parts of the name."""
    output = write(vendor_wheel, tmp_path / "out", "-v", url=None)
    assert "RLK712" in output
    nix = in_store.with_tools(index=str(vendor_wheel.parent))
    check_built(nix, nix.build(package(nix, tmp_path / "out")))


@pytest.mark.parametrize("path", [["--remove-rpath"], ["--set-rpath", "/nowhere"]], ids=["rpath", "flatten"])
def test_a_prefix_outside_of_the_store(
    in_store: Nix, vendor_wheel: Path, tmp_path: Path, path: list[str]
) -> None:
    """What its libraries export is checked; that they cannot find each other there is of no concern to a store."""
    ordinary = tmp_path / "rocm" / "lib"
    ordinary.mkdir(parents=True)
    found = stores(in_store, *(f"rocmPackages.{name}" for name in ("clr", "rocm-smi", "rocm-runtime")), "gcc")
    for library in (item for place in found for item in Path(place, "lib").iterdir()):
        (ordinary / library.name).write_bytes(library.read_bytes())
        subprocess.run([find_patchelf().path, *path, ordinary / library.name], check=True)
    output = write(vendor_wheel, tmp_path / "out", "--prefix", str(ordinary.parent))
    assert (
        f"RLK710 {vendor_wheel.name}: checked against {ordinary.parent}; the libraries of nixpkgs" in output
    )
    plan = json.loads((tmp_path / "out" / "demo.json").read_text())
    assert [(file["add"], file["search_path"]["kind"]) for file in plan["files"]] == [([], "runpath")]
    assert plan["proved"] is False
    assert "# No library of a store was at hand" in (tmp_path / "out" / "package.nix").read_text()
    check_built(in_store, in_store.build(package(in_store, tmp_path / "out")))


def test_a_library_that_nixpkgs_lacks(
    in_store: Nix, vendor_files: Mapping[str, Path], tmp_path: Path
) -> None:
    """It is an argument of the package, said in a comment there; without it evaluation fails, with it the package builds."""
    lone = shared(tmp_path / "lone" / "lib" / "librare.so.3", "int rare(void){return 1;}")
    user = shared(tmp_path / "user.so", "extern int rare(void); int u(void){return rare();}", needed=[lone])
    wheel = make_wheel(tmp_path / "wheel", {**vendor_files, "demo/user.so": user}, tag=TAG)
    output = write(wheel, tmp_path / "out")
    assert "RLK711 librare.so.3: asked for as extraLibraries.rare" in output
    text = (tmp_path / "out" / "package.nix").read_text()
    assert (
        "  # nixpkgs has none that relink knows: rare, with lib/librare.so.3\n  extraLibraries ? { },\n"
        in text
    )
    run = in_store.eval(f"({package(in_store, tmp_path / 'out')}).drvPath", check=False)
    assert (
        "there is no extraLibraries.rare (ROCm 7.2.4), which is to have librare.so.3; use a nixpkgs that has it, or pass "
        "extraLibraries.rare = a package with the library in lib/"
    ) in run.stderr
    rare = f"{in_store.packages()}.runCommand \"rare\" {{ }} ''mkdir -p $out/lib; cp {lone} $out/lib/; :''"
    given = f"{{ extraLibraries.rare = {rare}; }}"
    built = in_store.build(package(in_store, tmp_path / "out", given))
    assert str(in_store.build(rare)) in in_store.references(built)


def test_a_store_path_that_nobody_knows(
    in_store: Nix, vendor_files: Mapping[str, Path], tmp_path: Path
) -> None:
    """It is told with the derivation that built it and how to pass that; passed so, the package builds."""
    lone = shared(tmp_path / "lone" / "librare.so.3", "int rare(void){return 1;}")
    user = shared(tmp_path / "user.so", "extern int rare(void); int u(void){return rare();}", needed=[lone])
    wheel = make_wheel(tmp_path / "wheel", {**vendor_files, "demo/user.so": user}, tag=TAG)
    own = f"({in_store.packages()}.runCommand \"own-thing-gfx1030\" {{ }} ''mkdir -p $out/lib; cp {lone} $out/lib/; :'')"
    path = in_store.build(own)
    assert path.name.endswith("-own-thing-gfx1030-0")
    known = stores(in_store, "rocmPackages.clr", "rocmPackages.rocm-smi")
    options = [word for place in (*known, str(path)) for word in ("--prefix", place)]
    output = " ".join(write(wheel, tmp_path / "out", *options).split())
    said = "was built by own-thing-gfx1030-0.drv and has librare.so.3; the attribute is guessed from the path's name"
    assert f"RLK711 {path}: {said}" in output
    assert (
        "If there is no pkgs.own-thing, pass the package: extraLibraries.own-thing = its derivation."
        in output
    )
    run = in_store.eval(f"({package(in_store, tmp_path / 'out')}).drvPath", check=False)
    assert "there is no pkgs.own-thing (ROCm 7.2.4), which is to have librare.so.3" in run.stderr
    built = in_store.build(package(in_store, tmp_path / "out", f"{{ extraLibraries.own-thing = {own}; }}"))
    assert str(path) in in_store.references(built)


@pytest.mark.parametrize("pattern", ["librare", "librare.so.*"])
def test_a_library_that_may_be_missing(
    in_store: Nix, vendor_files: Mapping[str, Path], tmp_path: Path, pattern: str
) -> None:
    lone = shared(tmp_path / "librare.so.3", "int rare(void){return 1;}")
    strip = "-Wl,--enable-new-dtags,-rpath,/opt/rocm/lib"
    user = shared(
        tmp_path / "user.so",
        "extern int rare(void); int u(void){return rare();}",
        needed=[lone],
        flags=[strip],
    )
    wheel = make_wheel(tmp_path / "wheel", {**vendor_files, "demo/user.so": user}, tag=TAG)
    write(wheel, tmp_path / "out", "--allow-missing", pattern)
    built = in_store.build(package(in_store, tmp_path / "out"))
    check_built(in_store, built)
    plan = tmp_path / "out" / "demo.json"
    plan.write_text(plan.read_text().replace(f'"{pattern}"', '"other"'))
    run = in_store.run(
        "nix-build", "--no-out-link", "--expr", package(in_store, tmp_path / "out"), check=False
    )
    assert "relink: demo/user.so: librare.so.3 => not found" in run.stderr


def test_added_libraries_come_behind_the_files_own(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    """The order of symbol look-up: patchelf would put them in front, sorted."""
    write(vendor_wheel, tmp_path / "out")
    plan = tmp_path / "out" / "demo.json"
    data = json.loads(plan.read_text())
    added = ["libzed.so.1", "libbed.so.1", "libaid.so.1"]
    data["files"][0] |= {"add": added}
    data["missing"] = added
    plan.write_text(json.dumps(data))
    built = in_store.build(package(in_store, tmp_path / "out"))
    with map_file(str(built / f"lib/python{PYTHON}/site-packages/demo/a.so")) as buffer:
        needed = read_image(buffer, "a.so").needed
    assert needed == ("libamdhip64.so.7", "librocm_smi64.so.1", "libstdc++.so.6", *added)


def test_a_name_that_no_store_path_can_have(
    in_store: Nix, vendor_files: Mapping[str, Path], tmp_path: Path
) -> None:
    """An epoch, a local version, letters beyond ASCII: the package has a name all the same, and the file is found."""
    wheel = make_wheel(tmp_path / "wheel", vendor_files, name="dé_mo", version="1!2.0+rocm7", tag=TAG)
    run = CliRunner().invoke(app, ["nix", str(wheel), "-o", str(tmp_path / "out")])
    assert isinstance(run.exception, UsageError)
    assert "say --url URL" in str(run.exception)
    assert not (tmp_path / "out").exists()
    copy = tmp_path / "copy.whl"  # the stand-in's fetchurl does not unescape
    copy.write_bytes(wheel.read_bytes())
    address = f"https://example.org/d%C3%A9_mo-1%212.0%2Brocm7-{TAG}.whl"
    write(wheel, tmp_path / "out", "--url", address, url=None)
    plan = tmp_path / "out" / "d-mo.json"
    assert f'"{address}"' in plan.read_text()
    plan.write_text(plan.read_text().replace(address, f"file://{copy}"))
    assert in_store.build(package(in_store, tmp_path / "out")).name.endswith("-d-mo-1-2.0+rocm7")


def test_neither_nix_nor_libraries_are_needed(
    vendor_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "nowhere"))
    output = write(vendor_wheel, tmp_path / "out")
    said = "made from the table for ROCm 7; that the libraries export what it imports, and find each other, was not checked"
    assert f"RLK710 {vendor_wheel.name}: {said}" in output
    assert sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file()) == [
        *(
            "demo.json",
            "isa.json",
            "isa.nix",
            "package.nix",
            "relink-wheel.nix",
            "relink.sh",
            "resolve.nix",
            "shadows.sh",
        )
    ]


def test_a_closure_needs_nix(vendor_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    place = f"{tmp_path}/{'a' * 32}-clr-7.2.4"
    run = CliRunner().invoke(
        app, ["nix", str(vendor_wheel), "-o", str(tmp_path / "out"), "--nix-closure", place]
    )
    assert isinstance(run.exception, ProviderError)
    assert "nix-store cannot be run (No such file or directory); install Nix" in str(run.exception)


def test_libraries_of_a_store_that_do_not_find_each_other(
    in_store: Nix, vendor_wheel: Path, tmp_path: Path
) -> None:
    """What they need is added to NEEDED, and the attributes of what was added are in the search path."""
    hsa = shared(tmp_path / "libhsa-runtime64.so.1", "int hsa(void){return 1;}")
    lost = ["-Wl,--enable-new-dtags,-rpath,/nowhere"]
    source = "extern int hsa(void); int hip_init(void){return hsa();}"
    hip = shared(tmp_path / "libamdhip64.so.7", source, needed=[hsa], flags=lost)
    copied = {name: {"files": {file.name: str(file)}} for name, file in (("clr", hip), ("rocm-runtime", hsa))}
    nix = in_store.with_tools(rocm={"rocm-smi": in_store.tools["rocm"]["rocm-smi"]}, copied=copied)
    found = stores(nix, *(f"rocmPackages.{name}" for name in ("clr", "rocm-smi", "rocm-runtime")), "gcc")
    options = [word for path in found for word in ("--prefix", path)]
    write(vendor_wheel, tmp_path / "out", *options)
    (file,) = json.loads((tmp_path / "out" / "demo.json").read_text())["files"]
    assert file["add"] == ["libhsa-runtime64.so.1"]
    built = nix.build(package(nix, tmp_path / "out"))
    assert nix.references(built) == set(found)
    with map_file(str(built / f"lib/python{PYTHON}/site-packages/demo/a.so")) as buffer:
        image = read_image(buffer, "a.so")
    assert image.needed[-1] == "libhsa-runtime64.so.1"
    assert f"{found[2]}/lib" in (image.search_path or "").split(":")


def test_a_library_of_the_host_is_none_of_the_stores(
    in_store: Nix, vendor_files: Mapping[str, Path], tmp_path: Path
) -> None:
    """The loader of the store has no cache and no /lib: what only the host has is missing."""
    library = shared(tmp_path / "libgcc_s.so.1", "int _Unwind_Backtrace(void){return 1;}")
    used = "extern int _Unwind_Backtrace(void); int u(void){return _Unwind_Backtrace();}"
    user = shared(tmp_path / "user.so", used, needed=[library])
    wheel = make_wheel(tmp_path / "wheel", {**vendor_files, "demo/user.so": user}, tag=TAG)
    cxx = {name: path for name, path in in_store.tools["gcc"].items() if name == "libstdc++.so.6"}
    nix = in_store.with_tools(gcc=cxx)
    clr, smi = stores(nix, "rocmPackages.clr", "rocmPackages.rocm-smi")
    output = write(wheel, tmp_path / "out", "--prefix", clr, "--prefix", smi, code=1)
    assert "error RLK101 libgcc_s.so.1: needed by user.so" in output
