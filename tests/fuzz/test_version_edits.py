"""Edits of version records over generated libraries: what the simulation binds after an edit is what the real ld.so binds.

Each library is edited in place, checked, and opened by dlopen with RTLD_NOW in a process of its own; where each import leads is
read from its slot. RELINK_FUZZ_EXAMPLES sets how many, RELINK_FUZZ_SEED where they start.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.elf.constants import DT_RELA, DT_RELASZ
from relink.elf.dynamic import Memory
from relink.elf.edit import ElfEdit, VersionEdit, edit_symbols, write_versions
from relink.elf.edit_checks import check_version_edits
from relink.elf.image import read_image
from relink.elf.symbol_reader import read_symbols
from relink.loader.binding import bind, by_symbol, check_versions, unserved_records
from relink.loader.loading import load
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import Target, find_target
from tests.fuzz.conftest import COUNTED, SEED
from tests.support.amount import amount
from tests.support.cc import cc
from tests.support.elf_builder import SUPPORTED, WEAK, WHY_NOT, Export, Import, Library
from tests.support.pyelftools_reader import differences, planned_needs

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

ORDINARY = amount(400)  # libraries of an ordinary run
NODES = ("N_1.1", "V_1", "V_1.2", "B")
PREFIXES = ("", "X_", "AMD_1.0_")
NAMES = tuple(f"fuzzed_{letter}" for letter in "abcdef")
SUPPLIERS = ("libone.so.1", "libtwo.so.1")
GONE = "libold.so.1"

_HELPER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
/* Each line of standard input: a path, then the offsets of slots. One line comes back: where each slot leads, or "fails". */
int main(void) {
  static char line[65536];
  while (fgets(line, sizeof line, stdin)) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
      int null = open("/dev/null", O_WRONLY);
      dup2(null, 2);
      char *path = strtok(line, "\t\n"), *word;
      void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      if (!handle) _exit(1);
      struct link_map *map;
      dlinfo(handle, RTLD_DI_LINKMAP, &map);
      while ((word = strtok(0, "\t\n"))) {
        void *at = *(void **)(map->l_addr + strtoul(word, 0, 10));
        Dl_info info;
        if (!at) printf("none ");
        else if (dladdr(at, &info)) printf("%s ", strrchr(info.dli_fname, '/') + 1);
        else printf("elsewhere ");
      }
      putchar('\n');
      fflush(stdout);
      _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status) puts("fails");
    fflush(stdout);
  }
  return 0;
}
"""


def _supplier(soname: str, chance: random.Random) -> Library:
    nodes = chance.sample(NODES, chance.randint(0, 3))
    exports = tuple(
        Export(name, node, hidden=node is not None and chance.random() < 0.2)
        for name in chance.sample(NAMES, chance.randint(2, 5))
        for node in [chance.choice([*nodes, None])]
    )
    return Library(soname=soname, exports=exports, versions=tuple(nodes))


def _user(chance: random.Random, suppliers: dict[str, Library]) -> Library:
    imports = []
    exported = [(name, export) for name, library in suppliers.items() for export in library.exports]
    for name in NAMES if chance.random() < 0.3 else chance.sample(NAMES, chance.randint(1, 4)):
        binding = WEAK if chance.random() < 0.2 else 1
        known = [(file, export) for file, export in exported if export.name == name]
        if known and chance.random() < 0.9:
            file, export = chance.choice(known)
            node = export.version or chance.choice(NODES)
            # What is moved has a longer name; what stays has the name that there is.
            moved = chance.random() < 0.7
            version = chance.choice(PREFIXES) + node if moved else export.version
            imports.append(Import(name, version, (GONE if moved else file) if version else None, binding))
        else:
            imports.append(Import(name, chance.choice(PREFIXES) + chance.choice(NODES), GONE, binding))
    return Library(soname="libuser.so.1", needed=SUPPLIERS, runpath="$ORIGIN", imports=tuple(imports))


