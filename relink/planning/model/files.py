"""The plan of one ELF file: what happens to each NEEDED, to the search path and to the interpreter. The edit is derived from it.

This is the shape of relink.plan/1 and relink.report/1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from relink.elf.patchelf import ElfEdit
from relink.elf.version_edits import VersionEdit

__all__ = [
    "Action",
    "FilePlan",
    "InterpreterChange",
    "NeededDecision",
    "Origin",
    "RpathChange",
    "Strategy",
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
        # Where nothing was before, an empty path after is nothing, too.
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


def necessary(edit: ElfEdit, needed: Sequence[str]) -> ElfEdit:
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
