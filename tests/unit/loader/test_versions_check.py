"""Version records that nothing serves; wherever a program is traced, the real loader has to say the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from relink.loader.loading import trace
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.versions_check import MissingVersion, UnservedRecord, check_versions, unserved_records
from tests.fuzz.real_binding import really_bind
from tests.support.elf_builder import Export, Import, Library
from tests.unit.loader.planted import built, compiled, traced_and_bound


def test_version_nodes_gone_are_all_listed(environment: Environment, lib: Path) -> None:
    source = "int foo(void) { return 1; } int bar(void) { return 2; } int baz(void) { return 3; }"
    script = "V_1 { global: foo; }; V_2 { global: bar; } V_1; W_1 { global: baz; };"
    old = compiled(lib / "libb.so", source, script=script)
    call = "int foo(void); int bar(void); int baz(void); int f(void) { return foo() + bar() + baz(); }"
    top = compiled(lib / "liba.so", call, needed=[old])
    assert check_versions(*traced_and_bound(environment, top)[::2]) == []
    compiled(lib / "libb.so", source, script="V_3 { global: foo; bar; baz; };")
    closure, bindings, tables = traced_and_bound(environment, top)
    gone = check_versions(closure, tables)
    assert {item.version: item.defined for item in gone} == {"V_1": ("V_3",), "V_2": ("V_3",), "W_1": ()}
    assert {(item.requester, item.supplier) for item in gone} == {(str(top), str(lib / "libb.so"))}
    assert {lost.name for lost in bindings.unbound} == {"foo", "bar", "baz"}


@built
def test_a_weak_version_may_be_missing(environment: Environment, lib: Path) -> None:
    Library("libb.so", exports=(Export("x", "V_1"),)).write(lib / "libb.so")
    wants = Library("liba.so", ("libb.so",), runpath="$ORIGIN", weak_versions=(("libb.so", "V_2"),))
    top = wants.write(lib / "liba.so")
    closure, _, tables = traced_and_bound(environment, top)
    assert check_versions(closure, tables) == []
    replace(wants, weak_versions=(), imports=(Import("x", "V_2", "libb.so"),)).write(top)
    closure, bindings, tables = traced_and_bound(environment, top)
    assert check_versions(closure, tables) == [
        MissingVersion(str(top), "libb.so", "V_2", str(lib / "libb.so"), ("V_1",))
    ]
    assert [lost.name for lost in bindings.unbound] == ["x"]


@built
def test_a_record_of_a_file_that_is_not_loaded(environment: Environment, lib: Path) -> None:
    Library("libb.so", exports=(Export("x", "V_1"),)).write(lib / "libb.so")
    wants = Library(
        "liba.so", ("libb.so",), runpath="$ORIGIN", imports=(Import("x", "V_1", "libgone.so", binding=2),)
    )
    top = wants.write(lib / "liba.so")
    fresh = replace(environment, files=Files())
    assert really_bind(fresh, str(top)).aborts
    tables = Tables(fresh.files, {})
    assert unserved_records(trace(fresh, str(top)), tables) == [UnservedRecord(str(top), "libgone.so")]
    replace(wants, needed=("libb.so", "libgone.so")).write(top)
    fresh = replace(environment, files=Files())
    closure = trace(fresh, str(top))
    assert unserved_records(closure, Tables(fresh.files, {})) == []
    assert [edge.soname for edge in closure.missing] == ["libgone.so"]


@built
def test_a_soname_counts_only_where_it_was_asked_for(environment: Environment, lib: Path) -> None:
    Library("libb.so.1", exports=(Export("x", "V_1"),)).write(lib / "libb.so")
    imports = (Import("x", "V_1", "libb.so.1", binding=2),)
    top = Library("liba.so", ("libb.so",), runpath="$ORIGIN", imports=imports).write(lib / "liba.so")
    fresh = replace(environment, files=Files())
    assert really_bind(fresh, str(top)).aborts
    found = unserved_records(trace(fresh, str(top)), Tables(fresh.files, {}))
    assert found == [UnservedRecord(str(top), "libb.so.1")]
