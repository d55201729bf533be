"""Store paths and links into a store; a directory stands for the store, and a program for Nix, which tests/nix has itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relink.loader.target import Target, find_target
from relink.providers.nix_store import (
    add_roots,
    closure_of,
    find_compiler_runtime,
    find_loader_in,
    open_closure,
    open_place,
    store_path,
    version_in_store_path,
)
from relink.providers.prefix import NIX_STORE
from relink.system.errors import ProviderError
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
HASH = "0123456789abcdfghijklmnpqrsvwxyz"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    store = tmp_path.resolve() / "store"
    store.mkdir()
    monkeypatch.setenv("NIX_STORE_DIR", str(store))
    return store


@pytest.fixture
def target() -> Target:
    return find_target()


def item(store: Path, name: str, *libraries: Library) -> Path:
    place = store / f"{HASH}-{name}"
    (place / "lib").mkdir(parents=True)
    for library in libraries:
        library.write(place / "lib" / (library.soname or ""))
    return place


def answers(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a nix-store on the path that does what the script says."""
    program = directory / "bin" / "nix-store"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_what_lies_in_the_store(store: Path, tmp_path: Path) -> None:
    place = f"{store}/{HASH}-clr-7.2.3"
    assert store_path(f"{place}/lib/libx.so") == store_path(place) == place
    assert store_path(f"{place}/lib/../../{HASH}-b-1/x") == f"{store}/{HASH}-b-1"
    (tmp_path / "link").symlink_to(store)
    assert store_path(f"{tmp_path}/link/{HASH}-clr-7.2.3") == f"{tmp_path}/link/{HASH}-clr-7.2.3"
    for other in (
        f"{tmp_path}/{HASH}-clr-7.2.3",  # not in the store
        f"{store}/{HASH[:-1]}-clr",  # 31 characters
        f"{store}/{HASH[:-1]}e-clr",  # no letter of Nix' base 32
        f"{store}/{HASH}",
        str(store),
        f"/{HASH}-clr",
    ):
        assert store_path(other) is None, other


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("clr-7.2.3", "7.2.3"),
        ("rocblas-gfx90a-7.2.3-lib", "7.2.3"),
        ("gcc-15.2.0-libgcc", "15.2.0"),
        ("clr-7.2.3-unstable", None),
        ("clr-7.2.3-rc", None),
        ("clr-7.2.3-rcs", "7.2.3"),
        ("python-3-clr-7.2.3", None),
        ("rocprof-unstable-2026-01-02", None),
        ("glibc-2.40-66", None),
        ("hip-7", None),
        ("join", None),
    ],
)
def test_names_and_versions(store: Path, name: str, version: str | None) -> None:
    path = f"{store}/{HASH}-{name}/lib/libx.so"
    assert version_in_store_path(path) == ((version, name) if version else None)


def test_links_are_followed_to_the_name_that_the_loader_asks_for(
    store: Path, tmp_path: Path, target: Target
) -> None:
    clr = item(store, "clr-7.2.3", Library("libhip.so.7"))
    real = item(store, "smi-1.0", Library("librsmi.so.1.2"))
    join = tmp_path / "join"
    (join / "lib").mkdir(parents=True)
    (join / "lib" / "libhip.so.7").symlink_to(clr / "lib" / "libhip.so.7")
    # The last link has another name, which nothing asks for: the link before it is what serves.
    middle = item(store, "middle-1.0")
    (middle / "lib" / "librsmi.so.1").symlink_to(real / "lib" / "librsmi.so.1.2")
    (join / "lib" / "librsmi.so.1").symlink_to(middle / "lib" / "librsmi.so.1")
    provider = open_place(str(join), target)
    assert provider.kind == NIX_STORE
    assert provider.find("libhip.so.7") == f"{clr}/lib/libhip.so.7"
    assert provider.find("librsmi.so.1") == f"{middle}/lib/librsmi.so.1"


def test_a_circle_of_links_ends(store: Path, target: Target) -> None:
    place = item(store, "x-1.0", Library("libx.so.1"))
    (place / "lib" / "liby.so.1").symlink_to("libz.so.1")
    (place / "lib" / "libz.so.1").symlink_to("liby.so.1")
    assert open_place(str(place), target).find("libx.so.1") == f"{place}/lib/libx.so.1"


@pytest.mark.usefixtures("store")
def test_a_prefix_of_files_is_no_store(tmp_path: Path, target: Target) -> None:
    Library("libx.so.1").write(tmp_path / "rocm" / "lib" / "libx.so.1")
    assert open_place(str(tmp_path / "rocm"), target).kind != NIX_STORE


def test_a_closure_without_its_c_library(
    store: Path, tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    libc = item(store, "glibc-2.40", Library("libc.so.6"))
    (libc / "lib" / "ld-linux-x86-64.so.2").touch()
    below, top = item(store, "below-1.0", Library("libb.so.1")), item(store, "top-1.0", Library("liba.so.1"))
    empty = item(store, "source")
    answers(
        tmp_path,
        monkeypatch,
        f'[ "$1 $2 $3" = "--query --requisites {top}" ] && echo {libc} {below} {empty} {top}',
    )
    assert closure_of(str(top)) == (str(libc), str(below), str(empty), str(top))
    found = open_closure(str(top), target)
    assert [provider.path for provider in found] == [str(top), str(below)]
    assert {provider.named for provider in found} == {str(top)}
    assert find_loader_in(str(top)) == f"{libc}/lib/ld-linux-x86-64.so.2"
    with pytest.raises(ProviderError, match="no reason given; name a path that is in the store"):
        closure_of(str(below))


def test_the_compilers_library_is_taken_from_a_search_path(store: Path, target: Target) -> None:
    runtime = item(store, "gcc-14-lib", Library("libstdc++.so.6"))
    clr = item(store, "clr-7.2.3", Library("libhip.so.7", runpath=f"/usr/lib:{runtime}/lib"))
    (found,) = find_compiler_runtime([open_place(str(clr), target)], target)
    assert found.path == str(runtime)
    assert find_compiler_runtime([open_place(str(clr), target), found], target) == ()


def test_what_nix_says_is_in_the_error(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(tmp_path, monkeypatch, "echo first >&2; echo 'error: no daemon' >&2; exit 1")
    with pytest.raises(ProviderError, match=r"^--gc-root .*roots: error: no daemon; name a path"):
        add_roots([f"{store}/{HASH}-x-1"], str(tmp_path / "roots"))
