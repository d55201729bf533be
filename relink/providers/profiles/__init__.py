"""Profiles: what is known of one vendor package, as data (``profiles/packages/*.toml``).

They never change what is provable, only what is assumed.
"""

from __future__ import annotations

import difflib
import fnmatch
import functools
import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from relink.providers.profiles.document import read_document
from relink.system.bounded_json import read_typed
from relink.system.errors import UsageError
from relink.system.shipped_files import shipped_directory

# Names in annotations only; the commands that read a profile alone start without it.
if TYPE_CHECKING:
    from relink.system.findings.model import Finding


class PackageRelease(msgspec.Struct, frozen=True):
    """A release of one of the package's distributions whose GPU code is known: its processors, and where that was seen."""

    distribution: str
    version: str
    gpus: tuple[str, ...]
    source: str


class DlopenEntry(msgspec.Struct, frozen=True):
    """What members (a glob) load by dlopen: globs of sonames, why, and whether the GPU part does not work without."""

    member: str
    sonames: tuple[str, ...]
    why: str
    required: bool = False


class OptionalMembers(msgspec.Struct, frozen=True):
    """Members (globs) that may be left out, why that is known, and what they are for in a few words.

    :ivar library: of files beside a copy of a vendor's library: that which alone uses them.
    """

    members: tuple[str, ...]
    why: str = ""
    what: str | None = None
    library: str | None = None


class EqualSonames(msgspec.Struct, frozen=True):
    """Sonames that are one ABI, and why that is known. The symbols have to be there all the same.

    They are one library under several numbers.
    """

    sonames: tuple[str, ...]
    why: str


class Hint(msgspec.Struct, frozen=True):
    """A sentence that is added to the remedy of findings with this code (a glob) and this subject (a glob).

    :ivar named: a text that the Python of the wheel has, else the sentence does not hold for this release.
    """

    code: str
    text: str
    subject: str = "*"
    named: str = ""

    def fits(self, code: str, subject: str) -> bool:
        """Whether it belongs to such a finding."""
        return fnmatch.fnmatchcase(code, self.code) and fnmatch.fnmatchcase(subject, self.subject)


class Profile(msgspec.Struct, frozen=True):
    """What is known of one package.

    :ivar distributions: the distribution names it applies to, as the index normalises them.
    :ivar imports: modules whose import shows that the package loads.
    :ivar nixpkgs_version_of: Python packages of nixpkgs whose version must be its own.
    :ivar nixpkgs: its attribute among nixpkgs' Python packages, where it is built there, too; None: only the vendor has it.
    :ivar requires: distributions that it needs at run time, normalised; counts where the wheel's METADATA names none.
    :ivar variants: member globs of libraries of which Python picks one at run time; those that a prefix cannot serve stay as
        they are.
    :ivar optional: members that the package does without; what a prefix cannot serve stays as it is, if others are served.
    :ivar optional_libraries: libraries, without their versions, that the package does without, and why.
    :ivar preload: members that the package loads into the global scope before others.
    :ivar for_packages: members that are for the vendor's packages in site-packages alone, and leave where a prefix is.
    :ivar bundled: copies of a vendor's libraries, where wheels have them, and the files that belong to these.
    :ivar brings: globs of members that an import of the package maps, and that members of other packages need by soname.
    :ivar rpath_drop: globs of ``$ORIGIN`` entries that leave the wheel and that the prefix takes the place of.
    :ivar releases: releases of the package whose GPU code is known, to name one that has what another lacks.
    :ivar source: where the statements above can be checked.
    """

    name: str
    distributions: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    nixpkgs: str | None = None
    nixpkgs_version_of: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    optional: tuple[OptionalMembers, ...] = ()
    optional_libraries: Mapping[str, str] = msgspec.field(default_factory=dict)
    preload: tuple[str, ...] = ()
    for_packages: tuple[OptionalMembers, ...] = ()
    bundled: tuple[OptionalMembers, ...] = ()
    brings: tuple[str, ...] = ()
    rpath_drop: tuple[str, ...] = ()
    dlopen: tuple[DlopenEntry, ...] = ()
    same_abi: tuple[EqualSonames, ...] = ()
    hints: tuple[Hint, ...] = ()
    releases: tuple[PackageRelease, ...] = ()
    source: str = ""

    def is_variant(self, member: str) -> bool:
        """Whether `member` is one of several of which one is loaded."""
        return any(fnmatch.fnmatchcase(member, pattern) for pattern in self.variants)

    def why_optional(self, member: str) -> str | None:
        """Return why the package works without a member, or None where nothing says so."""
        row = self._optional_row(member)
        return row.why if row is not None else None

    def part_of(self, member: str) -> str:
        """Return what an optional member is for in a few words; its file name where the profile does not say."""
        row = self._optional_row(member)
        return (row.what if row is not None else None) or posixpath.basename(member)

    def _optional_row(self, member: str) -> OptionalMembers | None:
        rows = (
            row for row in self.optional if any(fnmatch.fnmatchcase(member, glob) for glob in row.members)
        )
        return next(rows, None)

    def where_brought(self, soname: str) -> str | None:
        """Return the glob of the member that an import of the package maps under that soname, or None."""
        found = (glob for glob in self.brings if fnmatch.fnmatchcase(soname, posixpath.basename(glob)))
        return next(found, None)

    def drops(self, entry: str) -> bool:
        """Whether a search path entry to a sibling package goes."""
        return any(fnmatch.fnmatchcase(entry, pattern) for pattern in self.rpath_drop)

    def dlopens(self, member: str) -> dict[str, str]:
        """Return what a member loads by dlopen: glob of sonames → why."""
        entries = [entry for entry in self.dlopen if fnmatch.fnmatchcase(member, entry.member)]
        return {soname: entry.why for entry in entries for soname in entry.sonames}

    def requires_opened(self, member: str, soname: str) -> bool:
        """Whether the GPU part of the package does not work where a member cannot open a library."""
        entries = (entry for entry in self.dlopen if entry.required and soname in entry.sonames)
        return any(fnmatch.fnmatchcase(member, entry.member) for entry in entries)

    def why_equal(self, one: str, other: str) -> str | None:
        """Return why two sonames are one ABI, or None where nothing says so."""
        return why_equal(self.same_abi, one, other)

    def unmatched(self, members: Collection[str], entries: Collection[str]) -> Iterator[str]:
        """Yield what in this profile names nothing in a wheel.

        :param members: the wheel's members.
        :param entries: the search path entries of its ELF files.
        """
        globs = {"variants": self.variants, "preload": self.preload, "brings": self.brings}
        of_rows = {"optional": self.optional, "for_packages": self.for_packages, "bundled": self.bundled}
        for key, rows in of_rows.items():
            globs[f"{key}.members"] = tuple(glob for row in rows for glob in row.members)
        globs["dlopen.member"] = tuple(entry.member for entry in self.dlopen)
        for key, patterns in globs.items():
            yield from (
                f"{key}: {pattern} is no member"
                for pattern in patterns
                if not fnmatch.filter(members, pattern)
            )
        for pattern in self.rpath_drop:
            if not any(fnmatch.fnmatchcase(entry, pattern) for entry in entries):
                yield f"rpath.drop: {pattern} is no search path entry"
        for module in self.imports:
            path = module.replace(".", "/")
            if f"{path}.py" not in members and f"{path}/__init__.py" not in members:
                yield f"imports: {module} is no module"


