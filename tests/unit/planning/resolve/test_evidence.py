"""resolve.evidence: the version edit that keeps most of the claim, and what it does not serve; in whole plans as well."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from relink.elf.edit import VersionEdit
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import Import as SymbolImport
from relink.elf.symbols import SymbolTable
from relink.planning.resolve.decide import PlanDraft
from relink.planning.resolve.evidence import version_moves
from tests.support.elf_builder import Export, Import, Library, build
from tests.support.vendors import fake_vendor
from tests.unit.planning.resolve.scenes import Scene, call, codes, define
from tests.unit.planning.resolve.test_proof import found, only, scene

__all__ = ["scene"]  # the fixture

OLD, NEW, MEMBER = "libamd_z.so.1", "libz.so.1", "demo/ext.so"


def table(*exports: Export, needs: bool = False, versions: tuple[str, ...] = ()) -> SymbolTable:
    imports = (Import("printf", "GLIBC_2.2.5", "libc.so.6"),) if needs else ()
    return read_symbols(build(Library(soname=NEW, exports=exports, imports=imports, versions=versions)))


def moved(
    system: SymbolTable, *names: str, version: str = "AMD_1.0_Z_1.2"
) -> tuple[list[VersionEdit], list[SymbolImport]]:
    user = build(
        Library(
            soname="libuser.so", needed=(OLD,), imports=tuple(Import(name, version, OLD) for name in names)
        )
    )
    found = read_symbols(user)
    return version_moves(found.verneeds, found.imports, NEW, system)


def way(moves: tuple[list[VersionEdit], list[SymbolImport]]) -> list[tuple[str, bool, bool]]:
    return [(edit.version_after, edit.weak, edit.unversioned) for edit in moves[0]]


def test_a_library_without_versions_serves_as_it_is() -> None:
    moves = moved(table(Export("deflate"), needs=True), "deflate")
    assert moves == ([], [])


def test_one_that_has_no_version_tables_at_all() -> None:
    # ld.so stops at an assertion where a versioned reference meets such a library under the record's name.
    assert way(moved(table(Export("deflate")), "deflate")) == [("AMD_1.0_Z_1.2", True, True)]


def test_a_renamed_version_where_the_names_allow() -> None:
    system = table(Export("deflate", "Z_1.2"), Export("other", "2"))
    assert way(moved(system, "deflate")) == [("Z_1.2", False, False)]


def test_weak_where_the_symbols_have_no_version() -> None:
    system = table(Export("deflate"), Export("other", "Q_1"))
    assert way(moved(system, "deflate")) == [("AMD_1.0_Z_1.2", True, False)]


def test_weak_and_without_a_version() -> None:
    system = table(Export("deflate", "Q_1"), Export("inflate"))
    assert way(moved(system, "deflate", "inflate")) == [("AMD_1.0_Z_1.2", True, True)]


def test_what_the_library_lacks() -> None:
    moves = moved(table(Export("deflate", "Z_1.2")), "deflate", "inflate")
    assert [item.name for item in moves[1]] == ["inflate"]


def test_a_hidden_definition_serves_no_import_without_a_version() -> None:
    # Of the first node ld.so takes a hidden one, too (elf/dl-lookup.c, check_match).
    system = table(Export("deflate", "Q_1", hidden=True), versions=("A_1", "A_2"))
    assert [item.name for item in moved(system, "deflate")[1]] == ["deflate"]


# In a plan


@pytest.fixture
def copies(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    copy = (("libsystem_z.so.1",), "it is built from the same z 1.2")
    vendor = fake_vendor("table", copy_of=lambda soname: copy if soname == OLD else None)
    plain = Scene.context
    monkeypatch.setattr(Scene, "context", lambda self: replace(plain(self), vendor=vendor))
    return scene


def linked(scene: Scene, *names: str, node: str = "AMD_1.0_Z_1", weak: bool = False) -> None:
    """Make a member that was linked with the vendor's copy, which nobody has."""
    script = scene.versions(f"{node}:{','.join(names)}")
    copy = scene.library(scene.root / "old" / OLD, [], define(*names), [script])
    source = call(*names)
    if weak:
        source = source.replace("extern int", "__attribute__((weak)) extern int")
    scene.provide("lib/libelse.so.1", source=define("other"), flags=[scene.versions("E_1:other")])
    scene.member(MEMBER, ["libelse.so.1"], source, flags=[str(copy)])


def errors(decisions: PlanDraft) -> list[str]:
    return [item.code for item in decisions.findings if item.level == "error"]


def test_a_copy_is_replaced_by_the_systems_library(copies: Scene) -> None:
    linked(copies, "deflate", "inflate")
    copies.provide(
        "lib/libsystem_z.so.1",
        source=define("deflate", "inflate"),
        flags=[copies.versions("Z_1:deflate,inflate")],
    )
    decisions = copies.decide()
    edit = only(decisions).edit
    assert edit.replace == ((OLD, "libsystem_z.so.1"),)
    assert [(one.version, one.version_after) for one in edit.versions] == [("AMD_1.0_Z_1", "Z_1")]
    assert errors(decisions) == []
    text = found(decisions, "RLK112").message
    assert "it is built from the same z 1.2" in text
    assert "version AMD_1.0_Z_1 becomes Z_1, which libsystem_z.so.1 defines" in text


def test_a_system_that_lacks_one_symbol_is_refused(copies: Scene) -> None:
    linked(copies, "deflate", "inflate")
    copies.provide("lib/libsystem_z.so.1", source=define("deflate"), flags=[copies.versions("Z_1:deflate")])
    decisions = copies.decide()
    assert not only(decisions).edit.replace
    assert (
        "libsystem_z.so.1 has 1 of 2 symbols used, not inflate@AMD_1.0_Z_1"
        in found(decisions, "RLK101").message
    )


def test_versions_of_another_library_than_a_copy_are_not_edited(scene: Scene) -> None:
    linked(scene, "deflate")
    scene.substitutes = ((OLD, "libamd_z.so.2"),)
    scene.provide("lib/libamd_z.so.2", source=define("deflate"), flags=[scene.versions("Z_1:deflate")])
    decisions = scene.decide()
    assert not only(decisions).edit.replace
    assert "RLK114" in codes(decisions)


def test_a_dropped_librarys_record_becomes_weak(scene: Scene) -> None:
    linked(scene, "deflate", weak=True)
    decisions = scene.decide()
    edit = only(decisions).edit
    assert edit.remove == (OLD,)
    (one,) = edit.versions
    assert (one.file_after, one.version_after, one.weak, one.unversioned) == (
        "libelse.so.1",
        "AMD_1.0_Z_1",
        True,
        False,
    )
    assert errors(decisions) == []


def test_a_strong_import_of_its_version_keeps_a_library(scene: Scene) -> None:
    linked(scene, "deflate")
    scene.provide("lib/libother.so.1", source=define("deflate"))
    decisions = scene.decide()
    assert not only(decisions).edit.remove
    assert found(decisions, "RLK101").subject == OLD
