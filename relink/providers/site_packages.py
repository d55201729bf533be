"""ROCm as pip installs it, as a provider: the packages of one site-packages, recognised by their metadata.

Source: ROCm/TheRock, docs/packaging/python_packaging.md and build_tools/build_python_packages.py: ``rocm-sdk-core`` and
``rocm-sdk-libraries`` (or ``rocm-sdk-libraries-FAMILY``) have a directory each, called as the distribution with ``_`` before it
and perhaps a nonce behind; ``rocm-sdk-device-GPU`` has files in the directory of the libraries. All lie in one site-packages,
since their search paths lead from one to the other by ``$ORIGIN``. Two more have libraries that others link to:
``rocm-profiler`` (the same source), and ``migraphx-libs``, which AMD's page on installing MIGraphX names: its libraries lie in
``migraphx_libs``, and its version has that of ROCm behind it, ``2.17.0+rocm10.0.0``.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from relink.loader.seen_files import resolve_inside
from relink.loader.target import Target
from relink.providers.prefix import MOST_ENTRIES, InstalledPackage, Provider, read_directories
from relink.providers.release_series import series
from relink.system.errors import ProviderError, RelinkError
from relink.system.safe_open import read_bytes, read_text
from relink.system.system_errors import raise_if_machine_fault
from relink.wheel.metadata import read_metadata

__all__ = [
    "SITE_PACKAGES",
    "SitePackages",
    "family_of",
    "find_distribution",
    "find_site_packages",
    "is_rocm_directory",
    "open_site_packages",
    "owners_of",
    "packages_of",
    "without_package",
]

SITE_PACKAGES = "site-packages"
"""The kind of these providers."""

_CORE, _LIBRARIES = "rocm-sdk-core", "rocm-sdk-libraries"
_MORE = {"rocm-profiler": "lib", "migraphx-libs": ""}  # and where their libraries lie, in their directory
_INFO = re.compile(
    r"(rocm(?:[-_.](?:sdk[-_.][A-Za-z0-9_.]+|profiler))?|migraphx[-_.]libs)-([^-]+)\.dist-info", re.IGNORECASE
)
_ANY_INFO = re.compile(r"([A-Za-z0-9._-]+)-([^-]+)\.dist-info")
_DIRECTORY = re.compile(r"_rocm_(?:sdk|profiler)\w*|migraphx_libs", re.ASCII)
_LABEL = re.compile(r"rocm(\d+(?:\.\d+)*)")
_PYTHON = re.compile(r"python3(?:\.\d+t?)?")
_RECORD_LIMIT = 64 << 20  # bytes; that of the libraries of one GPU has half a MiB
_METADATA_LIMIT = 1 << 20
_CORE_DIRECTORIES = ("lib", "lib/host-math/lib", "lib/llvm/lib", "lib/rocm_sysdeps/lib")


@dataclass(frozen=True, slots=True)
class SitePackages:
    """The ROCm that a site-packages has.

    :ivar path: the site-packages, as the target sees it.
    :ivar packages: every distribution of ROCm in it, by name.
    """

    path: str
    packages: tuple[InstalledPackage, ...]

    @property
    def libraries(self) -> tuple[InstalledPackage, ...]:
        """The distributions that have libraries for computing: a neutral one, or one for each family of GPUs."""
        return tuple(item for item in self.packages if _canonical(item.name).startswith(_LIBRARIES))

    @property
    def devices(self) -> tuple[str, ...]:
        """The GPUs that a device package is installed for."""
        start = "rocm-sdk-device-"
        names = (_canonical(item.name) for item in self.packages)
        return tuple(name.removeprefix(start) for name in names if name.startswith(start))

    @property
    def strangers(self) -> tuple[InstalledPackage, ...]:
        """Those that were not built with ``rocm-sdk-core``: of another version, or labelled for another series of ROCm."""
        core = next(item for item in self.packages if _canonical(item.name) == _CORE)
        return tuple(item for item in self.packages if not _belongs_to(item, core))


def is_rocm_directory(name: str) -> bool:
    """Whether a directory in site-packages is called as those of ROCm's packages are."""
    return _DIRECTORY.fullmatch(name) is not None


def find_site_packages(path: str, target: Target) -> str | None:
    """Return the site-packages with ``rocm-sdk-core`` that a user may mean by `path`, or None.

    It may be a virtual environment, a site-packages, or a directory of ROCm in one (``rocm-sdk path --root`` prints such).
    Of an environment with several Pythons it is that of the target's.
    """
    absolute = posixpath.abspath(path)
    if target.sysroot != "/" and absolute.startswith(target.sysroot + "/"):
        absolute = absolute[len(target.sysroot) :]
    places = [absolute]
    if is_rocm_directory(posixpath.basename(absolute)):
        places.append(posixpath.dirname(absolute))
    inside = [
        posixpath.join(absolute, lib, name, packages)
        for lib in ("lib", "lib64")
        for name in _names(posixpath.join(absolute, lib), target)
        if _PYTHON.fullmatch(name)
        for packages in ("site-packages", "dist-packages")
    ]
    facts = target.python_facts
    own = f"/python3.{facts.version[1]}/" if facts is not None else "/"
    places += sorted(inside, key=lambda place: own not in place)
    return next((place for place in places if any(_distributions(place, target, _CORE))), None)


