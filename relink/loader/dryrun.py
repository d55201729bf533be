"""The target's real loader, run to show what it would map: glibc's dry run. No initialiser runs, and no GPU is needed.

With LD_TRACE_LOADED_OBJECTS the loader maps everything that a load would map and prints it; with LD_WARN and LD_BIND_NOW it also
says which symbols and versions stay open (ld.so(8)).

One run takes the place of many, of roots that need the same libraries. What a dry run costs is the look-up of every symbol of
every library, not the mapping. So the loader is asked about each root what it maps, and once about all of them together which
symbols stay open. Why that proves the same of each root:

- Whether a symbol is found depends on which objects are in scope, not on their order. A joint run has the libraries that each of
  its roots has alone (of roots of which some libraries are missing, the same are missing), and the other roots.
- So an answer can differ only where another root defines what a root, or one of the libraries, looks up. A root with such a
  definition, whether or not it is the first in the scope, is left out and asked about alone.
- To be hidden, a symbol that stays open would have to be exported by another root in whose file the simulation does not see it:
  two faults of one name, in two files.

A loader that ends with another status than 0, or prints without end, has not mapped what it was asked for. What it cannot show,
since it maps all at the start of a program, is in :mod:`relink.loader.process`.

The caller compares what the joint run maps with its simulation, and asks about each root alone where the two differ.
"""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from relink.loader.closure import Closure
from relink.loader.loading import trace
from relink.loader.search import Environment
from relink.loader.tables import Scopes, Tables
from relink.loader.target import Target
from relink.system.errors import TargetError, raise_if_machine_fault
from relink.system.progress import RunBudget
from relink.system.sandbox.start import Limits, Sandbox, explain_failure, find_sandbox, status_of, stop

# Seconds for one dry run; the largest closure seen takes 0.3 s.
DRY_RUN_TIMEOUT = 120
_LINE = re.compile(r"^\t(?:(?P<name>.+?) => )?(?P<path>.+?) \(0x[0-9a-f]+\)$")
_MISSING = re.compile(r"^\t(?P<name>.+?) => not found$")
_DIED = "error while loading shared libraries: "
_REFUSED = re.compile(
    r"object '(?P<preload>.+)' from LD_PRELOAD cannot be preloaded \((?P<why>.+)\): ignored\.$"
    rf"|{_DIED}(?P<path>.+?): (?P<reason>.+)$"
)
_NOT_PRELOADED = " from LD_PRELOAD cannot be preloaded ("
# Dry runs that are under way at one time at least, on any machine.
_LEAST_RUNS = 2
# elf/dl-version.c, match_symbol; sysdeps/*/dl-machine.h (copies).
WARNING: Final = re.compile(
    r": (?:no version information available|weak version `.*' not found) \(required by .+\)$"
    r"|: Symbol `.+' has different size in shared object, consider re-linking$"
)
"""What the loader says of something that dlopen goes on after."""
# Bytes that one loader may print. Of 20,000 symbols that are not found, with C++ names, it prints 4 MiB.
MOST_PRINTED: Final = 32 << 20
_MACHINES = {"x86_64": 62, "aarch64": 183}


class LoaderMap(msgspec.Struct, frozen=True):
    """What the loader printed.

    :ivar objects: (requested name, path) in load order, without the program, the loader itself and the kernel's vdso.
    :ivar missing: names that it did not find.
    :ivar problems: everything else it said: open symbols and versions, warnings, or what it died of.
    :ivar died: whether it gave up, or was killed, before it had mapped everything; or went on without what was to be preloaded.
    """

    objects: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    problems: tuple[str, ...]
    died: bool = False


class LoaderRefusal(msgspec.Struct, frozen=True):
    """What the loader would not map, or give up over.

    :ivar path: the object, or None where the loader ended without a word about one.
    """

    path: str | None
    reason: str


