"""Which Linux the target is, what every Linux of a given age has, and the command that installs a package.

The distribution is read from os-release(5). Whether Debian's apt could install a package of some release is asked of
apt-cache(8), where the target is this machine.

What every Linux has is in auditwheel's policy tables, and this is the only place that knows auditwheel. It has no public API (its
issues 82 and 555), so pyproject.toml pins its minor range and a test holds what is used here: the file with the tables, which
auditwheel reads by the same rules. Its modules are not imported, since they bring a reader of ELF and DWARF with them, which took
a quarter of the time until relink began its work.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
import shutil
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

from relink.elf.image import machine_name
from relink.loader.seen_files import resolve_inside
from relink.system.errors import RelinkError
from relink.system.programs import NoAnswerError, ask_program
from relink.system.safe_open import read_text

FAMILIES = {"debian": "apt install", "fedora": "dnf install", "arch": "pacman -S", "nixos": None}
"""The distributions whose packages relink knows by name, and how one is installed; NixOS has attributes instead."""
_INDEXES = {"fedora": ("dnf", "-C", "-q", "repoquery"), "arch": ("pacman", "-Si")}
"""How the package lists of this machine are asked for a package; neither command needs root or the network."""

_TIMEOUT = 20  # seconds for apt-cache
# The priority of a suite that is not the target release's, and is taken (apt_preferences(5)).
_DEFAULT = 500
# The first file that there is counts (os-release(5)).
_PLACES = ("/etc/os-release", "/usr/lib/os-release")
# Bytes. The files of distributions have less than one KiB.
_MAX_SIZE = 64 << 10


class Distribution(msgspec.Struct, frozen=True):
    """A distribution: its name for people, and the key of `FAMILIES` it goes with, or None.

    :ivar is_here: it is this machine's, whose package lists can be asked.
    """

    name: str
    family: str | None
    is_here: bool = False

    def command(self, package: str, release: str | None = None, others: Collection[str] = ()) -> str | None:
        """Return the command that installs a package of it, or None where that would not serve.

        This machine's package lists have to have the package; those of another root directory cannot be asked.

        :param release: of the vendor's libraries, as exact as it is known; where it is, no other release of the package serves.
        :param others: packages that may be asked for later, always the same ones.
        """
        if self.family is None or (installer := FAMILIES[self.family]) is None:
            return None
        suite: str | None = ""
        if self.is_here and self.family == "debian":
            # apt-cache reads its lists anew each time, for up to a second: it is asked once for all.
            suite = _apt_suite(package, release or "", tuple(dict.fromkeys([*others, package])))
        elif self.is_here:
            answer = _ask(*_INDEXES[self.family], package)
            # Nothing is known of a package whose lists cannot be asked.
            suite = "" if answer is None or answer.strip() else None
        return None if suite is None else f"{installer} {f'-t {suite} ' if suite else ''}{package}"

    def find_packages(self, sonames: Iterable[str]) -> dict[str, str]:
        """Return, of libraries of the system, soname → the package that this machine's lists have for it."""
        if self.family != "debian" or not self.is_here or shutil.which("apt-cache") is None:
            return {}
        # Two questions for all libraries, since each takes up to a second.
        known = {*(_ask("apt-cache", "pkgnames", "lib") or "").split()}
        names = {soname: known.intersection(list_debian_names(soname)) for soname in sonames}
        every = tuple(sorted(set().union(*names.values())))
        there = [name for name in every if _apt_suite(name, "", every) == ""]
        # With t64 before the name that may be left of an older release.
        return {soname: max(found) for soname, among in names.items() if (found := among.intersection(there))}


def list_debian_names(soname: str) -> tuple[str, ...]:
    """Return the names that Debian may have given the package of a library, nothing for a soname that no package can have.

    That is what the command in Debian Policy Manual, 8.1, makes of the soname; with ``t64`` where time_t has changed in it.
    """
    name = re.sub(r"([0-9])\.so\.", r"\1-", soname, count=1)
    name = re.sub(r"\.so(\.|$)", "", name, count=1).replace("_", "-").lower()
    return (f"{name}t64", name) if re.fullmatch(r"lib[a-z0-9.+-]+", name) else ()


