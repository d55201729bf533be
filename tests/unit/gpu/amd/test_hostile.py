"""Generated damage: whatever the bytes, a result, soon, and never an exception."""

from __future__ import annotations

import struct
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relink.elf.source import BufferSource
from relink.gpu.amd.device_code import read_device_code
from relink.gpu.amd.file_coverage import coverage_of
from relink.gpu.amd.kpack import MsgpackError, parse_archive, read_msgpack
from relink.gpu.amd.target_id import match, parse_bundle_id
from relink.gpu.coverage import TargetId
from tests.support.amount import amount
from tests.unit.gpu.amd.build import ccob, code_object, entries_of, kpack_archive, library, raw

SEEDS = (
    raw(entries_of("gfx1100", "gfx90a:xnack-")),
    ccob(raw(entries_of("gfx1100", "gfx1030"))),
    ccob(raw(entries_of("gfx1100")), 2, "zlib"),
    ccob(raw(entries_of("gfx1100")), 1),
    library([raw(entries_of("gfx1100")), ccob(raw(entries_of("gfx1030")))]),
    library([raw(entries_of("gfx1100"))] * 3, relocation="relr"),
    library([raw(entries_of("gfx1100"))], sections=False),
    library(kpack=b"\x82\xabkernel_name\xa1x\xb2kpack_search_paths\x91\xa1y", kpack_wrappers=3),
    kpack_archive({"a#0": ["gfx1100"]}),
    code_object(),
)
EXAMPLES = amount(250)
NUMBERS = st.sampled_from(
    (0, 1, 2, 24, 255, 4095, 4096, 65535, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 63, (1 << 64) - 1)
)


def survive(data: bytes) -> None:
    started = time.process_time()
    code = read_device_code(BufferSource(data), "x", scan_limit=1 << 16)
    found = coverage_of(code)
    found.level(TargetId("gfx1100"))
    found.to_json()
    assert len(code.problems) <= 100
    assert time.process_time() - started < 2


DAMAGE = given(
    seed=st.sampled_from(SEEDS),
    edits=st.lists(st.tuples(st.integers(0, 400), NUMBERS, st.sampled_from("BHIQ")), min_size=1, max_size=6),
    cut=st.none() | st.integers(0, 9000),
)


def damage(seed: bytes, edits: list[tuple[int, int, str]], cut: int | None) -> None:
    data = bytearray(seed)
    for place, value, form in edits:
        size = struct.calcsize(form)
        if place + size <= len(data):
            struct.pack_into(f"<{form}", data, place, value & ((1 << 8 * size) - 1))
    survive(bytes(data[:cut]))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@DAMAGE
def test_numbers_in_headers(seed: bytes, edits: list[tuple[int, int, str]], cut: int | None) -> None:
    damage(seed, edits, cut)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.sampled_from(SEEDS),
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), NUMBERS), min_size=1, max_size=8),
)
def test_numbers_at_the_end_of_the_file(seed: bytes, edits: list[tuple[float, int]]) -> None:
    """Section headers, relocations and wrappers lie there."""
    data = bytearray(seed)
    tail = min(len(data), 1500)
    for where, value in edits:
        place = (len(data) - tail + int(where * tail)) // 8 * 8
        if place + 8 <= len(data):
            struct.pack_into("<Q", data, place, value)
    survive(bytes(data))


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    head=st.sampled_from(
        (b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB", b"\x10\xff\x10\xad", b"KPAK", b"\x7fELF\x02\x01\x01", b"")
    ),
    tail=st.binary(max_size=600),
)
def test_noise_after_a_magic(head: bytes, tail: bytes) -> None:
    survive(head + tail)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=200))
def test_noise_as_msgpack(data: bytes) -> None:
    try:
        _, used = read_msgpack(data)
    except MsgpackError:
        return
    assert used <= len(data)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.binary(max_size=200))
def test_noise_as_kpack(data: bytes) -> None:
    parse_archive(BufferSource(b"KPAK" + struct.pack("<IQ", 1, 16) + data), "x")


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.text(max_size=80)
    | st.from_regex(r"hip(v4)?-amdgcn-amd-amdhsa--gfx[0-9a-f]{1,5}(:[a-z]+[+-]){0,3}", fullmatch=True)
)
def test_any_id_is_taken_apart(text: str) -> None:
    target, _ = parse_bundle_id(text)
    if target is not None:
        assert match([], target).served == ()


@pytest.mark.slow(reason="many bundles")
def test_a_file_full_of_tiny_bundles_is_given_up() -> None:
    page = b"__CLANG_OFFLOAD_BUNDLE__" + bytes(4096 - 24)
    data = page * 20_000
    started = time.process_time()
    code = read_device_code(BufferSource(data), "x")
    assert len(code.bundles) == 20_000
    assert time.process_time() - started < 5


@pytest.mark.slow(reason="seconds of searching; the one above has a search that is given up")
@pytest.mark.parametrize("size", [1 << 20, 8 << 20])
def test_a_search_through_magics_only_is_bounded(size: int) -> None:
    from tests.unit.gpu.amd.build import Piece  # noqa: PLC0415

    for unit in (
        b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 4000),
        b"CCOB\3\0\1\0",
        b"\x7fELF\2\1\1",
        b"CCOB\1\0\1\0" + ccob(raw(entries_of("gfx1100")))[8:200],
    ):
        data = library(extra=[Piece(".data", unit * (size // len(unit)))])
        started = time.process_time()
        read_device_code(BufferSource(data), "x", scan_limit=1 << 30)
        assert time.process_time() - started < 20
