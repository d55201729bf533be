"""Bundles, raw and compressed, alone and in a chain."""

from __future__ import annotations

import random
import struct
import sys
import time

import pytest

from relink.elf.source import BufferSource
from relink.gpu.amd.bundle import Budget, CompressedHeader, parse_code_object, parse_header, walk
from tests.unit.gpu.amd.build import HOST, PAGE, ccob, chain, code_object, entries_of, hip, raw
from tests.unit.gpu.amd.reading import names, read

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ARCHS_27 = (
    *("gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1010", "gfx1011", "gfx1012"),
    *(f"gfx103{n}" for n in range(7)),
    *(f"gfx110{n}" for n in range(4)),
    *(f"gfx115{n}" for n in range(4)),
    *("gfx1200", "gfx1201", "gfx1250"),
)


@pytest.mark.parametrize("align", [PAGE, 1, 16])
def test_a_raw_bundle(align: int) -> None:
    code = read(raw(entries_of("gfx90a:xnack-", "gfx1030"), align=align))
    (bundle,) = code.bundles
    assert code.problems == ()
    assert (code.form, code.container, names(bundle)) == ("bundle", "raw", ["gfx90a:xnack-", "gfx1030"])
    assert [str(o.target) for o in code.code_objects] == ["gfx90a:xnack-", "gfx1030"]
    assert bundle.entries[0].text == HOST


@pytest.mark.parametrize("first", ["raw", "ccob"])
def test_a_chain_of_mixed_containers(first: str) -> None:
    parts = [
        raw(entries_of("gfx1100")),
        ccob(raw(entries_of("gfx1100")), 2),
        ccob(raw(entries_of("gfx1100")), 3),
    ]
    parts = parts if first == "raw" else parts[::-1]
    data, places = chain(parts)
    code = read(data)
    assert [b.offset for b in code.bundles] == places
    assert code.problems == ()
    assert set(code.container.split(" + ")) == {"raw", "ccob-v2", "ccob-v3"}


def test_27_entries_and_ids_with_and_without_v4() -> None:
    entries = {hip(name, "hip" if i % 2 else "hipv4"): b"BC" * 50 for i, name in enumerate(ARCHS_27)}
    (bundle,) = read(raw(entries)).bundles
    assert tuple(names(bundle)) == ARCHS_27
    assert len(bundle.entries) == 28


def test_a_header_of_more_than_a_page_is_read_to_its_end() -> None:
    entries = {f"{hip('gfx1030')}{'x' * 200}{i}": code_object("gfx1030") for i in range(60)} | entries_of(
        "gfx1100"
    )
    for data in (raw(entries), ccob(raw(entries))):
        (bundle,) = read(data).bundles
        assert len(bundle.entries) == 62
        assert names(bundle)[-1] == "gfx1100"


def test_magics_inside_of_payloads_are_not_bundles() -> None:
    noise = random.Random(1).randbytes(300)
    stray = (
        noise
        + b"__CLANG_OFFLOAD_BUNDLE__"
        + noise
        + b"CCOB\x03\0\x01\0"
        + b"\x10\xff\x10\xad"
        + b"\x7fELF"
        + noise
    )
    entries = {hip("gfx1100"): code_object("gfx1100") + (stray + bytes(-len(stray) % PAGE)) * 3}
    packed = ccob(raw(entries))
    assert b"__CLANG_OFFLOAD_BUNDLE__" in packed  # zstd keeps literals as they are
    data, places = chain([packed, raw(entries), packed])
    code = read(data)
    assert [b.offset for b in code.bundles] == places
    assert code.problems == ()


def test_padding_after_the_last_bundle_is_nothing() -> None:
    code = read(raw(entries_of("gfx1100")) + bytes(3 * PAGE))
    assert len(code.bundles) == 1
    assert code.problems == ()


def test_an_empty_device_entry_counts_as_missing() -> None:
    code = read(raw(entries_of("gfx1100") | {hip("gfx1030"): b""}))
    assert names(code.bundles[0]) == ["gfx1100"]
    assert any("gfx1030 is empty" in p for p in code.problems)


def test_an_entry_past_the_end_counts_as_missing() -> None:
    data = bytearray(raw(entries_of("gfx1100", "gfx1030")))
    at = data.index(hip("gfx1030").encode()) - 24
    struct.pack_into("<Q", data, at, 1 << 62)
    for form in (bytes(data), ccob(bytes(data))):
        code = read(form)
        assert names(code.bundles[0]) == ["gfx1100"]
        assert any("past the end" in p for p in code.problems)


