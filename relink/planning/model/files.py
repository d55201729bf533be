"""The parts of a plan: the decisions about one ELF file, libraries that relink writes, and packages that the result relies on.

What happens to each NEEDED, to the search path and to the interpreter is said once; the edit is derived from it.

This is the shape of relink.plan/1 and relink.report/1. Source of the words about packages: "Core metadata" and "Dependency
specifiers" of the PyPA specifications, PEP 440 for versions.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from packaging.version import Version

from relink.elf.edit import ElfEdit
from relink.elf.stub import StubFunction, build_stub
from relink.elf.version_edits import VersionEdit
from relink.system.errors import UsageError

Action: TypeAlias = Literal["keep", "substitute", "drop", "add"]
Origin: TypeAlias = Literal["wheel", "provider", "platform", "missing", "assumed"]
Strategy: TypeAlias = Literal["nothing", "runpath", "rpath", "flatten"]


@dataclass(frozen=True, slots=True)
class NeededDecision:
    """What becomes of one NEEDED entry.

    :ivar resolved: the path that serves it, as the loader will find it; members are shown as ``$WHEEL/…``.
    :ivar found_by: the loader rule that finds it.
    :ivar evidence: why the action is right, one sentence a fact.
    """

    soname: str
    action: Action
    soname_after: str | None
    resolved: str | None
    found_by: str | None
    origin: Origin
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RpathChange:
    """The search path before and after, as strings; `kind` is ``rpath``, ``runpath`` or None where there is no entry."""

    before: str | None
    after: str | None
    kind_before: str | None
    kind_after: str | None


@dataclass(frozen=True, slots=True)
class InterpreterChange:
    """PT_INTERP before and after; None where the file is not a program."""

    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The decisions about one ELF member.

    :ivar strategy: the least invasive one that makes it load, in the simulation.
    :ivar needed: one for each NEEDED that it has, in its order, then one for each that is added.
    :ivar closure: (soname, path) of everything that loading it maps, in load order.
    :ivar served: False for a variant that the providers cannot serve; it is left as it is.
    :ivar versions: what happens to version records, besides that they follow a NEEDED that is substituted.
    """

    path: str
    strategy: Strategy
    needed: tuple[NeededDecision, ...]
    rpath: RpathChange
    interpreter: InterpreterChange
    closure: tuple[tuple[str, str], ...] = ()
    served: bool = True
    versions: tuple[VersionEdit, ...] = ()

    @property
    def edit(self) -> ElfEdit:
        """What patchelf is to do; false when there is nothing.

        An action decides; a ``soname_after`` that contradicts it is not looked at.
        """
        rpath, interpreter = self.rpath, self.interpreter
        before = (rpath.before, rpath.kind_before)
        # A plan may write an empty search path as null or as "". Both are no change where the file had none.
        differs = before not in ((rpath.after, rpath.kind_after), (rpath.after or None, rpath.kind_after))
        return ElfEdit(
            search_path=(rpath.after or "") if differs else None,
            search_kind=rpath.kind_after if differs else None,
            replace=tuple(
                (entry.soname, entry.soname_after or "")
                for entry in self.needed
                if entry.action == "substitute"
            ),
            remove=tuple(entry.soname for entry in self.needed if entry.action == "drop"),
            add=tuple(entry.soname for entry in self.needed if entry.action == "add"),
            interpreter=interpreter.after if interpreter.after != interpreter.before else None,
            versions=self.versions,
        )

    @property
    def changed(self) -> bool:
        """Whether the member's bytes will change."""
        return bool(self.edit)

    def check(self) -> None:
        """Check what a plan that somebody else wrote may have wrong.

        :raises ValueError: a soname is listed twice, or one that is replaced has no soname after.
        """
        seen: set[str] = set()
        for entry in self.needed:
            if entry.soname in seen:
                raise ValueError(f"needed: {entry.soname} is listed twice")
            if entry.action == "substitute" and not entry.soname_after:
                raise ValueError(f"needed: {entry.soname} is replaced by nothing")
            seen.add(entry.soname)


def normalize_edit(edit: ElfEdit, needed: Sequence[str]) -> ElfEdit:
    """Return `edit` with its sonames in the order of a file's NEEDED, and without additions that the file has already.

    :param needed: each soname once.
    """
    replaced, removed = dict(edit.replace), frozenset(edit.remove)
    after = {replaced.get(soname, soname) for soname in needed if soname not in removed}
    return replace(
        edit,
        replace=tuple((soname, replaced[soname]) for soname in needed if soname in replaced),
        remove=tuple(soname for soname in needed if soname in removed),
        add=tuple(soname for soname in dict.fromkeys(edit.add) if soname not in after),
    )


