"""The processes of an environment: what ``import`` of each distribution maps, which part each of its files has, and what fails.

Takes a target with its Python, and the files of a distribution. Gives an :class:`ImportOutcome`. Which dlopens an import makes is
read from sources (:mod:`relink.python`), what each of them does is simulated in one link map (:mod:`relink.loader.process`).
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from relink.elf.image import Image, machine_name
from relink.elf.symbols import SymbolTable
from relink.loader.process import Dlopen, Failure, Process
from relink.loader.python import PythonFacts
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import Target
from relink.planning.resolve.context import OptionalMember
from relink.python.events import Event
from relink.python.facts_cache import FactsCache
from relink.python.modules import Interpreter, identify_code
from relink.python.process import PlannedFiles, PythonProcesses
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated

FilePart: TypeAlias = Literal["import", "guarded", "later", "carried", "program", "foreign", "unknown"]
"""``import``: the import maps it, or fails. ``guarded``: the import goes on without; what is conditional or inferred counts so.
``later``: something opens it after the import. ``carried``: only other files' NEEDED lead to it. ``program``: a user runs it.
``foreign``: for another Python or machine, debug data, or an example. ``unknown``: nothing is known to load it."""

ProcessPart: TypeAlias = FilePart | Literal["GPU"]
"""How a file gets into a process. ``GPU``: it is there for the GPU, whoever opens it."""

_PARTS: Mapping[str, ProcessPart] = {"certain": "import", "guarded": "guarded", "inferred": "guarded"}
# Why a package works without a file of a part; a part that is not here is not optional.
_WHY_OPTIONAL: Mapping[ProcessPart, str] = {
    "guarded": "the import goes on without it",
    "later": "the import does not open it",
    "carried": "only what the import does not open needs it",
    "unknown": "nothing is known to open it",
    "foreign": "it is for another Python or machine",
}
# The second as pybind11 without the limited API, whose library has the Python's version (libpybind11nonlimitedapi_x_3.8.so).
_SOME_PYTHON = re.compile(r"(?:\.(?:cpython-|cp|pypy|graalpy)\d[\w-]*|py[^/]*_3\.(?:[6-9]|\d\d))\.so$")
# Handlers whose own dlopens fail, of which each is followed.
_ROUNDS = 8
# Of each the cache has 16 bytes, and the reason if it fails. 156 packages with native code had 4,962, of which 4 fail.
_MOST_DLOPENS = 200_000
# What a source calls to open a library, and a source that cannot be read.
_OPENERS = ("ctypes.CDLL", "ctypes.PyDLL", "LoadLibrary", "cffi.dlopen", "source")
# Directories of a distribution that no installed program imports.
_NO_MODULES = {"tests", "test", "docs", "doc", "examples", "benchmarks", "include", "bin"}


class FailedOpening(msgspec.Struct, frozen=True):
    """A dlopen that fails.

    :ivar event: who asks for it.
    :ivar missing: the names that nothing serves.
    :ivar why: the reason for people, in a few words.
    :ivar variables: the environment variables without which it succeeds.
    """

    event: Event
    failure: Failure
    missing: tuple[str, ...]
    why: str
    variables: tuple[str, ...] = ()


class ImportOutcome(msgspec.Struct, frozen=True):
    """What becomes of the import of a distribution's modules.

    :ivar parts: of its ELF files, by member.
    :ivar failed: what ends an import, and what of the GPU part does not load.
    :ivar lost: what fails, and the package goes on: by the name of the module or library.
    :ivar stopped: the module that is not there, as Python says it, where an import ends so.
    :ivar mapped: soname and path of what is mapped in the end, but for what Python itself needs.
    :ivar unsure: what the import does for sure and cannot be read; None where there is no such.
    :ivar assumed: modules that are not there and were taken to be.
    :ivar events: what the import opens, in order, and what of it cannot be read; each with the reason if it fails, else empty.
    """

    parts: Mapping[str, ProcessPart]
    failed: tuple[FailedOpening, ...] = ()
    lost: Mapping[str, FailedOpening] = msgspec.field(default_factory=dict)
    stopped: str | None = None
    mapped: tuple[tuple[str, str], ...] = ()
    assumed: frozenset[str] = frozenset()
    events: tuple[tuple[Event, str], ...] = ()
    unsure: str | None = None

    @property
    def missing(self) -> frozenset[str]:
        """The names that nothing serves, and whose absence ends the import."""
        return frozenset(soname for opening in self.failed for soname in opening.missing)

    @property
    def is_seen(self) -> bool:
        """Whether the import was followed to its end and opens something; else what opens the package's files is not seen."""
        return self.stopped is None and any(part in ("import", "guarded") for part in self.parts.values())

    def keep_failures(self, is_kept: Callable[[FailedOpening], bool]) -> ImportOutcome:
        """Return the outcome with those failures alone, of what ends an import and of what the package goes on without."""
        lost = {name: opening for name, opening in self.lost.items() if is_kept(opening)}
        return replace(self, failed=tuple(filter(is_kept, self.failed)), lost=lost)

    def find_optional(self) -> dict[str, OptionalMember]:
        """Return the files without which the import ends well, as far as it can be followed."""
        if self.stopped is not None:
            return {}
        found = {}
        for member, part in self.parts.items():
            if (why := _WHY_OPTIONAL.get(part)) and (self.is_seen or part != "unknown"):
                is_told = part in ("guarded", "later")
                found[member] = OptionalMember(_module_of(member) if is_told else None, why)
        return found

    def describe_events(self, site: str) -> Iterator[str]:
        """Yield a line about each event: how sure it is, what is opened, by which line of which source, and why that fails."""
        for event, why in self.events:
            when = "unknown" if event.kind == "unknown" else event.when
            line = f"{when:<11} {_below(event.name, site)} ({event.by}, {_who(event, site)})"
            yield f"{line}: {why}" if why else line

    def findings(self, site: str) -> Iterator[Finding]:
        """Yield what ends the import as errors, and RLK124 for each thing that the package does without."""
        codes = {"missing": "RLK101", "versions": "RLK301", "symbols": "RLK302", "aborts": "RLK305"}
        for opening in self.failed:
            failure, event = opening.failure, opening.event
            missing = tuple(_below(name, site) for name in opening.missing)
            subject = _file_of(event)
            if missing:
                subject = missing[0]
            elif failure.symbols:
                subject = failure.symbols[0].path
            elif failure.versions:
                subject = failure.versions[0].requester
            does = f"opens {_below(event.name, site)}"
            if event.kind == "symbol":
                does = "imports it" if event.name.startswith("PyInit_") else "looks it up"
            text = f"{opening.why}; {_who(event, site)} {does}"
            reported = finding(codes.get(failure.cause, "RLK116"), subject, text)
            yield replace(reported, subjects=missing or (subject,))
        for name, opening in self.lost.items():
            text = f"it does not load ({opening.why}), and {_who(opening.event, site)} goes on without it"
            reported = finding("RLK124", _below(opening.event.name, site), text)
            lacks = join_truncated(opening.missing) if opening.missing else opening.why
            yield replace(reported, without=f"{name} ({lacks})")


