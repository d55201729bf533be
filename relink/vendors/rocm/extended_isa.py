"""Whether a provider's HIP runtime takes the code of related processors: gfx1030's on a gfx1031, say.

Stock HIP does not. Two distributions patch it: nixpkgs since ROCm 6.0 (rocm-modules: "extend ISA compatibility", tried there by
test-isa-compat.nix), Debian up to 6.4.2. The patch ("Improve hipamd compat check", hip_code_object.cpp) adds static functions and
no exported symbol; its strings are so short that compilers put them into instructions. A build that keeps local symbols, as
nixpkgs' does (``strip --strip-debug``), shows their names; where they were stripped, where the library comes from decides. It
concerns code that HIP itself selects. comgr, which unpacks compressed bundles, is not patched.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Iterable

from relink.providers.nix_store import NIX_STORE, name_in_store_path, store_path
from relink.providers.prefix import Provider
from relink.system.safe_open import map_file

__all__ = ["extended_by"]

_DEBIAN = re.compile(r"/usr/lib/[a-z0-9_]+-linux-gnu/libamdhip64\.so\.(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
_DEBIAN_BUILDS = (5, 7), (6, 4, 43484)  # the first with the patch; the build of 6.4.3, which dropped it

_FUNCTIONS = (  # of the patch, in the names of local symbols; the third is so misspelt there
    b"isGfx1030EquivalentProcessor",
    b"isGfx1030CompatibleProcessor",
    b"getCompatiblityScore",
)


def extended_by(providers: Iterable[Provider], runtime: str) -> str | None:
    """Return whose patch makes the HIP runtime take related processors' code, as a phrase, or None for a stock one.

    :param runtime: the soname of the HIP runtime, or its name without the version.
    """
    names = (runtime, *(f"{runtime}.{major}" for major in (7, 6, 5)))
    for provider in providers:
        path = next((place for name in names if (place := provider.find(name))), None)
        if path is None:
            continue
        item = store_path(path) if provider.kind == NIX_STORE else None
        if item is not None and name_in_store_path(item).package == "clr":
            return "nixpkgs' HIP"
        if function := _function_of_the_patch(path):
            return f"the HIP of {provider.path}, which has the patch's function {function}"
        directory = posixpath.dirname(path)
        real = posixpath.join(directory, os.path.basename(os.path.realpath(path)))
        if found := _DEBIAN.search(real):
            build = tuple(int(part) for part in found.groups())
            if _DEBIAN_BUILDS[0] <= build < _DEBIAN_BUILDS[1]:
                return "Debian's HIP before 6.4.3"
        return None
    return None


def _function_of_the_patch(path: str) -> str | None:
    with contextlib.suppress(OSError), map_file(os.path.realpath(path)) as library:
        return next((name.decode() for name in _FUNCTIONS if library.find(name) >= 0), None)
    return None
