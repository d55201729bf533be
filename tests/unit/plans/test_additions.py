"""plans.additions: stubs and grafts in a plan that somebody else may have written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relink.elf.patchelf import ElfEdit
from relink.errors import UsageError
from relink.library import apply, plan
from relink.plans.additions import Graft, LicenceFacts, Stub, check_places, is_plain
from relink.plans.files import FilePlan, LinkFacts
from tests.support.donors import build_donors

GRAFT = Graft(
    "demo.libs/relink-grafts-0123abcd/liba.so.1",
    "liba.so.1",
    "/second/lib/liba.so.1",
    "0" * 64,
    1,
    "/second",
    LicenceFacts("liba1", "/second/share/doc/liba1/copyright"),
    FilePlan("demo.libs/relink-grafts-0123abcd/liba.so.1", "nothing", ElfEdit(), LinkFacts()),
)


def test_where_relink_puts_them() -> None:
    check_places([GRAFT, Stub("demo.libs/relink-stubs/libb.so", "libb.so", "w")])


@pytest.mark.parametrize(
    "path",
    [
        "demo/liba.so.1",
        "liba.so.1",
        "demo.libs/liba.so.1",
        "demo.libs/relink-stubs/liba.so.1",
        "demo.libs/relink-grafts-0123abcg/liba.so.1",
        "demo.libs/relink-grafts-0123abcd/libb.so.1",
        "demo.libs/relink-grafts-0123abcd/../liba.so.1",
        "../demo.libs/relink-grafts-0123abcd/liba.so.1",
        "demo.libs/relink-grafts-0123abcd/x/liba.so.1",
    ],
)
def test_where_it_does_not(path: str) -> None:
    with pytest.raises(UsageError, match="the plan has a graft there"):
        check_places([replace(GRAFT, path=path)])
    with pytest.raises(UsageError, match="the plan has a stub there"):
        check_places([Stub(path.replace("relink-stubs", "relink-grafts-0123abcd"), "liba.so.1", "w")])


@pytest.mark.parametrize("name", ["/second/x/..", "/second/a b", "/second/"])
def test_a_licence_that_would_lie_elsewhere(name: str) -> None:
    with pytest.raises(UsageError, match="the plan has a graft there"):
        check_places([replace(GRAFT, licence=LicenceFacts("p", name))])


def test_plain_names() -> None:
    assert is_plain("liba-2_x.so.1+b")
    assert not any(map(is_plain, ["", ".", "..", "a/b", "-a", "a b", "a\n", "$ORIGIN", "a:b", "a" * 300]))


@pytest.mark.parametrize(
    "path", ["demo/librccl.so.1", "demo.libs/x/librccl.so.1", "../relink-grafts-00000000/librccl.so.1"]
)
def test_a_saved_plan_with_a_copy_that_relink_would_not_plan(tmp_path: Path, path: str) -> None:
    donors = build_donors(tmp_path)
    made = plan(donors.wheel, donors.options("planned"))
    moved = replace(made, grafts=(replace(made.grafts[0], path=path), *made.grafts[1:]))
    with pytest.raises(UsageError, match="the plan has a graft there"):
        apply(moved, output_directory=donors.root / "applied")
