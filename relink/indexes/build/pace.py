"""Answers of web servers that have to keep a pace: one that comes byte by byte ends, its headers included.

The timeout of a socket counts anew with each byte. Here what is waited for counts together, up to the next bytes that are enough.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from typing import Any

__all__ = ["Pace", "paced"]


@dataclass(slots=True)
class Pace:
    """What a server has to send while it is waited for: `least` bytes within each `seconds`.

    :ivar waited: seconds since there were enough bytes the last time; `came` are the bytes since then.
    """

    seconds: float
    least: float
    waited: float = 0
    came: int = 0

    def read(self, connection: socket.socket, raw: io.RawIOBase, buffer: Any) -> int:
        """Read what comes next.

        :raises TimeoutError: too little has come for too long.
        """
        left = self.seconds - self.waited
        began = time.monotonic()
        connection.settimeout(max(left, 0.001))
        try:
            size = raw.readinto(buffer) or 0
        except TimeoutError:
            left = 0
        finally:
            self.waited += time.monotonic() - began
        if left <= 0:
            raise TimeoutError(f"{self.came} bytes in {self.seconds:.0f} s: too slow")
        self.came += size
        if self.came >= self.least:
            self.waited = self.came = 0
        return size


class _Stream(io.RawIOBase):
    """The bytes of a connection."""

    def __init__(self, connection: socket.socket, pace: Pace) -> None:
        self._connection, self._pace = connection, pace
        self._raw = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._pace.read(self._connection, self._raw, buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *more: Any, pace: Pace, **options: Any) -> None:
        super().__init__(sock, *more, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Stream(sock, pace))


def paced(kind: Callable[..., HTTPConnection], pace: Pace) -> Callable[..., HTTPConnection]:
    """Return what makes connections of a kind whose answers, those of a proxy too, keep `pace`."""

    def connection(*address: Any, **options: Any) -> HTTPConnection:
        made = kind(*address, **options)
        made.response_class = partial(_Response, pace=pace)  # type: ignore[assignment]
        return made

    return connection
