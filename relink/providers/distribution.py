"""Which Linux distribution the target is, by os-release(5), and the command that installs a package of it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from relink.loader.seen_files import resolve_inside
from relink.system.safe_open import read_text
from relink.system.system_errors import raise_if_machine_fault

__all__ = ["FAMILIES", "Distribution", "read_distribution"]

FAMILIES = {"debian": "apt install", "fedora": "dnf install", "arch": "pacman -S", "nixos": None}
"""The distributions whose packages relink knows by name, and how one is installed; NixOS has attributes instead."""

_PLACES = ("/etc/os-release", "/usr/lib/os-release")  # in this order: os-release(5)
_MAX_SIZE = 64 << 10  # bytes; those of distributions have less than one KiB


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution: its name for people, and the key of `FAMILIES` it goes with, or None."""

    name: str
    family: str | None

    def command(self, package: str) -> str:
        """Return the command that installs a package of it."""
        return f"{FAMILIES[self.family or '']} {package}"


def read_distribution(sysroot: str = "/") -> Distribution | None:
    """Return the distribution below `sysroot`, or None where no os-release says it.

    ID decides, then ID_LIKE in its order, the closest relative first: Ubuntu goes with Debian, Manjaro with Arch.
    """
    for place in _PLACES:
        try:
            text = read_text(resolve_inside(sysroot, place), _MAX_SIZE, errors="replace", root=sysroot)
        except OSError as error:
            raise_if_machine_fault(error)
            continue
        fields = _fields(text)
        kinds = [fields.get("ID") or "linux", *fields.get("ID_LIKE", "").split()]
        family = next((kind for kind in kinds if kind in FAMILIES), None)
        return Distribution(fields.get("NAME") or kinds[0], family)
    return None


def _fields(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith("#"):
            try:
                words = shlex.split(value)
            except ValueError:  # an open quote: the line says nothing
                continue
            found[key] = words[0] if words else ""
    return found
