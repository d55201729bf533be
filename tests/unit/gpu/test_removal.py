"""Ranges of a file get other bytes, as long as the bytes before are those that were seen."""

from __future__ import annotations

import pytest

from relink.elf.source import BufferSource
from relink.gpu.removal import Replacement, hash_range, replace_ranges
from relink.system.errors import RelinkError


def test_other_bytes_than_those_of_the_plan_are_refused() -> None:
    source = BufferSource(b"abcdefgh")
    one = Replacement(2, 4, "x", hash_range(source, 2, 4), b"Z")
    pieces = [memoryview(b"abc"), memoryview(b"defgh")]
    assert b"".join(replace_ranges(pieces, [one], "f")) == b"abZ\0\0\0gh"
    with pytest.raises(RelinkError, match="are not the code that was to be taken out"):
        list(replace_ranges([memoryview(b"abXdefgh")], [one], "f"))
    with pytest.raises(RelinkError, match="ends before"):
        list(replace_ranges([memoryview(b"abcd")], [one], "f"))
