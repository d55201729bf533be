"""The plan of a package for Nix: attribute paths where a plan for one machine has directories."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, TypeAlias

from relink.planning.model.model import plain
from relink.system.findings.model import Finding

__all__ = [
    "SCHEMA",
    "About",
    "Base",
    "CodeSet",
    "Dlopens",
    "File",
    "Index",
    "Package",
    "PackagedTarget",
    "PathEntry",
    "Replaced",
    "RunPath",
    "Source",
    "StubFile",
    "plan_json",
]

SCHEMA = "relink.nix/1"
Base: TypeAlias = Literal["site-packages", "root"]


@dataclass(frozen=True, slots=True)
class PathEntry:
    """One entry of a search path: as it is (``$ORIGIN/…``), or a directory of an attribute's package.

    That of a Python package (``pythonPackages.torch``) is relative to site-packages.
    """

    text: str | None = None
    attribute: str | None = None
    directory: str = "lib"


@dataclass(frozen=True, slots=True)
class RunPath:
    """A whole search path; `kind` is ``runpath`` or ``rpath``."""

    kind: str
    entries: tuple[PathEntry, ...]


@dataclass(frozen=True, slots=True)
class Replaced:
    """One NEEDED by another."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class File:
    """What is done to one ELF file: `path` is relative to site-packages or to the package's root.

    :ivar sha256: of the vendor's file, hex, so that a build in which something else has changed it is seen.
    """

    base: Base
    path: str
    search_path: RunPath | None = None
    replace: tuple[Replaced, ...] = ()
    remove: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    interpreter: bool = False
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class StubFile:
    """A stub that the build writes: `path` is where, `sha256` hex, `content` its bytes in base64."""

    base: Base
    path: str
    soname: str
    sha256: str
    content: str


@dataclass(frozen=True, slots=True)
class Dlopens:
    """What a library, or a member by its path, is known to dlopen: globs of sonames."""

    library: str
    sonames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PackagedTarget:
    """One code object: a target id, and its generic version where it was read."""

    target: str
    version: int | None


@dataclass(frozen=True, slots=True)
class CodeSet:
    """The distinct sets of code objects in the bundles of one member: a GPU needs code in each of them.

    :ivar compressed: comgr unpacks them.
    :ivar variant: Python picks one of several such members, so one that covers a GPU is enough.
    """

    path: str
    sets: tuple[tuple[PackagedTarget, ...], ...]
    compressed: bool = False
    variant: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """The parts of a wheel's name that nixpkgs' fetchPypi makes PyPI's address of; its arguments are called so."""

    pname: str
    version: str
    dist: str
    python: str
    abi: str
    platform: str


@dataclass(frozen=True, slots=True)
class Source:
    """The vendor's wheel: a name that a store can have, the SRI hash, and either its address or what fetchPypi takes.

    :ivar sha256: the same hash, hex, as lock files have it.
    """

    name: str
    hash: str
    url: str | None = None
    index: Index | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class About:
    """What the wheel says of itself; `license` is an SPDX expression, `program` the command that it is called for."""

    description: str = ""
    homepage: str | None = None
    license: str | None = None
    changelog: str | None = None
    program: str | None = None


@dataclass(frozen=True, slots=True)
class Package:
    """Everything that a package for Nix is made of.

    :ivar python: ``3.12``, or None for a wheel that any Python 3 takes.
    :ivar rocm: the ROCm major that it was made for.
    :ivar proved: whether the plan was resolved against libraries of a Nix store, not made from the table alone.
    :ivar libraries: attribute → what is needed of it.
    :ivar stubs: what the build adds to the wheel's files; a library of an attribute comes before them.
    :ivar undefined: globs of symbols that a dry run of one file leaves open, since the process supplies them.
    :ivar dlopens: what the planner knows to be dlopened, for the build's dry run.
    :ivar again: the options, quoted for a shell, that make the same plan anew.
    :ivar missing: globs of libraries that may be missing.
    :ivar dependencies: names of Python packages; `siblings` those that the vendor alone has; `same_version` those of
        nixpkgs whose version must be the wheel's.
    """

    pname: str
    version: str
    source: Source
    python: str | None
    rocm: int | None
    proved: bool
    libraries: tuple[tuple[str, tuple[str, ...]], ...]
    files: tuple[File, ...]
    stubs: tuple[StubFile, ...] = ()
    coverage: tuple[CodeSet, ...] = ()
    undefined: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    dlopens: tuple[Dlopens, ...] = ()
    again: str = ""
    about: About = About()
    dependencies: tuple[str, ...] = ()
    siblings: tuple[str, ...] = ()
    same_version: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


_PACKAGE_ONLY = frozenset(
    {"about", "dependencies", "siblings", "same_version", "imports", "gpus", "findings"}
)


def plan_json(package: Package) -> str:
    """Return the plan that nix/resolve.nix reads; what a user may want to change is in package.nix instead."""
    data = {key: value for key, value in plain(package).items() if key not in _PACKAGE_ONLY}
    data["libraries"] = {attribute: list(sonames) for attribute, sonames in package.libraries}
    return json.dumps({"schema": SCHEMA, **data}, indent=1) + "\n"
