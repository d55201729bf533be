"""What ``import NAME`` loads in an environment: the events of the modules that it reaches, in order.

What an extension imports in C is inferred from the names in it (:mod:`relink.python.extensions`).
"""

from __future__ import annotations

import codecs
import gc
import resource
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from relink.python.answers import Answers, AskedVariables, Looked
from relink.python.evaluation import Evaluation
from relink.python.events import STRICTNESS, Event, ImportEvents
from relink.python.extensions import ExtensionImports
from relink.python.facts_cache import FactsCache
from relink.python.known import known_functions, known_values
from relink.python.modules import Disk, Interpreter, Spec
from relink.python.syntax import SOURCE_LIMIT, SyntaxNode, UnreadableSourceError, parse_source
from relink.python.values import Module, Raised

_T = TypeVar("_T")
# Bytes of the stack on which sources are followed, and frames of Python on it: an import inside of imports takes a dozen frames.
_STACK, _FRAMES = 512 << 20, 20_000
_READS_OF_MAPS = 50  # each simulates all dlopens so far
# Lines of .pth files that are executed (site.addpackage).
_EXECUTED = (b"import ", b"import\t")


class PlannedFiles(msgspec.Struct, frozen=True):
    """The files of a wheel that is not installed yet; or, where all is installed, those that are gone.

    :ivar members: their contents, by the path that they will have.
    :ivar required: as in :class:`relink.python.evaluation.Evaluation`.
    :ivar absent: as in :class:`relink.python.modules.Disk`.
    """

    members: Mapping[str, Callable[[], bytes]] = msgspec.field(default_factory=dict)
    required: frozenset[str] | None = None
    absent: frozenset[str] = frozenset()

    @property
    def is_installed(self) -> bool:
        """Whether all that is there is on disk."""
        return not self.members and self.required is None


