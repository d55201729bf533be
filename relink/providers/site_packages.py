"""Packages of a site-packages, by their metadata: what providers in site-packages are made of, whoever packs them."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterator
from types import MappingProxyType

from msgspec.structs import replace
from packaging.utils import canonicalize_name
from packaging.version import Version

from relink.loader.seen_files import resolve_inside
from relink.loader.target import Target
from relink.providers.prefix import MOST_ENTRIES, InstalledPackage, Provider
from relink.system.errors import RelinkError, raise_if_machine_fault
from relink.system.safe_open import read_bytes, read_text
from relink.wheel.metadata import read_metadata

SITE_PACKAGES = "site-packages"
"""The kind of these providers."""

_ANY_INFO = re.compile(r"([A-Za-z0-9._-]+)-([^-]+)\.dist-info")
# Bytes. The RECORD of the libraries for one GPU has half a MiB.
_RECORD_LIMIT = 64 << 20
_METADATA_LIMIT = 1 << 20


def major_minor(version: str) -> str:
    """Return major and minor of a version, ``7.2``: what a result works with."""
    try:
        release = Version(version)
    except ValueError:  # InvalidVersion, or more digits than Python makes a number of
        return version
    return f"{release.major}.{release.minor}"


def leave_out_package(provider: Provider, name: str) -> Provider:
    """Return a provider without what one distribution has in it: the one that is being relinked, and will be replaced."""
    gone = [item for item in provider.packages if item.canonical == canonicalize_name(name)]
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
    return next(read_distributions(site, target, canonicalize_name(name)), None)


def find_owners(site: str, files: Collection[str], target: Target) -> dict[str, InstalledPackage]:
    """Return the distribution in a site-packages whose RECORD lists a file, by file; one that none lists is left out.

    :param files: their paths in site-packages.
    """
    found: dict[str, InstalledPackage] = {}
    for name in list_names_in(site, target.sysroot) if files else ():
        if _ANY_INFO.fullmatch(name):
            listed = {*map(_path_of, _record(site, name, target))}.intersection(files)
            if listed and (package := _readable(site, name, target)):
                found |= dict.fromkeys(listed, package)
    return found


def find_listed(site: str, distributions: Collection[str], name: str, target: Target) -> str | None:
    """Return the path in a site-packages of the file of that name that RECORD of one of some distributions lists, or None.

    :param distributions: by their canonical names.
    """
    for info in sorted(list_names_in(site, target.sysroot)) if distributions else ():
        match = _ANY_INFO.fullmatch(info)
        if match and canonicalize_name(match[1]) in distributions:
            for path in map(_path_of, _record(site, info, target)):
                if posixpath.basename(path) == name and not posixpath.normpath(path).startswith(("..", "/")):
                    return path
    return None


def _path_of(row: str) -> str:
    """Return the path of a row of RECORD, which is path, hash and size: only the path can have a comma."""
    return row.rpartition(",")[0].rpartition(",")[0].strip('"')


def read_distributions(
    site: str,
    target: Target,
    only: str | None = None,
    pattern: re.Pattern[str] = _ANY_INFO,
    is_own: Callable[[str], bool] = lambda _: False,
) -> Iterator[InstalledPackage]:
    """Yield the distributions in a site-packages, by name; those that cannot be read are left out.

    :param only: the canonical name of the one that is wanted.
    :param pattern: of the names of their directories of metadata; its first group is the distribution.
    :param is_own: whether a directory of that name is one that libraries lie in.
    """
    for name in sorted(list_names_in(site, target.sysroot)):
        match = pattern.fullmatch(name)
        if (
            match
            and only in (None, canonicalize_name(match[1]))
            and (found := _readable(site, name, target, is_own))
        ):
            yield found


def _readable(
    site: str, info: str, target: Target, is_own: Callable[[str], bool] = lambda _: False
) -> InstalledPackage | None:
    host = resolve_inside(target.sysroot, posixpath.join(site, info, "METADATA"))
    try:
        metadata = read_metadata(read_bytes(host, _METADATA_LIMIT))
        expected = canonicalize_name(metadata.name).replace("-", "_")
        firsts = (row.partition("/")[0] for row in _record(site, info, target))
        # Behind the name of a directory may be a nonce, which is empty for releases.
        own = (
            first
            for first in firsts
            if first.lower().removeprefix("_").startswith(expected) and is_own(first)
        )
        return InstalledPackage(metadata.name, metadata.version, next(own, ""))
    except (OSError, RelinkError, UnicodeError) as error:
        raise_if_machine_fault(error, posixpath.join(site, info))
        return None


def _record(site: str, info: str, target: Target) -> list[str]:
    host = resolve_inside(target.sysroot, posixpath.join(site, info, "RECORD"))
    try:
        return read_text(host, _RECORD_LIMIT, errors="replace").splitlines()
    except OSError as error:
        raise_if_machine_fault(error)
        return []


def list_names_in(directory: str, sysroot: str) -> list[str]:
    """Return the names in a directory as it is seen below `sysroot`; none where it cannot be read."""
    try:
        with os.scandir(resolve_inside(sysroot, directory)) as entries:
            return [entry.name for entry, _ in zip(entries, range(MOST_ENTRIES), strict=False)]
    except OSError as error:
        raise_if_machine_fault(error, directory)
        return []
