"""What the packages that name no vendor ask of one: facts about its libraries that their ELF files do not show.

A vendor is a package beside this module whose ``vendor.py`` has these names; :mod:`relink.vendors.registry` lists it. A class
that derives from :class:`Vendor` has the answers of a vendor of which nothing is known.
"""

from __future__ import annotations

# ruff: noqa: ARG002 - who knows nothing looks at no argument
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from relink.loader.target import Target
from relink.providers.distribution import Distribution
from relink.providers.prefix import InstalledPackage, Provider
from relink.providers.profiles import EqualSonames, OptionalLibrary
from relink.system.errors import ProviderError
from relink.system.findings.model import Finding

Relation: TypeAlias = Literal["own", "shared", "foreign", "unknown"]
"""Whether a library is where a symbol comes from: ``own``, it is; ``shared``, it may be, and so may others; ``foreign``, it is
not; ``unknown``, no table says."""

TextKind: TypeAlias = Literal["returned", "stored"]
"""How a function gives a text: it returns it, or it returns a status and stores the text where its second argument points."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release of the vendor's libraries and the evidence for it.

    :ivar release: as exact as the evidence: ``7.2.4``, or only ``7.2``.
    :ivar evidence: the file of the prefix that says so, relative to it; or the name of a library or of a store path.
    """

    release: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Place:
    """A prefix that holds a runtime of the vendor's.

    :ivar path: as the target sees it, links as they were found.
    :ivar found_by: a variable such as ``ROCM_PATH``, ``site-packages``, ``/opt``, ``ld.so.cache`` or ``/usr``.
    """

    path: str
    found_by: str


@dataclass(frozen=True, slots=True)
class Component:
    """A part of what the vendor gives, or a library that it needs, and who has it.

    :ivar name: what it calls itself.
    :ivar attribute: its path in nixpkgs, such as ``rocmPackages.clr`` or ``pkgs.numactl``; None where nixpkgs has none.
    :ivar sonames: major of the runtime's soname → sonames; the key ``any`` holds for every major.
    :ivar debian: soname → package; Debian names the package of a library by its soname.
    :ivar packages: family of distributions → package, where one name serves for every release.
    :ivar newest: the newest major of the runtime's soname: later releases (ROCm 10) have it still.
    """

    name: str
    attribute: str | None
    sonames: Mapping[str, tuple[str, ...]]
    debian: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    newest: int | None = None

    def of(self, major: int | None) -> tuple[str, ...]:
        """Return its sonames in releases of that major; those of every major where none is given."""
        if major is None:
            return tuple(soname for items in self.sonames.values() for soname in items)
        key = major if self.newest is None else min(major, self.newest)
        return (*self.sonames.get("any", ()), *self.sonames.get(str(key), ()))

    def package(self, soname: str, family: str | None) -> str | None:
        """Return the package of a family of distributions that has a soname, or None where none is known."""
        return self.debian.get(soname) if family == "debian" else self.packages.get(family or "")


