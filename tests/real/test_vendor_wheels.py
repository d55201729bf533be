"""AMD's own wheels against Debian's own ROCm, with its own loader: the answers are known (and were measured by other means)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.library import relink
from relink.planning.options import Options
from relink.report.model import Report
from relink.runs.questions import verify_wheel
from relink.system.errors import UsageError
from tests.real.conftest import fetch_wheel
from tests.support.rocm_sdk import copy_c_library, install, make_venv

pytestmark = pytest.mark.real


def own_loader(prefix: Path) -> Path:
    return prefix / "lib" / "x86_64-linux-gnu" / "ld-linux-x86-64.so.2"


def run(wheel: Path, prefix: Path, output: Path, *ignore: str, host: bool = False) -> Report:
    interpreter = None if host else str(own_loader(prefix))
    chosen = Options(
        prefixes=(str(prefix),), interpreter=interpreter, output_directory=output, ignore=tuple(ignore)
    )
    return relink(wheel, chosen)


def errors(report: Report) -> dict[str, str]:
    return {found.subject: found.message for found in report.findings if found.level == "error"}


def test_migraphx_main_job(migraphx_wheel: Path, small_prefix: Path, tmp_path: Path) -> None:
    report = run(migraphx_wheel, small_prefix, tmp_path / "out", "RLK130")
    assert errors(report) == {}
    assert report.output is not None
    output = Path(report.output.path)
    assert output.name == "onnxruntime_migraphx-1.27.1+rocm7.2.4-cp312-cp312-linux_x86_64.whl"

    # The loader itself, without its cache: everything inside the prefix, nothing from the host.
    subprocess.run(
        [sys.executable, "-m", "wheel", "unpack", "-d", str(tmp_path / "un"), str(output)], check=True
    )
    provider = next((tmp_path / "un").rglob("libonnxruntime_providers_migraphx.so"))
    listing = subprocess.run(
        [own_loader(small_prefix), "--inhibit-cache", "--list", provider],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = [
        line.split(" => ")[-1].split(" (")[0].strip() for line in listing.splitlines() if "vdso" not in line
    ]
    assert len(paths) + 1 == 29
    assert all(path.startswith(str(small_prefix)) for path in paths), paths
    assert "not found" not in listing

    # No search path names the vendor's directories, is empty, or relative.
    for found in (tmp_path / "un").rglob("*.so*"):
        image = read_image(found.read_bytes(), found.name)
        for entry in (image.search_path or "$ORIGIN").split(":"):
            assert entry.startswith(("/", "$ORIGIN"))
            assert "/opt/rocm" not in entry

    # pip takes it, and a second run names the vendor's wheel.
    site = tmp_path / "site"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(site),
    ]
    subprocess.run([*pip, "--python-version", "3.12", "--only-binary=:all:", str(output)], check=True)
    assert (site / "onnxruntime" / "capi" / provider.name).read_bytes() == provider.read_bytes()
    with pytest.raises(UsageError, match=re.escape(migraphx_wheel.name)):
        run(output, small_prefix, tmp_path / "again", "RLK130")

    # Untouched members keep their compressed bytes.
    with zipfile.ZipFile(migraphx_wheel) as before, zipfile.ZipFile(output) as after:
        changed = {file.path for file in report.files if file.changed}
        for info in before.infolist():
            if ".dist-info/" not in info.filename and info.filename not in changed:
                twin = after.getinfo(info.filename)
                assert (twin.CRC, twin.compress_size, twin.external_attr) == (
                    info.CRC,
                    info.compress_size,
                    info.external_attr,
                )


def test_migraphx_on_an_older_host_names_libraries_and_versions(
    migraphx_wheel: Path, small_prefix: Path, tmp_path: Path
) -> None:
    import platform  # noqa: PLC0415

    major, minor = (int(part) for part in platform.libc_ver()[1].split(".")[:2])
    if (major, minor) >= (2, 43):
        pytest.skip(f"this host's glibc {major}.{minor} is as new as the prefix's")
    report = run(migraphx_wheel, small_prefix, tmp_path, host=True)
    assert report.output is None
    assert list(tmp_path.iterdir()) == []
    wrong = {subject: message for subject, message in errors(report).items() if "GLIBC_" in message}
    assert any("libamdhip64.so.7" in subject for subject in wrong)
    assert all("of libc.so.6" in message or "of libm.so.6" in message for message in wrong.values())


def test_bitsandbytes_variants(bitsandbytes_wheel: Path, full_prefix: Path, tmp_path: Path) -> None:
    report = run(bitsandbytes_wheel, full_prefix, tmp_path)
    assert errors(report) == {}
    served = {file.path.rsplit("_", 1)[1] for file in report.files if file.served}
    assert {"rocm70.so", "rocm71.so", "rocm72.so"} <= served
    assert not served & {"rocm64.so", "cuda118.so", "cuda132.so", "xpu2026.so"}
    assert report.output is not None
    with zipfile.ZipFile(bitsandbytes_wheel) as before, zipfile.ZipFile(report.output.path) as after:
        for file in report.files:
            if not file.served:
                assert after.getinfo(file.path).CRC == before.getinfo(file.path).CRC


def test_jax_pjrt_names_everything_missing_in_one_run(
    jax_pjrt_wheel: Path, full_prefix: Path, tmp_path: Path
) -> None:
    report = run(jax_pjrt_wheel, full_prefix, tmp_path)
    assert report.output is None
    assert set(errors(report)) == {"librocprofiler-sdk.so.1", "librccl.so.1", "libamd_smi.so.26"}
    needed = [
        item for file in report.files for item in file.needed if item.soname.startswith("librocm_sysdeps_")
    ]
    assert {(item.soname, item.soname_after) for item in needed} == {
        ("librocm_sysdeps_drm.so.2", "libdrm.so.2"),
        ("librocm_sysdeps_drm_amdgpu.so.1", "libdrm_amdgpu.so.1"),
        ("librocm_sysdeps_numa.so.1", "libnuma.so.1"),
    }


_TRACE = """
import sys
from jax._src import hardware_utils
hardware_utils.num_available_amd_gpus = lambda stop_at=None: 1  # else the package does not load its library
import jax
jax.default_backend()
jax.profiler.start_trace(sys.argv[1])
jax.profiler.stop_trace()
print("lives")
"""


def test_an_error_of_a_stub_does_not_end_jax(jax_pjrt_wheel: Path, full_prefix: Path, tmp_path: Path) -> None:
    """XLA's profiler asks the stub of rocprofiler-sdk for the text of its error, and logs that text."""
    base = os.environ.get("RELINK_REAL_PYTHON312") or shutil.which("python3.12")
    if base is None or subprocess.run([base, "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no Python 3.12 is here (RELINK_REAL_PYTHON312 names one)")
    loader = copy_c_library(own_loader(full_prefix), tmp_path / "glibc")
    python = make_venv(tmp_path / "venv", base, loader)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "-q",
        "--python",
        str(python),
        "install",
        "jax==0.12.0",
        "jaxlib==0.12.0",
    ]
    fetched = subprocess.run(pip, capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        pytest.skip(f"JAX cannot be installed here: {fetched.stderr.strip().splitlines()[-1]}")
    options = Options(
        prefixes=(str(full_prefix),),
        interpreter=str(own_loader(full_prefix)),
        output_directory=tmp_path / "out",
        stub=("auto",),
    )
    report = relink(jax_pjrt_wheel, options)
    assert errors(report) == {}
    install(python, [Path(report.path or "")], "--no-deps")
    words = [str(python), "-c", _TRACE, str(tmp_path / "trace")]
    # The host's C++ library, which Python's own packages load first, may be older than the prefix's.
    environment = {"JAX_PLATFORMS": "cpu", "LD_LIBRARY_PATH": str(own_loader(full_prefix).parent)}
    traced = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (traced.returncode, traced.stdout) == (0, "lives\n"), traced.stderr
    assert (
        "rocprofiler_start_context failed: relink wrote this librocprofiler-sdk.so.1 as a stub"
        in traced.stderr
    )


def test_two_libraries_that_a_file_has_forgotten(small_prefix: Path, tmp_path: Path) -> None:
    """The vendor's file needs neither library; the real loader binds all of the relinked one."""
    wheel = fetch_wheel("mlrs-rocm==0.1.0", "mlrs_rocm-0.1.0-*.whl")
    report = run(wheel, small_prefix, tmp_path)
    assert errors(report) == {}
    assert report.verified == 1
    (file,) = report.files
    added = {entry.soname: entry.evidence for entry in file.needed if entry.action == "add"}
    assert list(added) == ["libamdhip64.so.7", "libhiprtc.so.7"]
    assert added["libamdhip64.so.7"][0].startswith(
        "it exports 20 imports that no NEEDED brings (libhiprtc.so.7 the"
    )
    verified = verify_wheel(Path(report.path or ""), Options(interpreter=report.target.interpreter))
    of_python = ("undefined symbol: Py", "undefined symbol: _Py")
    assert [line for line in verified.maps[file.path].problems if not line.startswith(of_python)] == []


@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_onnxruntime_rocm_with_a_proved_substitution_and_a_proved_drop(
    python: str, full_prefix: Path, tmp_path: Path
) -> None:
    tag = f"cp{python.replace('.', '')}"
    wheel = fetch_wheel(
        "onnxruntime-rocm==1.22.2.post3", f"onnxruntime_rocm-1.22.2.post3-{tag}-*.whl", python
    )
    report = run(wheel, full_prefix, tmp_path)
    assert errors(report) == {}
    assert report.output is not None
    member = "onnxruntime/capi/libonnxruntime_providers_rocm.so"
    (file,) = [file for file in report.files if file.path == member]
    changed = {entry.soname: entry for entry in file.needed if entry.action in ("substitute", "drop")}
    smi = changed["librocm_smi64.so.1"]
    assert (smi.action, smi.soname_after) == ("substitute", "librocm_smi64.so.7")
    assert smi.evidence[0].startswith("4 of 4 imported symbols are exported by")
    assert changed["libroctracer64.so.4"].action == "drop"
    added = {entry.soname for entry in file.needed if entry.action == "add"}
    assert {
        "librocsolver.so.0",
        "librocblas.so.5",
        "libhiprtc.so.7",
        "libamd_comgr.so.3",
        "libhsa-runtime64.so.1",
    } <= added
    (explained,) = [found for found in report.findings if found.code == "RLK303" and member in found.subject]
    assert "Provider_GetHost" in explained.message

    # The loader's own word: all inside the prefix, and one symbol open.
    verified = verify_wheel(Path(report.output.path), Options(interpreter=report.target.interpreter))
    found = verified.maps[member]
    assert found.missing == ()
    outside = [path for _, path in found.objects if not path.startswith((str(full_prefix), "$WHEEL"))]
    assert outside == []
    assert [line.split("\t")[0] for line in found.problems] == ["undefined symbol: Provider_GetHost"]
    assert not [item for item in verified.findings if item.level == "error"]

    with pytest.raises(UsageError, match="was relinked from"):
        run(Path(report.output.path), full_prefix, tmp_path / "again")


def test_migraphx_brings_a_second_hip_runtime_by_dlopen(
    migraphx_wheel: Path, small_prefix: Path, tmp_path: Path
) -> None:
    report = run(migraphx_wheel, small_prefix, tmp_path)
    (found,) = [item for item in report.findings if item.code == "RLK130" and item.subject == "libamdhip64"]
    assert (found.level, report.output) == ("error", None)
    assert "libamdhip64.so.6" in found.message
    assert "libamdhip64.so.7" in found.message
    assert "libmigraphx.so.2014000 → libmigraphx_gpu.so.2014000" in found.message
