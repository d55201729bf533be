"""What the real loader prints, read; that it prints so is tested where the simulation is compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.loader import dryrun
from relink.loader.dryrun import (
    JointRun,
    LoaderMap,
    LoaderRefusal,
    dry_run,
    dry_runs,
    joint_runs,
    read_answer,
    refusal,
)
from relink.loader.loading import trace
from relink.loader.search import Environment
from relink.loader.tables import Tables
from relink.loader.target import find_target
from relink.system.errors import TargetError
from relink.system.sandbox.start import OFF
from tests.support.works import Works
from tests.unit.loader.planted import compiled

LOADED = (
    "\tlinux-vdso.so.1 (0x00007ffd)\n"
    "\tlibhip.so.7 => /opt/with space/lib/libhip.so.7 (0x00007f00)\n"
    "\t/abs/libx.so (0x00007f01)\n"
    "\tlibgone.so.1 => not found\n"
    "\tINTERPRETER (0x00007f02)\n"
)


def test_objects_and_what_is_missing() -> None:
    target = find_target()
    found = read_answer(LOADED.replace("INTERPRETER", target.interpreter), "", target)
    assert found.objects == (
        ("libhip.so.7", "/opt/with space/lib/libhip.so.7"),
        ("/abs/libx.so", "/abs/libx.so"),
    )
    assert (found.missing, found.problems, found.died) == (("libgone.so.1",), (), False)
    assert refusal(found) is None


def test_other_lines_are_problems() -> None:
    found = read_answer(
        "\tstatically linked\nundefined symbol: f (x)\n", "symbol g: no version\n\n", find_target()
    )
    assert found == LoaderMap((), (), ("symbol g: no version", "undefined symbol: f (x)"))


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        (
            "/a.so: error while loading shared libraries: /b.so: invalid ELF header",
            LoaderRefusal("/b.so", "invalid ELF header"),
        ),
        (
            "ERROR: ld.so: object '/a b.so' from LD_PRELOAD cannot be preloaded (file too short): ignored.",
            LoaderRefusal("/a b.so", "file too short"),
        ),
    ],
)
def test_what_it_died_of(said: str, refused: LoaderRefusal) -> None:
    found = read_answer("", said, find_target())
    assert found.died
    assert refusal(found) == refused


def test_a_death_without_a_word() -> None:
    assert refusal(LoaderMap((), (), ("killed by signal 11",), died=True)) == LoaderRefusal(
        None, "killed by signal 11"
    )


def test_the_real_loader(works: Works) -> None:
    """In the order that was asked for, a crash among them."""
    target = find_target()
    asked = [(str(works.plain), ()), ("/gone.so", ()), (str(works.prefix / "lib/libhip.so.7"), ())]
    with dry_runs(target, asked, OFF) as answers:
        plain, gone, hip = answers
    assert (plain.objects, plain.died) == ((), False)
    assert gone.died
    assert refusal(gone) == LoaderRefusal(
        "/gone.so", "cannot open shared object file: No such file or directory"
    )
    assert (hip.missing, hip.died) == (("libdeep.so.1",), False)


def test_a_loader_that_is_not_there() -> None:
    with pytest.raises(TargetError, match=r"/gone/ld\.so: the loader could not be asked"):
        dry_run(replace(find_target(), interpreter="/gone/ld.so"), "/x", sandbox=OFF)


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joint runs are made however little they save."""
    monkeypatch.setattr(dryrun, "START_COST", 0)


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
    monkeypatch.setattr(dryrun, "START_COST", 30_000)
    assert runs(environment, roots) == []
