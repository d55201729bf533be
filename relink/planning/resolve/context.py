"""Hold the facts that decisions about one wheel rest on: where its members are installed, target, providers, the user's options.

A :class:`Layout` says where an installer puts the members, so that $ORIGIN can be followed without unpacking anything. Source:
the wheel format specification, "Recommended installer features" and the ``.data`` directory.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
from msgspec.structs import replace

from relink.elf.edit import VersionEdit
from relink.elf.image import Image
from relink.elf.symbols import SymbolTable
from relink.loader.python import PythonFacts
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import Target
from relink.planning.siblings import Sibling
from relink.providers.distribution import FAMILIES, Distribution
from relink.providers.prefix import Provider, find_serving_providers, soname_stem
from relink.providers.profiles import NO_PROFILE, Profile
from relink.system.findings.model import Finding
from relink.system.text import group_pairs
from relink.vendors.protocol import NO_VENDOR, OptionalLibrary, Vendor
from relink.wheel.naming import WheelName
from relink.wheel.schemes import ANY_SITE, installed_path

VIRTUAL_ROOT = "/relink.invalid"
"""A directory that exists nowhere: members stand below it while nothing is unpacked."""

WHEEL_MARK = "$WHEEL"
"""What paths below site-packages are shown as."""


_SITE = re.compile(r"\blib(?:64)?/[^/]+/(?:site|dist)-packages$")


def is_below(path: str, directory: str) -> bool:
    """Whether a path is `directory` or lies below."""
    return path == directory or path.startswith(f"{directory}/")


def find_site_directory(name: WheelName, python: PythonFacts | None) -> str:
    """Return where the site-packages is that a wheel goes into, relative to the environment's directory.

    The target's Python says so. A wheel for exactly one version of Python, and another one, goes into that of its tag.

    :param python: the Python that will load the result; None where it is not known.
    """
    exact = read_exact_version(name)
    if python is None or (exact and exact != python.directory_version):
        return f"lib/python{exact or '3'}/site-packages"
    known = _SITE.search(python.installs_into)
    return known[0] if known else f"lib/python{python.directory_version}/site-packages"


def read_exact_version(name: WheelName) -> str | None:
    """Return the version of the only Python that installs a wheel, as directories have it (``3.13t``); None for several."""
    exact = {
        f"3.{tag.interpreter[3:]}{'t' * tag.abi.endswith('t')}"
        if tag.interpreter.startswith("cp3") and tag.interpreter[3:].isdigit() and tag.abi != "abi3"
        else None
        for tag in name.tags
    }
    return exact.pop() if len(exact) == 1 else None


@dataclass(frozen=True, slots=True)
class Layout:
    """An environment that a wheel is installed into.

    :ivar root: the environment's directory (``sys.prefix``).
    :ivar site: its site-packages, relative to `root`.
    :ivar tree: members are files of a directory, `root`, and lie there by their own names.
    :ivar names: path → the one by which that file is shown, where several paths lead to it.
    :ivar links: what other packages have beside the wheel: the path in site-packages → the directory where it really is.
    :ivar stands_for: of a tree that is laid out in a temporary directory, the one that is shown.
    """

    root: str = VIRTUAL_ROOT
    site: str = ANY_SITE
    tree: bool = False
    names: Mapping[str, str] = field(default_factory=dict, compare=False)
    links: Mapping[str, str] = field(default_factory=dict, compare=False)
    stands_for: str = ""

    @property
    def python(self) -> str:
        """The version in the name of the directory of site-packages, ``3.12``; ``3`` where no Python is known."""
        return self.site.split("/")[-2].removeprefix("python")

    @property
    def site_packages(self) -> str:
        """The directory that members go to."""
        return self.root if self.tree else f"{self.root}/{self.site}"

    def path_of(self, member: str) -> str:
        """Return the absolute path at which `member` will be installed."""
        return posixpath.join(self.root, member if self.tree else installed_path(member, self.site))

    def on_disk(self, images: Mapping[str, Image]) -> dict[str, tuple[str, str]]:
        """Return soname and path of the libraries among the members, where members are files of a tree."""
        members = images.items() if self.tree else ()
        return {member: (image.soname, self.path_of(member)) for member, image in members if image.soname}

    def real(self, path: str) -> str:
        """Return the real path of a file that another package has; other paths unchanged."""
        normal = posixpath.normpath(path)
        for entry, directory in self.links.items():
            beside = f"{self.site_packages}/{entry}"
            if is_below(normal, beside):
                return directory + normal[len(beside) :]
        return path

    def origin_entry(self, directory: str, member: str) -> str:
        """Return the search path entry by which `member` finds a directory: by ``$ORIGIN`` where both move together.

        :param directory: where it really is.
        """
        if self.tree and f"{directory}/".startswith(f"{self.root}/"):
            relative = posixpath.relpath(directory, posixpath.dirname(self.path_of(member)))
            return f"$ORIGIN/{relative}".removesuffix("/.")
        for entry, linked in self.links.items():
            if is_below(directory, linked):
                beside = f"{self.site_packages}/{entry}{directory[len(linked) :]}"
                return f"$ORIGIN/{posixpath.relpath(beside, posixpath.dirname(self.path_of(member)))}"
        return directory

    @property
    def own(self) -> str:
        """The start of the paths of members in messages; the files of a tree have real paths."""
        return f"{self.root if self.tree else WHEEL_MARK}/"

    def shown(self, text: str) -> str:
        """Return `text`, a path or a sentence, with $WHEEL and $PREFIX for this layout's directories."""
        text = self.names.get(text, text)
        if self.links:
            paths = re.compile(rf"{re.escape(self.root)}/[^\s:;,()]*")
            text = paths.sub(lambda match: self.real(match[0]), text)
        if self.tree:
            return text.replace(self.root, self.stands_for or self.root)
        # site-packages lie below the root, so they are replaced first.
        return text.replace(self.site_packages, WHEEL_MARK).replace(self.root, "$PREFIX")


