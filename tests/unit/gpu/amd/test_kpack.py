"""kpack archives, the references to them, and the MessagePack inside."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from relink.elf.source import BufferSource
from relink.gpu.amd.device_code import DeviceCode, as_taken, read_device_code, read_file, resolve_kpack
from relink.gpu.amd.file_coverage import coverage_of, library_coverage_of
from relink.gpu.amd.kpack import (
    STEPS,
    Effort,
    Found,
    KpackReference,
    MsgpackError,
    find_archives,
    parse_archive,
    parse_reference,
    read_msgpack,
    resolve,
)
from relink.gpu.amd.survey import survey
from relink.gpu.amd.target_id import CodeTarget, match, parse_target_id
from relink.gpu.coverage import TargetId
from relink.system.safe_open import list_names
from tests.unit.gpu.amd import build

REFERENCE = {"kernel_name": "lib/libfoo.so.1", "kpack_search_paths": ["../.kpack/foo_lib_@GFXARCH@.kpack"]}


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x00", 0), (b"\x7f", 127), (b"\xff", -1), (b"\xe0", -32),
        (b"\xc0", None), (b"\xc2", False), (b"\xc3", True),
        (b"\xcc\xff", 255), (b"\xcd\1\0", 256), (b"\xce\0\1\0\0", 65536),
        (b"\xcf" + b"\xff" * 8, 2**64 - 1), (b"\xcf" + bytes(7) + b"\1", 1),
        (b"\xd0\x80", -128), (b"\xd1\x80\0", -32768), (b"\xd1\xff\xff", -1), (b"\xd2\xff\xff\xff\xff", -1),
        (b"\xd3\xff" + b"\xff" * 7, -1),
        (b"\xca" + struct.pack(">f", 0.5), 0.5), (b"\xcb" + struct.pack(">d", 0.1), 0.1),
        (b"\xa3abc", "abc"), (b"\xd9\2\xc3\xa9", "é"), (b"\xda\0\1a", "a"), (b"\xdb\0\0\0\1a", "a"),
        (b"\xc4\2\0\xff", b"\0\xff"), (b"\xc5\0\1x", b"x"), (b"\xc6\0\0\0\1x", b"x"),
        (b"\xd4\0x", b"x"), (b"\xd5\7ab", b"ab"), (b"\xd8\0" + b"x" * 16, b"x" * 16), (b"\xc7\3\7abc", b"abc"),
        (b"\x92\1\x90", [1, []]), (b"\xdc\0\1\5", [5]), (b"\xdd\0\0\0\1\1", [1]),
        (b"\x82\xa1a\1\xa1b\x91\2", {"a": 1, "b": [2]}), (b"\xde\0\1\1\2", {1: 2}),
        (b"\xdf\0\0\0\1\xa1a\1", {"a": 1}),
    ],
)  # fmt: skip
def test_msgpack_of_each_type(data: bytes, value: object) -> None:
    assert read_msgpack(data + b"tail") == (value, len(data))
    for size in range(len(data)):
        with pytest.raises(MsgpackError):
            read_msgpack(data[:size])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xc1", "no type 0xc1"),
        (b"\xdd\xff\xff\xff\xff\0", "array of 4294967295 in 1 bytes"),
        (b"\xdf\0\0\0\1\0", "map of 1 in 1 bytes"),
        (b"\xdb\xff\xff\xff\xffx", "wants 4294967295 bytes"),
        (b"\xc6\xff\xff\xff\xff\0", "wants 4294967295 bytes"),
        (b"\xa2\xff\xff", "damaged"),
        (b"\x81\x90\1", "damaged"),
        (b"\x91" * 100 + b"\1", "nested deeper than 32"),
    ],
)
def test_msgpack_that_is_hostile(data: bytes, said: str) -> None:
    with pytest.raises(MsgpackError, match=said):
        read_msgpack(data)


@pytest.mark.slow(reason="three seconds of parsing")
def test_the_number_of_msgpack_objects_is_bounded() -> None:
    def lists(count: int) -> bytes:
        return b"\xdd" + struct.pack(">I", count) + b"\x90" * count

    assert len(read_msgpack(lists(999_999))[0]) == 999_999
    with pytest.raises(MsgpackError, match="more objects than are read"):
        read_msgpack(lists(1_000_000))


def test_msgpack_objects_of_several_tables_are_counted_together() -> None:
    effort = Effort(10)
    assert read_msgpack(b"\x93\x01\x02\x03", effort) == ([1, 2, 3], 4)
    assert effort.left == 6
    for _ in range(2):
        with pytest.raises(MsgpackError, match="more objects than are read"):
            read_msgpack(b"\x97" + bytes(7), effort)
        assert effort.left <= 0


def prefix_with(tmp_path: Path, contents: dict[str, dict[str, list[str]]], wrappers: int = 2) -> Path:
    (tmp_path / "lib").mkdir(parents=True)
    (tmp_path / ".kpack").mkdir()
    for name, toc in contents.items():
        (tmp_path / ".kpack" / name).write_bytes(build.kpack_archive(toc))
    path = tmp_path / "lib" / "libfoo.so.1"
    path.write_bytes(build.library(kpack=build.msgpack(REFERENCE) + bytes(50), kpack_wrappers=wrappers))
    return path


def test_a_library_is_resolved_over_its_archives(tmp_path: Path) -> None:
    path = prefix_with(
        tmp_path,
        {
            "foo_lib_gfx1100.kpack": {"lib/libfoo.so.1#0": ["gfx1100"], "lib/libfoo.so.1#1": ["gfx1100"]},
            "foo_lib_gfx90a.kpack": {
                "lib/libfoo.so.1#0": ["gfx90a:xnack-", "gfx90a:xnack+"],
                "lib/other.so#1": ["gfx90a"],
            },
            "bar_lib_gfx1030.kpack": {"lib/libfoo.so.1#0": ["gfx1030"]},
        },
    )
    code = read_file(path)
    assert code.kpack == KpackReference("lib/libfoo.so.1", ("../.kpack/foo_lib_@GFXARCH@.kpack",), (0, 1))
    assert code.container == "kpack"
    found = coverage_of(resolve_kpack(code))
    assert found.targets == ("gfx1100",)
    assert found.partial == (("gfx90a:xnack+", 1), ("gfx90a:xnack-", 1))
    assert found.level(TargetId("gfx1100")).state == "full"
    assert str(found.level(TargetId("gfx90a"))) == "partial (1 of 2)"
    assert found.level(TargetId("gfx1030")).state == "none"
    assert library_coverage_of(resolve_kpack(read_file(path))).file.targets == ("gfx1100",)


def test_the_archives_of_a_library_behind_a_link_lie_where_the_link_leads(tmp_path: Path) -> None:
    path = prefix_with(tmp_path / "core-10.1", {"foo_lib_gfx1100.kpack": {"lib/libfoo.so.1#0": ["gfx1100"]}})
    (tmp_path / "lib").symlink_to("core-10.1/lib")
    assert path.parent == tmp_path / "core-10.1/lib"
    code = resolve_kpack(read_file(tmp_path / "lib" / path.name))
    assert coverage_of(code).partial == (("gfx1100", 1),)


def test_a_library_whose_archives_were_not_looked_for_is_unknown(tmp_path: Path) -> None:
    found = coverage_of(read_file(prefix_with(tmp_path, {})))
    assert found.restricts
    assert found.level(TargetId("gfx1100")).state == "unknown"


def test_a_library_without_any_archive_has_no_code(tmp_path: Path) -> None:
    found = coverage_of(resolve_kpack(read_file(prefix_with(tmp_path, {}))))
    assert found.restricts
    assert found.level(TargetId("gfx1100")).state == "none"
    assert found.archives == ("../.kpack/foo_lib_@GFXARCH@.kpack",)


KEYS = {"lib/libfoo.so.1#0": ["gfx1100"], "lib/libfoo.so.1#1": ["gfx1100"]}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (build.kpack_archive(KEYS, version=2), "kpack version 2 is not known (1 is)"),
        (build.kpack_archive(KEYS, version=0), "kpack version 0 is not known (1 is)"),
        (build.kpack_archive(KEYS, compression_scheme="lz5"), "kpack compression 'lz5' is not known"),
        (
            build.kpack_archive(KEYS, zstd_offset=16, zstd_size=10**6),
            "torn: its code ends past the end of the file",
        ),
        (build.kpack_archive(KEYS, blobs=[{"offset": 2000, "size": 9}]), "torn: its code ends past"),
        (build.kpack_archive(KEYS)[:-5], "torn: damaged MessagePack"),
        (build.kpack_archive(KEYS)[:60], "torn: kpack contents at 0x60 lie outside of the file"),
        (b"KPAK", "no kpack archive"),
        (b"", "no kpack archive"),
    ],
)
def test_an_archive_that_cannot_be_read_makes_its_gpu_unknown_and_no_other(
    tmp_path: Path, data: bytes, why: str
) -> None:
    path = prefix_with(tmp_path, {"foo_lib_gfx1030.kpack": {key: ["gfx1030"] for key in KEYS}})
    (tmp_path / ".kpack" / "foo_lib_gfx1100.kpack").write_bytes(data)
    code = resolve_kpack(read_file(path))
    found = coverage_of(code)
    assert any(why in problem for problem in code.problems)
    level = found.level(TargetId("gfx1100"))
    assert level.state == "unknown"
    assert level.note.startswith(f"foo_lib_gfx1100.kpack: {why}")
    assert found.level(TargetId("gfx1030")).state == "full"
    assert found.level(TargetId("gfx90a")).state == "none"


def test_an_archive_serves_what_its_path_its_list_and_its_table_name(tmp_path: Path) -> None:
    path = prefix_with(
        tmp_path,
        {
            "foo_lib_gfx1100.kpack": {key: ["gfx1030"] for key in KEYS},  # the path is for another GPU
            "foo_lib_gfx90a:xnack+.kpack": {key: ["gfx90a"] for key in KEYS},
        },
    )
    (tmp_path / ".kpack" / "foo_lib_gfx1200.kpack").write_bytes(
        build.kpack_archive({key: ["gfx1200"] for key in KEYS}, architectures=["gfx1201"])
    )
    (tmp_path / ".kpack" / "foo_lib_no target.kpack").write_bytes(build.kpack_archive(KEYS))
    found = coverage_of(resolve_kpack(read_file(path)))
    assert {name: found.level(parse_target_id(name)).state for name in ("gfx1100", "gfx1030", "gfx1200")} == {
        "gfx1100": "none", "gfx1030": "none", "gfx1200": "none",
    }  # fmt: skip
    assert found.level(parse_target_id("gfx90a:xnack+")).state == "full"
    assert found.level(parse_target_id("gfx90a:xnack-")).state == "none"


def test_a_plain_library_needs_no_resolving() -> None:
    code = read_device_code(BufferSource(build.library([build.raw(build.entries_of("gfx1100"))])), "x")
    assert resolve_kpack(code) is code


def test_wrappers_without_a_reference_are_a_problem() -> None:
    code = read_device_code(BufferSource(build.library(kpack_wrappers=2)), "x")
    assert any("2 HIPK wrappers" in p for p in code.problems)


def test_search_paths_may_name_a_file_and_must_not_match_another(tmp_path: Path) -> None:
    for name in (
        "a_gfx1100.kpack",
        "a_.kpack",
        "b.kpack",
        "a_gfx1100.kpack.bak",
        "gfx1030/k/c.kpack",
        "gfx900/c",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    reference = KpackReference(
        "x", ("a_@GFXARCH@.kpack", "b.kpack", "nowhere/c.kpack", "@GFXARCH@/k/c.kpack")
    )
    found = find_archives(reference, str(tmp_path), list_names)
    assert [(one.path.removeprefix(f"{tmp_path}/"), one.target) for one in found] == [
        ("a_gfx1100.kpack", "gfx1100"),
        ("b.kpack", None),
        ("gfx1030/k/c.kpack", "gfx1030"),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        build.msgpack([1]),
        build.msgpack({"kernel_name": 1, "kpack_search_paths": []}),
        build.msgpack({"kernel_name": "x", "kpack_search_paths": [1]}),
    ],
)
def test_a_damaged_reference_says_so(data: bytes) -> None:
    assert isinstance(parse_reference(data), str)
    code = read_device_code(BufferSource(build.library(kpack=data or b"\xc1")), "x")
    assert any(".rocm_kpack_ref" in p for p in code.problems)


def test_damaged_archives_say_so() -> None:
    good = build.kpack_archive({"a#0": ["gfx1100"]}, ["gfx1100"])
    assert parse_archive(BufferSource(good), "a").architectures == {"gfx1100"}
    for data in (
        b"KPAK",
        b"KPAK" + struct.pack("<IQ", 1, 1 << 60),
        good[:-3],
        b"KPAK" + struct.pack("<IQ", 1, 16) + b"\1",
    ):
        assert parse_archive(BufferSource(data), "a").problems
    bad = build.kpack_archive({"a#0": ["not a target!"]})
    assert any("no target id" in p for p in parse_archive(BufferSource(bad), "a").problems)
    row = b"KPAK" + struct.pack("<IQ", 1, 16) + build.msgpack({"toc": {"a#0": 5}})
    assert any("is no table" in p for p in parse_archive(BufferSource(row), "a").problems)


def test_resolving_takes_each_wrapper_by_its_number() -> None:
    archive = parse_archive(BufferSource(build.kpack_archive({"k#0": ["gfx1100"], "k#7": ["gfx1030"]})), "a")
    found = resolve(KpackReference("k", (), (0, 7, 9)), [(Found("a", None), archive)])
    bundles, doubts = found.bundles, found.doubts
    assert not doubts
    assert [[str(t.target) for t in b.targets] for b in bundles] == [["gfx1100"], ["gfx1030"], []]


BARE, OFF, ON = "gfx90a", "gfx90a:xnack-", "gfx90a:xnack+"


# Answers of AMD's loader (tests/real/test_kpack_agreement.py): rocm-kpack e3483286, and rocm-systems 1ddbe7e9.
@pytest.mark.parametrize(
    ("archives", "first", "through"),
    [
        ({BARE: [BARE], OFF: []}, [ON], [BARE]),
        ({BARE: [BARE], OFF: [OFF]}, [BARE, OFF], [BARE, OFF]),
        ({BARE: [], OFF: [OFF]}, [OFF], [OFF]),
        ({BARE: [BARE], OFF: [], ON: []}, [], [BARE]),
        ({BARE: [BARE], "gfx90a:sramecc+": [], OFF: [OFF]}, ["gfx90a:sramecc-"], [BARE, OFF]),
        ({BARE: [BARE], "gfx90a%3Axnack-": []}, [BARE], [BARE]),  # a name that the loader never asks for
        ({BARE: [BARE], "gfx90a:xnack-:sramecc+": []}, [BARE], [BARE]),
    ],
)
def test_which_archive_a_loader_takes(
    tmp_path: Path, archives: dict[str, list[str]], first: list[str], through: list[str]
) -> None:
    path = prefix_with(tmp_path, {}, wrappers=1)
    for name, held in archives.items():
        data = build.kpack_archive({"lib/libfoo.so.1#0": held}, [name])
        (tmp_path / ".kpack" / f"foo_lib_{name}.kpack").write_bytes(data)
    code = resolve_kpack(read_file(path))
    for hip, expected in (((7, 14), first), ((7, 15), first), ((7, 16), through), (None, through)):
        found = coverage_of(as_taken(code, hip))
        (served,) = [match(codes, TargetId(BARE)).served for codes, _ in found.sets]
        assert set(served) == {
            one
            for text in expected
            for one in match([CodeTarget(parse_target_id(text))], TargetId(BARE)).served
        }
        assert bool(found.shadows) == (first != through and hip in ((7, 14), (7, 15)))
    told = [text for text in survey(tmp_path).problems if "HIP before 7.16 takes it first" in text]
    assert bool(told) == (first != through)


def test_an_archive_of_the_processor_hides_that_of_its_generic_target(tmp_path: Path) -> None:
    path = prefix_with(tmp_path, {"foo_lib_gfx11-generic.kpack": {"lib/libfoo.so.1#0": ["gfx11-generic"]}}, 1)
    data = build.kpack_archive({"lib/other.so#0": ["gfx1100"]})
    (tmp_path / ".kpack" / "foo_lib_gfx1100.kpack").write_bytes(data)
    code = resolve_kpack(read_file(path))
    states = [
        [coverage_of(as_taken(code, hip)).level(TargetId(name)).state for name in ("gfx1100", "gfx1101")]
        for hip in ((7, 14), (7, 16))
    ]
    assert states == [["none", "full"], ["full", "full"]]


class Names(list[str]):
    """Names in a directory that count how often one is looked at."""

    seen = 0

    def __iter__(self) -> Iterator[str]:
        for name in super().__iter__():
            self.seen += 1
            yield name


@pytest.mark.slow(reason="half a second of parsing")
def test_kpack_hang() -> None:
    """Each search path is compared with each name of its directory: together they have a bound."""
    names = Names(f"n{number}" for number in range(20_000))
    paths = tuple(f"{number}@GFXARCH@" for number in range(4000))
    code = DeviceCode("lib/a.so", "elf", kpack=KpackReference("k", (*paths, "@GFXARCH@"), (0,)))
    code = resolve_kpack(code, names_in=lambda _: names)
    assert names.seen <= STEPS
    (doubt,) = code.doubts
    assert doubt.target is None
    assert doubt.reason.startswith("its kpack archives take more than")
    assert coverage_of(code).level(TargetId("gfx1100")).state == "unknown"


def test_kpack_hang_what_is_looked_up_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.gpu.amd.kpack.STEPS", 1100)
    archive = parse_archive(
        BufferSource(build.kpack_archive({f"k#{n}": ["gfx1100"] for n in range(300)})), "a"
    )
    reference = KpackReference("k", (), tuple(range(300)))
    assert not resolve(reference, [(Found("a", None), archive)]).doubts
    (doubt,) = resolve(reference, [(Found("a", None), archive)] * 3).doubts
    assert doubt.target is None


def test_wrappers_with_the_same_targets_share_a_bundle() -> None:
    archive = parse_archive(BufferSource(build.kpack_archive({f"k#{n}": ["gfx1100"] for n in range(9)})), "a")
    bundles = resolve(KpackReference("k", (), tuple(range(9))), [(Found("a", None), archive)]).bundles
    assert len(bundles) == 9
    assert len({id(bundle) for bundle in bundles}) == 1
