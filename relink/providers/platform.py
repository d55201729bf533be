"""What every Linux of a given age has: auditwheel's policy tables, and the only place that knows auditwheel.

auditwheel has no public API (its issues 82 and 555), so pyproject.toml pins its minor range and a test holds what is used here:
the file with the tables, which auditwheel reads by the same rules. Its modules are not imported, since they bring a reader of
ELF and DWARF with them, which took a quarter of the time until relink began its work.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import auditwheel

from relink.elf.image import machine_name
from relink.system.errors import RelinkError

__all__ = [
    "is_platform_library",
    "manylinux_tag",
    "read_policies",
    "satisfies_tag",
]


_ARCHITECTURES = {3: "i686", 62: "x86_64", 183: "aarch64"}


@dataclass(frozen=True, slots=True)
class _Policy:
    """What one platform tag promises, and to whom: the higher the priority, the older the platform.

    :ivar names: its tag, then the other names of the same.
    :ivar versions: symbol versions (``GLIBC_2.34``) by family (``GLIBC``).
    """

    names: tuple[str, ...]
    priority: int
    versions: dict[str, frozenset[str]]
    libraries: frozenset[str]


@functools.cache
def read_policies(machine: int) -> tuple[_Policy, ...]:
    """auditwheel's tables for an e_machine, the oldest platform first; nothing where relink knows of none."""
    architecture = _ARCHITECTURES.get(machine)
    if architecture is None:
        return ()
    path = Path(auditwheel.__path__[0]) / "policy" / "manylinux-policy.json"
    try:
        found = [
            _Policy(
                tuple(f"{name}_{architecture}" for name in (row["name"], *row["aliases"])),
                row["priority"],
                {
                    family: frozenset(f"{family}_{version}" for version in versions)
                    for family, versions in row["symbol_versions"].get(architecture, {}).items()
                },
                frozenset(row["lib_whitelist"]),
            )
            for row in json.loads(path.read_text(encoding="utf-8"))
            if architecture in row["symbol_versions"] or row["name"] == "linux"
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RelinkError(f"{path}: not the tables of auditwheel 6.8 ({error!r}); reinstall it") from error
    return tuple(sorted(found, key=lambda policy: policy.priority, reverse=True))


@functools.cache
def _whitelist(machine: int) -> frozenset[str]:
    return frozenset().union(*(policy.libraries for policy in read_policies(machine)))


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
    needed = [(version.partition("_")[0], version) for version in frozenset(versions)]
    for policy in read_policies(machine):  # the last one, linux, has no families
        if all(version in policy.versions.get(family, (version,)) for family, version in needed):
            return policy.names[0]
    return f"linux_{machine_name(machine)}"


def satisfies_tag(claimed: str, found: str, machine: int) -> bool:
    """Whether a wheel that claims platform tag `claimed` runs wherever that tag promises, when its symbols ask for `found`.

    Tags that auditwheel does not know (``linux_x86_64``) promise nothing.
    """
    priorities = {name: policy.priority for policy in read_policies(machine) for name in policy.names}
    if claimed not in priorities or found not in priorities:
        return True
    return priorities[found] >= priorities[claimed]
