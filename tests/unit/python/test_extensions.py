"""What extensions import in C: against ELF files with the strings that C, Cython and others leave in them."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.python.extensions import read_extension_names
from relink.python.facts_cache import FactsCache
from relink.python.process import PythonProcesses
from tests.support.cc import cc
from tests.support.python_processes import opened, python_of, read_events, write_files

IMPORT = "void *PyImport_ImportModule(const char *);\n"


def compiled(tmp_path: Path, *strings: bytes) -> bytes:
    """A module of another name than its file's: the strings in its data are what is known of it."""
    texts = (
        f"const char s{number}[] = {{{','.join(str(byte) for byte in text)},0}};"
        for number, text in enumerate(strings)
    )
    source = "const char first[] = {0,0};\n" + "\n".join(texts) + IMPORT
    source += "void *PyInit_a(void) { return PyImport_ImportModule(s0); }\n"
    return cc(source, tmp_path / "a.so", "-shared", "-fPIC").read_bytes()


def test_strings_and_capsules(tmp_path: Path) -> None:
    names = read_extension_names(compiled(tmp_path, b"other.api", b"datetime.datetime_CAPI", b"two words"))
    assert names.certain == ("datetime",)
    assert {"other.api", "datetime.datetime_CAPI"} <= set(names.names)
    assert "two words" not in names.names


@pytest.mark.parametrize("data", [b"", b"no ELF file", b"\x7fELF" + b"\0" * 60])
def test_what_is_no_elf_file_has_no_names(data: bytes) -> None:
    assert read_extension_names(data).names == ()


def test_an_import_in_c_is_inferred(tmp_path: Path) -> None:
    """Where its code is not read, modules of the own package are taken for imports, and cffi's."""
    write_files(
        tmp_path,
        {
            "package/__init__.py": "from . import x\n",
            "package/x.so": compiled(tmp_path, b"package.own", b"stranger.api", b"_cffi_backend"),
            "_cffi_backend.so": "",
            "package/own.so": "",
            "stranger/api.so": "",
        },
    )
    assert opened(read_events(tmp_path, "package"), tmp_path) == [
        ("package/x.so", "certain"),
        ("package/own.so", "inferred"),
        ("_cffi_backend.so", "inferred"),
    ]


# What a module of Cython does: its strings are in variables, which it takes the names of modules from.
CYTHON = """
void *PyImport_ImportModuleLevelObject(void *, void *, void *, void *, int);
struct entry { void **variable; const char *text; long more[3]; };
const char marker[] = "cython_runtime";
"""


def made_by_cython(tmp_path: Path, *imports: tuple[str, str, int]) -> bytes:
    """A module `c` that imports modules: of each the name, the name that is taken of it, and the level."""
    words = sorted({word for name, taken, _ in imports for word in (name, taken)})
    variables = "".join(f"static void *v{number}; " for number in range(len(words)))
    table = ", ".join(f'{{&v{number}, "{word}"}}' for number, word in enumerate(words))
    calls = "".join(
        f"list = v{words.index(taken)}; "
        f"PyImport_ImportModuleLevelObject(v{words.index(name)}, 0, 0, (void *)&list, {level});\n"
        for name, taken, level in imports
    )
    source = f"{CYTHON}{variables}\nstruct entry table[] = {{{table}}};\n"
    source += f"void *volatile list;\nvoid *PyInit_c(void) {{ {calls} return 0; }}\n"
    return cc(source, tmp_path / "c.so", "-O2", "-shared", "-fPIC").read_bytes()


