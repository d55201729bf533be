from __future__ import annotations

import time

import pytest

from relink.wheel.paths import collisions, name_defect


@pytest.mark.parametrize("name", ["a", "a/b.so", "a/b/", "..a", "a..", "é/ü.py", "a b", "ab:c", "~/x"])
def test_good_names(name: str) -> None:
    assert name_defect(name) is None


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("", "empty"),
        ("/", "empty"),
        ("/etc/passwd", "absolute"),
        ("../x", "leaves"),
        ("a/../../x", "leaves"),
        ("a/..", "leaves"),
        ("C:/x", "drive"),
        ("c:x", "drive"),
        ("a\\b", "backslash"),
        ("..\\x", "backslash"),
        ("a\0b", "NUL"),
        ("a\nb", "control"),
        ("a//b", "shortest"),
        ("./a", "shortest"),
        ("a/./b", "shortest"),
    ],
)
def test_bad_names(name: str, word: str) -> None:
    assert word in (name_defect(name) or "")


def test_collisions() -> None:
    assert collisions(["a/B.py", "a/b", "c/", "c/d", "e", "ef/g", "e.py"]) == []
    assert "only in case" in collisions(["a/B.py", "A/b.py"])[0]
    assert "only in case" in collisions(["stra\u00dfe", "STRASSE"])[0]
    assert "composition" in collisions(["e\u0301", "\u00e9"])[0]
    assert "final slash" in collisions(["a", "a/"])[0]
    assert "directory of 'A/b/c'" in collisions(["a", "A/b/c"])[0]
    assert "directory of 'a/b'" in collisions(["a", "a.b", "a-b", "a/b"])[0]


def test_deep_paths_take_no_time() -> None:
    start = time.monotonic()
    assert collisions(f"{number}" + "/a" * 30_000 for number in range(200)) == []
    assert time.monotonic() - start < 5
