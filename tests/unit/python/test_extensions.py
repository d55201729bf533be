"""What extensions import in C: against ELF files with the strings that C, Cython and others leave in them."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from relink.python.extensions import inflate_lzss, read_extension_names
from relink.python.facts_cache import FactsCache
from relink.python.process import PythonProcesses
from tests.support.python_processes import opened, python_of, read_events, write_files

JOINED = "__name__" + "a" * 80 + "itemsother.apipropertyproxy.partreprpackage._own__main____test__"


def compiled(tmp_path: Path, *strings: bytes, lengths: Sequence[int] = ()) -> bytes:
    """An ELF file with strings, and an array of their lengths, in its read-only data."""
    source = tmp_path / "a.c"
    texts = (
        f"const char s{number}[] = {{{','.join(str(byte) for byte in text)},0}};"
        for number, text in enumerate(strings)
    )
    index = f"const unsigned index[] = {{{','.join(map(str, lengths))}}};" if lengths else ""
    calls = "void *PyImport_ImportModule(const char *);\nvoid *PyInit_a(void) { return PyImport_ImportModule(s0); }\n"
    source.write_text("const char first[] = {0,0};\n" + "\n".join([*texts, index, calls]))
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "a.so", source], check=True)
    return (tmp_path / "a.so").read_bytes()


def test_strings_and_capsules(tmp_path: Path) -> None:
    names = read_extension_names(compiled(tmp_path, b"other.api", b"datetime.datetime_CAPI", b"two words"))
    assert names.certain == ("datetime",)
    assert {"other.api", "datetime.datetime_CAPI"} <= set(names.names)
    assert "two words" not in names.names


@pytest.mark.parametrize("compress", [False, True])
def test_joined_strings_of_cython(tmp_path: Path, compress: bool) -> None:
    text = zlib.compress(JOINED.encode()) if compress else JOINED.encode()
    names = read_extension_names(compiled(tmp_path, b"cython_runtime", b"zlib", text))
    assert "other.apiproperty" in names.joined
    assert names.certain == (("zlib",) if compress else ())


@pytest.mark.slow(reason="a process of its own")
def test_strings_are_searched_in_one_pass(tmp_path: Path) -> None:
    """A regular expression that takes a byte in two ways tries 2^70 of them. In a process of its own: nothing interrupts it."""
    path = tmp_path / "names.so"
    path.write_bytes(compiled(tmp_path, b"cython_runtime", b"." * 70, b"a." * 60_000))
    script = "import sys; from relink.python.extensions import read_extension_names as read; read(open(sys.argv[1], 'rb').read())"
    subprocess.run([sys.executable, "-c", script, path], check=True, timeout=60)


@pytest.mark.parametrize("data", [b"", b"no ELF file", b"\x7fELF" + b"\0" * 60])
def test_what_is_no_elf_file_has_no_names(data: bytes) -> None:
    assert read_extension_names(data).names == ()


def test_an_import_in_c_is_inferred(tmp_path: Path) -> None:
    """Only modules of the own package and of what the distribution requires are taken for imports, and cffi's."""
    data = compiled(
        tmp_path, b"cython_runtime", b"package.own", b"stranger.api", b"_cffi_backend", JOINED.encode()
    )
    metadata = "Metadata-Version: 2.1\nName: {0}\nVersion: 1\n{1}\n"
    write_files(
        tmp_path / "site",
        {
            "package/__init__.py": "from . import x\n",
            "package/x.so": data,
            "_cffi_backend.so": "",
            **{
                f"{name}.so": ""
                for name in ("package/own", "package/_own", "other/api", "stranger/api", "proxy/part")
            },
            "package-1.dist-info/METADATA": metadata.format("package", "Requires-Dist: Other-Thing>=1"),
            "package-1.dist-info/RECORD": "package/__init__.py,,\n",
            "other_thing-1.dist-info/METADATA": metadata.format("other-thing", ""),
            "other_thing-1.dist-info/RECORD": "other/api.so,,\n",
        },
    )
    found = opened(read_events(tmp_path / "site", "package"), tmp_path / "site")
    assert found == [
        ("package/x.so", "certain"),
        ("package/own.so", "inferred"),
        ("_cffi_backend.so", "inferred"),
        ("other/api.so", "inferred"),
        ("package/_own.so", "inferred"),
    ]


