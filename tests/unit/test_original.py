"""original: a wheel that is relinked for A and then for B is, to the byte, the vendor's wheel relinked for B."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

import relink
from relink import Options
from relink.report.model import Report
from tests.support.works import Works

BUILD = "-Wl,--enable-new-dtags,-rpath,/build/rocm/lib:$ORIGIN"


@pytest.fixture(scope="module")
def prefixes(works: Works, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two prefixes of two releases; the second has its libraries in other directories, and a deep one that is not found."""
    root = tmp_path_factory.mktemp("prefixes")
    for name, release in (("a", "7.2.4"), ("b", "7.1.0")):
        shutil.copytree(works.prefix, root / name)
        (root / name / ".info/version").write_text(f"{release}-1\n")
    (root / "b/lib/deeper").mkdir()
    (root / "b/lib/libdeep.so.1").rename(root / "b/lib/deeper/libdeep.so.1")
    return {name: root / name for name in "ab"}


def made(wheel: Path | str, prefix: Path, output: Path, **more: object) -> Path:
    report = report_of(wheel, prefix, output, **more)
    assert report.ok, [found.message for found in report.findings]
    return Path(report.path or "")


def report_of(wheel: Path | str, prefix: Path, output: Path, **more: object) -> Report:
    return relink.relink(wheel, Options(prefixes=(str(prefix),), output_directory=output, **more))  # type: ignore[arg-type]


def round_trip(wheel: Path, prefixes: Mapping[str, Path], place: Path, **more: object) -> None:
    """A to B is B; A to B to A is A; A to A is A, and nothing is done for it."""
    a, b = prefixes["a"], prefixes["b"]
    to_a, to_b = made(wheel, a, place / "to-a", **more), made(wheel, b, place / "to-b", **more)
    assert to_a.read_bytes() != to_b.read_bytes()
    over = made(to_a, b, place / "over", **more)
    assert (over.name, over.read_bytes()) == (to_b.name, to_b.read_bytes())
    back = made(over, a, place / "back", **more)
    assert (back.name, back.read_bytes()) == (to_a.name, to_a.read_bytes())
    same = report_of(to_a, a, place / "same", **more)
    assert not any(file.changed for file in same.files)
    assert Path(same.path or "").read_bytes() == to_a.read_bytes()


def test_a_library_a_program_and_the_data_directory(
    works: Works, prefixes: Mapping[str, Path], tmp_path: Path
) -> None:
    """Search paths, added NEEDED, a program interpreter, a platlib that the version renames."""
    files: dict[str, bytes | Path] = {
        "demo/__init__.py": b"x = 1\n" * 100,
        "demo/a.so": works.library,
        "demo/plain.so": works.plain,
        "demo-1.0.data/platlib/demo/b.so": works.library,
        "demo-1.0.data/scripts/demo-prog": works.program,
    }
    round_trip(works.wheel(tmp_path, files), prefixes, tmp_path)


@pytest.mark.parametrize("options", [{"keep_version": True}, {"compress": "small", "epoch": 10**9}])
def test_options_of_the_output(
    works: Works, prefixes: Mapping[str, Path], tmp_path: Path, options: Mapping[str, object]
) -> None:
    round_trip(works.small(tmp_path), prefixes, tmp_path, **options)
