"""The same symbols twice in one process, and two versions of one library."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.loader.duplicates import duplicates, two_versions
from relink.loader.loading import trace
from relink.loader.search import Environment
from tests.support.elf_builder import Library
from tests.unit.loader.planted import FIVE, compiled, traced_and_bound


def test_the_same_symbols_twice(environment: Environment, lib: Path) -> None:
    first = compiled(lib / "libfirst.so", FIVE + "int first(void) { return 0; }")
    second = compiled(lib / "libsecond.so", FIVE + "int second(void) { return same_1() + same_2(); }")
    calls = "int same_3(void); int first(void); int user(void) { return same_3() + first(); }"
    user = compiled(lib / "libuser.so", calls, needed=[second])
    of_both = "int same_4(void); int both(void) { return same_4(); }"
    both = compiled(lib / "libboth.so", of_both, needed=[first, second])
    top = compiled(lib / "liba.so", needed=[first, user, both])
    closure, bindings, tables = traced_and_bound(environment, top)
    (pair,) = duplicates(closure, tables, bindings)
    assert (pair.first, pair.second) == (str(first), str(second))
    assert (pair.count, pair.examples) == (5, ("same_0", "same_1", "same_2"))
    # Two of its own calls, and one of its user's: not what it does not export, nor what an object that needs both calls.
    assert pair.mixed == 3
    weak = FIVE.replace("int same", "__attribute__((weak)) int same")
    compiled(lib / "libsecond.so", weak)
    closure, bindings, tables = traced_and_bound(environment, top)
    assert duplicates(closure, tables, bindings) == []  # weak ones are meant to be many


def test_version_nodes_keep_twins_apart(environment: Environment, lib: Path) -> None:
    source = FIVE + "int calling(void) { return same_1(); }"
    first = compiled(lib / "libfirst.so", source, script="ONE { global: same_*; };")
    second = compiled(lib / "libsecond.so", source, script="TWO { global: same_*; };")
    top = compiled(lib / "liba.so", needed=[first, second])
    closure, bindings, tables = traced_and_bound(environment, top)
    assert duplicates(closure, tables, bindings) == []
    compiled(lib / "libsecond.so", source, script="ONE { global: same_*; };")
    closure, bindings, tables = traced_and_bound(environment, top)
    assert [(pair.count, pair.mixed) for pair in duplicates(closure, tables, bindings)] == [(6, 1)]


def test_what_binds_in_one_library_is_no_pair(environment: Environment, lib: Path) -> None:
    first = compiled(lib / "libfirst.so", FIVE)
    second = compiled(lib / "libsecond.so", FIVE)
    top = compiled(lib / "liba.so", needed=[first, second])
    closure, bindings, tables = traced_and_bound(environment, top)
    assert duplicates(closure, tables, bindings) == []


def test_two_versions_of_one_library_with_both_chains(environment: Environment, lib: Path) -> None:
    six = compiled(lib / "libamdhip64.so.6")
    seven = compiled(lib / "libamdhip64.so.7")
    gpu = compiled(lib / "libgpu.so", needed=[six])
    middle = compiled(lib / "libmiddle.so", needed=[gpu])
    top = compiled(lib / "liba.so", needed=[middle, seven])
    (pair,) = two_versions(trace(environment, str(top)))
    assert (pair.stem, pair.sonames) == ("libamdhip64", ("libamdhip64.so.7", "libamdhip64.so.6"))
    assert pair.paths == (str(seven), str(six))
    assert pair.chains == ((str(top), str(seven)), (str(top), str(middle), str(gpu), str(six)))


def test_a_second_version_by_dlopen(environment: Environment, lib: Path) -> None:
    six = compiled(lib / "libamdhip64.so.6")
    seven = compiled(lib / "libamdhip64.so.7")
    gpu = compiled(lib / "libgpu.so", needed=[six])
    top = compiled(lib / "liba.so", needed=[seven])
    closure = trace(
        environment, str(top), dlopens=lambda item: ["libgpu.so"] if item.path == str(top) else []
    )
    (pair,) = two_versions(closure)
    assert pair.chains == ((str(top), str(seven)), (str(top), str(gpu), str(six)))


@pytest.mark.parametrize(("count", "number_of_pairs"), [(4, 6), (20, 28 + 8 * 12), (40, 28 + 8 * 32)])
def test_very_many_versions_of_one_library(
    environment: Environment, lib: Path, count: int, number_of_pairs: int
) -> None:
    """Every two of a few; of many each with the first ones, so that each version more is as many pairs."""
    names = [f"libx.so.{number}" for number in range(count)]
    for name in names:
        Library(name).write(lib / name)
    top = Library("liba.so", tuple(names), runpath="$ORIGIN").write(lib / "liba.so")
    pairs = {pair.sonames for pair in two_versions(trace(environment, str(top)))}
    assert len(pairs) == number_of_pairs
    assert {second for _, second in pairs} == {*names[1:]}


@pytest.mark.parametrize(
    ("one", "other", "stem"),
    [
        ("libLLVM-17.so.1", "libLLVM.so.20.0git", "libLLVM"),
        ("libgomp-a34b3233.so.1.0.0", "libgomp.so.1", "libgomp"),
        ("librocblas.so.3", "librocblas.so.4", "librocblas"),
        ("libfoo64.so.1", "libfoo32.so.1", None),
        ("libfoo.so.1", "libfoobar.so.1", None),
    ],
)
def test_what_counts_as_one_library(
    environment: Environment, lib: Path, one: str, other: str, stem: str | None
) -> None:
    top = compiled(lib / "liba.so", needed=[compiled(lib / one), compiled(lib / other)])
    assert [pair.stem for pair in two_versions(trace(environment, str(top)))] == ([stem] if stem else [])