class Members(msgspec.Struct, frozen=True):
    """The places and names of a wheel's ELF members, which no edit changes.

    :ivar files: what a loader sees, with the members where they are installed.
    :ivar at: path → the member that is installed there; the last, if there are several.
    :ivar sonames: soname → the last member with it.
    :ivar named: file name, by which the loader searches → the members that have it, and no other soname.
    """

    files: Files
    at: Mapping[str, str]
    sonames: Mapping[str, str]
    named: Mapping[str, list[str]]

    def with_image(self, path: str, image: Image) -> Files:
        """Return what a loader sees where the member that is installed at `path` looks as `image`."""
        return self.files.with_image(self.at[path], image)


class ShimUse(msgspec.Struct, frozen=True):
    """What a member gets of shims.

    :ivar needed: soname of a shim → why it is added to NEEDED.
    :ivar versions: the version records that would name what the real library has not.
    """

    needed: Mapping[str, str] = msgspec.field(default_factory=dict)
    versions: tuple[VersionEdit, ...] = ()


class OptionalMember(msgspec.Struct, frozen=True):
    """A member that the package works without.

    :ivar what: what people miss without it; None where they miss nothing.
    """

    what: str | None
    why: str


class ResolveContext(msgspec.Struct, frozen=True, dict=True):
    """All facts that decisions about the images of one wheel rest on.

    :ivar seen: what was read of the target's files, which other assessments may share; once the members are planned, theirs, too.
    :ivar images: the wheel's own ELF members by name, as they are now; members already planned appear as they will be.
    :ivar tables: their symbols, as they are in the input.
    :ivar substitutes: (old soname, new soname) that the user vouches for.
    :ivar assume_symbols: globs of symbols that something else will supply.
    :ivar preload: sonames that libraries dlopen and that are to be there before.
    :ivar preload_known: whether those that a profile knows of are preloaded without being named.
    :ivar clear_execstack: globs of members that are to ask for no executable stack.
    :ivar search_path: ``runpath`` or ``rpath``, the only kind of entry that is written; ``auto``: the one that reaches.
    :ivar member_directories: the directories, as installed, that members of the wheel lie in.
    :ivar distribution: the target's Linux distribution, where it is known: for advice, never for decisions.
    :ivar vendor: what is known of the providers' libraries.
    :ivar added: soname → the member that is a stub of it.
    :ivar shims: the members that use shims.
    :ivar siblings: other packages that are imported before.
    :ivar left_out: the names of copies that leave the wheel, as NEEDED has them → their sonames.
    :ivar as_it_is: nothing is edited; the question is what loads now.
    :ivar opens: the library names in the read-only data of the members that import dlopen.
    :ivar several: the options are for other wheels, too.
    :ivar optional: the members without which the import ends well, where that has been followed.
    """

    target: Target
    seen: Tables
    providers: tuple[Provider, ...]
    images: Mapping[str, Image]
    tables: Mapping[str, SymbolTable] = msgspec.field(default_factory=dict)
    layout: Layout = msgspec.field(default_factory=Layout)
    profile: Profile = NO_PROFILE
    allow_missing: tuple[str, ...] = ()
    substitutes: tuple[tuple[str, str], ...] = ()
    assume_symbols: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    preload_known: bool = True
    clear_execstack: tuple[str, ...] = ()
    search_path: str = "auto"
    member_directories: frozenset[str] = frozenset()
    distribution: Distribution | None = None
    vendor: Vendor = NO_VENDOR
    added: Mapping[str, str] = msgspec.field(default_factory=dict)
    shims: Mapping[str, ShimUse] = msgspec.field(default_factory=dict)
    siblings: tuple[Sibling, ...] = ()
    opens: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    left_out: Mapping[str, str] = msgspec.field(default_factory=dict)
    as_it_is: bool = False
    several: bool = False
    optional: Mapping[str, OptionalMember] = msgspec.field(default_factory=dict)

    @property
    def files(self) -> Files:
        """The target's files."""
        return self.seen.files

    def open_tables(self) -> Tables:
        """Return the symbols of files and members; files that another attempt has read are not read again."""
        return self.seen.over(self.files, self.tables)

    # By soname: the same question is asked for each edge of each attempt.
    @cached_property
    def _serving(self) -> dict[str, list[Provider]]:
        return {}

    @cached_property
    def _identities(self) -> dict[str, set[object]]:
        return {}

    @cached_property
    def packages(self) -> frozenset[str]:
        """The first name below site-packages of each directory that members lie in."""
        site = f"{self.layout.site_packages}/"
        below = (path.removeprefix(site) for path in self.member_directories if path.startswith(site))
        return frozenset(path.partition("/")[0] for path in below)

    @cached_property
    def members(self) -> Members:
        """The members where they are installed; the simulations of all roots share them.

        Afterwards `images` may change, but for the sonames.
        """
        paths = {member: self.layout.path_of(member) for member in self.images}
        names = ((posixpath.basename(member), member) for member in self.images)
        named = group_pairs(pair for pair in names if self.images[pair[1]].soname in (pair[0], None))
        sonames = {image.soname: member for member, image in self.images.items() if image.soname}
        at = {path: member for member, path in paths.items()}
        return Members(self.files.with_overlay(paths, self.images), at, sonames, named)

    @cached_property
    def of_release(self) -> frozenset[str]:
        """The sonames of the vendor's libraries in the release that a provider holds; empty where nothing says which."""
        releases = (
            self.vendor.libraries.release_of(provider, self.target.sysroot) for provider in self.providers
        )
        majors = {int(known.release.partition(".")[0]) for known in releases if known is not None}
        return frozenset(
            name for part in self.vendor.libraries.components() for major in majors for name in part.of(major)
        )

    def stub_facts(self, soname: str) -> OptionalLibrary | None:
        """Return what a stub of a library needs to know; its reason is the vendor's table's, or the package's profile's."""
        facts = self.vendor.libraries.optional(soname)
        if facts is None or facts.why:
            return facts
        return replace(facts, why=self.profile.optional_libraries.get(soname_stem(soname), ""))

    def is_optional(self, soname: str) -> bool:
        """Whether the vendor's table or the package's profile says why programs do without a library."""
        facts = self.stub_facts(soname)
        return facts is not None and bool(facts.why)

    def describe_library(self, soname: str, path: str) -> str:
        """Name a library with its release and place: ``librccl.so.1 of ROCm 7.0.0 (/opt/rocm/lib/librccl.so.1)``."""
        holding = (provider for provider in self.providers if provider.holds(self.layout.real(path)))
        releases = (self.vendor.libraries.release_of(provider, self.target.sysroot) for provider in holding)
        release = next(filter(None, releases), None)
        of = f" of {self.vendor.product} {release.release}" if release else ""
        return f"{soname}{of} ({self.layout.shown(path)})"

    def name_packages(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """Return findings with the command that installs missing libraries of the system, where its lists have them."""
        lost = [one for one in findings if one.code == "RLK101" and one.level == "error" and not one.step]
        sonames = {name for one in lost for name in one.subjects if not self.vendor.libraries.has(name)}
        distribution = self.distribution
        if distribution is None or distribution.family is None or not sonames:
            return (*findings,)
        packages, installer = distribution.find_packages(sorted(sonames)), FAMILIES[distribution.family]

        def with_step(found: Finding) -> Finding:
            step = " ".join([str(installer), *dict.fromkeys(packages[name] for name in found.subjects)])
            return replace(found, step=step, remedy=f"{found.remedy} On {distribution.name}: {step}.")

        return tuple(
            with_step(one) if one in lost and packages.keys() >= {*one.subjects} else one for one in findings
        )

    def provider_path(self, soname: str) -> str | None:
        """Return the library that serves `soname`: of the first provider that has it; a runtime of the first one alone."""
        providers = self.serving(soname)
        return providers[0].find(soname) if providers else None

    def withheld_path(self, soname: str) -> str | None:
        """Return the vendor's runtime of that soname that only a later provider has, and that it therefore does not serve."""
        having = (path for provider in self.providers if (path := provider.find(soname)))
        return None if self.serving(soname) else next(having, None)

    def serving(self, soname: str) -> list[Provider]:
        """Return the providers that serve `soname` (:func:`relink.providers.prefix.find_serving_providers`)."""
        providers = self._serving.get(soname)
        if providers is None:
            providers = find_serving_providers(
                self.providers, soname, runtime=self.vendor.libraries.is_runtime(soname)
            )
            self._serving[soname] = providers
        return providers

    def is_held(self, path: str) -> bool:
        """Whether a file of a closure lies in a directory of a provider."""
        real = self.layout.real(path)
        return any(provider.holds(real) for provider in self.providers)

    def is_providers(self, identity: tuple[object, ...], soname: str) -> bool:
        """Whether that file is the library of that soname of the provider that serves it, by whatever path it was reached."""
        identities = self._identities.get(soname)
        if identities is None:
            paths = (path for provider in self.serving(soname) for path in provider.libraries[soname])
            identities = self._identities[soname] = {self.files.open(path).identity for path in paths}
        return identity in identities
