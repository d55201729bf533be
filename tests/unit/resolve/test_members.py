"""Which members need which, within a wheel, and which are found by a search path entry that is added."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.elf.symbol_reader import read_symbols
from relink.resolve.decide import PlanDraft
from relink.resolve.members import reached
from tests.support.cc import cc
from tests.support.elf_builder import Library, build
from tests.unit.resolve.scenes import Scene, call, codes, define


def test_by_soname_by_name_and_in_a_circle() -> None:
    libraries = {
        "pkg/a.so": Library(soname="liba.so.1", needed=("libb.so", "libc.so.6")),
        "pkg/lib/libb.so": Library(needed=("libc-own.so",)),  # no soname: its name counts
        "pkg/c.so": Library(soname="libc-own.so", needed=("liba.so.1",)),
        "pkg/alone.so": Library(soname="libalone.so", needed=("a.so",)),  # the soname hides the file's name
    }
    images = {name: read_image(build(library), name) for name, library in libraries.items()}
    circle = {"pkg/a.so", "pkg/lib/libb.so", "pkg/c.so"}
    assert reached(images) == {**dict.fromkeys(sorted(circle), circle), "pkg/alone.so": {"pkg/alone.so"}}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    made.provide("lib/libelse.so.1", source=define("other"))
    return made


def carrying(scene: Scene, *places: str, exports: tuple[str, ...] = ("shared",)) -> PlanDraft:
    """A member that needs libown.so.1 and has no search path, and the places where the wheel has such a file."""
    for place in places:
        scene.member(f"{place}/libown.so.1", source=define(*exports))
    scene.member("demo/sub/a.so", ["libown.so.1"], call("shared"))
    return scene.decide()


def test_a_library_that_one_other_member_is(scene: Scene) -> None:
    draft = carrying(scene, "demo/lib")
    (file,) = (item for item in draft.files if item.path == "demo/sub/a.so")
    assert (file.edit.search_path, file.edit.search_kind) == ("$ORIGIN/../lib", "runpath")
    assert [(item.soname, item.origin) for item in file.needed if item.soname == "libown.so.1"] == [
        ("libown.so.1", "wheel")
    ]
    (told,) = (item for item in draft.findings if item.code == "RLK123")
    assert told.message == (
        "libown.so.1 is $WHEEL/demo/lib/libown.so.1; search path entry $ORIGIN/../lib added"
    )
    assert not [item for item in draft.findings if item.level == "error"]
    again = scene.decide_again(draft)
    assert not any(item.changed for item in again.files)
    assert "RLK123" not in codes(again)


def test_a_library_beside_the_member(scene: Scene) -> None:
    draft = carrying(scene, "demo/sub")
    assert [item.edit.search_path for item in draft.files if item.edit] == ["$ORIGIN"]


def test_two_members_of_the_name_are_refused_and_named(scene: Scene) -> None:
    draft = carrying(scene, "demo/lib", "demo/old")
    (error,) = (item for item in draft.findings if item.level == "error")
    assert (error.code, error.subject) == ("RLK101", "libown.so.1")
    assert "the wheel has it 2 times: demo/lib/libown.so.1, demo/old/libown.so.1" in error.message


def test_a_member_that_lacks_the_symbol_is_refused(scene: Scene) -> None:
    draft = carrying(scene, "demo/lib", exports=("something_else",))
    (error,) = (item for item in draft.findings if item.level == "error")
    assert error.code == "RLK302"
    assert "shared" in error.message


def test_what_a_prefix_has_comes_from_there(scene: Scene) -> None:
    scene.provide("lib/libown.so.1", source=define("shared"))
    draft = carrying(scene, "demo/lib")
    assert "RLK123" not in codes(draft)
    (file,) = (item for item in draft.files if item.path == "demo/sub/a.so")
    assert [item.origin for item in file.needed if item.soname == "libown.so.1"] == ["provider"]


def test_a_file_of_that_name_that_is_another_library(scene: Scene) -> None:
    scene.member("demo/lib/libown.so.1", source=define("shared"), flags=["-Wl,-soname,libother.so.1"])
    draft = carrying(scene)
    assert [item.code for item in draft.findings if item.level == "error"] == ["RLK101"]


def test_a_program_of_that_name_is_no_library(scene: Scene) -> None:
    program = cc(
        "int shared(void){return 1;} int main(void){return 0;}", scene.root / "libown.so.1", "-rdynamic"
    )
    data = program.read_bytes()
    name = "demo/bin/libown.so.1"
    scene.images[name], scene.tables[name] = read_image(data, name), read_symbols(data)
    draft = carrying(scene)
    assert "RLK123" not in codes(draft)
    assert [item.code for item in draft.findings if item.level == "error"] == ["RLK101"]


def test_what_a_library_of_the_prefix_lacks_is_not_taken_from_the_wheel(scene: Scene) -> None:
    scene.provide("lib/libelse.so.1", ["libown.so.1"], call("shared") + define("other"))
    scene.member("demo/lib/libown.so.1", source=define("shared"))
    scene.member("demo/sub/a.so", ["libelse.so.1"], call("other"), [f"-Wl,-rpath,{scene.prefix}/lib"])
    draft = scene.decide()
    assert [item.subject for item in draft.findings if item.code == "RLK101"] == ["libown.so.1"]
    assert not any("$ORIGIN" in (file.edit.search_path or "") for file in draft.files)


def test_another_member_that_is_dlopened_is_found(scene: Scene) -> None:
    scene.member("demo/targets/libmigraphx_gpu.so.2", source=define("target"))
    scene.member("demo/libmigraphx.so.2", source=define("program"), flags=["-Wl,-rpath,/nowhere/lib"])
    draft = scene.decide()
    assert [item.subject for item in draft.findings if item.code == "RLK120"] == ["libmigraphx_ref.so.*"]
    assert [item.edit.search_path for item in draft.files if item.edit] == ["$ORIGIN/targets"]
