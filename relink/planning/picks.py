"""Which of several libraries of a package its Python picks by the GPU that torch is built for, and whether that one is there.

Takes what the sources open where torch sees a GPU (:mod:`relink.python.picks`). Gives RLK128.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from relink.elf.image import Image
from relink.planning.model import FilePlan
from relink.planning.processes import DistributionFiles, describe_interpreter, top_modules
from relink.planning.reading import Wheel
from relink.planning.resolve.context import ResolveContext
from relink.planning.wheel_imports import plan_distribution
from relink.python.facts_cache import FactsCache
from relink.python.picks import read_pick
from relink.python.process import PythonProcesses
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated
from relink.vendors.protocol import Vendor
from relink.vendors.registry import RECOGNIZED, VENDORS
from relink.wheel.schemes import site_path

_ALL = (*VENDORS, *RECOGNIZED)
_WORDS = "|".join(word for vendor in _ALL for word in vendor.libraries.words)
_VARIANT = re.compile(rf"(?:{_WORDS}|cpu|gpu)?\d+|{_WORDS}|cpu|gpu", re.IGNORECASE)


def pick_findings(
    processes: PythonProcesses, files: DistributionFiles, vendor: Vendor, unserved: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield RLK128 about the library that a package picks among several of its own: an error where it is not there.

    :param vendor: the one that the run is about: what is for the GPUs of others is no error.
    :param unserved: members that are left as they are, since not all that they need is there.
    """
    kinds = {one.libraries.torch_variable: one for one in _ALL}
    owners = {member: _owners(member, image) for member, image in files.images.items()}
    tops = top_modules(files.name, files.members, processes.interpreter) if any(owners.values()) else []
    # What torch is built for decides, and torch's own libraries are built for that.
    pick = read_pick(processes, tops, [*kinds]) if tops and "torch" not in tops else None
    if pick is None:
        return
    kind = next((name for name in kinds if pick.torch.get(name)), None)
    product = kinds[kind] if kind else None
    says = f"torch/version.py says {kind} {pick.torch[kind]}" if kind else "torch is built for no GPU"
    own = {one for one in owners if (product in owners[one] if product else not owners[one])}
    for event in pick.opened:
        member = _below(event.name, files.site)
        if member in own and _alike(member, owners):
            if event.when in ("certain", "guarded"):
                is_left = product is vendor and member in unserved
                text = "is left as it is, since not all that it needs is there; " if is_left else ""
                text += f"{_below(event.file, files.site)}:{event.line} picks it: {says}"
                yield finding(
                    "RLK128", member, text, "" if is_left else "Nothing.", None if is_left else "info"
                )
            return
    unknown = {event.module for event in pick.opened if event.kind == "unknown"}
    for event in pick.sought if product else ():
        member = _below(event.name, files.site)
        alike = [one for one in _alike(member, owners) if owners[one]]
        if event.when in ("certain", "guarded") and alike and event.module not in unknown:
            there = join_truncated(sorted(posixpath.basename(one) for one in alike if one in own))
            text = f"is not there; {_below(event.file, files.site)}:{event.line} looks for it: {says}"
            text += f"; there are {there}" if there else ""
            reported = finding("RLK128", member, text, level="error" if product is vendor else "warning")
            yield replace(reported, without=f"its GPU part ({posixpath.basename(member)})")
            return


def find_wheel_pick(wheel: Wheel, context: ResolveContext, files: Collection[FilePlan]) -> Iterator[Finding]:
    """Yield RLK128 about a wheel in the environment that it will be installed into."""
    found = plan_distribution(wheel, context)
    if found is not None:
        python, planned, distribution, _ = found
        unserved = [site_path(file.path) or file.path for file in files if not file.served]
        interpreter = describe_interpreter(context.target, python, {})
        processes = PythonProcesses(interpreter, cache=FactsCache(None), variables={}, planned=planned)
        yield from pick_findings(processes, distribution, context.vendor, unserved)


def _owners(member: str, image: Image) -> list[Vendor]:
    """Return the vendors for whose GPUs a file is, by its name or by what it needs."""

    def has(vendor: Vendor) -> bool:
        named = any(word in member.lower() for word in vendor.libraries.words)
        return named or any(map(vendor.libraries.is_own, image.needed))

    return [*filter(has, _ALL)]


def _alike(member: str, members: Iterable[str]) -> list[str]:
    """Return the files whose names differ in a release or a vendor alone; the endings of modules of a Python do not count."""
    stem = _stem(member)
    shape = _VARIANT.sub("#", stem)
    return [one for one in members if _stem(one) != stem and _VARIANT.sub("#", _stem(one)) == shape]


def _stem(path: str) -> str:
    directory, name = posixpath.split(path)
    return f"{directory}/{name.partition('.')[0]}"


def _below(path: str, site: str) -> str:
    """Return a path in site-packages."""
    return path.removeprefix(f"{site}/").removeprefix(f"{posixpath.realpath(site)}/")
