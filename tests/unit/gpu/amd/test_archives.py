"""kpack archives that a wheel brings itself; those beside a library on disk are in test_kpack."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from relink.elf.source import BufferSource, ByteSource
from relink.gpu.amd.archives import with_archives
from relink.gpu.amd.device_code import DeviceCode, read_device_code
from relink.gpu.amd.file_coverage import coverage_of
from relink.gpu.amd.kpack import Effort, KpackArchive, parse_archive
from relink.gpu.amd.survey import survey
from relink.gpu.coverage import TargetId
from relink.wheel.archive import WheelArchive
from tests.support.wheels import make_wheel
from tests.unit.gpu.amd import build

KEYS = ("lib/libfoo.so#0", "lib/libfoo.so#1")
LIBRARY = build.library(
    kpack=build.msgpack(
        {"kernel_name": "lib/libfoo.so", "kpack_search_paths": ["../.kpack/foo_@GFXARCH@.kpack"]}
    ),
    kpack_wrappers=2,
)


def archive_for(*targets: str, version: int = 1) -> bytes:
    return build.kpack_archive(dict.fromkeys(KEYS, targets), version=version)


def resolved(directory: Path, files: Mapping[str, bytes], member: str = "pkg/lib/libfoo.so") -> DeviceCode:
    path = make_wheel(directory, {"pkg/__init__.py": b"", member: LIBRARY, **files})
    codes = {member: read_device_code(BufferSource(LIBRARY), member)}
    with WheelArchive(path) as archive:
        return with_archives(codes, archive)[member]


def level(code: DeviceCode, name: str) -> str:
    return coverage_of(code).level(TargetId(name)).state


def test_archives_in_the_wheel_count(tmp_path: Path) -> None:
    files = {
        "pkg/.kpack/foo_gfx1100.kpack": archive_for("gfx1100"),
        "pkg/.kpack/foo_gfx90a.kpack": archive_for("gfx90a")[:-4],
        "pkg/.kpack/foo_gfx1200.kpack": archive_for("gfx1200", version=7),
        "other/.kpack/foo_gfx1030.kpack": archive_for("gfx1030"),
    }
    code = resolved(tmp_path, files)
    assert {name: level(code, name) for name in ("gfx1100", "gfx90a", "gfx1200", "gfx1030")} == {
        "gfx1100": "full",
        "gfx90a": "unknown",
        "gfx1200": "unknown",
        "gfx1030": "none",
    }
    assert [problem for problem in code.problems if "torn" in problem]


def test_a_wheel_whose_code_another_distribution_brings(tmp_path: Path) -> None:
    code = resolved(tmp_path, {})
    assert level(code, "gfx1100") == "unknown"
    assert "none of them is in the wheel (foo_@GFXARCH@.kpack)" in code.doubts[0].reason


def test_where_another_distribution_has_put_them(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "pkg/.kpack").mkdir(parents=True)
    (site / "pkg/.kpack/foo_gfx1100.kpack").write_bytes(archive_for("gfx1100"))
    member = "pkg/lib/libfoo.so"
    path = make_wheel(tmp_path, {member: LIBRARY, "pkg/.kpack/foo_gfx90a.kpack": archive_for("gfx90a")})
    codes = {member: read_device_code(BufferSource(LIBRARY), member)}
    with WheelArchive(path) as archive:
        code = with_archives(codes, archive, lambda name: f"/v/{name}", [("/v", str(site))])[member]
    assert [level(code, name) for name in ("gfx1100", "gfx90a", "gfx1030")] == ["full", "full", "none"]


def test_a_place_that_was_looked_in_and_has_none(tmp_path: Path) -> None:
    member = "pkg/lib/libfoo.so"
    path = make_wheel(tmp_path, {member: LIBRARY})
    codes = {member: read_device_code(BufferSource(LIBRARY), member)}
    with WheelArchive(path) as archive:
        code = with_archives(codes, archive, lambda name: f"/v/{name}", [("/v", str(tmp_path))])[member]
    assert level(code, "gfx1100") == "none"
    assert not code.doubts


def test_a_large_archive_is_read_at_its_ends(tmp_path: Path) -> None:
    data = archive_for("gfx1100")
    place = int.from_bytes(data[8:16], "little")
    gap = 3 << 20  # more than one chunk of the member
    moved = data[:8] + (place + gap).to_bytes(8, "little") + data[16:place] + bytes(gap) + data[place:]
    assert level(resolved(tmp_path, {"pkg/.kpack/foo_gfx1100.kpack": moved}), "gfx1100") == "full"


@pytest.mark.parametrize("data", [b"", b"KPAK", b"KPAK\1\0\0\0" + b"\xff" * 8, b"x" * 5000])
def test_what_is_no_archive(tmp_path: Path, data: bytes) -> None:
    assert level(resolved(tmp_path, {"pkg/.kpack/foo_gfx1100.kpack": data}), "gfx1100") == "unknown"


def test_a_survey_of_a_wheel_takes_archives_as_a_choice(tmp_path: Path) -> None:
    files = {f"pkg/.kpack/foo_{name}.kpack": archive_for(name) for name in ("gfx1100", "gfx1030")}
    path = make_wheel(tmp_path, {"pkg/lib/libfoo.so": LIBRARY, **files})
    found = survey(path)
    assert [found.covers(TargetId(name)) for name in ("gfx1100", "gfx1030", "gfx90a")] == [True, True, False]


def test_kpack_toc_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of all archives of a wheel together have a bound, and each archive is read once."""
    monkeypatch.setattr("relink.gpu.amd.archives.STEPS", 2000)
    read = []

    def counted(source: ByteSource, path: str, effort: Effort) -> KpackArchive:
        read.append(path)
        return parse_archive(source, path, effort)

    monkeypatch.setattr("relink.gpu.amd.archives.parse_archive", counted)
    archives = {
        f"pkg/.kpack/foo_{target}.kpack": build.kpack_archive(
            dict.fromkeys(KEYS, (target,)), blobs=[0] * 600, zstd_offset=0, zstd_size=0
        )
        for target in ("gfx1030", "gfx1100", "gfx1101", "gfx1200")
    }
    files = {f"pkg/lib/lib{number}.so": LIBRARY for number in range(3)}
    path = make_wheel(tmp_path, {**files, **archives})
    codes = {member: read_device_code(BufferSource(LIBRARY), member) for member in files}
    with WheelArchive(path) as archive:
        found = with_archives(codes, archive)
    assert sorted(read) == sorted(archives)
    for member in files:
        assert (
            coverage_of(found[member])
            .level(TargetId("gfx1030"))
            .note.startswith("its kpack archives take more")
        )
    monkeypatch.setattr("relink.gpu.amd.archives.STEPS", 10_000)
    read.clear()
    with WheelArchive(path) as archive:
        assert level(with_archives(codes, archive)["pkg/lib/lib0.so"], "gfx1030") == "full"
    assert sorted(read) == sorted(archives)


def test_kpack_toc_hang_of_archives_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`isa` of a wheel reads archives that no library names, too."""
    monkeypatch.setattr("relink.gpu.amd.survey.STEPS", 500)
    data = build.kpack_archive(dict.fromkeys(KEYS, ("gfx1100",)), blobs=[0] * 400)
    path = make_wheel(tmp_path, {f"pkg/{number}.kpack": data for number in range(3)})
    (kernels,) = survey(path).items
    assert sum("more objects than are read" in text for text in kernels.to_json()["problems"]) == 2
