"""What the scan says of damaged libraries."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from relink.loader.scan import scan
from tests.support.elf_attacks import (
    dynamic_entries,
    rewritten,
)

PAGE = mmap.PAGESIZE


def said(data: bytes | Path) -> str:
    refusals = scan(data if isinstance(data, bytes) else data.read_bytes())
    return "; ".join(map(str, refusals))


def own_slot() -> int:
    """The address of a word of the small library that it may write to: its first import's."""
    (rela,) = (value for _, tag, value in dynamic_entries(rewritten()) if tag == 7)
    return int(struct.unpack_from("<Q", rewritten(), rela)[0])
