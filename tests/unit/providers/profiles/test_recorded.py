"""Each shipped profile on what was recorded of its real wheel, with what was recorded of Debian's ROCm 7.2.4 as the prefix.

The answers are those of the real wheels and the real prefix (tests/real has them); for torch, of which no wheel was read, the
layout is the one that its documents describe.
"""

from __future__ import annotations

import ctypes.util
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from relink.library import relink
from relink.loader.target import find_target
from relink.planning.options import Options
from relink.providers.profiles import profile_for, read_profile, shipped_profiles
from relink.report.model import Report
from relink.system.findings.model import Finding
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.recorded import (
    DIRECTORY,
    make_recorded_prefix,
    make_recorded_wheel,
    read_recorded,
    record_wheel,
    written,
)
from tests.unit.providers.profiles.documented_torch import torch

SLOW = pytest.mark.slow(reason="large recorded wheels; test_bitsandbytes has a smaller one")

WHEELS = ["bitsandbytes", "jax-rocm7-pjrt", "jax-rocm7-plugin", "onnxruntime-migraphx", "onnxruntime-rocm"]
PREFIX = "debian-rocm-7.2.4"
PROVIDER = "onnxruntime/capi/libonnxruntime_providers_rocm.so"
SHARED = "onnxruntime/capi/libonnxruntime_providers_shared.so"

builds = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


def glibc() -> tuple[int, ...]:
    return tuple(int(part) for part in (platform.libc_ver()[1] or "0.0").split(".")[:2])


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if glibc() < (2, 34):
        pytest.skip("the recorded wheels need GLIBC_2.34, and this host's C library is older")
    return make_recorded_prefix(tmp_path_factory.mktemp("rocm"), read_recorded(PREFIX))


def run(data: Mapping[str, Any], prefix: Path, directory: Path, **more: Any) -> Report:
    """Plan a recorded wheel for the host's loader, in no Python: whose symbols are there then is nobody's guess."""
    options = Options(
        prefixes=(str(prefix),),
        interpreter=find_target().interpreter,
        dry_run=True,
        ignore=("RLK410",),
        **more,
    )
    return relink(make_recorded_wheel(directory, data), options)


def of(report: Report, code: str, subject: str | None = None) -> list[Finding]:
    return [found for found in report.findings if found.code == code and subject in (None, found.subject)]


def errors(report: Report) -> list[str]:
    return sorted(found.subject for found in report.findings if found.level == "error")


# The recordings


def test_every_profile_is_exercised() -> None:
    brings = {
        "jaxlib",
        "tensorflow",
        "tensorflow-rocm",
    }  # tests/unit/planning/test_siblings.py tests what these bring
    tilelang = (
        "tilelang-rocm"  # a recording of TVM's names is large; planning/resolve/test_decide.py has its case
    )
    assert {*WHEELS, "torch", *brings, tilelang} == set(shipped_profiles())
    assert {path.stem for path in DIRECTORY.glob("*.json")} == {*WHEELS, PREFIX}


def test_what_amds_build_alone_opens_is_required_of_that_build() -> None:
    """The names are in each build's data, and a TensorFlow without AMD's GPUs works without these libraries."""
    asked = "tensorflow/libtensorflow_framework.so.2", "libamdhip64.so"
    assert profile_for("tensorflow-rocm").requires_opened(*asked)
    assert not profile_for("tensorflow-cpu").requires_opened(*asked)


@pytest.mark.parametrize("name", [*WHEELS, PREFIX])
def test_a_recording_is_small_and_written_as_the_script_writes(name: str) -> None:
    path = DIRECTORY / f"{name}.json"
    assert path.stat().st_size < 200_000
    assert written(json.loads(path.read_text())) == path.read_text()


@pytest.mark.real
@pytest.mark.parametrize("name", WHEELS)
def test_it_is_what_the_real_wheel_has(name: str) -> None:
    data = read_recorded(name)
    wheel = Path(os.environ.get("RELINK_REAL_WHEELS", "/nowhere")) / data["read"]["filename"]
    if not wheel.is_file():
        pytest.skip(f"{wheel.name} is not in RELINK_REAL_WHEELS")
    assert record_wheel(wheel) == data


