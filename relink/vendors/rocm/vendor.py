"""ROCm as :class:`relink.vendors.protocol.Vendor`: this module is the object that the registry lists."""

from __future__ import annotations

from collections.abc import Iterable

from relink.providers.distribution import Distribution
from relink.providers.nix_store import NIX_STORE
from relink.providers.prefix import Provider
from relink.vendors.rocm.facts import (
    ROCM,
    VERSION_LABEL,
    components,
    copy_of,
    dlopens_of,
    has,
    is_own,
    is_runtime,
    same_abi,
    text_of,
    who_has,
    whose,
)
from relink.vendors.rocm.facts import optional_library as optional
from relink.vendors.rocm.installation import extended_by, release_of
from relink.vendors.rocm.places import (
    bundles,
    choose_place,
    find_places,
    find_site,
    is_distribution,
    is_package,
    open_site,
    packages_of,
    prefix_of_libraries,
    preload_lines,
    site_findings,
)

__all__ = [
    "bundles",
    "choose_place",
    "components",
    "copy_of",
    "dlopens_of",
    "extended_by",
    "find_places",
    "find_site",
    "has",
    "install",
    "is_distribution",
    "is_own",
    "is_package",
    "is_runtime",
    "open_site",
    "optional",
    "packages_of",
    "prefix_of_libraries",
    "preload_lines",
    "product",
    "release_of",
    "runtime",
    "runtime_libraries",
    "runtime_name",
    "same_abi",
    "site_findings",
    "table",
    "text_of",
    "variable",
    "version_label",
    "where_to_get",
    "whose",
]

table = ROCM
product = "ROCm"
runtime = "libamdhip64.so"
runtime_libraries: tuple[str, ...] = (runtime, "libamd_comgr.so", "libhsa-runtime64.so")
runtime_name = "HIP runtime"
variable = "ROCM_PATH"
version_label = VERSION_LABEL


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
    command = _command(soname, distribution, providers)
    if distribution is None or command is None:
        return f"{part}."
    same = "" if distribution.family == "debian" else ", if its release has this version"
    return f"{part}; on {distribution.name}: {command}{same}."


def install(soname: str, distribution: Distribution | None, providers: Iterable[Provider]) -> str | None:
    """Return the command of the target's distribution that installs a library of that very soname, or None.

    Only Debian's packages are named by the soname; elsewhere the release that is installed may have another.
    """
    return (
        _command(soname, distribution, providers)
        if distribution and distribution.family == "debian"
        else None
    )


def _command(soname: str, distribution: Distribution | None, providers: Iterable[Provider]) -> str | None:
    """Return the command that installs the package of a library where the providers would have it then."""
    component, providers = who_has(soname), tuple(providers)
    package = component.package(soname, distribution.family) if component and distribution else None
    if distribution is None or package is None or any(provider.kind == NIX_STORE for provider in providers):
        return None
    own = [release for provider in providers if (release := release_of(provider))]
    return distribution.command(
        package, own[0].release if own else None, [provider.path for provider in providers]
    )
