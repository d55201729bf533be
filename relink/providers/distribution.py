"""Which Linux distribution the target is, by os-release(5), and the command that installs a package of it.

Whether Debian's apt could install a package of some release is asked of apt-cache(8), where the target is this machine.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from relink.loader.seen_files import resolve_inside
from relink.system.programs import NoAnswerError, ask_program
from relink.system.safe_open import read_text
from relink.system.system_errors import raise_if_machine_fault

__all__ = ["FAMILIES", "PREFIXES", "Distribution", "read_distribution"]

FAMILIES = {"debian": "apt install", "fedora": "dnf install", "arch": "pacman -S", "nixos": None}
"""The distributions whose packages relink knows by name, and how one is installed; NixOS has attributes instead."""

PREFIXES = {"debian": "/usr", "fedora": "/usr", "arch": "/opt/rocm"}
"""Where their packages put the vendor's libraries."""

_TIMEOUT = 20  # seconds for apt-cache
_DEFAULT = 500  # the priority of a suite that is not the target release's, and is taken
_PLACES = ("/etc/os-release", "/usr/lib/os-release")  # in this order: os-release(5)
_MAX_SIZE = 64 << 10  # bytes; those of distributions have less than one KiB


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution: its name for people, and the key of `FAMILIES` it goes with, or None.

    :ivar is_here: it is this machine's, whose package lists can be asked.
    """

    name: str
    family: str | None
    is_here: bool = False

    def command(self, package: str, release: str | None = None, prefixes: Collection[str] = ()) -> str | None:
        """Return the command that installs a package of it, or None where that would not serve.

        :param release: of the vendor's libraries, as exact as it is known; where it is, no other release of the package serves.
        :param prefixes: those that the wheel is relinked for: a package would put nothing into another prefix than the system's.
        """
        if self.family not in PREFIXES or (prefixes and PREFIXES[self.family] not in prefixes):
            return None
        suite = _apt_suite(package, release) if self.family == "debian" and self.is_here and release else ""
        return (
            None if suite is None else f"{FAMILIES[self.family]} {f'-t {suite} ' if suite else ''}{package}"
        )


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
        return Distribution(fields.get("NAME") or kinds[0], family, is_here=sysroot == "/")
    return None


@cache
def _apt_suite(package: str, release: str) -> str | None:
    """Return the suite that apt has to be told for a package of a release; empty without need; None: no list has it.

    A suite of a priority below 500 (experimental has 1) is not taken by itself, nor for what the package depends on
    (apt_preferences(5)). Empty, too, where apt-cache cannot be asked.
    """
    if (program := shutil.which("apt-cache")) is None:
        return ""
    try:
        run = ask_program([program, "policy", package], timeout=_TIMEOUT)
    except NoAnswerError:
        return ""
    if run.returncode != 0:
        return ""
    # "     7.2.4-1~exp3 1" is a version; "          1 URL experimental/main amd64 Packages" is one of its sources.
    wanted = ".".join(release.split(".")[:2])
    version = ""
    for line in run.stdout.splitlines():
        if match := re.fullmatch(r" [* ]{3} (\S+)(?: -?\d+)?", line):
            version = match[1].partition(":")[2] or match[1]
        elif (match := re.fullmatch(r" {8,}(-?\d+) \S+ ([\w.-]+)/\S+ \S+ Packages", line)) and re.match(
            rf"{re.escape(wanted)}(?![0-9])", version
        ):
            return match[2] if int(match[1]) < _DEFAULT else ""
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
