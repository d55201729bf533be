"""What a user can say about one build."""

from __future__ import annotations

from relink.indexes.build.build_options import BuildOptions


def test_nothing_is_said_by_default() -> None:
    assert BuildOptions() == BuildOptions(None, None, None, None)