def test_the_elf_header_must_agree_with_the_id() -> None:
    entries = {hip("gfx1030"): code_object("gfx1100"), hip("gfx90a:xnack+"): code_object("gfx90a")}
    for data in (raw(entries), ccob(raw(entries))):
        problems = read(data).problems
        assert any("gfx1030 holds code for gfx1100" in p for p in problems)
        assert any("xnack+ holds code for gfx90a" in p for p in problems)


def test_an_unknown_machine_number_is_a_remark_and_not_fatal() -> None:
    code = read(raw({hip("gfx1999"): code_object(flags=0xFD)}))
    assert names(code.bundles[0]) == ["gfx1999"]
    assert any("unknown machine 0xfd" in p for p in code.problems)


def test_gfx940_decodes() -> None:
    code = read(raw(entries_of("gfx940")))
    assert code.problems == ()
    assert names(code.bundles[0]) == ["gfx940"]


def test_ids_may_not_repeat_nor_be_half_open() -> None:
    both = {hip("gfx90a", "hip"): code_object("gfx90a"), hip("gfx90a", "hipv4"): code_object("gfx90a")}
    assert any("there twice" in p for p in read(raw(both)).problems)
    half = read(raw(entries_of("gfx90a", "gfx90a:xnack-")))
    assert any("with and without a feature" in p for p in half.problems)


def test_what_is_no_code_object_is_said_so_but_spirv_is_one() -> None:
    assert any("no ELF code object" in p for p in read(raw({hip("gfx1030"): b"garbage!" * 20})).problems)
    spirv = read(raw({"hip-spirv64-amd-amdhsa--amdgcnspirv": b"\x03\x02\x23\x07" * 20}))
    assert spirv.problems == ()
    assert names(spirv.bundles[0]) == ["amdgcnspirv"]


