"""Profiles: what is known of one vendor package, as data. They never change what is provable, only what is assumed."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from relink.errors import UsageError

__all__ = ["NO_PROFILE", "Profile", "Release", "profile_directory", "profile_for", "read_profile"]


@dataclass(frozen=True, slots=True)
class Release:
    """A release of one of the package's distributions whose GPU code is known: its processors, and where that was seen."""

    distribution: str
    version: str
    gpus: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of one package.

    :ivar distributions: the distribution names it applies to.
    :ivar variants: member globs of libraries of which Python picks one at run time; those that a prefix cannot serve stay as
        they are.
    :ivar preload: members that the package loads into the global scope before others.
    :ivar rpath_drop: globs of ``$ORIGIN`` entries that leave the wheel and that the prefix takes the place of.
    :ivar releases: releases of the package whose GPU code is known, to name one that has what another lacks.
    :ivar source: where a statement above can be checked.
    """

    name: str
    distributions: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    rpath_drop: tuple[str, ...] = ()
    releases: tuple[Release, ...] = ()
    source: str = ""

    def is_variant(self, member: str) -> bool:
        """Whether `member` is one of several of which one is loaded."""
        return any(fnmatch.fnmatchcase(member, pattern) for pattern in self.variants)

    def drops(self, entry: str) -> bool:
        """Whether a search path entry to a sibling package goes."""
        return any(fnmatch.fnmatchcase(entry, pattern) for pattern in self.rpath_drop)


NO_PROFILE = Profile("none")
_SCHEMA = "relink.profile/1"
_STRINGS = ("schema", "name", "source")
_LISTS = ("distributions", "variants", "preload")


def profile_directory() -> Path:
    """Return the directory of the shipped profiles: inside of the package when installed, beside it in a source tree."""
    inside = Path(str(resources.files("relink"))) / "_profiles"
    return inside if inside.is_dir() else Path(__file__).resolve().parent.parent / "profiles"


def profile_for(distribution: str) -> Profile:
    """Return the shipped profile of a distribution, or :data:`NO_PROFILE`.

    :raises UsageError: a shipped profile is damaged.
    """
    wanted = canonicalize_name(distribution)
    for path in sorted(profile_directory().glob("packages/*.toml")):
        profile = read_profile(path)
        if wanted in profile.distributions:
            return profile
    return NO_PROFILE


def read_profile(path: Path) -> Profile:
    """Read one profile.

    :raises UsageError: it cannot be read, is not TOML, or has a key that does not exist; names the file and the key.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path.name}: the profile cannot be read ({error})") from error
    return _profile(data, path.name)


def _profile(data: Mapping[str, Any], where: str) -> Profile:
    issues = [f"{key}: no such key" for key in sorted(set(data) - {*_STRINGS, *_LISTS, "rpath", "releases"})]
    issues += [f"{key}: a string was expected" for key in _STRINGS if not isinstance(data.get(key, ""), str)]
    rpath = data.get("rpath", {})
    lists = {key: data.get(key, []) for key in _LISTS}
    if isinstance(rpath, dict):
        issues += [f"rpath.{key}: no such key" for key in sorted(set(rpath) - {"drop"})]
        lists["rpath.drop"] = rpath.get("drop", [])
    else:
        issues.append("rpath: a table was expected")
    for key, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            issues.append(f"{key}: a list of strings was expected")
    releases = _releases(data.get("releases", []), issues)
    if data.get("schema") != _SCHEMA:
        issues.append(f'schema: "{_SCHEMA}" was expected')
    if issues:
        raise UsageError(f"{where}: not a profile that this relink understands", issues)
    return Profile(
        name=data.get("name", where.removesuffix(".toml")),
        distributions=tuple(str(canonicalize_name(item)) for item in lists["distributions"]),
        variants=tuple(lists["variants"]),
        preload=tuple(lists["preload"]),
        rpath_drop=tuple(lists["rpath.drop"]),
        releases=releases,
        source=data.get("source", ""),
    )


def _releases(rows: Any, issues: list[str]) -> tuple[Release, ...]:
    """Read ``[[releases]]``: distribution, version, gpus and source, all four."""
    found = []
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], 1):
        match row:
            case {
                "distribution": str(name),
                "version": str(version),
                "gpus": [*gpus],
                "source": str(source),
            } if len(row) == 4 and gpus and all(isinstance(gpu, str) for gpu in gpus):
                found.append(Release(str(canonicalize_name(name)), version, tuple(gpus), source))
            case _:
                issues.append(
                    f"releases, number {number}: distribution, version, a list of gpus and source were expected"
                )
    return tuple(found)
