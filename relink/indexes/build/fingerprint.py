"""What relinking for a target depends on, by content: the libraries of its prefixes, their kernel files, the loader, the release.

Two machines have the same fingerprint of a target if relinking gives the same on both. A result remembers which part of it was
looked at (:class:`Dependencies`), so a prefix that changes redoes what depends on the change and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from relink.elf.image import machine_name
from relink.elf.patchelf import find_patchelf
from relink.indexes.build.digests import Digests
from relink.indexes.build.recipe import IndexTarget
from relink.loader.seen_files import resolve_inside
from relink.planning.wheel_plan import open_providers, target_of
from relink.providers.prefix import Provider, soname_stem
from relink.report.model import Report
from relink.system.bounded_json import parse_json
from relink.system.errors import UsageError
from relink.vendors.registry import VENDORS, products, release_of

__all__ = ["Dependencies", "TargetState", "dependencies_of", "hold", "state_of"]

_DATA_FILES = 500_000  # of a prefix, beside its libraries
_READERS = 2  # files that are hashed at the same time
_SEARCHING = ("RLK1", "RLK3")  # libraries, and versions and symbols
_OWN = ("$WHEEL/", "$PREFIX/", "$BASE_PREFIX/")


@dataclass(frozen=True)
class TargetState:
    """A target as it is on this machine.

    :ivar libraries: SHA-256 of each library of its prefixes, by path as the target sees it.
    :ivar data: a digest of names and sizes of the other files in the libraries' directories: kernels, tuning data.
    :ivar loader: a digest of the loader, its C library and its default directories.
    :ivar release: of ROCm, with what says so.
    :ivar machine: the word for the machine in tags.
    """

    libraries: Mapping[str, str]
    data: str
    loader: str
    release: str
    machine: str
    sysroot: str
    paths: tuple[str, ...]

    @cached_property
    def stems(self) -> dict[str, tuple[str, ...]]:
        """The libraries' paths by their sonames up to ``.so``."""
        found: dict[str, list[str]] = {}
        for path in self.libraries:
            found.setdefault(soname_stem(posixpath.basename(path)), []).append(path)
        return {stem: tuple(sorted(paths)) for stem, paths in found.items()}

    @property
    def product(self) -> str:
        """The release that an index is for, as versions have it: ``rocm7.2.4``."""
        releases = (found[0] for found in parse_json(self.release or "[]") if found)
        return f"{VENDORS[0].table}{next(releases, '')}"

    @property
    def facts(self) -> dict[str, Any]:
        """What the matrix says of it, as JSON data."""
        return {
            "prefixes": list(self.paths),
            "release": self.product,
            "fingerprint": self.fingerprint,
            "machine": self.machine,
        }

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all of it, in hex."""
        parts = [sorted(self.libraries.items()), self.data, self.loader, self.release]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What of a target one result rests on.

    :ivar libraries: SHA-256 by path: what is in a closure, or was read for its GPU code.
    :ivar stems: the paths that a prefix has of each library that was asked for by name: one that comes or goes is noticed.
    :ivar data: as in :class:`TargetState`, where kernel files were looked at.
    :ivar everything: the target's fingerprint, where all libraries were searched for what is missing.
    """

    libraries: Mapping[str, str]
    stems: Mapping[str, tuple[str, ...]]
    loader: str
    release: str
    data: str | None = None
    everything: str | None = None


