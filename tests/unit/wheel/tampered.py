"""Archives in which something is not as it should be."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.system.errors import WheelError
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import WheelLimits
from tests.unit.wheel.build import Entry, RawZip, good_entries, write_raw

Tamper = Callable[[RawZip], None]


def issues_of(tmp_path: Path, tamper: Tamper, limits: WheelLimits | None = None) -> tuple[str, ...]:
    raw = RawZip(good_entries())
    tamper(raw)
    with pytest.raises(WheelError) as caught:
        WheelArchive(write_raw(tmp_path, raw), limits=limits)
    assert caught.value.issues
    return caught.value.issues


def with_first(**values: object) -> Tamper:
    def tamper(raw: RawZip) -> None:
        for field, value in values.items():
            setattr(raw.entries[0], field, value)

    return tamper


def with_archive(**values: object) -> Tamper:
    def tamper(raw: RawZip) -> None:
        for field, value in values.items():
            setattr(raw, field, value)

    return tamper


def with_inserted(*entries: Entry) -> Tamper:
    def tamper(raw: RawZip) -> None:
        raw.entries[0:0] = entries

    return tamper


UNICODE_PATH = struct.pack("<HHBL", 0x7075, 5 + 5, 1, 0) + b"other"
