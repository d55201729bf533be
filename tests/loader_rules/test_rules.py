"""Every directory here holds one rule of ld.so: case.toml is built, simulated and really loaded; all three must agree.

Keys of case.toml; ``@`` stands for the directory in which the case is built:

    rule        the rule in one line
    libraries   path = what tests.support.elf_builder.Library takes
    links, hardlinks  path = target        texts  path = content        directories  [path]
    program     what is run through the loader, with `preloads`; or
    roots       what is dlopened, in a helper that is compiled with `helper_flags`
    cwd, library_path
    expected    [[name, path]] in load order, path "" where it is missing; with `roots` only [path]
    fatal       instead: the path or name that the load dies of
    unless      what is expected instead where the target has not the named fact, a field of Target
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.target import Target, find_target
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library
from tests.support.real_loader import (
    Answer,
    build_helper,
    really_dlopen,
    really_trace,
    simulated_dlopen,
    simulated_trace,
)

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
HERE = Path(__file__).parent
CASES = sorted(path.name for path in HERE.iterdir() if (path / "case.toml").exists())


@pytest.fixture(scope="module")
def target() -> Target:
    return find_target()


def _fill(value: Any, world: Path, target: Target) -> Any:
    """Put the directory of the case and the facts of this loader into every string."""
    if isinstance(value, str):
        active = target.subdirectories[0]
        return (
            value.replace("@", str(world))
            .replace("<hwcaps>", active)
            .replace("<ld.so>", target.interpreter)
            .replace("<LIB>", target.lib)
            .replace("<PLATFORM>", target.platform)
        )
    if isinstance(value, list):
        return [_fill(entry, world, target) for entry in value]
    if isinstance(value, dict):
        return {_fill(key, world, target): _fill(entry, world, target) for key, entry in value.items()}
    return value


def _build(case: dict[str, Any], world: Path) -> None:
    for name, facts in case.get("libraries", {}).items():
        arguments: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()
        }
        Library(**arguments).write(world / name)
    for name in case.get("directories", ()):
        (world / name).mkdir(parents=True, exist_ok=True)
    for kind in ("links", "hardlinks", "texts"):
        for name, value in case.get(kind, {}).items():
            path = world / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "links":
                path.symlink_to(value)
            elif kind == "hardlinks":
                os.link(world / value, path)
            else:
                path.write_text(value)


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str, target: Target, tmp_path: Path) -> None:
    world = tmp_path.resolve() / "world"
    world.mkdir()
    case = _fill(tomllib.loads((HERE / name / "case.toml").read_text()), world, target)
    assert (HERE / name / "README.md").exists()
    for fact, otherwise in case.get("unless", {}).items():
        if not getattr(target, fact):
            case["expected"] = otherwise
    _build(case, world)
    environment = Environment(
        target, Files(), tuple(case.get("library_path", ())), str(world / case.get("cwd", "."))
    )
    if "roots" in case:
        helper = str(build_helper(tmp_path / "helper", *case.get("helper_flags", ())))
        expected = Answer(tuple(("", path) for path in case.get("expected", ())), case.get("fatal"))
        real = really_dlopen(environment, case["roots"], helper)
        simulated = simulated_dlopen(environment, case["roots"], helper)
    else:
        rows = tuple((asked, path or None) for asked, path in case.get("expected", ()))
        expected = Answer(rows, case.get("fatal"))
        preloads = case.get("preloads", ())
        real = really_trace(environment, case["program"], preloads)
        simulated = simulated_trace(environment, case["program"], preloads)
    assert real == expected
    assert expected.agrees_with(simulated), simulated


def test_every_directory_is_a_case() -> None:
    directories = {path.name for path in HERE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert directories == set(CASES)
