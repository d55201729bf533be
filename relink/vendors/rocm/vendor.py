"""ROCm as :class:`relink.vendors.protocol.Vendor`: this module has the object that the registry lists."""

from __future__ import annotations

from collections.abc import Iterable

from relink.providers.distribution import Distribution
from relink.providers.prefix import NIX_STORE, Provider, soname_stem
from relink.providers.profiles import EqualSonames, OptionalLibrary
from relink.vendors.protocol import Component, TextKind, Vendor
from relink.vendors.rocm import facts, installation, places


def where_to_get(soname: str, distribution: Distribution | None, providers: Iterable[Provider]) -> str | None:
    """Return which package of the target's distribution brings a library, or None where it is no part of ROCm that is known.

    Where the distribution, or what it calls the package, is not known, the sentence names the component and no command.

    :param distribution: the target's.
    :param providers: where one of them is in a Nix store, the sentence names the attribute of nixpkgs.
    """
    component = facts.who_has(soname)
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
    component, providers = facts.who_has(soname), tuple(providers)
    package = component.package(soname, distribution.family) if component and distribution else None
    if distribution is None or package is None or any(provider.kind == NIX_STORE for provider in providers):
        return None
    own = [release for provider in providers if (release := installation.release_of(provider))]
    return distribution.command(
        package, own[0].release if own else None, [provider.path for provider in providers]
    )


class _Rocm(Vendor):
    """What other packages ask of ROCm."""

    table = facts.ROCM
    product = "ROCm"
    runtime = "libamdhip64.so"
    runtime_libraries = (runtime, "libamd_comgr.so", "libhsa-runtime64.so")
    runtime_name = "HIP runtime"
    variable = "ROCM_PATH"
    version_label = facts.VERSION_LABEL

    dlopens_of = staticmethod(facts.dlopens_of)
    has = staticmethod(facts.has)
    is_own = staticmethod(facts.is_own)
    is_runtime = staticmethod(facts.is_runtime)
    same_abi = staticmethod(facts.same_abi)
    whose = staticmethod(facts.whose)
    extended_by = staticmethod(installation.extended_by)
    release_of = staticmethod(installation.release_of)
    bundles = staticmethod(places.bundles)
    choose_place = staticmethod(places.choose_place)
    find_places = staticmethod(places.find_places)
    find_site = staticmethod(places.find_site)
    is_distribution = staticmethod(places.is_distribution)
    is_package = staticmethod(places.is_package)
    open_site = staticmethod(places.open_site)
    packages_of = staticmethod(places.packages_of)
    prefix_of_libraries = staticmethod(places.prefix_of_libraries)
    preload_lines = staticmethod(places.preload_lines)
    site_findings = staticmethod(places.site_findings)
    install = staticmethod(install)
    where_to_get = staticmethod(where_to_get)

    def components(self) -> tuple[Component, ...]:
        return facts.rocm_facts().components

    def copy_of(self, soname: str) -> EqualSonames | None:
        return facts.rocm_facts().copies.get(soname)

    def optional(self, soname: str) -> OptionalLibrary | None:
        return facts.rocm_facts().stubs.get(soname_stem(soname))

    def text_of(self, name: str) -> TextKind | None:
        return facts.rocm_facts().texts.get(name)


rocm = _Rocm()
"""The one object of it."""