def state_of(target: IndexTarget, digests: Digests) -> TargetState:
    """Read a target: every library of its prefixes whole, unless its digest is known.

    :raises RelinkError: the target or a prefix cannot be used.
    """
    options = target.options()
    loader = target_of(options)
    providers = open_providers(options, loader)
    paths = sorted({path for provider in providers for own in provider.libraries.values() for path in own})
    real = {path: os.path.realpath(resolve_inside(loader.sysroot, path)) for path in paths}
    with ThreadPoolExecutor(_READERS, "relink-digest") as pool:
        contents = dict(zip(own := sorted(set(real.values())), pool.map(digests.sha256, own), strict=True))
    releases = [release_of(provider, loader.sysroot) for provider in providers]
    interpreter = resolve_inside(loader.sysroot, loader.interpreter)
    libc = posixpath.join(loader.libc_directory, "libc.so.6")
    facts = [
        digests.sha256(os.path.realpath(interpreter)),
        digests.sha256(os.path.realpath(resolve_inside(loader.sysroot, libc)))
        if loader.libc_directory
        else "",
        loader.glibc,
        list(loader.directories),
        str(find_patchelf().version),
    ]
    return TargetState(
        {path: contents[real[path]] for path in paths},
        _data(providers, loader.sysroot),
        hashlib.sha256(json.dumps(facts).encode()).hexdigest(),
        json.dumps([[found.release, found.evidence] if found else None for found in releases]),
        machine_name(loader.header.machine),
        loader.sysroot,
        tuple(provider.path for provider in providers),
    )


def _data(providers: Iterable[Provider], sysroot: str) -> str:
    """A digest of the names and sizes of what lies below the directories of libraries and is no library."""
    found: dict[str, int] = {}
    for provider in providers:
        for directory in provider.directories:
            host = resolve_inside(sysroot, directory)
            for place, _, names in os.walk(host):
                for name in names:
                    if len(found) > _DATA_FILES:
                        raise UsageError(
                            f"{provider.path}: more than {_DATA_FILES} files beside its libraries; name {products()} alone"
                        )
                    path = os.path.join(place, name)
                    if ".so" not in name and path not in found:
                        found[path] = os.lstat(path).st_size
    return hashlib.sha256(json.dumps(sorted(found.items())).encode("utf-8", "surrogateescape")).hexdigest()


def dependencies_of(report: Report, state: TargetState, digests: Digests) -> Dependencies:
    """Return what a result rests on.

    A wheel of which a library or symbol was missing rests on the whole target: all of it was searched. Of every other wheel each
    import is bound, and a library that nothing names cannot change that.

    :raises UsageError: a library cannot be read.
    """
    paths = {path for file in report.files for _, path in file.closure}
    paths |= {load.resolved for load in report.loads if load.resolved}
    isa = report.isa or {}
    reached = isa.get("libraries") or ()
    paths |= {str(library["path"]) for library in reached}
    outside = {
        posixpath.normpath(path) for path in paths if path.startswith("/") and not path.startswith(_OWN)
    }
    names = {load.soname for load in report.loads} | {posixpath.basename(path) for path in outside}
    for file in report.files:
        names |= {name for one in file.needed for name in (one.soname, one.soname_after) if name}
    stems = state.stems
    asked = {soname_stem(posixpath.basename(name)) for name in names}
    if reached:  # the runtime, which decides what can be loaded, is found beside the libraries
        asked |= {stem for vendor in VENDORS for stem in vendor.runtime_libraries if stem in stems}
    outside |= {path for stem in asked for path in stems.get(stem, ())}
    searched = any(found.level == "error" and found.code.startswith(_SEARCHING) for found in report.findings)
    return Dependencies(
        {path: _content(path, state, digests) for path in sorted(outside)},
        {stem: stems.get(stem, ()) for stem in sorted(asked)},
        state.loader,
        state.release,
        state.data if reached else None,
        state.fingerprint if searched else None,
    )


def hold(rests_on: Dependencies, state: TargetState, digests: Digests) -> bool:
    """Whether all that a result rests on is as it was."""
    if (rests_on.loader, rests_on.release) != (state.loader, state.release):
        return False
    if rests_on.data not in (None, state.data) or rests_on.everything not in (None, state.fingerprint):
        return False
    stems = state.stems
    if any(stems.get(stem, ()) != paths for stem, paths in rests_on.stems.items()):
        return False
    try:
        return all(_content(path, state, digests) == sha256 for path, sha256 in rests_on.libraries.items())
    except UsageError:  # one of them is gone
        return False


def _content(path: str, state: TargetState, digests: Digests) -> str:
    known = state.libraries.get(path)
    return known or digests.sha256(os.path.realpath(resolve_inside(state.sysroot, path)))
