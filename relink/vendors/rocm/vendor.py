"""ROCm as :class:`relink.vendors.protocol.Vendor`: this module is the object that the registry lists."""

from __future__ import annotations

from relink.providers.site_packages import is_rocm_directory as is_package
from relink.vendors.rocm.advice import install_command as install
from relink.vendors.rocm.advice import where_to_get
from relink.vendors.rocm.extended_isa import extended_by
from relink.vendors.rocm.facts import (
    ROCM,
    VERSION_LABEL,
    components,
    copy_of,
    dlopens,
    dlopens_of,
    has,
    same_abi,
)
from relink.vendors.rocm.facts import optional_library as optional
from relink.vendors.rocm.installation import release_of
from relink.vendors.rocm.names import is_own, is_runtime, whose
from relink.vendors.rocm.places import choose_place, find_places, prefix_of_libraries

__all__ = [
    "choose_place",
    "components",
    "copy_of",
    "dlopens",
    "dlopens_of",
    "extended_by",
    "find_places",
    "has",
    "install",
    "is_own",
    "is_package",
    "is_runtime",
    "optional",
    "prefix_of_libraries",
    "product",
    "release_of",
    "runtime",
    "runtime_libraries",
    "runtime_name",
    "same_abi",
    "table",
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
