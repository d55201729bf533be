"""The plan of one ELF file: the edit, the facts before it, and what serves each NEEDED after it.

What happened to each NEEDED, to the search path and to the interpreter is derived from these; :class:`FileRecord` is the shape of
relink.plan/1 and relink.report/1, which lists it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from relink.elf.image import Image
from relink.elf.patchelf import ElfEdit
from relink.elf.version_edits import VersionEdit

__all__ = [
    "Action",
    "FilePlan",
    "FileRecord",
    "InterpreterChange",
    "LinkFacts",
    "NeededDecision",
    "Origin",
    "Resolution",
    "RpathChange",
    "Strategy",
    "link_facts",
    "necessary",
]

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
class LinkFacts:
    """The facts of an ELF file that an edit can change.

    :ivar needed: its NEEDED entries in order, each soname once.
    :ivar search_kind: ``rpath``, ``runpath``, or None where there is no search path.
    :ivar interpreter: PT_INTERP; None where the file is not a program.
    """

    needed: tuple[str, ...] = ()
    search_path: str | None = None
    search_kind: str | None = None
    interpreter: str | None = None


@dataclass(frozen=True, slots=True)
class Resolution:
    """What serves one NEEDED after the edit, and the evidence for its action; :class:`NeededDecision` has the fields."""

    resolved: str | None
    found_by: str | None
    origin: Origin
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The decisions about one ELF member.

    :ivar strategy: the least invasive one that makes it load, in the simulation.
    :ivar edit: what patchelf is to do; false when there is nothing.
    :ivar before: the facts that the edit changes, as they are in the input.
    :ivar resolutions: one for each NEEDED of `before`, then one for each that `edit` adds.
    :ivar closure: (soname, path) of everything that loading it maps, in load order.
    :ivar served: False for a variant that the providers cannot serve; it is left as it is.
    """

    path: str
    strategy: Strategy
    edit: ElfEdit
    before: LinkFacts
    resolutions: tuple[Resolution, ...] = ()
    closure: tuple[tuple[str, str], ...] = ()
    served: bool = True

    @property
    def needed(self) -> tuple[NeededDecision, ...]:
        """What becomes of each NEEDED, in the order of `resolutions`."""
        replaced, removed = dict(self.edit.replace), frozenset(self.edit.remove)
        entries: list[tuple[str, Action, str | None]] = []
        for soname in self.before.needed:
            if soname in replaced:
                entries.append((soname, "substitute", replaced[soname]))
            elif soname in removed:
                entries.append((soname, "drop", None))
            else:
                entries.append((soname, "keep", soname))
        entries += [(soname, "add", soname) for soname in self.edit.add]
        return tuple(
            NeededDecision(*entry, found.resolved, found.found_by, found.origin, found.evidence)
            for entry, found in zip(entries, self.resolutions, strict=True)
        )

    @property
    def rpath(self) -> RpathChange:
        """The search path before and after."""
        before, edit = self.before, self.edit
        after = (before.search_path, before.search_kind)
        if edit.search_path is not None:
            after = (edit.search_path or None, edit.search_kind)
        return RpathChange(before.search_path, after[0], before.search_kind, after[1])

    @property
    def interpreter(self) -> InterpreterChange:
        """PT_INTERP before and after."""
        before, after = self.before.interpreter, self.edit.interpreter
        return InterpreterChange(before, before if after is None else after)

    @property
    def changed(self) -> bool:
        """Whether the member's bytes will change."""
        return bool(self.edit)


def link_facts(image: Image) -> LinkFacts:
    """Return the facts of an image that an edit can change."""
    return LinkFacts(
        tuple(dict.fromkeys(image.needed)), image.search_path, image.search_kind, image.interpreter
    )


def necessary(edit: ElfEdit, before: LinkFacts) -> ElfEdit:
    """Return `edit` with its sonames in the order of the file's NEEDED, and without additions that the file has already."""
    replaced, removed = dict(edit.replace), frozenset(edit.remove)
    after = {replaced.get(soname, soname) for soname in before.needed if soname not in removed}
    return replace(
        edit,
        replace=tuple((soname, replaced[soname]) for soname in before.needed if soname in replaced),
        remove=tuple(soname for soname in before.needed if soname in removed),
        add=tuple(soname for soname in dict.fromkeys(edit.add) if soname not in after),
    )


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file's plan as JSON has it: with what happened to each NEEDED, to the search path and to the interpreter.

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

    @classmethod
    def of(cls, file: FilePlan) -> FileRecord:
        """Return the record of a plan."""
        return cls(
            file.path,
            file.strategy,
            file.needed,
            file.rpath,
            file.interpreter,
            file.closure,
            file.served,
            file.edit.versions,
        )

    def plan(self) -> FilePlan:
        """Return the plan that this is the record of.

        An action decides; a ``soname_after`` that contradicts it is not looked at.

        :raises ValueError: a soname is listed twice, or one that is replaced has no soname after.
        """
        own = [entry for entry in self.needed if entry.action != "add"]
        added = [entry for entry in self.needed if entry.action == "add"]
        _check(self.needed)
        rpath, interpreter = self.rpath, self.interpreter
        before = (rpath.before, rpath.kind_before)
        # Where nothing was before, an empty path after is nothing, too.
        differs = before not in ((rpath.after, rpath.kind_after), (rpath.after or None, rpath.kind_after))
        edit = ElfEdit(
            search_path=(rpath.after or "") if differs else None,
            search_kind=rpath.kind_after if differs else None,
            replace=tuple(
                (entry.soname, entry.soname_after or "") for entry in own if entry.action == "substitute"
            ),
            remove=tuple(entry.soname for entry in own if entry.action == "drop"),
            add=tuple(entry.soname for entry in added),
            interpreter=interpreter.after if interpreter.after != interpreter.before else None,
            versions=self.versions,
        )
        facts = LinkFacts(tuple(entry.soname for entry in own), *before, interpreter.before)
        resolutions = tuple(
            Resolution(entry.resolved, entry.found_by, entry.origin, entry.evidence)
            for entry in (*own, *added)
        )
        return FilePlan(self.path, self.strategy, edit, facts, resolutions, self.closure, self.served)


def _check(needed: Iterable[NeededDecision]) -> None:
    seen: set[str] = set()
    for entry in needed:
        if entry.soname in seen:
            raise ValueError(f"needed: {entry.soname} is listed twice")
        if entry.action == "substitute" and not entry.soname_after:
            raise ValueError(f"needed: {entry.soname} is replaced by nothing")
        seen.add(entry.soname)
