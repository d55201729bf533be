"""An installation of ROCm: which release a provider holds.

Takes a :class:`~relink.providers.prefix.Provider`; gives a :class:`~relink.vendors.protocol.Release`, or None. No document of
AMD's says where a release is recorded, and packages differ, so several files are read, the most exact first.
"""

from __future__ import annotations

import os
import posixpath
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relink.loader.seen_files import resolve_inside
from relink.providers.nix_store import NIX_STORE, version_in_store_path
from relink.providers.prefix import InstalledPackage, Provider
from relink.system.safe_open import read_start
from relink.system.system_errors import raise_if_machine_fault
from relink.vendors.protocol import Release

__all__ = ["release_of"]


def release_of(provider: Provider, sysroot: str = "/") -> Release | None:
    """Return the release of ROCm that a provider holds, or None where nothing says it.

    :param sysroot: the target's; the paths of `provider` are as seen from inside of it.
    """
    if provider.packages:
        return Release(*_of_package(provider.packages[0]))
    root = _Root(provider.path, sysroot)
    return (
        _from_info(root)
        or _from_rocm_header(root)
        or _from_changelog(root)
        or _from_library_names(provider.libraries, sysroot)
        or _from_hip_header(root)
        or (_from_store_path(provider.libraries) if provider.kind == NIX_STORE else None)
    )


def _of_package(package: InstalledPackage) -> tuple[str, str]:
    """The release is the distribution's version, without what a builder put behind it."""
    return package.version.partition("+")[0], f"{package.name} {package.version}"


@dataclass(frozen=True, slots=True)
class _Root:
    """A prefix, as a place to look for what says which release it is."""

    path: str
    sysroot: str

    def head(self, name: str) -> str:
        """The first 16 KiB of a text file in it; empty where there is none."""
        try:
            raw = read_start(resolve_inside(self.sysroot, posixpath.join(self.path, name)), 65536)
            if name.endswith(".gz"):
                raw = zlib.decompressobj(wbits=31).decompress(raw, 16384)
        except OSError as error:
            raise_if_machine_fault(error)
            return ""
        except zlib.error:
            return ""
        return raw[:16384].decode("utf-8", "replace")

    def names(self, directory: str) -> list[str]:
        """What a directory in it holds; nothing where there is none."""
        try:
            return os.listdir(resolve_inside(self.sysroot, posixpath.join(self.path, directory)))
        except OSError as error:
            raise_if_machine_fault(error)
            return []


def _from_info(root: _Root) -> Release | None:
    match = re.match(r"\s*(\d{1,9}\.\d{1,9}(?:\.\d{1,9})?)", root.head(".info/version"))
    return Release(match[1], ".info/version") if match else None


def _from_rocm_header(root: _Root) -> Release | None:
    for name in ("include/rocm-core/rocm_version.h", "include/rocm_version.h"):
        numbers = _defined(root.head(name), "ROCM_VERSION", ("MAJOR", "MINOR", "PATCH"))
        if numbers:
            return Release(numbers, name)
    return None


def _from_changelog(root: _Root) -> Release | None:
    """Debian's packages say the upstream release in the first line of their changelog."""
    matches = [re.fullmatch(r"libamdhip64-(\d{1,9})", name) for name in root.names("share/doc")]
    packages = sorted(((int(match[1]), match[0]) for match in matches if match), reverse=True)
    for _, package in packages:  # the newest HIP runtime speaks for the prefix
        relative = f"share/doc/{package}/changelog.Debian.gz"
        match = re.match(r"\S+ \((?:\d+:)?(\d{1,9}\.\d{1,9}(?:\.\d{1,9})?)", root.head(relative))
        if match:
            return Release(match[1], relative)
    return None


def _from_library_names(libraries: Mapping[str, Sequence[str]], sysroot: str) -> Release | None:
    """``libamdhip64.so.6.2.60204`` is ROCm 6.2.4; ``libamdhip64.so.7.2.53211`` only tells 7.2 and a build number."""
    best: tuple[tuple[int, ...], Release] | None = None
    for soname, paths in libraries.items():
        if not soname.startswith("libamdhip64.so."):
            continue
        name = posixpath.basename(os.path.realpath(resolve_inside(sysroot, paths[0])))
        match = re.fullmatch(r"libamdhip64\.so\.(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-\S+)?", name)
        if not match:
            continue
        major, minor, build = (int(part) for part in match.groups())
        encoded = build // 10000 == major and build // 100 % 100 == minor
        release = f"{major}.{minor}.{build % 100}" if encoded else f"{major}.{minor}"
        key = tuple(int(part) for part in release.split("."))
        if best is None or key > best[0]:
            best = (key, Release(release, name))
    return best[1] if best else None


def _from_hip_header(root: _Root) -> Release | None:
    name = "include/hip/hip_version.h"  # its third number is a build, not ROCm's
    numbers = _defined(root.head(name), "HIP_VERSION", ("MAJOR", "MINOR"))
    return Release(numbers, name) if numbers else None


def _defined(text: str, prefix: str, parts: Sequence[str]) -> str:
    """The numbers that a header defines, joined by dots; empty where one is missing."""
    found = [
        re.search(rf"^\s*#\s*define\s+{prefix}_{part}\s+(\d{{1,9}})\b", text, re.MULTILINE) for part in parts
    ]
    return ".".join(match[1] for match in found if match) if all(found) else ""


def _from_store_path(libraries: Mapping[str, Sequence[str]]) -> Release | None:
    """The version in the name of the store path that has the HIP runtime: nixpkgs gives all of ROCm one version."""
    for soname, paths in libraries.items():
        if soname.startswith("libamdhip64.so.") and (found := version_in_store_path(paths[0])):
            return Release(*found)
    return None
