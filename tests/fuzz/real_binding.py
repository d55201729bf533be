"""What ``ldd -r`` says of one file, and what :func:`relink.loader.binding.bind` says of it, in the same terms."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relink.loader.binding import bind, by_symbol, check_versions, unserved_records
from relink.loader.closure import Closure
from relink.loader.loading import load, trace
from relink.loader.search import Environment
from relink.loader.tables import Tables
from tests.support.cc import cc

Lost = tuple[str, str, str | None]
"""(path of the object with the import, symbol, version)"""
Gone = tuple[str, str, str]
"""(path of the library, version node, path of the object that requires it)"""

_UNDEFINED = re.compile(r"undefined symbol: (\S+?)(?:, version (\S*))?\t\((.*)\)")
_GONE = re.compile(r".*?: (\S+): version [`'](\S+)' not found \(required by (\S+)\)")
_NOISE = re.compile(r" *\d+:\t.*")
_HARMLESS = re.compile(
    r".*: no version information available \(required by .*\)|.*: weak version [`']\S+' not found \(required by .*\)"
)
_BINDING = re.compile(
    r" *\d+:\tbinding file (.+) \[0\] to (.+) \[0\]: (?:normal|protected) symbol `(\S+)'(?: \[(\S+)\])?"
)
Bound = tuple[str, str, str | None, str]
"""(path of the object with the import, symbol, version, path of the object that it binds to)"""


class LoaderCrashError(Exception):
    """The real loader died: its dry run reads outside of its tables where a version record names a file that is missing."""


@dataclass(frozen=True)
class Answer:
    """What is open; `aborts` where the loader stops at an assertion, and then says nothing of the rest.

    :ivar bound: what binds to another object, where bindings were asked for.
    """

    lost: frozenset[Lost]
    gone: frozenset[Gone]
    aborts: bool = False
    bound: frozenset[Bound] = frozenset()

    def agrees_with(self, simulated: Answer) -> bool:
        if self.aborts and simulated.aborts:
            return True
        return self == simulated

    def without_versions(self) -> Answer:
        """Leave out the versions of symbols: where a record names a file that is missing, the dry run does not keep them.

        elf/dl-version.c counts the numbers of a missing file only if another file has a higher one; ld.so then reads behind
        its table, and may find a version without a name.
        """
        bound = frozenset((path, name, None, supplier) for path, name, _, supplier in self.bound)
        return replace(self, lost=frozenset((path, name, None) for path, name, _ in self.lost), bound=bound)


def really_bind(
    environment: Environment, path: str, preloads: Sequence[str] = (), *, bindings: bool = False
) -> Answer:
    """Ask the loader in its dry run, with everything bound at once.

    :param bindings: ask for every single binding, too (LD_DEBUG).
    """
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "GLIBC_"))}
    clean |= {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", "LD_BIND_NOW": "yes"}
    if environment.library_path:
        clean["LD_LIBRARY_PATH"] = ":".join(environment.library_path)
    if preloads:
        clean["LD_PRELOAD"] = ":".join(preloads)
    if bindings:
        clean["LD_DEBUG"] = "bindings"
    run = subprocess.run(
        [environment.target.interpreter, path],
        cwd=environment.cwd,
        env=clean,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=120,
        check=False,
    )
    if "Inconsistency detected by ld.so" in run.stderr:
        return Answer(frozenset(), frozenset(), aborts=True)
    if run.returncode not in (0, 127):
        raise LoaderCrashError(f"{run.args}: {run.returncode} {run.stderr[-200:]}")
    lost: set[Lost] = set()
    gone: set[Gone] = set()
    bound: set[Bound] = set()
    for line in run.stderr.splitlines():
        if match := _BINDING.fullmatch(line):
            where, supplier, name, version = match.groups()
            if where != supplier:
                bound.add((where, name, version, supplier))
        elif bindings and _NOISE.fullmatch(line):
            continue
        elif match := _UNDEFINED.fullmatch(line):
            lost.add((match[3], match[1], match[2]))
        elif match := _GONE.fullmatch(line):
            gone.add((match[1], match[2], match[3]))
        elif not _HARMLESS.fullmatch(line):
            raise AssertionError(f"{run.args}: not understood: {line!r}")
    return Answer(frozenset(lost), frozenset(gone), bound=frozenset(bound))


def simulated_bind(
    environment: Environment,
    path: str,
    preloads: Sequence[str] = (),
    *,
    tables: Tables | None = None,
    bindings: bool = False,
) -> tuple[Answer, Closure]:
    """Say the same by simulation."""
    closure = trace(environment, path, preloads)
    tables = tables or Tables(environment.files, {})
    found = bind(closure, tables)
    lost = {(item.path, item.name, item.version) for item in found.unbound}
    lost |= {(item.path, item.name, item.version) for item in found.explained if item.target is None}
    gone = {(item.supplier, item.version, item.requester) for item in check_versions(closure, tables)}
    aborts = any(item.reason == "aborts" for item in found.unbound)
    aborts = aborts or bool(unserved_records(closure, tables))
    paths = [item.path for item in closure.objects]
    bound = {
        (paths[index], name, version, paths[target])
        for symbols in (found.bound, found.interposed)
        for (index, name, version), target in by_symbol(symbols).items()
        if bindings and paths[index] != paths[target]
    }
    return Answer(frozenset(lost), frozenset(gone), aborts, frozenset(bound)), closure


_OPENER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (!dlopen(argv[i], RTLD_NOW | (i + 1 < argc ? RTLD_GLOBAL : RTLD_LOCAL))) { printf("%d %s\n", i - 1, dlerror()); return 0; }
  return 0;
}
"""
_REFUSED = re.compile(
    r"(?P<number>\d+) (?:(?P<where>\S+): (?:undefined symbol: (?P<name>[^\s,]+)(?:, version (?P<version>\S+))?"
    r"|version [`'](?P<node>\S+)' not found \(required by (?P<by>\S+)\))|.*cannot open shared object file.*)"
)


