"""Nix store paths as providers: the links of joins and profiles are followed to the store directories of the libraries.

The store's directory comes from $NIX_STORE_DIR or from Nix itself, nowhere from an assumption.
Sources: Nix manual, "Store Path" (32 characters of Nix' base 32, a dash, a name), `nix-store --query`, `nix-store --add-root`.
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
import subprocess
from collections.abc import Iterable, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from relink.elf.image import read_image
from relink.loader.seen_files import resolve_inside
from relink.loader.target import Target
from relink.providers.prefix import NIX_STORE, Provider, open_prefix
from relink.system.errors import ElfError, ProviderError
from relink.system.programs import NIX, NoAnswerError, ask_program, make_named_environment
from relink.system.safe_open import map_file

# Seconds. The closure of a whole system is listed in one.
_TIMEOUT = 120
# Nix' base 32 has no e, o, t and u.
_ITEM = re.compile(r"[0-9abcdfghijklmnpqrsvwxyz]{32}-[0-9a-zA-Z+\-._?=]+")
# Nearly as builtins.parseDrvName, where the version begins at the first dash before anything but a letter: here before a digit.
# Behind the version may be an output (Nix manual, "Store Derivation"), and not what makes it another version.
_VERSION = re.compile(
    r"(?:(?!-\d).)*-(\d{1,9}(?:\.\d{1,9})+)(?:-(?!(?:unstable|pre|alpha|beta|rc|git)$)[a-z]+)?"
)
# Characters of a store path's name before the package's: the hash and a dash.
_HASH = 33
# Links that are followed for one library, as many as Linux follows (MAXSYMLINKS).
_HOPS = 40
_RUNTIME = "libstdc++.so.6"


def store_directory() -> str | None:
    """Return the store's directory: $NIX_STORE_DIR, or what Nix says; None where neither knows."""
    given = os.environ.get("NIX_STORE_DIR")
    return os.path.realpath(given) if given else store_directory_by_nix()


@functools.cache
def store_directory_by_nix() -> str | None:
    """Return the store's directory as Nix on this machine says it; None without Nix, or if it does not answer."""
    try:
        # With the store of this machine Nix would make its directories where there are none.
        run = _run(["nix-instantiate", "--eval", "--store", "dummy://", "--expr", "builtins.storeDir"])
    except NoAnswerError:
        return None
    found = run.stdout.strip().strip('"')
    return os.path.realpath(found) if run.returncode == 0 and found.startswith("/") else None


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return ask_program(command, timeout=_TIMEOUT, environment=make_named_environment(NIX))


def store_path(path: str) -> str | None:
    """Return the store path that `path` lies in, links of `path` itself not followed; None outside of the store.

    Nix is asked only where a component of the path looks like a store path's name.
    """
    parts = posixpath.normpath(path).split("/")
    for number, part in enumerate(parts):
        if number > 1 and _ITEM.fullmatch(part):
            parent = "/".join(parts[:number])
            if os.path.realpath(parent) == store_directory():
                return f"{parent}/{part}"
    return None


def open_place(path: str, target: Target) -> Provider:
    """Open what ``--prefix`` names. Where its libraries lie in a store, the provider names their real store directories.

    A symlinkJoin, a profile and ``/run/current-system/sw`` hold only links into the store. A C library in the store is left
    out, since it goes with the loader.

    :raises ProviderError: there is no such directory, or no library for the target in it.
    """
    provider = open_prefix(path, target)
    if target.sysroot != "/":
        return provider
    found = {name: tuple(_in_store(item) for item in items) for name, items in provider.libraries.items()}
    if not any(store_path(item) for items in found.values() for item in items):
        return provider
    places = {posixpath.dirname(item) for items in found.values() for item in items}
    glibc = {*filter(_is_glibc, places)}
    libraries = {
        name: tuple(dict.fromkeys(item for item in items if posixpath.dirname(item) not in glibc))
        for name, items in sorted(found.items())
    }
    kept = {name: items for name, items in libraries.items() if items}
    used = dict.fromkeys(posixpath.dirname(item) for items in kept.values() for item in items)
    order = {os.path.realpath(directory): number for number, directory in enumerate(provider.directories)}
    directories = sorted(used, key=lambda directory: order.get(directory, len(order)))
    return replace(provider, kind=NIX_STORE, directories=tuple(directories), libraries=MappingProxyType(kept))


