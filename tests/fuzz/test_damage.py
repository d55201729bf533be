"""Damaged ELF files: reading one gives facts or an ElfError, nothing else, and the loader simulation never falls over it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relink.elf.image import Header, Image, read_image, read_sections
from relink.loader.loading import trace
from relink.loader.search import Environment, reject
from relink.loader.seen_files import Files
from relink.loader.target import find_target
from relink.system.errors import ElfError
from tests.support.amount import amount
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Export, Import, Library, build

BUILT = build(
    Library(
        "libx.so",
        ("liba.so", "libb.so"),
        rpath="$ORIGIN",
        exports=(Export("f", "V1"), Export("g")),
        imports=(Import("h", "V2", "liba.so"),),
        hash="both",
    )
)
FOREIGN = build(Library("libx.so", machine=3, elf_class=32))
HEADER = Header(64, little_endian=True, osabi=0, abi_version=0, kind=3, machine=62)

Damage = tuple[list[tuple[float, int]], float]


def damages(count: int) -> st.SearchStrategy[Damage]:
    """Flips of bytes, most of them near the start where the structure is, and a cut."""
    place = st.one_of(st.floats(0, 0.3), st.floats(0, 1))
    flips = st.lists(st.tuples(place, st.integers(0, 255)), min_size=1, max_size=count)
    return st.tuples(flips, st.one_of(st.just(1.0), st.floats(0, 1)))


def damaged(data: bytes, damage: Damage) -> bytes:
    flips, cut = damage
    changed = bytearray(data)
    for place, value in flips:
        changed[int(place * (len(changed) - 1))] = value
    return bytes(changed[: int(cut * len(changed))])


def read(data: bytes) -> Image | None:
    image = None
    said = "x: "
    try:
        image = read_image(data, "x")
    except ElfError as error:
        said = error.message
    assert said.startswith("x: ")
    try:
        read_sections(data, "x")
    except ElfError as error:
        said = error.message
    assert said.startswith("x: ")
    return image


@settings(max_examples=amount(800), deadline=None)
@given(st.sampled_from((BUILT, FOREIGN)), damages(6))
def test_built_libraries(data: bytes, damage: Damage) -> None:
    read(damaged(data, damage))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("compiled") / "libx.so"
    return shared(path, "int f(void) { return 1; }\nint g = 2;\n").read_bytes()


def test_a_compiled_library(compiled: bytes) -> None:
    @settings(max_examples=amount(500), deadline=None)
    @given(damages(6))
    def run(damage: Damage) -> None:
        read(damaged(compiled, damage))

    run()


@settings(max_examples=amount(300), deadline=None)
@given(st.binary(max_size=300))
@example(b"\x7fELF\x02\x01\x01" + bytes(57))
def test_noise(data: bytes) -> None:
    read(data)
    read(b"\x7fELF\x02\x01" + data)


@pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
def test_the_simulation_takes_damage_for_a_fact(tmp_path: Path) -> None:
    here = tmp_path.resolve()
    target = msgspec.structs.replace(find_target(), cache=None)
    program = Library(needed=("libx.so",), runpath="$ORIGIN").write(here / "prog")

    @settings(max_examples=amount(200), deadline=None)
    @given(damages(3))
    def run(damage: Damage) -> None:
        (here / "libx.so").write_bytes(damaged(BUILT, damage))
        files = Files()
        refused = reject(files.open(f"{here}/libx.so"), HEADER)
        closure = trace(Environment(target, files), str(program))
        assert (closure.fatal is not None) == (refused is not None and refused.fatal)
        assert len(closure.objects) == 2 + (refused is None)

    run()
