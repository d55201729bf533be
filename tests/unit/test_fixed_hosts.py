"""The reports of people who may not change the ROCm of their host: one command each, and the real loader takes the result."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import venv
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from relink.library import apply, plan
from relink.loader.target import find_target
from relink.planning.model import Plan
from relink.planning.options import Options
from tests.real.conftest import small_prefix
from tests.support import fixed_hosts, torch_wheels
from tests.support.built import ROOT
from tests.support.cc import cc, shared
from tests.support.command import Run
from tests.support.fixed_hosts import HIP, RCCL, SMI
from tests.support.outside import OFFLINE
from tests.support.transcripts import Result, commands, rewritten
from tests.support.transcripts import run as run_commands
from tests.support.wheels import make_wheel
from tests.support.works import PYTHON_TAG, TAG, copy_glibc, install, installed
from tests.unit.test_readme import BY_STAND_INS

SLOW = pytest.mark.slow(reason="several runs; the other hosts are tried always")

__all__ = ["small_prefix"]

Answer = tuple[list[int], list[str], str]


def answer(python: Path | str, package: str, *calls: str, site: Path | None = None) -> Answer:
    """Import a package in a process of its own, in the host's shell: what its functions return, what is mapped, the error."""
    code = (
        f"import sys, json; sys.path[:0] = {[str(site)] if site else []}; import {package}; "
        f"print(json.dumps([[{package}.lib[n]() for n in {list(calls)}], "
        "sorted({l.split()[-1] for l in open('/proc/self/maps') if '.so' in l})]))"
    )
    run = subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, env={**os.environ}, check=False
    )
    if run.returncode:
        return [], [], run.stderr.splitlines()[-1]
    values, mapped = json.loads(run.stdout.splitlines()[-1])
    return values, mapped, ""


def unpacked(out: Path) -> Path:
    (wheel,) = out.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out / "site")
    return out / "site"


def printed(out: str) -> list[list[str]]:
    """The words of the commands below the verdict, without ``relink``."""
    below = out.rpartition("\nNext:")[2]
    return [shlex.split(line)[1:] for line in below.splitlines() if line.startswith("    relink ")]


def test_jax_on_lumi(run: Run, tmp_path: Path) -> None:
    """laifs-container-recipes#31: a link, a copied libdw and a library by gcc, all by hand: here it is one printed command."""
    prefix = fixed_hosts.rocm(tmp_path / "opt", "7.0.3")
    cray = tmp_path / "opt/cray/pe/cdst-support/2.14.6"
    shared(cray / "lib/libdw.so.1", "int dwfl_begin(void){return 5;}")
    wheel = fixed_hosts.jax_wheel(tmp_path)
    code, out, _ = run(wheel, "--prefix", prefix, "--prefix", cray, "-o", tmp_path / "out")
    assert code == 1
    assert run(*printed(out)[0])[0] == 0
    values, mapped, _ = answer(
        sys.executable, "jaxdemo", "run", "version", "trace", "window", site=unpacked(tmp_path / "out")
    )
    assert values == [47, 22600, 5, 2]  # ncclSystemError
    assert {f"{prefix}/lib/{SMI}.7", f"{prefix}/lib/{RCCL}", f"{cray}/lib/libdw.so.1"} <= {*mapped}


