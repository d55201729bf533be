"""Kernel files beside libraries, known by their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relink.gpu.amd.device_code import read_file
from relink.gpu.amd.file_coverage import library_coverage_of
from relink.gpu.amd.side_files import (
    SideFiles,
    find_side_files,
    miopen_processor,
    side_files_of,
)
from relink.gpu.coverage import TargetId
from tests.unit.gpu.amd.build import code_object, entries_of, library, raw

TYPE = "TensileLibrary_Type_SS_Contraction_l_Ailk_Bjlk_Cijk_Dijk"
ROCBLAS = [
    "TensileLibrary_lazy_gfx1030.dat", f"{TYPE}_gfx1030.co", f"{TYPE}_gfx1030.dat", f"{TYPE}_fallback_gfx1030.hsaco",
    "Kernels.so-000-gfx1030.hsaco",
    "TensileLibrary_lazy_gfx1010.dat", f"{TYPE}_fallback_gfx1010.hsaco", "Kernels.so-000-gfx1010.hsaco",
    "TensileLibrary_lazy_gfx90a.dat", f"{TYPE}_gfx90a.co",
    "Kernels.so-000-gfx90a-xnack+.hsaco", "Kernels.so-000-gfx90a-xnack-.hsaco",
    f"{TYPE}_fallback_gfx90a-xnack+.hsaco", f"{TYPE}_fallback_gfx90a-xnack-.hsaco",
    "TensileLibrary_lazy_gfx908.dat", "Kernels.so-000-gfx908-xnack-.hsaco",
    f"{TYPE}_gfx1100.co",  # kernels, but no index
    "TensileLibrary_lazy_gfx11-generic.dat", "Kernels.so-000-gfx11-generic.hsaco",
    "TensileLibrary_lazy_gfx942.dat",  # an index, but no kernels
    "README", f"{TYPE}_fallback.dat",
]  # fmt: skip


def fill(directory: Path, names: list[str]) -> Path:
    directory.mkdir(parents=True)
    for name in names:
        (directory / name).write_bytes(b"")
    return directory


def only(prefix: Path, kind: str) -> SideFiles:
    return next(s for s in find_side_files(prefix) if s.kind == kind)


@pytest.fixture
def rocblas(tmp_path: Path) -> SideFiles:
    fill(tmp_path / "lib/rocblas/library", ROCBLAS)
    return only(tmp_path, "rocblas")


@pytest.mark.parametrize(
    ("agent", "state"),
    [
        ("gfx1030", "tuned"),
        ("gfx1010", "fallback"),
        ("gfx90a", "tuned"),
        ("gfx908", "partly"),
        ("gfx1031", "absent"),
        ("gfx942", "absent"),
        ("gfx1103", "fallback"),
        ("gfx1100", "tuned"),
    ],
)
def test_rocblas_states(rocblas: SideFiles, agent: str, state: str) -> None:
    assert rocblas.state(TargetId(agent)) == state


def test_rocblas_without_an_index_aborts(tmp_path: Path) -> None:
    names = [name for name in ROCBLAS if "lazy" not in name]
    fill(tmp_path / "lib/rocblas/library", names)
    assert only(tmp_path, "rocblas").state(TargetId("gfx1030")) == "absent"
    (tmp_path / "lib/rocblas/library/TensileLibrary.dat").write_bytes(b"")  # the old, common index
    assert only(tmp_path, "rocblas").state(TargetId("gfx1030")) == "tuned"


def test_kinds_are_by_target_id(rocblas: SideFiles) -> None:
    kinds = {str(target): kinds for target, kinds in rocblas.targets.items()}
    assert kinds["gfx1030"] == {"tuned", "fallback", "data", "index"}
    assert kinds["gfx90a"] == {"tuned", "index"}
    assert kinds["gfx90a:xnack+"] == kinds["gfx90a:xnack-"] == {"fallback", "index"}
    assert "gfx908" not in kinds  # its index is for gfx908:xnack-
    assert "gfx1151" in rocblas.processors()
    assert rocblas.files == len(ROCBLAS)


def test_two_features_in_a_name(tmp_path: Path) -> None:
    fill(
        tmp_path / "lib/rocblas/library",
        ["Kernels.so-000-gfx90a-sramecc--xnack+.hsaco", "Kernels.so-000-gfx906-sramecc+-xnack-.hsaco"],
    )
    assert set(map(str, only(tmp_path, "rocblas").targets)) == {
        "gfx90a:sramecc-:xnack+",
        "gfx906:sramecc+:xnack-",
    }


def test_the_version_of_the_library_picks_the_directory(tmp_path: Path) -> None:
    lib = tmp_path / "lib/x86_64-linux-gnu"
    fill(lib / "rocblas/4.4.1/library", ROCBLAS[:5])
    fill(lib / "rocblas/5/library", ROCBLAS)
    fill(lib / "rocblas/50/library", [])
    (lib / "librocblas.so.5").write_bytes(library([raw(entries_of("gfx1030", "gfx1010", "gfx1031"))]))
    assert [s.version for s in side_files_of(lib / "librocblas.so.5")] == ["5"]
    assert [s.version for s in side_files_of(lib / "librocblas.so.4")] == ["4.4.1"]
    assert side_files_of(lib / "librocblas.so.6") == ()
    assert [s.version for s in find_side_files(tmp_path)] == ["4.4.1", "5", "50"]
    found = library_coverage_of(read_file(lib / "librocblas.so.5"))
    assert found.level(TargetId("gfx1030")).state == "full"
    assert found.level(TargetId("gfx1010")).state == "slow"
    missing = found.level(TargetId("gfx1031"))
    assert (missing.state, "aborts" in missing.note) == ("none", True)


def test_an_unversioned_directory_serves_all_versions(tmp_path: Path) -> None:
    fill(tmp_path / "lib/rocblas/library", ROCBLAS)
    assert [s.version for s in side_files_of(tmp_path / "lib/librocblas.so.5")] == [""]
    assert side_files_of(tmp_path / "lib/librocsolver.so.0") == ()
    assert side_files_of(tmp_path / "lib/libc.so.6") == ()


def test_hipblaslt_opens_the_one_file_that_names_nothing(tmp_path: Path) -> None:
    directory = fill(
        tmp_path / "lib/hipblaslt/library",
        [
            f"{TYPE}_gfx1100.co",
            f"{TYPE}_gfx1100.dat",
            "TensileLibrary_lazy_gfx1100.dat",
            "extop_gfx1101.co",
            "Kernels.so-000-gfx1101.hsaco",
        ],
    )
    (directory / "hipblasltTransform.hsaco").write_bytes(raw(entries_of("gfx1100", "gfx942")))
    found = only(tmp_path, "hipblaslt")
    assert found.state(TargetId("gfx1100")) == "tuned"
    assert found.state(TargetId("gfx1101")) == "absent"
    assert found.state(TargetId("gfx942")) == "absent"
    assert {str(target): kinds for target, kinds in found.targets.items()}["gfx942"] == {"data"}


def test_a_side_file_of_any_form_may_be_read(tmp_path: Path) -> None:
    directory = fill(tmp_path / "lib/hipblaslt/library", [])
    (directory / "hipblasltTransform.hsaco").write_bytes(b"__CLANG_OFFLOAD_BUNDLE__" + b"\xff" * 20)
    assert any("hipblasltTransform" in p for p in only(tmp_path, "hipblaslt").problems)
    (directory / "hipblasltTransform.hsaco").write_bytes(code_object("gfx90a"))
    assert only(tmp_path, "hipblaslt").problems == ()


@pytest.mark.parametrize(
    ("name", "processor"),
    [
        ("gfx90a68.HIP.fdb.txt", "gfx90a"), ("gfx942130.db.txt", "gfx942"), ("gfx942e4.db.txt", "gfx942"),
        ("gfx90878.OpenCL.fdb.txt", "gfx908"), ("gfx1030_36.HIP.fdb.txt", "gfx1030"), ("gfx906_60.db.txt", "gfx906"),
        ("gfx908.tn.model", "gfx908"), ("gfx942_ConvHipIgemmGroupFwdXdlops_decoder.ktn.model", "gfx942"),
        ("gfx90a6e.kdb", "gfx90a"), ("gfx94230.db.txt", None), ("gfx90a41.db.txt", "gfx90a"),
        ("gfx90a40.db.txt", None), ("perf.txt", None),
    ],
)  # fmt: skip
def test_miopen_names_end_in_the_number_of_compute_units(name: str, processor: str | None) -> None:
    assert miopen_processor(name) == processor


def test_miopen_is_tuning_data_and_compiles(tmp_path: Path) -> None:
    fill(tmp_path / "share/miopen/db", ["gfx90a68.HIP.fdb.txt", "gfx1030_36.db.txt"])
    found = only(tmp_path, "miopen")
    assert [(str(target), *kinds) for target, kinds in found.targets.items()] == [
        ("gfx90a", "data"),
        ("gfx1030", "data"),
    ]
    assert found.state(TargetId("gfx1201")) == "jit"
    for place in ("lib/libMIOpen.so.1", "lib/x86_64-linux-gnu/libMIOpen.so.1"):
        assert [s.kind for s in side_files_of(tmp_path / place)] == ["miopen"]


def test_miopens_libraries_of_convolutions_count_for_their_gpu(tmp_path: Path) -> None:
    fill(tmp_path / "share/miopen/db", ["gfx90a68.HIP.fdb.txt"])
    fill(tmp_path / "lib", ["libMIOpenCKGroupedConv_gfx942.so", "libMIOpen.so.1"])
    for found in (only(tmp_path, "miopen"), *side_files_of(tmp_path / "lib/libMIOpen.so.1")):
        assert [*map(str, found.targets)] == ["gfx90a", "gfx942"]
        assert found.files == 2


def test_no_cache_of_rocfft_is_read(tmp_path: Path) -> None:
    """rocFFT compiles its kernels, and the database of a hostile prefix costs nothing."""
    fill(tmp_path / "lib/rocfft/1.0.36", ["rocfft_kernel_cache.db"])
    assert find_side_files(tmp_path) == ()
    assert side_files_of(tmp_path / "lib/librocfft.so.0") == ()


def test_aotriton_directories_may_name_a_family(tmp_path: Path) -> None:
    for name in ("amd-gfx90a", "amd-gfx11xx", "amd-gfx120x", "notes"):
        (tmp_path / "lib/aotriton.images" / name).mkdir(parents=True)
    found = only(tmp_path, "aotriton")
    assert found.state(TargetId("gfx90a")) == "tuned"
    assert found.state(TargetId("gfx1151")) == "tuned"
    assert found.state(TargetId("gfx1201")) == "tuned"
    assert found.state(TargetId("gfx1250")) == "absent"
    assert found.state(TargetId("gfx942")) == "absent"


def test_every_directory_is_looked_into_once(tmp_path: Path) -> None:
    fill(tmp_path / "lib/rocblas/library", ROCBLAS)
    os.symlink("lib", tmp_path / "lib64")
    assert len(find_side_files(tmp_path)) == 1
    assert find_side_files(tmp_path / "absent") == ()
