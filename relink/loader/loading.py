"""Loading a file as ld.so does, without running anything: a breadth-first walk that gives a :class:`Closure`.

Sources: glibc elf/dl-deps.c (_dl_map_object_deps: the order), elf/dl-load.c (_dl_map_object: what counts as loaded already),
elf/rtld.c (the program, LD_PRELOAD, tracing), elf/dl-open.c (dlopen).

Left out on purpose: DT_FILTER and DT_AUXILIARY (dl-deps.c loads these before the object that names them; no vendor's library
has one, and `Image.filters` says where one does), LD_AUDIT, namespaces of dlmopen, and a vDSO that is needed by name.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from relink.elf.constants import DF_1_NOOPEN, PT_GNU_STACK
from relink.elf.image import Image
from relink.loader.closure import Closure, DlopenNames, Edge, LoadedObject, Opening
from relink.loader.search import Environment, FoundBy, Requester, expand, reject, search
from relink.loader.seen_files import OpenedFile
from relink.system.errors import TargetError


class RootRefusedError(TargetError):
    """The loader refuses a file that it is to load by name: the program, a preload, or what is dlopened.

    :ivar path: the file, as the target sees it.
    :ivar reason: what the loader says of it.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: cannot be loaded ({reason})")
        self.path = path
        self.reason = reason


