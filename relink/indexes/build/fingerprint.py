"""What relinking for a target depends on, by content: the libraries of its prefixes, their kernel files, the loader, the release.

Two machines have the same fingerprint of a target if relinking gives the same on both. A result remembers which part of it was
looked at (:func:`dependencies_of`), so a prefix that changes redoes what depends on the change and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from relink.elf.image import machine_name
from relink.elf.patchelf import find_patchelf
from relink.indexes.build.recipe import IndexTarget
from relink.indexes.install.cache import LARGEST, cache_directory
from relink.loader.seen_files import resolve_inside
from relink.planning.case import open_providers, target_of
from relink.providers.prefix import Provider, soname_stem
from relink.report.model import Report
from relink.system.errors import UsageError
from relink.system.safe_open import file_sha256
from relink.system.system_errors import raise_if_machine_fault
from relink.system.text import grouped
from relink.vendors.registry import VENDORS, products, release_of

# The most files of a prefix beside its libraries.
_DATA_FILES = 500_000
_READERS = 2  # files hashed at once
# The codes of findings about libraries, and about versions and symbols.
_SEARCHING = ("RLK1", "RLK3")
_WAIT = 30  # seconds for a lock
_TABLE = (
    "create table if not exists digests (path text primary key, status text not null, sha256 text not null)"
)


@dataclass(frozen=True)
class TargetState:
    """A target as it is on this machine.

    :ivar libraries: SHA-256 of each library of its prefixes, by path as the target sees it.
    :ivar data: a digest of names and sizes of the vendors' kernel files and tuning data beside the libraries.
    :ivar loader: a digest of the loader, its C library and its default directories.
    :ivar release: of the vendors' libraries in its prefixes, with what says so; `label` is the first as versions have it.
    :ivar machine: the word for the machine in tags.
    """

    libraries: Mapping[str, str]
    data: str
    loader: str
    release: str
    machine: str
    sysroot: str
    paths: tuple[str, ...]
    label: str

    @cached_property
    def stems(self) -> dict[str, list[str]]:
        """The libraries' paths by their sonames up to ``.so``."""
        return grouped((soname_stem(posixpath.basename(path)), path) for path in sorted(self.libraries))

    @property
    def facts(self) -> dict[str, Any]:
        """What the matrix says of it, as JSON data; its release is that of an index."""
        own = {"fingerprint": self.fingerprint, "machine": self.machine}
        return {"prefixes": list(self.paths), "release": self.label, **own}

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all of it, in hex."""
        parts = [sorted(self.libraries.items()), self.data, self.loader, self.release]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class Digests:
    """Digests of files, remembered on this machine; in memory alone where there is no place for them.

    What is remembered, in ``$XDG_CACHE_HOME/relink/digests.sqlite``, holds for a file of the same device, inode, size and times;
    the time of the last change of its inode (ctime) cannot be set back. So a file is known by its content, and one that was only
    touched is read again and has the same one.

    :param place: the file that they are remembered in.
    """

    def __init__(self, place: Path | None = None) -> None:
        self._place = place or cache_directory().parent / "digests.sqlite"
        self._known: dict[str, tuple[str, str]] = {}
        self._new: dict[str, tuple[str, str]] = {}
        with contextlib.suppress(OSError, sqlite3.Error), self._database() as database:
            for path, status, sha256 in database.execute("select path, status, sha256 from digests"):
                self._known[path] = status, sha256

    def sha256(self, path: str) -> str:
        """Return the digest of a file's content, in hex.

        :raises UsageError: it cannot be read, or is no regular file.
        """
        try:
            before = _status(path)
            if self._known.get(path, ("", ""))[0] != before:
                found = before, file_sha256(path, LARGEST)
                # A file that changed while it was read is read again the next time.
                if _status(path) != before:
                    return found[1]
                self._known[path] = self._new[path] = found
        except OSError as error:
            raise_if_machine_fault(error, path)
            raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
        return self._known[path][1]

    def save(self) -> None:
        """Remember what is new; a place that cannot be written costs time later and nothing else."""
        if self._new:
            rows = ((path, *found) for path, found in self._new.items())
            with contextlib.suppress(OSError, sqlite3.Error), self._database() as database, database:
                database.executemany("insert or replace into digests values (?, ?, ?)", rows)
        self._new.clear()

    @contextlib.contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        self._place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(self._place, timeout=_WAIT)) as database:
            database.execute(_TABLE)
            yield database


def _status(path: str) -> str:
    """What changes when a file's content does."""
    found = os.stat(path)
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def state_of(target: IndexTarget, digests: Digests) -> TargetState:
    """Read a target: every library of its prefixes whole, unless its digest is known.

    :raises RelinkError: the target or a prefix cannot be used.
    """
    options = target.options()
    loader = target_of(options)
    providers = open_providers(options, loader)
    paths = sorted({path for provider in providers for own in provider.libraries.values() for path in own})
    own = (loader.interpreter, loader.libc_directory and posixpath.join(loader.libc_directory, "libc.so.6"))
    real = {path: os.path.realpath(resolve_inside(loader.sysroot, path)) for path in (*paths, *own) if path}
    files = sorted(set(real.values()))
    with ThreadPoolExecutor(_READERS, "relink-digest") as pool:
        contents = dict(zip(files, pool.map(digests.sha256, files), strict=True))
    releases = [release_of(provider, loader.sysroot) for provider in providers]
    loaded = [path and contents[real[path]] for path in own]
    facts = [*loaded, loader.glibc, list(loader.directories), str(find_patchelf().version)]
    return TargetState(
        {path: contents[real[path]] for path in paths},
        _data(providers, loader.sysroot),
        hashlib.sha256(json.dumps(facts).encode()).hexdigest(),
        json.dumps([[found.release, found.evidence] if found else None for found in releases]),
        machine_name(loader.header.machine),
        loader.sysroot,
        tuple(provider.path for provider in providers),
        next((found.label for found in releases if found), VENDORS[0].name),
    )


