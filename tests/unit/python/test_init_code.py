"""What the initialisation of a module imports: against C that the tests compile, in the ways that compilers put it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from relink.elf.dynamic import open_memory
from relink.python.cython_strings import CythonStrings, read_cython_strings
from relink.python.init_code import InitImport, read_init_imports
from tests.support.cc import cc

HEAD = """
void *PyImport_ImportModule(const char *);
void *PyImport_Import(void *);
void *PyImport_ImportModuleLevelObject(void *, void *, void *, void *, int);
void *PyUnicode_FromString(const char *);
void *PyUnicode_FromStringAndSize(const char *, long);
void *PyCapsule_Import(const char *, int);
void *PyModule_Create2(void *, int);
void *PyModuleDef_Init(void *);
void PyObject_SetAttr(void *, void *, void *);
void other(void *);
#define APART __attribute__((noinline, noclone))
"""
FLAGS = ("-O2", "-shared", "-fPIC")


def read(data: bytes, name: str = "a") -> tuple[tuple[InitImport, ...], tuple[str, ...]] | None:
    """Return what is read of a module."""
    with open_memory(data) as memory:
        return read_init_imports(memory, name, lambda: read_cython_strings(data))


def names_of(tmp_path: Path, source: str, *flags: str) -> list[str]:
    """Return the likeliest names of what a module imports."""
    found = read(cc(HEAD + source, tmp_path / "a.so", *(flags or FLAGS)).read_bytes())
    assert found is not None
    return [one.names[0] for one in found[0]]


DIRECT = """
void *later(void) { return PyImport_ImportModule("later"); }
static APART void *second(void) { return PyImport_ImportModule("pkg.second"); }
void *PyInit_a(void) { other(PyImport_ImportModule("first")); other(second()); return second; }
"""


@pytest.mark.parametrize(
    "flags",
    [
        FLAGS,
        ("-O0", *FLAGS[1:]),
        ("-O3", "-fno-plt", *FLAGS[1:]),
        ("-O2", "-fcf-protection=full", "-Wl,-z,ibtplt", *FLAGS[1:]),
        ("-Os", "-s", "-Wl,-z,now", *FLAGS[1:]),
    ],
)
def test_what_is_called_from_the_entry(tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert names_of(tmp_path, DIRECT, *flags) == ["first", "pkg.second"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('other(PyCapsule_Import("datetime.datetime_CAPI", 0));', ["datetime"]),
        ('void *name = PyUnicode_FromString("made"); other(name); other(PyImport_Import(name));', ["made"]),
        ('other(PyImport_Import(PyUnicode_FromString("made")));', ["made"]),
        ('other(wrapped("handed.on"));', ["handed.on"]),
        ('other(twice("handed.on"));', ["handed.on"]),
        # Rust's have no end, so that the next one follows.
        ('other(sized("numpy of Rust", 5));', ["numpy"]),
        ('other(PyUnicode_FromString("no.import"));', []),
        ('other(PyImport_ImportModule("no name"));', []),
    ],
)
def test_how_a_name_is_given(tmp_path: Path, body: str, expected: list[str]) -> None:
    source = f"""
    static APART void *wrapped(const char *name) {{ void *found = PyImport_ImportModule(name); other(found); return found; }}
    static APART void *twice(const char *name) {{ void *found = wrapped(name); other(found); return found; }}
    static APART void *sized(const char *name, long size) {{
      void *found = PyImport_Import(PyUnicode_FromStringAndSize(name, size)); other(found); return found;
    }}
    void *unused[] = {{ wrapped, twice, sized }};
    void *PyInit_a(void) {{ {body} return 0; }}
    """
    assert names_of(tmp_path, source) == expected


SLOTS = """
static APART int run(void *module) { other(PyImport_ImportModule("run")); return 0; }
static APART void *make(void *spec) { other(PyImport_ImportModule("made")); return spec; }
struct slot { int kind; void *value; };
"""
PEP_489 = """
static struct slot slots[] = {{1, make}, {2, run}, {0, 0}};
struct { long head[5]; void *name, *doc; long size; void *methods; struct slot *slots; } def = {{0}, "a", 0, 0, 0, slots};
void *PyInit_a(void) { return PyModuleDef_Init(&def); }
"""
PYBIND11 = """
struct slot slots[2];
void *PyInit_a(void) { slots[0].value = run; slots[0].kind = 2; return PyModuleDef_Init(slots); }
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (PEP_489, ["run"]),
        (
            "static struct slot slots[] = {{2, run}, {0, 0}}; void *PyModExport_a(void) { return slots; }",
            ["run"],
        ),
        (PYBIND11, ["run"]),
        # A table of functions is none of slots.
        ("void *table[] = {run}; void *PyInit_a(void) { return PyModule_Create2(&table, 3); }", []),
        ("void *PyInit_a(void) { other(run); return PyModule_Create2(0, 3); }", []),
    ],
)
def test_slots(tmp_path: Path, source: str, expected: list[str]) -> None:
    assert names_of(tmp_path, f"{SLOTS} void *used[] = {{make}}; {source}") == expected


