"""The GPU check on AMD's own wheels and Debian's ROCm 7.2.4: what owners of three GPUs are told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from relink.library import relink
from relink.planning.options import Options
from relink.report.model import Report
from relink.system.findings.model import Finding
from tests.real.test_vendor_wheels import own_loader

pytestmark = pytest.mark.real

ORT = "gfx908, gfx90a, gfx942, gfx1030, gfx1100, gfx1101, gfx1200 and gfx1201"


def run(wheel: Path, prefix: Path, *gpus: str, allow: bool = False) -> Report:
    options = Options(
        prefixes=(str(prefix),),
        interpreter=str(own_loader(prefix)),
        gpus=gpus,
        allow_isa_gap=allow,
        dry_run=True,
    )
    return relink(wheel, options)


def isa(report: Report) -> dict[str, Finding]:
    return {found.code: found for found in report.findings if found.code.startswith("RLK4")}


def test_gfx1031_is_told_what_the_wheel_has_and_what_to_do(full_prefix: Path, rocm_wheel: Path) -> None:
    report = run(rocm_wheel, full_prefix, "gfx1031")
    found = isa(report)["RLK401"]
    assert not report.ok
    assert (found.level, found.subject) == ("error", "gfx1031")
    assert (
        f"the wheel has code for {ORT}, none for gfx1031 (RX 6700, RX 6700 XT, RX 6750 XT)" in found.message
    )
    assert "libonnxruntime_providers_rocm.so (none of 95 bundles)" in found.message
    for library in ("librocblas.so.5 (rocBLAS)", "librocsolver.so.0 (rocSOLVER)", "librocfft.so.0 (rocFFT)"):
        assert library in found.message
    assert found.remedy.startswith(
        "Set HSA_OVERRIDE_GFX_VERSION=10.3.0, a workaround that AMD does not support"
    )
    assert "rebuild libonnxruntime_providers_rocm.so with GPU_TARGETS=" in found.remedy
    assert isa(run(rocm_wheel, full_prefix, "RX 6750 XT", allow=True))["RLK401"].level == "warning"


@pytest.mark.parametrize(("gpu", "served"), [("gfx942", True), ("gfx950", True), ("gfx1100", False)])
def test_kernel_files_of_aiter(full_prefix: Path, aiter_wheel: Path, gpu: str, served: bool) -> None:
    report = run(aiter_wheel, full_prefix, gpu)
    assert report.ok is served
    assert isa(report)["RLK407"].message == "runs on gfx942 and gfx950"
    assert ("none of 2613 kernel files" in str(isa(report).get("RLK401"))) is not served


def test_gfx1100_passes(full_prefix: Path, rocm_wheel: Path) -> None:
    report = run(rocm_wheel, full_prefix, "gfx1100")
    assert set(isa(report)) == {"RLK407"}
    assert isa(report)["RLK407"].message.startswith(f"runs on {ORT};")
    assert report.isa is not None
    assert report.isa["gpus"][0]["covered"] is True
    assert {row["verdict"] for row in report.isa["requirements"]} == {"ok"}
    names = {item["name"] for item in report.isa["libraries"]}
    assert {"rocBLAS", "rocSOLVER", "rocFFT", "MIOpen"} <= names


def test_gfx942_is_warned_of_hipblaslt(full_prefix: Path, rocm_wheel: Path) -> None:
    found = isa(run(rocm_wheel, full_prefix, "gfx942"))
    assert set(found) == {"RLK407", "RLK409"}
    assert found["RLK409"].level == "warning"
    assert "this prefix's hipBLASLt has no kernels for gfx942" in found["RLK409"].message


def test_gfx1201_is_slow(full_prefix: Path, rocm_wheel: Path) -> None:
    found = isa(run(rocm_wheel, full_prefix, "gfx1201"))
    assert "rocBLAS has only untuned kernels for gfx1201" in found["RLK408"].message


def test_bitsandbytes_counts_only_the_variants_that_are_served(
    full_prefix: Path, bitsandbytes_wheel: Path
) -> None:
    report = run(bitsandbytes_wheel, full_prefix, "gfx1030")
    assert report.isa is not None
    served = {file.path for file in report.files if file.served}
    assert {item["path"] for item in report.isa["files"]} <= served
    assert "RLK401" not in isa(report)
    assert "gfx950" not in report.isa["common"]["targets"]


def test_migraphx_has_no_code_and_says_so(small_prefix: Path, migraphx_wheel: Path) -> None:
    report = run(migraphx_wheel, small_prefix, "gfx1030")
    assert report.isa is not None
    assert all(item["bundles"] == 0 for item in report.isa["files"])
    assert "RLK405" not in isa(report)
    refused = isa(run(migraphx_wheel, small_prefix, "gfx1250"))
    assert "gfx1250 in the HSA runtime" in refused["RLK405"].message


def test_isa_of_the_small_prefix_and_its_doctor(small_prefix: Path) -> None:
    command = [sys.executable, "-m", "relink"]
    out = subprocess.check_output([*command, "isa", "--json", small_prefix, "--gpu", "gfx1030"], text=True)
    items = {Path(item["path"]).name: item for item in json.loads(out)["items"]}
    assert items["libmigraphx_device.so.2014000.0"]["bundles"] == 12
    run = subprocess.run(
        [*command, "doctor", "--json", "--prefix", small_prefix], capture_output=True, text=True, check=False
    )
    (prefix,) = json.loads(run.stdout)["prefixes"]
    assert prefix["rocm_version"] == "7.2.4"
    assert prefix["runtime"]["ccob"] == 3