def refusal(answer: LoaderMap) -> LoaderRefusal | None:
    """Return what a loader that died said of the object that it died of; None for one that did not die.

    Sources: glibc elf/dl-catch.c and elf/dl-error-skeleton.c (fatal errors), elf/rtld.c, do_preload.
    """
    if not answer.died:
        return None
    for line in answer.problems:
        if match := _REFUSED.search(line):
            return LoaderRefusal(match["preload"] or match["path"], match["why"] or match["reason"])
    return LoaderRefusal(None, "; ".join(answer.problems))


def dry_run(
    target: Target, program: str, preloads: Iterable[str] = (), sandbox: Sandbox | None = None
) -> LoaderMap:
    """Run the target's loader to show what starting `program` would map. Paths are as the target sees them.

    :param sandbox: what the loader runs in; None: the best kind that works here.
    :raises TargetError: the loader cannot be run, or not inside of the sysroot by this user.
    :raises MachineError: it cannot be started for lack of memory, open files or processes.
    """
    with dry_runs(target, [(program, preloads)], sandbox) as answers:
        return next(answers)


@contextmanager
def dry_runs(
    target: Target,
    programs: Iterable[tuple[str, Iterable[str]]],
    sandbox: Sandbox | None = None,
    *,
    symbols: bool = True,
    budget: RunBudget | None = None,
) -> Iterator[Iterator[LoaderMap]]:
    """Run the loader for programs, each with what is preloaded; yields the results in order, which raise as :func:`dry_run` does.

    A loader that crashes, ends strangely or does not end is a result for that program, and the others run all the same.

    Loaders run side by side, while the caller works on earlier results, and are killed at the end of the block.

    :param symbols: have the loader look up every symbol, too. That takes nearly all of its time.
    :param budget: what all loaders of a run may print together.
    """
    left, box, budget = iter(programs), sandbox or find_sandbox(), budget or RunBudget()
    running: deque[subprocess.Popen[str]] = deque()

    def ask() -> None:
        running.extend(start_loader(target, box, *scenario, symbols=symbols) for scenario in islice(left, 1))

    def answers() -> Iterator[LoaderMap]:
        while running:
            # The loader leaves `running` only when it has answered: what ends the block before that stops it.
            answer = _answer(target, box, running[0], budget)
            running.popleft()
            ask()
            yield answer

    try:
        # One loader a processor, and no more than have room if each takes what it may.
        room = (
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // Limits(seconds=DRY_RUN_TIMEOUT).data
        )
        for _ in range(max(_LEAST_RUNS, min(len(os.sched_getaffinity(0)), room))):
            ask()
        yield answers()
    finally:
        for process in running:
            stop(process)


def start_loader(
    target: Target, sandbox: Sandbox, program: str, preloads: Iterable[str], *, symbols: bool = True
) -> subprocess.Popen[str]:
    """Start the loader for a dry run of one program; :func:`read_answer` reads what it prints.

    :param symbols: as for :func:`dry_runs`.
    :raises TargetError: it cannot be started.
    :raises MachineError: for lack of memory, open files or processes.
    """
    asked = {"LD_TRACE_LOADED_OBJECTS": "1", "LC_ALL": "C"}
    if symbols:
        asked |= {"LD_WARN": "yes", "LD_BIND_NOW": "yes"}
    preload = ":".join(preloads)
    if preload:
        asked["LD_PRELOAD"] = preload
    try:
        if target.sysroot == "/":
            # A missing loader is reported here: the sandbox's child starts in any case, and its error would say less.
            os.stat(target.interpreter)
        return sandbox.start(
            [target.interpreter, program],
            asked,
            Limits(seconds=DRY_RUN_TIMEOUT),
            root=target.sysroot if target.sysroot != "/" else None,
            native=target.header.machine == _MACHINES.get(os.uname().machine)
            and target.header.elf_class == 64,
        )
    except OSError as error:
        raise _not_asked(target, error) from error


def _not_asked(target: Target, error: OSError) -> TargetError:
    raise_if_machine_fault(error, f"{target.interpreter}: the loader could not be asked")
    return TargetError(f"{target.interpreter}: the loader could not be asked ({error})")


