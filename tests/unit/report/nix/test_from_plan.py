"""A package from a plan: directories of store paths become attributes; tests/nix builds what is made so."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from relink.elf.symbol_reader import read_symbols
from relink.planning.options import Options
from relink.report.nix.model import File, Package, PathEntry, RunPath
from relink.runs.questions import nix_package
from relink.system.errors import UsageError
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Export, Import, Library, build
from tests.support.rocm_sdk import build as build_sdk
from tests.support.rocm_sdk import tiny_prefix, unpack
from tests.support.wheels import make_wheel
from tests.support.works import TAG

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
ORIGIN_AND_CLR = (PathEntry(text="$ORIGIN"), PathEntry(attribute="rocmPackages.clr"))
ITEM = "0123456789abcdfghijklmnpqrsvwxyz"


def made(directory: Path, *prefixes: Path, needed: tuple[str, ...] = ("libamdhip64.so.7",)) -> Package:
    library = build(Library("liba.so", needed, runpath="$ORIGIN:/opt/rocm/lib"))
    wheel = make_wheel(directory / "wheel", {"demo/__init__.py": b"", "demo/a.so": library}, tag=TAG)
    places = tuple(str(path) for path in prefixes)
    return nix_package(wheel, Options(prefixes=places))


def only(package: Package) -> File:
    (file,) = package.files
    return file


def test_an_ordinary_prefix_proves_nothing_about_a_store(tmp_path: Path) -> None:
    Library("libamdhip64.so.7").write(tmp_path / "rocm" / "lib" / "libamdhip64.so.7")
    package = made(tmp_path, tmp_path / "rocm")
    assert (package.proved, package.rocm) == (False, 7)
    entries = only(package).search_path
    assert entries == RunPath("runpath", ORIGIN_AND_CLR)
    (told,) = [item for item in package.findings if item.code == "RLK710"]
    assert f"checked against {tmp_path}/rocm" in told.message


def test_version_records_that_have_to_be_edited_are_refused(tmp_path: Path) -> None:
    """The functions for Nix call patchelf alone, which leaves the records."""
    copy, node = "librocm_sysdeps_numa.so.1", "AMDROCM_SYSDEPS_1.0_libnuma_1.1"
    library = Library("liba.so", (copy,), imports=(Import("numa_available", node, copy),))
    wheel = make_wheel(tmp_path / "wheel", {"demo/__init__.py": b"", "demo/a.so": build(library)}, tag=TAG)
    numa = Library("libnuma.so.1", exports=(Export("numa_available", "libnuma_1.1"),))
    numa.write(tmp_path / "rocm/lib/libnuma.so.1")
    with pytest.raises(UsageError, match=r"demo/a\.so: version records have to be edited"):
        nix_package(wheel, Options(prefixes=(str(tmp_path / "rocm"),)))


def test_a_stub_comes_with_the_plan_and_behind_every_library(tmp_path: Path) -> None:
    rccl = shared(tmp_path / "old/librccl.so.1", "int ncclGetVersion(int *p){return 0;}")
    source = "int ncclGetVersion(int *); int g(void){return ncclGetVersion(0);}"
    hip = shared(tmp_path / "rocm/lib/libamdhip64.so.7", "int hip(void){return 0;}")
    library = shared(tmp_path / "members/a.so", source, needed=[rccl, hip], flags=["-Wl,--no-as-needed"])
    wheel = make_wheel(tmp_path / "wheel", {"demo/__init__.py": b"", "demo/a.so": library}, tag=TAG)
    options = Options(prefixes=(str(tmp_path / "rocm"),), stub=("auto",))
    package = nix_package(wheel, options)
    (stub,) = package.stubs
    assert (stub.base, stub.path) == ("site-packages", "demo.libs/relink-stubs/librccl.so.1")
    content = base64.b64decode(stub.content)
    assert hashlib.sha256(content).hexdigest() == stub.sha256
    assert read_symbols(content).exports.keys() == {"ncclGetVersion"}
    entries = (PathEntry(attribute="rocmPackages.clr"), PathEntry(text="$ORIGIN/../demo.libs/relink-stubs"))
    assert only(package).search_path == RunPath("runpath", entries)
    assert package.again == "--stub auto"
    assert "RLK125" in [found.code for found in package.findings]


def test_a_rocm_that_pip_installed_is_not_beside_a_package_of_a_store(tmp_path: Path) -> None:
    """Its directories, written with $ORIGIN, become attributes; those of the wheel itself stay."""
    site = tmp_path / "venv" / "lib" / "python3.12" / "site-packages"
    unpack(build_sdk(tiny_prefix(tmp_path / "rocm"), tmp_path), site)
    package = made(tmp_path, tmp_path / "venv")
    assert only(package).search_path == RunPath("runpath", ORIGIN_AND_CLR)


def test_libraries_of_another_python_package(tmp_path: Path) -> None:
    """A member that the plan leaves alone gets torch/lib, too, for the build's dry run; other people's directories go."""
    Library("libamdhip64.so.7").write(tmp_path / "rocm" / "lib" / "libamdhip64.so.7")
    both = build(Library("liba.so", ("libtorch.so", "libamdhip64.so.7"), runpath="/opt/rocm/lib"))
    alone = build(Library("libb.so", ("libc10.so",), runpath="/mnt/build:$ORIGIN"))
    contents: dict[str, bytes | Path] = {
        "demo/__init__.py": b"import torch",
        "demo/a.so": both,
        "demo/b.so": alone,
    }
    wheel = make_wheel(tmp_path / "wheel", contents, tag=TAG)
    package = nix_package(wheel, Options(prefixes=(str(tmp_path / "rocm"),)))
    torch = PathEntry(attribute="pythonPackages.torch", directory="torch/lib")
    found = {file.path: file.search_path for file in package.files}
    assert found == {
        "demo/a.so": RunPath("runpath", (PathEntry(attribute="rocmPackages.clr"), torch)),
        "demo/b.so": RunPath("runpath", (PathEntry(text="$ORIGIN"), torch)),
    }
    assert package.dependencies == ("torch",)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is named as the store's. Without a C library in it, Nix is asked for no closure's loader."""
    monkeypatch.setenv("NIX_STORE_DIR", str(tmp_path / "store"))
    program = tmp_path / "bin" / "nix-store"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nfor last; do :; done; echo $last\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return tmp_path / "store"


def test_a_directory_of_a_store_path_is_an_attribute_and_a_directory(store: Path, tmp_path: Path) -> None:
    Library("libamdhip64.so.7").write(store / f"{ITEM}-clr-7.2.4" / "lib" / "libamdhip64.so.7")
    package = made(tmp_path, store / f"{ITEM}-clr-7.2.4")
    assert package.proved
    assert only(package).search_path == RunPath("runpath", ORIGIN_AND_CLR)
    assert package.libraries == (("rocmPackages.clr", ("libamdhip64.so.7",)),)
    assert not [item for item in package.findings if item.code in ("RLK710", "RLK711")]


def test_a_store_path_of_a_name_that_nobody_knows_is_guessed_and_told(store: Path, tmp_path: Path) -> None:
    item = store / f"{ITEM}-mine-1.0"
    Library("libmine.so.1").write(item / "lib" / "libmine.so.1")
    package = made(tmp_path, item, needed=("libmine.so.1",))
    assert package.libraries == (("pkgs.mine", ("libmine.so.1",)),)
    (told,) = [item for item in package.findings if item.code == "RLK711"]
    assert told.subject == str(item)
    assert "guessed from the path's name" in told.message
