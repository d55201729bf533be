"""Where a ROCm lies when the user names none: ``$ROCM_PATH``, ``/opt/rocm*`` and ``/opt/rocm/core-*``, ld.so.cache, ``/usr``.

Takes a target and environment variables; gives prefixes. Directories and the cache are read. No program is run: ``hipconfig``
would be one of a ROCm that nobody has chosen yet.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping

from relink.loader.cache import lookup
from relink.loader.seen_files import resolve_inside
from relink.loader.target import Target
from relink.providers.nix_store import open_place
from relink.providers.prefix import main_directories
from relink.providers.site_packages import SITE_PACKAGES
from relink.system.errors import RelinkError, UsageError
from relink.system.system_errors import raise_if_machine_fault
from relink.vendors.protocol import Place
from relink.vendors.rocm.installation import release_of
from relink.vendors.rocm.sdk_packages import find_site

__all__ = ["choose_place", "find_places", "prefix_of_libraries"]

_RUNTIME = re.compile(r"lib(?:amdhip64|hsa-runtime64)\.so\.\d+")  # what every ROCm has and nothing else does

_CORE = re.compile(r"core-.*\d+\.\d+")


def find_places(target: Target, environment: Mapping[str, str]) -> tuple[Place, ...]:
    """Return every ROCm of the target, each directory of libraries once; $ROCM_PATH alone where it is set.

    What $ROCM_PATH names is not looked at: whoever opens it says what is wrong with it.
    """
    if environment.get("ROCM_PATH"):
        return (Place(environment["ROCM_PATH"], "ROCM_PATH"),)
    found: list[Place] = []
    seen: set[str] = set()
    for place in _usual(target):
        directories = {_real(directory, target) for directory in _runtime_directories(place.path, target)}
        if directories and not directories & seen:
            found.append(place)
        seen |= directories
    return tuple(found)


def choose_place(target: Target, environment: Mapping[str, str], *, own: bool) -> Place | None:
    """Return the ROCm that the target's Python has in site-packages, or else the one that there is, or None.

    :param own: the target is a Python of this machine with its own loader. For another loader or another root directory nothing
        is guessed: the error says what was seen.
    :raises UsageError: there are several, or nothing is to be guessed; lists those that were found.
    """
    if not environment.get("ROCM_PATH") and (site := _of_python(target)):
        return Place(site, SITE_PACKAGES)
    places = find_places(target, environment)
    if len(places) == 1 and (own or places[0].found_by == "ROCM_PATH"):
        return places[0]
    if not places:
        return None
    listed = [_described(place, target) for place in places]
    if own:
        raise UsageError("several ROCms are here; choose one by --prefix, or set ROCM_PATH", listed)
    raise UsageError(
        "no ROCm is guessed with --interpreter or --sysroot; name one by --prefix. Found there:", listed
    )


def _of_python(target: Target) -> str | None:
    """The site-packages of the target's Python that has ROCm: the first, as its import finds it."""
    facts = target.python_facts
    places = facts.site_packages if facts is not None else ()
    return next((found for place in places if (found := find_site(place, target))), None)


def prefix_of_libraries(path: str, target: Target) -> str:
    """Return ``DIR`` for ``DIR/lib`` (lib64, ``lib/x86_64-linux-gnu``) where ROCm's runtime lies there; other paths as given.

    Beside the libraries lies what says which release they are.
    """
    absolute = posixpath.abspath(path)
    prefix = _prefix_of(absolute, target)
    if prefix == absolute:
        return path
    inside = any(
        (directory + "/").startswith(absolute + "/") for directory in _runtime_directories(prefix, target)
    )
    return prefix if inside else path


def _usual(target: Target) -> Iterator[Place]:
    for name in sorted(_names("/opt", target)):
        if name.startswith("rocm"):
            yield Place(f"/opt/{name}", "/opt")
    # AMD's packages since 7.14: each release in a directory of its own, and links to the one that update-alternatives chose.
    for name in sorted(_names("/opt/rocm", target)):
        if _CORE.fullmatch(name):
            yield Place(f"/opt/rocm/{name}", "/opt/rocm")
    if target.cache is not None:
        header = target.header
        for soname in sorted(filter(_RUNTIME.fullmatch, target.cache.entries)):
            path = lookup(
                target.cache,
                soname,
                machine=header.machine,
                elf_class=header.elf_class,
                hwcaps=target.hwcaps,
            )
            if path is not None:
                yield Place(_prefix_of(posixpath.dirname(path), target), "ld.so.cache")
    yield Place("/usr", "/usr")


def _prefix_of(directory: str, target: Target) -> str:
    """Take the ending of a library directory off; ``/lib`` of a merged system belongs to ``/usr``."""
    for main in sorted(main_directories(target.header.machine), key=len, reverse=True):
        if main and directory.endswith(f"/{main}"):
            return directory[: -len(main) - 1] or "/usr"
    return directory


def _runtime_directories(prefix: str, target: Target) -> list[str]:
    """The prefix's library directories in which a runtime lies."""
    directories = [
        posixpath.join(prefix, main).rstrip("/") for main in main_directories(target.header.machine)
    ]
    return [
        directory
        for directory in directories
        if any(_RUNTIME.fullmatch(name) for name in _names(directory, target))
    ]


def _names(directory: str, target: Target) -> list[str]:
    try:
        return os.listdir(resolve_inside(target.sysroot, directory))
    except OSError as error:
        raise_if_machine_fault(error, directory)
        return []


def _real(directory: str, target: Target) -> str:
    return os.path.realpath(resolve_inside(target.sysroot, directory))


def _described(place: Place, target: Target) -> str:
    try:
        release = release_of(open_place(place.path, target), target.sysroot)
    except RelinkError as error:
        return f"--prefix {place.path}  cannot be used: {error.message}"
    shown = f"ROCm {release.release}" if release else "ROCm of an unknown release"
    return f"--prefix {place.path}  {shown}, found in {place.found_by}"
