"""Whether the version nodes that objects require of each other exist, before any symbol is looked at.

The rules are those of glibc elf/dl-version.c (find_needed, match_symbol, _dl_check_map_versions).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relink.loader.closure import Closure
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


def check_records(closure: Closure, tables: Tables) -> Iterator[MissingVersion | UnservedRecord]:
    """Check every version record of every object in scope against the object that serves its file name, in the loader's order.

    A weak requirement, and one of a library that defines no versions at all, is not an error to the loader (it warns with
    LD_WARN).
    """
    for index in closure.scope:
        loaded = closure.objects[index]
        for need in tables.of(loaded).verneeds:
            # elf/dl-version.c, find_needed:
            # > for (tmap = GL(dl_ns)[map->l_ns]._ns_loaded; tmap != NULL;
            # >      tmap = tmap->l_next)
            # >   if (_dl_name_match_p (name, tmap))
            # >     return tmap;
            suppliers = closure.names.get(need.file)
            if not suppliers:
                # > assert (needed != NULL);
                yield UnservedRecord(loaded.path, need.file)
                continue
            supplier = closure.objects[suppliers[0]]
            defined = [node.name for node in tables.of(supplier).verdefs]
            for requirement in need.versions if defined else ():
                if requirement.name not in defined and not requirement.weak:
                    family = requirement.name.split("_", 1)[0]
                    known = tuple(name for name in defined if name.startswith(family + "_"))
                    yield MissingVersion(loaded.path, need.file, requirement.name, supplier.path, known)


def check_versions(closure: Closure, tables: Tables) -> list[MissingVersion]:
    """Return the versions that objects in scope require of others that do not define them."""
    found = check_records(closure, tables)
    return [*dict.fromkeys(record for record in found if isinstance(record, MissingVersion))]


def unserved_records(closure: Closure, tables: Tables) -> list[UnservedRecord]:
    """Return the version records that name a file that was not loaded, though nothing that is needed is missing.

    ``Inconsistency detected by ld.so: dl-version.c: … Assertion `needed != NULL' failed!`` Where the file is needed and missing,
    the missing edge is the reason.
    """
    lost = {edge.soname for edge in closure.missing}
    found = check_records(closure, tables)
    return [record for record in found if isinstance(record, UnservedRecord) and record.file not in lost]