def why_equal(rows: Iterable[EqualSonames], one: str, other: str) -> str | None:
    """Return why two sonames are one ABI, by the first row that has both, or None where nothing says so."""
    return next((row.why for row in rows if {one, other} <= {*row.sonames} and one != other), None)


def match_names(globs: Iterable[tuple[str, str]], available: Collection[str]) -> dict[str, str]:
    """Return the available names that each glob matches, with what stands beside it.

    A glob that matches none stands for itself, so that its absence can be reported.
    """
    found: dict[str, str] = {}
    for glob, why in globs:
        found |= dict.fromkeys(fnmatch.filter(available, glob) or [glob], why)
    return found


NO_PROFILE = Profile("none")
"""Nothing is known; ``--profile none`` asks for it."""


def shipped_profiles() -> dict[str, Profile]:
    """Return the shipped profiles by name.

    :raises UsageError: one is damaged.
    """
    return dict(_profiles_in(shipped_directory("profiles")))


@functools.cache
def _profiles_in(directory: Path) -> dict[str, Profile]:
    found = (read_profile(path) for path in sorted(directory.glob("packages/*.toml")))
    return {profile.name: profile for profile in found}


def profile_for(distribution: str, chosen: str | None = None) -> Profile:
    """Return the profile of a distribution, or :data:`NO_PROFILE`.

    :param chosen: the name of another profile, or its file: what ``--profile`` says.
    :raises UsageError: there is no such profile, or it is damaged.
    """
    if chosen is not None:
        return profile_named(chosen, option="--profile ")
    wanted = canonicalize_name(distribution)
    return next((item for item in shipped_profiles().values() if wanted in item.distributions), NO_PROFILE)


def profile_named(name: str, *, option: str = "") -> Profile:
    """Return a shipped profile by its name (``none`` for :data:`NO_PROFILE`), or one from a file.

    :param option: what the name was passed by, for messages.
    :raises UsageError: there is no such profile, or it is damaged.
    """
    if name == NO_PROFILE.name:
        return NO_PROFILE
    if "/" in name or name.endswith(".toml"):
        return read_profile(Path(name))
    shipped = shipped_profiles()
    if name in shipped:
        return shipped[name]
    near = difflib.get_close_matches(name, shipped, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(shipped)}."
    raise UsageError(
        f"{option}{name}: there is no such profile; {hint} A file is named with its directory, ./{name}.toml"
    )


def read_profile(path: Path) -> Profile:
    """Read one profile.

    :raises UsageError: it cannot be read, is not TOML, or not what ``profile.schema.json`` asks for; names FILE:LINE of
        everything that is wrong.
    """
    data = read_document(path, "profile", "profile")
    del data["schema"]
    for key in data.keys() & {"distributions", "requires"}:
        data[key] = [str(canonicalize_name(name)) for name in data[key]]
    for row in data.get("releases", ()):
        row["distribution"] = str(canonicalize_name(row["distribution"]))
    data["optional_libraries"] = {row["library"]: row["why"] for row in data.pop("optional_library", ())}
    data["rpath_drop"] = data.pop("rpath", {}).get("drop", [])
    profile: Profile = read_typed(Profile, {"name": path.stem, **data}, str(path))
    return profile


def add_hints(findings: Iterable[Finding], profile: Profile) -> Iterator[Finding]:
    """Add to the remedies what the profile says about such findings."""
    for found in findings:
        fitting = (hint.text for hint in profile.hints if hint.fits(found.code, found.subject))
        # What was given its hints before has them already.
        texts = dict.fromkeys(text for text in fitting if text not in found.remedy)
        addition = "".join(f" {text} (profile {profile.name})" for text in texts)
        yield replace(found, remedy=found.remedy + addition) if addition else found
