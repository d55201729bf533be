"""A prefix as a provider: the directories of one installation and the libraries in them that the target can load.

Providers in site-packages are made of packages, whoever packs them, which are known by their metadata.
"""

from __future__ import annotations

import csv
import errno
import os
import posixpath
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name
from packaging.version import Version

from relink.elf.constants import ET_DYN
from relink.elf.image import machine_name, read_header
from relink.loader.search import why_not_searched
from relink.loader.seen_files import resolve_inside
from relink.loader.target import Target
from relink.system.errors import ElfError, ProviderError, WheelError, raise_if_machine_fault
from relink.system.safe_open import read_bytes, read_start, read_text
from relink.wheel.metadata import read_metadata

_SHARED_OBJECT = re.compile(r"lib.+\.so(\.[^/]*)?", re.DOTALL)
_STEM = re.compile(r".+?\.so(?=\.|$)", re.DOTALL)
# By e_machine: Debian's directories below lib/.
_TRIPLETS = {62: ("x86_64-linux-gnu",), 183: ("aarch64-linux-gnu",)}
# A directory that ends in a version, such as core-7.14 or rocm-7.2.4.
_BESIDE = re.compile(r"[^/]*-\d+(\.\d+)+", re.DOTALL)
MOST_ENTRIES = 100_000
"""Entries of directories that are read of one prefix. Debian's ROCm has some hundred, a whole /usr some thousand."""
NAME_ANOTHER = "name the directory that holds lib/"
"""How the messages about a directory that is no prefix end: they know no other one."""
NIX_STORE = "nix-store"
"""The kind of the providers in a Nix store, where each package is a prefix of its own."""
SITE_PACKAGES = "site-packages"
"""The kind of the providers that are made of packages in one."""
TREE = "tree"
"""The kind of a provider that is the tree itself which is relinked."""
_HEADER_SIZE = 64  # bytes of an Elf64_Ehdr


class Skipped(msgspec.Struct, frozen=True):
    """A file that has a library's name and is none that the target could load."""

    path: str
    reason: str


class InstalledPackage(msgspec.Struct, frozen=True):
    """A distribution in site-packages that a provider's libraries belong to.

    :ivar name: as its metadata spell it.
    :ivar directory: of its files, in site-packages; empty where it has no libraries.
    """

    name: str
    version: str
    directory: str = ""

    @property
    def canonical(self) -> str:
        """The name as it is compared (PEP 503)."""
        return canonicalize_name(self.name)


class Provider(msgspec.Struct, frozen=True):
    """A place libraries come from. Paths are as the target sees them, symbolic links not resolved.

    :ivar kind: ``prefix``, ``nix-store``, ``site-packages`` or ``tree``.
    :ivar directories: where libraries lie, the prefix's own library directories first, then one level below them.
    :ivar libraries: file name → paths, in the order of `directories`.
    :ivar skipped: what has a library's name and cannot be loaded by the target.
    :ivar found_by: where it was found, if the user did not name it.
    :ivar packages: the distributions that its libraries belong to, where it is a site-packages.
    :ivar closure: the Nix closure that it is of, as the user named it: what comes of one name counts as one prefix.
    """

    kind: str
    path: str
    directories: tuple[str, ...]
    libraries: Mapping[str, tuple[str, ...]]
    skipped: tuple[Skipped, ...] = ()
    found_by: str | None = None
    packages: tuple[InstalledPackage, ...] = ()
    closure: str | None = None

    @property
    def named(self) -> str:
        """The name the user gave; all providers of one Nix closure share it."""
        return self.closure or self.path

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


def find_serving_providers(providers: Sequence[Provider], soname: str, *, runtime: bool) -> list[Provider]:
    """Return the providers that serve `soname`: the first that has it, and what else was named with that one.

    :param runtime: it is one that a process has once, and that all the vendor's libraries and the driver go with: then what was
        named first serves it, or nothing does. Of store paths any may: each package of Nix is one.
    """
    having = [provider for provider in providers if provider.find(soname)]
    # A tree without a runtime is named as the prefix behind it (relink.runs.relink_tree), so the last of that name counts.
    first = [provider for provider in providers if provider.named == providers[0].named][-1:]
    in_store = {provider.kind for provider in (*first, *having[:1])} == {NIX_STORE}
    if runtime and having and having[0].named != providers[0].named and not in_store:
        return []
    return [provider for provider in having if provider.named == having[0].named]


def soname_stem(soname: str) -> str:
    """Return a soname up to and including ``.so``: ``librocm_smi64.so`` for ``librocm_smi64.so.1``."""
    match = _STEM.match(soname)
    return match[0] if match else soname