def open_site_packages(path: str, target: Target, gpus: Sequence[str] = ()) -> tuple[Provider, SitePackages]:
    """Read what the ROCm of a site-packages provides to `target`.

    Of several packages of libraries the neutral one is taken, else that for one of `gpus`, else the first.

    :param path: as :func:`find_site_packages` returns it.
    :param gpus: the GPUs that the user asks for (``gfx1100``).
    :raises ProviderError: there is no library for the target in it.
    """
    site = SitePackages(path, packages_of(path, target))
    chosen = [item for item in site.packages if _canonical(item.name) == _CORE]
    chosen += sorted(site.libraries, key=lambda item: _rank(item, gpus))[:1]
    directories = [f"{item.directory}/lib" for item in chosen if item.directory]
    core = chosen[0].directory
    directories += [f"{core}/{place}" for place in _CORE_DIRECTORIES[1:] if core]
    more = [item for item in site.packages if _canonical(item.name) in _MORE and item.directory]
    directories += [posixpath.normpath(f"{item.directory}/{_MORE[_canonical(item.name)]}") for item in more]
    provider = read_directories(SITE_PACKAGES, path, directories, target)
    if not provider.libraries:
        raise ProviderError(
            f"{path}: {_CORE} is installed there, and no library of it can be loaded by the target; install it again",
            [f"{found.path}: {found.reason}" for found in provider.skipped[:10]],
        )
    return replace(provider, packages=(*chosen, *more)), site


def packages_of(path: str, target: Target) -> tuple[InstalledPackage, ...]:
    """Return the distributions of ROCm in a site-packages, by name."""
    return tuple(_distributions(path, target))


def without_package(provider: Provider, name: str) -> Provider:
    """Return a provider without what one distribution has in it: the one that is being relinked, and will be replaced."""
    gone = [item for item in provider.packages if _canonical(item.name) == _canonical(name)]
    places = tuple(f"{provider.path}/{item.directory}/" for item in gone if item.directory)
    if not places:
        return provider
    libraries = {
        soname: left
        for soname, paths in provider.libraries.items()
        if (left := tuple(path for path in paths if not path.startswith(places)))
    }
    return replace(
        provider,
        directories=tuple(place for place in provider.directories if not f"{place}/".startswith(places)),
        libraries=MappingProxyType(libraries),
        packages=tuple(item for item in provider.packages if item not in gone),
    )


def find_distribution(site: str, name: str, target: Target) -> InstalledPackage | None:
    """Return a distribution that is installed in a site-packages, by its name however it is spelled, or None."""
    wanted = _canonical(name)
    return next(_distributions(site, target, wanted, _ANY_INFO), None)


def owners_of(site: str, files: Collection[str], target: Target) -> dict[str, InstalledPackage]:
    """Return the distribution in a site-packages whose RECORD lists a file, by file; one that none lists is left out.

    :param files: their paths in site-packages.
    """
    found: dict[str, InstalledPackage] = {}
    for name in _names(site, target) if files else ():
        if _ANY_INFO.fullmatch(name):
            rows = {
                row.rpartition(",")[0].rpartition(",")[0].strip('"') for row in _record(site, name, target)
            }
            listed = rows.intersection(files)
            if listed and (package := _readable(site, name, target)):
                found |= dict.fromkeys(listed, package)
    return found


def family_of(package: InstalledPackage) -> str | None:
    """Return the family of GPUs that a package of libraries is for, ``gfx110X-all``; None: the package is neutral."""
    return _canonical(package.name).removeprefix(_LIBRARIES).lstrip("-") or None


def _rank(package: InstalledPackage, gpus: Iterable[str]) -> tuple[bool, bool, str]:
    family = family_of(package)
    start = re.sub(r"x(?:-.*)?$", "", family or "")
    fits = any(gpu.partition(":")[0].lower().startswith(start) for gpu in gpus)
    return family is not None, not fits, package.name


def _belongs_to(package: InstalledPackage, core: InstalledPackage) -> bool:
    label = _LABEL.match(package.version.partition("+")[2])
    if label:
        return series(label[1]) == series(core.version)
    return package.version == core.version


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _distributions(
    site: str, target: Target, only: str | None = None, pattern: re.Pattern[str] = _INFO
) -> Iterator[InstalledPackage]:
    """Yield the distributions of ROCm in a site-packages, by name; those that cannot be read are left out."""
    for name in sorted(_names(site, target)):
        match = pattern.fullmatch(name)
        if match and only in (None, _canonical(match[1])) and (found := _readable(site, name, target)):
            yield found


def _readable(site: str, info: str, target: Target) -> InstalledPackage | None:
    try:
        return _read(site, info, target)
    except (OSError, RelinkError, UnicodeError) as error:
        if isinstance(error, OSError):
            raise_if_machine_fault(error, posixpath.join(site, info))
        return None


def _read(site: str, info: str, target: Target) -> InstalledPackage:
    def host(file: str) -> str:
        return resolve_inside(target.sysroot, posixpath.join(site, info, file))

    metadata = read_metadata(read_bytes(host("METADATA"), _METADATA_LIMIT))
    expected = _canonical(metadata.name).replace("-", "_")
    directory = ""
    for row in _record(site, info, target):
        first = row.partition("/")[0]
        if first.lower().removeprefix("_").startswith(expected) and is_rocm_directory(first):
            directory = first  # what is behind the name is the nonce, empty for releases
            break
    return InstalledPackage(metadata.name, metadata.version, directory)


def _record(site: str, info: str, target: Target) -> list[str]:
    host = resolve_inside(target.sysroot, posixpath.join(site, info, "RECORD"))
    try:
        return read_text(host, _RECORD_LIMIT, errors="replace").splitlines()
    except OSError as error:
        raise_if_machine_fault(error)
        return []


def _names(directory: str, target: Target) -> list[str]:
    try:
        with os.scandir(resolve_inside(target.sysroot, directory)) as entries:
            return [entry.name for entry, _ in zip(entries, range(MOST_ENTRIES), strict=False)]
    except OSError as error:
        raise_if_machine_fault(error, directory)
        return []