def _edits(chance: random.Random, library: Library) -> tuple[VersionEdit, ...]:
    required = dict.fromkeys(
        (item.file, item.version) for item in library.imports if item.file and item.version
    )
    after = {file: chance.choice(SUPPLIERS) if file == GONE else file for file, _ in required}
    edits = []
    for file, version in required:
        if file != GONE and chance.random() < 0.8:
            continue
        ends = [node for node in NODES if version.endswith(node)]
        name = chance.choice([*ends, version])
        way = chance.choice(["renamed", "weak", "unversioned", "both"])
        edits.append(
            VersionEdit(
                file,
                version,
                after[file],
                name if way == "renamed" else version,
                weak=way in ("weak", "both"),
                unversioned=way in ("unversioned", "both"),
            )
        )
    return tuple(edits)


def _slots(data: bytes) -> list[int]:
    memory = Memory(memoryview(data))
    memory.read_header()
    if DT_RELA not in memory.dynamic:
        return []
    words = memory.words(memory.dynamic[DT_RELA], memory.dynamic[DT_RELASZ] // 8, "Q")
    return [*words[::3]]


def _predicted(path: Path, count: int, target: Target, program: str) -> list[str] | None:
    """Where each import leads, by the simulation; None where the loader does not load the library."""
    closure = load(Environment(target, Files()), [str(path)], program)
    tables = Tables(Files(), {})
    bindings = bind(closure, tables)
    if unserved_records(closure, tables) or check_versions(closure, tables) or bindings.unbound:
        return None
    root = closure.roots[-1]
    table = tables.of(closure.objects[root])
    bound = by_symbol(bindings.bound)
    found = [bound.get((root, item.name, item.version)) for item in table.imports]
    assert len(found) == count
    return ["none" if index is None else Path(closure.objects[index].path).name for index in found]


def test_version_edits(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    _run(ORDINARY, 0, tmp_path, record_property)


@pytest.mark.fuzz
def test_version_edits_at_length(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    _run(int(os.environ.get("RELINK_FUZZ_EXAMPLES", "10000")), SEED, tmp_path, record_property)


def _run(count: int, start: int, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    chance = random.Random(start)
    helper = str(cc(_HELPER, tmp_path / "helper", needed=["-ldl"]))
    target = find_target()
    counts: Counter[str] = Counter()
    process = subprocess.Popen([helper], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(count):
            world = tmp_path / "world"
            shutil.rmtree(world, ignore_errors=True)
            suppliers = {name: _supplier(name, chance) for name in SUPPLIERS}
            for name, library in suppliers.items():
                library.write(world / name)
            user = _user(chance, suppliers)
            path = user.write(world / "libuser.so.1")
            original = path.read_bytes()
            edits = _edits(chance, user)
            data = bytearray(original)
            write_versions(data, original, edits)
            assert not [*check_version_edits(original, data, ElfEdit(versions=edits))]
            image = read_image(data, "libuser.so.1")
            needs = planned_needs(read_symbols(original).verneeds, ElfEdit(versions=edits))
            assert not differences(data, image, image.segments, needs)
            expected = edit_symbols(read_symbols(original), {}, edits)
            read = read_symbols(bytes(data))
            assert (read.imports, read.verneeds) == (expected.imports, expected.verneeds), number
            path.write_bytes(data)
            slots = _slots(original)
            process.stdin.write("\t".join([str(path), *map(str, slots)]) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().split()
            said = None if answer == ["fails"] else answer
            assert said == _predicted(path, len(slots), target, helper), (number, user, suppliers, edits)
            counts["libraries"] += 1
            counts["loaded"] += said is not None
            counts["with edits"] += bool(edits)
        process.stdin.close()
    assert counts["loaded"] > count / 20
    for name, value in counts.items():
        record_property(COUNTED + "version edits, " + name, value)