def deflate_lzss(data: bytes) -> bytes:
    """Compress as Cython 3.3 does, each text that is repeated in the shortest of the three forms."""
    parts: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        sizes = range(min(258, len(data) - at), 2, -1)
        found = next(
            (size for size in sizes if data.find(data[at : at + size], max(0, at - 16_000), at) >= 0), 1
        )
        between = at - data.rfind(data[at : at + found], 0, at) - found
        if found == 1:
            parts.append((1, data[at : at + 1]))
        elif between < 0x80:
            parts.append((0, bytes([between, found - 3])))
        else:
            low, high, size = 0x80 | between & 0x7F, between - 0x80 >> 7, found - 3
            short = high < 4 and size < 32
            parts.append((0, bytes([low, high << 5 | size] if short else [low, 0x80 | high, size])))
        at += found
    groups = [parts[start : start + 8] for start in range(0, len(parts), 8)]
    flags = [sum(bit << number for number, (bit, _) in enumerate(group)) for group in groups]
    return b"".join(
        bytes([flag, *b"".join(part for _, part in group)]) for flag, group in zip(flags, groups, strict=True)
    )


TEXT = b"".join(b"%d%d%s" % (number * number, number % 7, b"abc" * (number % 30)) for number in range(150))


def test_each_form_of_a_reference() -> None:
    stream = deflate_lzss(TEXT)
    assert len(stream) < len(TEXT) // 2
    assert inflate_lzss(stream, 0)[: len(TEXT)] == TEXT
    # At its end, and where a reference leads before the start, is nothing more.
    assert inflate_lzss(b"\x0fabcd\xff\xff\xff", 0) == b"abcd"
    assert inflate_lzss(b"\xffabc", 0).startswith(b"abc")


SENTENCES = [b"", b" is no number", b"Of %s. " % (b"more than one " * 30)]
IDENTIFIERS = [
    b"__main__",
    b"a__name",
    b"__name__",
    b"__test__",
    b"cmath",
    b"isclose",
    b"math",
    b"other",
    b"rel_tol",
]


@given(st.binary(max_size=400), st.integers(0, 400))
def test_any_stream_ends(data: bytes, start: int) -> None:
    """A part of a stream takes a byte and more, and gives 258 at most."""
    assert len(inflate_lzss(data, start)) <= 258 * len(data)


