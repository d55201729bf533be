"""A process: a program, and what it opens by dlopen, one after the other, each in the link map that the ones before left.

Every dlopen is simulated as ld.so does it: the search by the caller's search path, what is mapped already, the check of version
records, the binding of all imports in the scope that each object has then, and, where one of these fails, the way back.

Sources: glibc elf/dl-open.c (dl_open_worker_begin, _dl_open), elf/dl-close.c (_dl_close_worker), elf/rtld.c (do_preload).

Left out on purpose: dlclose, dlmopen, lazy binding (all is bound at once, as with RTLD_NOW; only symbols that stay open at the
start are no failure, since most programs bind lazily).

dlopen refuses what no dry run of the loader shows: there all is mapped at the start, and the processor is not asked.

Static TLS: at the start of a program all objects get their place in the static TLS block; what is opened later has to do with
the surplus of that. Sources: glibc elf/dl-tls.c (_dl_tls_static_surplus_init and LEGACY_TLS: 1,664 bytes by default, as
TLS_STATIC_SURPLUS before 2.32; _dl_determine_tlsoffset), elf/dl-reloc.c (_dl_try_allocate_static_tls). Blocks that TLS
descriptors take where there is room (rtld.optional_static_tls) are left out: dlopen goes on where there is none.

ISA level: sysdeps/x86/dl-prop.h (dl_isa_level_check, since 2.33); the levels are those of glibc-hwcaps (sysdeps/x86/isa-level.h).
"""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from copy import copy
from typing import Literal

import msgspec
from msgspec.structs import replace

from relink.elf.constants import PT_TLS
from relink.elf.image import Segment
from relink.loader.binding import (
    Bindings,
    MissingVersion,
    Unbound,
    UnservedRecord,
    bind_objects,
    check_records,
)
from relink.loader.closure import Closure, Edge, LoadedObject
from relink.loader.loading import LinkMap
from relink.loader.search import Environment
from relink.loader.tables import Scopes, Tables
from relink.loader.target import GLIBC_SONAMES, Target
from relink.system.text import join_truncated

_SURPLUS = 1664
# By e_machine: TCB_ALIGNMENT, the alignment of the static TLS block where nothing asks for more (sysdeps/*/tls.h).
_ALIGNED = {62: 64, 183: 16}
_CHECKS_LEVEL = (2, 33)
# By the name in glibc-hwcaps the bits of GNU_PROPERTY_X86_ISA_1_NEEDED up to that level.
_LEVELS = {"x86-64-v2": 0b11, "x86-64-v3": 0b111, "x86-64-v4": 0b1111}


def find_refused(closure: Closure, tables: Tables, target: Target) -> Iterator[tuple[LoadedObject, str]]:
    """Yield the objects for which the last dlopen of a closure is refused, each with ld.so's reason.

    Its first opening is the start of the program. A library that is the program itself stands for any program that opens it.
    """
    objects, openings = closure.objects, closure.openings
    levels = max((_LEVELS.get(name, 1) for name in target.hwcaps), default=1)
    for loaded in (objects[index] for index in openings[-1].mapped):
        if target.version >= _CHECKS_LEVEL and loaded.image.isa_needed & ~levels:
            yield loaded, "CPU ISA level is lower than required"
    started, opened = {*openings[0].mapped}, [opening.mapped for opening in openings[1:]]
    if not opened and not objects[0].image.is_executable:
        opened = [tuple(index for index in started if objects[index].image.soname not in GLIBC_SONAMES)]
        started.difference_update(*opened)
    yield from _find_unaligned(objects, tables, started, opened[-1] if opened else ())
    if opened and any(_tls_block(objects[index]) for index in opened[-1]):
        yield from _find_without_room(objects, tables, started, opened)


def _find_unaligned(
    objects: Sequence[LoadedObject], tables: Tables, started: Iterable[int], opened: Sequence[int]
) -> Iterator[tuple[LoadedObject, str]]:
    """Yield the objects by whose TLS alignment of 0 the loader divides: at the start of a program, and for static TLS."""
    zero = [
        index for index, loaded in enumerate(objects) if (block := _tls_block(loaded)) and not block.align
    ]
    divided = {*zero} & {*started}
    for index in opened if zero else ():
        table = tables.of(objects[index])
        divided.update(_definers(objects, tables, index, table.static_tls | table.described_tls, zero))
    for index in sorted(divided):
        yield objects[index], "the loader divides by its TLS alignment, which is 0"


