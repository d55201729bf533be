"""Damaged modules through the reader of what their initialisation imports: it ends, and raises nothing."""

from __future__ import annotations

import random
from pathlib import Path

from relink.python.extensions import read_extension_names
from tests.support.amount import amount
from tests.support.cc import cc

ORDINARY = amount(400)  # files of an ordinary run
SOURCE = """
void *PyImport_ImportModule(const char *);
void *PyImport_ImportModuleLevelObject(void *, void *, void *, void *, int);
void PyObject_SetAttr(void *, void *, void *);
void *PyModuleDef_Init(void *);
void other(void *);
static void *v[4];
struct entry { void **place; const char *text; long size; void *encoding; char flags[3]; };
static const char marker[] = "cython_runtime";
static __attribute__((noinline)) void *import(const char *name) { other(v); return PyImport_ImportModule(name); }
static int run(void *module) {
  struct entry table[4] = {
    {&v[0], "__main__", 9}, {&v[1], "__name__", 9}, {&v[2], "__test__", 9}, {&v[3], "other", 6}
  };
  other(table); other((void *)marker);
  PyObject_SetAttr(module, v[1], v[0]); other(v[2]);
  other(PyImport_ImportModuleLevelObject(v[3], 0, 0, 0, 1)); other(import("one"));
  return 0;
}
static struct slot { int kind; void *value; } slots[] = {{2, run}, {0, 0}};
static struct { long head[5]; void *name, *doc; long size; void *methods; struct slot *slots; } def = {{0}, "a", 0, 0, 0, slots};
void *PyInit_a(void) { return PyModuleDef_Init(&def); }
"""


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return a file in which numbers and code are exchanged."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, 30)):
        at = rng.randrange(len(found) - 8)
        part = rng.choice(
            (b"\xff" * 4, bytes(4), b"\xe8", b"\x48\x8d\x3d", rng.randbytes(4), found[at + 4 : at + 8])
        )
        found[at : at + len(part)] = part
    return bytes(found[: rng.choice((len(found), rng.randrange(len(found))))])


def test_modules(tmp_path: Path) -> None:
    flags = ("-shared", "-fPIC", "-s", "-Wl,-z,noseparate-code")
    files = [cc(SOURCE, tmp_path / "a.so", level, *flags).read_bytes() for level in ("-O0", "-O2", "-O3")]
    for data in files:
        imports = read_extension_names(data, "a.so").imports
        assert imports is not None
        assert [one.names for one in imports] == [("other",), ("one",)]
    for number in range(ORDINARY):
        rng = random.Random(number)
        data = damaged(rng.choice(files), rng)
        found = read_extension_names(data, "a.so")
        assert len(found.imports or ()) < 100, number