class LinkMap(msgspec.Struct):
    """The link map of one process while it grows.

    :ivar by_name: the first object that a name leads to (_dl_lookup_map): a path, a name that was requested, or its soname.
    :ivar names: the objects with a name, in load order (:attr:`relink.loader.closure.Closure.names`).
    :ivar done: the objects whose NEEDED entries are in `edges`.
    :ivar openings: what the look-up of symbols has to know of the start and of each dlopen.
    :ivar dlopening: the program and its libraries are loaded, so that what follows is dlopened.
    :ivar following: what follows is what libraries dlopen, which may fail.
    """

    environment: Environment
    objects: list[LoadedObject] = msgspec.field(default_factory=list)
    requesters: list[Requester] = msgspec.field(default_factory=list)
    edges: list[Edge] = msgspec.field(default_factory=list)
    by_name: dict[str, int] = msgspec.field(default_factory=dict)
    names: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    by_identity: dict[tuple[object, ...], int] = msgspec.field(default_factory=dict)
    done: set[int] = msgspec.field(default_factory=set)
    openings: list[Opening] = msgspec.field(default_factory=list)
    has_main: bool = False
    dlopening: bool = False
    following: bool = False
    executable_stack: bool = False
    fatal: str | None = None

    @property
    def main(self) -> Requester | None:
        """The program, whose DT_RPATH counts for every search."""
        return self.requesters[0] if self.has_main else None

    def copy(self) -> LinkMap:
        """Return a link map that grows by itself from here."""
        return replace(
            self,
            objects=[*self.objects],
            requesters=[*self.requesters],
            edges=[*self.edges],
            by_name={**self.by_name},
            names={**self.names},
            by_identity={**self.by_identity},
            done={*self.done},
            openings=[*self.openings],
        )

    def add(self, opened: OpenedFile, name: str, found_by: FoundBy, loader: int | None) -> int | None:
        """Add a file, or find that the same file is loaded already under another name.

        Returns None, and sets `fatal`, where the loader refuses it after the search (_dl_map_object_from_fd).
        """
        if opened.image is None or opened.identity is None:
            raise TargetError(f"{opened.path}: cannot be loaded ({opened.problem or 'no such file'})")
        # elf/dl-load.c, _dl_map_object_from_fd:
        # > /* Look again to see if the real name matched another already loaded.  */
        # > for (l = GL(dl_ns)[nsid]._ns_loaded; l != NULL; l = l->l_next)
        # >   if (!l->l_removed && _dl_file_id_match_p (&l->l_file_id, &id))
        # >     […]
        # >     add_name_to_object (l, name);
        # >     return l;
        index = self.by_identity.get(opened.identity)
        if index is None:
            refused = self._refused(opened.image)
            if refused:
                self.fatal = f"{opened.path}: {refused}"
                return None
            chain = None if loader is None else self.requesters[loader]
            origin = _origin(self.absolute(opened.path))
            index = self._append(
                LoadedObject(opened.path, name, opened.image, opened.identity, found_by, loader, origin),
                Requester(opened.path, opened.image, origin, chain),
                (opened.path,),
            )
            self.by_identity[opened.identity] = index
        self.add_name(index, name)
        return index

    def _append(self, entry: LoadedObject, requester: Requester, names: Iterable[str | None]) -> int:
        """Append to the link map. Of all objects with a name, the first one is found by it (_dl_lookup_map)."""
        self.environment.files.budget.map_file()
        index = len(self.objects)
        self.objects.append(entry)
        self.requesters.append(requester)
        for name in names:
            if name is not None:
                self.add_name(index, name)
        # elf/dl-load.c, _dl_lookup_map: an object is found by its soname as well, which is a name of it from then on.
        # > if (__glibc_likely (l->l_soname_added) || l_soname (l) == NULL
        # >     || strcmp (name, l_soname (l)) != 0)
        # >   continue;
        # > /* We have a match on a new name -- cache it.  */
        # > add_name_to_object (l, l_soname (l));
        if entry.image.soname is not None:
            self.by_name.setdefault(entry.image.soname, index)
        return index

    def add_name(self, index: int, name: str) -> None:
        """Give an object one more name, by which it was requested (add_name_to_object)."""
        self.by_name.setdefault(name, index)
        having = self.names.get(name, ())
        if index not in having:
            self.names[name] = (*having, index)

    def _refused(self, image: Image) -> str | None:
        """Return why an object cannot be dlopened, though it could be loaded with the program.

        An executable stack counts for what libraries dlopen only. Of the roots :mod:`relink.planning.checks.executable_stack`
        tells it, for every kind of target alike.
        """
        executable_stack = asks_executable_stack(image)
        if self.dlopening and image.flags_1 & DF_1_NOOPEN:
            return "shared object cannot be dlopen()ed"
        if not self.following:
            self.executable_stack |= executable_stack
        elif executable_stack and not self.executable_stack and self.environment.target.refuses_stacks:
            return EXECUTABLE_STACK
        return None

    def absolute(self, path: str) -> str:
        """Return a path as the process sees it from its root directory."""
        return path if path.startswith("/") else posixpath.join(self.environment.cwd or "/", path)

    def open_program(self, path: str, *, by_kernel: bool) -> int:
        """Add the program, and the loader. The program is found by its soname, but not by its path or its file's
        identity (elf/rtld.c, dl_main; elf/dl-object.c for __RTLD_OPENEXEC).

        :param by_kernel: the program is executed; otherwise the loader is, with the program's path as its argument.
        """
        target, files = self.environment.target, self.environment.files
        opened = files.open(self.absolute(path))
        image = self._checked(path, opened, program=True)
        real = by_kernel or target.canonical_program
        origin = _origin(files.canonical(self.absolute(path)) if real else self.absolute(path))
        index = self._append(
            LoadedObject(path, path, image, ("program",), FoundBy("root"), None, origin),
            Requester(path, image, origin, None, is_main=True),
            (),
        )
        self.by_name[""] = index
        self.has_main = True
        self.executable_stack = asks_executable_stack(image)
        self._add_loader(image.interpreter)
        return index

    def open_root(self, path: str, found_by: FoundBy, loader: int | None) -> int:
        """Map the file at a path, which is not searched for.

        :raises RootRefusedError: it is not a file that this loader accepts.
        """
        known = self.by_name.get(path)
        if known is not None:
            return known
        opened = self.environment.files.open(self.absolute(path))
        self._checked(path, opened, program=False)
        index = self.add(OpenedFile(path, opened.identity, opened.image), path, found_by, loader)
        if index is None:
            raise RootRefusedError(path, (self.fatal or "").removeprefix(f"{path}: "))
        return index

    def _checked(self, path: str, opened: OpenedFile, *, program: bool) -> Image:
        rejected = reject(opened, self.environment.target.header, program=program) if opened.exists else None
        if opened.image is None or rejected is not None:
            reason = rejected.reason if rejected else os.strerror(opened.error)
            raise RootRefusedError(path, reason)
        return opened.image

    def _add_loader(self, pt_interp: str | None) -> None:
        """Add the loader, which is mapped from the start. It is found by its names, but not as a file that was opened."""
        interpreter = self.environment.target.interpreter
        image = self.environment.files.open(interpreter).image
        if image is None:
            raise TargetError(f"{interpreter}: the loader cannot be read")
        self._append(
            LoadedObject(interpreter, pt_interp or interpreter, image, ("loader",), FoundBy("loaded")),
            Requester(interpreter, image, _origin(interpreter), None),
            (interpreter, pt_interp, image.soname),
        )

    def map_dependencies(self, start: Sequence[int]) -> tuple[int, ...]:
        """Load what `start` needs, breadth first; returns the objects in that order (l_searchlist)."""
        # elf/dl-deps.c, _dl_map_object_deps:
        # > dependencies will be appended to the list as we step through it.
        # > This produces a flat, ordered list that represents a
        # > breadth-first search of the dependency tree.
        scope = list(dict.fromkeys(start))
        known = set(scope)
        for index in scope:
            if self.fatal:
                break
            for needed in self._needed(index):
                # > if (! dep->l_reserved)
                # >   /* Append DEP to the list.  */
                if needed not in known:
                    known.add(needed)
                    scope.append(needed)
        return tuple(scope)

    def _needed(self, index: int) -> list[int]:
        targets = []
        for soname in self.objects[index].image.needed:
            name = self.expanded(index, soname)
            # A token in it has no value: the loader then skips the entry (elf/dl-deps.c, expand_dst).
            if name is None or (not name and soname):
                continue
            edge = self._serve(index, soname, name, index)
            # An object in the scope of several roots is walked for each of them, and its edges are noted once.
            if index not in self.done:
                self.edges.append(edge)
            if edge.target is not None:
                targets.append(edge.target)
            if self.fatal:
                break
        self.done.add(index)
        return targets

    def _serve(self, requester: int, soname: str, name: str, loader: int | None) -> Edge:
        """Return the edge to what is mapped under a name, or to what a search finds, which is then mapped.

        :param soname: the name as it is written, `name`: with its tokens replaced.
        :param loader: the object whose DT_RPATH what is mapped inherits.
        """
        # elf/dl-load.c, _dl_map_object:
        # > struct link_map *l = _dl_lookup_map (nsid, name);
        # > if (l != NULL)
        # >   return l;
        # > return _dl_map_new_object (loader, name, type, trace_mode, mode, nsid);
        target = self.by_name.get(name)
        if target is not None:
            self.add_name(target, name)
            return Edge(requester, soname, target, FoundBy("loaded"))
        result = search(name, self.requesters[requester], self.main, self.environment)
        if result.candidate is None or result.found_by is None:
            self.fatal = result.fatal
        else:
            target = self.add(result.candidate, name, result.found_by, loader)
        return Edge(requester, soname, target, None if target is None else result.found_by, result.tried)

    def expanded(self, index: int, soname: str) -> str | None:
        """Return a NEEDED of an object with its tokens replaced; None where one has no value."""
        return expand(soname, origin=self.requesters[index].origin, target=self.environment.target)

    def index_of(self, path: str) -> int | None:
        """Return the object whose file is at a path; None where it is not mapped."""
        open_file = self.environment.files.open
        identity = open_file(self.absolute(path)).identity
        if identity is None or identity == open_file(self.objects[0].path).identity:
            return None if identity is None else 0
        return self.by_identity.get(identity)

    def dlopen(self, caller: int, name: str) -> Edge:
        """Map what `caller` opens: searched for as its NEEDED would be, but what is mapped inherits no RPATH of a loader."""
        # elf/dl-load.c, _dl_map_new_object:
        # > /* In case the LOADER information has only been provided to get to
        # >    the appropriate RUNPATH/RPATH information we do not need it
        # >    anymore.  */
        # > if (mode & __RTLD_CALLMAP)
        # >   loader = NULL;
        return self._serve(caller, name, name, None)

    def preload(self, name: str) -> Edge:
        """Map an entry of LD_PRELOAD, which the program loads (elf/rtld.c, do_preload)."""
        return self._serve(0, name, name, 0)

    def open(self, roots: Sequence[int], first: int, flags: int = os.RTLD_GLOBAL) -> tuple[int, ...]:
        """Map what `roots` need, and note what the look-up of symbols has to know of it.

        :param first: the number of objects before the roots were mapped.
        """
        scope = self.map_dependencies(roots)
        self.openings.append(Opening(tuple(roots), scope, tuple(range(first, len(self.objects))), flags))
        return scope

    def follow_dlopens(self, scope: Sequence[int], dlopens: DlopenNames) -> tuple[Edge, ...]:
        """Load what the objects of `scope` dlopen, and what the objects dlopen that this loads.

        A failed dlopen is an error for its caller only, so `fatal` is restored.
        """
        edges: list[Edge] = []
        fatal, self.fatal, self.dlopening, self.following = self.fatal, None, True, True
        # A library that is traced like a program will be dlopened: its DT_RPATH is not that of the whole process then.
        self.has_main = self.has_main and self.objects[0].image.is_executable
        pending = list(dict.fromkeys(scope))
        known = set(pending)
        for caller in pending:
            for name in dlopens(self.objects[caller]):
                edge = self.dlopen(caller, name)
                edges.append(edge)
                if edge.target is not None:
                    more = [index for index in self.map_dependencies([edge.target]) if index not in known]
                    known.update(more)
                    pending += more
                self.fatal = None
        self.fatal = fatal
        return tuple(edges)

    def closure(self, scope: Iterable[int], roots: Sequence[int], dlopened: tuple[Edge, ...] = ()) -> Closure:
        """Return what is mapped so far."""
        return Closure(
            tuple(self.objects),
            tuple(scope),
            tuple(self.edges),
            tuple(roots),
            self.fatal,
            dlopened,
            self.environment.target.version,
            self.names,
            tuple(self.openings),
        )


