"""Advice that goes with findings: which package has a missing library, and the hints of the wheel's profile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from relink.providers.distribution import Distribution
from relink.providers.nix_store import NIX_STORE
from relink.providers.prefix import Provider
from relink.providers.profiles import Profile
from relink.system.findings.model import RULES, Finding
from relink.vendors.rocm.facts import who_has

__all__ = ["install_command", "missing_remedy", "where_to_get", "with_hints"]


def where_to_get(soname: str, distribution: Distribution | None, providers: Iterable[Provider]) -> str | None:
    """Return which package of the target's distribution brings a library, or None where it is no part of ROCm that is known.

    Where the distribution, or what it calls the package, is not known, the sentence names the component and no command.

    :param distribution: the target's.
    :param providers: where one of them is in a Nix store, the sentence names the attribute of nixpkgs.
    """
    component = who_has(soname)
    if component is None:
        return None
    nix = any(provider.kind == NIX_STORE for provider in providers)
    part = f"{soname} is part of {component.name}"
    if nix or (distribution is not None and distribution.family == "nixos"):
        known = component.attribute is not None and soname in component.of(None)
        return f"{part}: {component.attribute} in nixpkgs." if known else f"{part}."
    package = component.package(soname, distribution.family) if distribution else None
    if distribution is None or package is None:
        return f"{part}."
    same = "" if distribution.family == "debian" else ", if its release has this version"
    return f"{part}; on {distribution.name}: {distribution.command(package)}{same}."


def install_command(
    soname: str, distribution: Distribution | None, providers: Iterable[Provider]
) -> str | None:
    """Return the command of the target's distribution that installs a library of that very soname, or None.

    Only Debian's packages are named by the soname; elsewhere the release that is installed may have another.
    """
    component = who_has(soname)
    if component is None or distribution is None or distribution.family != "debian":
        return None
    if any(provider.kind == NIX_STORE for provider in providers):
        return None
    package = component.package(soname, distribution.family)
    return distribution.command(package) if package else None


def missing_remedy(
    soname: str, distribution: Distribution | None, providers: Iterable[Provider], remedy: str | None = None
) -> str:
    """Return what to do about a missing library: `remedy`, or else the rule's own, and where the library is to be had."""
    where = where_to_get(soname, distribution, providers)
    return f"{remedy or RULES['RLK101'].fix}{f' {where}' if where else ''}"


def with_hints(findings: Iterable[Finding], profile: Profile) -> Iterator[Finding]:
    """Add to the remedies what the profile says about such findings."""
    for found in findings:
        texts = dict.fromkeys(hint.text for hint in profile.hints if hint.fits(found.code, found.subject))
        addition = "".join(f" {text} (profile {profile.name})" for text in texts)
        yield replace(found, remedy=found.remedy + addition) if addition else found
