"""What is known of ROCm itself, as data (``profiles/rocm.toml``): equal sonames, who loads what by dlopen, and who has what in
nixpkgs.
"""

from __future__ import annotations

import fnmatch
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relink.errors import UsageError
from relink.profiles import profile_directory
from relink.providers.prefix import soname_stem

__all__ = ["Component", "Dlopen", "SameAbi", "component_of", "dlopens_of", "rocm_facts", "same_abi"]

_SCHEMA = "relink.rocm/1"


@dataclass(frozen=True, slots=True)
class SameAbi:
    """Sonames that are one ABI under several numbers, and why."""

    sonames: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Dlopen:
    """What a library (a soname without its version) loads by dlopen: globs of sonames, and why."""

    library: str
    sonames: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Component:
    """A package of nixpkgs and the sonames it has.

    :ivar attribute: a path such as ``rocmPackages.clr`` or ``pkgs.numactl``.
    :ivar sonames: ROCm major → sonames; the key ``any`` holds for every major.
    """

    attribute: str
    sonames: Mapping[str, tuple[str, ...]]

    def of(self, major: int | None) -> tuple[str, ...]:
        """Return its sonames in that ROCm; those of every major where none is given."""
        if major is None:
            return tuple(soname for items in self.sonames.values() for soname in items)
        return (*self.sonames.get("any", ()), *self.sonames.get(str(major), ()))


@dataclass(frozen=True, slots=True)
class _Facts:
    same_abi: tuple[SameAbi, ...]
    dlopen: tuple[Dlopen, ...]
    components: tuple[Component, ...] = ()


@functools.cache
def rocm_facts() -> _Facts:
    """Read the shipped table.

    :raises UsageError: it is damaged; names the entry.
    """
    path = profile_directory() / "rocm.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        if data.pop("schema") != _SCHEMA or set(data) - {"same_abi", "dlopen", "component"}:
            raise UsageError(f"{path.name}: not a table that this relink understands")
        return _Facts(
            tuple(
                SameAbi(_strings(entry["sonames"]), str(entry["why"])) for entry in data.get("same_abi", ())
            ),
            tuple(
                Dlopen(str(entry["library"]), _strings(entry["sonames"]), str(entry["why"]))
                for entry in data.get("dlopen", ())
            ),
            tuple(
                Component(
                    str(entry["attribute"]), {key: _strings(items) for key, items in entry["sonames"].items()}
                )
                for entry in data.get("component", ())
            ),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path.name}: the table cannot be read ({error!r})") from error


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError("a list of strings was expected")
    return tuple(value)


def same_abi(one: str, other: str) -> str | None:
    """Return why two sonames are one ABI, or None where nothing says so."""
    for entry in rocm_facts().same_abi:
        if one in entry.sonames and other in entry.sonames and one != other:
            return entry.why
    return None


def dlopens_of(soname: str, available: tuple[str, ...]) -> dict[str, str]:
    """Return what the library with that soname is known to dlopen: soname → why.

    :param available: the library names that there are, which the globs of the table are matched with; a glob that matches
        none stands for itself, so that its absence can be told.
    """
    found: dict[str, str] = {}
    for entry in rocm_facts().dlopen:
        if entry.library != soname_stem(soname):
            continue
        for pattern in entry.sonames:
            names = [name for name in available if fnmatch.fnmatchcase(name, pattern)]
            found |= dict.fromkeys(names or [pattern], entry.why)
    return found


def component_of(soname: str, major: int | None) -> tuple[Component, str] | None:
    """Return the package of nixpkgs that has a library, and the soname it has there, or None where the table knows none.

    The soname itself is looked for first, then another version of it.
    """
    others = []
    for component in rocm_facts().components:
        for name in component.of(major):
            if name == soname:
                return component, name
            if soname_stem(name) == soname_stem(soname):
                others.append((component, name))
    return others[0] if others else None