def make_tree_provider(root: str, names: Iterable[str]) -> Provider:
    """Return a tree as a place that libraries come from: what is in one of its directories serves another.

    :param root: its absolute path, without symbolic links.
    :param names: of its ELF files and links, relative to it; a file that lies less deep comes first.
    """
    libraries: dict[str, tuple[str, ...]] = {}
    directories: dict[str, None] = {}
    for name in sorted(names, key=lambda name: (name.count("/"), name)):
        path = posixpath.join(root, name)
        folder, base = posixpath.split(path)
        if (soname_stem(base) != base or base.endswith(".so")) and os.path.isfile(path):
            libraries[base] = (*libraries.get(base, ()), path)
            directories[folder] = None
    return Provider(TREE, root, tuple(directories), MappingProxyType(dict(sorted(libraries.items()))))


class _Scan(msgspec.Struct):
    """Paths in it are as the target sees them; links are followed inside of its sysroot."""

    target: Target
    shown: str
    directories: list[str] = msgspec.field(default_factory=list)
    libraries: dict[str, list[str]] = msgspec.field(default_factory=dict)
    skipped: list[Skipped] = msgspec.field(default_factory=list)
    seen: set[tuple[int, int]] = msgspec.field(default_factory=set)
    # Directories that this user may not read.
    closed: list[str] = msgspec.field(default_factory=list)
    # Entries of all directories that have been read.
    entries: int = 0

    def provider(self, kind: str) -> Provider:
        """Return what was found."""
        libraries = MappingProxyType({name: tuple(paths) for name, paths in sorted(self.libraries.items())})
        return Provider(kind, self.shown, tuple(self.directories), libraries, tuple(self.skipped))

    def directory(self, relative: str) -> list[str]:
        """Enter the libraries of one directory; returns its subdirectories.

        :raises ProviderError: this is no prefix, it has so many entries.
        """
        shown = posixpath.join(self.shown, relative) if relative else self.shown
        try:
            host = resolve_inside(self.target.sysroot, shown)
            info = os.stat(host)
            key = (info.st_dev, info.st_ino)
            if key in self.seen or not stat.S_ISDIR(info.st_mode):
                # lib64 is often a link to lib, and links may loop.
                return []
            self.seen.add(key)
            with os.scandir(host) as entries:
                names = sorted(
                    (
                        entry.name,
                        _is_directory(self.target.sysroot, posixpath.join(shown, entry.name))
                        if entry.is_symlink()
                        else entry.is_dir(),
                    )
                    for entry in self._counted(entries, shown)
                )
        except OSError as error:
            raise_if_machine_fault(error, shown)
            if error.errno == errno.EACCES:
                self.closed.append(shown)
            return []
        loaded = False
        for name in (
            name for name, is_directory in names if not is_directory and _SHARED_OBJECT.fullmatch(name)
        ):
            path = posixpath.join(shown, name)
            if reason := self._why_not(path):
                self.skipped.append(Skipped(path, reason))
                continue
            self.libraries.setdefault(name, []).append(path)
            loaded = True
        if loaded:
            self.directories.append(shown)
        return [posixpath.join(relative, name) for name, is_directory in names if is_directory]

    def _counted(self, entries: Iterable[os.DirEntry[str]], directory: str) -> Iterator[os.DirEntry[str]]:
        for entry in entries:
            self.entries += 1
            if self.entries > MOST_ENTRIES:
                raise ProviderError(
                    f"--prefix {self.shown}: more than {MOST_ENTRIES} files and directories to look at, the last ones in "
                    f"{directory}; name the directory that holds lib/, and no more"
                )
            yield entry

    def _why_not(self, shown: str) -> str | None:
        """Return why a file that has a library's name is none that the target could load, or None."""
        try:
            head = read_start(resolve_inside(self.target.sysroot, shown), _HEADER_SIZE)
            # Development packages have text files for the linker under names such as libc.so.
            if head.startswith((b"/*", b"INPUT", b"GROUP", b"OUTPUT_FORMAT")):
                return "a linker script, not a library"
            header = read_header(head, shown)
        except OSError as error:
            return error.strerror or type(error).__name__
        except ElfError as error:
            return str(error).removeprefix(f"{shown}: ")
        wanted = self.target.header
        if (header.machine, header.elf_class, header.little_endian) != (
            wanted.machine,
            wanted.elf_class,
            wanted.little_endian,
        ):
            order = "" if header.little_endian else ", big endian"
            return f"for another machine ({machine_name(header.machine)}, {header.elf_class} bit{order})"
        # ELFOSABI_SYSV, ELFOSABI_GNU: VALID_ELF_OSABI of glibc's sysdeps/gnu/ldsodefs.h
        if header.osabi not in (0, 3):
            return f"for another system (OSABI {header.osabi})"
        return None if header.kind == ET_DYN else f"not a shared library (ELF type {header.kind})"


def list_main_directories(machine: int) -> tuple[str, ...]:
    """Return where a prefix has its libraries, relative to it; "" is the prefix itself.

    :param machine: e_machine of the target.
    """
    return ("", "lib", "lib64", *(f"lib/{name}" for name in _TRIPLETS.get(machine, ())))


