"""A ROCm prefix as a provider: the directories of one installation and the libraries in them."""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from relink.elf.image import Header, machine_name, read_header
from relink.errors import ElfError, ProviderError
from relink.files import read_start
from relink.loader.files import resolve_inside
from relink.loader.target import Target
from relink.system_errors import raise_trouble

__all__ = ["Provider", "RocmVersion", "Skipped", "default_prefixes", "open_prefix", "soname_stem"]

_SHARED_OBJECT = re.compile(r"lib.+\.so(\.[^/]*)?", re.DOTALL)
_STEM = re.compile(r".+?\.so(?=\.|$)", re.DOTALL)
_TRIPLETS = {62: ("x86_64-linux-gnu",), 183: ("aarch64-linux-gnu",)}
_HEADER_SIZE = 64
_ET_DYN = 3


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that has a library's name and is none that the target could load."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class RocmVersion:
    """A ROCm release, and what says so. `release` is as exact as the evidence: ``7.2.4``, or only ``7.2``."""

    release: str
    evidence: str

    @property
    def major(self) -> int:
        """The number that goes with the sonames."""
        return int(self.release.split(".", 1)[0])


@dataclass(frozen=True, slots=True)
class Provider:
    """A place libraries come from. Paths are as the target sees them, symbolic links not resolved.

    :ivar kind: ``prefix`` or ``nix-store``.
    :ivar directories: where libraries lie, the prefix's own library directories first, then one level below them.
    :ivar libraries: file name → paths, in the order of `directories`.
    :ivar skipped: what has a library's name and cannot be loaded by the target.
    """

    kind: str
    path: str
    directories: tuple[str, ...]
    libraries: Mapping[str, tuple[str, ...]]
    skipped: tuple[Skipped, ...] = ()
    rocm: RocmVersion | None = None

    def find(self, soname: str) -> str | None:
        """Return the path of the first library of that file name."""
        return next(iter(self.libraries.get(soname, ())), None)

    def holds(self, path: str) -> bool:
        """Whether `path` lies in one of this provider's directories, however the loader spelled it."""
        return posixpath.dirname(posixpath.normpath(path)) in self.directories

    def nearest(self, soname: str) -> tuple[str, ...]:
        """Return the file names here that differ from `soname` in nothing but the version behind ``.so``."""
        stem = soname_stem(soname)
        return tuple(sorted(name for name in self.libraries if soname_stem(name) == stem and name != soname))


def find_library(providers: Iterable[Provider], soname: str) -> str | None:
    """Return the library that serves `soname`: of the first provider that has it."""
    return next((path for provider in providers if (path := provider.find(soname))), None)


def soname_stem(soname: str) -> str:
    """Return a soname up to and including ``.so``: ``librocm_smi64.so`` for ``librocm_smi64.so.1``."""
    match = _STEM.match(soname)
    return match[0] if match else soname


