"""kpack archives, the references to them, and the MessagePack inside."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from relink.elf.source import BufferSource
from relink.gpu import msgpack
from relink.gpu.coverage import coverage_of, library_coverage
from relink.gpu.device_code import read_device_code, read_file, resolve_kpack
from relink.gpu.kpack import KpackReference, find_archives, parse_archive, parse_reference, resolve
from relink.gpu.target_id import TargetId
from tests.unit.gpu import build

REFERENCE = {"kernel_name": "lib/libfoo.so.1", "kpack_search_paths": ["../.kpack/foo_lib_@GFXARCH@.kpack"]}


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x7f", 127), (b"\xff", -1), (b"\xe0", -32), (b"\xc0", None), (b"\xc2", False), (b"\xc3", True),
        (b"\xcc\xff", 255), (b"\xcd\x01\x00", 256), (b"\xce\0\1\0\0", 65536), (b"\xcf" + bytes(7) + b"\1", 1),
        (b"\xd0\x80", -128), (b"\xd1\xff\xff", -1), (b"\xd2\xff\xff\xff\xff", -1), (b"\xd3" + b"\xff" * 8, -1),
        (b"\xcb" + struct.pack(">d", 1.5), 1.5), (b"\xca" + struct.pack(">f", 0.5), 0.5),
        (b"\xa2hi", "hi"), (b"\xd9\2hi", "hi"), (b"\xda\0\2hi", "hi"), (b"\xdb\0\0\0\2hi", "hi"),
        (b"\xc4\1x", b"x"), (b"\xc5\0\1x", b"x"), (b"\xc6\0\0\0\1x", b"x"),
        (b"\x92\1\2", [1, 2]), (b"\xdc\0\1\1", [1]), (b"\xdd\0\0\0\1\1", [1]),
        (b"\x81\xa1a\1", {"a": 1}), (b"\xde\0\1\xa1a\1", {"a": 1}), (b"\xdf\0\0\0\1\xa1a\1", {"a": 1}),
        (b"\xd4\0x", b"x"), (b"\xd8\0" + b"x" * 16, b"x" * 16), (b"\xc7\1\0x", b"x"),
    ],
)  # fmt: skip
def test_msgpack_types(data: bytes, value: object) -> None:
    assert msgpack.unpack(data + b"tail") == (value, len(data))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff\1",
        b"\xdb\xff\xff\xff\xffx",
        b"\x91" * 100 + b"\1",
        b"\xa2\xff\xff",
        b"\xcd\1",
        b"\x81\x90\1",
        b"\x92\1",
    ],
)
def test_msgpack_that_is_hostile_or_cut_off(data: bytes) -> None:
    with pytest.raises(msgpack.MsgpackError):
        msgpack.unpack(data)


def prefix_with(tmp_path: Path, contents: dict[str, dict[str, list[str]]], wrappers: int = 2) -> Path:
    (tmp_path / "lib").mkdir()
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
    assert library_coverage(path).file.targets == ("gfx1100",)


def test_without_its_archives_a_library_is_unknown_and_never_covered(tmp_path: Path) -> None:
    path = prefix_with(tmp_path, {})
    for code in (read_file(path), resolve_kpack(read_file(path))):
        found = coverage_of(code)
        assert found.restricts
        assert found.level(TargetId("gfx1100")).state == "unknown"
    assert any("none of its kpack archives" in p for p in resolve_kpack(read_file(path)).problems)


def test_a_plain_library_needs_no_resolving() -> None:
    code = read_device_code(BufferSource(build.library([build.raw(build.entries_of("gfx1100"))])), "x")
    assert resolve_kpack(code) is code


def test_wrappers_without_a_reference_are_a_problem() -> None:
    code = read_device_code(BufferSource(build.library(kpack_wrappers=2)), "x")
    assert any("2 HIPK wrappers" in p for p in code.problems)


def test_search_paths_may_name_a_file_and_must_not_match_another(tmp_path: Path) -> None:
    for name in ("a_gfx1100.kpack", "a_.kpack", "b.kpack", "a_gfx1100.kpack.bak"):
        (tmp_path / name).write_bytes(b"")
    paths = find_archives(
        KpackReference("x", ("a_@GFXARCH@.kpack", "b.kpack", "nowhere/c.kpack")), str(tmp_path)
    )
    assert [Path(path).name for path in paths] == ["a_gfx1100.kpack", "b.kpack"]


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
    assert parse_archive(BufferSource(good), "a").architectures == ("gfx1100",)
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
    bundles = resolve(KpackReference("k", (), (0, 7, 9)), [archive])
    assert [[str(t.target) for t in b.targets] for b in bundles] == [["gfx1100"], ["gfx1030"], []]
