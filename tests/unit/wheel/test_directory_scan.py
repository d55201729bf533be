"""Defects of a directory: as many as a person can read, each short."""

from __future__ import annotations

from relink.wheel.directory_scan import DirectoryScan, unreadable


def scan() -> DirectoryScan:
    return DirectoryScan(lambda _offset, length: bytes(length), 1000)


def test_a_defect_names_the_member() -> None:
    found = scan()
    found.add("a\nb", "is damaged")
    found.add("", "the archive is damaged")
    found.add("x" * 300, "is long")
    assert found.issues == [r"'a\nb': is damaged", "the archive is damaged", f"'{'x' * 200}…': is long"]


def test_no_more_than_a_hundred() -> None:
    found = scan()
    for number in range(100_000):
        found.add(f"a{number}", "is damaged")
    assert len(found.issues) == 101
    assert found.issues[99:] == ["'a99': is damaged", "and more"]


def test_the_error() -> None:
    error = unreadable("it is cut")
    assert (error.message, error.issues) == ("the ZIP structure cannot be read", ("it is cut",))