def _find_without_room(
    objects: Sequence[LoadedObject], tables: Tables, started: Iterable[int], opened: Sequence[Sequence[int]]
) -> Iterator[tuple[LoadedObject, str]]:
    """Yield the first object that the static TLS block has no room for in the last one of the dlopens."""
    blocks = {index: block for index, loaded in enumerate(objects) if (block := _tls_block(loaded))}
    used, aligned = 0, _ALIGNED.get(objects[0].image.header.machine, 64)
    placed = {*started}
    for block in (block for index, block in blocks.items() if index in placed):
        used = _round_up(used + block.memory_size, block.align)
        aligned = max(aligned, block.align)
    free = _round_up(used + _SURPLUS, aligned) - used
    # Relocations are done from the last object that is mapped to the first.
    for index in (index for mapped in opened for index in reversed(mapped)):
        wanted = tables.of(objects[index]).static_tls
        for other in _definers(objects, tables, index, wanted, blocks) if wanted else ():
            block = blocks[other]
            if other in placed:
                continue
            if block.memory_size <= free and block.align <= aligned:
                free = (free - block.memory_size) // max(block.align, 1) * max(block.align, 1)
                placed.add(other)
            elif index in opened[-1]:
                yield objects[other], "cannot allocate memory in static TLS block"
                return


def _definers(
    objects: Sequence[LoadedObject], tables: Tables, index: int, wanted: Iterable[str], having: Iterable[int]
) -> Iterator[int]:
    """Yield the objects with TLS whose variables the relocations of one object name."""
    for name in wanted:
        own = not name or name in tables.of(objects[index]).exports
        for other in having:
            if other == index if own else name in tables.of(objects[other]).exports:
                yield other
                break


def _tls_block(loaded: LoadedObject) -> Segment | None:
    # The last one counts (elf/dl-load.c, in all releases).
    blocks = (part for part in reversed(loaded.image.segments) if part.type == PT_TLS and part.memory_size)
    return next(blocks, None)