WORDS = ("__main__", "__name__", "__test__", "ab", "cd", "relative")
USE = """
static void *more[2];
static inline void use(void *module) {
  other(more); PyObject_SetAttr(module, more[1], more[0]); PyObject_SetAttr(module, NAME, MAIN); other(TEST);
  other(PyImport_ImportModuleLevelObject(AB, 0, 0, 0, 0));
  other(PyImport_ImportModuleLevelObject(RELATIVE, 0, 0, 0, 2));
}
void *PyInit_a(void) { fill(); use(0); return 0; }
const char marker[] = "cython_runtime";
"""


def places(array: str) -> str:
    """Return definitions of names for the places of an array."""
    return "".join(
        f"#define {word.strip('_').upper()} {array}[{number}]\n" for number, word in enumerate(WORDS)
    )


CYTHON = {
    "in data": places("v")
    + "static void *v[6]; struct { void **place; const char *text; long more[3]; } table[] = {"
    + ", ".join(f'{{&v[{number}], "{word}"}}' for number, word in enumerate(WORDS))
    + "}; static void fill(void) { other(table); }",
    "in data, without their variables": places("v")
    + "static void *v[6]; const struct { const char *text; long size; } table[] = {"
    + ", ".join(f'{{"{word}", {len(word)}}}' for word in WORDS)
    + "}; static void fill(void) { other((void *)table); other(v); }",
    "on the stack": places("v")
    + "static void *v[6]; struct entry { void **place; const char *text; long size; void *encoding; char flags[3]; };"
    + "static APART void fill(void) { struct entry table[6];"
    + "".join(
        f'table[{number}].place = &v[{number}]; table[{number}].text = "{word}";'
        for number, word in enumerate(WORDS)
    )
    + "other(table); other(v); }",
    "joined": places("v")
    + f'static void *v[6]; const char text[] = "{"x" * 60}{"".join(WORDS)}";'
    + f"const unsigned lengths[] = {{60, {', '.join(str(len(word)) for word in WORDS)}}};"
    + "static void fill(void) { other(v); }",
    "joined, lengths by code": places("v")
    + f'static void *v[6]; const char text[] = "{"x" * 60}{"".join(WORDS)}"; struct bits {{ unsigned length: 8; }};'
    + "static APART void fill(void) { struct bits lengths[7]; lengths[0].length = 60;"
    + "".join(f"lengths[{number + 1}].length = {len(word)};" for number, word in enumerate(WORDS))
    + "other(lengths); other(v); }",
    "joined, long lengths by code": places("v")
    + f'static void *v[6]; const char text[] = "{"x" * 60}{"".join(WORDS)}"; struct bits {{ unsigned length: 9; }};'
    + "static APART void fill(void) { struct bits lengths[7]; lengths[0].length = 60;"
    + "".join(f"lengths[{number + 1}].length = {len(word)};" for number, word in enumerate(WORDS))
    + "other(lengths); other(v); }",
    "joined, short lengths by code": places("v")
    + f'static void *v[6]; const char text[] = "{"x" * 60}{"".join(WORDS)}"; struct bits {{ unsigned length: 6; }};'
    + "static APART void fill(void) { struct bits lengths[7]; lengths[0].length = 60;"
    + "".join(f"lengths[{number + 1}].length = {len(word)};" for number, word in enumerate(WORDS))
    + "other(lengths); other(v); }",
    "in a state": "void **state(void);\n"
    + "".join(
        f"#define {word.strip('_').upper()} state()[{number + 40}]\n" for number, word in enumerate(WORDS)
    )
    + f'const char text[] = "{"x" * 60}{"".join(WORDS)}";'
    + f"const unsigned lengths[] = {{60, {', '.join(str(len(word)) for word in WORDS)}}};"
    + "static void fill(void) {}",
}