class DistributionFiles(msgspec.Struct, frozen=True):
    """The files of a distribution, and what a profile knows of them.

    :ivar site: the site-packages that they lie in.
    :ivar members: their names.
    :ivar images: those that are ELF files.
    :ivar gpu: those of them that are there for the GPU.
    :ivar preload: those of them that the package maps into the global scope before what it opens later, as a profile says.
    :ivar hosts: other distributions, by name and members, that have libraries which these files need: what no import of this one
        opens is opened in a process that has imported those.
    :ivar beside: libraries of other packages that are mapped before what no import of this one opens.
    """

    site: str
    name: str
    members: Collection[str]
    images: Mapping[str, Image]
    gpu: Collection[str] = ()
    preload: Collection[str] = ()
    hosts: Mapping[str, Collection[str]] = msgspec.field(default_factory=dict)
    beside: Collection[str] = ()


class _Imported(msgspec.Struct):
    """What the imports of a distribution's modules have done, with the fields of :class:`ImportOutcome`.

    :ivar refused: each dlopen that fails and is no guess, as :meth:`PythonProcesses.read_import` takes it.
    :ivar pending: what is opened later.
    """

    process: Process
    parts: dict[str, ProcessPart] = msgspec.field(default_factory=dict)
    failed: dict[str, FailedOpening] = msgspec.field(default_factory=dict)
    lost: dict[str, FailedOpening] = msgspec.field(default_factory=dict)
    refused: dict[str, FailedOpening] = msgspec.field(default_factory=dict)
    pending: dict[str, Event] = msgspec.field(default_factory=dict)
    events: list[tuple[Event, str]] = msgspec.field(default_factory=list)
    stopped: str | None = None
    unsure: str | None = None
    assumed: set[str] = msgspec.field(default_factory=set)