@pytest.mark.parametrize("count", [4097, 1 << 32, (1 << 64) - 1])
def test_a_huge_count_is_not_believed(count: int) -> None:
    code = read(b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", count) + bytes(8000))
    assert code.bundles[0].entries == ()
    assert any(f"claims {count} entries" in p for p in code.problems)


def test_a_huge_id_is_not_believed() -> None:
    code = read(b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<QQQQ", 1, 0, 10, 1 << 40) + bytes(8000))
    assert any("claims an id of" in p for p in code.problems)


def test_every_truncation_is_survived() -> None:
    whole = {
        "raw": raw(entries_of("gfx1100", "gfx1030"))[:5000],
        "zstd": ccob(raw(entries_of("gfx1100"))),
        "zlib": ccob(raw(entries_of("gfx1100")), 2, "zlib"),
    }
    for data in whole.values():
        for length in (*range(min(len(data) - 1, 400)), len(data) - 1):
            code = read(data[:length])
            assert length < 24 or code.problems, length


def test_an_id_without_a_target_is_named() -> None:
    code = read(raw({"hipv4-amdgcn-amd-amdhsa--": code_object(), "host-weird": b""}))
    assert code.problems == ("file+0x0: the id 'hipv4-amdgcn-amd-amdhsa--' names no target",)


def test_a_size_past_the_end_is_clipped() -> None:
    whole = raw(entries_of("gfx1100"))
    (bundle,) = read(whole[:4300]).bundles
    assert bundle.size == 4300
    code = read(ccob(raw(entries_of("gfx1100")), size=1 << 50))
    assert names(code.bundles[0]) == ["gfx1100"]
    assert any("claims" in p for p in code.problems)
    code = read(ccob(raw(entries_of("gfx1100")), size=10))
    assert code.bundles[0].container == "unreadable"
    assert any("less than its own header" in p for p in code.problems)


def test_a_file_of_too_many_entries_is_given_up() -> None:
    data, _ = chain([raw(entries_of("gfx1100", "gfx1030"))] * 4)
    budget = Budget(entries=7)
    bundles = walk(BufferSource(data), 0, len(data), budget)
    assert sum(len(b.entries) for b in bundles) == 7
    assert any("more entries" in p for p in budget.problems)


def test_old_code_objects_say_less_in_their_headers() -> None:
    v3 = {hip("gfx906:xnack-"): code_object(abi=1, flags=0x2F), hip("gfx908"): code_object(abi=0, flags=0)}
    assert read(raw(v3)).problems == ()
    wrong = {hip("gfx906:xnack-"): code_object(abi=1, flags=0x30), hip("gfx908"): code_object(abi=2, flags=0)}
    assert len(read(raw(wrong)).problems) == 2


def test_problems_are_counted_out() -> None:
    budget = Budget()
    for number in range(1000):
        budget.problem(str(number))
    assert len(budget.problems) == 100


def test_the_walk_goes_on_at_the_next_wrapper_after_a_bundle_it_cannot_read() -> None:
    broken = b"CCOB\x09\0\x01\0" + bytes(100)
    data, places = chain([raw(entries_of("gfx1100")), broken, b"junk" * 30, raw(entries_of("gfx1030"))])
    budget = Budget()
    bundles = walk(BufferSource(data), 0, len(data), budget, known=places)
    assert [b.container for b in bundles] == ["raw", "unreadable", "unreadable", "raw"]
    assert len(budget.problems) == 2


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


COMPRESSED = [(version, method) for version in (1, 2, 3) for method in ("zstd", "zlib")]


@pytest.mark.parametrize(("version", "method"), COMPRESSED)
def test_a_compressed_bundle(version: int, method: str) -> None:
    inner = raw(entries_of("gfx1100", "gfx1200"))
    code = read(ccob(inner, version, method))
    (bundle,) = code.bundles
    assert (bundle.container, bundle.method, bundle.uncompressed_size) == (
        f"ccob-v{version}",
        method,
        len(inner),
    )
    assert names(bundle) == ["gfx1100", "gfx1200"]
    assert [o.version for o in code.code_objects] == [6, 6]
    assert [p for p in code.problems if "version 1" not in p] == []


@pytest.mark.parametrize(
    ("version", "method", "text"), [(4, 1, "version 4"), (0, 1, "version 0"), (3, 2, "method 2")]
)
def test_an_unknown_version_or_method_is_named_and_counts(version: int, method: int, text: str) -> None:
    data = b"CCOB" + struct.pack("<HH", version, method) + ccob(raw(entries_of("gfx1100")))[8:]
    code = read(data)
    assert [b.container for b in code.bundles] == ["unreadable"]
    assert any(text in p for p in code.problems)


def test_a_payload_that_is_damaged_or_no_bundle() -> None:
    data = bytearray(ccob(raw(entries_of("gfx1100")), 2, "zlib"))
    data[24:40] = bytes(16)
    assert any("damaged" in p for p in read(bytes(data)).problems)
    data = bytearray(ccob(raw(entries_of("gfx1100"))))
    data[32:36] = b"abcd"
    assert any("zstd payload cannot be read" in p for p in read(bytes(data)).problems)
    assert any("is no bundle" in p for p in read(ccob(b"something else" * 20)).problems)


def test_a_size_that_the_frame_contradicts_is_named() -> None:
    data = bytearray(ccob(raw(entries_of("gfx1100"))))
    struct.pack_into("<Q", data, 16, 123456)
    assert any("its zstd frame" in p for p in read(bytes(data)).problems)


INNER = raw(entries_of("gfx1100", "gfx1030"))
WHOLE = zstd.compress(INNER, options={zstd.CompressionParameter.checksum_flag: 1})
# RFC 8878, 3.1.1: magic; no checksum and no size; a window of 1 MiB; a raw block whose header does not call it the last one.
ENDLESS = b"\x28\xb5\x2f\xfd\x00\x50" + struct.pack("<I", len(INNER) << 3)[:3] + INNER


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        pytest.param(WHOLE, None, id="whole"),
        pytest.param(WHOLE + b"x", "1 bytes lie behind the zstd frame", id="junk"),
        pytest.param(WHOLE + WHOLE, f"{len(WHOLE)} bytes lie behind the zstd frame", id="second frame"),
        pytest.param(WHOLE[:-4], "the zstd frame does not end", id="no checksum"),
        pytest.param(ENDLESS, "the zstd frame does not end", id="no final block"),
    ],
)
def test_a_payload_ends_where_its_frame_does(payload: bytes, text: str | None) -> None:
    """What is behind the part that is read counts: comgr gives zstd all of it."""
    code = read(b"CCOB" + struct.pack("<HHQQQ", 3, 1, 32 + len(payload), len(INNER), 0) + payload)
    assert names(code.bundles[0]) == ["gfx1100", "gfx1030"]
    assert [(text or "") in problem for problem in code.problems] == ([True] if text else [])


