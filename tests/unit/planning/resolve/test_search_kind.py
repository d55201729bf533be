"""``--search-path``: the kind of entry that is written, and what LD_LIBRARY_PATH then comes before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.planning.resolve.scenes import Scene, codes

BESIDE = "-Wl,--enable-new-dtags,-rpath,$ORIGIN"


def scene(tmp_path: Path, kind: str) -> Scene:
    """libhip.so.7 finds what it needs by a RUNPATH of its own; the member needs libhip alone."""
    made = Scene(tmp_path, search_path=kind)
    made.provide("lib/libdeep.so.1")
    made.provide("lib/libhip.so.7", ["libdeep.so.1"], flags=[BESIDE])
    made.member("demo/a.so", ["libhip.so.7"])
    return made


@pytest.mark.parametrize("kind", ["auto", "runpath"])
def test_a_runpath_where_it_reaches(tmp_path: Path, kind: str) -> None:
    (outcome,) = scene(tmp_path, kind).decide().outcomes.values()
    assert (outcome.strategy, outcome.image.search_kind, outcome.edit.add) == ("runpath", "runpath", ())


def test_libraries_below_a_runpath_are_flattened(tmp_path: Path) -> None:
    """A DT_RPATH does not count for what has a RUNPATH; what is NEEDED of the member itself is found by it."""
    made = scene(tmp_path, "rpath")
    made.provide("lib/libhip.so.7", ["libdeep.so.1", "libgcc_s.so.1"], flags=[BESIDE])
    draft = made.decide()
    (outcome,) = draft.outcomes.values()
    assert (outcome.image.rpath, outcome.image.runpath) == (f"{made.prefix}/lib", None)
    assert outcome.edit.add == ("libdeep.so.1",)
    found = {item.code: (item.subject, item.message) for item in draft.findings}
    assert found["RLK206"][1].startswith("LD_LIBRARY_PATH does not come before a DT_RPATH")
    assert found["RLK209"][0] == "libgcc_s.so.1"
    assert codes(draft).count("RLK209") == 1
    assert draft.files[0].rpath.kind_after == "rpath"


def test_a_file_that_loads_by_a_runpath_is_edited(tmp_path: Path) -> None:
    """Where a DT_RPATH is asked for; without, it stays as it is."""
    for kind, strategy in (("auto", "nothing"), ("rpath", "rpath")):
        made = Scene(tmp_path / kind, search_path=kind)
        made.provide("lib/libelse.so.1")
        made.member("demo/libown.so.1")
        made.member("demo/a.so", ["libown.so.1"], flags=[BESIDE])
        made.member("demo/b.so", ["libown.so.1"], flags=["-Wl,--disable-new-dtags,-rpath,$ORIGIN"])
        outcomes = made.decide().outcomes
        assert outcomes["demo/a.so"].strategy == strategy
        assert outcomes["demo/a.so"].image.search_kind == ("runpath" if kind == "auto" else "rpath")
        assert outcomes["demo/b.so"].strategy == "nothing"
        assert outcomes["demo/libown.so.1"].strategy == "nothing"


def test_no_rpath_where_a_runpath_is_asked_for(tmp_path: Path) -> None:
    """By itself a library that cannot find its own gets a DT_RPATH of what needs it; with ``runpath`` it is flattened."""
    for kind, strategy in (("auto", "rpath"), ("runpath", "flatten")):
        made = Scene(tmp_path / kind, search_path=kind)
        made.provide("lib/libdeep.so.1")
        made.provide("lib/libhip.so.7", ["libdeep.so.1"])
        made.member("demo/a.so", ["libhip.so.7"])
        (outcome,) = made.decide().outcomes.values()
        assert outcome.loads
        assert outcome.strategy == strategy
