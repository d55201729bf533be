"""Libraries that a package's Python code loads by a bare soname: no search path of a member reaches these.

``ctypes.CDLL("libamdhip64.so.7")`` is a dlopen by Python's own ``_ctypes``, so ld.so looks in that one's RUNPATH, not in those of
the wheel (glibc elf/dl-load.c, _dl_map_object). What is mapped already under the soname is taken.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Sequence

from relink.providers.prefix import Provider, soname_stem
from relink.providers.site_packages import SITE_PACKAGES
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


def python_call_findings(
    archive: WheelArchive,
    provider: Provider,
    vendor: Vendor,
    finds: Callable[[str], bool] = lambda _: False,
) -> Iterator[Finding]:
    """Yield RLK538 for each module that loads libraries of a provider by their sonames alone, with what helps there.

    :param finds: whether the target's loader finds a library by itself.
    """
    modules = [name for name in archive.members if name.endswith(".py")]
    for module in modules[:_MODULES]:
        text = archive.prefix(module, _MODULE_BYTES).decode("utf-8", "replace")
        calls = dict.fromkeys(match["soname"] for match in _CALL.finditer(text))
        provided = [
            soname
            for soname in calls
            if any(soname_stem(name) == soname_stem(soname) for name in provider.libraries)
            and not finds(soname)
        ]
        if provided:
            shown = join_truncated(provided)
            message = f"loads {shown} by name, which no search path of the wheel leads to"
            remedy, step = _way_out(provided, provider, vendor)
            yield finding("RLK538", module, message, remedy, step=step)


def _way_out(sonames: Sequence[str], provider: Provider, vendor: Vendor) -> tuple[str, str | None]:
    """Return what makes the loader find libraries of a provider under these very names, and the command where one does."""
    if provider.kind == SITE_PACKAGES:
        lines = vendor.preload_lines(sonames)
        return f"Its maintainer adds before: {lines}. Until then: run these two statements first.", None
    paths = {soname: path for soname in sonames if (path := provider.find(soname))}
    if lacking := [soname for soname in sonames if soname not in paths]:
        has = [name for name in provider.libraries if soname_stem(name) in map(soname_stem, lacking)]
        text = f"{provider.path} has {join_truncated(has)} and no {join_truncated(lacking)}"
        return (
            f"{text}: make a link of that name in a directory that LD_LIBRARY_PATH names before Python starts.",
            None,
        )
    step = f"export LD_LIBRARY_PATH={shlex.quote(':'.join(dict.fromkeys(map(posixpath.dirname, paths.values()))))}"
    return f"{step}, before Python starts.", step