def _answer(target: Target, sandbox: Sandbox, process: subprocess.Popen[str], budget: RunBudget) -> LoaderMap:
    try:
        printed = _read_output(process, budget)
    except OSError as error:
        raise _not_asked(target, error) from error
    if isinstance(printed, str):
        stop(process)
        return _dead(f"the loader {printed} and was stopped")
    output, errors = printed
    status = status_of(sandbox, process.returncode)
    reason = explain_failure(status, errors)
    if reason is not None and target.sysroot != "/" and reason.startswith(("chroot", "unshare")):
        raise TargetError(f"{target.sysroot}: cannot be entered ({reason}); verify inside of it, or as root")
    if reason is not None:
        raise TargetError(f"{target.interpreter}: the loader could not be asked ({reason})")
    answer = read_answer(output, errors, target)
    if status < 0:
        return _dead(f"killed by signal {-status}", *answer.problems)
    # elf/rtld.c, dl_main: a dry run ends with 0, whatever symbols and versions are not found.
    if status and not answer.died:
        return _dead(f"the loader ended with {status}", *answer.problems)
    return answer


def _read_output(process: subprocess.Popen[str], budget: RunBudget) -> tuple[str, str] | str:
    """Return what a loader writes to standard output and to standard error, or which limit it does not keep."""
    deadline = time.monotonic() + DRY_RUN_TIMEOUT
    late = f"did not end within {DRY_RUN_TIMEOUT} s"
    texts = {stream.fileno(): bytearray() for stream in (process.stdout, process.stderr) if stream}
    with selectors.DefaultSelector() as selector:
        for descriptor in texts:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0, deadline - time.monotonic()))
            if not ready:
                return late
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                texts[key.fd] += data
                budget.printed -= len(data)
                if not data:
                    selector.unregister(key.fd)
            if sum(map(len, texts.values())) > MOST_PRINTED:
                return f"printed more than {MOST_PRINTED >> 20} MiB"
            if budget.printed < 0:
                return "and those before it have printed more than a run may read"
    try:
        process.wait(max(0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return late
    process.communicate()
    output, errors = (os.fsdecode(bytes(text)) for text in texts.values())
    return output, errors


def _dead(*problems: str) -> LoaderMap:
    return LoaderMap((), (), problems, died=True)


def read_answer(output: str, errors: str, target: Target) -> LoaderMap:
    """Return what a loader that ended by itself printed to standard output (rtld.c) and to standard error."""
    objects: list[tuple[str, str]] = []
    missing: list[str] = []
    problems = [line.strip() for line in errors.splitlines() if line.strip()]
    for line in output.splitlines():
        if match := _MISSING.match(line):
            missing.append(match["name"])
        elif match := _LINE.match(line):
            name, path = match["name"] or match["path"], match["path"]
            vdso = "/" not in path
            if not vdso and target.interpreter not in (path, name):
                objects.append((name, path))
        elif line.strip() and line.strip() != "statically linked":
            problems.append(line.strip())
    died = any(_DIED in line or _NOT_PRELOADED in line for line in problems)
    return LoaderMap(tuple(objects), tuple(missing), tuple(problems), died)


Scenario: TypeAlias = tuple[str, Sequence[str]]
"""One dry run: a program and what is preloaded (LD_PRELOAD), as paths of the target."""

START_COST: Final = 30_000
"""Symbols: looking up so many takes the loader as long as its start."""

# Bytes of LD_PRELOAD: half of what the kernel takes as one string (MAX_ARG_STRLEN, 32 pages).
_MOST_PRELOADS: Final = 64 << 10
# Roots of one run: all are mapped at once, and the address space of the process is limited.
_MOST_ROOTS: Final = 64
_OF = re.compile(r"\((?:required by )?(?P<path>[^()]*)\)$")


class JointRun(msgspec.Struct, frozen=True):
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
