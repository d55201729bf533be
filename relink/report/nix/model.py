"""What a package for Nix is made of."""

from __future__ import annotations

from dataclasses import dataclass

from relink.system.findings.model import Finding

__all__ = ["About", "Index", "Package", "Source"]


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
    """The vendor's wheel: a name that a store can have, the SRI hash, and either its address or what fetchPypi takes."""

    name: str
    hash: str
    url: str | None = None
    index: Index | None = None


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

    :ivar release: name and version, which wheels of one package share.
    :ivar python: ``3.12`` of a wheel for that Python alone, else None.
    :ivar inputs: attributes of nixpkgs (``rocmPackages.clr``) → what is needed of each.
    :ivar unknown: libraries that no attribute is known to have.
    :ivar dependencies: names of Python packages; `siblings` those that the vendor alone has; `same_version` those of
        nixpkgs whose version must be the wheel's.
    :ivar stub: as :attr:`relink.planning.options.Options.stub`; so are `missing` and `gpus`.
    """

    release: tuple[str, str]
    source: Source
    python: str | None
    inputs: tuple[tuple[str, tuple[str, ...]], ...]
    unknown: tuple[str, ...] = ()
    about: About = About()
    dependencies: tuple[str, ...] = ()
    siblings: tuple[str, ...] = ()
    same_version: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    stub: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
