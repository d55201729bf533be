"""A real process in which the program and its libraries call dlopen, and what the simulation says of the same process."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from relink.loader.binding import Bindings, by_symbol
from relink.loader.loading import RootRefusedError
from relink.loader.process import Dlopen, DlopenResult, Failure, Process
from relink.loader.search import Environment, expand
from relink.loader.tables import Tables
from tests.support.cc import cc

# sub $8,%rsp; call *%rdx; add $8,%rsp; ret: calls its third argument with the first two, so that the caller is this library.
CODE = bytes.fromhex("4883ec08ffd24883c408c3")
# Behind the ELF header and three program headers.
_CODE_AT = 64 + 3 * 56

_PROGRAM = (
    r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
extern struct r_debug _r_debug;
static struct link_map *mapped(const char *path) {
  struct stat wanted, here;
  if (stat(path, &wanted)) return 0;
  for (struct link_map *map = _r_debug.r_map; map; map = map->l_next)
    if (*map->l_name && !stat(map->l_name, &here) && here.st_dev == wanted.st_dev && here.st_ino == wanted.st_ino)
      return map;
  return 0;
}
typedef void *opener(const char *, int);
typedef void *stub(const char *, int, opener *);
int main(int argc, char **argv) {
  for (int i = 1; ; i += 3) {
    for (struct link_map *map = _r_debug.r_map; map; map = map->l_next) fprintf(stderr, "@map %s\n", map->l_name);
    if (i + 2 >= argc) break;
    fprintf(stderr, "@event\n");
    struct link_map *caller = *argv[i + 2] ? mapped(argv[i + 2]) : _r_debug.r_map;
    if (!caller) { fprintf(stderr, "@caller\n"); continue; }
    int flags = atoi(argv[i + 1]);
    void *handle = *argv[i + 2] ? ((stub *)(caller->l_addr + CODE_AT))(argv[i], flags, dlopen) : dlopen(argv[i], flags);
    const char *error = handle ? 0 : dlerror();
    if (!handle) fprintf(stderr, "@error %s\n", error ? error : argv[i]);
  }
  return 0;
}
"""
).replace("CODE_AT", str(_CODE_AT))

_BINDING = re.compile(
    r" *\d+:\tbinding file (.+) \[0\] to (.+) \[0\]: (?:normal|protected) symbol `(\S+)'(?: \[(\S+)\])?"
)
_UNDEFINED = re.compile(r"(?P<where>\S+): undefined symbol: (?P<name>[^\s,]+)(?:, version (?P<version>\S+))?")
_GONE = re.compile(r"(?P<where>\S+): version [`'](?P<node>\S+)' not found \(required by (?P<by>\S+)\)")

Bound = tuple[str, str, str | None, str]
"""(path of the object with the import, symbol, version, path of the object that it binds to)"""


@dataclass(frozen=True)
class Step:
    """The start of a process, or one dlopen.

    :ivar failure: why it fails: of the real loader what it says first, of the simulation all that it may say.
    :ivar mapped: the paths of the link map then, without the program, the loader and the vDSO.
    :ivar bound: what was bound to another object, of the libraries of the world, where nothing failed.
    """

    failure: frozenset[tuple[str, ...]]
    mapped: tuple[str, ...]
    bound: frozenset[Bound] = frozenset()

    def agrees_with(self, simulated: Step) -> bool:
        if not self.failure:
            return self == simulated
        return self.failure <= simulated.failure and self.mapped == simulated.mapped


def assert_agreement(real: Sequence[Step], simulated: Sequence[Step]) -> None:
    """Compare the steps of a process.

    Of an object with two faults, of which one ends the process, the order of its relocations decides. That is not simulated.
    """
    either = {("aborts",)} < simulated[-1].failure
    real = real[: len(simulated)] if either else real
    assert len(real) == len(simulated), (real, simulated)
    for number, (step, said) in enumerate(zip(real, simulated, strict=True)):
        unordered = either and said is simulated[-1] and frozenset() < step.failure <= said.failure
        assert unordered or step.agrees_with(said), (number, step, said)


def build_programs(directory: Path, search_path: str) -> dict[str, str]:
    """Compile the program, with no search path, with a DT_RPATH and with a DT_RUNPATH; returns their paths."""
    flags = {
        "plain": [],
        "rpath": ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{search_path}"],
        "runpath": ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{search_path}"],
    }
    return {name: str(cc(_PROGRAM, directory / name, *more, needed=["-ldl"])) for name, more in flags.items()}


