"""What a plan rests on: the wheel and the libraries that it was made from, with digests that show whether they have changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from relink.elf.source import linking_digest
from relink.loader.seen_files import resolve_inside
from relink.loader.target import GLIBC_SONAMES
from relink.planning.model.files import FilePlan
from relink.system.errors import ElfError, UsageError
from relink.system.safe_open import file_sha256, map_file
from relink.system.system_errors import raise_if_machine_fault

LIBRARY_LIMIT: Final = 16 << 30
"""Bytes of a library that is hashed; the largest known one has 1.1 GB."""
_MEMBERS: Final = ("$WHEEL/", "$PREFIX/")


@dataclass(frozen=True, slots=True)
class LibraryFacts:
    """A library outside of the wheel that a plan rests on.

    :ivar path: as the target sees it.
    :ivar digest: of what linking depends on (:func:`relink.elf.source.linking_digest`).
    :ivar sha256: of the whole content, hex; None where it was not computed.
    """

    path: str
    digest: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Basis:
    """What a plan was made from, on the machine that made it. A plan inside of a wheel has none.

    :ivar wheel: the input's absolute path.
    """

    wheel: str
    libraries: tuple[LibraryFacts, ...]


def record_basis(wheel: str, files: Iterable[FilePlan], sysroot: str) -> Basis:
    """Return what the plans of a wheel's files rest on.

    :param wheel: the wheel's path.
    :param sysroot: what the paths of libraries are below.
    """
    paths = dict.fromkeys(path for file in files for _, path in file.closure if not path.startswith(_MEMBERS))
    return Basis(
        os.path.abspath(wheel),
        tuple(LibraryFacts(path, _digest(resolve_inside(sysroot, path))) for path in paths),
    )


def with_contents(basis: Basis, sysroot: str) -> Basis:
    """Return the basis with the digest of each library's whole content; reads all of them."""
    libraries = tuple(
        replace(library, sha256=library.sha256 or _digest(resolve_inside(sysroot, library.path), whole=True))
        for library in basis.libraries
    )
    return replace(basis, libraries=libraries)


def provider_digests(paths: Iterable[str], files: Sequence[FilePlan], sysroot: str) -> list[str]:
    """Return a digest for each provider, by which another run sees that it is the same.

    It is the SHA-256 of a sorted line for each library that the closures have of the provider: the library's
    :func:`~relink.elf.source.linking_digest` and the soname. The C library's parts are the target's, and left out.

    :param paths: of the providers.
    :raises UsageError: a library cannot be read.
    """
    sonames = {path: soname for file in files for soname, path in file.closure}
    roots = [path.rstrip("/") + "/" for path in paths]
    lines = {
        path: f"{_digest(resolve_inside(sysroot, path))} {soname}\n"
        for path, soname in sonames.items()
        if soname not in GLIBC_SONAMES and path.startswith(tuple(roots))
    }

    def digest(root: str) -> str:
        # Sorted, since another plan may reach the same libraries in another order.
        own = sorted(line for path, line in lines.items() if path.startswith(root))
        return hashlib.sha256("".join(own).encode("utf-8", "surrogateescape")).hexdigest()

    return [digest(root) for root in roots]


def list_changes(basis: Basis | None, sysroot: str) -> Iterator[str]:
    """Yield what has changed among the libraries that a plan rests on, a sentence each."""
    for library in () if basis is None else basis.libraries:
        path = resolve_inside(sysroot, library.path)
        try:
            whole = library.sha256 is not None
            same = _digest(path, whole=whole) == (library.sha256 if whole else library.digest)
        except UsageError as error:
            yield error.message
            continue
        if not same:
            yield f"{library.path} is not the file that the plan was made with"


def _digest(path: str, *, whole: bool = False) -> str:
    """Return the digest of what linking depends on, or of the whole content."""
    try:
        if whole:
            return file_sha256(path, LIBRARY_LIMIT)
        with map_file(path) as buffer:
            return linking_digest(buffer)
    except (OSError, ElfError) as error:
        raise_if_machine_fault(error, path)
        raise UsageError(f"{path} cannot be read: {error}") from error
