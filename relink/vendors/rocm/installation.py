"""An installation of ROCm: which release a provider holds, and whether its HIP is patched to take related processors' code.

Takes a :class:`~relink.providers.prefix.Provider`; gives a :class:`~relink.vendors.protocol.Release`, or None. No document of
AMD's says where a release is recorded, and packages differ, so several files are read, the most exact first: ``.info/version``,
headers, TheRock's manifest, a distribution's changelog, names. Since ROCm 10.0 HIP has a version of its own, 7.15, so it comes
last, through a table, and the evidence says that the release is inferred.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from relink.loader.seen_files import resolve_inside
from relink.providers.nix_store import version_in_store_path
from relink.providers.prefix import NIX_STORE, Provider
from relink.providers.site_packages import list_names_in
from relink.system.errors import raise_if_machine_fault
from relink.system.safe_open import map_file, read_start
from relink.vendors.protocol import Release
from relink.vendors.rocm.facts import ROCM, release_of_hip


def release_of(provider: Provider, sysroot: str = "/") -> Release | None:
    """Return the release of ROCm that a provider holds, or None where nothing says it.

    :param sysroot: the target's; the paths of `provider` are as seen from inside of it.
    """
    if provider.packages:
        package = provider.packages[0]
        # What a builder put behind the release, as a local label, is left out.
        return _release(package.version.partition("+")[0], f"{package.name} {package.version}")
    root = _Root(provider.path, sysroot)
    real = _real_root(provider, sysroot)
    return (
        _in_text(root, _INFO, r"\A\s*")
        or (_in_text(real, _INFO, r"\A\s*", f"{real.path}/") if real else None)
        or _from_rocm_header(root)
        or _in_text(root, _MANIFEST, r'"rocm_(?:package_)?version"\s*:\s*"')
        or _from_changelog(root)
        or _from_name(provider, sysroot, "librocm-core.so.", _CORE_NAME)
        or _from_name(provider, sysroot, _HIP, _OLD_HIP_NAME)
        or _from_directory(root, real)
        or _from_packages(root, real)
        or _from_hip_names(provider, sysroot)
        or _from_hip_header(root)
        or (_from_store_path(provider.libraries) if provider.kind == NIX_STORE else None)
    )


def _release(release: str, evidence: str) -> Release:
    return Release(release, evidence, f"{ROCM}{release}")


_INFO = ".info/version"
# TheRock writes it since 7.13 (build_tools/generate_therock_manifest.py).
_MANIFEST = "share/therock/therock_manifest.json"
_CORE_NAME = re.compile(r"librocm-core\.so\.\d{1,9}\.\d{1,9}\.(?P<packed>\d{5,6})(?:-\S+)?")
_OLD_HIP_NAME = re.compile(
    r"libamdhip64\.so\.(?P<series>\d{1,9}\.\d{1,9})\.(?P<packed>\d{5,6})(?:-\S+)?"
)  # AMD's, up to 6.x
_HIP = "libamdhip64.so."
_HIP_NAME = re.compile(r"libamdhip64\.so\.(\d{1,9})\.(\d{1,9})\.\d{1,9}(?:-\S+)?")
_CORE_DIRECTORY = re.compile(r"core-(?:asan-)?(\d{1,9}\.\d{1,9})")
_PACKAGE = re.compile(r"(amdrocm-[a-z-]+?(\d{1,9}\.\d{1,9}))(?:-gfx[a-z0-9-]+)?\.list")


class _Root(msgspec.Struct, frozen=True):
    """A prefix, as a place to look for what says which release it is."""

    path: str
    sysroot: str

    def head(self, name: str) -> str:
        """The first 16 KiB of a text file in it; empty where there is none."""
        try:
            raw = read_start(resolve_inside(self.sysroot, posixpath.join(self.path, name)), 65536)
            if name.endswith(".gz"):
                # A gzip file (31) may expand to any size, so decompression stops after 16 KiB.
                raw = zlib.decompressobj(wbits=31).decompress(raw, 16384)
        except (OSError, zlib.error) as error:
            raise_if_machine_fault(error)
            return ""
        return raw[:16384].decode("utf-8", "replace")

    def names(self, directory: str) -> list[str]:
        """Return what a directory in it holds; nothing where there is none."""
        return list_names_in(posixpath.join(self.path, directory), self.sysroot)


def _in_text(root: _Root, name: str, pattern: str, shown: str = "") -> Release | None:
    """The release that a file says, by the pattern of what stands before the number."""
    match = re.search(rf"{pattern}(\d{{1,9}}\.\d{{1,9}}(?:\.\d{{1,9}})?)", root.head(name))
    return _release(match[1], f"{shown}{name}") if match else None


def _from_rocm_header(root: _Root) -> Release | None:
    for name in ("include/rocm-core/rocm_version.h", "include/rocm_version.h"):
        if numbers := _defined(root.head(name), "ROCM_VERSION", ("MAJOR", "MINOR", "PATCH")):
            return _release(numbers, name)
    return None


def _from_changelog(root: _Root) -> Release | None:
    """Debian's packages say the upstream release in the first line of their changelog."""
    matches = [re.fullmatch(r"libamdhip64-(\d{1,9})", name) for name in root.names("share/doc")]
    packages = sorted(((int(match[1]), match[0]) for match in matches if match), reverse=True)
    # The newest HIP runtime speaks for the prefix.
    for _, package in packages:
        relative = f"share/doc/{package}/changelog.Debian.gz"
        if match := re.match(r"\S+ \((?:\d+:)?(\d{1,9}\.\d{1,9}(?:\.\d{1,9})?)", root.head(relative)):
            return _release(match[1], relative)
    return None


