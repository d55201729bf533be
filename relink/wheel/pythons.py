"""Which Pythons take a wheel, by the tags of its name (PEP 425), and for which it requires something (PEP 508)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.requirements import Requirement

from relink.wheel.naming import WheelName


def find_minors(wheel: WheelName, oldest: int, newest: int) -> tuple[int, ...]:
    """Return the minor versions of CPython 3 with the GIL that take a wheel on x86_64 Linux with glibc, in order.

    An ABI of its own is for one Python, abi3 and ``py3N`` are for that one and newer ones.

    :param oldest: with `newest`, what is looked for where a tag is for more than one.
    """
    found: set[int] = set()
    for tag in wheel.tags:
        match = re.fullmatch(r"(cp|py)3([0-9]{0,3})", tag.interpreter)
        if match is None or tag.abi not in ("none", "abi3", tag.interpreter):
            continue
        if tag.platform != "any" and not re.fullmatch(r"(many)?linux\w*_x86_64", tag.platform):
            continue
        newer = tag.abi == "abi3" or match[1] == "py" or not match[2]
        found |= {*range(max(int(match[2] or 0), oldest), newest + 1)} if newer else {int(match[2])}
    return tuple(sorted(found))


def select_minors(wanted: Requirement, minors: Iterable[int]) -> set[int]:
    """Return the minor versions of CPython 3 for which something is required on x86_64 Linux, without an extra.

    :raises ValueError: the marker has a number of thousands of digits.
    """
    if wanted.marker is None:
        return {*minors}
    machine = {"platform_machine": "x86_64", "platform_system": "Linux", "sys_platform": "linux", "extra": ""}
    # A marker may ask for the patch release, which no tag tells.
    pythons = {
        minor: {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"} for minor in minors
    }
    return {minor for minor, python in pythons.items() if wanted.marker.evaluate(machine | python)}