def _data(providers: Iterable[Provider], sysroot: str) -> str:
    """A digest of the names and sizes of kernel files beside libraries; of a whole /usr nothing else counts."""
    found: dict[str, int] = {}
    kernels = {name for vendor in VENDORS for name in vendor.gpus.kernel_directories}
    for provider in providers:
        for directory, kernel in product(provider.directories, sorted(kernels)):
            for place, _, names in os.walk(resolve_inside(sysroot, posixpath.join(directory, kernel))):
                for name in names:
                    if len(found) > _DATA_FILES:
                        raise UsageError(
                            f"{provider.path}: more than {_DATA_FILES} files beside its libraries; name {products()} alone"
                        )
                    path = os.path.join(place, name)
                    if ".so" not in name and path not in found:
                        found[path] = os.lstat(path).st_size
    return hashlib.sha256(json.dumps(sorted(found.items())).encode("utf-8", "surrogateescape")).hexdigest()


def dependencies_of(report: Report, state: TargetState, digests: Digests) -> dict[str, str]:
    """Return what a result rests on, as JSON data: the loader, the release, libraries by content, and which there are of a name.

    Where kernel files were looked at it rests on their names and sizes, too.

    A wheel of which a library or symbol was missing rests on the whole target: all of it was searched. Of every other wheel each
    import is bound, and a library that nothing names cannot change that.

    :raises UsageError: a library cannot be read.
    """
    paths = {path for file in report.files for _, path in file.closure}
    paths |= {load.resolved for load in report.loads if load.resolved}
    isa = report.isa or {}
    reached = isa.get("libraries") or ()
    paths |= {str(library["path"]) for library in reached}
    outside = {posixpath.normpath(path) for path in paths if path.startswith("/")}
    names = {load.soname for load in report.loads} | {posixpath.basename(path) for path in outside}
    for file in report.files:
        names |= {name for one in file.needed for name in (one.soname, one.soname_after) if name}
    stems = state.stems
    asked = {soname_stem(posixpath.basename(name)) for name in names}
    # A GPU runtime, which decides what can be loaded, is found beside the libraries.
    if reached:
        asked |= {stem for vendor in VENDORS for stem in vendor.libraries.runtime_libraries if stem in stems}
    outside |= {path for stem in asked for path in stems.get(stem, ())}
    searched = any(found.level == "error" and found.code.startswith(_SEARCHING) for found in report.findings)
    keys = ["loader", "release", *(["data"] if reached else ()), *(["fingerprint"] if searched else ())]
    keys += [f"library {path}" for path in sorted(outside)] + [f"stem {stem}" for stem in sorted(asked)]
    return {key: _value(key, state, digests) for key in keys}


def hold(rests_on: Mapping[str, Any], state: TargetState, digests: Digests) -> bool:
    """Whether all that a result rests on is as it was."""
    # One of the libraries is gone.
    with contextlib.suppress(UsageError):
        return all(_value(key, state, digests) == value for key, value in rests_on.items())
    return False


def _value(key: str, state: TargetState, digests: Digests) -> str:
    """What stands behind a key of what a result rests on, as it is now."""
    kind, _, name = key.partition(" ")
    if kind == "stem":
        return "\n".join(state.stems.get(name, ()))
    if kind == "library":
        known = state.libraries.get(name)
        return known or digests.sha256(os.path.realpath(resolve_inside(state.sysroot, name)))
    return str(getattr(state, kind, None))