@dataclass(frozen=True, slots=True)
class ChangedRequirement:
    """A Requires-Dist of METADATA that the output has not, or has another one in the place of.

    :ivar before: as the vendor's wheel spells it; `after`: None where it is taken out.
    """

    before: str
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Reliance:
    """Another package in site-packages that members rely on.

    :ivar name: of the distribution; `version`: the one that was there.
    :ivar directories: in site-packages, those that search paths of members lead to; none where only its own libraries do.
    :ivar files: in site-packages, the libraries that are taken of a package that is no provider, but one that the wheel comes
        after, or whose directory its vendor wrote into a search path.
    """

    name: str
    version: str
    directories: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def requirement(reliance: Reliance) -> str:
    """Return the requirement of a package: its series, and where it is a pre-release the later ones of that series.

    Installers take a pre-release only where a requirement names one (PEP 440, "Handling of pre-releases").
    """
    try:
        version = Version(reliance.version)
    except ValueError:
        return reliance.name
    if version.is_prerelease:
        return f"{reliance.name}>={version.public},<{version.major}.{version.minor + 1}"
    return f"{reliance.name}=={version.major}.{version.minor}.*"


def metadata_lines(
    relies_on: Iterable[Reliance], extra: str | None, bundle: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the fields of METADATA that say what a result relies on: as an extra, or required.

    What the vendor's wheel relied on before is the vendor's to say.

    :param extra: what brings the packages; None: installing the wheel installs them, too.
    :param bundle: package → the requirement without a version that brings it, and others with it.
    """
    names = ((item, (bundle or {}).get(item.name, item.name)) for item in relies_on if not item.files)
    wanted = list(dict.fromkeys(requirement(replace(item, name=name)) for item, name in names))
    if not wanted:
        return ()
    if extra is None:
        return tuple(f"Requires-Dist: {item}" for item in wanted)
    return (f"Provides-Extra: {extra}", *(f'Requires-Dist: {item}; extra == "{extra}"' for item in wanted))


STUB_DIRECTORY: Final = "relink-stubs"
"""The name of the directory that has a wheel's stubs, and nothing else, so that it can be the last of a search path."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,200}")


@dataclass(frozen=True, slots=True)
class Stub:
    """A library that relink writes (:mod:`relink.elf.stub`): a stub, whose functions refuse, or a forwarder.

    A forwarder has no functions. It has the name that an object hands to dlopen, and needs the library under its soname:
    dlsym(3) looks in what a handle's library needs, too.

    :ivar path: its member in the output.
    :ivar versions: the version nodes that it defines.
    :ivar why: why there is a stub in place of the library.
    :ivar needed: the NEEDED of a forwarder, the library that it leads to first; `search_path` and its kind: where they are found.
    """

    path: str
    soname: str
    why: str
    functions: tuple[StubFunction, ...] = ()
    versions: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    search_path: str | None = None
    search_kind: str | None = None

    def content(self) -> bytes:
        """Return the library's bytes: the same for the same plan.

        :raises UsageError: there can be no such library: the plan is not one that relink made.
        """
        try:
            path = (self.search_kind or "runpath", self.search_path) if self.search_path else None
            return build_stub(self.soname, self.functions, self.versions, self.needed, path)
        except (ValueError, struct.error) as error:  # names that no file can have, or too many
            raise UsageError(f"{self.path}: the plan has a stub that cannot be written") from error


def is_plain(name: str) -> bool:
    """Whether a name is one of a file, without a directory and without what a search path or a shell would understand."""
    return _PLAIN.fullmatch(name) is not None


def check_places(stubs: Sequence[Stub]) -> None:
    """Check that stubs are where relink puts them: a plan may be one that somebody else wrote.

    :raises UsageError: one is not.
    """
    for stub in stubs:
        top, _, rest = stub.path.partition("/")
        known = is_plain(top) and top.endswith(".libs") and is_plain(stub.soname)
        if not known or rest != f"{STUB_DIRECTORY}/{stub.soname}":
            place = f"NAME.libs/{STUB_DIRECTORY}/"
            raise UsageError(
                f"{stub.path}: the plan puts a stub outside {place}; this plan was not made by relink"
            )
