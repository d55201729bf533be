"""Which members are found by a search path entry that is added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.elf.symbol_reader import read_symbols
from relink.planning.resolve.decide import PlanDraft, decide
from relink.system.errors import WheelError
from tests.support.cc import cc
from tests.support.effort import lines_run
from tests.support.elf_builder import Export, Import, Library, build
from tests.unit.planning.resolve.scenes import Scene, call, codes, define


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


MANY: dict[str, Callable[[int], dict[str, Library]]] = {
    "alone": lambda number: {f"m{number}.so": module(number)},
    "one soname": lambda number: {f"m{number}.so": module(number, soname="libsame.so.1")},
    "own soname, own search path": lambda number: {
        f"m{number}.so": module(number, soname=f"m{number}.so", runpath=f"/opt/rocm{number}/lib:$ORIGIN")
    },
    "of a library that is missing": lambda number: {
        f"m{number}.so": module(number, needed=(f"libnowhere{number}.so.1",))
    },
    "in a star": lambda number: {
        f"m{number}.so": module(number, soname=f"m{number}.so", needed=("m0.so",) if number else ())
    },
    "the same exports, by relocations": lambda number: {
        f"m{number}.so": replace(
            module(number), exports=(Export("same"), Export("other")), relocations=((0x200, 1, 2, 0),)
        )
    },
    "each with its own copy of a library": lambda number: {
        f"m{number}.so": module(number, needed=("libcopy.so.1",), runpath=f"$ORIGIN/d{number}"),
        f"d{number}/libcopy.so.1": Library(soname="libcopy.so.1", exports=(Export("copied"),)),
    },
    "with an open import": lambda number: {
        f"m{number}.so": replace(module(number), imports=(Import(f"lost{number}"), Import("f0")))
    },
    "with a forgotten NEEDED": lambda number: {
        f"m{number}.so": replace(module(number), needed=() if number % 9 else ("libgen.so.1",))
    },
    "with versions that nothing defines": lambda number: {
        f"m{number}.so": replace(module(number), imports=(Import("f0", f"V{number}", "libgen.so.1"),))
    },
    "with a NEEDED that is replaced": lambda number: {
        f"m{number}.so": replace(module(number), needed=("libgen.so.0",))
    },
}
"""Members of a wheel by their number; each is a root."""


def module(
    number: int, needed: tuple[str, ...] = (), soname: str | None = None, runpath: str = "$ORIGIN"
) -> Library:
    return Library(
        soname,
        ("libgen.so.1", *needed),
        runpath=runpath,
        imports=(Import("f0"), Import("f1")),
        exports=(Export(f"init{number}"),),
    )


def many(root: Path, members: Callable[[int], dict[str, Library]], count: int) -> Scene:
    made = Scene(root, substitutes=(("libgen.so.0", "libgen.so.1"),))
    versions = ("V",) if members is MANY["with versions that nothing defines"] else ()
    Library("libgen.so.1", exports=(Export("f0"), Export("f1")), versions=versions).write(
        made.prefix / "lib/libgen.so.1"
    )
    for number in range(count):
        for path, library in members(number).items():
            data, name = build(library), f"pkg/{path}"
            made.images[name], made.tables[name] = read_image(data, name), read_symbols(data)
    return made


@pytest.mark.parametrize("kind", MANY)
def test_many_elf_hang(tmp_path: Path, kind: str) -> None:
    """Each root more takes the same work, however many there are."""
    many(tmp_path, MANY[kind], 3).decide()  # what is read once in a process is read now
    counts = [lines_run(many(tmp_path, MANY[kind], count).decide) for count in (10, 20, 30)]
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    assert 0 < second <= 1.015 * first


def test_many_elf_hang_in_a_row(tmp_path: Path) -> None:
    """What is n files for each of n members has a limit, and no recursion goes along it."""

    def member(number: int) -> dict[str, Library]:
        name = f"m{number}.so"
        return {name: module(number, soname=name, needed=(f"m{number + 1}.so",), runpath="$ORIGIN")}

    scene = many(tmp_path, member, 1100)
    with pytest.raises(
        WheelError, match="load more than 500 files, added up over all of them; --limit loads=1000"
    ):
        decide(replace(scene.context(), most_loads=500), scene.tables)
    assert decide(replace(many(tmp_path, member, 30).context(), most_loads=500), scene.tables).files


def test_many_elf_hang_in_vain(tmp_path: Path) -> None:
    """100 files of 1,000 missing libraries each, 0.5 MB of wheel, took 15 s: each NEEDED counts before any is looked for."""

    def member(number: int) -> dict[str, Library]:
        needed = tuple(f"libmissing{each}.so" for each in range(10))
        return {f"m{number}.so": module(number, soname=f"m{number}.so", needed=needed)}

    scene = many(tmp_path, member, 5)
    entries = sum(len(image.needed) for image in scene.context().images.values())
    assert entries >= 50
    assert decide(replace(scene.context(), most_loads=4 * entries), scene.tables).files
    with pytest.raises(WheelError, match=f"more than {4 * entries - 1} files"):
        decide(replace(scene.context(), most_loads=4 * entries - 1), scene.tables)


def test_what_members_that_need_each_other_load_is_as_planned(tmp_path: Path) -> None:
    """The first of them is planned when the second is as the vendor left it."""

    def circle(_: int) -> dict[str, Library]:
        path = "/opt/rocm/lib:$ORIGIN"
        return {
            "liba.so": module(0, soname="liba.so", needed=("libb.so",), runpath=path),
            "libb.so": module(1, soname="libb.so", needed=("liba.so",), runpath=path),
        }

    draft = many(tmp_path, circle, 1).decide()
    assert all(image.runpath != "/opt/rocm/lib:$ORIGIN" for image in draft.context.images.values())
    for closure in draft.closures.values():
        found = {item.image.path: item.image for item in closure.objects if item.identity[0] == "member"}
        assert found == draft.context.images
