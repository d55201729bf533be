"""The shipped table of processors, and a damaged one."""

from __future__ import annotations

import pytest

from relink.gpu.amd import isa_table
from relink.system.errors import RelinkError


def test_the_table_holds_together() -> None:
    table = isa_table.table()
    for generic in table.generics.values():
        assert {*generic.members, *generic.unmapped} <= set(table.processors)
        assert all(
            set(table.features(m) or ()) >= set(generic.features) & {"sramecc"} for m in generic.members
        )
    for row in table.workarounds:
        major, minor, step = map(int, row.override.split("."))
        assert row.stands_in == f"gfx{major}{minor:x}{step:x}"
        assert set(row.processors) <= set(table.processors)
    assert table.machines[0x40] == "gfx940"
    assert table.library("librocblas.so.5").name == "rocBLAS"  # type: ignore[union-attr]
    assert table.library("libc.so.6") is None


@pytest.mark.parametrize(
    ("processor", "families"),
    [
        ("gfx1151", ("gfx115x", "gfx11")),
        ("gfx1201", ("gfx12-0",)),
        ("gfx1250", ("gfx12-5",)),
        ("gfx950", ("gfx9-4",)),
        ("gfx1030", ()),
    ],
)
def test_the_families_that_device_packages_are_named_for(processor: str, families: tuple[str, ...]) -> None:
    assert isa_table.table().families_of(processor) == families


def test_a_damaged_table_is_said_so() -> None:
    with pytest.raises(RelinkError, match=r"isa\.toml"):
        isa_table.load({"processors": {}})
    double = {
        "sources": {}, "workarounds": [], "libraries": [], "runtimes": [], "kpack": {"falls_through": "7.16"},
        "processors": {"table": [{"name": "gfx1", "mach": 1}, {"name": "gfx2", "mach": 1}]},
        "generics": {"joined": 1, "table": []},
    }  # fmt: skip
    with pytest.raises(RelinkError, match="twice"):
        isa_table.load(double)