class Vendor(Protocol):
    """A vendor of GPU libraries.

    :cvar table: what findings and evidence call the source of a fact, and an output's local version begins with: ``rocm``.
    :cvar product: what messages call the vendor's libraries as a whole: ``ROCm``.
    :cvar runtime: the library that each of its GPU programs needs, without a version; of which there is to be one:
        `report.summary` says so.
    :cvar runtime_libraries: that library, and those that decide with it what can be loaded: results depend on them
        (`indexes.build.fingerprint`).
    :cvar runtime_name: what messages call that library.
    :cvar variable: the environment variable that names the prefix of the libraries; messages advise it.
    :cvar version_label: the part of a local version label that names a release; `planning.wheel_plan` replaces it.
    """

    table: str = "vendor"
    product: str = "release"
    runtime: str = ""
    runtime_libraries: tuple[str, ...] = ()
    runtime_name: str = "GPU runtime"
    variable: str = "LD_LIBRARY_PATH"
    # (?!) matches nothing.
    version_label: re.Pattern[str] = re.compile(r"(?!)")

    def is_own(self, soname: str) -> bool:
        """Whether a library, whatever its version, is one of the vendor's: a process must not have two of it."""
        return False

    def has(self, soname: str) -> bool:
        """Whether the vendor's product comes with a library, whatever its version: only then a message advises the product."""
        return False

    def is_runtime(self, soname: str) -> bool:
        """Whether a library is shared by all of the vendor's and goes with a driver: the first prefix alone serves it."""
        return False

    def is_package(self, name: str) -> bool:
        """Whether a directory of that name in site-packages is one that the vendor's libraries lie in."""
        return False

    def is_distribution(self, name: str) -> bool:
        """Whether a distribution brings the vendor's libraries into site-packages, or is there for those that do."""
        return False

    def bundles(self) -> Mapping[str, str]:
        """Return the vendor's distributions that others bring: name → requirement without a version, extras included."""
        return {}

    def find_site(self, path: str, target: Target) -> str | None:
        """Return the site-packages with the vendor's packages that a user may mean by `path`, or None."""
        return None

    def open_site(self, path: str, target: Target, gpus: Sequence[str] = ()) -> Provider:
        """Read what the vendor's packages in a site-packages provide.

        :param path: as `find_site` returns it.
        :param gpus: the GPUs that the user asks for, where packages are for some alone.
        :raises ProviderError: there is no library for the target in it.
        """
        raise ProviderError(f"{path}: {self.product} is in no package")

    def packages_of(self, path: str, target: Target) -> Sequence[InstalledPackage]:
        """Return the vendor's packages in a site-packages."""
        return ()

    def site_findings(
        self, provider: Provider, sonames: Iterable[str], target: Target, gpus: Sequence[str]
    ) -> Iterable[Finding]:
        """Yield what is to be said about the vendor's packages in a site-packages.

        :param sonames: the libraries that the members load.
        :param gpus: the GPUs that the user asks for.
        """
        return ()

    def preload_lines(self, sonames: Iterable[str]) -> str:
        """Return the statements of Python that map libraries before others ask for them by their sonames."""
        return "; ".join(["import ctypes", *(f'ctypes.CDLL("{soname}")' for soname in sonames)])

    def same_abi(self, one: str, other: str) -> str | None:
        """Return why two sonames are one ABI, or None where nothing says so."""
        return None

    def copy_of(self, soname: str) -> EqualSonames | None:
        """Return the system's library that a library is a copy of, or None."""
        return None

    def optional(self, soname: str) -> OptionalLibrary | None:
        """Return what a stub of a library needs to know, or None where nothing is known of one."""
        return None

    def text_of(self, name: str) -> TextKind | None:
        """Say how a function that does nothing but describe an error gives its text; None for any other."""
        return None

    def whose(self, soname: str, name: str) -> Relation:
        """Say whether a library of that soname is where a symbol of that name comes from."""
        return "unknown"

    def dlopens_of(self, soname: str, available: Collection[str]) -> Mapping[str, str]:
        """Return what the library with that soname dlopens: soname → why.

        :param available: the names of the libraries that there are.
        """
        return {}

    def components(self) -> Sequence[Component]:
        """Return the parts of the vendor's product."""
        return ()

    def where_to_get(
        self, soname: str, distribution: Distribution | None, providers: Iterable[Provider]
    ) -> str | None:
        """Return a sentence that says which package has a library, or None where it is not one that is known."""
        return None

    def install(
        self, soname: str, distribution: Distribution | None, providers: Iterable[Provider]
    ) -> str | None:
        """Return the command that installs exactly that library, or None."""
        return None

    def release_of(self, provider: Provider, sysroot: str = "/") -> Release | None:
        """Return the release of the vendor's libraries that a provider holds, or None where nothing says it."""
        return None

    def find_places(self, target: Target, environment: Mapping[str, str]) -> Sequence[Place]:
        """Return every prefix of the target that has the vendor's libraries."""
        return ()

    def choose_place(self, target: Target, environment: Mapping[str, str], *, own: bool) -> Place | None:
        """Return the prefix to use where the user names none, or None where there is none.

        :param own: the target is a Python of this machine with its own loader.
        :raises UsageError: there are several, or nothing is to be guessed.
        """
        return None

    def prefix_of_libraries(self, path: str, target: Target) -> str:
        """Return ``DIR`` for ``DIR/lib`` where a runtime lies there; other paths as given."""
        return path

    def extended_by(self, providers: Iterable[Provider], runtime: str) -> str | None:
        """Return whose patch makes a runtime take related processors' code, as a phrase, or None for a stock one.

        :param runtime: the soname of the runtime, or its name without the version.
        """
        return None


class _Unknown(Vendor):
    """A vendor of which nothing is known."""


NO_VENDOR: Vendor = _Unknown()
