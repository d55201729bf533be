"""Sibling packages: other distributions whose import maps libraries that members of this wheel need by soname.

An extension of PyTorch names libtorch.so and libc10.so and no directory for them. It is imported after torch, and the loader
takes what is mapped already under a soname (glibc elf/dl-load.c, _dl_map_object). Such a library is resolved where the package is
installed for the target, and is assumed to be there where that cannot be seen. Nothing of the wheel and of the sibling is run.
Source of the rules: "Core metadata" and "Dependency specifiers" of the PyPA specifications.
"""

from __future__ import annotations

import glob
import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import PurePosixPath

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from relink.elf.image import Image
from relink.loader.closure import Closure
from relink.loader.seen_files import Files
from relink.loader.target import Target
from relink.providers.distribution import is_platform_library
from relink.providers.prefix import find_distribution, find_listed, find_owners, soname_stem
from relink.providers.profiles import Profile, shipped_profiles
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated
from relink.wheel.metadata import read_metadata
from relink.wheel.source import MemberSource, read_member, read_prefix

# Bytes of a package's __init__.py that are looked at.
_MODULE_LIMIT = 1 << 20


class Sibling(msgspec.Struct, frozen=True):
    """Another package that is there when members of the wheel are imported.

    :ivar profile: what is known of it, with the libraries that its import maps.
    :ivar why: how the wheel says that it needs the package.
    :ivar directory: where it is installed for the target; None where no Python of the target is known, or that has it not.
    :ivar searched: directories in which it was looked for; empty where no Python of the target is known.
    :ivar libraries: soname → path of those that members need and that are there.
    """

    profile: Profile
    why: str
    directory: str | None = None
    searched: tuple[str, ...] = ()
    libraries: Mapping[str, str] = msgspec.field(default_factory=dict)


def find_siblings(
    source: MemberSource,
    images: Mapping[str, Image],
    target: Target,
    files: Files,
    is_vendors: Callable[[str], bool],
    *,
    is_verified: bool = False,
) -> tuple[Sibling, ...]:
    """Return the packages whose import maps libraries that ELF members need and that the wheel says it needs.

    :param images: the ELF members of the wheel.
    :param is_vendors: soname → whether a vendor's product comes with it.
    :param is_verified: the wheel is judged as it is, so that a vendor's library comes with a package that METADATA requires, too.
    """
    own = canonicalize_name(source.name.distribution)
    names = {posixpath.basename(member) for member in images}
    needed = {name: member for member, image in images.items() for name in image.needed if name not in names}
    siblings = []
    for profile in shipped_profiles().values() if needed else ():
        wanted = {soname: member for soname, member in needed.items() if profile.where_brought(soname)}
        if not (wanted and profile.imports) or own in profile.distributions:
            continue
        if (why := next(_evidence(source, profile, wanted.values()), None)) is not None:
            siblings.append(_located(Sibling(profile, why), wanted, target, files))
    unknown = {
        soname: member
        for soname, member in needed.items()
        if not is_platform_library(soname, target.header.machine) and find_sibling(siblings, soname) is None
    }
    others = {soname: member for soname, member in unknown.items() if not is_vendors(soname)}
    siblings += _find_hosts(source, others, target, files)
    absent = [one for one in (unknown if is_verified else others) if not find_sibling(siblings, one)]
    return (*siblings, *(_find_absent(source, absent, target, begins=is_verified) if absent else ()))


def may_map_other_copies(
    siblings: Iterable[Sibling], mapped: Iterable[tuple[str, str]], files: Files
) -> bool:
    """Whether a package that is imported before may map another copy of a library than members of the wheel do.

    A copy is seen by its name up to ``.so``, beside the libraries of the package that members need.

    :param mapped: soname and path of what members map.
    """
    places = {posixpath.dirname(path) for sibling in siblings for path in sibling.libraries.values()}
    names: set[str] = set()
    for place in places:
        with suppress(OSError):
            names.update(map(soname_stem, os.listdir(files.host(place))))
    return any(
        posixpath.dirname(path) not in places and soname_stem(posixpath.basename(path)) in names
        for _, path in mapped
    )


def _find_hosts(
    source: MemberSource, unknown: Mapping[str, str], target: Target, files: Files
) -> Iterator[Sibling]:
    """Yield the packages that no profile is about and that have a library which a member needs.

    METADATA requires such a package, or the library lies in a directory that the member's is in, as OpenMM's plugins need
    libOpenMM.so of the directory above.

    :param unknown: soname → the member that needs it; no vendor's, nor one of the system.
    """
    required = dict.fromkeys(read_required(source)) if unknown else {}
    sites = target.python_facts.site_packages if target.python_facts is not None else ()
    for soname, member in unknown.items():
        parents = [str(parent) for parent in PurePosixPath(member).parents][:-1]
        for site in sites:
            path = find_listed(site, required, soname, target)
            places = [path] if path else [f"{parent}/{soname}" for parent in parents]
            path = next((one for one in places if files.open(f"{site}/{one}").image is not None), None)
            if path and (owner := find_owners(site, {path}, target).get(path)) is not None:
                name = owner.canonical
                why = f"METADATA requires {name}" if name in required else "its directory is above"
                directory, libraries = posixpath.dirname(f"{site}/{path}"), {soname: f"{site}/{path}"}
                profile = Profile(name, (name,), brings=(glob.escape(path),))
                yield Sibling(profile, why, directory, sites, libraries)
                break


