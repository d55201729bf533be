"""Whose a symbol is: which names each component of ROCm exports, as data (``profiles/rocm/rocm-names.toml``).

``scripts/record-names`` makes the table from the exports of real libraries. A name belongs to one component at most.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from relink.providers.prefix import soname_stem
from relink.providers.profiles import read_document
from relink.system.shipped_files import shipped_directory
from relink.vendors.protocol import Relation

__all__ = ["Owner", "is_own", "is_runtime", "owner_of", "owners", "source_name", "whose"]

_NESTED = re.compile(r"_Z(?:T[VISTC]|G[VR])?N[rVKRO]*(?P<size>\d{1,4})")
_PLAIN = re.compile(r"_Z(?:T[VISTC]|G[VR])?(?P<size>\d{1,4})")


@dataclass(frozen=True, slots=True)
class Owner:
    """What one component of ROCm exports.

    :ivar libraries: its sonames without their versions.
    :ivar names: anchored patterns of its C names, and of C++ functions and classes outside of any namespace.
    :ivar namespaces: its outermost C++ namespaces.
    :ivar others: names that its libraries export as well and that are nobody's.
    :ivar complete: names, namespaces and `others` are all that its libraries export, as far as they were seen.
    """

    component: str
    libraries: tuple[str, ...]
    names: tuple[re.Pattern[str], ...]
    namespaces: frozenset[str]
    others: frozenset[str]
    complete: bool

    def has(self, name: str) -> bool:
        """Whether a symbol's name, mangled or not, is in the namespace of this component."""
        source, nested = source_name(name)
        if nested:
            return source in self.namespaces
        return any(pattern.match(source) for pattern in self.names)


def source_name(name: str) -> tuple[str, bool]:
    """Return what a symbol's owner is read from: the outermost namespace or class (and True), or else its own name (and False).

    The Itanium C++ ABI, 5.1 "External names": ``_ZN6miopen6HandleC1Ev`` is in ``miopen``. Local names and names of templates of
    the standard library give the mangled name itself, which no pattern matches.
    """
    for pattern, nested in ((_NESTED, True), (_PLAIN, False)):
        if found := pattern.match(name):
            size = int(found["size"])
            text = name[found.end() : found.end() + size]
            return (text, nested) if len(text) == size else (name, False)
    return name, False


@functools.cache
def owners() -> tuple[Owner, ...]:
    """Read the shipped table.

    :raises UsageError: it is damaged; names FILE:LINE of everything that is wrong.
    """
    data = read_document(shipped_directory("profiles") / "rocm/rocm-names.toml", "rocm/rocm-names", "table")
    return tuple(
        Owner(
            row["component"],
            tuple(row["libraries"]),
            tuple(map(re.compile, row["names"])),
            frozenset(row.get("namespaces", ())),
            frozenset(row.get("others", ())),
            row["complete"],
        )
        for row in data["owner"]
    )


def owner_of(name: str) -> Owner | None:
    """Return the component that a symbol belongs to, or None where the table knows none."""
    return next((owner for owner in owners() if owner.has(name)), None)


def whose(soname: str, name: str) -> Relation:
    """Say whether a library of that soname, whatever its version, is where a symbol comes from."""
    stem = soname_stem(soname)
    own = next((owner for owner in owners() if stem in owner.libraries), None)
    if own is None:
        return "unknown"
    if name in own.others:
        return "shared"
    owner = owner_of(name)
    if owner is own:
        return "own"
    return "foreign" if owner is not None or own.complete else "unknown"


def is_own(soname: str) -> bool:
    """Whether a library, whatever its version, is one of ROCm's."""
    return any(soname_stem(soname) in owner.libraries for owner in owners())


def is_runtime(soname: str) -> bool:
    """Whether a library, whatever its version, is the HIP or the HSA runtime: one process, one release, one driver."""
    return soname_stem(soname) in ("libamdhip64.so", "libhsa-runtime64.so")