@SLOW
def test_jax_on_adastra(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm/jax#268: librocm_smi64.so.6, and the module's ROCm has .so.7; no root."""
    prefix = fixed_hosts.rocm(tmp_path / "opt", "7.0.3")
    for name, value in fixed_hosts.module_variables(prefix).items():
        monkeypatch.setenv(name, value)
    wheel = fixed_hosts.jax_wheel(tmp_path, smi="6", window=False, dw=False)
    code, out, _ = run(wheel, "-o", tmp_path / "out")
    assert code == 1
    assert f"{prefix} ($PREFIX, no --prefix: found by ROCM_PATH, module rocm/7.0.3)" in out
    assert printed(out)[0][-2:] == ["--substitute", f"{SMI}.6={SMI}.7"]
    assert run(*printed(out)[0])[0] == 0
    assert answer(sys.executable, "jaxdemo", "run", site=unpacked(tmp_path / "out"))[0] == [47]


@pytest.mark.slow(reason="installations, and pip fetches; the other hosts are tried always")
def test_vllm_on_frontier(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vllm#8042: torch has an older HIP inside of it; what was told was to copy the host's into torch/lib."""
    prefix = fixed_hosts.rocm(tmp_path / "opt", "6.2.0")
    shared(prefix / f"lib/{HIP}.6", "int hipMalloc(void){return 40;} int hipGetFuncBySymbol(void){return 2;}")
    torch = fixed_hosts.torch_wheel(tmp_path)
    python = installed(torch, tmp_path / "venv")
    install(python, fixed_hosts.vllm_wheel(tmp_path, prefix))
    for name, value in fixed_hosts.module_variables(prefix).items():
        monkeypatch.setenv(name, value)
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, str(torch.parent))
    caches = {"XDG_CACHE_HOME": f"{tmp_path}/cache", "UV_CACHE_DIR": f"{tmp_path}/uv"}
    for name, value in (OFFLINE | caches).items():
        monkeypatch.setenv(name, value)
    assert "undefined symbol: hipGetFuncBySymbol" in answer(python, "vllm", "run")[2]
    code, out, _ = run("check", tmp_path / "venv")
    assert code == 1
    first, again = printed(out)
    assert first == ["repair", "torch", "--prefix", str(prefix), "--python", f"{python}3"]
    assert again == ["repair", "vllm", "--python", str(python)]
    assert run(*first)[0] == 0
    values, mapped, _ = answer(python, "vllm", "run")
    assert values == [42]
    assert [path for path in mapped if HIP in path] == [f"{prefix}/lib/{HIP}.6"]
    assert run("check", tmp_path / "venv")[0] == 0


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("kind", ["runpath", "rpath"])
@pytest.mark.parametrize("by", ["options", "modules"])
def test_a_rocm_in_several_prefixes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, kind: str
) -> None:
    """Modules of EasyBuild: ROCM_PATH names one prefix, LD_LIBRARY_PATH has the other two; none is needed at run time."""
    prefixes = fixed_hosts.split_rocm(tmp_path / "opt")
    wheel = fixed_hosts.learning_wheel(tmp_path)
    words: list[object] = [wheel, "-o", tmp_path / "out", "--search-path", kind]
    if by == "options":
        words += [word for prefix in prefixes for word in ("--prefix", prefix)]
    else:
        monkeypatch.setenv("LOADEDMODULES", "GCC/13.3.0:ROCm/7.0.3:RCCL/2.27:MIOpen/3.5")
        monkeypatch.setenv("ROCM_PATH", str(prefixes[0]))
        directories = [prefixes[2] / "lib", prefixes[1] / "lib64", prefixes[0] / "lib"]
        monkeypatch.setenv("LD_LIBRARY_PATH", ":".join(map(str, directories)))
    code, out, _ = run(*words)
    assert code == 0, out
    for prefix in prefixes:
        assert f"{prefix}" in out
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    values, mapped, error = answer(sys.executable, "learn", "run", site=unpacked(tmp_path / "out"))
    assert (values, error) == ([40 + 22700 + 40], "")
    own = {path.removeprefix(f"{tmp_path}/opt/") for path in mapped if path.startswith(f"{tmp_path}/opt")}
    assert own == {f"ROCm-7.0.3/lib/{HIP}.7", f"RCCL-2.27/lib64/{RCCL}", "MIOpen-3.5/lib/libMIOpen.so.1"}


HSA = "libhsa-runtime64.so.1"
TORCH = (
    "import torch; print(torch._call_rocm()); "
    "print(*{l.split()[-1] for l in open('/proc/self/maps') if 'hsa-' in l or 'amdhip' in l})"
)


