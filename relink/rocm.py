"""What is known of ROCm itself, as data (``profiles/rocm.toml``): equal sonames, and who loads what by dlopen."""

from __future__ import annotations

import fnmatch
import functools
import tomllib
from dataclasses import dataclass
from typing import Any

from relink.errors import UsageError
from relink.profiles import profile_directory
from relink.providers.prefix import soname_stem

__all__ = ["Dlopen", "SameAbi", "dlopens_of", "rocm_facts", "same_abi"]

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
class _Facts:
    same_abi: tuple[SameAbi, ...]
    dlopen: tuple[Dlopen, ...]


@functools.cache
def rocm_facts() -> _Facts:
    """Read the shipped table.

    :raises UsageError: it is damaged; names the entry.
    """
    path = profile_directory() / "rocm.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        if data.pop("schema") != _SCHEMA or set(data) - {"same_abi", "dlopen"}:
            raise UsageError(f"{path.name}: not a table that this relink understands")
        return _Facts(
            tuple(
                SameAbi(_strings(entry["sonames"]), str(entry["why"])) for entry in data.get("same_abi", ())
            ),
            tuple(
                Dlopen(str(entry["library"]), _strings(entry["sonames"]), str(entry["why"]))
                for entry in data.get("dlopen", ())
            ),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
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