def really_open(
    environment: Environment, program: str, preloads: Sequence[str], events: Sequence[Dlopen], below: str
) -> list[Step]:
    """Run the program; of a process that ends early (at an assertion) the steps until then, and one that says so."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "GLIBC_"))}
    clean |= {"LD_DEBUG": "bindings", "LD_BIND_NOW": "1"}
    if environment.library_path:
        clean["LD_LIBRARY_PATH"] = ":".join(environment.library_path)
    if preloads:
        clean["LD_PRELOAD"] = ":".join(preloads)
    given = [word for event in events for word in (event.name, str(event.flags), event.caller)]
    run = subprocess.run(
        [program, *given],
        cwd=environment.cwd,
        env=clean,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=60,
        check=False,
    )
    steps = [_step(text, environment, below) for text in run.stderr.split("@event\n")]
    # 127 by most faults, 1 by a version that is not there (elf/rtld.c, dl_main).
    if run.returncode in (1, 127) and len(steps) == 1:
        return [Step(frozenset({("start",)}), ())]
    if "Inconsistency detected by ld.so" in run.stderr:
        return [*steps[:-1], Step(frozenset({("aborts",)}), ())]
    if run.returncode:
        raise AssertionError(f"{run.args}: {run.returncode} {run.stderr[-400:]}")
    return steps


def _step(text: str, environment: Environment, below: str) -> Step:
    mapped: list[str] = []
    bound: set[Bound] = set()
    failure: set[tuple[str, ...]] = set()
    for line in text.splitlines():
        if line.startswith("@map "):
            path = line.removeprefix("@map ")
            if path not in ("", "linux-vdso.so.1", environment.target.interpreter):
                mapped.append(path)
        elif line == "@caller":
            failure.add(("caller",))
        elif line.startswith("@error "):
            failure.add(_reason(line.removeprefix("@error ")))
        elif (match := _BINDING.fullmatch(line)) and match[1] != match[2] and match[1].startswith(below):
            bound.add((match[1], match[3], match[4], match[2]))
    return Step(frozenset(failure), tuple(mapped), frozenset(bound) if not failure else frozenset())


def _reason(message: str) -> tuple[str, ...]:
    if match := _UNDEFINED.fullmatch(message):
        return "symbol", match["where"], match["name"], match["version"] or ""
    if match := _GONE.fullmatch(message):
        return "version", match["where"], match["node"], match["by"]
    # While it checks the header the loader names the path in its message, and later the name that was asked for.
    return "file", message.split(": ", maxsplit=1)[0].rpartition("/")[2]


def simulated_open(
    environment: Environment,
    program: str,
    preloads: Sequence[str],
    events: Sequence[Dlopen],
    below: str,
    tables: Tables,
    known: dict[bytes, Failure | None] | None = None,
) -> list[Step]:
    """Say the same by simulation; with what is `known` of dlopens nothing is said of what is bound."""
    try:
        process = Process(environment, tables, program, preloads, known=known)
    except RootRefusedError:
        return [Step(frozenset({("start",)}), ())]
    steps: list[Step] = []
    for result in _results(process, events):
        failure = frozenset(_reasons(result, environment))
        if result is process.results[0] and (failure or result.bindings.unbound):
            return [Step(frozenset({("start",)}), ())]
        if ("aborts",) in failure:
            return [*steps, Step(failure, ())]
        mapped = tuple(
            loaded.path for loaded in process.objects if loaded.identity[0] not in ("program", "loader")
        )
        bound = frozenset() if failure else _bound(result, below)
        steps.append(Step(failure, mapped, bound))
    return steps


def _results(process: Process, events: Sequence[Dlopen]) -> Iterator[DlopenResult]:
    yield process.results[0]
    for event in events:
        yield process.dlopen(event)


def _reasons(result: DlopenResult, environment: Environment) -> Iterator[tuple[str, ...]]:
    failure = result.failure
    if failure is None:
        return
    if failure.cause in ("caller", "aborts"):
        yield (failure.cause,)
    for edge in failure.missing[:1]:
        origin = result.closure.objects[edge.requester].origin
        yield (
            "file",
            (expand(edge.soname, origin=origin, target=environment.target) or edge.soname).rpartition("/")[2],
        )
    if failure.cause == "refused" and failure.refused:
        yield "file", failure.refused.partition(": ")[0].rpartition("/")[2]
    for lost in failure.symbols:
        yield "symbol", lost.path, lost.name, lost.version or ""
    for gone in failure.versions[:1]:
        yield "version", gone.supplier, gone.version, gone.requester


def _bound(result: DlopenResult, below: str) -> frozenset[Bound]:
    bindings: Bindings = result.bindings
    paths = [loaded.path for loaded in result.closure.objects]
    return frozenset(
        (paths[index], name, version, paths[target])
        for (index, name, version), target in by_symbol((*bindings.bound, *bindings.interposed)).items()
        if paths[index] != paths[target] and paths[index].startswith(below)
    )