def open_prefix(path: str, target: Target) -> Provider:
    """Read what `path` provides to `target`: DIR, DIR/lib, DIR/lib64, DIR/lib/<triplet> and one level below these.

    The path is kept as given (made absolute), since a link such as /opt/rocm is what a user may want written.
    With a sysroot it may be given as seen from outside or from inside.

    :raises ProviderError: no search path can hold it, there is no such directory, no shared library for the target in it, or
        more in it than :data:`MOST_ENTRIES`.
    """
    shown = _inside(posixpath.abspath(path), target.sysroot)
    if reason := why_not_searched(shown):
        raise ProviderError(
            f"--prefix {path}: no search path can hold this directory: its path has {reason}; "
            "pass another path to it, such as a symbolic link to it"
        )
    if not _is_directory(target.sysroot, shown):
        raise ProviderError(f"--prefix {path}: no such directory; {NAME_ANOTHER}")
    scan, mains = _Scan(target, shown), list_main_directories(target.header.machine)
    below = [child for main in mains for child in scan.directory(main)]
    if scan.closed:
        raise ProviderError(
            f"--prefix {path}: {scan.closed[0]} may not be read by this user (Permission denied); run relink as one who may"
        )
    for child in below:
        place = posixpath.join(shown, child)
        leads_to = posixpath.relpath(find_link_target(place, target.sysroot) or place, shown)
        if _BESIDE.fullmatch(leads_to):
            # The directory of another release: what /opt/rocm/lib leads to must not be joined by /opt/rocm/core-7.14/lib.
            continue
        if reason := why_not_searched(child):
            scan.skipped.append(Skipped(place, f"its path has {reason}"))
            continue
        scan.directory(child)
        scan.directory(posixpath.join(child, "lib"))
    if not scan.libraries:
        inner = [child for child in ("usr", *below) if child == "usr" or _BESIDE.fullmatch(child)]
        places = {child: posixpath.join(shown, child) for child in inner}
        found = [
            child
            for child, place in places.items()
            if read_directories("prefix", place, mains, target).libraries
        ]
        if found:
            raise ProviderError(
                f"--prefix {path}: no shared library in it or in its lib/, but in its {'/, '.join(found)}/: "
                f"pass {' or '.join(f'--prefix {posixpath.join(path, child)}' for child in found)}"
            )
        raise ProviderError(
            f"--prefix {path}: no shared library for {machine_name(target.header.machine)} in it or in its lib/; {NAME_ANOTHER}",
            [f"{found.path}: {found.reason}" for found in scan.skipped[:10]],
        )
    return scan.provider("prefix")


def read_directories(kind: str, path: str, directories: Iterable[str], target: Target) -> Provider:
    """Read what the directories of a place provide, and no others; `directories` are relative to `path`."""
    scan = _Scan(target, path)
    for directory in directories:
        scan.directory(directory)
    return scan.provider(kind)


def find_link_target(path: str, sysroot: str) -> str | None:
    """Return the directory that a path leads to where the path itself is a symbolic link, or None.

    :param path: as the target sees it, absolute; so is what is returned.
    """
    parent, name = posixpath.split(path)
    with suppress(OSError):  # links without end
        if os.path.islink(posixpath.join(resolve_inside(sysroot, parent), name)):
            real = resolve_inside(sysroot, path)
            return _inside(os.path.realpath(real) if sysroot == "/" else real, sysroot)
    return None


def _is_directory(sysroot: str, path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(resolve_inside(sysroot, path)).st_mode)
    except OSError as error:  # there is none, or links without end
        raise_if_machine_fault(error, path)
        return False


def _inside(path: str, sysroot: str) -> str:
    if sysroot == "/" or posixpath.commonpath((path, sysroot)) != sysroot:
        return path
    return path[len(sysroot) :] or "/"


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
            listed = files & _record(site, name, target).keys()
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
            for path in _record(site, info, target):
                if posixpath.basename(path) == name and not posixpath.normpath(path).startswith(("..", "/")):
                    return path
    return None


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
        firsts = (path.partition("/")[0] for path in _record(site, info, target))
        # Behind the name of a directory may be a nonce, which is empty for releases.
        own = (
            first
            for first in firsts
            if first.lower().removeprefix("_").startswith(expected) and is_own(first)
        )
        return InstalledPackage(metadata.name, metadata.version, next(own, ""))
    except (OSError, WheelError, UnicodeError):
        return None


def _record(site: str, info: str, target: Target) -> dict[str, None]:
    """Return the paths in a RECORD, in order; none where it cannot be read."""
    host = resolve_inside(target.sysroot, posixpath.join(site, info, "RECORD"))
    try:
        rows = csv.reader(read_text(host, _RECORD_LIMIT, errors="replace").splitlines())
        return dict.fromkeys(row[0] for row in rows if row)
    except (OSError, csv.Error):
        return {}


def list_names_in(directory: str, sysroot: str) -> list[str]:
    """Return the names in a directory as it is seen below `sysroot`; none where it cannot be read."""
    try:
        with os.scandir(resolve_inside(sysroot, directory)) as entries:
            return [entry.name for entry, _ in zip(entries, range(MOST_ENTRIES), strict=False)]
    except OSError as error:
        raise_if_machine_fault(error, directory)
        return []
