"""What is known of ROCm itself, as data: equal sonames, who loads what by dlopen, who has what, and which names are whose.

Data: ``profiles/rocm/rocm.toml``, and ``profiles/rocm/rocm-names.toml``, which ``scripts/record-names`` makes from the exports of
real libraries. A name belongs to one component at most.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping

import msgspec

from relink.providers.prefix import soname_stem
from relink.providers.profiles import DlopenEntry, EqualSonames, match_names, read_document, why_equal
from relink.system.shipped_files import shipped_directory
from relink.vendors.protocol import Component, OptionalLibrary, Relation, TextKind

VERSION_LABEL = re.compile(r"(?:^|\.)rocm\d[a-z0-9]*(?:\.\d[a-z0-9]*)*$")
"""A ROCm version at the end of a local version label: ``rocm7.2.4``, ``rocm7.11.0a20260101``, with the segments after it
that begin with a digit."""

ROCM = "rocm"
"""What the table is called where a finding rests on it, as on a profile."""


class _Facts(msgspec.Struct, frozen=True):
    same_abi: tuple[EqualSonames, ...]
    # The member of an entry is a soname without its version.
    dlopen: tuple[DlopenEntry, ...]
    components: tuple[Component, ...] = ()
    copies: Mapping[str, tuple[tuple[str, ...], str]] = msgspec.field(default_factory=dict)
    # The keys are sonames without their versions.
    stubs: Mapping[str, OptionalLibrary] = msgspec.field(default_factory=dict)
    of_host: Mapping[str, str] = msgspec.field(default_factory=dict)
    texts: Mapping[str, TextKind] = msgspec.field(default_factory=dict)  # by function
    # Up to this version of HIP, ROCm has the same one.
    same_until: tuple[int, ...] = ()
    # Above that: the version of HIP → that of ROCm.
    releases: Mapping[tuple[int, ...], str] = msgspec.field(default_factory=dict)


@functools.cache
def rocm_facts() -> _Facts:
    """Read the shipped table.

    :raises UsageError: it is damaged; names FILE:LINE of everything that is wrong.
    """
    data = read_document(shipped_directory("profiles") / "rocm/rocm.toml", "rocm/rocm", "table")
    keys = {key for row in data.get("component", ()) for key in row["sonames"]} - {"any"}
    newest = max(map(int, keys), default=None)
    return _Facts(
        msgspec.convert(data.get("same_abi", []), tuple[EqualSonames, ...]),
        tuple(
            DlopenEntry(row["library"], tuple(row["sonames"]), row["why"]) for row in data.get("dlopen", ())
        ),
        tuple(
            msgspec.convert(
                {"attribute": None, "newest": newest, **row}
                | {"packages": {family: row[family] for family in ("fedora", "arch") if family in row}},
                Component,
            )
            for row in data.get("component", ())
        ),
        {
            row["soname"]: (
                tuple(row["system"]),
                f"AMD builds it from {row['upstream']} ({row['source']}); {row['why']}",
            )
            for row in data.get("system_copy", ())
        },
        {
            row["library"]: msgspec.convert(
                row | {"answer": int(row["answer"]), "why": row.get("optional", "")}, OptionalLibrary
            )
            for row in data.get("stub", ())
        },
        {row["library"]: row["why"] for row in data.get("of_host", ())},
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


def same_abi(one: str, other: str) -> str | None:
    """Return why two sonames are one ABI, or None where nothing says so."""
    return why_equal(rocm_facts().same_abi, one, other)


def dlopens_of(soname: str, available: Collection[str]) -> dict[str, str]:
    """Return what the library with that soname is known to dlopen: soname → why.

    :param available: the library names that there are, which the globs of the table are matched with; a glob that matches
        none stands for itself, so that its absence can be reported.
    """
    stem = soname_stem(soname)
    entries = (entry for entry in rocm_facts().dlopen if entry.member == stem)
    return match_names(((glob, entry.why) for entry in entries for glob in entry.sonames), available)


def who_has(soname: str) -> Component | None:
    """Return the component that a library belongs to, whatever its version, or None where the table does not know it."""
    stem = soname_stem(soname)
    named = ((item, name) for item in rocm_facts().components for name in (*item.of(None), *item.debian))
    return next((item for item, name in named if soname_stem(name) == stem), None)


def has(soname: str) -> bool:
    """Whether a library, whatever its version, belongs to a component of ROCm or to one that ROCm needs."""
    return who_has(soname) is not None


# Itanium C++ ABI, 5.1: TV, TT, TI, TS, TC, GV and GR begin special names (virtual tables, type information, guards); N begins a
# nested name, which r, V, K, R and O qualify; a number is the length of the name behind it.
_NESTED = re.compile(r"_Z(?:T[VISTC]|G[VR])?N[rVKRO]*(?P<size>\d{1,4})")
_PLAIN = re.compile(r"_Z(?:T[VISTC]|G[VR])?(?P<size>\d{1,4})")


class Owner(msgspec.Struct, frozen=True):
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
    complete: bool
    namespaces: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Whether a symbol's name, mangled or not, is in the namespace of this component."""
        source, nested = source_name(name)
        return source in self.namespaces if nested else any(pattern.match(source) for pattern in self.names)


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
    return msgspec.convert(data["owner"], tuple[Owner, ...], dec_hook=lambda _, text: re.compile(text))


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