class PythonProcesses:
    """The processes of one environment. A module is read and followed once for all of them.

    :ivar interpreter: the environment's Python.

    :param variables: the environment variables that they have.
    :param find_soname: returns what ctypes.util.find_library does.
    :param list_mapped: returns the files that a process has mapped which has done these events; None where that is not known.
    """

    def __init__(
        self,
        interpreter: Interpreter,
        *,
        cache: FactsCache,
        variables: Mapping[str, str],
        find_soname: Callable[[str], str | None] = lambda _: None,
        list_mapped: Callable[[Iterable[Event]], list[str] | None] = lambda _: None,
        planned: PlannedFiles | None = None,
    ) -> None:
        planned = planned or PlannedFiles()
        self._cache = cache
        # Of files that are not installed yet nothing is remembered.
        kept = cache.is_kept and planned.is_installed
        self._answers = Answers(cache, interpreter, variables, find_soname) if kept else None
        looked = self._answers.looked if self._answers else Looked()
        self._disk = Disk(planned.members, looked=looked.files, absent=planned.absent)
        self._extensions = ExtensionImports(interpreter, self._disk, cache, self._statements)
        # The start is remembered, and was not followed here.
        self._starts_later = False

        def find_noted(name: str) -> str | None:
            # The cache has thousands of entries, which are gone through one by one.
            if name not in looked.sonames:
                looked.sonames[name] = find_soname(name)
            return looked.sonames[name]

        def start_evaluation(refused: frozenset[str]) -> Evaluation:
            evaluation = Evaluation(
                interpreter,
                self._disk,
                self._statements,
                self._bodies,
                AskedVariables(variables, looked.variables),
                known_functions(interpreter),
                known_values(interpreter),
                find_noted,
                self._extensions.follow,
                required=planned.required,
                refused=refused,
            )
            reads = count()

            def list_noted() -> list[str] | None:
                # A module is followed once: what counts is what it has done itself, in whichever process.
                done = _in_order(evaluation.state.module, evaluation.modules)
                return list_mapped(done) if next(reads) < _READS_OF_MAPS else None

            evaluation.list_mapped = list_noted
            return evaluation

        self._start_evaluation = start_evaluation
        self.evaluation = start_evaluation(frozenset())
        self.interpreter = interpreter
        self._refusing: Evaluation | None = None

    def _statements(self, path: str) -> list[SyntaxNode]:
        found = self._source(path, "source")
        if isinstance(found, str):
            raise UnreadableSourceError(found)
        statements: list[SyntaxNode] = found
        return statements

    def _bodies(self, path: str) -> list[str]:
        bodies: list[str] = self._source(path, "bodies")
        return bodies

    def _source(self, path: str, kind: str) -> Any:
        def read() -> dict[str, Any]:
            try:
                data = self._disk.read(path, SOURCE_LIMIT)
                if path.endswith(".pth"):
                    # The other lines name directories. Each line keeps its number.
                    lines = data.removeprefix(codecs.BOM_UTF8).splitlines()
                    data = b"\n".join(line if line.startswith(_EXECUTED) else b"" for line in lines)
                statements, bodies = parse_source(data)
            except UnreadableSourceError as error:
                return {"source": str(error), "bodies": []}
            return {"source": statements, "bodies": bodies}

        if path in self._disk.members:
            return read()[kind]
        self._disk.look(path)
        return self._cache.facts(kind, path, read)

    def read_start(self) -> tuple[Event, ...]:
        """Return what the interpreter does before the first line of a program: no failure of it ends the process.

        Lib/site.py, main(): the executed lines of .pth files, then sitecustomize and usercustomize.
        """
        self._starts_later = self._answers is not None

        def find() -> tuple[Event, ...]:
            self._starts_later = False
            return on_large_stack(lambda: self._follow_start(self.evaluation))

        return self.answer(("start",), tuple[Event, ...], find)

    def answer(self, question: tuple[object, ...], kind: Any, find: Callable[[], _T]) -> _T:
        """Return the answer to a question about the sources: the remembered one, if nothing has changed that was looked at."""
        return self._answers.answer(question, kind, find) if self._answers else find()

    def _follow_start(self, evaluation: Evaluation) -> tuple[Event, ...]:
        start = evaluation.state.module
        with evaluation.at_least("guarded", frozenset({"Exception"})):
            for site in evaluation.interpreter.site_packages:
                for name in sorted(self._disk.names(site)):
                    if name.endswith(".pth") and not name.startswith("."):
                        evaluation.record("module", name, "site")
                        evaluation.follow_module(Module(name, Spec(name, "source", f"{site}/{name}")))
            # Without such modules site's functions do nothing, but what a .pth file has imported may have replaced them.
            names = ("sitecustomize", "usercustomize")
            if "site" in evaluation.modules or any(evaluation.find_spec(name, None) for name in names):
                self._customize(evaluation)
        return tuple(_in_order(start, evaluation.modules))

    def _customize(self, evaluation: Evaluation) -> None:
        """Call site's functions for sitecustomize and, where there may be a user's site-packages, usercustomize."""
        with suppress(Raised):
            names = evaluation.import_module("site", "site").names
            has_user = not self._disk.exists(f"{evaluation.interpreter.prefix}/pyvenv.cfg")
            names["ENABLE_USER_SITE"] = has_user
            for name in ("execsitecustomize", "execusercustomize")[: 1 + has_user]:
                evaluation.call(names.get(name), [], {})

    def read_import(self, name: str, refused: frozenset[str] = frozenset()) -> ImportEvents:
        """Return what ``import NAME`` does.

        :param refused: names of extensions and libraries whose dlopen fails; of the sources' other dlopens each succeeds.
        """
        question = ("import", name, *sorted(refused))
        return self.answer(
            question, ImportEvents, lambda: on_large_stack(lambda: self._read_import(name, refused))
        )

    def _read_import(self, name: str, refused: frozenset[str]) -> ImportEvents:
        evaluation = self._evaluation_with(refused)
        found = _follow_import(evaluation, name)
        if not refused:
            return found
        if found.failure is None and _may_be_kept(self.read_import(name).events, found.events, refused):
            self._refusing = evaluation = self._start_evaluation(refused)
            self._follow_start(evaluation)
            found = _follow_import(evaluation, name)
        _share_untouched(evaluation, self.evaluation)
        return found

    def _evaluation_with(self, refused: frozenset[str]) -> Evaluation:
        """Return what follows modules where these dlopens fail; for the same ones again it has followed them."""
        if not refused:
            if self._starts_later:
                self._starts_later = False
                self._follow_start(self.evaluation)
            return self.evaluation
        if self._refusing is None or self._refusing.refused != refused:
            self._refusing = found = self._start_evaluation(refused)
            _share_untouched(self.evaluation, found)
            found.assumed |= self.evaluation.assumed
            found.variables.update(self.evaluation.variables)
            found.values["sys.path"][:] = self.evaluation.values["sys.path"]
            self._follow_start(found)
        return self._refusing