@builds
@pytest.mark.parametrize("name", WHEELS)
def test_what_is_made_again_has_the_recorded_facts(name: str, tmp_path: Path) -> None:
    data = read_recorded(name)
    again = record_wheel(make_recorded_wheel(tmp_path, data))
    keys = ("soname", "needed", "rpath", "runpath", "imports")
    assert {member: [facts.get(key) for key in keys] for member, facts in again["elf"].items()} == {
        member: [facts.get(key) for key in keys] for member, facts in data["elf"].items()
    }
    for member, facts in data["elf"].items():
        assert sorted(again["elf"][member].get("exports", [])) == sorted(facts.get("exports", []))
    assert {name for name in data["members"] if ".dist-info/" not in name} <= set(again["members"])


@pytest.mark.parametrize("name", WHEELS)
def test_the_profile_is_chosen_by_the_name_and_all_of_it_names_something(name: str) -> None:
    data = read_recorded(name)
    profile = shipped_profiles()[name]
    assert data["read"]["filename"].split("-")[0].replace("_", "-") in profile.distributions
    paths = (facts.get("runpath") or facts.get("rpath") or "" for facts in data["elf"].values())
    entries = {entry for path in paths for entry in path.split(":")}
    assert list(profile.unmatched([*data["members"], *data["elf"]], entries)) == []


# ONNX Runtime: a member that is loaded before


@SLOW
@builds
def test_onnxruntime_rocm(prefix: Path, tmp_path: Path) -> None:
    report = run(read_recorded("onnxruntime-rocm"), prefix, tmp_path)
    assert errors(report) == []
    (supplied,) = [found for found in of(report, "RLK303") if found.profile]
    assert supplied.profile == "onnxruntime-rocm"
    assert supplied.message == f"1 symbol supplied by $WHEEL/{SHARED}: Provider_GetHost"
    (replaced,) = of(report, "RLK112")
    assert replaced.profile == "rocm"
    assert "librocm_smi64.so.1 → librocm_smi64.so.7: 4 of 4 imported symbols" in replaced.message
    (dropped,) = of(report, "RLK113")
    assert "libroctracer64.so.4 dropped" in dropped.message
    assert (
        "profile onnxruntime-rocm: the package loads what supplies Provider_GetHost before" in dropped.message
    )
    assert dropped.profile == "onnxruntime-rocm"
    (file,) = [file for file in report.files if file.path == PROVIDER]
    (entry,) = [entry for entry in file.needed if entry.soname == "librocm_smi64.so.1"]
    assert any(sentence.startswith("profile rocm: ") for sentence in entry.evidence)

    without = run(read_recorded("onnxruntime-rocm"), prefix, tmp_path / "without", profile="none")
    (lost,) = of(
        without, "RLK101"
    )  # the open symbol might be roctracer's then, so nothing proves that this one is idle
    assert lost.message.startswith(f"needed by $WHEEL/{PROVIDER}; ")
    assert "1 import may be its: Provider_GetHost" in lost.message
    assert errors(without) == ["libroctracer64.so.4"]
    assert not any(found.profile for found in of(without, "RLK303"))


@SLOW
@builds
def test_onnxruntime_migraphx(prefix: Path, tmp_path: Path) -> None:
    data = read_recorded("onnxruntime-migraphx")
    report = run(data, prefix, tmp_path)
    assert errors(report) == []
    (supplied,) = [found for found in of(report, "RLK303") if found.profile == "onnxruntime-migraphx"]
    assert "Provider_GetHost" in supplied.message
    (provider,) = [file for file in report.files if file.path.endswith("providers_migraphx.so")]
    assert "libamd_comgr.so.3" in provider.edit.add
    plain = run(data, prefix, tmp_path / "plain", preload_known=False)
    (provider,) = [file for file in plain.files if file.path.endswith("providers_migraphx.so")]
    assert len(provider.edit.add) == 10
    without = run(data, prefix, tmp_path / "without", profile="none")
    assert [found.subject.rpartition("/")[2] for found in of(without, "RLK302")] == [
        "libonnxruntime_providers_migraphx.so"
    ]


# bitsandbytes: one library of many