@SLOW
def test_a_torch_within_wsl(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AMD's instructions: rm torch/lib/libhsa-runtime64.so*; cp that of /opt/rocm. All else of the wheel stays as it is."""
    prefix = fixed_hosts.wsl(tmp_path / "wsl")
    (wheel,) = torch_wheels.build(tmp_path / "fetched", "bundling")
    words = (wheel, "--prefix", prefix, "-o", tmp_path / "out")
    assert "RLK546" not in run(*words, "--dry-run")[1]
    monkeypatch.setattr("relink.gpu.amd.device.is_wsl", lambda root: root == "/")
    told = run(*words, "--dry-run")[1]
    assert "warning RLK546" in told
    assert f"    → Pass --use-host {HSA}\n" in told
    assert run(*words, "--use-host", HSA)[0] == 0
    (output,) = (tmp_path / "out").iterdir()
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(output) as after:
        gone = {*before.namelist()} - {*after.namelist()}
        same = {*before.namelist()} & {*after.namelist()}
        changed = {name for name in same if before.read(name) != after.read(name)}
        (record,) = (name for name in after.namelist() if name.endswith("/RECORD"))
        assert b"libhsa" not in after.read(record)
    assert {name for name in gone if ".dist-info/" not in name} == {"torch/lib/libhsa-runtime64.so"}
    assert changed == {"torch/lib/libamdhip64.so"}
    site = unpacked(tmp_path / "out")
    done = subprocess.run([sys.executable, "-c", TORCH], cwd=site, capture_output=True, text=True, check=True)
    value, *mapped = done.stdout.split()
    assert int(value) > 1000  # what the host's hsa_init gives is in it
    assert {*mapped} == {f"{prefix}/lib/{HSA}", f"{site}/torch/lib/libamdhip64.so"}
    assert run("verify", output)[0] == 0
    plan(wheel, Options(prefixes=(str(prefix),), use_host=(HSA,))).save(tmp_path / "plan.json")
    again = apply(Plan.load(tmp_path / "plan.json"), output_directory=tmp_path / "again")
    assert Path(again.path or "").read_bytes() == output.read_bytes()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("libamdhip64.so.7", "only those of the machine's driver or network are taken from it"),
        ("librccl-net.so", "/opt/rocm has no such library"),
        (HSA, "brings no library of that soname"),
    ],
)
def test_what_is_not_taken_of_the_host(run: Run, tmp_path: Path, name: str, why: str) -> None:
    prefix = fixed_hosts.wsl(tmp_path / "wsl")
    code, _, err = run(fixed_hosts.marking_wheel(tmp_path), "--prefix", prefix, "--use-host", name)
    assert code == 2
    assert f"--use-host {name}: " in err
    assert why in err.replace("\n", " ")
    tree = (tmp_path / "wsl", "--prefix", prefix, "-o", tmp_path / "copy", "--use-host", HSA)
    assert "--use-host is for a wheel" in run(*tree)[2]


@SLOW
def test_marks_within_wsl(run: Run, tmp_path: Path) -> None:
    """legacy-rocm-build#6053: AMD's packages for WSL lack libroctx64.so.4, and nothing needs it but a profile."""
    prefix = fixed_hosts.wsl(tmp_path / "wsl")
    code, out, _ = run(fixed_hosts.marking_wheel(tmp_path), "--prefix", prefix, "-o", tmp_path / "out")
    assert code == 1
    assert printed(out)[-1][-2:] == ["--stub", "libroctx64.so.4"]
    assert run(*printed(out)[-1])[0] == 0
    assert answer(sys.executable, "marks", "push", site=unpacked(tmp_path / "out"))[0] == [-1]


@pytest.mark.real
def test_an_executable_stack_with_glibc_2_44(run: Run, tmp_path: Path, small_prefix: Path) -> None:
    """The loader of Debian sid dlopens no such library, and the one that the printed command writes."""
    loader = small_prefix / "lib64/ld-linux-x86-64.so.2"
    lib = shared(tmp_path / "built/lib.so", "int f(void){return 42;}", flags=["-Wl,-z,execstack"])
    files: dict[str, bytes | Path] = {"demo/__init__.py": fixed_hosts.LOAD, "demo/lib.so": lib}
    wheel = make_wheel(tmp_path / "fetched", files, tag=TAG)
    source = "#include <dlfcn.h>\n#include <stdio.h>\nint main(int n, char **a){void *h = dlopen(a[1], 2);"
    program = cc(source + 'puts(h ? "opened" : dlerror()); return !h;}', tmp_path / "program")

    def opened(member: Path) -> str:
        libraries = small_prefix / "lib/x86_64-linux-gnu"
        words = [str(loader), "--library-path", str(libraries), str(program), str(member)]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()

    assert "executable stack" in opened(lib)
    code, out, _ = run(wheel, "--prefix", small_prefix, "--interpreter", loader, "-o", tmp_path / "out")
    assert code == 1
    assert run(*printed(out)[-1])[0] == 0
    assert opened(unpacked(tmp_path / "out") / "demo/lib.so") == "opened"


