"""One dry run in the place of many says the same as one for each root."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from relink.loader import joint
from relink.loader.dryrun import LoaderMap, dry_runs
from relink.loader.joint import JointRun, joint_runs
from relink.loader.loading import trace
from relink.loader.search import Environment
from relink.loader.tables import Tables
from relink.system.sandbox.start import OFF
from tests.unit.loader.planted import compiled


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joint runs are made however little they save."""
    monkeypatch.setattr(joint, "START_COST", 0)


def runs(environment: Environment, roots: Sequence[Path]) -> list[JointRun]:
    single = {str(path): ((str(path), ()), trace(environment, str(path))) for path in roots}
    return joint_runs(environment, Tables(environment.files, {}), single)


def asked(
    environment: Environment, programs: Sequence[tuple[str, Sequence[str]]], *, symbols: bool
) -> list[LoaderMap]:
    with dry_runs(environment.target, programs, OFF, symbols=symbols) as answers:
        return list(answers)


@pytest.fixture
def base(lib: Path) -> Path:
    return compiled(
        lib / "libbase.so",
        "int base(void) { return 0; } extern int lost(void); int f(void) { return lost(); }",
    )


def root(lib: Path, name: str, calls: str, *, more: str = "", needed: Sequence[Path]) -> Path:
    source = f"extern int {calls}(void); static int own(void) {{ return {calls}(); }} {more} int (*at_{name})(void) = own;"
    return compiled(lib / f"{name}.so", source, needed=needed)


def test_the_answer_to_one_question_is_that_to_many(environment: Environment, lib: Path, base: Path) -> None:
    """Open symbols of a root, of another root, and of a library that all of them need."""
    roots = [
        root(lib, "one", "base", needed=[base]),
        root(lib, "two", "gone", needed=[base]),
        root(lib, "three", "vanished", needed=[base]),
    ]
    (run,) = runs(environment, roots)
    assert run.roots == tuple(map(str, roots))
    (answer,) = asked(environment, [(run.program, run.preloads)], symbols=True)
    programs = [(str(path), ()) for path in roots]
    alone, mapped = (asked(environment, programs, symbols=symbols) for symbols in (True, False))
    for path, one, known in zip(roots, alone, mapped, strict=True):
        assert run.of(str(path), known, answer) == one
    assert [len(one.problems) for one in alone] == [1, 2, 2]


@pytest.mark.parametrize(
    "more",
    [
        "int gone(void) { return 1; }",  # what another root looks up
        "int lost(void) { return 1; }",  # what a library looks up
        "int base(void) { return 1; }",  # what a library has, and comes before it now
    ],
)
def test_a_root_that_could_answer_for_another_object_is_asked_alone(
    environment: Environment, lib: Path, base: Path, more: str
) -> None:
    roots = [
        root(lib, "one", "base", needed=[base]),
        root(lib, "two", "gone", needed=[base]),
        root(lib, "other", "f", more=more, needed=[base]),
    ]
    (run,) = runs(environment, roots)
    assert run.roots == tuple(map(str, roots[:2]))


def test_a_definition_that_comes_later_hides_nothing_either(
    environment: Environment, lib: Path, base: Path
) -> None:
    """Both define it, so that the second would answer if the first lost it."""
    both = "int shared_name(void) { return 1; } int (*used)(void) = shared_name;"
    roots = [root(lib, name, "base", more=both, needed=[base]) for name in ("one", "two")]
    assert runs(environment, roots) == []


def test_only_roots_with_the_same_libraries_are_joined(
    environment: Environment, lib: Path, base: Path
) -> None:
    extra = compiled(lib / "libextra.so", "int extra(void) { return 0; }")
    gone = compiled(lib / "libgone.so", "int gone(void) { return 0; }")
    roots = [
        root(lib, "one", "base", needed=[base]),
        root(lib, "two", "extra", needed=[base, extra]),
        root(lib, "three", "gone", needed=[base, gone]),
    ]
    gone.unlink()
    assert runs(environment, roots) == []


def test_a_joint_run_has_to_pay(
    environment: Environment, lib: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [root(lib, name, "base", needed=[base]) for name in ("one", "two")]
    assert runs(environment, roots)
    monkeypatch.setattr(joint, "START_COST", 30_000)
    assert runs(environment, roots) == []