def _real_root(provider: Provider, sysroot: str) -> _Root | None:
    """The prefix that the runtime really lies in, where links lead to another one: ``/opt/rocm/lib`` is ``core-10.1/lib``."""
    path = next((paths[0] for name, paths in provider.libraries.items() if name.startswith(_HIP)), None)
    if path is None:
        return None
    real = posixpath.dirname(os.path.realpath(resolve_inside(sysroot, posixpath.dirname(path))))
    outside = sysroot.rstrip("/")
    seen = real.removeprefix(outside) if real.startswith(f"{outside}/") else real
    return _Root(seen, sysroot) if seen != posixpath.normpath(provider.path) else None


def _real_names(provider: Provider, sysroot: str, start: str) -> Iterator[str]:
    for soname, paths in provider.libraries.items():
        if soname.startswith(start):
            yield posixpath.basename(os.path.realpath(resolve_inside(sysroot, paths[0])))


def _from_name(provider: Provider, sysroot: str, start: str, pattern: re.Pattern[str]) -> Release | None:
    """``librocm-core.so.1.0.71300`` is ROCm 7.13.0, ``libamdhip64.so.6.2.60204`` is 6.2.4; of several the newest counts."""
    found: list[tuple[tuple[int, int, int], str]] = []
    for name in _real_names(provider, sysroot, start):
        if match := pattern.fullmatch(name):
            packed = int(match["packed"])
            numbers = packed // 10000, packed // 100 % 100, packed % 100
            # libamdhip64.so.7.2.53211 has the number of a build at its end, which does not say 7.2 once more.
            if match.groupdict().get("series", f"{numbers[0]}.{numbers[1]}") == f"{numbers[0]}.{numbers[1]}":
                found.append((numbers, name))
    return _release(".".join(map(str, max(found)[0])), max(found)[1]) if found else None


def _from_directory(*roots: _Root | None) -> Release | None:
    """``/opt/rocm/core-10.1``, where AMD's packages lie side by side since 7.14."""
    names = [posixpath.basename(root.path.rstrip("/")) for root in roots if root]
    match = next(filter(None, map(_CORE_DIRECTORY.fullmatch, names)), None)
    return _release(match[1], match[0]) if match else None


def _from_packages(*roots: _Root | None) -> Release | None:
    """``amdrocm-runtime10.1`` of dpkg, where the packages of one release alone are installed; they lie in /opt/rocm."""
    root = next((root for root in roots if root and root.path.startswith("/opt/rocm")), None)
    names = _Root("/var/lib/dpkg", root.sysroot).names("info") if root else []
    matches = [match for name in names if (match := _PACKAGE.fullmatch(name))]
    first = min((match[1] for match in matches), default="")
    series = {match[2] for match in matches}
    return _release(series.pop(), f"package {first}") if len(series) == 1 else None


