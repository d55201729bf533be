"""Which major release of a vendor's runtime libraries were linked with, by the sonames that they need."""

from __future__ import annotations

import re
from collections.abc import Iterable

from relink.elf.image import Image
from relink.system.text import group_pairs
from relink.vendors.protocol import Vendor
from relink.vendors.registry import list_components


def newest_major(images: Iterable[Image], vendor: Vendor) -> int | None:
    """Return the newest major that libraries were linked with: of the vendor's runtime, or of sonames that one alone has."""
    needed = {soname for image in images for soname in image.needed}
    runtime = re.compile(rf"{re.escape(vendor.libraries.runtime)}\.([0-9]{{1,9}})")
    found = [int(match[1]) for match in map(runtime.fullmatch, needed) if match]
    if not found:
        rows = (row for component in list_components() for row in component.sonames.items())
        majors = group_pairs((soname, key) for key, sonames in rows for soname in sonames)
        single = [next(iter(majors[soname])) for soname in needed if len({*majors.get(soname, ())}) == 1]
        found = [int(key) for key in single if key != "any"]
    return max(found, default=None)
