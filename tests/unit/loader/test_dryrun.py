"""What the real loader prints, read; that it prints so is tested where the simulation is compared with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relink.loader.dryrun import LoaderMap, LoaderRefusal, dry_run, dry_runs, read_answer, refusal
from relink.loader.target import find_target
from relink.system.errors import TargetError
from relink.system.sandbox.start import OFF
from tests.support.works import Works

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
