"""Libraries that a package's Python code loads by a bare soname: no search path of a member reaches these.

``ctypes.CDLL("libamdhip64.so.7")`` is a dlopen by Python's own ``_ctypes``, so ld.so looks in that one's RUNPATH, not in those of
the wheel (glibc elf/dl-load.c, _dl_map_object). What is mapped already under the soname is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from relink.providers.prefix import Provider, soname_stem
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated
from relink.vendors.protocol import Vendor
from relink.wheel.archive import WheelArchive

__all__ = ["python_call_findings"]

_CALL = re.compile(
    r"\b(?:CDLL|PyDLL|LoadLibrary|dlopen)\(\s*(?:name\s*=\s*)?[\"'](?P<soname>lib[\w+.-]+?\.so(?:\.[\d.]+)?)[\"']"
)
_MODULE_BYTES = 1 << 20  # bytes of a module that are looked at
_MODULES = 2_000  # of a wheel; that of PyTorch has as many


def python_call_findings(archive: WheelArchive, provider: Provider, vendor: Vendor) -> Iterator[Finding]:
    """Yield RLK538 for each module that loads libraries of a site-packages by their sonames alone.

    :param provider: the packages in site-packages that the wheel relies on.
    """
    modules = [name for name in archive.members if name.endswith(".py")]
    for module in modules[:_MODULES]:
        text = archive.prefix(module, _MODULE_BYTES).decode("utf-8", "replace")
        calls = dict.fromkeys(match["soname"] for match in _CALL.finditer(text))
        provided = [
            soname
            for soname in calls
            if any(soname_stem(name) == soname_stem(soname) for name in provider.libraries)
        ]
        if provided:
            yield finding(
                "RLK538",
                module,
                f"loads {join_truncated(provided)} by name, which no search path of the wheel leads to",
                f"Its maintainer adds before: {vendor.preload_lines(provided)}. Until then: run these two statements first.",
            )
