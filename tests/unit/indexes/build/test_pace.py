"""index.pace: how long bytes are waited for, together."""

from __future__ import annotations

import socket

import pytest

from relink.indexes.build.pace import Pace


def test_the_waiting_counts_together() -> None:
    here, there = socket.socketpair()
    with here, there, here.makefile("rb", buffering=0) as raw:
        pace, buffer = Pace(0.2, 4), bytearray(10)
        there.sendall(b"ab")
        assert pace.read(here, raw, buffer) == 2
        assert (pace.came, pace.waited < 0.2) == (2, True)
        there.sendall(b"cd")
        assert pace.read(here, raw, buffer) == 2
        assert (pace.came, pace.waited) == (0, 0)
        pace.waited = 0.19
        there.sendall(b"e")
        pace.read(here, raw, buffer)
        with pytest.raises(TimeoutError, match="1 bytes in 0 s: too slow"):
            pace.read(here, raw, buffer)
