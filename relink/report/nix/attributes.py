"""Which attribute of nixpkgs has a library: by the table of components, else by the name of the store path it was found in."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from relink.providers.nix_store import name_in_store_path
from relink.providers.prefix import soname_stem
from relink.providers.profiles import Profile
from relink.vendors.registry import component_of, components

__all__ = [
    "EXTRA",
    "PYTHON",
    "attribute_of_path",
    "attribute_of_soname",
    "extra_attribute",
    "python_attribute",
]

EXTRA = "extraLibraries"
"""The scope of libraries that nixpkgs lacks: they are the package's argument of this name."""

PYTHON = "pythonPackages"
"""The scope of other Python packages; a directory of one is relative to site-packages."""

_ARCHITECTURES = re.compile(r"-gfx[0-9a-f]+(?:-gfx[0-9a-f]+)*$")  # clr.gpuArchSuffix


def attribute_of_soname(soname: str, major: int | None) -> str:
    """Return the attribute that has a library; one of `extraLibraries` where nixpkgs has none that is known."""
    found = component_of(soname, major)
    return (found and found[0].attribute) or extra_attribute(soname)


def python_attribute(profile: Profile) -> str:
    """Return ``pythonPackages.torch`` for the package that a profile is of."""
    return f"{PYTHON}.{_name(profile.nixpkgs or profile.distributions[0])}"


def extra_attribute(soname: str) -> str:
    """Return ``extraLibraries.hipsparselt`` for ``libhipsparselt.so.0``."""
    return f"{EXTRA}.{_name(posixpath.basename(soname_stem(soname)).removesuffix('.so').removeprefix('lib'))}"


def attribute_of_path(store_path: str, sonames: Iterable[str], major: int | None) -> tuple[str, bool]:
    """Return the attribute that a store path is of, and whether it is known rather than guessed from the path's name.

    Versions and the suffix of the GPUs (``hipblaslt-gfx1030-7.2.3``) are left out. An output that is neither ``out`` nor ``lib``
    is named: those two are what nixpkgs' ``lib.getLib`` finds by itself.

    :param sonames: libraries that it serves. The path's own name decides where it is that of a known attribute.
    """
    name = name_in_store_path(store_path)
    package = _ARCHITECTURES.sub("", name.package)
    output = f".{name.output}" if name.output not in (None, "lib") else ""
    for known in components():
        if known.attribute is not None and package in (known.attribute.rpartition(".")[2], *known.nix_names):
            return f"{known.attribute}{output}", True
    found = {
        component[0].attribute if (component := component_of(soname, major)) else None for soname in sonames
    }
    if len(found) == 1 and (only := found.pop()) is not None:
        return f"{only}{output}", True
    return f"pkgs.{_name(package)}{output}", False


def _name(text: str) -> str:
    """A name that needs no quotes and contains no dot, since a dot separates attributes."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text, flags=re.ASCII).strip("-") or "library"
    return plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"