EXECUTABLE_STACK = "cannot enable executable stack as shared object requires"
"""What dlopen says of an object that asks for an executable stack, in a process that has none."""
# e_machine of AArch64: without PT_GNU_STACK its stack is not executable.
_STACK_IS_DATA = frozenset({183})


def asks_executable_stack(image: Image) -> bool:
    """Whether an object asks for an executable stack (glibc elf/dl-load.c; DEFAULT_STACK_PERMS where nothing is said)."""
    for segment in image.segments:
        if segment.type == PT_GNU_STACK:
            return bool(segment.flags & 1)
    return image.header.machine not in _STACK_IS_DATA


def has_stack_flag(image: Image) -> bool:
    """Whether an object has a PT_GNU_STACK that asks for an executable stack."""
    return any(segment.type == PT_GNU_STACK and segment.flags & 1 for segment in image.segments)


def _origin(path: str) -> str:
    """Return the directory of an absolute path, not cleaned up (elf/dl-object.c, _dl_new_object)."""
    return path[: path.rindex("/")] or "/"


def trace(
    environment: Environment,
    program: str,
    preloads: Sequence[str] = (),
    *,
    dlopens: DlopenNames | None = None,
) -> Closure:
    """Load `program` as ld.so does when it is run with that path, with `preloads` (LD_PRELOAD, paths) directly after it.

    This is what ``LD_TRACE_LOADED_OBJECTS=1 ld.so program`` shows; ``ld.so --list program`` too where nothing is missing
    (it gives up at the first library that is).

    :raises RootRefusedError: the program or a preload is not a file that this loader accepts.
    """
    link_map = LinkMap(environment)
    main = link_map.open_program(program, by_kernel=False)
    roots = [link_map.open_root(path, FoundBy("preload"), main) for path in preloads]
    scope = link_map.open([main, *roots], 0)
    dlopened = link_map.follow_dlopens(scope, dlopens) if dlopens else ()
    return link_map.closure(scope, roots or [main], dlopened)


