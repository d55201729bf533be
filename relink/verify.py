"""Proof: the target's real loader, in dry-run mode, on what was written. No initialiser runs, and no GPU is needed.

glibc's loader with LD_TRACE_LOADED_OBJECTS maps everything that a load would map and prints it; with LD_WARN and LD_BIND_NOW it
also says which symbols and versions stay open (ld.so(8)). What it prints must be what the simulation predicts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from relink.elf.hollow import Cut
from relink.elf.image import map_file
from relink.elf.symbols import SymbolTable, read_symbols
from relink.errors import TargetError
from relink.loader.binding import Tables, bind
from relink.loader.closure import Closure, trace
from relink.loader.files import Files, resolve_inside
from relink.loader.search import Environment
from relink.loader.target import Target
from relink.plan.findings import Finding, finding
from relink.plan.layout import Layout
from relink.plan.strategy import Situation, own_libc
from relink.plan.words import some
from relink.wheel.archive import WheelArchive
from relink.wheel.atomic import working_directory

__all__ = ["LoaderMap", "Verification", "dry_run", "verify"]

_TIMEOUT = 120  # seconds for one dry run; the largest closure seen takes 0.3 s
_LINE = re.compile(r"^\t(?:(?P<name>.+?) => )?(?P<path>.+?) \(0x[0-9a-f]+\)$")
_UNDEFINED = re.compile(
    r"undefined symbol: (?P<name>[^,\s]+)(?:, version (?P<version>\S+))?\s*\((?P<path>.+)\)"
)
_MISSING = re.compile(r"^\t(?P<name>.+?) => not found$")
_VERSION = re.compile(
    r"(?:^|: )(?P<supplier>[^:]+): version `(?P<version>.+?)' not found \(required by (?P<requester>.+)\)$"
)
_DIED = "error while loading shared libraries: "
_NOT_MAPPED = "failed to map segment from shared object"


@dataclass(frozen=True, slots=True)
class LoaderMap:
    """What the loader printed.

    :ivar objects: (name asked for, path) in load order, without the program, the loader itself and the kernel's vdso.
    :ivar missing: names that it did not find.
    :ivar problems: everything else it said: open symbols and versions, or what it died of.
    :ivar died: whether it gave up, or was killed, before it had mapped everything.
    """

    objects: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    problems: tuple[str, ...]
    died: bool = False


@dataclass(frozen=True, slots=True)
class Verification:
    """What the loader said of each member that was asked about (members' paths as ``$WHEEL/…``), and what is wrong with it."""

    maps: Mapping[str, LoaderMap]
    findings: tuple[Finding, ...]


def dry_run(target: Target, program: str, preloads: Iterable[str] = ()) -> LoaderMap:
    """Ask the target's loader what starting `program` would map. Paths are as the target sees them.

    :raises TargetError: the loader cannot be run, or not inside of the sysroot by this user.
    """
    command = [target.interpreter, program]
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "GLIBC_"))}
    asked = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", "LD_BIND_NOW": "yes", "LC_ALL": "C"}
    preload = ":".join(preloads)
    if preload:
        asked["LD_PRELOAD"] = preload
    if target.sysroot != "/":
        command, asked = _inside(target.sysroot, asked, command), {}
    try:
        run = subprocess.run(
            command,
            env=clean | asked,
            cwd="/",
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TargetError(f"{target.interpreter}: the loader could not be asked ({error})") from error
    errors = run.stderr.strip()
    if target.sysroot != "/" and errors.startswith(("chroot: ", "unshare: ")):
        raise TargetError(f"{target.sysroot}: cannot be entered ({errors[:400]}); verify inside of it")
    if run.returncode < 0:
        return LoaderMap((), (), (f"killed by signal {-run.returncode}", *errors.splitlines()), died=True)
    if run.returncode not in (0, 1, 127):
        raise TargetError(f"{target.interpreter}: the loader ended with {run.returncode}: {errors[:400]}")
    if _NOT_MAPPED in errors:
        raise TargetError(
            f"the loader may not map files here ({errors[:400]}); set TMPDIR to where programs may be run"
        )
    return _parse(run.stdout, run.stderr, target)


_ENTER = """
import json, os, sys
root, environment, *command = sys.argv[1:]
try:
    os.chroot(root)
    os.chdir("/")
    os.execve(command[0], command, os.environ | json.loads(environment))
except OSError as error:
    sys.exit(f"chroot: {error}")
"""


def _inside(sysroot: str, environment: Mapping[str, str], command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` with `sysroot` as its root directory.

    What the loader is asked goes by `environment`, which must not hold before: the way in has a loader of its own.
    """
    enter = [sys.executable, "-I", "-S", "-c", _ENTER, sysroot, json.dumps(dict(environment)), *command]
    if os.geteuid() == 0:
        return enter
    unshare = shutil.which("unshare")
    if unshare is None:
        raise TargetError(f"{sysroot}: only root can enter a sysroot here (there is no unshare)")
    return [unshare, "--map-root-user", *enter]


def _parse(output: str, errors: str, target: Target) -> LoaderMap:
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
    died = any(_DIED in line for line in problems)
    return LoaderMap(tuple(objects), tuple(missing), tuple(problems), died)


def predicted(closure: Closure) -> tuple[tuple[str, str], ...]:
    """Return what the loader should print for a closure: the scope without the program and the loader."""
    objects = [closure.objects[index] for index in closure.scope]
    return tuple((item.name, item.path) for item in objects[1:] if item.identity[0] != "loader")


def verify(
    archive: WheelArchive,
    members: Iterable[str],
    situation: Situation,
    cuts: Mapping[str, Sequence[Cut]] | None = None,
    known: Tables | None = None,
) -> Verification:
    """Lay the wheel's ELF members out as in site-packages and compare the loader's dry run with the simulation.

    The simulation sees the members as `situation` says that they are, the loader as they are in `archive`: a file that is not
    what was planned shows as a difference.

    :param archive: the wheel that was written.
    :param members: the ELF members to ask about; `situation` has all ELF members, by their names in `archive`.
    :param cuts: by member, what the loader does not look at in a dry run (:func:`relink.elf.hollow.find_cuts`): it is read and
        checked, but takes no room on the disk.
    :param known: symbols of libraries outside of the wheel that have been read.
    """
    findings: list[Finding] = []
    maps: dict[str, LoaderMap] = {}
    try:
        with _laid_out(archive, situation, cuts or {}) as layout:
            planned = {layout.path_of(name): image for name, image in situation.images.items()}
            situation = replace(situation, layout=layout, files=Files(situation.target.sysroot, planned))
            symbols = _symbols(situation)
            tables = known.over(situation.files, symbols) if known else Tables(situation.files, symbols)
            for member in members:
                found = _ask(situation, member)
                maps[member] = _shown(found, layout)
                findings += _compare(situation, member, found)
                findings += _compare_symbols(situation, member, found, tables)
                findings += _complaints(situation, member, found)
    except (TargetError, OSError) as error:
        findings.append(finding("RLK602", archive.path.name, str(error)))
    return Verification(maps, tuple(dict.fromkeys(findings)))


@contextmanager
def _laid_out(
    archive: WheelArchive, situation: Situation, cuts: Mapping[str, Sequence[Cut]]
) -> Iterator[Layout]:
    """Extract the ELF members below a temporary directory, which lies inside of the sysroot."""
    sysroot = situation.target.sysroot
    with working_directory(Path(_place(sysroot))) as directory:
        real = os.path.realpath(directory)
        root = real[len(os.path.realpath(sysroot)) :] if sysroot != "/" else real
        layout = Layout(root, situation.layout.python)
        for member, image in situation.images.items():
            path = Path(resolve_inside(sysroot, layout.path_of(member)))
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as sink:
                _extract(archive.chunks(member), sink, cuts.get(member, ()))
            path.chmod(0o755 if image.interpreter else 0o644)
        yield layout


def _extract(chunks: Iterable[bytes], sink: BinaryIO, cuts: Sequence[Cut]) -> None:
    """Write a file with holes in place of its cuts."""
    end = 0
    for chunk in chunks:
        start, end = end, end + len(chunk)
        at = start
        for cut in cuts:
            if start < cut.stop and cut.start < end:
                sink.write(memoryview(chunk)[at - start : max(at, cut.start) - start])
                at = min(end, cut.stop)
                sink.seek(at)
        sink.write(memoryview(chunk)[at - start :])  # no cut reaches the end of a file


def _place(sysroot: str) -> str:
    """The first temporary directory that files may be mapped from as programs."""
    usual = ("/tmp", "/var/tmp", "/")  # noqa: S108
    places = (
        [tempfile.gettempdir(), *usual[:-1]]
        if sysroot == "/"
        else [resolve_inside(sysroot, at) for at in usual]
    )
    places = [place for place in places if os.path.isdir(place) and os.access(place, os.W_OK)] or places[:1]
    return next((place for place in places if not os.statvfs(place).f_flag & os.ST_NOEXEC), places[0])


def _scenario(situation: Situation, member: str) -> tuple[str, list[str]]:
    """(program, preloads) of the dry run that shows what loading `member` maps."""
    path = situation.layout.path_of(member)
    if situation.images[member].is_executable:
        return path, []
    if situation.target.python is not None and _can_be_preloaded(path):
        return situation.target.python, [path]
    libc = own_libc(situation)
    return path, [libc] if libc and _can_be_preloaded(libc) else []


def _can_be_preloaded(path: str) -> bool:
    """LD_PRELOAD is a list with spaces and colons between the paths; nothing quotes them (ld.so(8))."""
    return not {" ", ":"} & {*path}


def _ask(situation: Situation, member: str) -> LoaderMap:
    program, preloads = _scenario(situation, member)
    return dry_run(situation.target, program, preloads)


def _shown(found: LoaderMap, layout: Layout) -> LoaderMap:
    """The map without the temporary directory, which is gone when it is read."""
    return replace(
        found,
        objects=tuple((layout.shown(name), layout.shown(path)) for name, path in found.objects),
        problems=tuple(layout.shown(line) for line in found.problems),
    )


def _compare(situation: Situation, member: str, found: LoaderMap) -> Iterator[Finding]:
    program, preloads = _scenario(situation, member)
    closure = trace(Environment(situation.target, situation.files), program, preloads)
    # Of a program that needs nothing the loader prints nothing, not even what is preloaded (elf/rtld.c).
    expected = predicted(closure) if closure.objects[0].image.needed else ()
    expected_missing = tuple(edge.soname for edge in closure.missing)
    if closure.fatal is not None and found.died:
        return
    same = (expected, expected_missing) == (found.objects, found.missing)
    if same and closure.fatal is None and not found.died:
        return
    wanted = _lines(expected, expected_missing, [closure.fatal] if closure.fatal else [])
    real = _lines(found.objects, found.missing, found.problems if found.died else [])
    odd = [line for line in wanted if line not in real] + [line for line in real if line not in wanted]
    what = f"they differ in {'; '.join(odd)}" if odd else "the order differs"
    message = f"{what}. Predicted: {'; '.join(wanted)}. The loader: {'; '.join(real)}"
    others = [line for line in found.problems if line not in real and "undefined symbol" not in line]
    message += f". It says: {'; '.join(others)}" if others else ""
    yield finding("RLK601", member, situation.layout.shown(message))


def _symbols(situation: Situation) -> dict[str, SymbolTable]:
    """The symbols of the members as they lie on the disk, by what the simulation knows them as."""
    tables = {}
    for name, image in situation.images.items():
        with map_file(situation.files.host(situation.layout.path_of(name))) as buffer:
            tables[image.path] = read_symbols(buffer)
    return tables


def _compare_symbols(
    situation: Situation, member: str, found: LoaderMap, tables: Tables
) -> Iterator[Finding]:
    """Compare the symbols that the loader leaves open with those that binding predicts."""
    if found.died or found.missing:
        return  # it says nothing of symbols then, or too much
    program, preloads = _scenario(situation, member)
    bindings = bind(trace(Environment(situation.target, situation.files), program, preloads), tables)
    outside = [item for item in bindings.explained if item.target is None]
    predicted_open = {(item.path, item.name, item.version) for item in bindings.unbound}
    predicted_open |= {(item.path, item.name, item.version) for item in outside}
    real_open = {
        (match["path"], match["name"], match["version"])
        for line in found.problems
        if (match := _UNDEFINED.fullmatch(line))
    }
    if predicted_open == real_open:
        return
    only_here = [_symbol(*item) for item in sorted(predicted_open - real_open, key=str)]
    only_there = [_symbol(*item) for item in sorted(real_open - predicted_open, key=str)]
    message = f"open symbols differ. Predicted only: {some(only_here) or 'none'}. The loader only: {some(only_there) or 'none'}"
    yield finding("RLK601", member, situation.layout.shown(message))


def _symbol(path: str, name: str, version: str | None) -> str:
    return f"{name}{'@' + version if version else ''} of {path}"


def _lines(objects: Iterable[tuple[str, str]], missing: Iterable[str], problems: Iterable[str]) -> list[str]:
    return [
        *(f"{name} => {path}" for name, path in objects),
        *(f"{name} => not found" for name in missing),
        *problems,
    ]


def _complaints(situation: Situation, member: str, found: LoaderMap) -> Iterator[Finding]:
    """What the loader refuses to go on with, besides libraries that it does not find."""
    shown = situation.layout.shown
    if found.died:
        yield finding("RLK105", member, f"the loader dies: {shown('; '.join(found.problems))}")
    for line in found.problems:
        if match := _VERSION.search(line):
            message = f"the loader finds no version {match['version']} in {shown(match['supplier'])}"
            yield finding("RLK301", shown(match["requester"]), message)