@pytest.mark.parametrize("compress", [deflate_lzss, zlib.compress, bytes])
def test_the_lengths_of_joined_strings(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    """The strings of the source are told from others, and from parts of each other."""
    strings = [*SENTENCES, *IDENTIFIERS]
    text = compress(b"".join(strings))
    data = compiled(tmp_path, b"cython_runtime", b"zlib", b"__pyx_capi__", text, lengths=[*map(len, strings)])
    found = read_extension_names(data)
    assert found.words == tuple(one.decode() for one in IDENTIFIERS)
    assert found.joined == ""
    assert "__pyx_capi__" in found.names


@pytest.mark.parametrize("first", [b"\0", b"\0\1"])
def test_a_stream_that_begins_with_what_cannot_be_printed(tmp_path: Path, first: bytes) -> None:
    strings = [b"", *(bytes([one]) for one in first), b"\n", b" is no number", *IDENTIFIERS]
    text = deflate_lzss(b"".join(strings))
    data = compiled(tmp_path, b"cython_runtime", text, lengths=[*map(len, strings)])
    assert read_extension_names(data).words == tuple(one.decode() for one in IDENTIFIERS)


SITE = {
    "lib/both.py": "class Queue: ...\nclass Lock: ...\n",
    "lib/lazy.py": "__all__ = ('Thing', 'Other')\ndef public(): ...\ndef __getattr__(name):\n"
    " if name == 'Thing':\n  import _lazy\n raise AttributeError\n",
    "lib/_lazy.so": "",
    "lib/platform.py": "def uname(): ...\ndef machine(): ...\n",
    "lib/subprocess.py": "import _sub\n",
    "lib/_sub.so": "",
    "site/pkg/_log.py": "import pkg.d\nclass Parser: ...\n",
    "site/pkg/d.so": "",
    "lib/cmath.so": "",
    "lib/queue.py": "from _queue import *\nclass Queue:\n    def put(self): ...\n",
    "lib/_queue.so": "",
    "lib/pickle.py": "import _pickle\nPickleError = 1\ndumps = 2\n",
    "lib/_pickle.so": "",
    "site/pkg/__init__.py": "from . import c\n",
}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["queue", "put", "SimpleQueue"], []),
        (["queue", "Queue"], ["lib/_queue.so"]),
        (["queue", "Empty"], ["lib/_queue.so"]),
        (["cmath", "isclose"], []),
        (["cmath", "isclose", "rel_tol"], ["lib/cmath.so"]),
        (["pickle", "dumps"], ["lib/_pickle.so"]),
        (["pickle", "dumps", "PickleError"], []),
        (["queue", "Queue", "both", "Lock"], []),
        (["lazy", "public"], []),
        (["lazy", "public", "Thing", "Other"], ["lib/_lazy.so"]),
        (["platform", "machine"], []),
        (["platform", "uname"], ["lib/_sub.so"]),
        (["_log", "Other"], []),
        (["_log", "Parser"], ["site/pkg/d.so"]),
    ],
)
def test_modules_of_the_standard_library(tmp_path: Path, words: list[str], expected: list[str]) -> None:
    """A word that names one is its name where other words are names that it has; Cython's own code uses some."""
    write_files(tmp_path, SITE)
    (tmp_path / "lib/_queue.so").write_bytes(compiled(tmp_path, b"Empty"))
    (tmp_path / "lib/cmath.so").write_bytes(compiled(tmp_path, b"isclose", b"rel_tol"))
    (tmp_path / "site/pkg/c.so").write_bytes(compiled(tmp_path, *(word.encode() for word in words)))
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


def test_what_needs_an_extension_is_imported_by_it_later(tmp_path: Path) -> None:
    """A source that it names needs it itself, or another one that is imported by then: pyarrow.lib names pyarrow.compute."""
    write_files(
        tmp_path,
        {
            "pkg/__init__.py": "from . import above\n",
            "pkg/above.py": "import pkg.c\n",
            "pkg/c.so": compiled(tmp_path, b"pkg.one", b"pkg.two", b"pkg.three", b"pkg.four"),
            "pkg/one.py": "import pkg.two\nimport pkg.a\n",
            "pkg/two.py": "import pkg.c, pkg.b\n",
            "pkg/three.py": "import pkg.above, pkg.d\n",
            "pkg/four.py": "import pkg, pkg.e\n",
            **{f"pkg/{name}.so": "" for name in "abde"},
        },
    )
    found = opened(read_events(tmp_path, "pkg"), tmp_path)
    assert found == [("pkg/c.so", "certain"), ("pkg/e.so", "inferred")]


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


def test_what_pybind11_converts(tmp_path: Path) -> None:
    """It names modules of numpy for when an array comes; what import_array() names is imported with the extension."""
    metadata = "Metadata-Version: 2.1\nName: {0}\nVersion: 1\n{1}\n"
    write_files(
        tmp_path / "site",
        {
            "pkg/__init__.py": "from . import x\n",
            "pkg/x.so": compiled(
                tmp_path, b"pybind11_", b"numpy.lib", b"numpy", b"numpy._core._multiarray_umath"
            ),
            "numpy/lib.so": "",
            "numpy/_core/_multiarray_umath.so": "",
            "pkg-1.dist-info/METADATA": metadata.format("pkg", "Requires-Dist: numpy"),
            "pkg-1.dist-info/RECORD": "pkg/__init__.py,,\n",
            "numpy-1.dist-info/METADATA": metadata.format("numpy", ""),
            "numpy-1.dist-info/RECORD": "numpy/lib.so,,\n",
        },
    )
    found = opened(read_events(tmp_path / "site", "pkg"), tmp_path / "site")
    assert found == [("pkg/x.so", "certain"), ("numpy/_core/_multiarray_umath.so", "inferred")]
