"""The recipe of an index (``index.toml``): sources, Pythons, targets, and what becomes of refused wheels.

Unlike settings, a recipe is named on the command line by whoever runs it, so it may name loaders and Pythons.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from relink.indexes.install.installers import SIZE
from relink.planning.options import Options
from relink.providers.profiles import (
    DOCUMENT_LIMIT,
    KeyPath,
    Problem,
    check_document,
    find_problems,
    parse_document,
    read_named_text,
)
from relink.system.errors import UsageError
from relink.system.shipped_files import load_schema
from relink.vendors.registry import requested_gpus
from relink.wheel.naming import WheelName

_KINDS = ("index", "directory", "lock")
_TARGET_NAME = re.compile(r"[a-z][a-z0-9]{0,30}")
_UNITS = {"M": 20, "G": 30, "T": 40}
_SUPERSEDED = 90  # days
_RESERVED = frozenset({"files", "projects", "simple"})  # directories of a site


class WheelSource(msgspec.Struct, frozen=True):
    """Where wheels come from.

    :ivar kind: ``index``, ``directory`` or ``lock``.
    :ivar place: ``pip`` or an address of an index, a directory, or a lock file.
    :ivar requirements: of an index all that is taken; of the others a choice, everything where there is none.
    :ivar latest: so many releases of each requirement, the newest; None for all.
    """

    kind: str
    place: str
    requirements: tuple[Requirement, ...] = ()
    latest: int | None = None


class IndexTarget(msgspec.Struct, frozen=True):
    """What wheels are relinked for: the fields of :class:`~relink.planning.options.Options` that a recipe sets.

    :ivar name: of letters and digits; it stands in addresses.
    """

    name: str
    prefixes: tuple[str, ...]
    interpreter: str | None = None
    python: str | None = None
    sysroot: str | None = None
    gpus: tuple[str, ...] = ()
    only_gpus: tuple[str, ...] = ()
    allow_missing: tuple[str, ...] = ()
    substitute: tuple[str, ...] = ()
    assume_symbols: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    stub: tuple[str, ...] = ()
    profile: str | None = None

    def options(self, output: Path = Path()) -> Options:
        """Return the options of relinking one wheel for this target."""
        return Options(
            **{name: getattr(self, name) for name in self.__struct_fields__ if name != "name"},
            # A GPU that is not covered refuses no wheel here: the matrix says it.
            allow_isa_gap=True,
            output_directory=output,
            # Tasks run side by side already, so each has one thread.
            jobs=1,
        )


class Recipe(msgspec.Struct, frozen=True):
    """What an index is made of.

    :ivar pythons: (major, minor) of each CPython.
    :ivar refused: ``report`` or ``fail``.
    :ivar originals: ``mirror``, ``link`` or ``omit``.
    :ivar cache_size: bytes.
    :ivar deny: releases that the index must not have.
    :ivar superseded: seconds that a file stays listed when a newer one of the same wheel is there.
    """

    path: Path
    pythons: tuple[tuple[int, int], ...]
    sources: tuple[WheelSource, ...]
    targets: tuple[IndexTarget, ...]
    refused: str = "report"
    originals: str = "mirror"
    cache_size: int = SIZE
    deny: tuple[Requirement, ...] = ()
    superseded: float = _SUPERSEDED * 86400.0


def covers(requirement: Requirement, name: WheelName) -> bool:
    """Whether a requirement names the release of a wheel."""
    same = canonicalize_name(requirement.name) == name.canonical
    return same and requirement.specifier.contains(name.version, prereleases=True)


def read_recipe(path: Path) -> Recipe:
    """Read a recipe.

    :raises UsageError: it cannot be read, or is none; names FILE:LINE of each problem.
    """
    text = read_named_text(path, DOCUMENT_LIMIT, "recipe")
    data = parse_document(text, path, "recipe")
    wrong = list(find_problems(data, load_schema("recipe")))
    check_document(wrong or _more_problems(data), text, path, "recipe")
    size = str(data.get("cache-size", ""))
    sources = []
    for row in data["sources"]:
        kind = next(kind for kind in _KINDS if kind in row)
        place = row[kind] if kind == "index" else os.path.join(path.parent, row[kind])
        wanted = tuple(map(Requirement, row.get("requirements", ())))
        sources.append(WheelSource(kind, place, wanted, row.get("latest")))
    return Recipe(
        path=path,
        pythons=tuple((3, int(python.partition(".")[2])) for python in data["pythons"]),
        sources=tuple(sources),
        targets=tuple(_target(name, target, path.parent) for name, target in data["targets"].items()),
        refused=data.get("refused", "report"),
        originals=data.get("originals", "mirror"),
        cache_size=int(size[:-1]) << _UNITS[size[-1]] if size else SIZE,
        deny=tuple(map(Requirement, data.get("deny", ()))),
        superseded=int(data.get("superseded", f"{_SUPERSEDED}d")[:-1]) * 86400.0,
    )


def read_release(text: str) -> Requirement:
    """Read ``NAME`` or ``NAME==VERSION``.

    :raises UsageError: it is neither.
    """
    if why := _wrong_requirement(text):
        raise UsageError(f"{text!r}: {why}")
    return Requirement(text)


def _more_problems(data: Mapping[str, Any]) -> Iterator[Problem]:
    """What a JSON schema cannot say."""
    requirements: dict[KeyPath, Any] = {("deny",): data.get("deny", ())}
    for number, source in enumerate(data["sources"]):
        requirements["sources", number, "requirements"] = source.get("requirements", ())
        kinds = [kind for kind in _KINDS if kind in source]
        if len(kinds) != 1:
            yield Problem(("sources", number), "one of index, directory and lock was expected, and only one")
        elif kinds == ["index"] and "requirements" not in source:
            text = "the key requirements is missing: an index has more than anybody wants to relink"
            yield Problem(("sources", number), text)
    for at, texts in requirements.items():
        for place, text in enumerate(texts):
            if why := _wrong_requirement(text):
                yield Problem((*at, place), why)
    for name, target in data["targets"].items():
        if not _TARGET_NAME.fullmatch(name) or name in _RESERVED:
            yield Problem(
                ("targets", name),
                "a target's name has small letters and digits, begins with a letter, and is none of "
                f"{', '.join(sorted(_RESERVED))}: it stands in addresses",
            )
        for key in ("gpus", "only-gpus"):
            for place, gpu in enumerate(target.get(key, ())):
                where = ("targets", name, key, place)
                if gpu.strip().lower() == "auto":
                    yield Problem(where, "auto is the GPU of one machine; name GPUs")
                    continue
                try:
                    requested_gpus([gpu])
                except UsageError as error:
                    yield Problem(where, error.message)


def _wrong_requirement(text: str) -> str | None:
    try:
        parsed = Requirement(text)
    except (InvalidRequirement, RecursionError):
        return "no requirement; write it like name>=1.0; python_version >= '3.11'"
    return "a requirement with a URL is not taken; put the wheel into a directory" if parsed.url else None


def _target(name: str, data: Mapping[str, Any], base: Path) -> IndexTarget:
    facts: dict[str, Any] = {
        key.replace("-", "_"): tuple(value) if isinstance(value, list) else value
        for key, value in data.items()
    }
    facts["prefixes"] = tuple(os.path.abspath(os.path.join(base, prefix)) for prefix in data["prefixes"])
    for key in ("interpreter", "sysroot", "python", "profile"):
        value = facts.get(key, "")
        # The others are paths; these may be names that are looked up.
        named = key in ("python", "profile") and "/" not in value and not value.endswith(".toml")
        if value and not named:
            facts[key] = os.path.abspath(os.path.join(base, value))
    return IndexTarget(name, **facts)
