"""The vendors that relink knows, and questions that go to all of them. A vendor is one line in :data:`VENDORS`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from relink.elf.source import ByteSource
from relink.gpu.coverage import FileCode, RequestedGpu, Survey, TargetId
from relink.gpu.removal import CodeRemoval
from relink.loader.target import Target
from relink.providers.prefix import Provider, soname_stem
from relink.system.errors import NoPlaceError, UsageError
from relink.vendors.cuda import cuda
from relink.vendors.protocol import Component, Place, Release, Vendor
from relink.vendors.rocm.vendor import rocm

if TYPE_CHECKING:  # slow to load
    from relink.wheel.source import MemberSource

VENDORS: tuple[Vendor, ...] = (rocm,)
"""In the order in which they are asked. The first is taken where nothing says whose a wheel is."""

RECOGNIZED: tuple[Vendor, ...] = (cuda,)
"""Vendors whose libraries and packages are known by name, and whose wheels relink does not relink."""


def list_products() -> str:
    """Return what the vendors call their libraries, for a sentence: of several ``A or B``."""
    return " or ".join(vendor.product for vendor in VENDORS)


def vendors_of(sonames: Collection[str]) -> tuple[Vendor, ...]:
    """Return the vendors whose libraries are among those that a wheel needs."""
    return tuple(vendor for vendor in VENDORS if any(map(vendor.libraries.is_own, sonames)))


def has_runtime(sonames: Iterable[str]) -> bool:
    """Whether a vendor's runtime is among some libraries."""
    return any(vendor.libraries.is_runtime(soname) for vendor in VENDORS for soname in sonames)


def vendor_of(sonames: Collection[str], providers: Iterable[Provider] = (), sysroot: str = "/") -> Vendor:
    """Return the vendor that a wheel is linked to: of those whose libraries it needs, the one whose release a provider holds.

    Where no provider decides, the wheel does; where it needs no vendor's library, the providers do.
    """
    needed = vendors_of(sonames)
    if len(needed) == 1 or len(VENDORS) == 1:
        return (needed or VENDORS)[0]
    candidates = needed or VENDORS
    held = (
        vendor
        for provider in providers
        for vendor in candidates
        if vendor.libraries.release_of(provider, sysroot)
    )
    return next(held, candidates[0])


def vendor_named(name: str) -> Vendor:
    """Return the vendor of that name.

    :raises KeyError: there is none.
    """
    return {vendor.name: vendor for vendor in VENDORS}[name]


def vendor_that_has(soname: str) -> Vendor | None:
    """Return the vendor whose product comes with a library, whatever its version, or None where no table has it."""
    return next((vendor for vendor in VENDORS if vendor.libraries.has(soname)), None)


def find_other_stack(soname: str) -> tuple[Vendor, str] | None:
    """Return the vendor that relink links no wheel to and whose library that is, with the soname, or None."""
    return next(((vendor, soname) for vendor in RECOGNIZED if vendor.libraries.is_own(soname)), None)


def find_driver_vendor(soname: str) -> Vendor | None:
    """Return the vendor with whose driver a library comes, or None."""
    return next((vendor for vendor in (*VENDORS, *RECOGNIZED) if vendor.libraries.is_driver(soname)), None)


def is_distribution(name: str) -> bool:
    """Whether a distribution brings a vendor's libraries into site-packages, or is there for those that do."""
    return any(vendor.packages.is_distribution(name) for vendor in VENDORS)


def release_of(provider: Provider, sysroot: str = "/") -> Release | None:
    """Return the release that a provider holds, by the first vendor that knows it for its own, or None."""
    releases = (vendor.libraries.release_of(provider, sysroot) for vendor in VENDORS)
    return next(filter(None, releases), None)


def find_places(target: Target, environment: Mapping[str, str], near: str | None = None) -> tuple[Place, ...]:
    """Return every prefix of the target that has libraries of a vendor.

    :param near: a directory; then those that a variable hides are found, too, and those in the directory or beside it.
    """
    return tuple(place for vendor in VENDORS for place in vendor.places.find(target, environment, near))


