"""Device code of files, as the tests name it."""

from __future__ import annotations

from relink.elf.source import BufferSource
from relink.gpu.amd.bundle import Bundle
from relink.gpu.amd.device_code import DeviceCode, read_device_code
from tests.unit.gpu.amd.build import (
    ccob,
    entries_of,
    raw,
)

THREE = [
    raw(entries_of("gfx1100", "gfx1030")),
    ccob(raw(entries_of("gfx1100"))),
    ccob(raw(entries_of("gfx1100")), 1),
]


def read(data: bytes, scan_limit: int = 0) -> DeviceCode:
    return read_device_code(BufferSource(data), "libx.so", scan_limit=scan_limit)


def targets(code: DeviceCode) -> list[list[str]]:
    return [[str(t.target) for t in bundle.targets] for bundle in code.bundles]


def names(bundle: Bundle) -> list[str]:
    return [str(code.target) for code in bundle.targets]
