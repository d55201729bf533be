"""Expressions: the value of each, against Python's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.python.evaluation import Evaluation
from relink.python.facts_cache import FactsCache
from relink.python.process import PythonProcesses
from relink.python.syntax import parse_source
from relink.python.values import UNKNOWN, Frame, Module
from tests.support.python_processes import python_of

NAMES = {"a": 1, "b": "text", "c": [1, 2], "d": {"k": "v"}, "t": (3, 4)}


def value_of(tmp_path: Path, text: str, **names: object) -> object:
    evaluation: Evaluation = PythonProcesses(
        python_of(tmp_path), cache=FactsCache(None), variables={"SET": "1"}
    ).evaluation
    statements, _ = parse_source(f"result = {text}\n".encode())
    module: Module = evaluation.state.module
    module.names.update({**NAMES, **names})
    evaluation.block(Frame(module, module.names), statements)
    return module.names["result"]


@pytest.mark.parametrize(
    "text",
    [
        "a + 1 == 2",
        "b[1:3]",
        "c[-1]",
        "d['k']",
        "f'{b}-{a}'",
        "[x for x in c if x > 1]",
        "(*c, 3)",
        "{**d, 'z': 1}",
        "a if b else c",
        "not a or c",
        "b and ''",
        "0 < a < 2 < 1",
        "'k' in d",
        "b is not None",
        "(y := a)",
        "b.upper().partition('E')[0]",
        "len(c) + sum_of if False else -a",
    ],
)
def test_values_that_are_known(tmp_path: Path, text: str) -> None:
    assert value_of(tmp_path, text) == eval(text, dict(NAMES))  # noqa: S307


@pytest.mark.parametrize(
    "text",
    [
        "u",
        "u + 1",
        "u.name",
        "c[9]",
        "d[u]",
        "b if u else c",
        "u and a",
        "[x for x in u]",
        "f'{u}'",
        "f'{a:>9}'",
        "a < u",
        "not u",
        "1.5",
    ],
)
def test_values_that_are_not_known(tmp_path: Path, text: str) -> None:
    assert value_of(tmp_path, text, u=UNKNOWN) is UNKNOWN


@pytest.mark.parametrize(
    ("text", "expected"),
    [("u and ''", False), ("u or a", True), ("b if u else b", "text"), ("len(u)", UNKNOWN)],
)
def test_what_decides_whatever_the_rest_is(tmp_path: Path, text: str, expected: object) -> None:
    assert value_of(tmp_path, text, u=UNKNOWN) == expected
