"""The joined strings of Cython's modules: LZSS streams and lengths that the tests make, in ELF files."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relink.python.cython_strings import inflate_lzss, read_cython_strings
from tests.support.cc import cc


def compiled(tmp_path: Path, *strings: bytes, lengths: Sequence[int] = ()) -> bytes:
    """An ELF file with strings, and an array of their lengths, in its read-only data."""
    texts = (
        f"const char s{number}[] = {{{','.join(str(byte) for byte in text)},0}};"
        for number, text in enumerate(strings)
    )
    index = f"const unsigned index[] = {{{','.join(map(str, lengths))}}};" if lengths else ""
    source = "const char first[] = {0,0};\n" + "\n".join([*texts, index])
    return cc(source, tmp_path / "a.so", "-shared", "-fPIC").read_bytes()


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
    found = read_cython_strings(data)
    assert found is not None
    assert [*found.strings] == strings[1:]
    assert found.inflating == (("zlib",) if compress is zlib.compress else ())


@pytest.mark.parametrize("first", [b"\0", b"\0\1"])
def test_a_stream_that_begins_with_what_cannot_be_printed(tmp_path: Path, first: bytes) -> None:
    strings = [b"", *(bytes([one]) for one in first), b"\n", b" is no number", *IDENTIFIERS]
    text = deflate_lzss(b"".join(strings))
    data = compiled(tmp_path, b"cython_runtime", text, lengths=[*map(len, strings)])
    found = read_cython_strings(data)
    assert found is not None
    assert [*found.strings] == strings[1:]


def test_strings_without_their_lengths(tmp_path: Path) -> None:
    text = b"x" * 80 + b"".join(IDENTIFIERS)
    found = read_cython_strings(compiled(tmp_path, b"cython_runtime", text))
    assert found is not None
    assert (found.text, found.strings) == (text, [])


def test_a_module_that_cython_did_not_make(tmp_path: Path) -> None:
    assert read_cython_strings(compiled(tmp_path, b"x" * 80 + b"".join(IDENTIFIERS))) is None


@pytest.mark.slow(reason="a process of its own")
def test_strings_are_searched_in_one_pass(tmp_path: Path) -> None:
    """A regular expression that takes a byte in two ways tries 2^70 of them. In a process of its own: nothing interrupts it."""
    path = tmp_path / "names.so"
    path.write_bytes(compiled(tmp_path, b"cython_runtime", b"." * 70, b"a." * 60_000))
    script = "import sys; from relink.python.extensions import read_extension_names as read; read(open(sys.argv[1], 'rb').read())"
    subprocess.run([sys.executable, "-c", script, path], check=True, timeout=60)