@builds
def test_bitsandbytes(prefix: Path, tmp_path: Path) -> None:
    data = read_recorded("bitsandbytes")
    report = run(data, prefix, tmp_path)
    assert errors(report) == []
    served = {file.path.rpartition("_")[2] for file in report.files if file.served}
    assert {"rocm70.so", "rocm71.so", "rocm72.so", "rocm714.so", "rocm715.so"} <= served
    left = of(report, "RLK103")
    assert {found.subject.rpartition("_")[2] for found in left} >= {"rocm64.so", "cuda118.so", "xpu2026.so"}
    assert {found.profile for found in left} == {"bitsandbytes"}

    without = run(data, prefix, tmp_path / "without", profile="none")
    assert {"libhipblas.so.2", "libhipblaslt.so.0", "libcublas.so.12", "libsycl.so.9"} <= set(errors(without))
    assert of(without, "RLK103") == []


@builds
def test_bitsandbytes_on_a_rocm_that_serves_none(tmp_path: Path) -> None:
    recorded = read_recorded(PREFIX)
    prefix = make_recorded_prefix(tmp_path / "rocm", recorded, without=["libhipblas.so.3"])
    report = run(read_recorded("bitsandbytes"), prefix, tmp_path / "wheel")
    (found,) = of(report, "RLK104")
    assert (found.level, found.profile) == ("error", "bitsandbytes")
    assert "picked by the HIP that torch was built with" in found.remedy
    # What only some releases know is told where the wheel's own Python names it.
    assert "BNB_ROCM_VERSION" not in found.remedy
    assert found.remedy.endswith("(profile bitsandbytes)")


# JAX: AMD's ROCm as sibling wheels


@SLOW
@builds
@pytest.mark.parametrize(
    ("name", "dropped", "missing"),
    [
        (
            "jax-rocm7-pjrt",
            36,
            {"libamd_smi.so.26", "librccl.so.1", "librocprofiler-sdk.so.1"},
        ),
        ("jax-rocm7-plugin", 18, set()),
    ],
)
def test_jax(name: str, dropped: int, missing: set[str], prefix: Path, tmp_path: Path) -> None:
    data = read_recorded(name)
    report = run(data, prefix, tmp_path)
    assert set(errors(report)) == missing
    removed = of(report, "RLK204")
    assert len(removed) == len(data["elf"]) - len(of(report, "RLK124"))
    assert {found.profile for found in removed} == {name}
    assert all(
        found.message.startswith(f"{dropped} entries to sibling packages removed") for found in removed
    )
    assert not any("_rocm_sdk_" in (file.rpath.after or "") for file in report.files if file.changed)
    known = [found for found in of(report, "RLK120") if found.profile == name]
    assert {found.subject for found in known} <= {"libibverbs.so.1", "libmagma.so", "libmagma.so.2"}
    assert {found.level for found in known} == {"info"}

    left = {found.subject: found.level for found in of(report, "RLK124")}
    expected = {f"jax_rocm7_plugin/{module}.so": "warning" for module in ("_solver", "_sparse")}
    assert left == (expected if name == "jax-rocm7-plugin" else {})

    without = run(data, prefix, tmp_path / "without", profile="none")
    assert set(errors(without)) == missing or left
    assert all(" kept: " in found.message and found.profile is None for found in of(without, "RLK204"))
    assert any("_rocm_sdk_" in (file.rpath.after or "") for file in without.files)
    assert not any(found.profile == name for found in without.findings)


@SLOW
@builds
def test_the_systems_libraries_stand_in_for_amds_copies(prefix: Path, tmp_path: Path) -> None:
    report = run(read_recorded("jax-rocm7-pjrt"), prefix, tmp_path)
    (file,) = (file for file in report.files if file.edit.replace)
    assert dict(file.edit.replace) == {
        "librocm_sysdeps_drm.so.2": "libdrm.so.2",
        "librocm_sysdeps_drm_amdgpu.so.1": "libdrm_amdgpu.so.1",
        "librocm_sysdeps_numa.so.1": "libnuma.so.1",
    }
    assert {(edit.version, edit.version_after) for edit in file.edit.versions} >= {
        ("AMDROCM_SYSDEPS_1.0_libnuma_1.1", "libnuma_1.1"),
        ("AMDROCM_SYSDEPS_1.0_libnuma_1.2", "libnuma_1.2"),
    }
    assert {found.profile for found in of(report, "RLK112")} == {"rocm"}


