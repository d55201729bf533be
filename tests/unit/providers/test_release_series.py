"""The series of a release."""

from __future__ import annotations

import pytest

from relink.providers.release_series import series


@pytest.mark.parametrize(
    ("version", "expected"),
    [("7.2.4", "7.2"), ("10.1", "10.1"), ("7.2.0rc1", "7.2"), ("unknown", "unknown"), ("9" * 5000,) * 2],
)
def test_series(version: str, expected: str) -> None:
    assert series(version) == expected
