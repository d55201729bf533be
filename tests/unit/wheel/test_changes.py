"""The method that a new member has, and the ranges of it that are reused."""

from __future__ import annotations

from relink.wheel.changes import Addition, Replacement, method_of, spans_of
from relink.wheel.deflate.splice import Span
from relink.wheel.zipformat import DEFLATED, STORED
from tests.unit.wheel.streams import reader


def test_the_method() -> None:
    assert method_of(Addition(b"")) == method_of(Replacement(b"")) == DEFLATED
    assert method_of(Addition(b"", stored=True)) == STORED


def test_only_what_was_there_has_spans() -> None:
    span = Span(0, 1, 0, 8, reader(b""))
    assert spans_of(Replacement(b"x", spans=lambda: (span,))) == (span,)
    assert spans_of(Addition(b"x")) == ()
