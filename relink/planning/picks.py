"""Which of several libraries of a package its Python picks by the GPU that torch is built for, and whether that one is there.

Takes what the sources open where torch sees a GPU (:mod:`relink.python.picks`). Gives RLK128.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator

from msgspec.structs import replace

from relink.planning.model import FilePlan
from relink.planning.processes import (
    DistributionFiles,
    describe_interpreter,
    plan_distribution,
    top_modules,
)
from relink.planning.reading import Wheel
from relink.planning.resolve.context import ResolveContext
from relink.python.events import Event
from relink.python.facts_cache import FactsCache
from relink.python.picks import read_pick
from relink.python.process import PythonProcesses
from relink.system.findings.model import Finding, Level, finding
from relink.system.text import join_truncated
from relink.vendors.protocol import Vendor
from relink.vendors.registry import RECOGNIZED, VENDORS
from relink.wheel.schemes import site_path

_SURE = ("certain", "guarded")
_WORDS = "|".join(word for vendor in (*VENDORS, *RECOGNIZED) for word in vendor.libraries.words)
_VARIANT = re.compile(rf"(?:{_WORDS}|cpu|gpu)?\d+|{_WORDS}|cpu|gpu", re.IGNORECASE)


def pick_findings(
    processes: PythonProcesses, files: DistributionFiles, vendor: Vendor, unserved: Collection[str] = ()
) -> Iterator[Finding]:
    """Yield RLK128 about the library that a package picks among several of its own: an error where it is not there.

    :param vendor: the one that the run is about: what is for the GPUs of others is no error.
    :param unserved: members that are left as they are, since not all that they need is there.
    """
    kinds = {one.libraries.torch_variable: one for one in (*VENDORS, *RECOGNIZED)}
    tops = top_modules(files.name, files.members, processes.interpreter) if files.gpu else []
    pick = read_pick(processes, tops, [*kinds]) if tops else None
    if pick is None:
        return
    kind = next((name for name in kinds if pick.torch.get(name)), None)
    product = kinds[kind] if kind else None
    says = f"torch/version.py says {kind} {pick.torch[kind]}" if kind else "torch is built for no GPU"
    opened = [(_member(event, files.site), event) for event in pick.opened]
    for member, event in opened:
        others = [one for one in files.images if one != member and _shape(one) == _shape(member)]
        if member not in files.images or not others or not _is_for(member, files, product):
            continue
        if event.when in _SURE:
            yield _picked(
                member, f"{_who(event, files)} picks it: {says}", product, vendor, member in unserved
            )
        return
    for event in pick.sought:
        member, loads = _member(event, files.site), (one for _, one in opened if one.kind == "unknown")
        alike = [one for one in files.images if _shape(one) == _shape(member)]
        if event.when in _SURE and alike and event.module not in {one.module for one in loads}:
            there = [posixpath.basename(one) for one in alike if _is_for(one, files, product)]
            text = f"is not there; {_who(event, files)} looks for it: {says}"
            text += f"; there are {join_truncated(sorted(there))}" if there else ""
            level: Level = "error" if product is vendor else "warning"
            reported = finding("RLK128", member, text, level=level)
            yield replace(reported, without=f"its GPU part ({posixpath.basename(member)})")
            return


def find_wheel_pick(wheel: Wheel, context: ResolveContext, files: Collection[FilePlan]) -> Iterator[Finding]:
    """Yield RLK128 about a wheel in the environment that it will be installed into."""
    found = plan_distribution(wheel, context)
    if found is not None:
        unserved = [site_path(file.path) or file.path for file in files if not file.served]
        interpreter = describe_interpreter(context.target, found.python, {})
        processes = PythonProcesses(interpreter, cache=FactsCache(None), variables={}, planned=found.planned)
        yield from pick_findings(processes, found.files, context.vendor, unserved)


def _picked(member: str, text: str, product: Vendor | None, vendor: Vendor, is_unserved: bool) -> Finding:
    """Return RLK128 about a library that is there."""
    if product is vendor and is_unserved:
        return finding("RLK128", member, f"is left as it is, since not all that it needs is there; {text}")
    return finding("RLK128", member, text, "Nothing.", level="info")


def _shape(path: str) -> str:
    """Return what the names of variants have in common."""
    directory, name = posixpath.split(path)
    return _VARIANT.sub("#", f"{directory}/{name.partition('.')[0]}")


def _is_for(member: str, files: DistributionFiles, product: Vendor | None) -> bool:
    """Whether a file is for the GPUs of a vendor, by its name or by what it needs; without one that it is for none."""
    needed = files.images[member].needed
    if product is None:
        return not any(any(map(one.libraries.is_own, needed)) for one in (*VENDORS, *RECOGNIZED))
    named = any(word in member.lower() for word in product.libraries.words)
    return named or any(map(product.libraries.is_own, needed))


def _member(event: Event, site: str) -> str:
    """Return the path in site-packages of what is opened."""
    return event.name.removeprefix(f"{site}/").removeprefix(f"{posixpath.realpath(site)}/")


def _who(event: Event, files: DistributionFiles) -> str:
    """Say which line opens something."""
    return f"{_member(Event('module', event.file, 'certain'), files.site)}:{event.line}"