def _in_store(path: str) -> str:
    """Follow the links of one library into the store, as long as its name stays what the loader will ask for."""
    name = posixpath.basename(path)
    best = current = posixpath.join(os.path.realpath(posixpath.dirname(path)), name)
    for _ in range(_HOPS):
        try:
            link = os.readlink(current)
        except OSError:  # no link: here it is
            break
        absolute = posixpath.join(posixpath.dirname(current), link)
        current = posixpath.join(os.path.realpath(posixpath.dirname(absolute)), posixpath.basename(absolute))
        if posixpath.basename(current) == name and store_path(current):
            best = current
    return best


def _is_glibc(directory: str) -> bool:
    return store_path(directory) is not None and os.path.exists(posixpath.join(directory, "libc.so.6"))


def version_in_store_path(path: str) -> tuple[str, str] | None:
    """Return the version of the store path that `path` lies in, and the name it is part of; None where there is none.

    ``("7.2.3", "clr-7.2.3")`` for ``/nix/store/…-clr-7.2.3/lib/libamdhip64.so.7``.
    """
    name = posixpath.basename(store_path(path) or "")[_HASH:]
    version = _VERSION.fullmatch(name)
    return (version[1], name) if version else None


def closure_of(path: str) -> tuple[str, ...]:
    """Return the store paths of the closure of `path`, itself last (`nix-store --query --requisites`).

    :raises ProviderError: Nix is not here, or knows no such path.
    """
    return tuple(_nix_store(["--query", "--requisites", path], f"--nix-closure {path}").split())


def _nix_store(arguments: list[str], what: str) -> str:
    try:
        run = _run(["nix-store", *arguments])
    except NoAnswerError as error:
        is_late = isinstance(error.__cause__, subprocess.TimeoutExpired)
        advice = "is its daemon running?" if is_late else "install Nix"
        raise ProviderError(f"{what}: nix-store {error}; {advice}") from error
    if run.returncode != 0:
        reason = (run.stderr.strip() or "no reason given").splitlines()[-1]
        raise ProviderError(f"{what}: {reason}; name a path that is in the store")
    return run.stdout


def open_closure(path: str, target: Target) -> tuple[Provider, ...]:
    """Open every store path of the closure of `path` that holds libraries for the target; the C library's is left out.

    What comes last in Nix' order, `path` itself and what is built upon the others, comes first.

    :raises ProviderError: Nix does not know the path, or there is no library in its closure.
    """
    found = []
    for item in reversed(closure_of(os.path.realpath(path))):
        try:
            provider = open_place(item, target)
        except ProviderError:  # most store paths of a closure hold no libraries
            continue
        if provider.libraries:
            found.append(replace(provider, closure=path))
    if not found:
        raise ProviderError(
            f"--nix-closure {path}: no library for the target in it; name a package that has some"
        )
    return tuple(found)


def find_compiler_runtime(providers: Sequence[Provider], target: Target) -> tuple[Provider, ...]:
    """Return the package of the compiler's run-time libraries that store libraries were built with, if no provider has it.

    A wheel needs libstdc++ itself, nixpkgs' loader has no default directory that has it, and on another system the host's may be
    older than what the libraries ask for. Every C++ library of a store names its directory in its search path.
    """
    stores = [provider for provider in providers if provider.kind == NIX_STORE]
    if any(provider.find(_RUNTIME) for provider in stores):
        return ()
    for provider in stores:
        for paths in provider.libraries.values():
            for entry in _search_path(paths[0]):
                item = store_path(entry)
                if item and not _is_glibc(entry) and os.path.exists(posixpath.join(entry, _RUNTIME)):
                    return (open_place(item, target),)
    return ()


def _search_path(library: str) -> list[str]:
    try:
        with map_file(library) as buffer:
            return (read_image(buffer, library).search_path or "").split(":")
    except (OSError, ElfError):  # it is reported where a wheel needs it
        return []


def find_loader_in(path: str) -> str | None:
    """Return the loader of the C library that the closure of `path` was built with, or None where it has none."""
    items = reversed(closure_of(os.path.realpath(path)))
    loaders = (posixpath.join(item, "lib", "ld-linux-x86-64.so.2") for item in items)
    return next((loader for loader in loaders if os.path.exists(resolve_inside("/", loader))), None)


def add_roots(paths: Iterable[str], directory: str) -> tuple[str, ...]:
    """Register one garbage collector root for each store path, as a link in `directory`; returns the links.

    Deleting the directory frees the paths at the next collection.

    :raises ProviderError: Nix cannot register them.
    """
    links = []
    for path in paths:
        link = posixpath.join(posixpath.abspath(directory), posixpath.basename(path))
        os.makedirs(posixpath.dirname(link), exist_ok=True)
        _nix_store(["--add-root", link, "--indirect", "--realise", path], f"--gc-root {directory}")
        links.append(link)
    return tuple(links)
