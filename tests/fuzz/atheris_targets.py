"""Coverage-guided fuzzing of the pure parsers by atheris (libFuzzer), which :mod:`tests.fuzz.atheris_run` runs.

A parser may raise what it says that it raises; anything else is a find, which libFuzzer writes into ``crash-…``. What is run
first is the small corpus in ``corpus/TARGET``, which ``python -m tests.fuzz.atheris_corpus`` makes of the tests' generators.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from packaging.utils import canonicalize_name

from relink.elf.dynamic import Memory, Strings
from relink.elf.image import read_image, read_sections
from relink.elf.source import BufferSource
from relink.elf.symbol_reader import read_symbols
from relink.gpu.amd.bundle import Budget, parse_bundle
from relink.gpu.amd.kpack import (
    Effort,
    Found,
    KpackReference,
    MsgpackError,
    find_archives,
    parse_archive,
    parse_reference,
    read_msgpack,
    resolve,
)
from relink.indexes.build.web import Page, read_page
from relink.python.extensions import read_extension_names
from relink.system.errors import RelinkError
from relink.wheel.deflate.splice import Blocks
from relink.wheel.deflate.stream import WINDOW, copy_bits
from relink.wheel.directory import read_directory
from relink.wheel.limits import WheelLimits

__all__ = ["TARGETS", "attempt"]

_LARGEST: Final = 1 << 20  # bytes that a stream may inflate to


def directory(data: bytes) -> None:
    """Members of an archive lie inside of it, and apart from each other."""
    members, issues = read_directory(lambda at, size: data[at : at + size], len(data), WheelLimits())
    if not issues:
        places = sorted(
            (item.data_offset, item.data_offset + item.compressed_size) for item in members.values()
        )
        assert all(0 <= first <= last <= len(data) for first, last in places)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(places))


def dynamic(data: bytes) -> None:
    """The readers of headers, the dynamic array and its strings end."""
    with memoryview(data) as view:
        memory = Memory(view)
        memory.read_header()
        Strings(memory)
    read_image(data, "x")
    read_sections(data, "x")


def symbols(data: bytes) -> None:
    """What is imported and exported has a name."""
    table = read_symbols(data)
    assert all(isinstance(item.name, str) for item in table.imports)


def bundle(data: bytes) -> None:
    """No entry that can be used lies outside of its bundle."""
    budget = Budget(inflated=_LARGEST)
    found = parse_bundle(BufferSource(data), 0, len(data), budget)
    assert len(budget.problems) <= 100
    assert found is not None or budget.problems


def kpack(data: bytes) -> None:
    """A damaged archive has problems, and no more than a hundred; what it serves can be told, or is in doubt."""
    archive = parse_archive(BufferSource(data), "x")
    assert len(archive.problems) <= 100
    assert archive.readable or archive.problems
    for target in (None, "gfx90a:xnack+"):
        doubts = resolve(KpackReference("a", (), (0,)), [(Found("x", target), archive)]).doubts
        assert bool(doubts) != archive.readable
    reference = parse_reference(data)
    if isinstance(reference, KpackReference):
        effort = Effort(10_000)
        found = find_archives(reference, "/lib", lambda _: ("a", "b.kpack"), effort)
        assert len(found) <= 2 * len(reference.search_paths)
        assert effort.left >= -400


def msgpack(data: bytes) -> None:
    """What is read ends inside of the data, and costs no more than was given."""
    effort = Effort(100)
    with suppress(MsgpackError):
        assert read_msgpack(data, effort)[1] <= len(data)
    assert -1 <= effort.left <= 100


def deflate(data: bytes) -> None:
    """A block that is found in a stream that zlib reads inflates to the content that follows there."""
    inflater = zlib.decompressobj(-15)
    try:
        content = inflater.decompress(data, _LARGEST)
    except zlib.error:
        return
    if not inflater.eof:
        return
    length = len(data) - len(inflater.unused_data)

    def read(at: int, size: int) -> bytes:
        return data[at : min(at + size, length)]

    for place in {0, len(content) // 3, len(content) // 2}:
        found = Blocks(read, length, memoryview(content)).after(place)
        if found is not None and found[1] < len(content):
            bit, start = found
            assert place <= start
            window = content[max(0, start - WINDOW) : start]
            rest = b"".join(copy_bits(read, bit, 8 * length, (0, 0)))
            assert zlib.decompressobj(-15, window).decompress(rest) == content[start:]


def index_page(data: bytes) -> None:
    """A page of a simple index, in both forms: what is taken is a wheel of the project, on the web, with a whole hash or none."""
    project = canonicalize_name("demo")
    for kind in ("text/html", "application/json"):
        with suppress(RelinkError):
            wheels, _ = read_page(Page("https://index.test/simple/demo/", kind, data), project)
            assert all(wheel.name.canonical == project for wheel in wheels)
            assert all(wheel.url.startswith(("http://", "https://")) for wheel in wheels)
            assert all(wheel.sha256 is None or len(wheel.sha256) == 64 for wheel in wheels)


def init_code(data: bytes) -> None:
    """What the initialisation of a module imports has a name, whatever its code is."""
    found = read_extension_names(data, "a.so")
    assert all(one.names and one.level >= -1 for one in found.imports or ())


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "directory": directory,
    "dynamic": dynamic,
    "symbols": symbols,
    "init_code": init_code,
    "bundle": bundle,
    "kpack": kpack,
    "msgpack": msgpack,
    "deflate": deflate,
    "index_page": index_page,
}


def attempt(target: str, data: bytes) -> None:
    """Try one input: a RelinkError is a proper answer."""
    with suppress(RelinkError):
        TARGETS[target](data)