def _round_up(size: int, align: int) -> int:
    return -(-size // max(align, 1)) * max(align, 1)


class Dlopen(msgspec.Struct, frozen=True):
    """One call of dlopen(3).

    :ivar name: its argument: a path, if it has a slash, or a name that is searched for.
    :ivar flags: RTLD_GLOBAL, RTLD_NOLOAD and RTLD_DEEPBIND count (:data:`os.RTLD_GLOBAL` and so on).
    :ivar caller: the path of the object that calls dlopen; empty for the program.
    """

    name: str
    flags: int = os.RTLD_NOW
    caller: str = ""


class Failure(msgspec.Struct, frozen=True):
    """Why a dlopen fails: everything that is wrong, of which ld.so tells the first.

    :ivar cause: ``caller``: the object that calls it is not mapped; ``missing``: nothing serves a name; ``refused``: a file is no
        library for this loader; ``versions``, ``symbols``: what is required is not there; ``aborts``: the loader ends the process
        at an assertion, and nothing is opened after that.
    :ivar missing: the edges that nothing serves, that of the dlopen itself among them.
    :ivar refused: path and reason.
    :ivar supplier: of the first of `symbols`: which library should have it, for people; empty where nothing tells.
    """

    cause: Literal["caller", "missing", "refused", "versions", "symbols", "aborts"]
    missing: tuple[Edge, ...] = ()
    refused: str | None = None
    versions: tuple[MissingVersion, ...] = ()
    symbols: tuple[Unbound, ...] = ()
    supplier: str = ""

    def __str__(self) -> str:
        if self.versions:
            first = self.versions[0]
            return f"{posixpath.basename(first.supplier)} has no {first.version}"
        if self.symbols:
            symbol = self.symbols[0]
            return f"{posixpath.basename(symbol.path)} imports {symbol.name}, which nothing there has"
        if self.missing:
            return f"{join_truncated(list(dict.fromkeys(map(_name_missing, self.missing))))} not found"
        return self.refused or "the loader stops at an assertion"


class DlopenResult(msgspec.Struct, frozen=True):
    """What the start of the program, or one dlopen, did.

    :ivar closure: the link map with all that this dlopen maps, and the edges of that. Its scope is the search list of what is
        opened, and `dlopened` the edge from the caller to that. Indices are those of its objects. After a failure, what was
        mapped is unmapped again, and a later dlopen uses the indices anew.
    :ivar mapped: the indices of what was not mapped before, in load order.
    :ivar bindings: of the imports of these objects; none where it failed before they were bound.
    """

    closure: Closure
    mapped: tuple[int, ...]
    failure: Failure | None
    bindings: Bindings


_NOTHING_BOUND = Bindings((), (), (), ())
# Bytes of the digest of what a process has done.
_DIGEST = 16


class _Step(msgspec.Struct):
    """The start of a program, or a dlopen that maps all that it needs, with the scopes that the process has after it.

    :ivar before: the step before; None for the start.
    :ivar first: the number of objects that were mapped before.
    :ivar scopes: None as long as nobody has asked: what became of the step was known.
    """

    before: _Step | None
    closure: Closure
    mapped: tuple[int, ...]
    first: int
    scopes: Scopes | None = None


class Process:
    """A process of a program.

    What becomes of a dlopen that maps all that it needs follows from the loader, the files in the link map, and what the process
    has done before. So it is looked up by a digest of these, and symbols are read where it is not known.

    :ivar environment: with LD_LIBRARY_PATH and the current directory.
    :ivar results: of the start, and of every dlopen so far.

    :param tables: the symbols; all processes with the same files should share them.
    :param preloads: LD_PRELOAD: paths or names. ld.so goes on without one that it cannot load.
    :param known: what became of dlopens of processes with this target, by the digest; None where it succeeded. What is found is
        added. Without it all is computed, and the results have their bindings.
    :raises RootRefusedError: the program is not a file that this loader accepts.
    """

    def __init__(
        self,
        environment: Environment,
        tables: Tables,
        program: str,
        preloads: Sequence[str] = (),
        *,
        known: MutableMapping[bytes, Failure | None] | None = None,
    ) -> None:
        self.environment = environment
        self._tables = tables
        self._known = known
        self._aborted = False
        self._done = b""
        self.link_map = link_map = LinkMap(environment)
        main = link_map.open_program(program, by_kernel=True)
        edges = [link_map.preload(name) for name in preloads]
        link_map.fatal = None
        preloaded = [edge.target for edge in edges if edge.target is not None]
        scope = link_map.open([main, *preloaded], 0)
        link_map.dlopening = link_map.following = True
        closure = link_map.closure(scope, [main], tuple(edges))
        self._step = _Step(None, closure, tuple(range(len(closure.objects))), 0)
        self._note(Dlopen(program), self._step)
        failure, bindings = _missing(closure, closure.edges), _NOTHING_BOUND
        if failure is None:
            failure, bindings = self._judge()
        self.results = [DlopenResult(closure, self._step.mapped, failure, bindings)]

    @property
    def objects(self) -> Sequence[LoadedObject]:
        """The link map: the objects that are mapped now, in order."""
        return self.link_map.objects

    def fork(self) -> Process:
        """Return a process that goes on by itself from here."""
        process = copy(self)
        process.link_map = self.link_map.copy()
        process.results = [*self.results]
        return process

    def index_of(self, path: str) -> int | None:
        """Return the index of the object whose file is at `path`; None where it is not mapped."""
        return self.link_map.index_of(path)

    def dlopen(self, event: Dlopen) -> DlopenResult:
        """Open a library. One that fails leaves the link map as it was, and the process goes on."""
        before = self.link_map
        self.link_map = before.copy()
        result = self._open(event, len(before.objects))
        if result.failure is not None:
            # elf/dl-open.c, _dl_open:
            # > /* Remove the object from memory.  It may be in an inconsistent
            # >    state if relocation failed, for example.  */
            # > if (args.map)
            # >   _dl_close_worker (args.map, true);
            # Nothing that was mapped before refers to what was mapped now, so all of that goes. What stays keeps the names by
            # which it was requested before the first library was missing.
            # The closures of steps before have the names of then.
            before.names = {**before.names}
            for edge in result.closure.edges:
                if edge.target is None:
                    break
                if edge.target < len(before.objects):
                    before.add_name(edge.target, self.link_map.expanded(edge.requester, edge.soname) or "")
            self.link_map = before
        self.results.append(result)
        return result

    def dlsym(self, library: str, *symbols: str) -> bool:
        """Whether a library that was opened by this name has one of the symbols, or what it needs has."""
        opened = (one.closure for one in self.results if one.failure is None)
        closure = next((one for one in opened if any(e.soname == library for e in one.dlopened)), None)
        if closure is None:
            return True
        loaded = [closure.objects[index] for index in closure.scope]
        identities = [
            self.environment.files.open(self.link_map.absolute(one.path)).identity for one in loaded
        ]
        key = hashlib.blake2b(msgspec.msgpack.encode((identities, symbols)), digest_size=_DIGEST).digest()
        known = {} if self._known is None else self._known
        if key not in known:
            has = any(symbol in self._tables.of(one).exports for one in loaded for symbol in symbols)
            known[key] = None if has else Failure("symbols")
        return known[key] is None

    def _open(self, event: Dlopen, first: int) -> DlopenResult:
        """Open a library in the link map; `first`: the number of objects before."""
        link_map, noted = self.link_map, len(self.link_map.edges)
        caller = link_map.index_of(event.caller) if event.caller else 0
        if caller is None or self._aborted:
            failure: Failure | None = Failure("aborts" if self._aborted else "caller")
            return DlopenResult(link_map.closure((), ()), (), failure, _NOTHING_BOUND)
        edge = link_map.dlopen(caller, event.name)
        # elf/dl-load.c, _dl_map_object_from_fd:
        # > if (mode & RTLD_NOLOAD)
        # >   /* We are not supposed to load the object unless it is already
        # >      loaded.  So return now.  */
        if event.flags & os.RTLD_NOLOAD and len(link_map.objects) > first:
            edge = Edge(caller, event.name, None, None, edge.tried)
        roots = [] if edge.target is None else [edge.target]
        scope = link_map.open(roots, first, event.flags)
        mapped = link_map.openings[-1].mapped
        edges = tuple(link_map.edges[noted:])
        closure = replace(link_map.closure(scope, roots, (edge,)), edges=edges)
        step = _Step(self._step, closure, mapped, first)
        self._note(event, step)
        failure = _missing(closure, (edge, *edges))
        if failure is not None:
            return DlopenResult(closure, mapped, failure, _NOTHING_BOUND)
        self._step = step
        return DlopenResult(closure, mapped, *self._judge())

    def _note(self, event: Dlopen, step: _Step) -> None:
        """Add an event to the digest: what is asked for, the files that it maps, and which object serves which name."""
        if self._known is None:
            return
        objects, files = step.closure.objects, self.environment.files
        mapped = [objects[index] for index in step.mapped]
        what = (
            (event.flags, step.closure.roots, step.closure.scope),
            [(one.path, one.name, files.open(self.link_map.absolute(one.path)).identity) for one in mapped],
            [
                (edge.requester, edge.soname, edge.target)
                for edge in (*step.closure.dlopened, *step.closure.edges)
            ],
        )
        self._done = hashlib.blake2b(self._done + msgspec.msgpack.encode(what), digest_size=_DIGEST).digest()

    def _judge(self) -> tuple[Failure | None, Bindings]:
        """Return what becomes of the last step, and the bindings if these are computed for it."""
        bindings = _NOTHING_BOUND
        if self._known is None:
            failure, bindings = self._take(self._step)
        else:
            if self._done not in self._known:
                self._known[self._done] = self._take(self._step)[0]
            failure = self._known[self._done]
        self._aborted = failure is not None and failure.cause == "aborts"
        return failure, bindings

    def _take(self, last: _Step) -> tuple[Failure | None, Bindings]:
        """Compute what becomes of a step, and of those before it that were not computed."""
        steps = [last]
        while (before := steps[-1].before) is not None and before.scopes is None:
            steps.append(before)
        result: tuple[Failure | None, Bindings] = (None, _NOTHING_BOUND)
        for step in reversed(steps):
            result = self._take_one(step)
            step.before = None
        return result

    def _take_one(self, step: _Step) -> tuple[Failure | None, Bindings]:
        closure, mapped, tables = step.closure, step.mapped, self._tables
        before = step.before.scopes if step.before else None
        step.scopes = before or Scopes(closure, tables)
        # elf/dl-open.c, dl_open_worker_begin:
        # > /* So far, so good.  Now check the versions.  */
        # > for (unsigned int i = 0; i < new->l_searchlist.r_nlist; ++i)
        # >   if (new->l_searchlist.r_list[i]->l_real->l_versions == NULL)
        failure = _wrong_record(replace(closure, scope=mapped) if before else closure, tables)
        if failure is None and mapped and before:
            refused = find_refused(closure, tables, self.environment.target)
            failure = next((Failure("refused", refused=f"{at.path}: {why}") for at, why in refused), None)
        if failure is not None:
            return failure, _NOTHING_BOUND
        # > for (unsigned int i = last; i-- > first; )
        # >   _dl_open_relocate_one_object (args, r, new->l_initfini[i], reloc_mode,
        # >                                 &relocation_in_progress);
        scopes = before.with_dlopen(closure) if before else step.scopes
        objects = [*scopes.of_objects()]
        is_judged = before is not None and self._known is not None  # and nobody asks for the bindings
        if is_judged:
            objects = [one for one in objects if not scopes.is_served(*one[:2])]
        bindings = bind_objects(scopes, objects, explain=False)
        if before and (lost := bindings.unbound):
            lacking = {unbound.requester for unbound in lost}
            first_lacking = next(index for index, _, _ in objects if index in lacking)
            aborts = any(one.requester == first_lacking and one.reason == "aborts" for one in lost)
            cause: Literal["aborts", "symbols"] = "aborts" if aborts else "symbols"
            failure = Failure(cause, symbols=lost, supplier=_supplier(closure, bindings))
            # elf/dl-close.c, _dl_close_worker:
            # > /* Clear unique symbol entries that belong to this
            # >    object.  */
            unique = {name: index for name, index in scopes.unique.items() if index < step.first}
            scopes = copy(before)
            scopes.unique = unique
        for index, scope, _ in objects if is_judged and not lost else ():
            self._tables.index.note_served(scopes.table(index), scope)
        step.scopes = scopes
        return failure, bindings


def _wrong_record(closure: Closure, tables: Tables) -> Failure | None:
    """Return what is wrong with the version records of the objects in scope: the loader stops at the first one."""
    wrong = [*check_records(closure, tables)]
    if wrong and isinstance(wrong[0], UnservedRecord):
        return Failure("aborts")
    versions = tuple(record for record in wrong if isinstance(record, MissingVersion))
    return Failure("versions", versions=versions) if versions else None


def _supplier(closure: Closure, bindings: Bindings) -> str:
    """Say which library should have the first symbol that nothing has, or may be of another version; empty where nothing tells.

    The record of its version names it. Without one it may be the only library that the file needs and uses nothing of.
    """
    symbol = bindings.unbound[0]
    if symbol.file:
        return f"{symbol.file} should have it"
    edges = [edge for edge in closure.edges if edge.requester == symbol.requester]
    used = {supplier for requester, supplier, _ in bindings.bound if requester == symbol.requester}
    unused = [edge.soname for edge in edges if edge.target not in used and edge.soname not in GLIBC_SONAMES]
    return f"{unused[0]} has nothing that it imports" if len(unused) == 1 else ""


def _name_missing(edge: Edge) -> str:
    """Return the name that nothing serves, and why a file of that name does not."""
    why = next((f" ({tried.reason})" for tried in edge.tried if tried.reason.startswith("wrong ")), "")
    return edge.soname + why


def _missing(closure: Closure, edges: Sequence[Edge]) -> Failure | None:
    """Return what of `edges` nothing serves; the last of these is what the loader refuses, where it does."""
    missing = [edge for edge in edges if edge.target is None]
    if closure.fatal is not None:
        missing.pop()
    if not missing and closure.fatal is None:
        return None
    return Failure("missing" if missing else "refused", tuple(missing), closure.fatal)
