"""The real loader, asked what it does, in the terms of the simulation; and the simulation's answer in the same terms."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relink.loader.closure import Closure
from relink.loader.loading import load, trace
from relink.loader.search import Environment, expand
from tests.support.cc import cc

Row = tuple[str, str | None]
"""(name asked for, path as found); None where it was not found."""

_TRACED = re.compile(r"\t(?P<name>.*?)(?: => (?P<path>.*?))? \(0x[0-9a-f]+\)")
_FATAL = "error while loading shared libraries: "

_HELPER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
static int show(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size; (void)data; printf("%s\n", info->dlpi_name); return 0;
}
int main(int argc, char **argv) {
  dl_iterate_phdr(show, 0);
  for (int i = 1; i < argc; i++)
    if (!dlopen(argv[i], RTLD_LAZY | RTLD_LOCAL)) { printf("\n%d %s\n", i - 1, dlerror()); return 0; }
  puts("");
  puts("");
  dl_iterate_phdr(show, 0);
  return 0;
}
"""


@dataclass(frozen=True)
class Answer:
    """What was mapped, in order, without the program, the loader and the vDSO.

    :ivar fatal: the path or name that the load died of.
    """

    rows: tuple[Row, ...]
    fatal: str | None = None

    def agrees_with(self, simulated: Answer) -> bool:
        """Compare. While it checks the header the loader names the path in its message, and later the name asked for;
        which check is the later one differs between versions, and the simulation gives the path always.
        """
        if self.fatal is None or simulated.fatal is None:
            return self == simulated
        return simulated.fatal == self.fatal or simulated.fatal.endswith("/" + self.fatal)


def build_helper(path: Path, *flags: str) -> Path:
    """Compile a program that dlopens its arguments and prints its link map."""
    return cc(_HELPER, path, *flags, needed=["-ldl"])


def _environment(library_path: Sequence[str], preloads: Sequence[str] = ()) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "GLIBC_"))}
    if library_path:
        clean["LD_LIBRARY_PATH"] = ":".join(library_path)
    if preloads:
        clean["LD_PRELOAD"] = ":".join(preloads)
    return clean


def really_trace(environment: Environment, program: str, preloads: Sequence[str] = ()) -> Answer:
    """Ask ``LD_TRACE_LOADED_OBJECTS=1 ld.so program``."""
    interpreter = environment.target.interpreter
    run = subprocess.run(
        [interpreter, program],
        cwd=environment.cwd,
        env=_environment(environment.library_path, preloads) | {"LD_TRACE_LOADED_OBJECTS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "cannot be preloaded" in run.stderr or run.returncode not in (0, 127):
        raise AssertionError(f"{run.args}: {run.returncode} {run.stderr}")
    if run.returncode:
        return Answer((), run.stderr.split(_FATAL)[1].split(": ")[0])
    rows: list[Row] = []
    for line in run.stdout.splitlines():
        if line.endswith(" => not found"):
            rows.append((line[1:].removesuffix(" => not found"), None))
        elif match := _TRACED.fullmatch(line):
            path = match["path"] or match["name"]
            if path not in ("linux-vdso.so.1", interpreter):
                rows.append((match["name"], path))
        elif line != "\tstatically linked":
            raise AssertionError(f"not understood: {line!r}")
    return Answer(tuple(rows))


def really_dlopen(environment: Environment, roots: Sequence[str], helper: str) -> Answer:
    """dlopen `roots` in a process of `helper`; the rows carry paths only, and of a failure only what it died of."""
    run = subprocess.run(
        [helper, *roots],
        cwd=environment.cwd,
        env=_environment(environment.library_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if run.returncode:
        raise AssertionError(f"{run.args}: {run.returncode} {run.stderr}")
    lines = run.stdout.split("\n")
    before = [line for line in lines[1 : lines.index("", 1)] if line]
    rest = lines[len(before) + 2 :]
    if rest[0]:
        return Answer((), rest[0].partition(" ")[2].split(": ")[0])
    return Answer(tuple(("", line) for line in rest if line and line not in before))


def simulated_trace(environment: Environment, program: str, preloads: Sequence[str] = ()) -> Answer:
    """What :func:`relink.loader.loading.trace` says, as :func:`really_trace` would put it."""
    closure = trace(environment, program, preloads)
    if closure.fatal:
        return Answer((), closure.fatal.split(": ")[0])
    if not closure.objects[0].image.needed:
        return Answer(())  # the loader prints nothing then, not even the preloads
    rows: list[Row] = []
    seen = {0, 1}
    for index in closure.roots:
        if index not in seen:
            seen.add(index)
            rows.append((closure.objects[index].name, closure.objects[index].path))
    for edge in closure.edges:
        if edge.target is None:
            rows.append((_expanded(closure, environment, edge.requester, edge.soname), None))
        elif edge.target not in seen:
            seen.add(edge.target)
            rows.append((closure.objects[edge.target].name, closure.objects[edge.target].path))
    return Answer(tuple(rows))


def simulated_dlopen(environment: Environment, roots: Sequence[str], helper: str) -> Answer:
    """What :func:`relink.loader.loading.load` says, as :func:`really_dlopen` would put it."""
    started = len(load(environment, [], helper).objects)
    closure = load(environment, [], helper)
    for count in range(1, len(roots) + 1):
        closure = load(environment, roots[:count], helper)
        for edge in closure.edges:
            if edge.target is None and not (closure.fatal and edge is closure.edges[-1]):
                return Answer((), _expanded(closure, environment, edge.requester, edge.soname))
        if closure.fatal:
            return Answer((), closure.fatal.split(": ")[0])
    return Answer(tuple(("", entry.path) for entry in closure.objects[started:]))


def _expanded(closure: Closure, environment: Environment, requester: int, soname: str) -> str:
    return expand(soname, origin=closure.objects[requester].origin, target=environment.target) or soname