def read_distribution(sysroot: str = "/") -> Distribution | None:
    """Return the distribution below `sysroot`, or None where no os-release says it.

    ID decides, then ID_LIKE in its order, the closest relative first: Ubuntu goes with Debian, Manjaro with Arch.
    """
    for place in _PLACES:
        try:
            text = read_text(resolve_inside(sysroot, place), _MAX_SIZE, errors="replace", root=sysroot)
        except OSError:
            continue
        fields: dict[str, str] = {}
        for line in text.splitlines():
            key, equals, value = line.strip().partition("=")
            if equals and not key.startswith("#"):
                with suppress(ValueError):  # an open quote: the line says nothing
                    fields[key] = next(iter(shlex.split(value)), "")
        kinds = [fields.get("ID") or "linux", *fields.get("ID_LIKE", "").split()]
        family = next((kind for kind in kinds if kind in FAMILIES), None)
        return Distribution(fields.get("NAME") or kinds[0], family, is_here=sysroot == "/")
    return None


def _ask(name: str, *words: str) -> str | None:
    """Return what a package manager prints, nothing where it fails; None where there is no such program, or no answer."""
    program = shutil.which(name)
    return None if program is None else _ask_once(program, words)


@cache
def _ask_once(program: str, words: tuple[str, ...]) -> str | None:
    try:
        run = ask_program([program, *words], timeout=_TIMEOUT)
    except NoAnswerError:
        return None
    return run.stdout if run.returncode == 0 else ""


def _apt_suite(package: str, release: str, packages: Sequence[str]) -> str | None:
    """Return the suite that apt has to be told for a package of a release; empty without need; None: no list has it.

    A suite of a priority below 500 (experimental has 1) is not taken by itself, nor for what the package depends on
    (apt_preferences(5)). Empty, too, where apt-cache cannot be asked.

    :param release: empty where any serves.
    :param packages: all that apt-cache is asked for in one go.
    """
    if (policies := _ask("apt-cache", "policy", *packages)) is None:
        return ""
    # The facts of one package are indented below its name, or below its name and architecture.
    policy = re.search(rf"^{re.escape(package)}:.*\n((?: .*\n)*)", policies, re.MULTILINE)
    # Of `apt-cache policy`: "     7.2.4-1~exp3 1" is a version; "          1 URL experimental/main amd64 Packages" is one of
    # its sources.
    wanted = ".".join(release.split(".")[:2])
    version = ""
    suites = []
    for line in policy[1].splitlines() if policy else ():
        if match := re.fullmatch(r" [* ]{3} (\S+)(?: -?\d+)?", line):
            # Without the epoch before the colon, if there is one.
            version = match[1].partition(":")[2] or match[1]
        elif (match := re.fullmatch(r" {8,}(-?\d+) \S+ ([\w.-]+)/\S+ \S+ Packages", line)) and (
            not wanted or re.match(rf"{re.escape(wanted)}(?![0-9])", version)
        ):
            suites.append("" if int(match[1]) >= _DEFAULT else match[2])
    return None if not suites else "" if "" in suites and not wanted else suites[0]


# By e_machine: EM_386, EM_X86_64, EM_AARCH64.
_ARCHITECTURES = {3: "i686", 62: "x86_64", 183: "aarch64"}


class _Policy(msgspec.Struct, frozen=True):
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
    import auditwheel  # noqa: PLC0415 (only a wheel with a platform tag asks)

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


def is_platform_library(soname: str, machine: int) -> bool:
    """Whether PEP 600 lets a manylinux wheel take `soname` from the system: glibc, libstdc++, libgcc_s, libz, X11 and so on.

    :param machine: e_machine; one that there are no tables for has no platform libraries.
    """
    known = any(soname in policy.libraries for policy in read_policies(machine))
    return known or (machine in _ARCHITECTURES and soname.startswith("ld-linux"))


def find_manylinux_tag(versions: Iterable[str], machine: int) -> str:
    """Return the oldest manylinux platform tag whose symbol versions cover `versions` (``GLIBC_2.34``, ``GCC_12.0.0``).

    ``linux_<machine>`` where none does, or where auditwheel has no tables for the machine. Versions of other families
    (``hip_4.2``) say nothing about the platform.
    """
    needed = [(version.partition("_")[0], version) for version in frozenset(versions)]
    # The last policy, linux, has no families, so it fits where no other one does.
    fitting = (
        policy.names[0]
        for policy in read_policies(machine)
        if all(version in policy.versions.get(family, (version,)) for family, version in needed)
    )
    return next(fitting, f"linux_{machine_name(machine)}")


def satisfies_tag(claimed: str, found: str, machine: int) -> bool:
    """Whether a wheel that claims platform tag `claimed` runs wherever that tag promises, when its symbols ask for `found`.

    Tags that auditwheel does not know (``linux_x86_64``) promise nothing.
    """
    priorities = {name: policy.priority for policy in read_policies(machine) for name in policy.names}
    return not {claimed, found} <= priorities.keys() or priorities[found] >= priorities[claimed]
