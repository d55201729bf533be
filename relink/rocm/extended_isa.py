"""Whether a provider's HIP runtime takes the code of related processors: gfx1030's on a gfx1031, say.

Stock HIP does not. Two distributions patch it: nixpkgs since ROCm 6.0 (rocm-modules: "extend ISA compatibility", tried there by
test-isa-compat.nix), Debian up to 6.4.2. The patch leaves no string or exported symbol that another runtime has not: where the
library comes from decides. It concerns code that HIP itself selects. comgr, which unpacks compressed bundles, is not patched.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable

from relink.providers.nix_store import NIX_STORE, name_in_store_path, store_path
from relink.providers.prefix import Provider

__all__ = ["extended_by"]

_DEBIAN = re.compile(r"/usr/lib/[a-z0-9_]+-linux-gnu/libamdhip64\.so\.(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
_DEBIAN_BUILDS = (5, 7), (6, 4, 43484)  # the first with the patch; the build of 6.4.3, which dropped it


def extended_by(providers: Iterable[Provider], hip: str) -> str | None:
    """Return whose patch makes the HIP runtime take related processors' code, as a phrase, or None for a stock one.

    :param hip: the soname of the HIP runtime, or its name without the version.
    """
    names = (hip, *(f"{hip}.{major}" for major in (7, 6, 5)))
    for provider in providers:
        path = next((place for name in names if (place := provider.find(name))), None)
        if path is None:
            continue
        item = store_path(path) if provider.kind == NIX_STORE else None
        if item is not None and name_in_store_path(item).package == "clr":
            return "nixpkgs' HIP"
        directory = posixpath.dirname(path)
        real = posixpath.join(directory, os.path.basename(os.path.realpath(path)))
        if found := _DEBIAN.search(real):
            build = tuple(int(part) for part in found.groups())
            if _DEBIAN_BUILDS[0] <= build < _DEBIAN_BUILDS[1]:
                return "Debian's HIP before 6.4.3"
        return None
    return None
