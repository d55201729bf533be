"""A wheel for the ROCm of site-packages, relinked to another: what METADATA requires, and what pip and Python make of it."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from relink import Options, Plan, Report, apply, plan, relink
from relink.planning.model.reliance import ChangedRequirement
from relink.planning.site_requirements import following_label, of_vendor
from relink.providers.prefix import InstalledPackage, Provider
from relink.vendors.rocm import vendor as rocm
from relink.wheel.archive import WheelArchive
from relink.wheel.naming import relinked
from tests.support import therock, torch_wheels
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.works import install

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return therock.tarball(tmp_path_factory.mktemp("tarball"), "10.1.0")


def relinked_all(wheels: Iterable[Path], options: Options) -> list[Report]:
    reports = [relink(wheel, options) for wheel in wheels]
    assert all(report.path and report.verified for report in reports[:1]), [
        report.findings for report in reports
    ]
    return reports


def environment(place: Path, wheels: Sequence[str | Path]) -> Path:
    """Install wheels, and return the Python of the environment."""
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    install(python, *wheels)
    return python


def pip(python: Path, *words: str | Path) -> str:
    command = [sys.executable, "-m", "pip", "--python", str(python), *map(str, words)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def others(directory: Path) -> list[Path]:
    """What torch requires besides ROCm."""
    rows = (("triton", "3.8.0"), ("triton-rocm", "3.8.0"), ("typing-extensions", "4.15.0"))
    return [therock.pack(directory, *row, {f"{row[0]}.py": b""}, tag="py3-none-any") for row in rows]


def metadata(report: Report) -> list[str]:
    with zipfile.ZipFile(report.path or "") as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return [line for line in archive.read(name).decode().splitlines() if line.startswith("Requires-Dist")]


def imported(python: Path) -> int:
    command = [str(python), "-c", "import torch; print(torch._call_rocm())"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


@pytest.mark.parametrize("kind", ["split", "whole"])
def test_a_torch_for_pips_rocm_is_imported_with_the_systems(kind: str, tarball: Path, tmp_path: Path) -> None:
    wheels = torch_wheels.build(tmp_path / "torch", kind)
    options = Options(prefixes=(str(tarball),), output_directory=tmp_path / "out")
    reports = relinked_all(wheels, options)
    assert {"RLK539", "RLK541"} <= {found.code for found in reports[0].findings}
    python = environment(tmp_path / "venv", [*(report.path or "" for report in reports), *others(tmp_path)])
    assert "No broken requirements" in pip(python, "check")
    assert imported(python) > 20
    with zipfile.ZipFile(reports[0].path or "") as archive:
        (record,) = [name for name in archive.namelist() if name.endswith("/RECORD")]
        listed = {row[0] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
        assert "torch/_rocm_init.py" not in listed
        assert listed == set(archive.namelist())
    for report in reports:
        assert not [line for line in metadata(report) if "rocm-sdk" in line or "rocm[" in line]


def test_the_requirements_of_wheels_that_belong_together(tarball: Path, tmp_path: Path) -> None:
    wheels = torch_wheels.build(tmp_path / "torch", "split", gpus=["gfx1100"])
    torch, device = relinked_all(wheels, Options(prefixes=(str(tarball),), output_directory=tmp_path / "out"))
    assert metadata(device) == ["Requires-Dist: torch==2.13.0+rocm10.1.0"]
    assert 'Requires-Dist: amd-torch-device-gfx11==2.13.0+rocm10.1.0; extra == "device-gfx11"' in metadata(
        torch
    )
    (found,) = [found for found in device.findings if found.code == "RLK539"]
    assert found.message.startswith("METADATA requires no longer rocm-sdk-device-gfx11 == 10.0.0; ")


def test_a_torch_for_one_release_of_pips_rocm_requires_the_other(tmp_path: Path) -> None:
    wheels = torch_wheels.build(tmp_path / "torch", "split")
    packages = [wheel for wheel in therock.pip(tmp_path / "pip", "10.1.0") if "triton" not in wheel.name]
    python = environment(tmp_path / "venv", packages)
    options = Options(
        prefixes=(str(tmp_path / "venv"),), python=str(python), output_directory=tmp_path / "out"
    )
    reports = relinked_all(wheels, options)
    assert "Requires-Dist: rocm[libraries]==10.1.*" in metadata(reports[0])
    assert "RLK541" not in {found.code for found in reports[0].findings}
    install(python, *(report.path or "" for report in reports), *others(tmp_path))
    assert "No broken requirements" in pip(python, "check")
    assert imported(python) > 20


def test_with_the_release_that_it_was_made_for_a_device_wheel_stays_as_it_is(tmp_path: Path) -> None:
    _, device = torch_wheels.build(tmp_path / "torch", "split", gpus=["gfx1100"])
    python = environment(tmp_path / "venv", therock.pip(tmp_path / "pip", "10.0.0"))
    options = Options(
        prefixes=(str(tmp_path / "venv"),), python=str(python), output_directory=tmp_path / "out"
    )
    report = relink(device, options)
    assert (Path(report.path or "").name, report.plan.empty) == (device.name, True)


def test_a_saved_plan_gives_the_same_bytes(tarball: Path, tmp_path: Path) -> None:
    torch, *_ = torch_wheels.build(tmp_path / "torch", "split")
    options = Options(prefixes=(str(tarball),), output_directory=tmp_path / "out", epoch=1_700_000_000)
    at_once = Path(relink(torch, options).path or "").read_bytes()
    plan(torch, options).save(tmp_path / "plan.json")
    saved = Plan.load(tmp_path / "plan.json")
    made = apply(saved, wheel=torch, output_directory=tmp_path / "again", options=options)
    assert Path(made.path or "").read_bytes() == at_once


def test_what_cannot_be_read_and_what_is_not_pinned_stays(tmp_path: Path) -> None:
    requires = [
        "(((",
        "torch == 2.0+rocm10.0.0",
        "numpy==1.0",
        "a==1.0+cpu",
        "b==2.*",
        "c>=1.0+rocm10.0.0",
        "rocm==10",
    ]
    wheel = therock.pack(tmp_path, "demo", "1.0+rocm10.0.0", {}, requires=requires, tag="py3-none-any")
    with WheelArchive(wheel) as archive:
        output = relinked(archive.name, local="rocm7.2.4", platform="any", replaces=rocm.version_label)
        assert following_label(archive, output, rocm) == (
            ChangedRequirement("torch == 2.0+rocm10.0.0", "torch==2.0+rocm7.2.4"),
        )
        assert of_vendor(archive, rocm, ()) == (ChangedRequirement("rocm==10"),)
        installed = {version: Provider("site-packages", "/s", (), {}, packages=(InstalledPackage("rocm-sdk-core", version, "x"),))
                     for version in ("10.0.0", "10.1.0", "no version")}  # fmt: skip
        changed = {version: of_vendor(archive, rocm, [site]) for version, site in installed.items()}
        assert changed == {
            "10.0.0": (),
            "10.1.0": (ChangedRequirement("rocm==10", "rocm==10.1.*"),),
            "no version": (),
        }


@pytest.mark.parametrize(
    ("name", "own"),
    [("rocm", True), ("ROCm_SDK.core", True), ("rocm-sdk-device-gfx11", True), ("rocm-bootstrap", True),
     ("migraphx-libs", True), ("rocm-bindings-hip", False), ("jax-rocm7-plugin", False), ("triton-rocm", False)],
)  # fmt: skip
def test_which_distributions_are_those_of_rocm(name: str, own: bool) -> None:
    assert rocm.is_distribution(name) is own