def choose_place(
    target: Target, environment: Mapping[str, str], sonames: Collection[str] = (), *, own: bool
) -> Place:
    """Return the prefix to use where the user names none: that of the vendor whose libraries a wheel needs.

    A wheel that needs no vendor's library gets the first vendor's that is there.

    :param sonames: what the wheel needs.
    :param own: the target is a Python of this machine with its own loader.
    :raises NoPlaceError: there is none.
    :raises SeveralPlacesError: one vendor has several, or nothing is to be guessed.
    :raises UsageError: several vendors have one.
    """
    needed = vendors_of(sonames)
    candidates = needed or VENDORS
    found = []
    for vendor in candidates:
        if place := vendor.places.choose(target, environment, own, sonames):
            found.append((vendor, place))
            if not needed:
                break
    if len(found) > 1:
        listed = [
            f"--prefix {place.path}  {vendor.product}, found in {place.found_by}" for vendor, place in found
        ]
        raise UsageError("the wheel has a part for each of several vendors; choose one by --prefix", listed)
    if found:
        return found[0][1]
    names = " or ".join(vendor.product for vendor in candidates)
    variables = " or ".join(vendor.places.variable for vendor in candidates)
    raise NoPlaceError(
        f"no {names}: name one by --prefix DIR, or set {variables} (none is in LD_LIBRARY_PATH, /opt, ld.so.cache or /usr)"
    )


def find_places_beside(target: Target, environment: Mapping[str, str], prefix: str) -> tuple[Place, ...]:
    """Return the places with parts of a vendor's libraries that the environment names beside a prefix that was found."""
    return tuple(
        place for vendor in VENDORS for place in vendor.places.find_beside(target, environment, prefix)
    )


def open_site(path: str, target: Target, gpus: Iterable[RequestedGpu] = ()) -> Provider | None:
    """Read what a vendor's packages in the site-packages that `path` may mean provide; None where there are none.

    :raises ProviderError: packages were found, but none has a library for this machine.
    """
    for vendor in VENDORS:
        if (site := vendor.packages.find_site(path, target)) is not None:
            return vendor.packages.open_site(site, target, processors_of(gpus, vendor))
    return None


def prefix_of_libraries(path: str, target: Target) -> str:
    """Return ``DIR`` for ``DIR/lib`` where a vendor's runtime lies there; other paths as given."""
    prefixes = (vendor.places.prefix_of_libraries(path, target) for vendor in VENDORS)
    return next((prefix for prefix in prefixes if prefix != path), path)


def list_components() -> tuple[Component, ...]:
    """Return the parts of every vendor's product."""
    return tuple(component for vendor in VENDORS for component in vendor.libraries.components())


def find_component(soname: str, major: int | None) -> tuple[Component, str] | None:
    """Return the component in nixpkgs that has a library, and the soname it has there, or None where no table has it.

    The soname itself is looked for first, then another version of it.
    """
    in_nixpkgs = (component for component in list_components() if component.attribute is not None)
    named = [(component, name) for component in in_nixpkgs for name in component.of(major)]
    exact = (pair for pair in named if pair[1] == soname)
    others = (pair for pair in named if soname_stem(pair[1]) == soname_stem(soname))
    return next(chain(exact, others), None)


def processors_of(gpus: Iterable[RequestedGpu], vendor: Vendor) -> list[str]:
    """Return the processors of those GPUs that are the vendor's."""
    return [gpu.target.processor for gpu in gpus if gpu.vendor == vendor.name]


def read_device_code(source: ByteSource, path: str) -> FileCode | None:
    """Read the device code of a file by the vendor who has code in it; else by the first one that says anything of it."""
    codes = [code for vendor in VENDORS if (code := vendor.gpus.read_code(source, path))]
    return next((code for code in codes if code.present), codes[0] if codes else None)


def remove_other_code(
    source: ByteSource, code: FileCode, gpus: Iterable[RequestedGpu], drop_jit: bool
) -> CodeRemoval:
    """Return what takes the code for other GPUs than these out of a file; nothing where none is of its vendor."""
    kept = [gpu.target for gpu in gpus if gpu.vendor == code.vendor]
    remove = vendor_named(code.vendor).gpus.remove_code
    return remove(source, code, kept, drop_jit) if kept else CodeRemoval((), code)


def list_other_files(
    members: Collection[str], kernels: Mapping[str, FileCode], gpus: Iterable[RequestedGpu]
) -> dict[str, str]:
    """Return the files of kernels for other GPUs of a vendor's than these alone → for which each is."""
    found: dict[str, str] = {}
    wanted = list(gpus)
    for vendor in VENDORS:
        if kept := [gpu.target for gpu in wanted if gpu.vendor == vendor.name]:
            own = {member: code for member, code in kernels.items() if code.vendor == vendor.name}
            found |= vendor.gpus.list_other_files(members, own, kept)
    return found