@pytest.mark.few(0, reason="the same by the other method")
@pytest.mark.parametrize("method", ["zstd", "zlib"])
def test_a_bomb_costs_no_more_than_a_bundle(method: str) -> None:
    bomb = ccob(raw(entries_of("gfx1100")) + bytes(300 << 20), 3, method)
    assert len(bomb) < 1 << 20
    started = time.process_time()
    code = read(bomb)
    assert names(code.bundles[0]) == ["gfx1100"]
    assert time.process_time() - started < 0.5
    nothing = ccob(b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 4000) + bytes(300 << 20), 3, method)
    started = time.process_time()
    read(nothing)
    assert time.process_time() - started < 0.5


def test_a_window_that_wants_too_much_memory_is_refused() -> None:
    content = raw(entries_of("gfx1100"))
    # RFC 8878: magic, frame header with a window of 2**(10 + 20) bytes, one raw block, the last
    packed = (
        b"\x28\xb5\x2f\xfd\x00" + bytes([20 << 3]) + struct.pack("<I", len(content) << 3 | 1)[:3] + content
    )
    assert (
        read(
            b"CCOB"
            + struct.pack("<HHQQQ", 3, 1, 32 + len(packed), len(content), 0)
            + packed.replace(b"\xa0", b"\x50", 1)
        )
        .bundles[0]
        .entries
    )
    data = b"CCOB" + struct.pack("<HHQQQ", 3, 1, 32 + len(packed), 8192, 0) + packed
    code = read(data)
    assert code.bundles[0].entries == ()
    assert any("damaged" in p for p in code.problems)


class _Endless:
    """A CCOB of version 1 whose zstd frame consists of empty blocks, each three zero bytes: a sparse file of 1 TB."""

    HEAD = b"CCOB" + struct.pack("<HHIQ", 1, 1, 1 << 20, 0) + b"\x28\xb5\x2f\xfd\x00\x50"

    def __init__(self) -> None:
        self.taken = 0

    @property
    def size(self) -> int:
        return 1 << 40

    def read_at(self, offset: int, length: int) -> bytes:
        self.taken += length
        if self.taken > 64 << 20:
            raise AssertionError("more than 64 MiB were read of a payload from which nothing comes")
        return (self.HEAD[offset : offset + length]).ljust(length, b"\0")


def test_a_frame_of_empty_blocks_is_given_up() -> None:
    source, budget = _Endless(), Budget()
    (bundle,) = walk(source, 0, source.size, budget)
    assert bundle.entries == ()
    assert any("the rest is not read" in p for p in budget.problems)
    assert source.taken < 4 << 20
    assert (1 << 20) <= Budget().inflated - budget.inflated < 2 << 20


def test_many_bombs_in_one_file_are_given_up() -> None:
    data, _ = chain([ccob(raw(entries_of("gfx1100")))] * 20)
    budget = Budget(inflated=10 * 128 * 1024)
    bundles = walk(BufferSource(data), 0, len(data), budget)
    assert sum(bool(b.entries) for b in bundles) == 10
    assert any("used up" in p for p in budget.problems)
    budget = Budget(bundles=5)
    assert len(walk(BufferSource(data), 0, len(data), budget)) == 5
    assert any("more bundles" in p for p in budget.problems)


def test_version_1_ends_at_the_next_wrapper() -> None:
    data, places = chain([ccob(raw(entries_of("gfx1100")), 1), ccob(raw(entries_of("gfx1030")), 1, "zlib")])
    budget = Budget()
    bundles = walk(BufferSource(data), 0, len(data), budget, known=places)
    assert [names(b) for b in bundles] == [["gfx1100"], ["gfx1030"]]
    assert budget.problems == []
    assert len(walk(BufferSource(data), 0, len(data), budget)) == 1
    assert any("does not say where it ends" in p for p in budget.problems)


@pytest.mark.parametrize(("version", "size"), [(2, 24), (3, 32)])
def test_a_compressed_size_equal_to_the_header(version: int, size: int) -> None:
    """Nothing follows, which is a payload that cannot be read; the header itself is none that contradicts itself."""
    data = ccob(raw(entries_of("gfx1100")), version, size=size)
    header = parse_header(data)
    assert isinstance(header, CompressedHeader)
    assert (header.size, header.header_size) == (size, size)
    assert (
        parse_header(ccob(b"", version, size=size - 1))
        == f"CCOB says {size - 1} bytes, less than its own header"
    )