def _find_absent(
    source: MemberSource, sonames: Iterable[str], target: Target, *, begins: bool
) -> Iterator[Sibling]:
    """Yield the packages that METADATA requires, that are not installed, and that have the names of libraries.

    libtriton.so is of triton-rocm, and libcufft.so.12 of cuda-toolkit[cufft].

    :param begins: the library's name may go on, as that of libnvshmem_host.so.3 of nvidia-nvshmem-cu13.
    """
    sites = target.python_facts.site_packages if target.python_facts is not None else ()
    words: dict[str, set[str]] = {}
    for name, extras in read_metadata(read_member(source, f"{source.dist_info}/METADATA")).required_extras():
        words.setdefault(name, set()).update(name.split("-"), extras)
    brought: dict[str, list[str]] = {}
    for soname in sonames:
        stem = soname_stem(soname).removeprefix("lib").removesuffix(".so").lower()
        exact = (name for name, parts in words.items() if stem in parts)
        # A shorter word says nothing of a name that begins so.
        begun = ((name, tuple(part for part in parts if len(part) > 3)) for name, parts in words.items())
        longer = (name for name, parts in begun if stem.startswith(parts))
        if (named := next(chain(exact, longer if begins else ()), None)) is not None:
            brought.setdefault(named, []).append(soname)
    for name, several in brought.items():
        if not any(find_distribution(site, name, target) for site in sites):
            profile = Profile(name, (name,), brings=tuple(map(glob.escape, several)))
            yield Sibling(profile, f"METADATA requires {name}", searched=sites)


def read_required(source: MemberSource) -> Iterator[str]:
    """Yield the distributions that a wheel's METADATA requires without an extra, by their normalized names."""
    return read_metadata(read_member(source, f"{source.dist_info}/METADATA")).required()


def _evidence(source: MemberSource, profile: Profile, members: Collection[str]) -> Iterator[str]:
    """Yield how the wheel says that it needs a package: a requirement without an extra, or an import of its packages."""
    for name in read_required(source):
        if name in profile.distributions:
            yield f"METADATA requires {name}"
    modules = [f"{member.split('/')[0]}/__init__.py" for member in members]
    # A library beside the packages may be loaded by any of them, as pyg_lib/__init__.py loads libpyg.so.
    if any("/" not in member for member in members):
        modules += [name for name in source.members if name.endswith("/__init__.py") and name.count("/") == 1]
    for module in dict.fromkeys(modules):
        if module not in source.members:
            continue
        text = read_prefix(source, module, _MODULE_LIMIT).decode("utf-8", "replace")
        for name in profile.imports:
            if re.search(rf"^(?:import|from)[ \t]+{re.escape(name)}\b", text, re.MULTILINE):
                yield f"{module} imports {name}"


def _located(sibling: Sibling, wanted: Mapping[str, str], target: Target, files: Files) -> Sibling:
    """Return the sibling with the directory that the target's Python imports it from, and its libraries."""
    sites = target.python_facts.site_packages if target.python_facts is not None else ()
    package = sibling.profile.imports[0].split(".")[0]
    for site in sites:
        directory = posixpath.join(site, package)
        if files.is_directory(directory):
            globs = {soname: sibling.profile.where_brought(soname) or soname for soname in sorted(wanted)}
            paths = {
                name: posixpath.join(site, posixpath.dirname(glob), name) for name, glob in globs.items()
            }
            there = {name: path for name, path in paths.items() if files.open(path).image is not None}
            return replace(sibling, directory=directory, searched=sites, libraries=there)
    return replace(sibling, searched=sites)


def find_sibling(siblings: Iterable[Sibling], soname: str) -> Sibling | None:
    """Return the package whose import maps a library of that soname."""
    return next((sibling for sibling in siblings if sibling.profile.where_brought(soname) is not None), None)


def list_sibling_paths(siblings: Iterable[Sibling]) -> list[str]:
    """Return the libraries of installed siblings, which are mapped before the wheel's members."""
    return [path for sibling in siblings for path in sibling.libraries.values()]


def sibling_findings(siblings: Iterable[Sibling], closures: Mapping[str, Closure]) -> Iterator[Finding]:
    """Yield RLK118 and RLK119: what a sibling package is assumed to bring, and what is taken from an installed one.

    :param closures: those of the members that are served.
    """
    for sibling in siblings:
        assumed: dict[str, dict[str, None]] = {}
        taken: dict[str, dict[str, None]] = {}
        for member, closure in closures.items():
            for edge in closure.edges:
                path = None if edge.target is None else closure.objects[edge.target].path
                if path is not None and path == sibling.libraries.get(edge.soname):
                    taken.setdefault(edge.soname, {})[member] = None
                elif (
                    path is None and sibling.directory is None and sibling.profile.where_brought(edge.soname)
                ):
                    assumed.setdefault(edge.soname, {})[member] = None
        name = sibling.profile.name
        shipped = name if sibling.profile.imports else None
        if assumed:
            absent = f"it is not installed in {join_truncated(list(sibling.searched))}"
            looked = absent if sibling.searched else "no Python of the target is known"
            text = f"{_libraries_of(assumed)} come by its import ({sibling.why}), which is assumed: {looked}"
            yield finding("RLK118", name, text, profile=shipped)
        if taken:
            text = f"{_libraries_of(taken)} are those of {sibling.directory} ({sibling.why})"
            yield finding("RLK119", name, text, profile=shipped)


def _libraries_of(needed: Mapping[str, Mapping[str, None]]) -> str:
    """Name the libraries, and the members that need them, each once."""
    members = dict.fromkeys(member for several in needed.values() for member in several)
    return f"{join_truncated(list(needed))} of {join_truncated([*map(posixpath.basename, members)])}"
