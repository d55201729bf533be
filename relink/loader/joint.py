"""One dry run of the loader in the place of many: which symbols stay open, of roots that need the same libraries.

What a dry run costs is the look-up of every symbol of every library, not the mapping. So the loader is asked about each root what
it maps, and once about all of them together which symbols stay open. Why that proves the same of each root:

- Whether a symbol is found depends on which objects are in scope, not on their order. A joint run has the libraries that each of
  its roots has alone (of roots of which some libraries are missing, the same are missing), and the other roots.
- So an answer can differ only where another root defines what a root, or one of the libraries, looks up. A root with such a
  definition, whether or not it is the first in the scope, is left out and asked about alone.
- To be hidden, a symbol that stays open would have to be exported by another root in whose file the simulation does not see it:
  two faults of one name, in two files.

The caller compares what the joint run maps with its simulation, and asks about each root alone where the two differ.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from relink.loader.closure import Closure
from relink.loader.dryrun import LoaderMap
from relink.loader.loading import trace
from relink.loader.scopes import Scopes
from relink.loader.search import Environment
from relink.loader.tables import Tables
from relink.system.errors import TargetError

Scenario: TypeAlias = tuple[str, Sequence[str]]
"""One dry run: a program and what is preloaded (LD_PRELOAD), as paths of the target."""

START_COST: Final = 30_000
"""Symbols: looking up so many takes the loader as long as its start."""

# Bytes of LD_PRELOAD: half of what the kernel takes as one string (MAX_ARG_STRLEN, 32 pages).
_MOST_PRELOADS: Final = 64 << 10
# Roots of one run: all are mapped at once, and the address space of the process is limited.
_MOST_ROOTS: Final = 64
_OF = re.compile(r"\((?:required by )?(?P<path>[^()]*)\)$")


@dataclass(frozen=True, slots=True)
class JointRun:
    """A dry run of several roots.

    :ivar roots: their paths; `program` and `preloads` are what is run.
    :ivar closure: what it maps in the simulation.
    """

    roots: tuple[str, ...]
    program: str
    preloads: tuple[str, ...]
    closure: Closure

    def of(self, root: str, mapped: LoaderMap, answer: LoaderMap) -> LoaderMap:
        """Return what the loader says of one root alone.

        :param mapped: its answer about that root, without symbols; `answer`: the one to this run.
        """
        others = {path for path in self.roots if path != root}
        lines = [line for line in answer.problems if not ((of := _OF.search(line)) and of["path"] in others)]
        problems = dict.fromkeys([*mapped.problems, *lines])
        return LoaderMap(mapped.objects, mapped.missing, tuple(problems), mapped.died)


def joint_runs(
    environment: Environment, tables: Tables, single: Mapping[str, tuple[Scenario, Closure]]
) -> list[JointRun]:
    """Return the dry runs that take the place of those of single roots; roots in none of them have to be asked about alone.

    :param single: by the path of a root its own dry run, in which it is the program or preloaded, and what that maps.
    """
    alike: dict[object, list[str]] = {}
    for root, ((program, preloads), closure) in single.items():
        if closure.fatal is None and closure.objects[0].image.needed:
            others = frozenset(path for path in (program, *preloads) if path != root)
            paths = frozenset(
                path for index in closure.scope if (path := closure.objects[index].path) != root
            )
            missing = frozenset(edge.soname for edge in closure.missing)
            alike.setdefault((program == root, others, paths, missing), []).append(root)
    parts = (
        part for roots in alike.values() for part in _parts(roots) if _pays(tables, part, single[part[0]][1])
    )
    runs = (_joint_run(environment, tables, part, *single[part[0]]) for part in parts)
    return [run for run in runs if run is not None]


def _parts(roots: Sequence[str]) -> Iterator[list[str]]:
    """Divide roots so that the kernel and the loader take each part."""
    part: list[str] = []
    size = 0
    for root in roots:
        length = len(root.encode("utf-8", "surrogateescape")) + 1
        if part and (size + length > _MOST_PRELOADS or len(part) == _MOST_ROOTS):
            yield part
            part, size = [], 0
        part.append(root)
        size += length
    yield part


def _pays(tables: Tables, roots: Sequence[str], closure: Closure) -> bool:
    """Whether a joint run, and a start for what each root maps, takes less than a run for each; `closure` is one of them."""
    table_list = (tables.of(closure.objects[index]) for index in closure.scope)
    symbols = sum(len(table.imports) + len(table.references) for table in table_list)
    return (len(roots) - 1) * symbols > len(roots) * START_COST


def _joint_run(
    environment: Environment, tables: Tables, roots: Sequence[str], scenario: Scenario, closure: Closure
) -> JointRun | None:
    """Return the run of those roots that define nothing for another object; None if less than two are left.

    :param scenario: the dry run of the first root; `closure`: what it maps.
    """
    first, left = roots[0], list(roots)
    libraries = {closure.objects[index].path for index in closure.scope} - {first}
    while len(left) > 1:
        program = left[0] if scenario[0] == first else scenario[0]
        preloads = [path for path in (*scenario[1], *left) if path not in (first, program)]
        preloads += [first] if first in left and first != program else []
        try:
            joint = trace(environment, program, preloads)
        except TargetError:
            return None
        paths = [loaded.path for loaded in joint.objects]
        if joint.fatal is not None or {paths[index] for index in joint.scope} != libraries.union(left):
            return None
        taken = _interfering(Scopes(joint, tables), {index for index in joint.scope if paths[index] in left})
        if not taken:
            return JointRun(tuple(left), program, tuple(preloads), joint)
        left = [path for path in left if path not in {paths[index] for index in taken}]
    return None


def _interfering(scopes: Scopes, roots: Collection[int]) -> set[int]:
    """Return the roots that define what another object looks up."""
    tables = {id(scopes.table(root)): root for root in roots}
    if len(tables) < len(roots):
        # Which of two roots with one table defines a symbol cannot be told.
        return {*roots}
    others: set[int] = set()
    for index, scope, _ in scopes.of_objects():
        table, lookups = scopes.table(index), scopes.lookups(index)
        own = id(table)
        groups = [*(group[0] for group in lookups.imports), *(group[0] for group in lookups.references)]
        for candidates in groups:
            others |= {tables[other] for other in tables.keys() & candidates.tables if other != own}
        names = [table.imports[number].name for number in lookups.searched_imports]
        names += [name for name, _ in lookups.searched_references]
        for name in (*names, *(copied.name for copied in table.copies)):
            owners = {id(owner) for owner in scope.symbols.owners(name)}
            others |= {tables[other] for other in tables.keys() & owners if other != own}
    return others
