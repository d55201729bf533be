"""Values: what can be computed of them, and what is larger than those that are followed."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest
from packaging.version import Version

from relink.python.events import Event
from relink.python.modules import Spec
from relink.python.values import (
    LARGEST_VALUE,
    UNKNOWN,
    Class,
    Instance,
    Module,
    Native,
    binary,
    compare,
    exception_kind,
    is_kind,
    truth,
)


def test_an_import_is_noted_again_where_it_is_surer_alone() -> None:
    module = Module("module", Spec("module", "source"))
    for event in (
        Event("module", "a", "conditional"),
        Event("library", "liba.so", "certain"),
        Event("module", "a", "later"),
        Event("module", "a", "certain"),
        Event("module", "a", "certain"),
        Event("library", "liba.so", "certain"),
    ):
        module.note(event)
    assert [(event.name, event.when) for event in module.events] == [
        ("a", "conditional"),
        ("liba.so", "certain"),
        ("a", "certain"),
        ("liba.so", "certain"),
    ]
    module.forget()
    assert module.events == []
    module.note(Event("module", "a", "later"))
    assert [event.when for event in module.events] == ["later"]


BASE = Class("module.Base", {"name": 1}, [Native("ImportError")])


@pytest.mark.parametrize(
    ("name", "left", "right", "expected"),
    [
        ("Add", "a", "b", "ab"),
        ("Add", [1], [2], [1, 2]),
        ("Add", "a", 1, UNKNOWN),
        ("Add", "a" * LARGEST_VALUE, "b", UNKNOWN),
        ("Add", (1 << 63) - 1, 1, UNKNOWN),
        ("Mod", "%s-%d", ("a", 1), "a-1"),
        ("Mod", "%1000000s", "a", UNKNOWN),
        ("Mod", "%s", UNKNOWN, UNKNOWN),
        ("Mult", "a", 1 << 40, UNKNOWN),
        ("Pow", 10, 1 << 40, UNKNOWN),
        ("Div", PurePosixPath("/a"), "b", PurePosixPath("/a/b")),
        ("BitOr", 2, 256, 258),
    ],
)
def test_binary_operations(name: str, left: Any, right: Any, expected: Any) -> None:
    assert binary(name, left, right) == expected


@pytest.mark.parametrize(
    ("name", "left", "right", "expected"),
    [
        ("Eq", "a", "a", True),
        ("In", "a", ("a", "b"), True),
        ("NotIn", "a", ["b"], True),
        ("In", "a", ["b", UNKNOWN], UNKNOWN),
        ("Is", None, None, True),
        ("IsNot", "a", None, True),
        ("Lt", (3, 11, 0, "final", 0), (3, 12), True),
        ("GtE", Version("2.1"), Version("2.0"), True),
        ("Lt", "a", 1, UNKNOWN),
        ("Eq", UNKNOWN, 1, UNKNOWN),
        ("Eq", Instance(BASE), 1, UNKNOWN),
    ],
)
def test_comparisons(name: str, left: Any, right: Any, expected: Any) -> None:
    assert compare(name, left, right) == expected


def test_classes_and_exceptions() -> None:
    cls = Class("module.Mine", {}, [UNKNOWN, BASE])
    assert cls.find("name") == 1
    assert cls.find("other") is UNKNOWN
    assert [*cls.lines()] == ["module.Mine", "module.Base", "ImportError"]
    assert exception_kind(Instance(cls)) == "ImportError"
    assert exception_kind(UNKNOWN) == "Exception"
    assert is_kind("ModuleNotFoundError", "ImportError")
    assert not is_kind("OSError", "ImportError")
    assert is_kind("OfAnotherModule", "Exception")


def test_truth() -> None:
    assert [truth(value) for value in (UNKNOWN, Instance(BASE), "", [0], None)] == [
        None,
        None,
        False,
        True,
        False,
    ]
    assert truth(Module("a", Spec("a", "builtin")))
