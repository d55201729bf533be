"""The types of bytes that the modules of this package pass to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""Bytes of a member or of a compressed stream."""

RangeReader: TypeAlias = Callable[[int, int], bytes]
"""``read(offset, length)`` gives bytes of a file or of a stream; each user says whether fewer than ``length`` may come."""
