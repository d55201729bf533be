"""Modules of one subject, and one meaning for each name: sizes, classes and public constants of all modules of relink."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.support.built import ROOT

MAX_LINES = 700
"""A module that needs more has two subjects."""

VAGUE = {"_CHUNK", "_LARGE", "_FEED", "_AT_ONCE", "_LIMIT"}
"""Private constants that one module may have, and not several: they would not be the same thing."""

MAX_PARAMETERS = 8
"""A function that takes more is told several things that belong together. What is only passed on as ``**options`` counts, too."""

EXCEPTIONS = {
    "SCHEMA": "each module has the identifier of the one JSON format that it writes",
}


def modules() -> dict[str, str]:
    """Return the source of every module by its path."""
    paths = sorted((ROOT / "relink").rglob("*.py"))
    assert len(paths) > 100
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def _targets(node: ast.stmt) -> Iterator[str]:
    """Yield the names that one statement assigns."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    for target in targets:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        yield from (part.id for part in parts if isinstance(part, ast.Name))


def defined(source: str) -> set[str]:
    """Return the names that mean one thing in all of relink: public classes, type aliases and constants, and vague ones."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
        found.update(_targets(node))
    return {name for name in found if name in VAGUE or (name[0].isupper() and name != "TYPE_CHECKING")}


def several(sources: dict[str, str]) -> dict[str, list[str]]:
    """Return the modules of each name that more than one of them defines."""
    places = defaultdict(list)
    for path, source in sources.items():
        for name in defined(source):
            places[name].append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def test_a_name_of_two_modules_is_seen() -> None:
    sources = {
        "a.py": "class Edge: ...\nEND = 1\n_CHUNK = 2\n_own = 3\nONE, TWO = 1, 2\n",
        "b.py": "Edge = int\nEND: int = 1\n_CHUNK: int = 2\n_own = 4\nTWO = 2\n",
    }
    assert several(sources) == {name: ["a.py", "b.py"] for name in ("Edge", "END", "_CHUNK", "TWO")}


def test_one_name_has_one_meaning() -> None:
    found = several(modules())
    assert {name: paths for name, paths in found.items() if name not in EXCEPTIONS} == {}
    assert EXCEPTIONS.keys() - found.keys() == set(), "an exception that nothing needs any more"


def test_modules_have_one_subject() -> None:
    lines = {path: source.count("\n") for path, source in modules().items()}
    assert {path: number for path, number in lines.items() if number > MAX_LINES} == {}


def many_parameters(path: str, source: str) -> Iterator[str]:
    """Yield the functions that take more than :data:`MAX_PARAMETERS`, `self` included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            taken = node.args
            every = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs, taken.vararg, taken.kwarg]
            if sum(each is not None for each in every) > MAX_PARAMETERS:
                yield f"{path} {getattr(node, 'name', 'lambda')}"


def test_functions_take_few_parameters() -> None:
    letters = ", ".join("abcdefgh")
    assert [*many_parameters("x", f"def f({letters}): ...")] == []
    for more in (f"{letters}, i", f"{letters}, **i", f"a, /, {letters[3:]}, *i, j"):
        assert [*many_parameters("x", f"def f({more}): ...")] == ["x f"]
    assert [name for path, source in modules().items() for name in many_parameters(path, source)] == []
