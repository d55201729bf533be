"""Store paths as providers, and what keeps them alive: references of a wheel in a store, garbage collector roots."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relink.cli import app
from relink.loader.target import find_target
from relink.make.added_members import STORE_MEMBER
from relink.providers.nix_store import (
    closure_of,
    find_compiler_runtime,
    open_closure,
    open_place,
    store_directory,
    store_path,
    version_in_store_path,
)
from relink.runs.questions import inspect
from relink.system.errors import ProviderError
from relink.vendors.rocm.places import release_of
from tests.nix.stores import Nix
from tests.nix.test_hook import stores
from tests.support.cc import shared

CHOSEN = [
    "--allow-missing",
    "none",
    "--ignore",
    "RLK109",
    "--substitute",
    "librocm_smi64.so.7=librocm_smi64.so.1",
]


def relinked(wheel: Path, directory: Path, *options: str) -> tuple[Path, str]:
    run = CliRunner().invoke(app, ["run", str(wheel), "-o", str(directory), *options])
    assert run.exit_code == 0, run.output
    return next(directory.glob("*.whl")), run.output


def join(nix: Nix) -> Path:
    """What symlinkJoin makes: directories of links; and a directory that is one link as a whole."""
    return nix.build(
        f"let pkgs = {nix.packages()}; in pkgs.runCommand \"join\" {{ }} ''mkdir -p $out/lib; "
        "ln -s ${pkgs.rocmPackages.clr}/lib/* ${pkgs.rocmPackages.rocm-smi}/lib/* $out/lib/; "
        "ln -s ${pkgs.rocmPackages.rocblas}/lib $out/lib64; :''"
    )


def test_the_store_is_asked_for(in_store: Nix, monkeypatch: pytest.MonkeyPatch) -> None:
    nix = in_store
    assert store_directory() == str(nix.root / "store")
    item = f"{nix.root}/store/{'a' * 32}-rocblas-gfx1030-7.2.3"
    assert store_path(f"{item}/lib/x.so") == item
    assert version_in_store_path(item) == ("7.2.3", "rocblas-gfx1030-7.2.3")
    assert store_path(f"/elsewhere/{'a' * 32}-x/lib") is None
    assert store_path("/usr/lib") is None
    monkeypatch.delenv("NIX_STORE_DIR")
    for name in ("NIX_STATE_DIR", "NIX_LOG_DIR"):
        monkeypatch.delenv(name)
    there = os.path.lexists("/nix")
    asked = nix.run(
        *(
            "env",
            "-u",
            "NIX_STORE_DIR",
            "nix-instantiate",
            "--eval",
            "--store",
            "dummy://",
            "-E",
            "builtins.storeDir",
        )
    ).stdout
    assert store_directory() == asked.strip().strip('"')
    assert os.path.lexists("/nix") == there  # asking makes nothing
    monkeypatch.setenv("PATH", "/nowhere")
    from relink.providers import nix_store  # noqa: PLC0415

    nix_store.store_directory_by_nix.cache_clear()
    assert store_directory() is None
    assert store_path(f"{item}/lib") is None


def test_joins_and_profiles_are_seen_through(in_store: Nix) -> None:
    clr, smi, blas = stores(in_store, "rocmPackages.clr", "rocmPackages.rocm-smi", "rocmPackages.rocblas")
    profile = in_store.root / "profile"
    in_store.run("nix-env", "-p", profile, "-i", clr, smi, blas)
    for place in (join(in_store), profile):
        provider = open_place(str(place), find_target())
        assert provider.kind == "nix-store"
        assert set(provider.directories) == {f"{clr}/lib", f"{smi}/lib", f"{blas}/lib"}
        assert provider.find("libamdhip64.so.7") == f"{clr}/lib/libamdhip64.so.7"
        assert provider.find("librocblas.so.5") == f"{blas}/lib/librocblas.so.5"
        rocm = release_of(provider)
        assert rocm is not None
        assert rocm.release == "7.2.4"
    for link in in_store.root.glob("profile*"):  # it is a root
        link.unlink()


def test_a_system_of_nixos_is_seen_through(in_store: Nix) -> None:
    """/run/current-system is a link to a store path, in which `sw` is one to another, which has nothing but links."""
    clr, smi, blas = stores(in_store, "rocmPackages.clr", "rocmPackages.rocm-smi", "rocmPackages.rocblas")
    system = in_store.build(
        f'let pkgs = {in_store.packages()}; in pkgs.runCommand "nixos-system" {{ }} '
        f"''mkdir $out; ln -s {join(in_store)} $out/sw; :''"
    )
    current = in_store.root / "current-system"
    current.symlink_to(system)
    provider = open_place(f"{current}/sw", find_target())
    current.unlink()
    assert set(provider.directories) == {f"{clr}/lib", f"{smi}/lib", f"{blas}/lib"}


def test_libstdcxx_of_the_store_is_found_through_what_was_built_with_it(in_store: Nix) -> None:
    names = ("rocmPackages.clr", "rocmPackages.rocm-smi", "machine.compiler.lib", "machine.compiler.libgcc")
    clr, smi, gcc, libgcc = stores(in_store, *names)
    target = find_target()
    places = open_place(clr, target), open_place(smi, target)
    assert [found.directories for found in find_compiler_runtime(places, target)] == [
        (f"{gcc}/lib", f"{libgcc}/lib")
    ]
    assert find_compiler_runtime((*places, open_place(gcc, target)), target) == ()


def test_a_library_that_wants_a_newer_c_library(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    """That of the target's loader is what counts, and the error says whose it is."""
    script = tmp_path / "map"
    script.write_text("GLIBC_2.99 { global: tomorrow; };\n")
    libc = shared(
        tmp_path / "libc.so.6", "int tomorrow(void){return 1;}", flags=[f"-Wl,--version-script={script}"]
    )
    new = shared(
        tmp_path / "libamdhip64.so.7",
        "extern int tomorrow(void); int hip_init(void){return tomorrow();}",
        needed=[libc],
    )
    clr = str(
        in_store.build(
            f'{in_store.packages()}.runCommand "clr-7.2.4" {{ }} '
            f"''mkdir -p $out/lib; cp {new} $out/lib/libamdhip64.so.7; :''"
        )
    )
    smi, gcc = stores(in_store, "rocmPackages.rocm-smi", "machine.compiler.lib")
    prefixes = [word for path in (clr, smi, gcc) for word in ("--prefix", path)]
    for command in ("run", "nix"):
        out = tmp_path / command
        run = CliRunner().invoke(app, [command, str(vendor_wheel), "-o", str(out), *CHOSEN, *prefixes])
        assert run.exit_code == 1
        assert "error RLK301" in run.output
        assert "GLIBC_2.99" in run.output
        assert not list(out.glob("*"))