MODULE = """() {
    prefix=%s/rocm-${2#rocm/}
    export LOADEDMODULES="PrgEnv-gnu/8.6.0:$2" ROCM_PATH="$prefix" CRAY_ROCM_PREFIX="$prefix" LD_LIBRARY_PATH="$prefix/lib"
}"""


def lay_out(root: Path) -> dict[str, str]:
    """Make what the pages are about below `root`, with ``try`` for the current directory; returns the environment."""
    opt, here = root / "opt", root / "try"
    for release in ("7.0.3", "6.4.1"):
        fixed_hosts.rocm(opt, release)
    shared(opt / f"rocm-6.4.1/lib/{RCCL}", "int ncclGetVersion(void){return 22203;}")
    here.mkdir()
    for wheel in (fixed_hosts.jax_wheel(root, dw=False), fixed_hosts.marking_wheel(root)):
        wheel.rename(here / wheel.name)
    fixed_hosts.wsl(root)
    venv.create(here / "envs/jax", symlinks=True)
    (here / "envs/jax/conda-meta").mkdir()
    (root / "bin").mkdir()
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from relink.cli import main; main()"
    program = root / "bin/relink"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    program.chmod(0o755)
    target = find_target()
    image = here / "images/compute"
    loader = copy_glibc(image / target.libc_directory.lstrip("/"), "libc.so.6")
    named = image / target.interpreter.lstrip("/")
    if not named.exists():
        named.parent.mkdir(parents=True, exist_ok=True)
        named.symlink_to("/" + str(loader.relative_to(image)))
    fixed_hosts.rocm(image / str(opt)[1:], "7.0.3")
    fixed_hosts.core(image / str(opt)[1:])
    (here / "images/dev-ubuntu").symlink_to("compute")
    fixed_hosts.llama(here, fixed_hosts.core(opt))
    fixed_hosts.ollama(here)
    given = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    cached = {"XDG_CACHE_HOME": f"{root}/cache", "UV_CACHE_DIR": f"{root}/uv", "LC_ALL": "C.UTF-8"}
    paths = {"PATH": f"{root}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return given | OFFLINE | cached | paths | {"BASH_FUNC_module%%": MODULE % opt}


def as_printed(page: Path, root: Path) -> str:
    """The page with what its commands print below `root`; stops behind one that fails."""
    text = page.read_text(encoding="utf-8")
    environment = lay_out(root)
    if "torch-" in text:
        torch_wheels.build(root / "try", "bundling")
    asked = commands(text)
    here = [
        replace(one, text=one.text.replace("/opt/", f"{root}/opt/").replace("cp312", PYTHON_TAG))
        for one in asked
    ]
    results = run_commands(here, root / "try", environment)
    assert [one.code for one in results] == [0] * len(here), results[-1].output

    def of_any_machine(output: str) -> str:
        output = output.replace(f"{root}/opt", "/opt").replace(PYTHON_TAG, "cp312")
        return re.sub(r"glibc \d\.\d+", "glibc 2.38", re.sub(r"CPython 3\.\d+", "CPython 3.12", output))

    return rewritten(text, asked, [Result(one.code, of_any_machine(one.output)) for one in results])


@pytest.mark.slow(reason="a process for each command of three pages")
@pytest.mark.parametrize("name", BY_STAND_INS)
def test_a_page_has_what_its_commands_print(tmp_path: Path, name: str) -> None:
    """RELINK_WRITE_PAGES=1 writes what they print into the page."""
    if subprocess.run(["unshare", "--map-root-user", "true"], capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are not allowed here, and --sysroot is entered in one")
    page = ROOT / "docs" / name
    text = as_printed(page, tmp_path)
    if os.environ.get("RELINK_WRITE_PAGES"):
        page.write_text(text, encoding="utf-8")
    assert text == page.read_text(encoding="utf-8")
