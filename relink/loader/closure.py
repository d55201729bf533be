"""What a load maps: the objects, their order, and which object serves each NEEDED.

These are facts; :mod:`relink.loader.loading` computes them by simulating ld.so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from relink.elf.image import Image
from relink.loader.search import FoundBy, Tried


@dataclass(frozen=True, slots=True)
class LoadedObject:
    """One object of a process.

    :ivar image: its facts; of a member, those that the simulated edit gives it.
    :ivar identity: the same for two paths of one file: ``("program",)``, ``("loader",)``, or that of
        :class:`relink.loader.seen_files.OpenedFile`.
    :ivar path: the path as found, not cleaned up: what the loader's own map shows.
    :ivar name: the name by which it was first requested.
    :ivar found_by: the rule that led to it.
    :ivar loader: the index of the object that it was loaded for, in the closure's `objects`.
    :ivar origin: the value of ``$ORIGIN`` in its entries.
    """

    path: str
    name: str
    image: Image
    identity: tuple[object, ...]
    found_by: FoundBy
    loader: int | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """One NEEDED entry of one object, and what became of it.

    :ivar requester: index of the object that needs it, in the closure's `objects`.
    :ivar target: index of the object that serves it, or None where nothing does.
    :ivar found_by: by which rule; ``loaded`` where it was loaded already.
    :ivar tried: the paths that were tried before, without success.
    """

    requester: int
    soname: str
    target: int | None
    found_by: FoundBy | None
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True, slots=True)
class Opening:
    """The start of a program, or one dlopen, as far as the look-up of symbols goes.

    :ivar roots: the program and what is preloaded, or the object that is opened.
    :ivar scope: the objects that symbols are looked up in, breadth first (l_searchlist).
    :ivar mapped: the objects that were not mapped before, in load order.
    :ivar flags: of dlopen: RTLD_GLOBAL and RTLD_DEEPBIND count.
    """

    roots: tuple[int, ...]
    scope: tuple[int, ...]
    mapped: tuple[int, ...]
    flags: int


@dataclass(frozen=True, slots=True)
class Closure:
    """What a load maps.

    :ivar objects: in load order, beginning with the program and its libraries.
    :ivar scope: indices of the objects in the order of symbol look-up for the roots (breadth first).
    :ivar edges: every NEEDED of every object, in the order in which the loader serves them.
    :ivar roots: indices of the objects that the caller of the simulation wanted loaded.
    :ivar dlopened: what objects in scope dlopen themselves, if the caller says what that is. What this loads is in `objects` and
        `edges` too, and not in `scope`.
    :ivar glibc: the version of the loader's glibc, in numbers.
    :ivar names: the objects with a name, in load order: those for which `_dl_name_match_p` (elf/dl-misc.c) is true. A soname is a
        name of an object only after it was requested; that of the loader always is one. The program has no path among its names.
    :ivar openings: the start and each dlopen, in order.
    :ivar fatal: why the loader gives up (a file under a needed name that is no library), or None.
    """

    objects: tuple[LoadedObject, ...]
    scope: tuple[int, ...]
    edges: tuple[Edge, ...]
    roots: tuple[int, ...]
    fatal: str | None = None
    dlopened: tuple[Edge, ...] = ()
    glibc: tuple[int, ...] = ()
    names: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    openings: tuple[Opening, ...] = ()

    @property
    def missing(self) -> tuple[Edge, ...]:
        """The edges that nothing serves."""
        return tuple(edge for edge in self.edges if edge.target is None)

    @property
    def loads(self) -> bool:
        """Whether every NEEDED of every object is served."""
        return self.fatal is None and not self.missing


DlopenNames: TypeAlias = Callable[[LoadedObject], Iterable[str]]
"""Returns the sonames that a loaded object dlopens."""