SITE = {
    "lib/lazy.py": "__all__ = ('Thing', 'Other')\ndef public(): ...\ndef __getattr__(name):\n"
    " if name == 'Thing':\n  import _lazy\n raise AttributeError\n",
    "lib/_lazy.so": "",
    "lib/platform.py": "def uname(): ...\ndef machine(): ...\n",
    "lib/subprocess.py": "import _sub\n",
    "lib/_sub.so": "",
    "lib/math.so": "",
    "site/pkg/__init__.py": "from . import c\n",
    "site/pkg/math.so": "",
    "site/pkg/part.so": "",
}


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ([("math", "pi", 0)], ["lib/math.so"]),
        ([("math", "pi", 1)], ["site/pkg/math.so"]),
        ([("pkg", "part", 0)], ["site/pkg/part.so"]),
        ([("", "part", 1)], ["site/pkg/part.so"]),
        ([("pkg", "other", 0)], []),
        ([("part", "other", 1)], ["site/pkg/part.so"]),
        ([("part", "other", 0)], []),
        ([("lazy", "public", 0)], []),
        ([("lazy", "Thing", 0)], ["lib/_lazy.so"]),
        ([("platform", "machine", 0)], []),
        ([("platform", "uname", 0)], ["lib/_sub.so"]),
        ([("math", "pi", 1), ("pkg", "part", 0)], ["site/pkg/math.so", "site/pkg/part.so"]),
    ],
)
def test_what_cython_imports(
    tmp_path: Path, imports: list[tuple[str, str, int]], expected: list[str]
) -> None:
    """The level, what is taken of a package, and what a module has by its hook alone are as in a source."""
    write_files(tmp_path, {**SITE, "site/pkg/c.so": made_by_cython(tmp_path, *imports)})
    python = replace(
        python_of(tmp_path / "site"),
        path=(f"{tmp_path}/lib", f"{tmp_path}/site"),
        standard=(f"{tmp_path}/lib",),
    )
    events = PythonProcesses(python, cache=FactsCache(None), variables={}).read_import("pkg")
    assert opened(events, tmp_path) == [
        ("site/pkg/c.so", "certain"),
        *((one, "inferred") for one in expected),
    ]


def test_what_functions_import_later(tmp_path: Path) -> None:
    source = IMPORT + 'void *later(void) { return PyImport_ImportModule("pkg.later"); }\n'
    source += 'void *PyInit_c(void) { return PyImport_ImportModule("pkg.now"); }\n'
    write_files(
        tmp_path,
        {
            "pkg/__init__.py": "from . import c\n",
            "pkg/c.so": cc(source, tmp_path / "c.so", "-O2", "-shared", "-fPIC").read_bytes(),
            "pkg/now.so": "",
            "pkg/later.so": "",
        },
    )
    assert opened(read_events(tmp_path, "pkg"), tmp_path) == [
        ("pkg/c.so", "certain"),
        ("pkg/now.so", "inferred"),
    ]


def test_the_strings_of_cython_where_its_code_is_not_read(tmp_path: Path) -> None:
    words = ("__main__", "__name__", "__test__", "pkg.own", "stranger")
    text = zlib.compress("".join(words).encode() + bytes(9))
    lengths = ",".join(str(len(word)) for word in (*words, "filling"))
    source = f"const unsigned char text[] = {{{','.join(map(str, text))}}}; const unsigned lengths[] = {{{lengths}}};"
    source += 'const char *const marks[] = {"cython_runtime", "zlib"}; const char names[] = "\\0zlib\\0cython_runtime";'
    write_files(
        tmp_path,
        {
            "pkg/__init__.py": "from . import x\n",
            "pkg/x.so": cc(f"{source}int PyInit_a;", tmp_path / "x.so", "-shared", "-fPIC").read_bytes(),
            "pkg/own.so": "",
            "stranger.so": "",
            "zlib.so": "",
        },
    )
    found = opened(read_events(tmp_path, "pkg"), tmp_path)
    assert found == [("pkg/x.so", "certain"), ("zlib.so", "inferred"), ("pkg/own.so", "inferred")]


def test_what_has_the_bodies_of_modules_of_mypyc(tmp_path: Path) -> None:
    """It imports for its modules, when they are imported; but what it has functions of."""
    source = f'{IMPORT}void *PyInit_ab__mypyc(void) {{ return PyImport_ImportModule("pkg.own"); }}'
    source += 'const char names[] = "\\0other.two._C_API";'
    write_files(
        tmp_path,
        {
            "pkg/__init__.py": "from . import ab__mypyc\n",
            "pkg/own.so": "",
            "pkg/ab__mypyc.so": cc(source, tmp_path / "ab.so", "-O2", "-shared", "-fPIC").read_bytes(),
            "other/two.so": "",
        },
    )
    found = opened(read_events(tmp_path, "pkg"), tmp_path)
    assert found == [("pkg/ab__mypyc.so", "certain"), ("other/two.so", "inferred")]