class EnvironmentProcesses:
    """The processes of one environment.

    :param files: what a loader sees; with what was read of it before.
    :param variables: the environment variables of the processes; LD_LIBRARY_PATH, LD_PRELOAD and PYTHONPATH count.
    :param tables: the symbols that were read of these files before.
    :raises RootRefusedError: the Python is not a file that the loader accepts.
    """

    def __init__(
        self,
        target: Target,
        python: PythonFacts,
        files: Files,
        variables: Mapping[str, str],
        cache: FactsCache,
        *,
        tables: Tables | None = None,
        planned: PlannedFiles | None = None,
    ) -> None:
        self._machine = target.header.machine
        cached = target.cache.entries if target.cache is not None else {}
        self.interpreter = describe_interpreter(target, python, variables)
        self.python = PythonProcesses(
            self.interpreter,
            cache=cache,
            variables=variables,
            # As ctypes.util.find_library does where ``ldconfig -p`` names the library (_findSoname_ldconfig).
            find_soname=lambda name: next((one for one in cached if one.startswith(f"lib{name}.")), None),
            list_mapped=self._list_mapped,
            planned=planned,
        )
        tables = self.tables = tables or Tables(files)
        # Of files that are not on disk the content has no name.
        known = (
            remember_dlopens(cache, target)
            if cache.is_kept and (planned is None or planned.is_installed)
            else None
        )
        self._plain = Process(Environment(target, files), tables, python.file, known=known)
        self._process = self._plain
        library_path = re.split("[:;]", variables.get("LD_LIBRARY_PATH", ""))
        preloads = re.split("[: ]+", variables.get("LD_PRELOAD", ""))
        self._variables = tuple(
            name for name in ("LD_LIBRARY_PATH", "LD_PRELOAD") if variables.get(name, "").strip()
        )
        if self._variables:
            environment = Environment(
                target, files, tuple(library_path) if any(library_path) else (), os.getcwd()
            )
            preloaded = [*filter(None, preloads)]
            self._process = Process(environment, tables, python.file, preloaded, known=known)
        start = self.python.read_start()
        for process in dict.fromkeys((self._plain, self._process)):
            _open_all(process, start)

    def _list_mapped(self, events: Iterable[Event]) -> list[str]:
        process = self._process.fork()
        _open_all(process, events)
        return [one.path for one in process.objects]

    def read_symbols(self, path: str, content: memoryview | None = None) -> SymbolTable:
        """Return the symbols of a file, which the processes have mapped or may map; none of what cannot be read.

        :param content: the file's, where the caller has it.
        """
        identity = self._plain.environment.files.open(path).identity
        return SymbolTable() if identity is None else self.tables.read(identity, path, content)

    def follow(self, files: DistributionFiles) -> ImportOutcome:
        """Import the modules of a distribution, then open what is opened later."""
        outcome = self._follow(self._process, files)
        if not (self._variables and (outcome.failed or outcome.lost)):
            return outcome
        without = self._follow(self._plain, files)
        still = {opening.event.name for opening in (*without.failed, *without.lost.values())}
        seen, sonames = self._process.environment, (soname for soname, _ in without.mapped)
        shadowed = [
            soname
            for soname in sonames
            if any(seen.files.open(f"{directory}/{soname}").exists for directory in seen.library_path)
        ]

        def named(opening: FailedOpening) -> FailedOpening:
            if opening.event.name in still:
                return opening
            by = f" ({join_truncated(shadowed)})" if opening.failure.symbols and shadowed else ""
            why = f"{opening.why}; without {' and '.join(self._variables)}{by} it is found"
            return replace(opening, why=why, variables=self._variables)

        return replace(
            outcome,
            failed=tuple(map(named, outcome.failed)),
            lost={key: named(opening) for key, opening in outcome.lost.items()},
        )

    def _import(
        self, start: Process, files: DistributionFiles, paths: Mapping[str, str], refused: frozenset[str]
    ) -> _Imported:
        """Import the modules of a distribution.

        :param paths: the members that are ELF files, by path.
        :param refused: the dlopens that failed before.
        """
        site, members = files.site, files.members
        made = _Imported(start.fork())
        for top in top_modules(files.name, members, self.interpreter):
            read = self.python.read_import(top, refused)
            made.assumed |= read.assumed
            for event in read.events:
                is_own = event.name in paths or _below(event.file, site) in members
                if event.kind == "unknown":
                    made.events.append((event, ""))
                    if is_own and event.when == "certain":
                        why = f"{event.name} ({_who(event, site)})"
                        made.unsure = made.unsure or (None if event.by in ("exec", "raise") else why)
                        if event.by in _OPENERS:
                            made.stopped = made.stopped or why
                if event.kind in ("module", "unknown") or event.flags & os.RTLD_NOLOAD:
                    continue
                if event.when in ("later", "conditional"):
                    if event.kind == "symbol":
                        continue
                    made.events.append((event, ""))
                    if is_own:
                        made.pending.setdefault(event.name, event)
                        if event.when == "conditional" and (opening := _open(made.process.fork(), event)):
                            made.refused[event.name] = opening
                    continue
                made.parts.setdefault(paths.get(event.name, ""), _PARTS[event.when])
                opening = (_look_up if event.kind == "symbol" else _open)(made.process, event)
                if opening is None and event.kind == "symbol":
                    continue
                made.events.append((event, opening.why if opening else ""))
                if opening is None:
                    continue
                if event.when != "inferred":
                    made.refused[event.name] = opening
                # Where the failure is followed, the sources say whether it ends the import.
                if event.name == read.opening or (event.when == "certain" and event.name not in refused):
                    made.failed.setdefault(event.name, opening)
                elif is_own:
                    made.lost.setdefault(event.name, opening)
            if read.opening not in made.failed:
                made.stopped = made.stopped or read.failure
        return made

    def _follow(self, start: Process, files: DistributionFiles) -> ImportOutcome:
        site, images, gpu = files.site, files.images, files.gpu
        paths = {f"{site}/{member}": member for member in images}
        refused: frozenset[str] = frozenset()
        made = first = self._import(start, files, paths, refused)
        for _ in range(_ROUNDS):
            # What a handler does about a dlopen that fails is followed only where it is known to fail.
            if refused >= made.refused.keys():
                break
            refused |= made.refused.keys()
            made = self._import(start, files, paths, refused)
        # What an import does not come to, since it ends before, is told as well.
        ends = made.failed or made.stopped
        unreached = {name: one for name, one in first.failed.items() if ends and name not in made.refused}
        process, parts, failed = made.process, first.parts | made.parts, made.failed | unreached
        lost, pending = made.lost, made.pending
        stopped = made.stopped
        for path, member in paths.items():
            if member not in parts and process.index_of(path) is not None:
                parts[member] = "carried"
        for path, member in paths.items():
            if member not in parts and path not in pending:
                # The import neither opens it nor needs it.
                part: ProcessPart = find_part_alone(member, images[member], self.interpreter, self._machine)
                is_named = all(map(str.isidentifier, _module_of(member).split(".")))
                if part == "unknown" and is_named and member.endswith(self.interpreter.own_suffixes):
                    part = "later"
                parts[member] = part
                if part in ("later", "unknown"):
                    pending[path] = Event("extension", path, "later", os.RTLD_NOW, module=_module_of(member))
        later = process.fork()
        for host, others in files.hosts.items():
            for top in top_modules(host, others, self.interpreter):
                for event in self.python.read_import(top).events:
                    if event.kind in ("extension", "library") and event.when == "certain":
                        _open(later, event)
        for path in files.beside:
            later.dlopen(Dlopen(path, os.RTLD_NOW))
        for member in files.preload:
            later.dlopen(Dlopen(f"{site}/{member}", os.RTLD_NOW | os.RTLD_GLOBAL))
        carried: set[str] = set()
        served: set[str] = set()
        for path, event in pending.items():
            parts.setdefault(paths.get(path, ""), "later")
            is_known = parts.get(paths.get(path, "")) != "unknown" or paths.get(path) in gpu
            opens: set[str] = set()
            opening = self._open_later(later, event, opens)
            carried |= opens if is_known else set()
            served |= opens
            # Where nothing is known to open it, a library that is not there may be why nothing does.
            if opening and (is_known or opening.failure.cause != "missing"):
                lost.setdefault(path, opening)
        for path in served & {*paths}:
            if parts[paths[path]] == "unknown":
                # Alone it may lack what that which maps it has.
                lost.pop(path, None)
                if path in carried:
                    parts[paths[path]] = "carried"
        for member in gpu:
            if parts[member] in ("guarded", "later", "unknown"):
                parts[member] = "GPU"
                gone = lost.pop(f"{site}/{member}", None)
                # What a module that is not there would have mapped is not known.
                if gone and not stopped:
                    failed[gone.event.name] = gone
        parts.pop("", None)
        by_name: dict[str, FailedOpening] = {}
        for opening in lost.values():
            # By what people call the thing that is opened: the module, or the library.
            path = _file_of(opening.event)
            is_module = opening.event.name.startswith(("PyInit_", f"{site}/"))
            is_module &= opening.event.kind != "library" and path.startswith(f"{site}/")
            name = _module_of(_below(path, site)) if is_module else posixpath.basename(path)
            by_name[name] = opening
        mapped = process.objects[len(self._plain.objects) :]
        return ImportOutcome(
            parts,
            tuple(failed.values()),
            by_name,
            stopped,
            tuple((entry.image.soname or entry.name, entry.path) for entry in mapped),
            frozenset(made.assumed),
            tuple(made.events),
            made.unsure,
        )

    def _open_later(self, process: Process, event: Event, found: set[str]) -> FailedOpening | None:
        """Open what the import does not open, in a process that goes on by itself; add to `found` what this maps.

        An extension module that fails is imported as its own name says.
        """
        later = process.fork()
        opening = _open(later, event)
        found |= {posixpath.normpath(entry.path) for entry in later.objects[len(process.objects) :]}
        if opening is None or event.kind != "extension" or event.file:
            return opening
        later = process.fork()
        for before in self.python.read_import(event.module).events:
            if before.kind in ("extension", "library") and before.when in _PARTS:
                opened = _open(later, before)
                if before.name == event.name:
                    return opened and replace(opened, event=event)
        return opening


