"""index.fingerprint: of content, and of what was looked at."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from relink.indexes.build.digests import Digests
from relink.indexes.build.fingerprint import Dependencies, TargetState, hold, state_of
from relink.indexes.build.recipe import IndexTarget
from relink.planning.model.model import plain
from relink.system.bounded_json import typed
from tests.support.cc import shared
from tests.support.works import Works


def test_content_and_not_time(works: Works, tmp_path: Path) -> None:
    prefix = tmp_path / "rocm"
    shutil.copytree(works.prefix, prefix)
    target = IndexTarget("one", (str(prefix),))
    first = state_of(target, Digests())
    assert sorted(map(os.path.basename, first.libraries)) == ["libdeep.so.1", "libhip.so.7"]
    assert first.paths == (str(prefix),)
    for path in prefix.rglob("*"):
        os.utime(path)
    assert state_of(target, Digests()).fingerprint == first.fingerprint
    (prefix / "lib" / "rocblas").mkdir()
    (prefix / "lib" / "rocblas" / "kernels.dat").write_bytes(b"x")
    with_data = state_of(target, Digests())
    assert (with_data.libraries, with_data.data == first.data) == (first.libraries, False)
    shared(prefix / "lib" / "libdeep.so.1", "int deep(void){return 7;}")
    assert state_of(target, Digests()).fingerprint != with_data.fingerprint
    (prefix / ".info" / "version").write_text("7.2.5-1\n")
    assert state_of(target, Digests()).release != with_data.release


STATE = TargetState(
    {"/r/libx.so.1": "aa", "/r/liby.so.1": "bb"}, "data", "loader", "release", "x86_64", "/", ("/r",)
)
RESTS = Dependencies(
    {"/r/libx.so.1": "aa"}, {"libx.so": ("/r/libx.so.1",), "libz.so": ()}, "loader", "release"
)


@pytest.mark.parametrize(
    ("rests", "state", "expected"),
    [
        (RESTS, STATE, True),
        (RESTS, replace(STATE, libraries={**STATE.libraries, "/r/liby.so.1": "cc"}), True),
        (RESTS, replace(STATE, libraries={**STATE.libraries, "/r/libx.so.1": "cc"}), False),
        (RESTS, replace(STATE, libraries={"/r/liby.so.1": "bb"}), False),
        (RESTS, replace(STATE, libraries={**STATE.libraries, "/r/libz.so.3": "dd"}), False),
        (RESTS, replace(STATE, libraries={**STATE.libraries, "/r/liba.so.3": "dd"}), True),
        (RESTS, replace(STATE, data="other"), True),
        (replace(RESTS, data="data"), replace(STATE, data="other"), False),
        (RESTS, replace(STATE, loader="other"), False),
        (RESTS, replace(STATE, release="other"), False),
        (replace(RESTS, everything=STATE.fingerprint), STATE, True),
        (replace(RESTS, everything=STATE.fingerprint), replace(STATE, libraries={"/r/libx.so.1": "aa"}), False),
        (replace(RESTS, libraries={"/nowhere/libx.so.1": "aa"}), STATE, False),
    ],
)  # fmt: skip
def test_what_a_result_rests_on(rests: Dependencies, state: TargetState, expected: bool) -> None:
    assert hold(rests, state, Digests()) is expected
    assert typed(Dependencies, plain(rests), "rests") == rests
