"""The functions that ask for files: each against a directory."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from relink.python.facts_cache import FactsCache
from relink.python.process import PythonProcesses
from relink.python.values import UNKNOWN
from tests.support.python_processes import python_of


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("posixpath.exists", ["TOP/a.so"], True),
        ("posixpath.exists", [PurePosixPath("TOP/b.so")], False),
        ("posixpath.exists", ["relative"], False),
        ("posixpath.exists", [UNKNOWN], UNKNOWN),
        ("posixpath.isdir", ["TOP"], True),
        ("posixpath.expanduser", ["~/a"], UNKNOWN),
        ("path.read_text", ["TOP/a.so"], "text"),
        ("glob.iglob", ["TOP/*.so"], ["TOP/a.so"]),
        ("glob.glob", ["TOP/*/*.so"], UNKNOWN),
        ("os.listdir", ["TOP"], ["a.so", "deep"]),
        ("os.walk", ["TOP"], [("TOP", ["deep"], ["a.so"]), ("TOP/deep", [], ["b"])]),
        ("os.walk", ["TOP/absent"], []),
    ],
)
def test_results(tmp_path: Path, name: str, arguments: list[Any], expected: Any) -> None:
    top = tmp_path / "top"
    (top / "deep").mkdir(parents=True)
    (top / "a.so").write_text("text")
    (top / "deep/b").write_text("")

    def placed(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(placed, value))
        if isinstance(value, str | PurePosixPath):
            return type(value)(str(value).replace("TOP", str(top)))
        return value

    evaluation = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={}).evaluation
    found = evaluation.known[name](evaluation, placed(arguments), {})
    assert (sorted(found) if name == "os.listdir" else found) == placed(expected)


def test_a_walk_of_many_directories_is_not_followed(tmp_path: Path) -> None:
    for number in range(201):
        (tmp_path / str(number)).mkdir()
    evaluation = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={}).evaluation
    assert evaluation.known["os.walk"](evaluation, [str(tmp_path)], {}) is UNKNOWN