def remember_dlopens(cache: FactsCache, target: Target) -> dict[bytes, Failure | None]:
    """Return what became of dlopens in processes with this loader (:class:`relink.loader.process.Process`), as the cache has it.

    What is added is remembered when the cache is closed.
    """
    own = identify_code("loader", "elf")
    facts = msgspec.json.encode([own, target.interpreter, target.version, target.hwcaps, target.sysroot])
    key = f"dlopens:{facts.decode()}"
    known: dict[bytes, Failure | None] = {}
    if (data := cache.recall(key)) is not None:
        with suppress(msgspec.DecodeError):
            known = msgspec.msgpack.decode(data, type=dict[bytes, Failure | None])
    before = len(known)

    def save() -> None:
        if len(known) > before:
            newest = dict([*known.items()][-_MOST_DLOPENS:])
            cache.remember(key, msgspec.msgpack.encode(newest))

    cache.before_closing(save)
    return known


def _module_of(member: str) -> str:
    """Return the name of an extension module."""
    *above, last = member.split("/")
    return ".".join([*above, last.partition(".")[0]])


def _open(process: Process, event: Event) -> FailedOpening | None:
    """Make the dlopen of an event; return what fails."""
    caller = event.caller if event.caller and process.index_of(event.caller) is not None else ""
    failure = process.dlopen(Dlopen(event.name, event.flags, caller)).failure
    if failure is None:
        return None
    missing = tuple(dict.fromkeys(edge.soname for edge in failure.missing))
    supplier = f"; {failure.supplier}" if failure.supplier else ""
    return FailedOpening(event, failure, missing, f"{failure}{supplier}")


