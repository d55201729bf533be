"""Planted faults, each in a compiled library; and, wherever a program is traced, the real loader has to say the same."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.elf.image import read_image
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import Export as Definition
from relink.elf.symbols import match
from relink.loader.binding import (
    Closest,
    Difference,
    MissingVersion,
    UnservedRecord,
    bind,
    by_symbol,
    check_versions,
    differences,
    duplicates,
    two_versions,
    unserved_records,
)
from relink.loader.loading import load, trace
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.system.safe_open import map_file
from tests.fuzz.binding_graphs import Node, Tweak, image
from tests.fuzz.real_binding import really_bind
from tests.support.cc import cc
from tests.support.elf_builder import Export, Import, Library
from tests.unit.loader.planted import FIVE, HERE, built, compiled, supplier_of, traced_and_bound


def test_symbols_of_groups() -> None:
    groups = [(0, 5, (("a", "V1"), ("c", "V2"))), (1, 6, (("d", None),)), (0, 5, [("b", None)])]
    expected = {(0, "a", "V1"): 5, (0, "c", "V2"): 5, (1, "d", None): 6, (0, "b", None): 5}
    assert by_symbol(groups) == expected


def _open(environment: Environment, top: Path) -> list[tuple[str, str]]:
    """What is not bound with the loader of glibc 2.40; with newer ones it is, and with the real one as with its release."""
    found: dict[str, list[tuple[str, str]]] = {}
    for glibc in ("2.40", "2.41", environment.target.glibc):
        fresh = Environment(replace(environment.target, glibc=glibc), Files())
        unbound = bind(trace(fresh, str(top)), Tables(fresh.files, {})).unbound
        found[glibc] = [(lost.name, lost.reason) for lost in unbound]
    assert found["2.41"] == []
    assert really_bind(fresh, str(top)).aborts == bool(found[environment.target.glibc])
    return found["2.40"]


@built
def test_a_versioned_import_of_a_library_without_any_version_tables(
    environment: Environment, lib: Path
) -> None:
    Library("libb.so", exports=(Export("x"),)).write(lib / "libb.so")
    Library("libc1.so", exports=(Export("x"),)).write(lib / "libc1.so")
    imports = (Import("x", "V_1", "libb.so"),)
    wants = Library("liba.so", ("libb.so", "libc1.so"), runpath="$ORIGIN", imports=imports)
    top = wants.write(lib / "liba.so")
    assert _open(environment, top) == [("x", "aborts")]
    # Of a library that the record does not name it is taken.
    dataclasses.replace(wants, needed=("libc1.so", "libb.so")).write(top)
    closure, bindings, _ = traced_and_bound(environment, top)
    assert supplier_of(closure, bindings, top, "x", "V_1") == "libc1.so"
    # Where no other library has the name, it is no different.
    dataclasses.replace(wants, needed=("libb.so",)).write(top)
    assert _open(environment, top) == [("x", "aborts")]


def test_a_weak_import_may_be_missing(environment: Environment, lib: Path) -> None:
    source = "extern int gone(void) __attribute__((weak)); int f(void) { return gone ? gone() : 0; }"
    _, bindings, _ = traced_and_bound(environment, compiled(lib / "liba.so", source))
    assert bindings.unbound == ()


def test_an_ifunc_satisfies_an_import(environment: Environment, lib: Path) -> None:
    source = """
        static int one(void) { return 1; } static void *pick(void) { return one; }
        int foo(void) __attribute__((ifunc("pick")));
    """
    below = compiled(lib / "libb.so", source)
    top = compiled(lib / "liba.so", "int foo(void); int f(void) { return foo(); }", needed=[below])
    closure, bindings, _ = traced_and_bound(environment, top)
    assert bindings.unbound == ()
    assert supplier_of(closure, bindings, top, "foo") == "libb.so"


def test_interposition_is_in_breadth_first_order(environment: Environment, lib: Path) -> None:
    deep = compiled(lib / "libdeep.so", "int foo(void) { return 3; }")
    left = compiled(
        lib / "libleft.so", "int foo(void); int left(void) { return foo(); }", needed=[deep]
    )  # binds to the right one all the same
    right = compiled(
        lib / "libright.so", "__attribute__((weak)) int foo(void) { return 2; } int g(void) { return foo(); }"
    )
    top = compiled(lib / "liba.so", "int left(void); int f(void) { return left(); }", needed=[left, right])
    closure, bindings, _ = traced_and_bound(environment, top)
    assert supplier_of(closure, bindings, left, "foo") == "libright.so"
    preload = compiled(lib / "libpre.so", "int foo(void) { return 4; }")
    closure, bindings, _ = traced_and_bound(environment, top, [preload])
    assert supplier_of(closure, bindings, left, "foo") == "libpre.so"
    assert supplier_of(closure, bindings, right, "foo") == "libpre.so"  # its own reference is taken over
    assert bindings.explained == ()  # the object's own libraries would do


def test_bsymbolic_keeps_what_is_its_own(environment: Environment, lib: Path) -> None:
    source = "int value = 2; int *where(void) { return &value; }"
    for flags, taken in (((), 1), (("-Wl,-Bsymbolic",), 0)):
        below = compiled(lib / "libb.so", source, flags=flags)
        top = compiled(
            lib / "liba.so",
            "int value = 1; int *where(void); void *f(void) { return where(); }",
            needed=[below],
        )
        closure, bindings, _ = traced_and_bound(environment, top)
        over = [
            key
            for key in by_symbol(bindings.interposed)
            if key[1] == "value" and closure.objects[key[0]].path == str(below)
        ]
        assert len(over) == taken


@built
def test_dt_symbolic_looks_into_the_object_first(environment: Environment, lib: Path) -> None:
    Library("liba.so", ("libb.so",), runpath="$ORIGIN", exports=(Export("x"),)).write(lib / "liba.so")
    plain = Library("libb.so", exports=(Export("x"), Export("y")), imports=(Import("x"),))
    for symbolic, expected in ((0, "liba.so"), (16, "libb.so"), (30, "libb.so")):
        (lib / "libb.so").write_bytes(image(Node(plain, symbolic=symbolic)))
        closure, bindings, _ = traced_and_bound(environment, lib / "liba.so")
        assert supplier_of(closure, bindings, lib / "libb.so", "x") == expected


@built
def test_a_protected_definition_binds_in_its_own_object(environment: Environment, lib: Path) -> None:
    Library("liba.so", ("libb.so",), runpath="$ORIGIN", exports=(Export("x"),)).write(lib / "liba.so")
    plain = Library("libb.so", exports=(Export("x"),), imports=(Import("x"),))
    for visibility, taken in ((0, 1), (3, 0)):
        (lib / "libb.so").write_bytes(image(Node(plain, (Tweak("x", visibility, own=0),))))
        _, bindings, _ = traced_and_bound(environment, lib / "liba.so")
        assert len(by_symbol(bindings.interposed)) == taken
    # Hidden ones are for nobody else.
    (lib / "libb.so").write_bytes(image(Node(dataclasses.replace(plain, imports=()), (Tweak("x", 2),))))
    wants = Library("liba.so", ("libb.so",), runpath="$ORIGIN", imports=(Import("x"),))
    closure, bindings, tables = traced_and_bound(environment, wants.write(lib / "liba.so"))
    assert Closest(closure, tables).of(bindings.unbound[0]) == ("x in libb.so, but hidden there",)


@built
def test_unique_symbols_are_one_for_the_process(environment: Environment, lib: Path) -> None:
    one = Export("x", binding=10)
    # The library below is relocated first and, being symbolic, finds its own; the program then has to take that one.
    below = Library("libb.so", exports=(one,), imports=(Import("x"),))
    (lib / "libb.so").write_bytes(image(Node(below, symbolic=16)))
    wants = Library("liba.so", ("libb.so",), runpath="$ORIGIN", exports=(one,), imports=(Import("x"),))
    top = wants.write(lib / "liba.so")
    closure, bindings, _ = traced_and_bound(environment, top)
    assert supplier_of(closure, bindings, top, "x") == "libb.so"
    dataclasses.replace(wants, exports=(Export("x"),)).write(top)
    closure, bindings, _ = traced_and_bound(environment, top)
    assert supplier_of(closure, bindings, top, "x") == "liba.so"


def test_a_copy_relocation_wants_its_original(environment: Environment, lib: Path) -> None:
    source = "extern int value; int main(void) { return value; }"
    below = compiled(lib / "libb.so", "int value = 1;")
    flags = ("-no-pie", "-fno-pic", "-nostdlib", "-Wl,-e,main", *HERE)
    try:
        program = cc(source, lib / "program", *flags, needed=[below])
    except RuntimeError as error:
        pytest.skip(f"this compiler makes no such program: {error}")
    with map_file(str(program)) as buffer:
        table = read_symbols(buffer)
    if not table.copies:
        pytest.skip("this compiler makes no copy relocation")
    closure, bindings, _ = traced_and_bound(environment, program)
    assert supplier_of(closure, bindings, program, "value") == "libb.so"
    compiled(lib / "libb.so", "int other = 1;")
    _, bindings, _ = traced_and_bound(environment, program)
    assert [lost.name for lost in bindings.unbound] == ["value"]


EXTENSION = "void Py_IncRef(void *); void Py_Gone(void); void f(void) { Py_IncRef(0); Py_Gone(); }"


def test_the_interpreters_own_exports(environment: Environment, lib: Path) -> None:
    path = compiled(lib / "extension.so", EXTENSION)
    python = environment.target.python
    assert python is not None
    tables = Tables(environment.files, {})
    bindings = bind(load(environment, [str(path)], python), tables)
    assert [(item.name, item.kind) for item in bindings.explained] == [("Py_IncRef", "interpreter")]
    assert bindings.explained[0].target is not None
    assert [lost.name for lost in bindings.unbound] == ["Py_Gone"]  # this Python does not have it
    exports = {
        loaded.path: frozenset(tables.of(loaded).exports)
        for loaded in load(environment, [], python).objects
        if loaded.identity[0] == "program" or loaded.name.startswith("libpython")
    }
    bindings = bind(trace(environment, str(path)), tables, extra_exports=exports)
    assert [(item.name, item.kind) for item in bindings.explained] == [("Py_IncRef", "extra")]
    assert bindings.explained[0].by in exports
    assert [lost.name for lost in bindings.unbound] == ["Py_Gone"]


def test_any_interpreter_is_assumed_where_none_is_known(environment: Environment, lib: Path) -> None:
    path = compiled(lib / "extension.so", EXTENSION + "void Nothing(void); void g(void) { Nothing(); }")
    _, bindings, _ = traced_and_bound(environment, path)
    assert {(item.name, item.kind, item.by) for item in bindings.explained} == {
        ("Py_IncRef", "assumed interpreter", "the interpreter that imports it"),
        ("Py_Gone", "assumed interpreter", "the interpreter that imports it"),
    }
    assert [lost.name for lost in bindings.unbound] == ["Nothing"]


def test_a_member_that_the_package_loads_first(environment: Environment, lib: Path) -> None:
    shared_library = compiled(
        lib / "libshared.so", "void *Provider_GetHost(void) { return 0; } void maybe(void) {}"
    )
    provider = compiled(
        lib / "libprovider.so",
        """
        void *Provider_GetHost(void); void *maybe(void) __attribute__((weak));
        void *f(void) { return maybe ? maybe() : Provider_GetHost(); }
        """,
    )
    roots = [str(shared_library), str(provider)]
    closure = load(environment, roots, sys.executable)
    bindings = bind(closure, Tables(environment.files, {}))
    (found,) = bindings.explained
    assert (found.name, found.kind, found.by) == ("Provider_GetHost", "preload", str(shared_library))
    assert found.target is not None
    assert closure.objects[found.target].path == str(shared_library)
    assert bindings.unbound == ()
    alone = bind(load(environment, roots[1:], sys.executable), Tables(environment.files, {}))
    assert [lost.name for lost in alone.unbound] == ["Provider_GetHost"]
    # What comes after it does not help.
    late = bind(load(environment, roots[::-1], sys.executable), Tables(environment.files, {}))
    assert [lost.name for lost in late.unbound] == ["Provider_GetHost"]


def test_symbols_that_the_user_vouches_for(environment: Environment, lib: Path) -> None:
    old = compiled(lib / "libb.so", "int foo(void) { return 1; }", script="V_1 { global: foo; };")
    source = (
        "int foo(void); int host_a(void); int other(void); int f(void) { return foo() + host_a() + other(); }"
    )
    top = compiled(lib / "liba.so", source, needed=[old])
    compiled(lib / "libb.so", "int bar(void) { return 1; }", script="V_1 { global: bar; };")
    _, bindings, _ = traced_and_bound(environment, top, assume=["host_*", "foo@V_*"])
    assert {(item.name, item.by, item.kind) for item in bindings.explained} == {
        ("host_a", "host_*", "assumed"),
        ("foo", "foo@V_*", "assumed"),
    }
    assert [lost.name for lost in bindings.unbound] == ["other"]


def test_differences_between_two_orders(environment: Environment, lib: Path) -> None:
    first = compiled(lib / "libfirst.so", "int foo(void) { return 1; } int call(void) { return foo(); }")
    second = compiled(lib / "libsecond.so", "int foo(void) { return 2; } int again(void) { return foo(); }")
    call = "int foo(void); int f(void) { return foo(); }"
    sides = []
    for needed in ([first, second], [second, first]):
        top = compiled(lib / "liba.so", call, needed=needed)
        closure, bindings, _ = traced_and_bound(environment, top)
        sides.append((closure, bindings))
    # The same member, linked again: a file of a wheel has the same identity before and after.
    files = [closure.objects[0].image for closure, _ in sides]
    assert files[0].needed != files[1].needed
    assert differences(sides[0], sides[0]) == []
    found = differences(*sides)
    assert Difference(str(top), "foo", None, str(first), str(second)) in found
    assert Difference(str(first), "foo", None, str(first), str(second)) in found
    assert Difference(str(second), "foo", None, str(first), str(second)) in found
    assert len(found) == 3


def test_differences_compare_files_not_paths(environment: Environment, lib: Path) -> None:
    below = compiled(lib / "libb.so", "int foo(void) { return 1; }")
    (lib / "elsewhere").mkdir()
    (lib / "elsewhere" / "libb.so").symlink_to(below)
    top = compiled(lib / "liba.so", "int foo(void); int f(void) { return foo(); }", needed=[below])
    tables = Tables(environment.files, {})
    sides = []
    for entries in ((), (str(lib / "elsewhere"),)):
        closure = trace(replace(environment, library_path=entries), str(top))
        sides.append((closure, bind(closure, tables)))
    assert sides[0][0].objects[-1].path != sides[1][0].objects[-1].path
    assert differences(*sides) == []
    below.unlink()
    compiled(lib / "libb.so", "int other(void) { return 1; }")
    fresh = replace(environment, files=Files())
    closure = trace(fresh, str(top))
    gone = (closure, bind(closure, Tables(fresh.files, {})))
    assert differences(sides[0], gone) == [Difference(str(top), "foo", None, str(below), None)]


def test_members_are_known_without_being_on_disk(environment: Environment, lib: Path) -> None:
    below = compiled(lib / "libb.so", "int foo(void) { return 1; }")
    path = compiled(lib / "build" / "liba.so", "int foo(void); int f(void) { return foo(); }", needed=[below])
    with map_file(str(path)) as buffer:
        member, table = read_image(buffer, "pkg/liba.so"), read_symbols(buffer)
    environment = replace(environment, files=Files(overlay={str(lib / "liba.so"): member}))
    tables = Tables(environment.files, {"pkg/liba.so": table})
    for closure in (
        trace(environment, str(lib / "liba.so")),
        load(environment, [str(lib / "liba.so")], sys.executable),
    ):
        bindings = bind(closure, tables)
        assert supplier_of(closure, bindings, lib / "liba.so", "foo") == "libb.so"


def test_a_hidden_requirement_takes_nothing_without_a_version() -> None:
    plain = Definition(None, hidden=False, binding="global", type="func", visibility="default", index=1)
    assert match((plain,), "V_1") is plain
    assert match((plain,), "V_1", exact=True) is None
    assert match((replace(plain, version="V_1", index=2),), "V_1", exact=True) is not None


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
    dataclasses.replace(wants, weak_versions=(), imports=(Import("x", "V_2", "libb.so"),)).write(top)
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
    dataclasses.replace(wants, needed=("libb.so", "libgone.so")).write(top)
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


def test_a_missing_symbol_with_the_closest_export(environment: Environment, lib: Path) -> None:
    compiled(lib / "libb.so", "int compute_the_sum(void) { return 1; } int other(void) { return 2; }")
    top = compiled(
        lib / "liba.so",
        "int compute_the_sums(void); int f(void) { return compute_the_sums(); }",
        needed=[lib / "libb.so"],
    )
    closure, bindings, tables = traced_and_bound(environment, top)
    (lost,) = bindings.unbound
    assert (lost.path, lost.name, lost.version, lost.file) == (str(top), "compute_the_sums", None, None)
    assert lost.reason == "undefined"
    assert Closest(closure, tables).of(lost) == ("compute_the_sum in libb.so",)
    assert bindings.explained == ()


def test_a_symbol_with_another_version(environment: Environment, lib: Path) -> None:
    nodes = "V_1 { global: bar; }; V_2 { global: foo; } V_1;"
    old = compiled(lib / "libb.so", "int foo(void) { return 1; }", script="V_1 { global: foo; };")
    call = "int foo(void); int f(void) { return foo(); }"
    top = compiled(lib / "liba.so", call, needed=[old])
    _, bindings, _ = traced_and_bound(environment, top)
    assert bindings.unbound == ()
    compiled(lib / "libb.so", "int foo(void) { return 1; } int bar(void) { return 2; }", script=nodes)
    closure, bindings, tables = traced_and_bound(environment, top)
    (lost,) = bindings.unbound
    assert (lost.name, lost.version, lost.file) == ("foo", "V_1", "libb.so")
    assert Closest(closure, tables).of(lost) == ("foo@V_2 in libb.so",)
    assert check_versions(closure, tables) == []  # the node itself is there


def test_only_a_hidden_version(environment: Environment, lib: Path) -> None:
    source = """
        int old_foo(void) { return 1; } int bar(void) { return 2; }
        __asm__(".symver old_foo,foo@V_2");
    """
    hidden = compiled(
        lib / "libb.so", source, script="V_1 { global: bar; local: old_foo; }; V_2 { global: foo; } V_1;"
    )
    plain = compiled(
        lib / "stub" / "libb.so",
        "int foo(void) { return 1; } int bar(void) { return 2; }",
        script="V_1 { global: bar; }; V_2 { global: foo; } V_1;",
    )
    call = "int foo(void); int f(void) { return foo(); }"
    versioned = compiled(lib / "libversioned.so", call, needed=[plain])
    unversioned = compiled(
        lib / "libunversioned.so", call, needed=[compiled(lib / "stub2" / "libb.so", "int foo; ")]
    )
    closure, bindings, _ = traced_and_bound(environment, versioned)
    assert supplier_of(closure, bindings, versioned, "foo", "V_2") == hidden.name
    closure, bindings, tables = traced_and_bound(environment, unversioned)
    assert [(lost.name, lost.version) for lost in bindings.unbound] == [("foo", None)]
    assert Closest(closure, tables).of(bindings.unbound[0]) == ("foo@V_2 in libb.so",)


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
