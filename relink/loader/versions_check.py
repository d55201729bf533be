"""Whether the version nodes that objects require of each other exist, before any symbol is looked at.

The rules are those of glibc elf/dl-version.c (find_needed, match_symbol, _dl_check_map_versions).
"""

from __future__ import annotations

from dataclasses import dataclass

from relink.loader.closure import Closure
from relink.loader.object_graph import objects_by_name
from relink.loader.tables import Tables


@dataclass(frozen=True, slots=True)
class MissingVersion:
    """A version that one object requires of another that does not define it.

    :ivar requester: path of the object with the version record.
    :ivar file: the soname that the record names.
    :ivar supplier: path of the object with that name.
    :ivar defined: the versions of the same family (``GLIBC``) that it does define, as in the file.
    """

    requester: str
    file: str
    version: str
    supplier: str
    defined: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnservedRecord:
    """A version record of `requester` that names a `file` that no object of the process is: the loader aborts.

    It is what remains where a NEEDED entry is removed or renamed and its record is not.
    """

    requester: str
    file: str


def check_versions(closure: Closure, tables: Tables) -> list[MissingVersion]:
    """Check every version record of every object in scope against the object that serves its file name.

    A weak requirement, and one of a library that defines no versions at all, is not an error to the loader (it warns with
    LD_WARN). Records that name a file that was not loaded: see :func:`unserved_records`.
    """
    missing: dict[MissingVersion, None] = {}
    by_name = objects_by_name(closure)
    for index in closure.scope:
        loaded = closure.objects[index]
        for need in tables.of(loaded).verneeds:
            suppliers = by_name.get(need.file)
            if not suppliers:
                continue
            supplier = closure.objects[suppliers[0]]
            defined = {node.name: node for node in tables.of(supplier).verdefs}
            if not defined:
                continue
            for requirement in need.versions:
                if requirement.name not in defined and not requirement.weak:
                    family = requirement.name.split("_", 1)[0]
                    known = tuple(name for name in defined if name.startswith(family + "_"))
                    lost = MissingVersion(loaded.path, need.file, requirement.name, supplier.path, known)
                    missing[lost] = None
    return list(missing)


def unserved_records(closure: Closure, tables: Tables) -> list[UnservedRecord]:
    """Return the version records that name a file that was not loaded, though nothing that is needed is missing.

    ``Inconsistency detected by ld.so: dl-version.c: … Assertion `needed != NULL' failed!`` Where the file is needed and missing,
    the missing edge is the reason.
    """
    by_name = objects_by_name(closure)
    lost = {edge.soname for edge in closure.missing}
    return [
        UnservedRecord(closure.objects[index].path, need.file)
        for index in closure.scope
        for need in tables.of(closure.objects[index]).verneeds
        if need.file not in by_name and need.file not in lost
    ]