def test_a_link_keeps_the_name_that_is_asked_for(in_store: Nix) -> None:
    """libx.so.1 → libx.so.1.2 of another store path that has no libx.so.1: the loader asks for the former."""
    built = in_store.build(
        f'let pkgs = {in_store.packages()}; real = pkgs.runCommand "real" {{ }} '
        "''mkdir -p $out/lib; cp ${pkgs.rocmPackages.clr}/lib/libamdhip64.so.7 $out/lib/libx.so.1.2; :''; in "
        "pkgs.runCommand \"link\" { } ''mkdir -p $out/lib; ln -s ${real}/lib/libx.so.1.2 $out/lib/libx.so.1; :''"
    )
    provider = open_place(str(built), find_target())
    assert provider.libraries == {"libx.so.1": (f"{built}/lib/libx.so.1",)}


def test_a_closure_without_its_c_library(in_store: Nix, tmp_path: Path) -> None:
    (libc,) = stores(in_store, "machine.libc")
    built = in_store.build(
        f'let pkgs = {in_store.packages()}; in pkgs.runCommand "all" {{ }} '
        "''mkdir $out; echo ${pkgs.rocmPackages.rocblas} ${pkgs.stdenv.cc.libc} > $out/uses; :''"
    )
    assert libc in closure_of(str(built))
    providers = open_closure(str(built), find_target())
    assert {os.path.basename(item.path)[33:] for item in providers} == {
        "rocblas-7.2.4",
        "clr-7.2.4",
        "rocm-runtime-7.2.4",
        "gcc-15.2.0-lib",
        "gcc-15.2.0-libgcc",
    }
    assert not any(item.holds(f"{libc}/lib/libc.so.6") for item in providers)
    with pytest.raises(ProviderError, match="name a path that is in the store"):
        open_closure(str(tmp_path), find_target())
    with pytest.raises(ProviderError, match="no library for the target"):
        open_closure(str(in_store.build(f'{in_store.packages()}.writeText "t" "x"')), find_target())