@pytest.mark.parametrize("form", CYTHON)
def test_the_variables_of_cython(tmp_path: Path, form: str) -> None:
    """However a module gets its strings: what is in a variable is known."""
    flags = ("-O2", "-fno-tree-slp-vectorize", "-fno-store-merging", "-shared", "-fPIC")
    found = read(cc(HEAD + CYTHON[form] + USE, tmp_path / "a.so", *flags).read_bytes())
    assert found is not None
    imports, words = found
    assert [(one.names, one.level) for one in imports] == [(("ab",), 0), (("relative",), 2)]
    assert {"__main__", "__name__", "__test__", "ab", "relative"} == {*words}


def test_what_inflates_the_strings_of_cython_is_imported_before(tmp_path: Path) -> None:
    data = cc(HEAD + CYTHON["in data"] + USE, tmp_path / "a.so", *FLAGS).read_bytes()
    with open_memory(data) as memory:
        found = read_init_imports(memory, "a", lambda: CythonStrings(inflating=("zlib",)))
    assert found is not None
    assert [one.names for one in found[0]] == [("zlib",), ("ab",), ("relative",)]


def test_the_whole_name_of_a_relative_import(tmp_path: Path) -> None:
    """From Cython 3.2 on it is an argument, beside the names that are taken and their number."""
    words = ("part", "pkg.part", "", "pkg.")
    source = (
        "static void *v[4]; struct { void **place; const char *text; long more[3]; } table[] = {"
        + ", ".join(f'{{&v[{number}], "{word}"}}' for number, word in enumerate(words))
        + """};
        static APART void *import(void *name, void **taken, long count, void *full, int level) {
          void *found = PyImport_ImportModuleLevelObject(name, 0, 0, taken, level); other(full); return found;
        }
        void *PyInit_a(void) {
          void *taken[1] = {v[0]};
          other(import(v[0], taken, 1, v[1], 1)); other(import(v[2], taken, 1, v[3], 1)); other(import(v[0], taken, 1, 0, 0));
          return 0;
        }
        const char marker[] = "cython_runtime";
        """
    )
    found = read(cc(HEAD + source, tmp_path / "a.so", *FLAGS).read_bytes())
    assert found is not None
    assert [(one.names, one.level) for one in found[0]] == [
        (("pkg.part", "part"), 0),
        (("pkg",), 0),
        (("part",), 0),
    ]


def test_a_module_of_cython_whose_strings_are_not_found(tmp_path: Path) -> None:
    source = DIRECT + 'const char marker[] = "cython_runtime";'
    data = cc(HEAD + source, tmp_path / "a.so", *FLAGS).read_bytes()
    assert read(data) is None
    with open_memory(data) as memory:
        found = read_init_imports(memory, "a", lambda: CythonStrings(inflating=("zlib",)))
    assert found is None


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("b", FLAGS),
        ("a", (*FLAGS, "-fno-asynchronous-unwind-tables", "-Wl,--no-eh-frame-hdr")),
        ("a", (*FLAGS, "-fvisibility=hidden")),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, flags: tuple[str, ...]) -> None:
    """Another module, one without records of its functions, and one that is none."""
    assert read(cc(HEAD + DIRECT, tmp_path / "a.so", *flags).read_bytes(), name) is None


def test_another_machine(tmp_path: Path) -> None:
    data = bytearray(cc(HEAD + DIRECT, tmp_path / "a.so", *FLAGS).read_bytes())
    data[18] = 183
    assert read(bytes(data)) is None


def test_code_that_has_no_end(tmp_path: Path) -> None:
    """Functions that call each other, and one with more calls than are looked at."""
    calls = "".join(f'PyImport_ImportModule("a.b{number}");' for number in range(6000))
    source = f"""
    APART void *one(void); APART void *two(void) {{ other(0); return one(); }} APART void *one(void) {{ other(0); return two(); }}
    void *PyInit_a(void) {{ other(one()); {calls} return 0; }}
    """
    began = time.process_time()
    found = names_of(tmp_path, source, "-O1", "-shared", "-fPIC")
    assert 1000 < len(found) <= 6000
    assert time.process_time() - began < 30
