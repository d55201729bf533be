"""The ELF header of a code object."""

from __future__ import annotations

import pytest

from relink.gpu.amd.code_object import parse_code_object
from tests.unit.gpu.amd.build import code_object


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (0x53F, "gfx90a"),
        (0x63F, "gfx90a:xnack-"),
        (0x73F, "gfx90a:xnack+"),
        (0xF3F, "gfx90a:sramecc+:xnack+"),
        (0xA3F, "gfx90a:sramecc-:xnack-"),
        (0x133, "gfx1010"),
        (0x36, "gfx1030"),
        (0x540, "gfx940"),
        (0x54B, "gfx941"),
        (0x549, "gfx1250"),
        (0x749, "gfx1250"),  # xnack+ in the flags: replay is always on, and ROCr drops it
        (0x5EB, "gfx1250-strict"),
        (0x0100075B, "gfx12-5-generic"),
        (0x01000054, "gfx11-generic"),
        (0x0100065F, "gfx9-4-generic:xnack-"),
    ],
)
def test_flags_give_the_target_id(flags: int, name: str) -> None:
    code = parse_code_object(code_object(flags=flags))
    assert code is not None
    assert code.name == name
    assert code.version == 6
    assert code.generic_version == flags >> 24


def test_an_unknown_machine_number_is_printed() -> None:
    code = parse_code_object(code_object(flags=0xFE))
    assert code is not None
    assert (code.target, code.name) == (None, "unknown machine 0xfe")


@pytest.mark.parametrize(("abi", "version"), [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (9, None)])
def test_the_abi_version_is_the_code_object_version_less_two(abi: int, version: int | None) -> None:
    code = parse_code_object(code_object(abi=abi))
    assert code is not None
    assert code.version == version


def test_version_3_has_one_bit_a_feature() -> None:
    code = parse_code_object(code_object(abi=1, flags=0x12F))
    assert code is not None
    assert code.name == "gfx906:xnack+"
    code = parse_code_object(code_object(abi=3, flags=0x05000041))
    assert code is not None
    assert code.generic_version == 0  # versions below 6 have none


def test_other_elf_files_and_short_data_are_no_code_objects() -> None:
    host = bytearray(code_object())
    host[18] = 62
    assert parse_code_object(host) is None  # type: ignore[arg-type]
    assert parse_code_object(code_object()[:63]) is None
    assert parse_code_object(b"") is None
