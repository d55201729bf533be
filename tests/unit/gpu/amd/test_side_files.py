"""Kernel files beside libraries, known by their names."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from relink.gpu.amd.device_code import read_file
from relink.gpu.amd.file_coverage import library_coverage_of
from relink.gpu.amd.side_files import (
    MAX_ARCHITECTURES,
    SideFiles,
    count_architectures,
    find_side_files,
    miopen_processor,
    side_files_of,
)
from relink.gpu.amd.target_id import parse_target_id
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
    kinds = {str(t.target): t.kinds for t in rocblas.targets}
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
    assert {str(t.target) for t in only(tmp_path, "rocblas").targets} == {
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
    assert {str(t.target): t.kinds for t in found.targets}["gfx942"] == {"data"}


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
    assert [(str(t.target), *t.kinds) for t in found.targets] == [("gfx90a", "data"), ("gfx1030", "data")]
    assert found.state(TargetId("gfx1201")) == "jit"
    for place in ("lib/libMIOpen.so.1", "lib/x86_64-linux-gnu/libMIOpen.so.1"):
        assert [s.kind for s in side_files_of(tmp_path / place)] == ["miopen"]


def test_miopens_libraries_of_convolutions_count_for_their_gpu(tmp_path: Path) -> None:
    fill(tmp_path / "share/miopen/db", ["gfx90a68.HIP.fdb.txt"])
    fill(tmp_path / "lib", ["libMIOpenCKGroupedConv_gfx942.so", "libMIOpen.so.1"])
    for found in (only(tmp_path, "miopen"), *side_files_of(tmp_path / "lib/libMIOpen.so.1")):
        assert [str(target.target) for target in found.targets] == ["gfx90a", "gfx942"]
        assert found.files == 2


def test_rocfft_reads_its_cache_and_a_miss_compiles(tmp_path: Path) -> None:
    directory = fill(tmp_path / "lib/rocfft/1.0.36", [])
    path = directory / "rocfft_kernel_cache.db"
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE cache_v1 (kernel_name TEXT, arch TEXT, hip_version INT, generator_sum BLOB, code BLOB, timestamp INT)"
        )
        rows = [("a", "gfx1030"), ("b", "gfx1030"), ("a", "gfx90a:xnack-"), ("a", "no arch?")]
        database.executemany("INSERT INTO cache_v1 (kernel_name, arch) VALUES (?, ?)", rows)
    database.close()
    found = only(tmp_path, "rocfft")
    assert [(str(t.target), *t.kinds) for t in found.targets] == [
        ("gfx90a:xnack-", "tuned"),
        ("gfx1030", "tuned"),
    ]
    assert (found.state(TargetId("gfx1030")), found.state(TargetId("gfx1100"))) == ("tuned", "jit")
    assert found.state(parse_target_id("gfx90a:xnack-")) == "tuned"
    assert any("no architecture" in p for p in found.problems)
    assert sorted(p.name for p in directory.iterdir()) == ["rocfft_kernel_cache.db"]  # read without a trace
    path.write_bytes(b"SQLite format 3\0" + bytes(4000))
    assert any("cannot be read" in p for p in only(tmp_path, "rocfft").problems)


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


TABLE = "CREATE TABLE cache_v1 (arch TEXT, code BLOB)"


def database(path: Path, *statements: str, rows: int = 0) -> Path:
    made = sqlite3.connect(path / "it's a cache?.db")
    for statement in statements:
        made.execute(statement)
    if rows:
        values = ((f"gfx{number}",) for number in range(rows))
        made.executemany("INSERT INTO cache_v1 VALUES (?, x'00')", values)
    made.commit()
    made.close()
    return path / "it's a cache?.db"


def test_architectures_are_counted(tmp_path: Path) -> None:
    rows = "INSERT INTO cache_v1 VALUES ('gfx1100', 'a'), ('gfx1100', 'b'), ('gfx90a:xnack-', 'c'), (NULL, ''), (7, '')"
    found = count_architectures(database(tmp_path, TABLE, rows))
    assert found == {"gfx1100": 2, "gfx90a:xnack-": 1, "None": 1, "7": 1}


def test_no_more_than_there_can_be(tmp_path: Path) -> None:
    path = database(tmp_path, TABLE, rows=MAX_ARCHITECTURES)
    assert len(count_architectures(path)) == MAX_ARCHITECTURES
    path.unlink()
    with pytest.raises(sqlite3.DatabaseError, match="more than 1000 architectures"):
        count_architectures(database(tmp_path, TABLE, rows=MAX_ARCHITECTURES + 1))


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["CREATE TABLE other (arch)"], "no table cache_v1"),
        (
            ["CREATE TABLE other (arch)", "CREATE VIEW cache_v1 AS SELECT arch FROM other"],
            "no table cache_v1",
        ),
        (["CREATE TABLE cache_v1 (other)"], "no such column"),
    ],
)
def test_what_is_no_such_cache(tmp_path: Path, statements: list[str], said: str) -> None:
    with pytest.raises(sqlite3.Error, match=said):
        count_architectures(database(tmp_path, *statements))


WRITABLE = "PRAGMA writable_schema=ON"
VIRTUAL = {
    "fts3": ("fts3(arch)", "('gfx90a')"),
    "fts5": ("fts5(arch)", "('gfx90a')"),
    "rtree": ("rtree(arch, low, high)", "(7, 1, 2)"),
}


@pytest.mark.parametrize("module", VIRTUAL)
def test_a_virtual_table_reads_no_other_table(tmp_path: Path, module: str) -> None:
    """Its module reads tables of its own, whose content is hostile, too. In the schema it is a table, its root any page."""
    declared, row = VIRTUAL[module]
    create = f"CREATE VIRTUAL TABLE cache_v1 USING {declared}"
    try:
        with contextlib.closing(sqlite3.connect(":memory:")) as memory:
            memory.execute(create)
    except sqlite3.OperationalError as error:
        pytest.skip(str(error))
    insert = f"INSERT INTO cache_v1 VALUES {row}"  # noqa: S608 - a row of VIRTUAL
    root = "UPDATE sqlite_master SET rootpage = 2 WHERE name = 'cache_v1'"
    path = database(tmp_path, create, insert, WRITABLE, root)
    opened = sqlite3.connect(path)
    assert len(opened.execute("SELECT arch FROM cache_v1").fetchall()) == 1  # SQLite itself takes it
    opened.close()
    with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|constructor failed|computed or hidden"):
        count_architectures(path)


@pytest.mark.parametrize("kind", ["VIRTUAL", "STORED"])
@pytest.mark.parametrize("column", ["arch", "other"])
def test_a_computed_column(tmp_path: Path, kind: str, column: str) -> None:
    """A row of it is a few steps to the engine, and as much work as the function takes: 80 ms for 16 MB of hex digits."""
    first = "n" if column == "arch" else "n, arch"
    schema = f"CREATE TABLE cache_v1 ({first}, {column} TEXT AS (hex(zeroblob(n))) {kind})"
    insert = "INSERT INTO cache_v1 (n) VALUES (1000)"
    with pytest.raises(sqlite3.DatabaseError, match="a column of cache_v1 is computed or hidden"):
        count_architectures(database(tmp_path, schema, insert))


def test_no_database_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"no database" * 1000)
    with pytest.raises(sqlite3.DatabaseError):
        count_architectures(tmp_path / "a")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        count_architectures(tmp_path / "fifo")


def test_a_long_name_is_cut(tmp_path: Path) -> None:
    path = database(
        tmp_path, TABLE, "INSERT INTO cache_v1 VALUES (replace(hex(zeroblob(2500)), '0', 'x'), '')"
    )
    assert count_architectures(path) == {"x" * 100: 1}


@pytest.mark.skipif(not os.access("/proc/kmsg", os.R_OK), reason="/proc/kmsg is for root")
def test_a_file_that_has_nothing_to_read_yet(tmp_path: Path) -> None:
    """It is a regular file to stat(2), and SQLite would wait for the kernel's next message; a process of its own can be ended."""
    (tmp_path / "rocfft_kernel_cache.db").symlink_to("/proc/kmsg")
    code = (
        "import sys; from relink.gpu.amd.side_files import count_architectures as count; count(sys.argv[1])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "rocfft_kernel_cache.db")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 1
    assert "Resource temporarily unavailable" in ended.stderr or "no SQLite database" in ended.stderr


@pytest.mark.parametrize("content", [b"", b"SQLite format 2\0", b"SQLite format 3"])
def test_what_does_not_begin_like_a_database(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.db").write_bytes(content)
    with pytest.raises(sqlite3.DatabaseError, match="no SQLite database"):
        count_architectures(tmp_path / "x.db")