def list_kernel_suffixes() -> tuple[str, ...]:
    """Return how the names of files end that hold device code and nothing else."""
    return tuple(suffix for vendor in VENDORS for suffix in vendor.gpus.kernel_suffixes)


def add_archives(
    codes: Mapping[str, FileCode],
    archive: MemberSource,
    path_of: Callable[[str], str] = lambda member: member,
    sites: Iterable[tuple[str, str]] = (),
    beside: Iterable[MemberSource] = (),
    without: Collection[str] = (),
) -> dict[str, FileCode]:
    """Return the device code of a wheel's members with what archives of code hold for it; each vendor reads its own.

    :param path_of: where a member is installed.
    :param sites: pairs of a directory in which members are installed and one on disk that has other distributions' files.
    :param beside: other wheels that will be installed with it.
    :param without: members that are not installed.
    :raises WheelError: an archive's content is not what the wheel claims.
    """
    found = dict(codes)
    for vendor in VENDORS:
        own = {name: code for name, code in codes.items() if code.vendor == vendor.name}
        found |= vendor.gpus.add_archives(own, archive, path_of, sites, beside, without)
    return found


def find_local_gpus(
    root: str = "/", environment: Mapping[str, str] | None = None
) -> tuple[RequestedGpu, ...]:
    """Return the GPUs of this machine, each architecture once, as nobody has asked for them; none where none can be seen."""
    environment = os.environ if environment is None else environment
    return tuple(gpu for vendor in VENDORS for gpu in vendor.gpus.find_local(root, environment)[0])


def requested_gpus(
    texts: Iterable[str], root: str = "/", environment: Mapping[str, str] | None = None
) -> tuple[RequestedGpu, ...]:
    """Return the GPUs that ``--gpu`` names by target id or product, or as ``auto`` for those of this machine.

    Each architecture comes once.

    :param environment: may say that a GPU passes for another; this process's unless given.
    :raises UsageError: a name means nothing, or ``auto`` finds no GPU.
    """
    environment = os.environ if environment is None else environment
    found: dict[TargetId, RequestedGpu] = {}
    targets = " or ".join(vendor.gpus.examples[0] for vendor in VENDORS if vendor.gpus.examples)
    for text in texts:
        if text.strip().lower() == "auto":
            seen = [vendor.gpus.find_local(root, environment) for vendor in VENDORS]
            local = [replace(gpu, asked=True) for gpus, _ in seen for gpu in gpus]
            if not local:
                reason = "; ".join(problem for _, problems in seen for problem in problems)
                raise UsageError(f"auto finds no GPU: {reason} (for example {targets})")
            for gpu in local:
                found.setdefault(gpu.target, gpu)
        elif named := next(filter(None, (vendor.gpus.parse(text, environment) for vendor in VENDORS)), None):
            found.setdefault(named.target, named)
        else:
            names = " or ".join(vendor.gpus.examples[1] for vendor in VENDORS if vendor.gpus.examples)
            known = [
                name
                for vendor in VENDORS
                for pair in vendor.gpus.products().items()
                for name in (pair[0], *pair[1])
            ]
            close = difflib.get_close_matches(text.strip(), known)
            near = f"; names near it: {', '.join(close)}" if close else ""
            raise UsageError(
                f"--gpu {text}: no target id ({targets}), no product that relink knows ({names}), and not auto{near}"
            )
    return tuple(found.values())


def list_runtime_words() -> dict[str, str]:
    """Return key of the report's ``isa.runtime`` → what people call it, in the order in which it is shown."""
    return {key: word for vendor in VENDORS for key, word in vendor.gpus.runtime_words.items()}


def survey_place(
    path: Path, variants: Sequence[str], scan_limit: int, gpus: Iterable[RequestedGpu] = ()
) -> list[Survey]:
    """Return what each vendor's reader finds in a wheel, a file or a directory, where it finds something or its GPU is asked for.

    :param variants: globs of a wheel's members of which one is loaded.
    :param scan_limit: > 0 also searches that many bytes of other data sections of each file.
    :raises UsageError: there is nothing of that name.
    :raises WheelError: it is called .whl and is no wheel.
    """
    surveys = [found for vendor in VENDORS if (found := vendor.gpus.survey(path, variants, scan_limit))]
    asked = {gpu.vendor for gpu in gpus}
    return [found for found in surveys if found.items or found.vendor in asked] or surveys[:1]
