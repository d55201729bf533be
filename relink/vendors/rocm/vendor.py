"""ROCm as :class:`relink.vendors.protocol.Vendor`, and the sentences about who has its libraries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from relink.gpu.amd import device
from relink.gpu.amd.device_code import read_device_code, same_device_code, with_archives
from relink.gpu.amd.runtime import RUNTIME_WORDS
from relink.gpu.amd.side_files import KERNEL_DIRECTORIES
from relink.gpu.amd.survey import survey
from relink.gpu.amd.target_id import table
from relink.providers.distribution import Distribution
from relink.providers.prefix import NIX_STORE, Provider, soname_stem
from relink.vendors.protocol import Gpus, Libraries, Packages, Places, Vendor
from relink.vendors.rocm import facts, installation, places
from relink.vendors.rocm.gpus import check_wheel, diagnose

PREFIXES = {"debian": "/usr", "fedora": "/usr", "arch": "/opt/rocm"}
"""Where the packages of each family of distributions put ROCm's libraries."""


def _removal() -> Any:
    """Return the module that knows how code is taken out."""
    from relink.gpu.amd import removal  # noqa: PLC0415 - for --only-gpu, and wheels made with it, alone

    return removal


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
    """Return the command of the target's distribution that installs a library of that soname or of the same ABI, or None.

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
    if component is None or distribution is None or any(provider.kind == NIX_STORE for provider in providers):
        return None
    # A package puts nothing into another prefix than the system's.
    prefix = PREFIXES.get(distribution.family or "")
    if prefix is None or (providers and all(provider.path != prefix for provider in providers)):
        return None
    own = [release for provider in providers if (release := installation.release_of(provider))]
    # Debian names the package by the soname: that of the same ABI under another number serves as well.
    equal = [name for name in component.debian if facts.same_abi(soname, name)]
    packages = (component.package(name, distribution.family) for name in dict.fromkeys([soname, *equal]))
    commands = (
        distribution.command(package, own[0].release if own else None) for package in packages if package
    )
    return next(filter(None, commands), None)


rocm = Vendor(
    name=facts.ROCM,
    product="ROCm",
    libraries=Libraries(
        runtime="libamdhip64.so",
        runtime_libraries=("libamdhip64.so", "libamd_comgr.so", "libhsa-runtime64.so"),
        runtime_name="HIP runtime",
        is_own=facts.is_own,
        has=facts.has,
        is_runtime=facts.is_runtime,
        # The driver of AMD's GPUs is a module of the kernel (amdgpu), and each library is ROCm's or the system's.
        is_driver=lambda _: False,
        of_host=lambda soname: facts.rocm_facts().of_host.get(soname_stem(soname)),
        needs_host=lambda root: device.is_wsl(root),  # noqa: PLW0108 (looked up when it is asked)
        same_abi=facts.same_abi,
        copy_of=lambda soname: facts.rocm_facts().copies.get(soname),  # noqa: PLW0108 (read when it is asked)
        optional=lambda soname: facts.rocm_facts().stubs.get(soname_stem(soname)),
        text_of=lambda name: facts.rocm_facts().texts.get(name),  # noqa: PLW0108 (the same)
        whose=facts.whose,
        dlopens_of=facts.dlopens_of,
        components=lambda: facts.rocm_facts().components,
        package_set="rocmPackages",
        package_support="rocmSupport",
        torch_variable="hip",
        words=("rocm", "hip"),
        where_to_get=where_to_get,
        install=install,
        release_of=installation.release_of,
    ),
    places=Places(
        variable="ROCM_PATH",
        named=places.find_named,
        find=places.find_places,
        choose=places.choose_place,
        find_beside=places.find_places_beside,
        prefix_of_libraries=places.prefix_of_libraries,
    ),
    packages=Packages(
        version_label=facts.VERSION_LABEL,
        is_package=places.is_package,
        is_distribution=places.is_distribution,
        bundles=places.bundles,
        device_note=places.device_note,
        narrow=places.narrow,
        find_site=places.find_site,
        open_site=places.open_site,
        packages_of=places.packages_of,
        site_findings=places.site_findings,
        preload_lines=places.preload_lines,
    ),
    gpus=Gpus(
        examples=("gfx1031", "RX 6750 XT"),
        read_code=read_device_code,
        kernel_suffixes=(".co", ".hsaco"),
        compare_code=same_device_code,
        remove_code=lambda *of: _removal().remove_other_code(*of),
        find_changed_entries=lambda *of: _removal().find_changed_entries(*of),
        list_other_files=lambda *of: _removal().list_other_files(*of),
        add_archives=with_archives,
        parse=device.parse_gpu,
        find_local=device.find_local,
        products=lambda: {name: one.products for name, one in table().processors.items()},
        check=check_wheel,
        survey=survey,
        diagnose=diagnose,
        kernel_directories=KERNEL_DIRECTORIES,
        variables=("ROCM_*", "HIP_*", "HSA_*"),
        runtime_words=RUNTIME_WORDS,
    ),
)
"""ROCm, as the registry lists it."""