def _from_hip_names(provider: Provider, sysroot: str) -> Release | None:
    """``libamdhip64.so.7.2.53211`` only tells HIP 7.2 and a build number."""
    found = [
        ((int(match[1]), int(match[2])), name)
        for name in _real_names(provider, sysroot, _HIP)
        if (match := _HIP_NAME.fullmatch(name))
    ]
    return _inferred(*max(found)) if found else None


def _inferred(hip: tuple[int, int], evidence: str) -> Release | None:
    release = release_of_hip(hip)
    return _release(release, f"{evidence}, inferred from HIP {hip[0]}.{hip[1]}") if release else None


def _from_hip_header(root: _Root) -> Release | None:
    # The third number of HIP is that of a build and not of ROCm, so only two are read.
    name = "include/hip/hip_version.h"
    numbers = _defined(root.head(name), "HIP_VERSION", ("MAJOR", "MINOR"))
    major, _, minor = numbers.partition(".")
    return _inferred((int(major), int(minor)), name) if numbers else None


def _defined(text: str, prefix: str, parts: Sequence[str]) -> str:
    """The numbers that a header defines, joined by dots; empty where one is missing."""
    found = [
        re.search(rf"^\s*#\s*define\s+{prefix}_{part}\s+(\d{{1,9}})\b", text, re.MULTILINE) for part in parts
    ]
    return ".".join(match[1] for match in found if match) if all(found) else ""


def _from_store_path(libraries: Mapping[str, Sequence[str]]) -> Release | None:
    """The version in the name of the store path that has the HIP runtime: nixpkgs gives all of ROCm one version."""
    paths = (paths[0] for soname, paths in libraries.items() if soname.startswith(_HIP))
    found = next(filter(None, map(version_in_store_path, paths)), None)
    return _release(*found) if found else None


_DEBIAN = re.compile(r"/usr/lib/[a-z0-9_]+-linux-gnu/libamdhip64\.so\.(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
# Builds of Debian's HIP: the first with the patch, and that of 6.4.3, which dropped it.
_DEBIAN_BUILDS = (5, 7), (6, 4, 43484)

# Functions of the patch, as they are in the names of local symbols. The third is misspelt there.
_FUNCTIONS = (
    b"isGfx1030EquivalentProcessor",
    b"isGfx1030CompatibleProcessor",
    b"getCompatiblityScore",
)


def extended_by(providers: Iterable[Provider], runtime: str) -> str | None:
    """Return whose patch makes the HIP runtime take related processors' code, as a phrase, or None for a stock one.

    Gfx1030's code runs on a gfx1031 then, say; stock HIP refuses. Two distributions patch it: nixpkgs since 6.0 (rocm-modules:
    "extend ISA compatibility", tried there by test-isa-compat.nix), Debian up to 6.4.2. The patch ("Improve hipamd compat check",
    hip_code_object.cpp) adds static functions and no exported symbol; its strings are so short that compilers put them into
    instructions. A build that keeps local symbols, as nixpkgs' does (``strip --strip-debug``), shows their names. Debian's has
    none, and its version decides; no directory's name does. It concerns code that HIP itself selects. comgr, which unpacks
    compressed bundles, is not patched.

    :param runtime: the soname of the HIP runtime, or its name without the version.
    """
    names = (runtime, *(f"{runtime}.{major}" for major in (7, 6, 5)))
    for provider in providers:
        path = next((place for name in names if (place := provider.find(name))), None)
        if path is None:
            continue
        if function := _function_of_the_patch(path):
            return f"the HIP of {provider.path}, which has the patch's function {function}"
        real = posixpath.join(posixpath.dirname(path), os.path.basename(os.path.realpath(path)))
        found = _DEBIAN.search(real)
        build = tuple(map(int, found.groups())) if found else ()
        if _DEBIAN_BUILDS[0] <= build < _DEBIAN_BUILDS[1]:
            return "Debian's HIP before 6.4.3"
        return None
    return None


def _function_of_the_patch(path: str) -> str | None:
    with contextlib.suppress(OSError), map_file(os.path.realpath(path)) as library:
        return next((name.decode() for name in _FUNCTIONS if library.find(name) >= 0), None)
    return None
