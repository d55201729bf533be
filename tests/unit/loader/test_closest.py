"""What is proposed for an import that nothing satisfies."""

from __future__ import annotations

from pathlib import Path

from relink.loader.closest import Closest
from relink.loader.search import Environment
from relink.loader.versions_check import check_versions
from tests.unit.loader.planted import compiled, supplier_of, traced_and_bound


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
