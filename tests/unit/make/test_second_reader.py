"""The second reader on the way to an output: silent where all is well, an error that keeps it from being published."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from relink.library import relink
from relink.make.second_reader import refusals, reread_wheel
from relink.system.findings.model import finding
from relink.wheel.archive import WheelArchive
from tests.support.works import Works
from tests.unit.wheel.build import DIST_INFO, FILENAME, RawZip, good_entries, make_wheel, write_raw

FILES = {
    "demo_pkg/a.py": b"a = 1\n",
    "demo_pkg/b, c.py": b"",
    "demo_pkg/sub/": b"",
    "demo_pkg/\u00e4.py": b"x",
}
RECORD = f"{DIST_INFO}/RECORD"


def members(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def test_a_good_wheel(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, FILES)
    with WheelArchive(path) as archive:
        assert refusals(path, archive.members) == []


LINES = {
    "no line for a member": (f"{RECORD},,\n", "cannot: No hash found for file 'demo_pkg/a.py'"),
    "two fields": ("demo_pkg/a.py,\n", "wheel cannot: not enough values to unpack"),
    "a weak hash": ("demo_pkg/a.py,md5=AAAA,6\n", "Weak hash algorithm"),
    "an unknown hash": ("demo_pkg/a.py,sha0=AAAA,6\n", "Unsupported hash algorithm: sha0"),
    "no algorithm": ("demo_pkg/a.py,AAAA,6\n", "wheel cannot: "),
    "no base64": ("demo_pkg/a.py,sha256=A,6\n", "wheel cannot: "),
}


@pytest.mark.parametrize("case", LINES)
def test_lines_of_record(tmp_path: Path, case: str) -> None:
    lines, said = LINES[case]
    path = make_wheel(tmp_path, {"demo_pkg/a.py": b"a = 1\n", RECORD: lines.encode()})
    issues = refusals(path, members(path))
    assert issues
    assert said in issues[0]


def test_a_record_that_is_not_utf_8(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, {"demo_pkg/a.py": b"", RECORD: b"\xff,,\n"})
    assert "utf-8" in refusals(path, members(path))[0]


def test_no_record_where_it_looks(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, dist_info="Demo.Pkg-1.0.dist-info")
    with WheelArchive(path) as archive:
        (issue,) = refusals(path, archive.members)
    assert issue == f"relink can open it, wheel cannot: Missing {RECORD} file"


def test_a_name(tmp_path: Path) -> None:
    path = make_wheel(tmp_path).rename(tmp_path / "demo_pkg.whl")
    assert refusals(path, []) == ["relink can open it, wheel cannot: Bad wheel filename 'demo_pkg.whl'"]


def test_other_members(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, FILES)
    names = members(path)
    assert refusals(path, names[1:])[0].endswith(f"member {names[1]!r}, wheel reads {names[0]!r}")
    assert len(refusals(path, [f"x{name}" for name in names * 9])) <= 6
    assert refusals(path, [*names, "demo_pkg/z.py"]) == [
        "relink has written the member 'demo_pkg/z.py', wheel reads None"
    ]


def test_a_local_header_of_another_name(tmp_path: Path) -> None:
    entries = good_entries()
    entries[0].local_name = b"demo_pkg/x.py"
    path = write_raw(tmp_path, RawZip(entries))
    (issue,) = refusals(path, members(path))
    assert "relink can read the member 'demo_pkg/a.py', wheel cannot: File name in directory" in issue


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / FILENAME).write_bytes(b"PK")
    assert refusals(tmp_path / FILENAME, []) == ["relink can open it, wheel cannot: File is not a zip file"]


def test_the_output_is_opened_by_wheel(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "wheel"]:
        monkeypatch.delitem(sys.modules, name)
    assert relink(works.small(tmp_path), works.options(tmp_path / "out", verify=False)).ok
    assert "wheel.wheelfile" in sys.modules


def test_a_difference_keeps_the_output_from_being_published(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "relink.make.output.reread_wheel",
        lambda *_: iter([finding("RLK611", "x", "relink has 1, another reads 2")]),
    )
    report = relink(works.small(tmp_path), works.options(tmp_path / "out"))
    assert (report.ok, report.output) == (False, None)
    assert [one.code for one in report.findings if one.level == "error"] == ["RLK611"]
    assert not (tmp_path / "out").exists()
    forced = relink(works.small(tmp_path), works.options(tmp_path / "out", force=True))
    assert forced.output is not None
    assert Path(forced.output.path).exists()


def test_a_wheel_that_wheel_refuses(tmp_path: Path) -> None:
    record = b"demo_pkg/a.py,md5=AAAA,6\n"
    path = make_wheel(tmp_path, {"demo_pkg/a.py": b"a = 1\n", "demo_pkg-1.0.dist-info/RECORD": record})
    (one,) = reread_wheel(path)
    assert (one.code, one.level, one.subject) == ("RLK611", "error", path.name)
    assert one.message.startswith("relink can open it, wheel cannot: Weak hash algorithm (md5)")


def test_a_directory_of_the_vendors_spelling_is_a_warning(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, dist_info="Demo.Pkg-1.0.dist-info")
    (one,) = reread_wheel(path)
    assert (one.code, one.level) == ("RLK611", "warning")
