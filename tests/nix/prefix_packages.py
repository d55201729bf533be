"""Packages for the stand-in, made of the libraries of a real prefix: one for each attribute of nixpkgs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from relink.elf.image import read_image
from relink.providers.prefix import soname_stem
from relink.system.safe_open import map_file
from relink.vendors.registry import find_component
from relink.vendors.rocm.facts import dlopens_of

LOADER = "ld-linux-x86-64.so.2"
LIBC = (LOADER, "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1")
COMPILER = ("libstdc++.so.6", "libgcc_s.so.1")


def prefix_packages(libraries: Path, sonames: Iterable[str], *, by_themselves: bool = True) -> dict[str, Any]:
    """Return `libc`, `gcc`, `copied` and `extra` for `Nix.with_tools`: what these sonames need.

    :param by_themselves: the packages find each other by RUNPATH, as nixpkgs' do, what they dlopen included.
    """
    packages: defaultdict[str, dict[str, Any]] = defaultdict(lambda: {"files": {}, "needs": []})
    todo, seen = list(sonames), {*LIBC, *COMPILER}
    while todo:
        soname = todo.pop()
        if soname in seen:
            continue
        seen.add(soname)
        path = _find(libraries, soname)
        with map_file(str(path)) as buffer:
            needed = list(read_image(buffer, soname).needed)
        package = packages[attribute(soname)]
        package["files"][str(path.relative_to(libraries))] = str(path)
        if by_themselves:
            needed += _dlopened(libraries, soname)
            others = {_need(name) for name in needed} - {_need(soname)}
            package["needs"] = sorted({*package["needs"], *others, "libc", "gcc"})
        todo += needed
    named = {
        scope: {
            name.partition(".")[2]: facts
            for name, facts in packages.items()
            if name.partition(".")[0] == scope
        }
        for scope in ("rocmPackages", "pkgs")
    }
    return {
        "libc": {name: str(libraries / name) for name in LIBC},
        "gcc": {name: str(libraries / name) for name in COMPILER},
        "rocm": {},
        "copied": named["rocmPackages"],
        "extra": named["pkgs"],
    }


def attribute(soname: str) -> str:
    """Return the attribute that has it, by relink's table; else one that is called as the library is."""
    known = find_component(soname, 7)
    name = soname_stem(soname).removesuffix(".so").removeprefix("lib")
    return (known and known[0].attribute) or f"pkgs.{name.replace('.', '-')}"


def _need(soname: str) -> str:
    if soname in LIBC:
        return "libc"
    return "gcc" if soname in COMPILER else attribute(soname).partition(".")[2]


def _find(libraries: Path, soname: str) -> Path:
    return next(path for path in (libraries / soname, *libraries.glob(f"*/lib/{soname}")) if path.exists())


def _dlopened(libraries: Path, soname: str) -> list[str]:
    """The sonames among what the table knows: of a library's names the shortest."""
    names = sorted((path.name for path in libraries.iterdir()), key=len)
    found = dlopens_of(soname, tuple(names))
    return list({soname_stem(name): name for name in reversed(names) if name in found}.values())