def test_what_an_extension_imports_happens_even_where_a_test_may_import_it_too(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "pkg/__init__.py": "if unknown():\n import pkg.a\nimport pkg.c\n",
            "pkg/c.so": compiled(tmp_path, b"pkg.a"),
            "pkg/a.so": "",
        },
    )
    found = opened(read_events(tmp_path, "pkg"), tmp_path)
    assert sorted(found) == [("pkg/a.so", "inferred"), ("pkg/c.so", "certain")]


def test_a_module_of_cffi_in_a_package_is_not_cffi(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "pkg/__init__.py": "from . import _cffi_backend\n",
            "pkg/_cffi_backend.so": compiled(tmp_path, b"_cffi_backend"),
            "_cffi_backend.so": "",
        },
    )
    assert opened(read_events(tmp_path, "pkg"), tmp_path) == [("pkg/_cffi_backend.so", "certain")]


def test_the_source_of_an_extension(tmp_path: Path) -> None:
    """mypyc and Cython leave it beside: what it imports is imported, and its functions are followed when they are called."""
    source = "import pkg.a\ndef load():\n    import pkg.b\n"
    write_files(
        tmp_path,
        {
            "pkg/__init__.py": "from .c import load\nload()\n",
            "pkg/c.py": source,
            **{f"pkg/{name}.so": "" for name in "abc"},
        },
    )
    found = opened(read_events(tmp_path, "pkg"), tmp_path)
    assert found == [("pkg/c.so", "certain"), ("pkg/a.so", "inferred"), ("pkg/b.so", "certain")]


def test_what_the_code_of_an_extension_does_not_show(tmp_path: Path) -> None:
    """Of some extensions it is known what they load: a library beside them, where it is there, and modules."""
    data = compiled(tmp_path, b"stranger.api")
    write_files(
        tmp_path,
        {
            "package/__init__.py": "from onnxruntime.capi import onnxruntime_pybind11_state\nfrom pyarrow import _dataset\n",
            "onnxruntime/capi/onnxruntime_pybind11_state.so": data,
            "onnxruntime/capi/libonnxruntime_providers_shared.so": "",
            "pyarrow/_dataset.so": data,
            "pandas.so": "",
        },
    )
    found = [
        ("onnxruntime/capi/onnxruntime_pybind11_state.so", "certain"),
        ("onnxruntime/capi/libonnxruntime_providers_shared.so", "inferred"),
        ("pyarrow/_dataset.so", "certain"),
        ("pandas.so", "inferred"),
    ]
    assert opened(read_events(tmp_path, "package"), tmp_path) == found
    (tmp_path / "onnxruntime/capi/libonnxruntime_providers_shared.so").unlink()
    assert opened(read_events(tmp_path, "package"), tmp_path) == [found[0], *found[2:]]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_library_that_an_extension_opens_in_c(tmp_path: Path, is_there: bool) -> None:
    """As Pillow, which goes on without libfribidi: what the loader's cache has is opened, under either name."""
    source = "void *dlopen(const char *, int);\n"
    source += 'void *PyInit_x(void) { void *found = dlopen("libfri.so", 1); return found ? found : dlopen("libfri.so.0", 1); }\n'
    data = cc(source, tmp_path / "x.so", "-O2", "-shared", "-fPIC").read_bytes()
    write_files(tmp_path, {"package/__init__.py": "from . import x\n", "package/x.so": data})
    cached = {"fri": "libfri.so.0"} if is_there else {}
    processes = PythonProcesses(
        python_of(tmp_path), cache=FactsCache(None), variables={}, find_soname=cached.get
    )
    expected = [("package/x.so", "certain"), *([("libfri.so.0", "inferred")] * is_there)]
    assert [*dict.fromkeys(opened(processes.read_import("package"), tmp_path))] == expected
