"""What is known of one vendor's libraries, passed in from above: ``resolve`` itself names no vendor.

:mod:`relink.planning.wheel_plan` passes what :mod:`relink.vendors.rocm` knows of ROCm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from relink.providers.distribution import Distribution
from relink.providers.prefix import Provider
from relink.providers.profiles import OptionalLibrary, SystemCopy

__all__ = ["NO_VENDOR", "Relation", "Vendor"]

Relation: TypeAlias = Literal["own", "shared", "foreign", "unknown"]
"""Whether a library is where a symbol comes from: ``own``, it is; ``shared``, it may be, and so may others; ``foreign``, it is
not; ``unknown``, no table says."""


@dataclass(frozen=True, slots=True)
class Vendor:
    """Facts about libraries that their ELF files do not show. The defaults know nothing.

    :ivar table: the name that findings and evidence give as the source of such a fact.
    :ivar product: what a remedy calls the vendor's libraries as a whole.
    :ivar same_abi: (soname, soname) → why the two are one ABI, or None.
    :ivar dlopens_of: (soname, names of the available libraries) → the sonames that this library dlopens, each with the reason.
    :ivar where_to_get: (soname, distribution, providers) → a sentence that says which package has the library, or None.
    :ivar install: the same → the command that installs exactly that library, or None.
    :ivar whose: (soname, name of a symbol) → whether the library is where the symbol comes from.
    :ivar copy_of: soname → the system's library that it is a copy of, or None.
    :ivar optional: soname → what a stub of the library needs to know, or None where it is not optional.
    :ivar is_own: soname → whether the library is one of the vendor's, of which a process must not have two.
    :ivar is_package: the name of a directory in site-packages → whether it is one that the vendor's libraries lie in.
    :ivar is_runtime: soname → whether it is one that all of the vendor's libraries share, and that belongs to a driver.
    """

    table: str = "vendor"
    product: str = "release"
    same_abi: Callable[[str, str], str | None] = lambda _one, _other: None
    dlopens_of: Callable[[str, Collection[str]], Mapping[str, str]] = lambda _soname, _available: {}
    where_to_get: Callable[[str, Distribution | None, Iterable[Provider]], str | None] = (
        lambda _soname, _distribution, _providers: None
    )
    install: Callable[[str, Distribution | None, Iterable[Provider]], str | None] = (
        lambda _soname, _distribution, _providers: None
    )
    whose: Callable[[str, str], Relation] = lambda _soname, _name: "unknown"
    copy_of: Callable[[str], SystemCopy | None] = lambda _soname: None
    optional: Callable[[str], OptionalLibrary | None] = lambda _soname: None
    is_own: Callable[[str], bool] = lambda _soname: False
    is_package: Callable[[str], bool] = lambda _name: False
    is_runtime: Callable[[str], bool] = lambda _soname: False


NO_VENDOR = Vendor()
