"""The closure's own promises; which libraries are loaded is tests/loader_rules' and tests/fuzz's business."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.loader.closure import breadth_first, file_of, needed_by
from relink.loader.loading import load, trace
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library, build
from tests.unit.loader.planted import sonames

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


def test_trace(world: Path, environment: Environment) -> None:
    closure = trace(environment, f"{world}/liba.so")
    assert sonames(closure, closure.scope) == ["liba.so", "libb.so", "libc1.so"]
    assert closure.roots == (0,)
    assert closure.objects[1].path == environment.target.interpreter
    assert [(edge.soname, edge.requester) for edge in closure.missing] == [("libgone.so", 2)]
    assert {edge.found_by.rule for edge in closure.edges if edge.found_by} == {"runpath", "loaded"}
    assert closure.objects[2].origin == str(world)
    assert closure.objects[2].loader == 0
    assert closure.fatal is None


def test_edges_are_told_once(world: Path, environment: Environment) -> None:
    closure = load(environment, [f"{world}/liba.so", f"{world}/libb.so", f"{world}/liba.so"])
    asked = [(edge.requester, edge.soname) for edge in closure.edges]
    assert len(asked) == len(set(asked))


def test_fatal(world: Path, environment: Environment) -> None:
    (world / "libgone.so").write_text("INPUT(x)")
    closure = trace(environment, f"{world}/liba.so")
    assert closure.fatal == f"{world}/libgone.so: file too short"


def test_the_search_list_is_by_distance_and_says_who_led_there() -> None:
    needed = {0: [1, 2], 1: [3, 0], 2: [3, 4], 3: [5]}
    assert list(breadth_first(needed, [0]).items()) == [(0, None), (1, 0), (2, 0), (3, 1), (4, 2), (5, 3)]
    # A start that is needed by another one was not led to.
    assert list(breadth_first(needed, [2, 3]).items()) == [(2, None), (3, None), (4, 2), (5, 3)]


def test_what_is_missing_is_nobodys_need(world: Path, environment: Environment) -> None:
    closure = trace(environment, f"{world}/liba.so")
    names = [item.image.soname for item in closure.objects]
    by_name = {
        names[index]: [names[target] for target in targets] for index, targets in needed_by(closure).items()
    }
    assert by_name == {
        "liba.so": ["libb.so", "libc1.so"],
        "libb.so": ["libc1.so"],  # and libgone.so, which is missing
        "libc1.so": ["liba.so"],
    }


def test_a_soname_is_a_name_only_after_it_was_asked_for(tmp_path: Path, environment: Environment) -> None:
    Library("libx.so.1").write(tmp_path / "libx.so")
    top = Library("liba.so", ("libx.so",), runpath="$ORIGIN").write(tmp_path / "liba.so")
    closure = trace(environment, str(top))
    found = closure.names
    assert found["libx.so"] == found[f"{tmp_path}/libx.so"] == (2,)
    assert "libx.so.1" not in found
    loader = next(item for item in closure.objects if item.identity[0] == "loader")
    assert found[loader.image.soname or ""] == (1,)  # always, though nothing needs the loader here
    assert str(top) not in found  # the program has no path among its names


def test_a_member_is_the_same_file_as_program_and_as_library(
    tmp_path: Path, environment: Environment
) -> None:
    member = read_image(build(Library("liba.so")), "pkg/liba.so")
    place = f"{tmp_path}/liba.so"
    over = Environment(environment.target, Files(overlay={place: member}))
    program, library = trace(over, place).objects[0], load(over, [place], sys.executable)
    root = library.objects[library.roots[0]]
    assert program.identity != root.identity
    assert file_of(program) == file_of(root) == ("member", "pkg/liba.so")
    # The program of this process and the loader are what lies at their paths.
    assert file_of(library.objects[0]) == ("program", library.objects[0].path)
