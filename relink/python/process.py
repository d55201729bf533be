"""What ``import NAME`` loads in an environment: the events of the modules that it reaches, in order.

Names in an extension module that may be those of modules that it imports in C. No proof that it does: events say ``inferred``.

Where they stand: PyImport_ImportModule and Cython's __Pyx_ImportModule take a C string; PyCapsule_Import takes the name of an
attribute of a module (``datetime.datetime_CAPI``); Cython before 3.1 has every name of the source as a C string, and later ones
join the strings, and compress them where that pays, which the module undoes with zlib as it is imported
(Cython/Utility/StringTools.c).
"""

from __future__ import annotations

import codecs
import gc
import re
import resource
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from relink.elf.dynamic import Buffer
from relink.elf.image import read_sections
from relink.python.answers import Answers, AskedVariables, Looked
from relink.python.evaluation import Evaluation
from relink.python.events import STRICTNESS, Event, ImportEvents
from relink.python.facts_cache import FactsCache
from relink.python.known import known_functions, known_values
from relink.python.modules import Disk, Interpreter, Spec
from relink.python.syntax import SOURCE_LIMIT, SyntaxNode, UnreadableSourceError, parse_source
from relink.python.values import Module, Raised
from relink.system.errors import ElfError, RelinkError, WheelError, raise_if_machine_fault
from relink.system.safe_open import map_file
from relink.wheel.metadata import read_metadata

_T = TypeVar("_T")
# Bytes of the stack on which sources are followed, and frames of Python on it: an import inside of imports takes a dozen frames.
_STACK, _FRAMES = 512 << 20, 20_000
# Bytes of a RECORD or METADATA.
_RECORD_LIMIT = 64 << 20
# Lines of .pth files that are executed (site.addpackage).
_EXECUTED = (b"import ", b"import\t")
_CAPSULE = re.compile(rb"(?<=\0)([A-Za-z_][\w.]*)\.\w*C_?API(?=\0)")
# What the modules that cffi makes import (cffi/_cffi_include.h, _cffi_init); no distribution's name leads to it.
_CFFI = "_cffi_backend"
_NAME = re.compile(rb"(?<![^\0])\w[\w.]{2,80}(?=\0)")
_JOINED = re.compile(rb"[^\0]{80,}")
_WORD = re.compile(r"[\w.]{40,}")
_COMPRESSED = re.compile(rb"x[\x5e\x9c\xda]")
# Bytes that are searched of a section, names that are taken of an extension, and characters of joined strings.
_SEARCHED, _NAMES, _TEXT = 64 << 20, 5_000, 1 << 18
# Bytes that compressed strings give, and places at which they are tried.
_INFLATED, _TRIES = 1 << 20, 2_000


class PlannedFiles(msgspec.Struct, frozen=True):
    """The files of a wheel that is not installed yet.

    :ivar members: their contents, by the path that they will have.
    :ivar required: as in :class:`relink.python.evaluation.Evaluation`.
    """

    members: Mapping[str, Callable[[], bytes]] = msgspec.field(default_factory=dict)
    required: frozenset[str] | None = None


