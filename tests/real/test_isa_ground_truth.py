"""What vendor wheels and Debian's ROCm 7.2.4 really contain, and that llvm-objdump counts the same.

RELINK_REAL_WHEELS names a directory of wheels, RELINK_REAL_PREFIX_FULL and RELINK_REAL_PREFIX_SMALL prefixes of Debian's ROCm
7.2.4 (…/usr); without them only what is small is fetched. RELINK_LLVM_OBJDUMP is a command line for llvm-objdump 20 or newer
where the one in PATH is older.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from relink.elf.source import BufferSource
from relink.gpu.amd.device_code import DeviceCode, read_device_code, read_file, resolve_kpack
from relink.gpu.amd.file_coverage import LibraryCoverage, coverage_of, intersect, library_coverage_of
from relink.gpu.amd.findings import remedies
from relink.gpu.amd.runtime import check, find_runtime, needs_of
from relink.gpu.amd.side_files import SideFiles, count_tensile_files, find_side_files
from relink.gpu.amd.target_id import sort_key
from relink.gpu.coverage import Coverage, Intersection, TargetId
from tests.real.conftest import fetch_prefix, fetch_wheel

pytestmark = pytest.mark.real

ORT = "1030 1100 1101 1200 1201 908 90a 942"
JAX = (
    "900 906 908 90a 942 950 1010 1011 1012 1030 1031 1032 1033 1034 1035 1036 "
    "1100 1101 1102 1103 1150 1151 1152 1153 1200 1201 1250"
)
BNB64 = "908 90a 942 1030 1100 1101 1102 1103 1150 1151 1152 1153 1200 1201"
BNB70 = BNB64 + " 950"
BNB714 = BNB70 + " 1010 1011 1012 1031 1032 1033 1034 1035 1036 1250"
DEBIAN = "803 900 906 908 90a 942 1010 1030 1100 1101 1102 1151 1200 1201"
DEBIAN_64 = "803 900 906 908 90a 1010 1030 1100 1101 1102"
MIGRAPHX = "908 90a 942 1030 1031 1032 1100 1101 1102"

# wheel, member, container, bundles, processors
MEMBERS = [
    ("onnxruntime_rocm", "onnxruntime/capi/libonnxruntime_providers_rocm.so", "raw", 95, ORT),
    ("onnxruntime_rocm", "onnxruntime/capi/libonnxruntime.so.1.22.2", "none", 0, ""),
    ("onnxruntime_rocm", "onnxruntime/capi/libonnxruntime_providers_shared.so", "none", 0, ""),
    ("onnxruntime_rocm", "onnxruntime/capi/onnxruntime_pybind11_state.so", "none", 0, ""),
    ("onnxruntime_migraphx", "onnxruntime/capi/libonnxruntime.so.1.27.1", "none", 0, ""),
    ("onnxruntime_migraphx", "onnxruntime/capi/libonnxruntime_providers_migraphx.so", "none", 0, ""),
    ("onnxruntime_migraphx", "onnxruntime/capi/libonnxruntime_providers_shared.so", "none", 0, ""),
    ("onnxruntime_migraphx", "onnxruntime/capi/onnxruntime_pybind11_state.so", "none", 0, ""),
    ("bitsandbytes", "bitsandbytes/libbitsandbytes_rocm64.so", "ccob-v2", 2, BNB64),
    ("bitsandbytes", "bitsandbytes/libbitsandbytes_rocm70.so", "ccob-v2", 2, BNB70),
    ("bitsandbytes", "bitsandbytes/libbitsandbytes_rocm71.so", "ccob-v3", 2, BNB70),
    ("bitsandbytes", "bitsandbytes/libbitsandbytes_rocm72.so", "ccob-v3", 2, BNB70),
    ("bitsandbytes", "bitsandbytes/libbitsandbytes_rocm714.so", "ccob-v3", 2, BNB714),
    ("bitsandbytes", "bitsandbytes/libbitsandbytes_rocm715.so", "ccob-v3", 2, BNB714),
    ("bitsandbytes", "bitsandbytes/libbitsandbytes_xpu2026.so", "none", 0, ""),
    ("jax_rocm7_pjrt", "jax_plugins/xla_rocm7/xla_rocm_plugin.so", "ccob-v3", 45, JAX),
    ("jax_rocm7_plugin", "jax_rocm7_plugin/_linalg.so", "ccob-v3", 1, JAX),
    ("jax_rocm7_plugin", "jax_rocm7_plugin/_prng.so", "ccob-v3", 1, JAX),
    ("jax_rocm7_plugin", "jax_rocm7_plugin/_solver.so", "ccob-v3", 2, JAX),
    *(
        ("jax_rocm7_plugin", f"jax_rocm7_plugin/{name}.so", "none", 0, "")
        for name in ("_hybrid", "_rnn", "_sparse", "_triton", "rocm_plugin_extension")
    ),
]
LIBRARIES = [
    ("librocblas.so.5.2", "ccob-v3", 65, DEBIAN),
    ("librocsolver.so.0.7", "ccob-v3", 235, DEBIAN),
    ("librocfft.so.0.1", "raw", 1, DEBIAN),
    ("librocblas.so.4.4", "raw", 66, DEBIAN_64),
    ("migraphx/lib/libmigraphx_device.so.2014000", "raw", 12, MIGRAPHX),
    ("libhipblaslt.so.1.2", "none", 0, ""),
    ("libMIOpen.so.1.0", "none", 0, ""),
    ("migraphx/lib/libmigraphx_gpu.so.2014000", "none", 0, ""),
]
OBJDUMP_MEMBERS = [row[:2] for row in MEMBERS if row[3] and "rocm64" not in row[1]]
OBJDUMP_LIBRARIES = ["librocblas.so.5.2", "librocsolver.so.0.7", "librocfft.so.0.1"]


WHEELS = {
    "onnxruntime_rocm": ("onnxruntime-rocm==1.22.2.post3", "onnxruntime_rocm-1.22.2.post3-cp312-*.whl"),
    "onnxruntime_migraphx": ("onnxruntime-migraphx==1.27.1", "onnxruntime_migraphx-1.27.1-cp312-*.whl"),
    "bitsandbytes": ("bitsandbytes==0.50.2", "bitsandbytes-0.50.2-*.whl"),
    "jax_rocm7_pjrt": ("jax-rocm7-pjrt==0.12.0", "jax_rocm7_pjrt-0.12.0-*.whl"),
    "jax_rocm7_plugin": ("jax-rocm7-plugin==0.12.0", "jax_rocm7_plugin-0.12.0-cp312-*.whl"),
}
SMALL = ("onnxruntime_migraphx",)  # what is fetched without being asked for


def wheel(name: str) -> Path:
    if name not in SMALL and not os.environ.get("RELINK_REAL_WHEELS"):
        pytest.skip(
            f"the wheel of {name} is not fetched for this; RELINK_REAL_WHEELS names a directory with it"
        )
    return fetch_wheel(*WHEELS[name])


def libraries() -> Path:
    return fetch_prefix("full") / "lib/x86_64-linux-gnu"


def member(name: str, path: str) -> DeviceCode:
    with zipfile.ZipFile(wheel(name)) as archive:
        return read_device_code(BufferSource(archive.read(path)), path)


def processors(text: str) -> tuple[str, ...]:
    return tuple(sorted((f"gfx{name}" for name in text.split()), key=sort_key))


def agree(code: DeviceCode, container: str, bundles: int, expected: str) -> None:
    found = coverage_of(code)
    assert code.problems == ()
    assert (found.container, found.bundles, found.unreadable) == (container, bundles, 0)
    assert (found.targets, found.partial) == (processors(expected), ())
    assert len(found.sets) == bool(bundles)
    assert code.wrappers == (bundles or None)


@pytest.mark.parametrize(
    ("name", "path", "container", "bundles", "expected"), MEMBERS, ids=[row[1] for row in MEMBERS]
)
def test_wheels(name: str, path: str, container: str, bundles: int, expected: str) -> None:
    agree(member(name, path), container, bundles, expected)


@pytest.mark.parametrize(
    ("name", "container", "bundles", "expected"), LIBRARIES, ids=[row[0] for row in LIBRARIES]
)
def test_debian_libraries(name: str, container: str, bundles: int, expected: str) -> None:
    agree(read_file(libraries() / name), container, bundles, expected)


@functools.cache
def objdump() -> tuple[str, ...]:
    command = shlex.split(os.environ.get("RELINK_LLVM_OBJDUMP", ""))
    names = ("llvm-objdump-23", "llvm-objdump-22", "llvm-objdump-21", "llvm-objdump-20", "llvm-objdump")
    command = command or next(([path] for name in names if (path := shutil.which(name))), [])
    if not command:
        pytest.skip("llvm-objdump is not installed")
    text = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"LLVM version (\d+)", text)
    if version is None or int(version[1]) < 20:
        pytest.skip(
            f"llvm-objdump {version[1] if version else '?'} does not read these bundles; 20 or newer does"
        )
    return tuple(command)


def counted(path: Path, tmp_path: Path) -> Counter[str]:
    """Ask llvm-objdump; it writes what it finds beside its input, so that is a link in a directory of its own.

    22.1.8 dies of SIGSEGV on most runs over small compressed files (bitsandbytes), and is right when it does not.
    """
    link = tmp_path / "x.so"
    link.symlink_to(path)
    for _ in range(40):
        run = subprocess.run(
            [*objdump(), "--offloading", "x.so"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        for written in tmp_path.glob("x.so.*"):
            written.unlink()
        if run.returncode == 0:
            return Counter(
                re.findall(r"^Extracting offload bundle: x\.so\.\d+\.(hip\S+)$", run.stdout, re.MULTILINE)
            )
    pytest.skip(f"llvm-objdump ends with status {run.returncode} on this file, forty times")


def walked(code: DeviceCode) -> Counter[str]:
    return Counter(entry.text for bundle in code.bundles for entry in bundle.entries if entry.usable)


@pytest.mark.parametrize(("name", "path"), OBJDUMP_MEMBERS, ids=[row[1] for row in OBJDUMP_MEMBERS])
def test_llvm_objdump_counts_the_same_in_wheels(name: str, path: str, tmp_path: Path) -> None:
    objdump()
    with zipfile.ZipFile(wheel(name)) as archive:
        archive.extract(path, tmp_path)
    (tmp_path / "out").mkdir()
    code = read_file(tmp_path / path)
    assert walked(code) == counted(tmp_path / path, tmp_path / "out")
    assert walked(code).total() > 0


@pytest.mark.parametrize("name", OBJDUMP_LIBRARIES)
def test_llvm_objdump_counts_the_same_in_libraries(name: str, tmp_path: Path) -> None:
    objdump()
    path = libraries() / name
    assert walked(read_file(path)) == counted(path, tmp_path)


TENSILE = {
    "rocblas": {
        "803": (8, 55), "900": (28, 71), "906": (42, 71), "908": (51, 69), "90a": (129, 0), "90a:xnack+": (0, 87),
        "90a:xnack-": (0, 87), "942": (93, 55), "1010": (0, 55), "1030": (16, 55), "1100": (20, 55), "1101": (20, 55),
        "1102": (20, 55), "1151": (20, 55), "1200": (0, 55), "1201": (0, 55),
    },
    "hipblaslt": {
        "908": (51, 0), "90a": (98, 0), "1100": (46, 0), "1101": (54, 0), "1102": (46, 0), "1151": (46, 0),
        "1200": (142, 0), "1201": (147, 0),
    },
}  # fmt: skip


def _counted(side: SideFiles) -> dict[str, tuple[int, int]]:
    """The numbers of tuned and of fallback kernel files, by target."""
    counts = count_tensile_files(os.listdir(side.directory), side.kind)
    return {
        str(one).removeprefix("gfx"): (counts[one, "tuned"], counts[one, "fallback"]) for one in side.targets
    }


def test_debian_side_files() -> None:
    found = find_side_files(fetch_prefix("full"))
    for kind, expected in TENSILE.items():
        (side,) = (s for s in found if s.kind == kind and s.version in ("", "5"))
        assert _counted(side) == expected
        for target, kinds in side.targets.items():
            tuned, fallback = expected[str(target).removeprefix("gfx")]
            kernels = kinds & {"tuned", "fallback"}
            assert ("tuned" in kernels, "fallback" in kernels) == (tuned > 0, fallback > 0)
        assert side.problems == ()
    (blas,) = (s for s in found if s.kind == "rocblas" and s.version == "5")
    states = {
        name: blas.state(TargetId(name)) for name in ("gfx90a", "gfx1010", "gfx1200", "gfx1201", "gfx1031")
    }
    assert states == {
        "gfx90a": "tuned",
        "gfx1010": "fallback",
        "gfx1200": "fallback",
        "gfx1201": "fallback",
        "gfx1031": "absent",
    }
    (lt,) = (s for s in found if s.kind == "hipblaslt")
    assert {n: lt.state(TargetId(n)) for n in ("gfx942", "gfx950", "gfx906", "gfx1030")} == dict.fromkeys(
        ("gfx942", "gfx950", "gfx906", "gfx1030"), "absent"
    )
    (miopen,) = (s for s in found if s.kind == "miopen")
    assert [*map(str, miopen.targets)] == list(processors("803 900 906 908 90a 942 950 1030"))


def test_every_tensile_file_holds_what_its_name_says() -> None:
    count = 0
    for side in find_side_files(fetch_prefix("full")):
        for entry in os.scandir(side.directory):
            name = re.search(r"[_-](gfx[0-9a-f]+)(-xnack[+-])?\.(co|hsaco)$", entry.name)
            if name:
                code = read_file(entry.path)
                assert code.problems == ()
                assert coverage_of(code).targets == (name[1] + (name[2] or "").replace("-", ":", 1),)
                count += 1
    assert count == 2998


def rocm_libraries() -> dict[str, LibraryCoverage]:
    names = ("librocblas.so.5", "librocsolver.so.0", "libhipblaslt.so.1", "libMIOpen.so.1", "librocfft.so.0")
    return {
        name.partition(".")[0]: library_coverage_of(resolve_kpack(read_file(libraries() / name)))
        for name in names
    }


def test_onnxruntime_on_debian() -> None:
    code = member("onnxruntime_rocm", "onnxruntime/capi/libonnxruntime_providers_rocm.so")
    found = rocm_libraries()
    everything: list[Coverage] = [coverage_of(code), *found.values()]
    usable: Intersection = intersect(everything, [TargetId("gfx1031")])
    assert usable.targets == processors(ORT)
    assert usable.conditional == ()
    removed = {name: [os.path.basename(path) for path, _ in by] for name, by in usable.removed.items()}
    provider = "libonnxruntime_providers_rocm.so"
    assert removed["gfx906"] == [provider]
    assert removed["gfx1031"] == [provider, "librocblas.so.5", "librocsolver.so.0", "librocfft.so.0"]
    assert str(found["libhipblaslt"].level(TargetId("gfx942"))) == "none"
    assert str(found["librocblas"].level(TargetId("gfx1201"))) == "slow"
    kinds = [r.kind for r in remedies(TargetId("gfx1031"), everything, runtime_generic=True)]
    assert kinds[0] == "override"
    assert set(kinds[1:]) == {"rebuild"}


def test_debian_runtime_loads_all_that_the_wheels_have() -> None:
    where = libraries()
    found = find_runtime([where], hip="libamdhip64.so.7")
    assert (found.hip_build, found.comgr_api, found.ccob, found.code_object) == ("7.2.53211", (3, 1), 3, 6)
    assert (found.generic, found.spirv, found.kpack) == (True, True, False)
    assert len(found.agents) == 39
    assert found.agents[0] == "gfx700"
    assert "gfx1250" in found.jit
    assert "gfx1250" not in found.agents
    code = member("jax_rocm7_plugin", "jax_rocm7_plugin/_solver.so")
    verdicts = {
        row.what: row.verdict
        for row in check(needs_of([code], [TargetId("gfx1250"), TargetId("gfx1100")]), found)
    }
    assert verdicts == {
        "compressed bundles (CCOB)": "ok", "code objects": "ok",
        "gfx1250 in the HSA runtime": "no", "gfx1100 in the HSA runtime": "ok",
    }  # fmt: skip
    assert find_runtime([where], hip="libamdhip64.so.6").hip == (6, 4)


def test_the_small_prefix_is_read_too() -> None:
    where = fetch_prefix("small") / "lib/x86_64-linux-gnu"
    assert find_runtime([where]).ccob == 3
    agree(read_file(where / "migraphx/lib/libmigraphx_device.so.2014000"), "raw", 12, MIGRAPHX)


def test_rocsolver_as_a_whole_process_stays_far_below_a_second() -> None:
    path = libraries() / "librocsolver.so.0.7"
    program = (
        "import sys; from relink.gpu.amd import device_code as code, file_coverage as coverage; "
        "print(len(coverage.coverage_of(code.read_file(sys.argv[1])).targets))"
    )
    best = 99.0
    for _ in range(3):
        started = time.perf_counter()
        run = subprocess.run(
            [sys.executable, "-c", program, path], capture_output=True, text=True, check=True
        )
        best = min(best, time.perf_counter() - started)
        assert run.stdout == "14\n"
    assert best < 1
