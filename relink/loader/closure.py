"""Everything that loading one file maps: a breadth-first load as ld.so does it, without running anything.

Sources: glibc elf/dl-deps.c (_dl_map_object_deps: the order), elf/dl-load.c (_dl_map_object: what counts as loaded already),
elf/rtld.c (the program, LD_PRELOAD, tracing), elf/dl-open.c (dlopen).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from relink.elf.image import Image
from relink.errors import TargetError
from relink.loader.files import Candidate
from relink.loader.search import Environment, FoundBy, Requester, Tried, reject, search

__all__ = ["Closure", "Edge", "LoadedObject", "load", "trace"]


@dataclass(frozen=True, slots=True)
class LoadedObject:
    """One object of a process.

    :ivar path: the path as found, not cleaned up: what the loader's own map shows.
    :ivar name: the name under which it was first asked for.
    :ivar found_by: the rule that led to it.
    :ivar loader: the index of the object that it was loaded for, in the closure's `objects`.
    """

    path: str
    name: str
    image: Image
    identity: tuple[object, ...]
    found_by: FoundBy
    loader: int | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """One NEEDED entry of one object, and what became of it.

    :ivar requester: index of the object that needs it, in the closure's `objects`.
    :ivar target: index of the object that serves it, or None where nothing does.
    :ivar found_by: by which rule; ``loaded`` where it was there already.
    :ivar tried: everything that was looked at before, or in vain.
    """

    requester: int
    soname: str
    target: int | None
    found_by: FoundBy | None
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True, slots=True)
class Closure:
    """What a load maps.

    :ivar objects: in load order, the program and what it had loaded before first.
    :ivar scope: indices of the objects in the order of symbol look-up for the roots (breadth first).
    :ivar edges: every NEEDED of every object, in the order in which they were worked on.
    :ivar roots: indices of what was asked for.
    :ivar fatal: what the loader dies of (a file under a needed name that is no library), or None.
    """

    objects: tuple[LoadedObject, ...]
    scope: tuple[int, ...]
    edges: tuple[Edge, ...]
    roots: tuple[int, ...]
    fatal: str | None = None

    @property
    def missing(self) -> tuple[Edge, ...]:
        """The edges that nothing serves."""
        return tuple(edge for edge in self.edges if edge.target is None)

    @property
    def loads(self) -> bool:
        """Whether every NEEDED of every object is served."""
        return self.fatal is None and not self.missing


@dataclass(slots=True)
class _Process:
    """The link map of one process while it grows."""

    environment: Environment
    objects: list[LoadedObject] = field(default_factory=list)
    requesters: list[Requester] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    by_name: dict[str, int] = field(default_factory=dict)
    by_identity: dict[tuple[object, ...], int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    has_main: bool = False
    fatal: str | None = None

    @property
    def main(self) -> Requester | None:
        return self.requesters[0] if self.has_main else None

    def add(
        self, found: Candidate, name: str, found_by: FoundBy, loader: int | None, *, is_main: bool = False
    ) -> int:
        """Enter a file, or find that the same file is there already under another name."""
        if found.image is None or found.identity is None:
            raise TargetError(f"{found.path}: cannot be loaded ({found.problem or 'no such file'})")
        index = self.by_identity.get(found.identity)
        if index is None:
            index = len(self.objects)
            self.objects.append(LoadedObject(found.path, name, found.image, found.identity, found_by, loader))
            chain = None if loader is None else self.requesters[loader]
            origin = posixpath.dirname(self._absolute(found.path))
            self.requesters.append(Requester(found.path, found.image, origin, chain, is_main))
            self.by_identity[found.identity] = index
            # The soname answers for the object too, but the first object of that soname keeps it.
            for known in (found.path, found.image.soname):
                if known:
                    self.by_name.setdefault(known, index)
        self.by_name.setdefault(name, index)
        return index

    def _absolute(self, path: str) -> str:
        return path if path.startswith("/") else posixpath.join(self.environment.cwd or "/", path)

    def open_root(self, path: str, found_by: FoundBy, loader: int | None, *, is_main: bool = False) -> int:
        found = self.environment.files.open(self._absolute(path))
        rejected = reject(found, self.environment.target.header) if found.exists else None
        if not found.exists or rejected is not None:
            raise TargetError(f"{path}: cannot be loaded ({rejected.reason if rejected else 'no such file'})")
        known = self.by_name.get(path)
        if known is not None:
            return known
        found = Candidate(path, found.identity, found.image)
        index = self.add(found, path, found_by, loader, is_main=is_main)
        if is_main:
            self.has_main = True
            self._add_loader()
        return index

    def _add_loader(self) -> None:
        """The loader is mapped from the start and answers to its own soname, without being a file that was opened."""
        interpreter = self.environment.target.interpreter
        image = self.environment.files.open(interpreter).image
        if image is None:
            raise TargetError(f"{interpreter}: the loader cannot be read")
        self.requesters.append(Requester(interpreter, image, posixpath.dirname(interpreter), None))
        self.objects.append(LoadedObject(interpreter, interpreter, image, ("loader",), FoundBy("loaded")))
        for name in (interpreter, image.soname):
            if name:
                self.by_name.setdefault(name, len(self.objects) - 1)

    def map_dependencies(self, start: Sequence[int]) -> tuple[int, ...]:
        """Load what `start` needs, breadth first; returns the objects in that order."""
        scope = list(dict.fromkeys(start))
        known = set(scope)
        for index in scope:  # grows while it is walked
            if self.fatal:
                break
            for needed in self._needed(index):
                if needed not in known:
                    known.add(needed)
                    scope.append(needed)
        return tuple(scope)

    def _needed(self, index: int) -> list[int]:
        found = []
        for soname in self.objects[index].image.needed:
            edge = self._edge(index, soname)
            if index not in self.done:
                self.edges.append(edge)
            if edge.target is not None:
                found.append(edge.target)
            if self.fatal:
                break
        self.done.add(index)
        return found

    def _edge(self, index: int, soname: str) -> Edge:
        there = self.by_name.get(soname)
        if there is not None:
            return Edge(index, soname, there, FoundBy("loaded"))
        result = search(soname, self.requesters[index], self.main, self.environment)
        if result.candidate is None or result.found_by is None:
            self.fatal = result.fatal
            return Edge(index, soname, None, None, result.tried)
        target = self.add(result.candidate, soname, result.found_by, index)
        return Edge(index, soname, target, result.found_by, result.tried)

    def closure(self, scope: Iterable[int], roots: Sequence[int]) -> Closure:
        return Closure(tuple(self.objects), tuple(scope), tuple(self.edges), tuple(roots), self.fatal)


def trace(environment: Environment, program: str, preloads: Sequence[str] = ()) -> Closure:
    """Load `program` as ld.so does when it is started, with `preloads` (LD_PRELOAD, paths) right behind it.

    This is what ``ld.so --list program`` and ``LD_TRACE_LOADED_OBJECTS=1`` show.

    :raises TargetError: the program or a preload is not a file that this loader takes.
    """
    process = _Process(environment)
    main = process.open_root(program, FoundBy("root"), None, is_main=True)
    roots = [process.open_root(path, FoundBy("preload"), main) for path in preloads]
    scope = process.map_dependencies([main, *roots])
    return process.closure(scope, roots or [main])


def load(environment: Environment, roots: Sequence[str], program: str | None = None) -> Closure:
    """dlopen `roots` (paths), one after the other, in a process of `program`.

    The program's own libraries are there before, and its DT_RPATH joins every search. A dlopened object has no loader of its
    own to inherit an RPATH from (elf/dl-load.c: __RTLD_CALLMAP).

    :param program: the target's Python; without it the first root stands alone, as the loader's ``--list`` would have it.
    :raises TargetError: a root or the program is not a file that this loader takes.
    """
    process = _Process(environment)
    if program is not None:
        main = process.open_root(program, FoundBy("root"), None, is_main=True)
        process.map_dependencies([main])
    indices: list[int] = []
    scope: list[int] = []
    for path in roots:
        first = program is None and not process.objects
        index = process.open_root(path, FoundBy("root"), None, is_main=first)
        indices.append(index)
        scope.extend(process.map_dependencies([index]))
    return process.closure(dict.fromkeys(scope), indices)
