"""What an object opens by a name against the real loader: from objects with DT_RPATH, DT_RUNPATH, and none.

In each generated world one library that really calls dlopen (the caller decides where is looked, elf/dl-load.c) opens names with
and without numbers, by paths, and by paths with ``$ORIGIN``. RELINK_FUZZ_EXAMPLES and RELINK_FUZZ_SEED are as in
tests/fuzz/test_agreement.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from relink.loader.loading import load
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.target import Target, find_target
from tests.fuzz.conftest import COUNTED, SEED
from tests.fuzz.graphs import COMMON_ENTRIES, ENTRIES, NAMES, Graph, fill, graphs, write
from tests.support.amount import amount, repeatable
from tests.support.cc import cc
from tests.support.elf_builder import SUPPORTED, WHY_NOT

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
SHARDS = 2
ORDINARY = amount(200)  # graphs of an ordinary run, over all shards
_ROOM = 4000  # bytes for a search path
_KINDS = ("rpath", "runpath", "none")
# The address that dlopen returns to tells it who calls: so this must be no tail call.
_OPENER = """
#include <dlfcn.h>
void *open_it(const char *name) { void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL); __asm__ volatile(""); return handle; }
"""
_HELPER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
static int show(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size; (void)data; printf("%s\n", info->dlpi_name); return 0;
}
int main(int argc, char **argv) {
  void *opener = dlopen(argv[1], RTLD_NOW);
  if (!opener) { fprintf(stderr, "%s\n", dlerror()); return 1; }
  void *(*open_it)(const char *) = (void *(*)(const char *))dlsym(opener, "open_it");
  dl_iterate_phdr(show, 0);
  printf("\n%d\n", open_it(argv[2]) != 0);
  dl_iterate_phdr(show, 0);
  (void)argc;
  return 0;
}
"""
_OPENED = st.one_of(
    st.sampled_from((*NAMES, *(f"{name}.1" for name in NAMES))),
    st.sampled_from(
        ("@/d0/liba.so", "@/l1/libb.so.1", "$ORIGIN/../d0/libd.so", "d1/libb.so", "./libe.so.1", "libm.so.6")
    ),
)
_PATHS = st.one_of(
    st.lists(st.sampled_from(COMMON_ENTRIES), min_size=2, max_size=5),
    st.lists(st.sampled_from(ENTRIES), max_size=4),
)


@pytest.fixture(scope="module")
def helper(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(cc(_HELPER, tmp_path_factory.mktemp("helper") / "helper", needed=["-ldl"]))


@pytest.fixture(scope="module")
def openers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the bytes of an opener of each kind, with a search path of `_ROOM` bytes that a test writes over."""
    directory = tmp_path_factory.mktemp("openers")
    tags = {"rpath": "-Wl,--disable-new-dtags", "runpath": "-Wl,--enable-new-dtags"}
    openers = {}
    for kind in _KINDS:
        flags = [tags[kind], f"-Wl,-rpath,{'@' * _ROOM}"] if kind in tags else []
        path = directory / f"{kind}.so"
        cc(_OPENER, path, "-shared", "-fPIC", *flags, needed=["-ldl"])
        openers[kind] = path.read_bytes()
    return openers


def _agree(
    graph: Graph,
    opener: bytes,
    entries: list[str],
    links: list[int],
    name: str,
    world: Path,
    target: Target,
    helper: str,
) -> str:
    shutil.rmtree(world, ignore_errors=True)
    world.mkdir()
    write(graph, world, target)
    for number in links:  # a development link, in reverse: the name with a number leads to the one without
        node = graph.nodes[number % len(graph.nodes)]
        numbered = world / fill(f"{node.path}.1", world, target)
        if not os.path.lexists(numbered):
            numbered.symlink_to(numbered.name.removesuffix(".1"))
    text = ":".join(fill(entry, world, target) for entry in entries).encode()
    path = world / "d1" / "opener.so"
    path.write_bytes(opener.replace(b"@" * _ROOM, text + bytes(_ROOM - len(text))))
    name = fill(name, world, target)
    environment = Environment(
        target,
        Files(),
        tuple(fill(entry, world, target) for entry in graph.library_path),
        str(world / graph.cwd),
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "GLIBC_"))}
    if environment.library_path:
        clean["LD_LIBRARY_PATH"] = ":".join(environment.library_path)
    done = subprocess.run(
        [helper, str(path), name],
        cwd=environment.cwd,
        env=clean,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    before, _, rest = done.stdout.partition("\n\n")
    opened, *after = rest.splitlines()
    real = [line for line in after if line not in before.splitlines()] if opened == "1" else None

    started = {loaded.path for loaded in load(environment, [str(path)], helper).objects}
    closure = load(
        environment, [str(path)], helper, dlopens=lambda loaded: (name,) if loaded.path == str(path) else ()
    )
    (edge,) = closure.dlopened
    new = [loaded.path for loaded in closure.objects if loaded.path not in started]
    fails = edge.target is None or any(
        missing.target is None and closure.objects[missing.requester].path in new for missing in closure.edges
    )
    assert real == (None if fails else new), (name, real, new, done.stdout)
    return "opened" if real is not None else "not opened"


def _run(
    count: int,
    start: int,
    world: Path,
    openers: dict[str, bytes],
    helper: str,
    record: Callable[[str, object], None],
) -> None:
    total: Counter[str] = Counter()
    target = find_target()

    @seed(start)
    @repeatable(count)
    @given(graphs(), st.sampled_from(_KINDS), _PATHS, st.lists(st.integers(0, 11), max_size=6), _OPENED)
    def compare(graph: Graph, kind: str, entries: list[str], links: list[int], name: str) -> None:
        answer = _agree(graph, openers[kind], entries, links, name, world, target, helper)
        total.update([f"from an object with {kind}, {answer}"])

    try:
        compare()
    finally:
        for name, value in total.items():
            record(f"{COUNTED}with ld.so, names {name}", value)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_opened(
    shard: int,
    openers: dict[str, bytes],
    helper: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    _run(ORDINARY // SHARDS, shard, tmp_path.resolve() / "w", openers, helper, record_property)


@pytest.mark.fuzz
@pytest.mark.parametrize("shard", range(SHARDS))
def test_opened_at_length(
    shard: int,
    openers: dict[str, bytes],
    helper: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    count = int(os.environ.get("RELINK_FUZZ_EXAMPLES", "10000"))
    start = SEED + shard
    _run(-(-count // SHARDS), start, tmp_path.resolve() / "w", openers, helper, record_property)