class PythonProcesses:
    """The processes of one environment. A module is read and followed once for all of them.

    :ivar interpreter: the environment's Python.

    :param variables: the environment variables that they have.
    :param find_soname: returns what ctypes.util.find_library does.
    """

    def __init__(
        self,
        interpreter: Interpreter,
        *,
        cache: FactsCache,
        variables: Mapping[str, str],
        find_soname: Callable[[str], str | None] = lambda _: None,
        planned: PlannedFiles | None = None,
    ) -> None:
        planned = planned or PlannedFiles()
        self._cache = cache
        # Of files that are not installed yet nothing is remembered.
        kept = cache.is_kept and planned == PlannedFiles()
        self._answers = Answers(cache, interpreter, variables, find_soname) if kept else None
        looked = self._answers.looked if self._answers else Looked()
        self._disk = Disk(planned.members, looked=looked.files)
        # The start is remembered, and was not followed here.
        self._starts_later = False

        def find_noted(name: str) -> str | None:
            # The cache has thousands of entries, which are gone through one by one.
            if name not in looked.sonames:
                looked.sonames[name] = find_soname(name)
            return looked.sonames[name]

        def start_evaluation(refused: frozenset[str]) -> Evaluation:
            return Evaluation(
                interpreter,
                self._disk,
                self._statements,
                self._bodies,
                AskedVariables(variables, looked.variables),
                known_functions(interpreter),
                known_values(interpreter),
                find_noted,
                self._imported_by,
                required=planned.required,
                refused=refused,
            )

        self._start_evaluation = start_evaluation
        self.evaluation = start_evaluation(frozenset())
        self.interpreter = interpreter
        self._refusing: Evaluation | None = None
        self._installed: dict[str, dict[str, tuple[frozenset[str], frozenset[str]]]] = {}

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

    def _imported_by(self, path: str) -> list[str]:
        """Return the modules that an extension names: those that it imports for sure, and those of installed packages."""

        def read() -> dict[str, Any]:
            try:
                with map_file(path) as buffer:
                    found = read_extension_names(buffer)
            except (OSError, RelinkError) as error:
                raise_if_machine_fault(error, path)
                return {"names": [[], [], ""]}
            return {"names": [found.certain, found.names, found.joined]}

        if path in self._disk.members:
            return []
        self._disk.look(path)
        certain, names, joined = self._cache.facts("names", path, read)
        wanted = dict.fromkeys(certain)
        if (
            "__mypyc." in path
        ):  # the bodies of all modules of a package, which import when they are called by these
            return [*certain]
        own, tops = self._packages_beside(path)
        for name in names:
            top, dot, _ = name.partition(".")
            if name == _CFFI or (top in (tops if dot else own) and self._is_module(name)):
                wanted[name] = None
        for match in re.finditer(r"([A-Za-z_]\w{0,99})\.(?=([\w.]{1,200}))", joined):
            # The name before may be joined to that of the package.
            for start in range(len(match[1])):
                if match[1][start:] in tops and (found := self._begins(match[1][start:], match[2])):
                    wanted[found] = None
                    break
        return list(wanted)

    def _packages_beside(self, path: str) -> tuple[frozenset[str], frozenset[str]]:
        """Return the top-level modules of an extension's distribution, and with those of what that requires."""
        site = next(
            (one for one in self.evaluation.interpreter.site_packages if path.startswith(f"{one}/")), ""
        )
        own = path[len(site) + 1 :].split("/", maxsplit=1)[0].partition(".")[0]
        distributions = self._distributions(site)
        owner = next((names for names, _ in distributions.values() if own in names), frozenset[str]())
        required = (
            distributions[name][0]
            for tops, needs in distributions.values()
            if own in tops
            for name in needs
            if name in distributions
        )
        return owner, owner.union({own}, *required)

    def _distributions(self, site: str) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
        """Return by the name of each distribution its top-level names, and the distributions that it requires."""
        if site not in self._installed:
            found: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
            for entry in self._disk.names(site) if site else ():
                name, _, kind = entry.rpartition(".")
                if kind == "dist-info":
                    directory = f"{site}/{entry}"
                    found[canonicalize_name(name.partition("-")[0])] = self._read_distribution(directory)
            self._installed[site] = found
        return self._installed[site]

    def _read_distribution(self, directory: str) -> tuple[frozenset[str], frozenset[str]]:
        try:
            record = self._disk.read(f"{directory}/RECORD", _RECORD_LIMIT).decode("utf-8", "replace")
            metadata = read_metadata(self._disk.read(f"{directory}/METADATA", _RECORD_LIMIT))
        except (OSError, WheelError) as error:
            raise_if_machine_fault(error, directory)
            return frozenset(), frozenset()
        tops = {line.partition("/")[0].partition(".")[0].partition(",")[0] for line in record.splitlines()}
        return frozenset(tops - {""}), frozenset(metadata.required())

    def _is_module(self, name: str) -> bool:
        """Whether there is a module of that name, by the directories alone."""
        *above, last = name.split(".")
        for site in self.evaluation.interpreter.site_packages:
            names = self._disk.names("/".join([site, *above]))
            if last in names or any(
                one.startswith(f"{last}.") and one.endswith((".py", ".so")) for one in names
            ):
                return True
        return False

    def _begins(self, top: str, rest: str) -> str | None:
        """Return the longest name of a module that `rest`, in which names are joined, begins with."""
        found = top
        for part in rest.split("."):
            names = [
                name
                for site in self.evaluation.interpreter.site_packages
                for name in self._disk.names("/".join([site, *found.split(".")]))
            ]
            fits = [name.partition(".")[0] for name in names if part.startswith(name.partition(".")[0])]
            if not fits or "__init__" in fits:
                break
            found = f"{found}.{max(fits, key=len)}"
            if found.rpartition(".")[2] != part:
                break
        return found if found != top else None

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
        failure, opening = None, ""
        evaluation = self._evaluation_with(refused)
        start = evaluation.state.module
        start.events.clear()
        try:
            evaluation.import_module(name)
        except Raised as raised:
            failure, opening = f"{raised.kind}: {raised.text}", raised.opening
        events = tuple(_in_order(start, evaluation.modules))
        return ImportEvents(name, events, failure, opening, frozenset(evaluation.assumed))

    def _evaluation_with(self, refused: frozenset[str]) -> Evaluation:
        """Return what follows modules where these dlopens fail; for the same ones again it has followed them."""
        if not refused:
            if self._starts_later:
                self._starts_later = False
                self._follow_start(self.evaluation)
            return self.evaluation
        if self._refusing is None or self._refusing.refused != refused:
            self._refusing = self._start_evaluation(refused)
            self._follow_start(self._refusing)
        return self._refusing


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
        if event.kind == "extension" and edge is not None:
            # An extension has no lines of its own: who imports it has.
            yield replace(edge, kind="extension", name=event.name, when=own, flags=event.flags)
        elif event.kind != "module":
            yield replace(event, when=own)
        elif event.name not in seen:
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


