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


_ARCHITECTURES = {3: Architecture.i686, 62: Architecture.x86_64, 183: Architecture.aarch64}


@functools.cache
def _policies(machine: int) -> WheelPolicies | None:
    """auditwheel's tables for an e_machine; None where relink knows of none."""
    architecture = _ARCHITECTURES.get(machine)
    return WheelPolicies(libc=Libc.GLIBC, arch=architecture) if architecture else None


@functools.cache
def _whitelist(machine: int) -> frozenset[str]:
    return frozenset().union(*(policy.whitelist for policy in _policies(machine) or ()))


def is_platform_library(soname: str, machine: int) -> bool:
    """Whether PEP 600 lets a manylinux wheel take `soname` from the system: glibc, libstdc++, libgcc_s, libz, X11 and so on.

    :param machine: e_machine; one that there are no tables for has no platform libraries.
    """
    return soname in _whitelist(machine) or (machine in _ARCHITECTURES and soname.startswith("ld-linux"))


def manylinux_tag(versions: Iterable[str], machine: int) -> str:
    """Return the oldest manylinux platform tag whose symbol versions cover `versions` (``GLIBC_2.34``, ``GCC_12.0.0``).

    ``linux_<machine>`` where none does, or where auditwheel has no tables for the machine. Versions of other families
    (``hip_4.2``) say nothing about the platform.
    """
    policies = _policies(machine)
    if policies is None:
        return f"linux_{machine_name(machine)}"
    return str(policies.versioned_symbols_policy({"": set(versions)}).name)


def satisfies_tag(claimed: str, found: str, machine: int) -> bool:
    """Whether a wheel that claims platform tag `claimed` runs wherever that tag promises, when its symbols ask for `found`.

    Tags that auditwheel does not know (``linux_x86_64``) promise nothing.
    """
    policies = _policies(machine)
    if policies is None:
        return True
    try:
        promised, needed = policies.get_policy_by_name(claimed), policies.get_policy_by_name(found)
    except LookupError:
        return True
    return bool(needed.priority >= promised.priority)
