"""resolve.issues: by which names a glob names a library, and where the target's own C library is.

Which edges are issues is tested with the strategies that solve them, in test_decide.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.loader.target import find_target
from relink.planning.resolve.unserved_edges import matches_library, own_libc
from tests.unit.planning.resolve.scenes import Scene


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("libhip.so.7", True),
        ("libhip.so", True),
        ("libhip", True),
        ("libh*", True),
        ("/opt/lib/*", True),
        ("hip", False),
        ("libhip.so.6", False),
    ],
)
def test_by_which_names_a_glob_names_a_library(pattern: str, matches: bool) -> None:
    assert matches_library(pattern, "libhip.so.7", "/opt/lib/libhip.so.7") is matches


def test_the_c_library_lies_beside_the_loader(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.provide("lib/libelse.so.1")
    assert own_libc(scene.context()) == f"{find_target().libc_directory}/libc.so.6"
    assert own_libc(scene.context(), "libnothing.so.6") is None
