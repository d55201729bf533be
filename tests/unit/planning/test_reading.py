"""planning.reading, RECORD: lines about *.dist-info that are not so are warnings, lines about the package are errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.planning.reading import find_stale_lines, mark_stale
from relink.system.errors import WheelError
from relink.wheel.archive import WheelArchive
from relink.wheel.record import (
    RecordEntry,
    RecordIssue,
    RecordKind,
    check_record,
    parse_record,
    read_record,
    verify_member,
)
from tests.unit.wheel.build import DIST_INFO, make_wheel


def test_a_stale_line_about_metadata_is_repaired(tmp_path: Path) -> None:
    path = f"{DIST_INFO}/METADATA"
    with WheelArchive(make_wheel(tmp_path)) as archive:
        right = {entry.path: entry for entry in read_record(archive)[0]}
        assert find_stale_lines(archive, right.values()) == []
        stale = replace(right[path], digest=bytes(32))
        (issue,) = find_stale_lines(archive, [*right.values(), stale])
        assert (issue.kind, issue.path, issue.level) == (RecordKind.STALE, path, "warning")
        assert verify_member(archive, stale) == right[path]
        size = [replace(right[path], size=1)]
        issues = check_record(size, archive.members, archive.dist_info)
        assert RecordKind.STALE in [item.kind for item in issues if item.path == path]
        assert find_stale_lines(archive, [replace(size[0], digest=bytes(32))]) == []  # told once


def test_a_stale_line_about_the_package_is_an_error(tmp_path: Path) -> None:
    with WheelArchive(make_wheel(tmp_path)) as archive:
        stale = RecordEntry("demo_pkg/a.py", "sha256", bytes(32), None)
        assert find_stale_lines(archive, [stale]) == []
        with pytest.raises(WheelError, match="is not the file that RECORD lists"):
            verify_member(archive, stale)
        (issue,) = (
            item
            for item in check_record([replace(stale, size=99)], archive.members, archive.dist_info)
            if item.path == stale.path
        )
        assert (issue.kind, issue.level) == (RecordKind.SIZE_MISMATCH, "error")


OLD = f"{DIST_INFO.partition('-')[0].replace('_', '-')}-0.9.dist-info"  # the same distribution, spelled in another way


@pytest.mark.parametrize("kind", [RecordKind.ABSENT, RecordKind.NOT_LISTED, RecordKind.MALFORMED])
@pytest.mark.parametrize(
    ("path", "stale"),
    [
        (f"{DIST_INFO}/entry_points.txt", True),
        (f"{OLD}/WHEEL", True),
        ("demo_pkg-1.0.data/scripts/run", False),
        ("demo_pkg/a.py", False),
        (f"demo_pkg/{DIST_INFO}/WHEEL", False),
        ("", False),
    ],
)
def test_what_lines_of_another_version_are_about(kind: RecordKind, path: str, stale: bool) -> None:
    (issue,) = mark_stale([RecordIssue(kind, path, "is odd")], DIST_INFO)
    assert (issue.kind is RecordKind.STALE, issue.level) == (stale, "warning" if stale else "error")


@pytest.mark.parametrize("kind", [RecordKind.ABSENT, RecordKind.NOT_LISTED, RecordKind.MALFORMED])
def test_lines_of_a_renamed_distribution(kind: RecordKind) -> None:
    """hip-python-fork 6.3.3 lists hip_python-6.3.3.dist-info/*, which are not in it; pip takes the wheel."""
    (issue,) = mark_stale([RecordIssue(kind, "other-1.0.dist-info/WHEEL", "is odd")], DIST_INFO)
    assert issue.level == ("warning" if kind is RecordKind.ABSENT else "error")


def test_what_is_wrong_in_another_way_stays_an_error() -> None:
    for kind in (RecordKind.DUPLICATE, RecordKind.SIZE_MISMATCH):
        (issue,) = mark_stale([RecordIssue(kind, f"{DIST_INFO}/WHEEL", "is odd")], DIST_INFO)
        assert issue.level == "error"


def test_a_record_of_another_version(tmp_path: Path) -> None:
    """As a tool leaves it that renames the directory: its lines name files that are not there, one has two fields."""
    lines = f"{OLD}/METADATA,sha256=00\n{OLD}/WHEEL,,1\ndemo_pkg/gone.py,,1\n".encode()
    with WheelArchive(make_wheel(tmp_path)) as archive:
        entries, malformed = parse_record(lines)
        issues = mark_stale([*malformed, *check_record(entries, archive.members, DIST_INFO)], DIST_INFO)
    errors = {issue.path for issue in issues if issue.level == "error"}
    assert "demo_pkg/gone.py" in errors
    assert errors.isdisjoint(
        {f"{OLD}/METADATA", f"{OLD}/WHEEL", f"{DIST_INFO}/METADATA", f"{DIST_INFO}/WHEEL"}
    )
