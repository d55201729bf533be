"""Bundles, raw and compressed, alone and in a chain."""

from __future__ import annotations

import random
import struct

import pytest

from relink.elf.source import BufferSource
from relink.gpu.amd.bundle import Budget, parse_code_object, walk
from tests.unit.gpu.amd.build import HOST, PAGE, ccob, chain, code_object, entries_of, hip, raw
from tests.unit.gpu.amd.reading import names, read

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
