"""Every code that the source can emit has a page, a test that triggers it, and a message with a next step."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import relink
from relink.system.findings.model import RULES
from tests.support.triggers import PRINTED, TRIGGERS, plain_words, same_words

SOURCE = Path(relink.__file__).parent
ROOT = SOURCE.parent


def emitted_codes() -> Iterator[tuple[str, str]]:
    """(code, place) of every call of ``finding``; a name for the code stands for all that its function gives it."""
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for function in ast.walk(ast.parse(source)) if "finding(" in source else ():
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
                    continue
                if call.func.id != "finding":
                    continue
                codes = constants(call.args[0]) or {
                    code
                    for step in ast.walk(function)
                    if isinstance(step, ast.Assign) and same_name(step.targets[0], call.args[0])
                    for code in constants(step.value)
                }
                assert codes, f"{path.name}:{call.lineno}: which code is this?"
                yield from ((code, f"{path.name}:{call.lineno}") for code in codes)


def constants(node: ast.expr) -> set[str]:
    found = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return {value for value in found if isinstance(value, str) and re.fullmatch(r"RLK\d{3}", value)}


def same_name(one: ast.expr, other: ast.expr) -> bool:
    return isinstance(one, ast.Name) and isinstance(other, ast.Name) and one.id == other.id


def test_every_code_that_can_be_emitted_has_a_page_and_a_test() -> None:
    codes = dict(emitted_codes())
    assert set(codes) == set(RULES), (
        "relink/system/findings/rules.toml has to explain what the source emits, and nothing else"
    )
    assert set(codes) == set(TRIGGERS), "tests/support/triggers.py has to name a test that triggers it"


@functools.cache
def parsed(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("code", TRIGGERS)
def test_the_test_that_triggers_it_is_there(code: str) -> None:
    """And is run by `make test` or `make test-rest`: the fixture in tests/conftest.py sees that it emits the code, as worded."""
    path, *names = TRIGGERS[code].partition("[")[0].split("::")
    assert Path(path).parts[1] in ("unit", "nix"), "tests/real and tests/fuzz are not run everywhere"
    body = parsed(path).body
    for name in names:
        (found,) = (
            item for item in body if isinstance(item, ast.FunctionDef | ast.ClassDef) and item.name == name
        )
        body = found.body


@pytest.mark.parametrize("code", RULES)
def test_a_page_has_a_next_step_and_an_example(code: str) -> None:
    rule = RULES[code]
    if rule.level != "info":
        assert len(rule.fix.split()) > 3, "this is no step to take"
    printed = PRINTED.fullmatch(rule.example)
    assert printed is not None, "an example is a finding as relink prints it, with its remedy"
    assert printed["code"] == code
    assert not re.search(r"/(tmp|root|home)/", rule.example)
    assert plain_words(printed["message"]), "the message is names only"


def test_the_comparison_sees_other_words() -> None:
    first = "error RLK101 liba.so.1: needed by x.so; the prefix has libb.so.2\n    → Do this."
    assert same_words(
        first, "info RLK101 q: needed by /y/z.so, u.so and 3 more; the prefix has v.so\n    → Do this."
    )
    for other in (
        first.replace("RLK101", "RLK102"),
        first.replace("needed by", "wanted by"),
        first.replace("Do this", "Do that"),
        first.partition("\n")[0],
    ):
        assert not same_words(first, other)


def test_a_missing_library_has_the_ways_of_its_page() -> None:
    """In the page's order, which begins with the best; the last one proves nothing, so it is not proposed."""
    page = (ROOT / "docs/missing.md").read_text()
    ways = page.partition("## The ways, the best first")[2].partition("\n## ")[0]
    options = [re.findall(r"`(--[a-z-]+)", way) for way in re.split(r"^\d\. ", ways, flags=re.MULTILINE)]
    assert [option for option, *_ in filter(None, options)] == [
        *("--prefix", "--substitute", "--prefix", "--stub", "--allow-missing")
    ]
    assert re.findall(r"--[a-z-]+", RULES["RLK101"].fix) == ["--prefix", "--substitute", "--stub"]