@builds
def test_what_is_said_of_libraries_that_no_distribution_has(tmp_path: Path) -> None:
    if ctypes.util.find_library("drm_amdgpu"):
        pytest.skip("the host has libdrm_amdgpu, which is taken then")
    bare = make_recorded_prefix(tmp_path / "rocm", read_recorded(PREFIX), without=["libdrm_amdgpu.so.1"])
    report = run(read_recorded("jax-rocm7-pjrt"), bare, tmp_path)
    (found,) = of(report, "RLK101", "librocm_sysdeps_drm_amdgpu.so.1")
    assert "AMD's own ROCm as the prefix" in found.remedy
    assert "(profile jax-rocm7-pjrt)" in found.remedy
    (rccl,) = of(report, "RLK101", "librccl.so.1")
    assert "librccl.so.1 is part of RCCL" in rccl.remedy
    assert "apt install" not in rccl.remedy, "a package would put it into /usr"


# torch, by its documents


@builds
def test_torch_that_brings_its_own_rocm_takes_the_systems(prefix: Path, tmp_path: Path) -> None:
    report = run(torch(bundled=True), prefix, tmp_path)
    assert errors(report) == []
    assert [found.code for found in report.findings if found.code in ("RLK541", "RLK546")] == ["RLK541"]
    assert "torch/lib/libamdhip64.so" not in {file.path for file in report.files}


@builds
def test_torch_that_brings_its_own_rocm_is_left_alone_where_there_is_none(tmp_path: Path) -> None:
    bare = make_recorded_prefix(tmp_path / "rocm", read_recorded(PREFIX), without=["libamdhip64.so.7"])
    report = run(torch(bundled=True), bare, tmp_path / "wheel")
    assert errors(report) == []
    assert not any(file.changed for file in report.files)
    (found,) = of(report, "RLK507")
    assert "brings its own ROCm" in found.remedy
    assert len(list(of(report, "RLK546"))) == 1


@builds
def test_torch_that_takes_the_systems_rocm(prefix: Path, tmp_path: Path) -> None:
    report = run(torch(bundled=False), prefix, tmp_path)
    assert errors(report) == []
    (file,) = [file for file in report.files if file.path == "torch/lib/libtorch_hip.so"]
    origins = {entry.soname: entry.origin for entry in file.needed if entry.action == "keep"}
    assert origins["libc10_hip.so"] == "wheel"
    assert origins["libamdhip64.so.7"] == origins["libhipblaslt.so.1"] == "provider"
    assert (file.rpath.after or "").startswith("$ORIGIN:")


@SLOW
@builds
def test_torch_on_a_rocm_that_lacks_something(tmp_path: Path) -> None:
    prefix = make_recorded_prefix(tmp_path / "rocm", read_recorded(PREFIX), without=["libroctx64.so.4"])
    report = run(torch(bundled=False), prefix, tmp_path / "wheel")
    (found,) = of(report, "RLK101", "libroctx64.so.4")
    assert "libroctx64.so.4 is part of roctracer" in found.remedy
    assert "torch/_rocm_init.py" in found.remedy


def test_its_profile_is_found_and_names_what_the_documents_name() -> None:
    profile = shipped_profiles()["torch"]
    members = [*torch(bundled=True)["members"], *torch(bundled=True)["elf"], "torch/_rocm_init.py"]
    members += [f"torch/lib/{name}/library/x" for name in ("rocblas", "hipblaslt", "hipsparselt")]
    members += [f"torch/share/{name}/x" for name in ("miopen/db", "rccl/msccl-algorithms", "libdrm")]
    assert list(profile.unmatched(members, ["$ORIGIN/../../_rocm_sdk_core/lib"])) == []


# A profile of one's own


@builds
def test_a_file_takes_the_place_of_the_shipped_one(prefix: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'schema = "relink.profile/1"\npreload = ["{SHARED}"]\n')
    report = run(read_recorded("onnxruntime-rocm"), prefix, tmp_path, profile=str(path))
    assert errors(report) == []
    assert {found.profile for found in report.findings if found.profile} == {"mine", "rocm"}
    assert read_profile(path).name == "mine"