@dataclass(frozen=True)
class Opened:
    """What dlopen of one file after the other did.

    :ivar refused: number of the file that could not be opened and, where it is for a symbol or a version, which: of the
        simulation all that there are, of the real loader the first.
    :ivar bound: what binds to another object, of the objects below the directory in question, where nothing was refused.
    """

    refused: tuple[int, frozenset[tuple[str, ...]]] | None
    bound: frozenset[Bound] = frozenset()
    aborts: bool = False

    def agrees_with(self, simulated: Opened) -> bool:
        if self.aborts or simulated.aborts:
            # Which of several faults comes first depends on the order of relocation, which is not simulated.
            return simulated.aborts
        if self.refused is None or simulated.refused is None:
            return self == simulated
        return self.refused[0] == simulated.refused[0] and self.refused[1] <= simulated.refused[1]


def build_opener(path: Path) -> Path:
    """Compile a program that dlopens its arguments, all but the last into the global scope."""
    return cc(_OPENER, path, needed=["-ldl"])


def really_open(environment: Environment, roots: Sequence[str], opener: str, below: str) -> Opened:
    """dlopen `roots` in a process of `opener`."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "GLIBC_"))}
    run = subprocess.run(
        [opener, *roots],
        cwd=environment.cwd,
        env=clean | {"LD_DEBUG": "bindings"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "Inconsistency detected by ld.so" in run.stderr:
        return Opened(None, aborts=True)
    if run.returncode:
        raise AssertionError(f"{run.args}: {run.returncode} {run.stderr}")
    if run.stdout:
        match = _REFUSED.fullmatch(run.stdout.strip())
        if match is None:
            raise AssertionError(f"not understood: {run.stdout!r}")
        if match["node"]:
            why = {(match["where"], match["node"], match["by"])}
        elif match["where"]:
            why = {(match["where"], match["name"], match["version"] or "")}
        else:
            why = set()
        return Opened((int(match["number"]), frozenset(why)))
    bound = {
        (match[1], match[3], match[4], match[2])
        for line in run.stderr.splitlines()
        if (match := _BINDING.fullmatch(line)) and match[1] != match[2] and match[1].startswith(below)
    }
    return Opened(None, frozenset(bound))


def simulated_open(environment: Environment, roots: Sequence[str], opener: str, below: str) -> Opened:
    """Say the same by simulation, root after root, since a failure ends it."""
    tables = Tables(environment.files, {})
    bound: set[Bound] = set()
    for count in range(1, len(roots) + 1):
        closure = load(environment, roots[:count], opener)
        found = bind(closure, tables)
        gone = check_versions(closure, tables)
        if closure.missing:
            return Opened((count - 1, frozenset()))
        if unserved_records(closure, tables) or any(item.reason == "aborts" for item in found.unbound):
            return Opened(None, aborts=True)
        if gone:
            return Opened(
                (count - 1, frozenset((item.supplier, item.version, item.requester) for item in gone))
            )
        if found.unbound:
            lost = {(item.path, item.name, item.version or "") for item in found.unbound}
            return Opened((count - 1, frozenset(lost)))
        paths = [item.path for item in closure.objects]
        bound |= {
            (paths[index], name, version, paths[target])
            for symbols in (found.bound, found.interposed)
            for (index, name, version), target in by_symbol(symbols).items()
            if paths[index] != paths[target] and paths[index].startswith(below)
        }
    return Opened(None, frozenset(bound))
