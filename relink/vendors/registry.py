"""The vendors that relink knows, and questions that go to all of them. A vendor is one line in :data:`VENDORS`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from relink.loader.target import Target
from relink.providers.prefix import Provider, soname_stem
from relink.system.errors import UsageError
from relink.vendors.protocol import Component, Place, Release, Vendor
from relink.vendors.rocm.vendor import rocm

VENDORS: tuple[Vendor, ...] = (rocm,)
"""In the order in which they are asked. The first is taken where nothing says whose a wheel is."""


def products() -> str:
    """Return what the vendors call their libraries, for a sentence: ``ROCm``; of several ``A or B``."""
    return " or ".join(vendor.product for vendor in VENDORS)


def vendor_of(sonames: Collection[str]) -> Vendor:
    """Return the vendor whose libraries are among those that a wheel needs."""
    # The first vendor is the answer wherever no other one's library is needed, so only the others are asked.
    others = (vendor for vendor in VENDORS[1:] if any(map(vendor.is_own, sonames)))
    return next(others, VENDORS[0])


def vendor_that_has(soname: str) -> Vendor | None:
    """Return the vendor whose product comes with a library, whatever its version, or None where no table has it."""
    return next((vendor for vendor in VENDORS if vendor.has(soname)), None)


def release_of(provider: Provider, sysroot: str = "/") -> Release | None:
    """Return the release that a provider holds, by the first vendor that knows it for its own, or None."""
    return next(filter(None, (vendor.release_of(provider, sysroot) for vendor in VENDORS)), None)


def find_places(target: Target, environment: Mapping[str, str]) -> tuple[Place, ...]:
    """Return every prefix of the target that has libraries of a vendor."""
    return tuple(place for vendor in VENDORS for place in vendor.find_places(target, environment))


def choose_place(target: Target, environment: Mapping[str, str], *, own: bool) -> Place:
    """Return the prefix to use where the user names none: of the first vendor that is there.

    :param own: the target is a Python of this machine with its own loader.
    :raises UsageError: there is none, or there are several, or nothing is to be guessed.
    """
    for vendor in VENDORS:
        if place := vendor.choose_place(target, environment, own=own):
            return place
    variables = " or ".join(vendor.variable for vendor in VENDORS)
    raise UsageError(
        f"no {products()}: name one by --prefix DIR, or set {variables} (none is in /opt, in ld.so.cache or in /usr)"
    )


def open_site(path: str, target: Target, gpus: Sequence[str] = ()) -> Provider | None:
    """Read what a vendor's packages in the site-packages that `path` may mean provide; None where there are none.

    :raises ProviderError: they are there, and no library of them is for the target.
    """
    sites = ((vendor, vendor.find_site(path, target)) for vendor in VENDORS)
    return next((vendor.open_site(site, target, gpus) for vendor, site in sites if site is not None), None)


def prefix_of_libraries(path: str, target: Target) -> str:
    """Return ``DIR`` for ``DIR/lib`` where a vendor's runtime lies there; other paths as given."""
    prefixes = (vendor.prefix_of_libraries(path, target) for vendor in VENDORS)
    return next((prefix for prefix in prefixes if prefix != path), path)


def components() -> tuple[Component, ...]:
    """Return the parts of every vendor's product."""
    return tuple(component for vendor in VENDORS for component in vendor.components())


def extended_by(providers: Sequence[Provider], runtime: str) -> str | None:
    """Return whose patch makes a runtime take related processors' code, as a phrase, or None for a stock one."""
    return next(filter(None, (vendor.extended_by(providers, runtime) for vendor in VENDORS)), None)


def component_of(soname: str, major: int | None) -> tuple[Component, str] | None:
    """Return the component in nixpkgs that has a library, and the soname it has there, or None where no table has it.

    The soname itself is looked for first, then another version of it.
    """
    in_nixpkgs = (component for component in components() if component.attribute is not None)
    named = [(component, name) for component in in_nixpkgs for name in component.of(major)]
    exact = (pair for pair in named if pair[1] == soname)
    others = (pair for pair in named if soname_stem(pair[1]) == soname_stem(soname))
    return next(chain(exact, others), None)
