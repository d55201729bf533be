"""What every Linux of a given age has: auditwheel's policy tables, and the only place that knows auditwheel.

auditwheel has no public API (its issues 82 and 555), so pyproject.toml pins its minor range and a test holds what is used here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.policy import WheelPolicies

from relink.elf.image import machine_name

__all__ = ["is_platform_library", "manylinux_tag", "satisfies_tag"]


@functools.cache
def _policies(machine: int) -> WheelPolicies:
    return WheelPolicies(libc=Libc.GLIBC, arch=Architecture(machine_name(machine)))


@functools.cache
def _whitelist(machine: int) -> frozenset[str]:
    return frozenset().union(*(policy.whitelist for policy in _policies(machine)))


def is_platform_library(soname: str, machine: int) -> bool:
    """Whether PEP 600 lets a manylinux wheel take `soname` from the system: glibc, libstdc++, libgcc_s, libz, X11 and so on.

    :param machine: e_machine; one that auditwheel has no tables for has no platform libraries.
    """
    try:
        return soname in _whitelist(machine) or soname.startswith("ld-linux")
    except ValueError:
        return False


def manylinux_tag(versions: Iterable[str], machine: int) -> str:
    """Return the oldest manylinux platform tag whose symbol versions cover `versions` (``GLIBC_2.34``, ``GCC_12.0.0``).

    ``linux_<machine>`` where none does. Versions of other families (``hip_4.2``) say nothing about the platform.
    """
    policy = _policies(machine).versioned_symbols_policy({"": set(versions)})
    return str(policy.name)


def satisfies_tag(claimed: str, found: str, machine: int) -> bool:
    """Whether a wheel that claims platform tag `claimed` runs wherever that tag promises, when its symbols ask for `found`.

    Tags that auditwheel does not know (``linux_x86_64``) promise nothing.
    """
    policies = _policies(machine)
    try:
        promised, needed = policies.get_policy_by_name(claimed), policies.get_policy_by_name(found)
    except LookupError:
        return True
    if promised.name.startswith("linux_"):
        return True
    return bool(needed.priority >= promised.priority)