class ExtensionNames(msgspec.Struct, frozen=True):
    """What stands in an extension's data.

    :ivar certain: modules that it imports for sure.
    :ivar names: whole strings, in the order of the file.
    :ivar joined: strings without ends, in which a name may stand anywhere.
    """

    certain: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    joined: str = ""


def read_extension_names(buffer: Buffer) -> ExtensionNames:
    """Return the names in the data of an extension; none for a file without section headers."""
    try:
        sections = [one for one in read_sections(buffer, "") if one.name.startswith((".rodata", ".data"))]
    except ElfError:
        return ExtensionNames()
    certain: dict[str, None] = {}
    names: dict[str, None] = {}
    joined: list[str] = []
    for section in sections:
        end = min(section.offset + min(section.file_size, _SEARCHED), len(buffer))
        data = bytes(buffer[section.offset : end])
        certain |= dict.fromkeys(found[1].decode("ascii", "replace") for found in _CAPSULE.finditer(data))
        for text in _inflate(data) if b"\0zlib\0" in data else ():
            certain["zlib"] = None
            joined.append(text)
        if b"__pyx_capi__" in data:
            joined += [
                found[0].decode("ascii", "replace")
                for found in _JOINED.finditer(data)
                if b"__name__" in found[0]
            ]
        for found in _NAME.finditer(data):
            if len(names) >= _NAMES:
                break
            names[found[0].decode("ascii", "replace")] = None
    # A sentence of a docstring names modules, too: names that are joined stand in words that no sentence has.
    words = [word for text in joined for word in _WORD.findall(text)]
    return ExtensionNames(tuple(certain), tuple(names), " ".join(words)[:_TEXT])


def _inflate(data: bytes) -> list[str]:
    """Return what streams of zlib in `data` give that hold names of Cython."""
    found = []
    for tried, at in enumerate(_COMPRESSED.finditer(data)):
        if tried > _TRIES:
            break
        decoder = zlib.decompressobj()
        try:
            text = decoder.decompress(data[at.start() : at.start() + _INFLATED], _INFLATED)
        except zlib.error:
            continue
        if decoder.eof and b"__name__" in text:
            found.append(text.decode("ascii", "replace"))
    return found
