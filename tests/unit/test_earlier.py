"""earlier: a wheel that is relinked for another provider is as the vendor's wheel relinked for it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from relink import Options, relink
from relink.elf.image import Image, read_image
from relink.report.model import Report
from tests.support.cc import shared
from tests.support.rocm_sdk import build, tiny_prefix, unpack
from tests.support.wheels import repacked
from tests.support.works import Works

SOURCE = "extern int hipblasSgemm(void); int answer(void){return hipblasSgemm() + 1;}"
BUILD = ["-Wl,--enable-new-dtags,-rpath,/build/rocm/lib:$ORIGIN"]


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_prefix(tmp_path_factory.mktemp("tiny") / "rocm")


@pytest.fixture
def vendor(works: Works, prefix: Path, tmp_path: Path) -> Path:
    member = shared(tmp_path / "a.so", SOURCE, needed=[prefix / "lib" / "libhipblas.so.3"], flags=BUILD)
    return works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": member})


@pytest.fixture
def site(prefix: Path, tmp_path: Path) -> Path:
    place = tmp_path / "venv" / "lib" / "python3" / "site-packages"
    unpack(build(prefix, tmp_path), place)
    return place


def made(wheel: Path | str, provider: Path, output: Path) -> Report:
    report = relink(wheel, Options(prefixes=(str(provider),), output_directory=output, requires=True))
    assert report.ok, report.findings
    return report


def facts(report: Report) -> tuple[str, Image, dict[str, bytes]]:
    """The name of an output, its member's facts, and what lies in its dist-info but the plan, the bill, the delta and RECORD."""
    path = Path(report.path or "")
    with zipfile.ZipFile(path) as archive:
        content = archive.read("demo/a.so")
        others = {
            name: archive.read(name)
            for name in archive.namelist()
            if not name.endswith((".so", "relink.json", "relink.cdx.json", "relink.delta", "RECORD"))
        }
    return path.name, read_image(content, "a.so"), others


def test_from_pip_to_a_prefix_and_back(vendor: Path, site: Path, prefix: Path, tmp_path: Path) -> None:
    to_pip = made(vendor, site, tmp_path / "pip")
    to_prefix = made(vendor, prefix, tmp_path / "prefix")
    over = made(to_pip.path or "", prefix, tmp_path / "over")
    back = made(over.path or "", site, tmp_path / "back")
    for second, first in ((over, to_prefix), (back, to_pip)):
        assert Path(second.path or "").read_bytes() == Path(first.path or "").read_bytes()
        name, image, others = facts(second)
        wanted_name, wanted, wanted_others = facts(first)
        assert (name, others) == (wanted_name, wanted_others)
        assert (image.needed, image.search_path, image.search_kind) == (
            wanted.needed,
            wanted.search_path,
            wanted.search_kind,
        )
    load = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).answer())"
    command = [sys.executable, "-c", load, str(_installed(over, tmp_path))]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "6\n"
    _, image, others = facts(over)
    assert "$ORIGIN/../_rocm_sdk_libraries/lib" not in (image.search_path or "")
    assert not any(b"rocm-sdk" in content for content in others.values())


def _installed(report: Report, tmp_path: Path) -> Path:
    place = tmp_path / "anywhere"
    with zipfile.ZipFile(report.path or "") as archive:
        archive.extractall(place)
    return place / "demo" / "a.so"


def test_the_same_provider_again_changes_nothing(vendor: Path, prefix: Path, tmp_path: Path) -> None:
    first = made(vendor, prefix, tmp_path / "first")
    assert any(entry.action == "add" for entry in first.files[0].needed) or first.files[0].rpath.after
    again = made(first.path or "", prefix, tmp_path / "again")
    assert not any(file.changed for file in again.files)
    assert Path(again.path or "").read_bytes() == Path(first.path or "").read_bytes()


def test_a_wheel_whose_delta_does_not_fit(vendor: Path, site: Path, prefix: Path, tmp_path: Path) -> None:
    """What the plan tells is undone: search paths, NEEDED and metadata are those of the vendor's wheel, relinked."""
    to_pip = made(vendor, site, tmp_path / "pip")
    to_prefix = made(vendor, prefix, tmp_path / "prefix")
    over = made(repacked(Path(to_pip.path or ""), tmp_path / "repacked"), prefix, tmp_path / "over")
    assert "RLK541" in {found.code for found in over.findings}
    (name, image, others), (wanted_name, wanted, wanted_others) = facts(over), facts(to_prefix)
    assert (name, others) == (wanted_name, wanted_others)
    assert (image.needed, image.search_path) == (wanted.needed, wanted.search_path)


def test_a_file_that_somebody_changed_afterwards_is_left_to_them(
    vendor: Path, prefix: Path, site: Path, tmp_path: Path
) -> None:
    first = made(vendor, prefix, tmp_path / "first")
    member = shared(tmp_path / "b.so", SOURCE, needed=[prefix / "lib" / "libhipblas.so.3"])
    changed = tmp_path / "changed" / Path(first.path or "").name
    changed.parent.mkdir()
    with zipfile.ZipFile(first.path or "") as old, zipfile.ZipFile(changed, "w") as new:
        for entry in old.infolist():
            new.writestr(entry, member.read_bytes() if entry.filename == "demo/a.so" else old.read(entry))
    options = Options(prefixes=(str(site),), output_directory=tmp_path, verify_record=False, dry_run=True)
    (file,) = relink(changed, options).files
    assert file.rpath.before is None
    assert read_image(member.read_bytes(), "b.so").search_path is None