def _open_all(process: Process, events: Iterable[Event]) -> None:
    """Make the dlopens of events that the import comes to, as far as that is known."""
    for event in events:
        if event.kind in ("extension", "library") and event.when in _PARTS:
            _open(process, event)


def _look_up(process: Process, event: Event) -> FailedOpening | None:
    """Make the dlsym of an event; return what fails."""
    symbol, _, library = event.name.partition(" of ")
    # PyModExport of PEP 793 takes the place of PyInit.
    if process.dlsym(library, symbol, symbol.replace("PyInit_", "PyModExport_")):
        return None
    why = f"{posixpath.basename(library)} has no {symbol}"
    return FailedOpening(event, Failure("refused", refused=why), (), why)


def _file_of(event: Event) -> str:
    """Return the file that an event is about; of a dlsym the library."""
    return event.name.rpartition(" of ")[2] if event.kind == "symbol" else event.name


def _who(event: Event, site: str) -> str:
    """Say which line asks for a dlopen."""
    if not event.file:
        return event.module or "Python"
    return f"{_below(event.file, site)}:{event.line}"


def _below(path: str, site: str) -> str:
    """Return a path below a directory without that; other paths and names as they are."""
    return path.removeprefix(f"{site}/")


def top_modules(name: str, members: Iterable[str], interpreter: Interpreter) -> list[str]:
    """Return the modules of a distribution at the top of site-packages: the one with its name alone, where there is such."""
    found: dict[str, None] = {}
    for member in members:
        first, slash, _ = member.partition("/")
        stem = first.partition(".")[0]
        is_module = member.endswith((".py", *interpreter.suffixes))
        if is_module and (first if slash else stem).isidentifier() and first not in _NO_MODULES:
            found[stem] = None
    wanted = canonicalize_name(name)
    own = [top for top in found if canonicalize_name(top) == wanted]
    # Tests beside it may need what is not installed (libsass has sasstests).
    return own or [top for top in found if not top.endswith("tests")] or [*found]


def describe_interpreter(target: Target, python: PythonFacts, variables: Mapping[str, str]) -> Interpreter:
    """Return what :mod:`relink.python` has to know of a Python."""
    added = [posixpath.abspath(entry) for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return Interpreter(
        program=python.file,
        version=python.version,
        suffixes=python.suffixes,
        path=(*added, *python.standard, *python.site_packages),
        site_packages=python.site_packages,
        standard=python.standard,
        builtins=frozenset(python.builtins),
        prefix=python.prefix,
        machine=machine_name(target.header.machine),
        micro=python.micro,
    )


def find_part_alone(path: str, image: Image, interpreter: Interpreter, machine: int) -> FilePart:
    """Return the part of a file that no event leads to: program, foreign or unknown.

    :param machine: e_machine of the target.
    """
    if image.header.machine != machine:
        return "foreign"
    if image.is_executable or image.is_static_program:
        return "program"
    major, minor = interpreter.version
    own = (*interpreter.own_suffixes, f"_{major}.{minor}.so")
    is_other = _SOME_PYTHON.search(path) and not path.endswith(own)
    is_aside = "include" in path.split("/")[:-1]
    return "foreign" if is_other or is_aside else "unknown"