def test_a_relinked_wheel_names_its_store_paths(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    clr, smi, gcc = stores(in_store, "rocmPackages.clr", "rocmPackages.rocm-smi", "machine.compiler.lib")
    wheel, output = relinked(
        vendor_wheel, tmp_path / "out", *CHOSEN, "--prefix", str(join(in_store)), "--select", "RLK7*"
    )
    assert "RLK701" in output
    with zipfile.ZipFile(wheel) as archive:
        name = next(item for item in archive.namelist() if item.endswith(f".dist-info/{STORE_MEMBER}"))
        assert archive.getinfo(name).compress_type == zipfile.ZIP_STORED
        assert archive.read(name).decode().split() == [clr, smi, gcc]
        record = archive.read(name.replace(STORE_MEMBER, "RECORD")).decode()
    assert f"{name},sha256=" in record
    assert not [found for found in inspect(wheel).findings if found.code == "RLK502"]
    # A derivation that keeps the wheel keeps what it names; without the member it keeps nothing.
    stripped = tmp_path / "stripped.whl"
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(stripped, "w", zipfile.ZIP_DEFLATED) as copy:
        for item in archive.infolist():
            if item.filename != name:
                copy.writestr(item.filename, archive.read(item))
    for path, kept in ((wheel, {clr, smi, gcc}), (stripped, set())):
        built = in_store.build(
            f'let pkgs = {in_store.packages()}; in pkgs.runCommand "kept" {{ inputs = with pkgs.rocmPackages; '
            f"[ clr rocm-smi rocblas pkgs.machine.compiler.lib ]; wheel = \"{path}\"; }} ''cp $wheel $out; :''"
        )
        assert in_store.references(built) == kept


def test_a_prefix_that_is_no_store_path_adds_no_member(
    in_store: Nix, vendor_wheel: Path, tmp_path: Path
) -> None:
    for_store, told = relinked(vendor_wheel, tmp_path / "one", *CHOSEN, "--prefix", str(join(in_store)))
    assert "RLK701" in told
    with zipfile.ZipFile(for_store) as archive:
        assert [name for name in archive.namelist() if name.endswith(STORE_MEMBER)]
    ordinary = tmp_path / "rocm" / "lib"
    ordinary.mkdir(parents=True)
    for path in (join(in_store) / "lib").iterdir():
        (ordinary / path.name).write_bytes(path.read_bytes())
    hsa, gcc = stores(in_store, "rocmPackages.rocm-runtime", "machine.compiler.lib")
    for library in (Path(hsa, "lib", "libhsa-runtime64.so.1"), Path(gcc, "lib", "libstdc++.so.6")):
        (ordinary / library.name).write_bytes(library.read_bytes())
    output_wheel, output = relinked(
        vendor_wheel,
        tmp_path / "two",
        *CHOSEN[:4],
        "--prefix",
        str(ordinary.parent),
        "--local-version",
        "here",
    )
    assert "RLK701" not in output
    with zipfile.ZipFile(output_wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith(STORE_MEMBER)]


def call_installed(directory: Path) -> subprocess.CompletedProcess[str]:
    """Load the installed library with this machine's own Python, and call what calls its three libraries."""
    program = f"import ctypes; print(ctypes.CDLL('{directory}/demo/a.so').g())"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_roots_keep_what_a_wheel_names(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    clr, smi, hsa, blas, gcc = stores(
        in_store,
        *(f"rocmPackages.{name}" for name in ("clr", "rocm-smi", "rocm-runtime", "rocblas")),
        "machine.compiler.lib",
    )
    roots = tmp_path / "venv" / ".relink" / "gcroots"
    options = [*CHOSEN, "--prefix", clr, "--prefix", smi, "--gc-root", str(roots), "--select", "RLK7*"]
    wheel, output = relinked(vendor_wheel, tmp_path / "out", *options)
    assert "RLK701" not in output
    assert "garbage collector roots: 3 in " in output
    assert "They protect what pip installs" in output
    assert {os.readlink(link) for link in roots.iterdir()} == {clr, smi, gcc}
    installed = tmp_path / "venv" / "site-packages"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--target",
        str(installed),
    ]
    subprocess.run([*pip, str(wheel)], check=True)
    in_store.run("nix-collect-garbage")
    assert [Path(path).exists() for path in (clr, smi, gcc, hsa, blas)] == [True, True, True, True, False]
    assert call_installed(installed).stdout == "43\n"
    for link in roots.iterdir():
        link.unlink()
    in_store.run("nix-collect-garbage")
    assert not any(Path(path).exists() for path in (clr, smi, gcc))
    assert "cannot open shared object file" in call_installed(installed).stderr


def test_roots_that_cannot_be_made_are_an_error_of_their_own(
    in_store: Nix, vendor_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clr, smi = stores(in_store, "rocmPackages.clr", "rocmPackages.rocm-smi")
    monkeypatch.setenv("NIX_STATE_DIR", "/proc/nowhere")
    options = [*CHOSEN, "--prefix", clr, "--prefix", smi, "--gc-root", str(tmp_path / "roots")]
    run = CliRunner().invoke(app, ["run", str(vendor_wheel), "-o", str(tmp_path / "out"), *options])
    assert run.exit_code == 1
    assert "RLK703" in run.output
    assert list((tmp_path / "out").glob("*.whl"))
