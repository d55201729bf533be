"""Errors are sentences with further lines, and all of them are RelinkErrors."""

from __future__ import annotations

from relink.system import errors
from relink.system.errors import EditError, PatchelfError, RelinkError, WheelError


def test_a_message_and_its_issues() -> None:
    error = WheelError("two things are wrong", iter(["one", "two"]))
    assert (error.message, error.issues) == ("two things are wrong", ("one", "two"))
    assert str(error) == "two things are wrong\n  - one\n  - two"
    assert str(WheelError("one thing")) == "one thing"


def test_whoever_catches_the_root_catches_each() -> None:
    classes = [
        one for one in vars(errors).values() if isinstance(one, type) and one.__module__ == errors.__name__
    ]
    assert len(classes) >= 10
    assert all(issubclass(one, RelinkError) for one in classes)
    assert issubclass(EditError, PatchelfError), "whoever cannot go on without patchelf catches both"