def _follow_import(evaluation: Evaluation, name: str) -> ImportEvents:
    failure, opening, start = None, "", evaluation.state.module
    start.forget()
    try:
        evaluation.import_module(name)
    except Raised as raised:
        failure, opening = f"{raised.kind}: {raised.text}", raised.opening
    events = tuple(_in_order(start, evaluation.modules))
    return ImportEvents(name, events, failure, opening, frozenset(evaluation.assumed))


def _may_be_kept(before: Iterable[Event], after: Iterable[Event], refused: frozenset[str]) -> bool:
    """Whether a function may have kept a library, in whichever module, when it was followed where the dlopen succeeds.

    Such a dlopen is missing afterwards. So is one that comes after another refused one of the same source, which raised there.
    """
    came, previous = {one.name for one in after}, None
    for event in before:
        if event.name in refused and event.when in ("certain", "guarded"):
            if event.name not in came and event.module != previous:
                return True
            previous = event.module
    return False


def _share_untouched(source: Evaluation, other: Evaluation) -> None:
    """Take over the modules of packages that come to no refused dlopen: neither they nor what they import does."""
    refused = source.refused | other.refused
    events = [(name.partition(".")[0], event) for name, one in source.modules.items() for event in one.events]
    imports = {(by, event.name.partition(".")[0]) for by, event in events if event.kind == "module"}
    touched = {package for package, event in events if event.name in refused}
    while more := {by for by, package in imports if package in touched} - touched:
        touched |= more
    kept = {name: one for name, one in source.modules.items() if name.partition(".")[0] not in touched}
    other.modules.update(kept | other.modules)


def _in_order(start: Module, modules: Mapping[str, Module]) -> Iterator[Event]:
    """Yield the events of the modules that are reached, each module where it is reached first, with the strictest `when`."""
    levels = _levels(start, modules)
    seen = {start.name}
    # The import that leads to each module, how sure that is, and what is left of what the module does.
    walk: list[tuple[Event | None, int, Iterator[Event]]] = [(None, 0, iter(start.events))]
    while walk:
        edge, level, events = walk[-1]
        event = next(events, None)
        if event is None:
            walk.pop()
            continue
        own = STRICTNESS[max(level, STRICTNESS.index(event.when))]
        if edge is not None and not event.line and event.kind in ("extension", "symbol"):
            # An extension has no lines of its own: who imports it has.
            yield replace(edge, kind=event.kind, name=event.name, when=own, flags=event.flags)
        elif event.kind != "module":
            yield replace(event, when=own)
        elif event.name in levels and event.name not in seen:
            seen.add(event.name)
            reached = levels[event.name]
            yield replace(event, when=STRICTNESS[reached])
            walk.append((event, reached, iter(modules[event.name].events)))


def _levels(start: Module, modules: Mapping[str, Module]) -> dict[str, int]:
    """Return how sure it is that each module is reached: the strictest of the ways to it."""
    levels: dict[str, int] = {start.name: 0}
    for level in range(len(STRICTNESS)):
        pending = [name for name, reached in levels.items() if reached == level]
        while pending:
            module = start if (name := pending.pop()) == start.name else modules[name]
            for event in module.events:
                if event.kind == "module" and event.name in modules:
                    own = max(level, STRICTNESS.index(event.when))
                    if own < levels.get(event.name, len(STRICTNESS)):
                        levels[event.name] = own
                        if own == level:
                            pending.append(event.name)
    return levels


def on_large_stack(function: Callable[[], _T]) -> _T:
    """Call a function in a thread with room for imports inside of imports; raises what it raises.

    Where the address space is limited (ulimit -v), the stack could take what the rest needs: fewer imports inside of each other
    are followed there.
    """
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return function()
    found: list[_T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            found.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    size, limit = threading.stack_size(_STACK), sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _FRAMES))
    # Millions of lists are made and none of them leads back to itself: looking for such takes a third of the time.
    collects = gc.isenabled()
    gc.disable()
    try:
        thread = threading.Thread(target=run, name="relink-python")
        thread.start()
        thread.join()
    finally:
        if collects:
            gc.enable()
        threading.stack_size(size)
        sys.setrecursionlimit(limit)
    if errors:
        raise errors[0]
    return found[0]