def load(
    environment: Environment,
    roots: Sequence[str],
    program: str | None = None,
    *,
    dlopens: DlopenNames | None = None,
    library_path: tuple[str, ...] = (),
) -> Closure:
    """dlopen `roots` (paths), one after the other, in a process of `program`.

    The program's own libraries are loaded before, and its DT_RPATH is part of every search. A dlopened object has no loader of
    its own to inherit an RPATH from (elf/dl-load.c: __RTLD_CALLMAP). Where something is missing, dlopen unmaps what it had
    mapped; here it stays, so that everything that is missing is reported at once.

    :param program: the target's Python, run by the kernel; without it the first root is the program, as in
        :func:`trace`.
    :param dlopens: returns what an object dlopens; see :attr:`Closure.dlopened`.
    :param library_path: LD_LIBRARY_PATH for the roots and what they need, not for the program and its libraries. No process has
        that; it is for comparing bindings.
    :raises RootRefusedError: a root or the program is not a file that this loader accepts.
    """
    link_map = LinkMap(environment)
    indices: list[int] = []
    scope: list[int] = []
    if program is not None:
        link_map.open([link_map.open_program(program, by_kernel=True)], 0)
        link_map.dlopening = True
    if library_path:
        link_map.environment = replace(environment, library_path=library_path)
    for path in roots:
        first = len(link_map.objects)
        if program is None and not link_map.objects:
            index = link_map.open_program(path, by_kernel=False)
        else:
            index = link_map.open_root(path, FoundBy("root"), None)
        indices.append(index)
        scope.extend(link_map.open([index], first))
    dlopened = link_map.follow_dlopens(scope, dlopens) if dlopens else ()
    return link_map.closure(dict.fromkeys(scope), indices, dlopened)
