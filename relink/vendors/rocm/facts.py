"""What is known of ROCm itself, as data (``profiles/rocm/rocm.toml``): equal sonames, who loads what by dlopen, and who has
what in nixpkgs and in distributions.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from relink.providers.prefix import soname_stem
from relink.providers.profiles import (
    DlopenEntry,
    EqualSonames,
    OptionalLibrary,
    SystemCopy,
    read_document,
)
from relink.system.shipped_files import shipped_directory
from relink.vendors.protocol import Component, TextKind

__all__ = [
    "ROCM",
    "VERSION_LABEL",
    "components",
    "copy_of",
    "dlopens_of",
    "has",
    "optional_library",
    "release_of_hip",
    "rocm_facts",
    "same_abi",
    "who_has",
]

VERSION_LABEL = re.compile(r"(?:^|\.)rocm\d[a-z0-9]*(?:\.\d[a-z0-9]*)*$")
"""A ROCm version at the end of a local version label: ``rocm7.2.4``, ``rocm7.11.0a20260101``, with the segments after it
that begin with a digit."""

ROCM = "rocm"
"""What the table is called where a finding rests on it, as on a profile."""


@dataclass(frozen=True, slots=True)
class _Facts:
    same_abi: tuple[EqualSonames, ...]
    dlopen: tuple[DlopenEntry, ...]  # the member is a soname without its version
    components: tuple[Component, ...] = ()
    copies: Mapping[str, SystemCopy] = field(default_factory=dict)
    stubs: Mapping[str, OptionalLibrary] = field(default_factory=dict)  # by soname without its version
    texts: Mapping[str, TextKind] = field(default_factory=dict)  # by function
    same_until: tuple[int, ...] = ()  # up to this version HIP and ROCm have one
    releases: Mapping[tuple[int, ...], str] = field(default_factory=dict)  # HIP's version → ROCm's, above it


@functools.cache
def rocm_facts() -> _Facts:
    """Read the shipped table.

    :raises UsageError: it is damaged; names FILE:LINE of everything that is wrong.
    """
    data = read_document(shipped_directory("profiles") / "rocm/rocm.toml", "rocm/rocm", "table")
    keys = {key for row in data.get("component", ()) for key in row["sonames"]} - {"any"}
    newest = max(map(int, keys), default=None)
    return _Facts(
        tuple(EqualSonames(tuple(row["sonames"]), row["why"]) for row in data.get("same_abi", ())),
        tuple(
            DlopenEntry(row["library"], tuple(row["sonames"]), row["why"]) for row in data.get("dlopen", ())
        ),
        tuple(
            Component(
                row["name"],
                row.get("attribute"),
                {key: tuple(items) for key, items in row["sonames"].items()},
                row.get("debian", {}),
                {family: row[family] for family in ("fedora", "arch") if family in row},
                newest,
            )
            for row in data.get("component", ())
        ),
        {
            row["soname"]: SystemCopy(
                tuple(row["system"]), f"AMD builds it from {row['upstream']} ({row['source']}); {row['why']}"
            )
            for row in data.get("system_copy", ())
        },
        {
            row["library"]: OptionalLibrary(
                row["names"],
                row["status"],
                int(row["answer"]),
                row.get("optional", ""),
                frozenset(row["functions"]),
            )
            for row in data.get("stub", ())
        },
        {name: kind for kind, names in data.get("text", {}).items() for name in names},
        _numbers(data["hip"]["same_until"]),
        {_numbers(hip): release for hip, release in data["hip"]["releases"].items()},
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def release_of_hip(hip: tuple[int, int]) -> str | None:
    """Return the release of ROCm that came with a version of HIP, ``10.0`` for (7, 15), or None where the table has none."""
    facts = rocm_facts()
    return f"{hip[0]}.{hip[1]}" if hip <= facts.same_until else facts.releases.get(hip)


def components() -> tuple[Component, ...]:
    """Return the parts of ROCm, and what they need, that the table has."""
    return rocm_facts().components


def same_abi(one: str, other: str) -> str | None:
    """Return why two sonames are one ABI, or None where nothing says so."""
    for entry in rocm_facts().same_abi:
        if one in entry.sonames and other in entry.sonames and one != other:
            return entry.why
    return None


def copy_of(soname: str) -> SystemCopy | None:
    """Return the system's library that a library of AMD's is a copy of, or None where the table names none."""
    return rocm_facts().copies.get(soname)


def optional_library(soname: str) -> OptionalLibrary | None:
    """Return what a stub of a library needs to know, or None where the table does not know it."""
    return rocm_facts().stubs.get(soname_stem(soname))


def text_of(name: str) -> TextKind | None:
    """Say how a function that only describes an error gives its text, or return None for any other function."""
    return rocm_facts().texts.get(name)


def dlopens_of(soname: str, available: Collection[str]) -> dict[str, str]:
    """Return what the library with that soname is known to dlopen: soname → why.

    :param available: the library names that there are, which the globs of the table are matched with; a glob that matches
        none stands for itself, so that its absence can be reported.
    """
    found: dict[str, str] = {}
    stem = soname_stem(soname)
    for entry in rocm_facts().dlopen:
        if entry.member != stem:
            continue
        for pattern in entry.sonames:
            names = [name for name in available if fnmatch.fnmatchcase(name, pattern)]
            found |= dict.fromkeys(names or [pattern], entry.why)
    return found


def who_has(soname: str) -> Component | None:
    """Return the component that a library belongs to, whatever its version, or None where the table does not know it."""
    stem = soname_stem(soname)
    named = ((item, name) for item in rocm_facts().components for name in (*item.of(None), *item.debian))
    return next((item for item, name in named if soname_stem(name) == stem), None)


def has(soname: str) -> bool:
    """Whether a library, whatever its version, belongs to a component of ROCm or to one that ROCm needs."""
    return who_has(soname) is not None
