"""A torch that brings its own ROCm, relinked to another: which copies leave it, and what Python then maps."""

from __future__ import annotations

import csv
import io
import posixpath
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from relink import Options, Plan, Report, apply, diff, plan, relink
from relink.system.errors import UsageError
from tests.support import therock, torch_wheels
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
MAPPED = """
import sys; sys.path.insert(0, sys.argv[1])
import torch; torch._call_rocm()
print(*{line.split()[-1] for line in open("/proc/self/maps") if "libamdhip64" in line})
"""


@pytest.fixture(scope="module")
def torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (wheel,) = torch_wheels.build(tmp_path_factory.mktemp("torch"), "bundling")
    return wheel


@pytest.fixture(scope="module")
def whole_rocm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return therock.tarball(tmp_path_factory.mktemp("rocm"), "7.2.4")


@pytest.fixture
def rocm(whole_rocm: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(whole_rocm, tmp_path / "rocm", symlinks=True))


def made(torch: Path, rocm: Path, tmp_path: Path) -> tuple[Report, dict[str, bytes]]:
    report = relink(torch, Options(prefixes=(str(rocm),), output_directory=tmp_path / "out"))
    with zipfile.ZipFile(report.path or "") as archive:
        return report, {name: archive.read(name) for name in archive.namelist()}


def names(members: dict[str, bytes]) -> set[str]:
    return {posixpath.basename(name) for name in members if name.startswith("torch/lib/lib")}


def needed(report: Report, member: str) -> set[str | None]:
    (file,) = [file for file in report.files if file.path == member]
    return {entry.soname_after for entry in file.needed}


def test_what_the_prefix_has_leaves_the_wheel(torch: Path, whole_rocm: Path, tmp_path: Path) -> None:
    report, members = made(torch, whole_rocm, tmp_path)
    (found,) = [found for found in report.findings if found.code == "RLK541"]
    assert found.message.startswith("left out: ")
    assert f"copies of what {whole_rocm} has, and 8 files of theirs" in found.message
    torchs = {
        f"lib{name}.so" for name in ("c10", "c10_hip", "torch", "torch_cpu", "torch_hip", "torch_python")
    }
    stay = {"libtorch_global_deps.so", "libmagma.so", "libaotriton_v2.so", "libgomp.so"}
    assert names(members) == torchs | stay
    assert not [name for name in members if name.endswith((".hsaco", ".fdb.txt"))]
    (record,) = [name for name in members if name.endswith("/RECORD")]
    assert {row[0] for row in csv.reader(io.StringIO(members[record].decode()))} == set(members)
    assert {"libamdhip64.so.7", "libhipfft.so.0"} <= needed(report, "torch/lib/libtorch_hip.so")
    site = tmp_path / "site"
    with zipfile.ZipFile(report.path or "") as archive:
        archive.extractall(site)
    command = [sys.executable, "-c", MAPPED, str(site)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert [Path(path).parent for path in run.stdout.split()] == [whole_rocm / "lib"]
    assert (
        diff(torch, report.path or "", Options(prefixes=(str(whole_rocm),))).verdict
        == "only what the plan says"
    )


def test_what_the_prefix_has_not_stays_and_takes_the_prefixs_runtime(
    torch: Path, rocm: Path, tmp_path: Path
) -> None:
    for path in rocm.glob("lib/libhipsparselt*"):
        path.unlink()
    report, members = made(torch, rocm, tmp_path)
    (found,) = [found for found in report.findings if found.code == "RLK541"]
    assert found.message.endswith("; kept, as it has no such library: libhipsparselt.so")
    assert "libhipsparselt.so" in names(members)
    assert "libhipsparse.so" not in names(members)
    kernels = {name for name in members if name.endswith(".hsaco")}
    assert {name.split("/")[2] for name in kernels} == {"hipsparselt"}
    assert "libhipsparse.so.4" in needed(report, "torch/lib/libhipsparselt.so")


def test_a_link_for_compilers_to_another_version_is_not_taken(
    torch: Path, rocm: Path, tmp_path: Path
) -> None:
    other = shared(rocm / "lib/libamdhip64.so.8", "int hipMalloc(void) { return 1; }")
    (rocm / "lib/libamdhip64.so").unlink()
    (rocm / "lib/libamdhip64.so").symlink_to(other.name)
    report, _ = made(torch, rocm, tmp_path)
    assert "libamdhip64.so.7" in needed(report, "torch/lib/libc10_hip.so")
    assert not [path for file in report.files for _, path in file.closure if path.endswith(".so.8")]


def test_without_the_runtime_all_copies_stay(torch: Path, rocm: Path, tmp_path: Path) -> None:
    for path in rocm.glob("lib/libamdhip64*"):
        path.unlink()
    report, members = made(torch, rocm, tmp_path)
    (found,) = [found for found in report.findings if found.code == "RLK546"]
    assert found.message == f"the wheel's own copies of the libraries stay: {rocm} has no libamdhip64.so.7"
    assert report.plan.empty
    assert "libamdhip64.so" in names(members)


def test_where_the_wheel_would_not_do_without_them_all_copies_stay(
    torch: Path, rocm: Path, tmp_path: Path
) -> None:
    for path in rocm.glob("lib/libhipfft*"):
        path.unlink()
    shared(rocm / "lib/libhipfft.so.0", "int another(void) { return 1; }")
    report, _ = made(torch, rocm, tmp_path)
    (found,) = [found for found in report.findings if found.code == "RLK546"]
    assert "stay: it would not do with the prefix's: RLK" in found.message
    assert "hipfftExecC2C" in found.message
    assert report.plan.empty
    assert report.ok


def test_a_saved_plan_gives_the_same_bytes(torch: Path, whole_rocm: Path, tmp_path: Path) -> None:
    options = Options(prefixes=(str(whole_rocm),), output_directory=tmp_path / "out", epoch=1_700_000_000)
    at_once = Path(relink(torch, options).path or "").read_bytes()
    plan(torch, options).save(tmp_path / "plan.json")
    again = apply(
        Plan.load(tmp_path / "plan.json"), wheel=torch, output_directory=tmp_path / "again", options=options
    )
    assert Path(again.path or "").read_bytes() == at_once


def test_a_plan_that_leaves_out_what_it_links_is_refused(
    torch: Path, whole_rocm: Path, tmp_path: Path
) -> None:
    options = Options(prefixes=(str(whole_rocm),), output_directory=tmp_path / "out")
    made_plan = plan(torch, options)
    other = replace(made_plan, removed=(*made_plan.removed, "torch/lib/libc10.so"))
    with pytest.raises(UsageError, match="files that the wheel does not have"):
        apply(other, wheel=torch, options=options)
