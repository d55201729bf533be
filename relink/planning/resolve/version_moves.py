"""Which edits of version records let an image take a library of the same upstream under another name, or do without one.

Versions that a vendor has renamed say nothing of the ABI; that the two are one library does, and that is a fact that comes from
outside (:meth:`relink.vendors.protocol.Vendor.copy_of`). What is looked at here is whether each import binds, symbol by symbol.
Of the edits that let it, the one that keeps most of the claim is taken: none; another name; weak; weak and without a version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relink.elf.symbols import Import, SymbolTable, VersionNeed, VersionRequirement, match
from relink.elf.version_edits import VersionEdit

__all__ = ["dropped_record", "version_moves"]


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to let the imports of a version bind; `serving` are those that do."""

    name: str
    weak: bool
    unversioned: bool
    serving: tuple[Import, ...]


def version_moves(
    needs: Sequence[VersionNeed], imports: Sequence[Import], soname: str, table: SymbolTable
) -> tuple[list[VersionEdit], list[Import]]:
    """Return the edits that let a library of the same upstream take the place of another, and the imports that it lacks even so.

    :param needs: the records of the library that is replaced.
    :param imports: the imports whose version record names it.
    :param soname: the library that replaces it, and `table` its symbols.
    """
    edits: list[VersionEdit] = []
    lacking: list[Import] = []
    for need in needs:
        for requirement in need.versions:
            own = [imported for imported in imports if imported.version == requirement.name]
            way = _best([*_ways(requirement, own, table)], own)
            lacking += [imported for imported in own if imported not in way.serving]
            if (way.name, way.weak, way.unversioned) != (requirement.name, False, False):
                edits.append(
                    VersionEdit(
                        need.file,
                        requirement.name,
                        soname,
                        way.name,
                        way.weak,
                        way.unversioned,
                        (_reason(way, requirement.name, soname),),
                    )
                )
    return edits, lacking


def dropped_record(needs: Sequence[VersionNeed], kept: str) -> tuple[VersionEdit, ...]:
    """Return the edits that a library which is not NEEDED any more takes: its records become weak, and name a `kept` one."""
    why = f"its library is dropped: the record becomes weak and names {kept}, since ld.so asserts that what it names is loaded"
    return tuple(
        VersionEdit(need.file, version.name, kept, version.name, weak=True, evidence=(why,))
        for need in needs
        for version in need.versions
    )


def _ways(requirement: VersionRequirement, own: Sequence[Import], table: SymbolTable) -> Iterator[_Way]:
    """Yield the ways to require a version of a library, the one that keeps most of the claim first."""
    defined = [node.name for node in table.verdefs if not node.base]
    name = requirement.name
    # ld.so reads version numbers of a file with version records only, and stops at a versioned reference to one without.
    readable = table.has_versym and bool(table.verdefs or table.verneeds)

    def serving(version: str | None) -> tuple[Import, ...]:
        exact = requirement.hidden and version is not None
        return tuple(
            imported
            for imported in own
            if match(table.exports.get(imported.name, ()), version, exact=exact) is not None
        )

    if readable and (not defined or name in defined or requirement.weak):
        yield _Way(name, weak=False, unversioned=False, serving=serving(name))
    for node in sorted(
        (node for node in defined if node != name and name.endswith(node)), key=len, reverse=True
    ):
        yield _Way(node, weak=False, unversioned=False, serving=serving(node))
    if readable and defined and name not in defined:
        yield _Way(name, weak=True, unversioned=False, serving=serving(name))
    yield _Way(name, weak=True, unversioned=True, serving=serving(None))


def _best(ways: Sequence[_Way], own: Sequence[Import]) -> _Way:
    """Return the first way by which all imports bind, or else the one by which most do."""
    complete = (way for way in ways if len(way.serving) == len(own))
    return next(complete, None) or max(ways, key=lambda way: len(way.serving))


def _reason(way: _Way, version: str, soname: str) -> str:
    if way.unversioned:
        return f"{soname} has no version {version}: it becomes weak, and its symbols are looked up without a version"
    if way.weak:
        return f"{soname} has no version {version}, and has the symbols without a version: it becomes weak"
    return f"version {version} becomes {way.name}, which {soname} defines"