def default_prefixes(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return where to look when no ``--prefix`` was given: $ROCM_PATH, else /opt/rocm where there is one, else nothing."""
    if environment.get("ROCM_PATH"):
        return (environment["ROCM_PATH"],)
    return ("/opt/rocm",) if os.path.isdir("/opt/rocm") else ()


@dataclass(slots=True)
class _Scan:
    """Paths in it are as the target sees them; links are followed inside of its sysroot."""

    target: Target
    shown: str
    directories: list[str] = field(default_factory=list)
    libraries: dict[str, list[str]] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    seen: set[tuple[int, int]] = field(default_factory=set)
    closed: list[str] = field(default_factory=list)  # directories that this user may not read

    def directory(self, relative: str) -> list[str]:
        """Enter the libraries of one directory; returns its subdirectories."""
        shown = posixpath.join(self.shown, relative) if relative else self.shown
        try:
            host = resolve_inside(self.target.sysroot, shown)
            info = os.stat(host)
            key = (info.st_dev, info.st_ino)
            if key in self.seen or not stat.S_ISDIR(info.st_mode):
                return []  # lib64 is often a link to lib, and links may loop
            self.seen.add(key)
            with os.scandir(host) as entries:
                names = sorted((entry.name, self._is_directory(entry, shown)) for entry in entries)
        except OSError as error:
            raise_trouble(error, shown)
            if error.errno == errno.EACCES:
                self.closed.append(shown)
            return []
        found = False
        for name, is_directory in names:
            if not is_directory and _SHARED_OBJECT.fullmatch(name):
                found |= self._library(posixpath.join(shown, name), name)
        if found:
            self.directories.append(shown)
        return [posixpath.join(relative, name) for name, is_directory in names if is_directory]

    def _is_directory(self, entry: os.DirEntry[str], directory: str) -> bool:
        if not entry.is_symlink():
            return entry.is_dir()
        return _is_directory(self.target.sysroot, posixpath.join(directory, entry.name))

    def _library(self, shown: str, name: str) -> bool:
        try:
            header = _library_header(resolve_inside(self.target.sysroot, shown), shown)
        except (OSError, ElfError) as error:
            if isinstance(error, OSError):
                raise_trouble(error, shown)
            reason = error.strerror if isinstance(error, OSError) else str(error).removeprefix(f"{shown}: ")
            self.skipped.append(Skipped(shown, reason or type(error).__name__))
            return False
        wanted = self.target.header
        if (header.machine, header.elf_class, header.little_endian) != (
            wanted.machine,
            wanted.elf_class,
            wanted.little_endian,
        ):
            theirs = f"{machine_name(header.machine)}, {header.elf_class} bit"
            theirs += "" if header.little_endian else ", big endian"
            self.skipped.append(Skipped(shown, f"for another machine ({theirs})"))
            return False
        if header.osabi not in (0, 3):
            self.skipped.append(Skipped(shown, f"for another system (OSABI {header.osabi})"))
            return False
        if header.kind != _ET_DYN:
            self.skipped.append(Skipped(shown, f"not a shared library (ELF type {header.kind})"))
            return False
        self.libraries.setdefault(name, []).append(shown)
        return True


def _library_header(host: str, shown: str) -> Header:
    head = read_start(host, _HEADER_SIZE)
    if head.startswith((b"/*", b"INPUT", b"GROUP", b"OUTPUT_FORMAT")):
        raise ElfError("a linker script, not a library")
    return read_header(head, shown)


def open_prefix(path: str, target: Target) -> Provider:
    """Read what `path` provides to `target`: DIR, DIR/lib, DIR/lib64, DIR/lib/<triplet> and one level below these.

    The path is kept as given (made absolute), since a link such as /opt/rocm is what a user may want written.
    With a sysroot it may be given as seen from outside or from inside.

    :raises ProviderError: there is no such directory, or no shared library for the target in it.
    """
    shown = _inside(posixpath.abspath(path), target.sysroot)
    if not _is_directory(target.sysroot, shown):
        raise ProviderError(f"--prefix {path}: no such directory; name the directory that holds ROCm's lib/")
    scan = _Scan(target, shown)
    mains = ["", "lib", "lib64", *(f"lib/{name}" for name in _TRIPLETS.get(target.header.machine, ()))]
    below = [child for main in mains for child in scan.directory(main)]
    if scan.closed:
        raise ProviderError(
            f"--prefix {path}: {scan.closed[0]} may not be read by this user (Permission denied); run relink as one who may"
        )
    for child in below:
        scan.directory(child)
        scan.directory(posixpath.join(child, "lib"))
    if not scan.libraries:
        raise ProviderError(
            f"--prefix {path}: no shared library for {machine_name(target.header.machine)} in it or in its lib/; "
            "name the directory that holds ROCm's lib/",
            [f"{found.path}: {found.reason}" for found in scan.skipped[:10]],
        )
    libraries = MappingProxyType({name: tuple(paths) for name, paths in sorted(scan.libraries.items())})
    return Provider(
        kind="prefix",
        path=shown,
        directories=tuple(scan.directories),
        libraries=libraries,
        skipped=tuple(scan.skipped),
        rocm=_rocm_version(_Root(shown, target.sysroot), libraries),
    )


def _is_directory(sysroot: str, path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(resolve_inside(sysroot, path)).st_mode)
    except OSError as error:  # there is none, or links without end
        raise_trouble(error, path)
        return False


def _inside(path: str, sysroot: str) -> str:
    if sysroot == "/" or posixpath.commonpath((path, sysroot)) != sysroot:
        return path
    return path[len(sysroot) :] or "/"


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
            raise_trouble(error)
            return ""
        except zlib.error:
            return ""
        return raw[:16384].decode("utf-8", "replace")

    def names(self, directory: str) -> list[str]:
        """What a directory in it holds; nothing where there is none."""
        try:
            return os.listdir(resolve_inside(self.sysroot, posixpath.join(self.path, directory)))
        except OSError as error:
            raise_trouble(error)
            return []


def _rocm_version(root: _Root, libraries: Mapping[str, Sequence[str]]) -> RocmVersion | None:
    """Find the release, the most exact and most direct evidence first."""
    for evidence in (_from_info, _from_rocm_header, _from_changelog):
        found = evidence(root)
        if found:
            return found
    return _from_library_names(libraries, root.sysroot) or _from_hip_header(root)


def _from_info(root: _Root) -> RocmVersion | None:
    match = re.match(r"\s*(\d{1,9}\.\d{1,9}(?:\.\d{1,9})?)", root.head(".info/version"))
    return RocmVersion(match[1], ".info/version") if match else None


def _from_rocm_header(root: _Root) -> RocmVersion | None:
    for name in ("include/rocm-core/rocm_version.h", "include/rocm_version.h"):
        numbers = _defined(root.head(name), "ROCM_VERSION", ("MAJOR", "MINOR", "PATCH"))
        if numbers:
            return RocmVersion(numbers, name)
    return None


def _from_changelog(root: _Root) -> RocmVersion | None:
    """Debian's packages say the upstream release in the first line of their changelog."""
    matches = [re.fullmatch(r"libamdhip64-(\d{1,9})", name) for name in root.names("share/doc")]
    packages = sorted(((int(match[1]), match[0]) for match in matches if match), reverse=True)
    for _, package in packages:  # the newest HIP runtime speaks for the prefix
        relative = f"share/doc/{package}/changelog.Debian.gz"
        match = re.match(r"\S+ \((?:\d+:)?(\d{1,9}\.\d{1,9}(?:\.\d{1,9})?)", root.head(relative))
        if match:
            return RocmVersion(match[1], relative)
    return None


def _from_library_names(libraries: Mapping[str, Sequence[str]], sysroot: str) -> RocmVersion | None:
    """``libamdhip64.so.6.2.60204`` is ROCm 6.2.4; ``libamdhip64.so.7.2.53211`` only tells 7.2 and a build number."""
    best: tuple[tuple[int, ...], RocmVersion] | None = None
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
            best = (key, RocmVersion(release, name))
    return best[1] if best else None


def _from_hip_header(root: _Root) -> RocmVersion | None:
    name = "include/hip/hip_version.h"  # its third number is a build, not ROCm's
    numbers = _defined(root.head(name), "HIP_VERSION", ("MAJOR", "MINOR"))
    return RocmVersion(numbers, name) if numbers else None


def _defined(text: str, prefix: str, parts: Sequence[str]) -> str:
    """The numbers that a header defines, joined by dots; empty where one is missing."""
    found = [
        re.search(rf"^\s*#\s*define\s+{prefix}_{part}\s+(\d{{1,9}})\b", text, re.MULTILINE) for part in parts
    ]
    return ".".join(match[1] for match in found if match) if all(found) else ""


def iter_soname_paths(providers: Sequence[Provider], soname: str) -> Iterator[tuple[Provider, str]]:
    """Yield (provider, path) for every library of that file name, in the order of the providers."""
    for provider in providers:
        for path in provider.libraries.get(soname, ()):
            yield provider, path
