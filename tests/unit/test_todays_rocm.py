"""The stand-ins for today's ROCm and torch (tests/support), held against the real loader and Python."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from relink import Options, relink
from relink.gpu.amd.side_files import find_side_files
from relink.gpu.amd.target_id import parse_target_id
from relink.report.summary import verdict
from relink.system.findings.model import Finding
from relink.vendors.rocm.facts import who_has
from tests.support import therock, torch_wheels
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.outside import OFFLINE
from tests.support.works import TAG
from tests.unit.gpu.amd.build import kpack_archive

SLOW = pytest.mark.slow(reason="packages of ROCm are built and unpacked; others of these are always")

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
CALL = "import sys; sys.path.insert(0, sys.argv[1]); import torch; print(torch._call_rocm())"


def unpack(wheels: Iterable[Path], site: Path) -> Path:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    return site


def imported(site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CALL, str(site)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return therock.pip(tmp_path_factory.mktemp("pip"), "10.0.0")


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("kind", torch_wheels.KINDS)
def test_each_torch_is_imported_with_the_rocm_it_is_made_for(
    kind: str, rocm: list[Path], tmp_path: Path
) -> None:
    wheels = torch_wheels.build(tmp_path / "torch", kind)
    site = unpack([*wheels, *(rocm if kind != "bundling" else ())], tmp_path / "site")
    run = imported(site)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 20  # each library of ROCm adds one


@pytest.mark.parametrize("kind", ["split", "whole"])
def test_a_torch_for_pips_rocm_is_not_imported_without_it(kind: str, tmp_path: Path) -> None:
    run = imported(unpack(torch_wheels.build(tmp_path / "torch", kind), tmp_path / "site"))
    assert run.returncode != 0
    assert "rocm_sdk" in run.stderr


def test_a_native_installation_has_links_and_no_info(tmp_path: Path) -> None:
    root = therock.native(tmp_path, "7.14.0", "10.1.0")
    assert sorted(path.name for path in root.iterdir() if not path.is_symlink()) == ["core-10.1", "core-7.14"]
    assert (root / "lib").resolve() == (root / "core-10.1" / "lib").resolve()
    assert not (root / ".info").exists()
    assert (root / "core-7.14/lib/libamdhip64.so.7").readlink() == Path("libamdhip64.so.7.14.60850")
    load = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1], mode=2).hipblasSgemm())"  # RTLD_NOW
    library = root / "lib" / "libhipblas.so.3"
    run = subprocess.run(
        [sys.executable, "-c", load, str(library)], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) > 5


def test_a_split_torch_needs_a_hip_that_reads_archives(tmp_path: Path) -> None:
    (torch, *_) = torch_wheels.build(tmp_path / "torch", "split")
    therock.tarball(tmp_path / "old", "7.2.4")
    therock.tarball(tmp_path / "new", "10.0.0")

    def refused(prefix: str, *, allow: bool = False) -> list[str]:
        options = Options(prefixes=(str(tmp_path / prefix),), dry_run=True, allow_isa_gap=allow)
        found = [found for found in relink(torch, options).findings if found.code == "RLK405"]
        assert all(one.level == "error" for one in found)
        return [one.message for one in found]

    (message,) = refused("old")
    assert refused("old", allow=True) == [message]  # the option is about GPUs, and not one would work
    assert "libtorch_hip.so lie in kpack archives" in message
    assert "it loads and has no kernels" in message
    assert refused("new") == []


@SLOW
def test_device_wheels_of_the_same_run_have_the_code_of_a_split_torch(tmp_path: Path) -> None:
    torch, *devices = torch_wheels.build(tmp_path / "torch", "split")
    options = Options(prefixes=(str(therock.tarball(tmp_path / "rocm", "10.0.0")),), dry_run=True)
    codes = ("RLK401", "RLK404", "RLK427")

    def told(*beside: Path, gpu: str = "gfx1100") -> list[str]:
        findings = relink(torch, replace(options, gpus=(gpu,)), beside=beside).findings
        return [f"{found.level} {found.code}" for found in findings if found.code in codes]

    assert told() == ["warning RLK404"]
    assert told(*devices) == []
    assert told(*devices, gpu="gfx942") == []
    (device,) = (wheel for wheel in devices if "gfx942" in wheel.name)
    assert told(device) == ["error RLK427"]
    assert told(device, gpu="gfx942") == []
    assert told(torch) == ["warning RLK404"]  # a wheel without archives says nothing


@SLOW
def test_an_archive_that_hides_another_is_named_and_left_out(tmp_path: Path) -> None:
    """As torch 2.12 for ROCm 7.14 has it on gfx90a (TheRock#7081, #7620): an archive for xnack- without torch's kernels."""
    torch, *devices = torch_wheels.build(tmp_path / "torch", "split")
    (whole,) = (wheel for wheel in devices if "gfx942" in wheel.name)
    with zipfile.ZipFile(whole) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if "/.kpack/" in name}
    name = "torch/.kpack/torch_gfx942:xnack-.kpack"
    overlay = {name: kpack_archive({"lib/librocshmem.so#0": ["gfx942:xnack-"]})}
    device = therock.pack(tmp_path, "amd-torch-device-gfx942", "2.13.0", held | overlay)

    def told(release: str, beside: Path) -> list[Finding]:
        if not (tmp_path / release).exists():
            therock.tarball(tmp_path / release, release)
        options = Options(prefixes=(str(tmp_path / release),), dry_run=True, gpus=("gfx942",))
        codes = ("RLK401", "RLK402", "RLK403", "RLK427", "RLK428")
        return [one for one in relink(torch, options, beside=(beside,)).findings if one.code in codes]

    (found,) = told("7.14.0", device)
    assert (found.code, found.level) == ("RLK428", "error")
    assert found.subject.endswith(name)
    assert "torch_gfx942:xnack-.kpack lacks 1 code object that torch_gfx942.kpack has" in found.message
    assert "--leave-out '*/torch_gfx942:xnack-.kpack'" in found.remedy
    assert told("10.1.0", device) == []
    options = Options(prefixes=(str(tmp_path / "7.14.0"),), dry_run=True, gpus=("gfx942",))
    first = verdict(relink(torch, options, beside=(device,))).text
    assert "torch_gfx942:xnack-.kpack): --leave-out '*/torch_gfx942:xnack-.kpack'" in first

    # In a wheel that has library and archives, the way out was tried.
    with zipfile.ZipFile(torch) as archive:
        whole_files = {one: archive.read(one) for one in archive.namelist() if ".dist-info/" not in one}
    both = therock.pack(tmp_path, "torch", "2.13.0", whole_files | held | overlay, tag=TAG)
    words = ("--leave-out", "*/torch_gfx942:xnack-.kpack")
    report = relink(both, Options(prefixes=(str(tmp_path / "7.14.0"),), dry_run=True, gpus=("gfx942",)))
    assert report.way_out == words
    assert relink(both, replace(options, leave_out=words[1:])).plan.removed[-1:] == (name,)

    options = Options(leave_out=("*:xnack-.kpack",), output_directory=tmp_path / "out")
    report = relink(device, replace(options, prefixes=(str(tmp_path / "7.14.0"),)))
    assert (report.ok, report.plan.removed) == (True, (name,))
    assert report.output is not None
    with zipfile.ZipFile(report.output.path) as archive:
        assert name not in archive.namelist()
        (record,) = (archive.read(one).decode() for one in archive.namelist() if one.endswith("/RECORD"))
    assert "torch_gfx942.kpack," in record
    assert "xnack-" not in record
    assert told("7.14.0", Path(report.output.path)) == []


@pytest.mark.few(1, reason="a second for each other requirement")
@pytest.mark.parametrize(
    ("requirement", "gpu", "told"),
    [
        ("rocm[libraries,device-all]==10.0.*", "gfx942", "one GPU needs one of these packages"),
        ("rocm[libraries,device-gfx942]==10.0.*", "gfx942", ""),
        ("rocm[libraries,device-gfx9-4]==10.0.*", "MI300X", ""),
        ("rocm[libraries,device-gfx942]==10.0.*", "gfx1100", "the code for gfx942 alone, none for gfx1100"),
        ("rocm-sdk-device-gfx1100==10.0.*", "gfx942", "the code for gfx1100 alone, none for gfx942"),
        ('rocm-sdk-device-gfx1100==10.0.*; extra == "device-gfx1100"', "gfx942", ""),
    ],
    ids=["all", "own", "family", "other", "package", "extra"],
)
def test_requirements_that_bring_the_code_of_gpus(
    rocm: list[Path], tmp_path: Path, requirement: str, gpu: str, told: str
) -> None:
    site = unpack(rocm, tmp_path / f"lib/python3.{sys.version_info[1]}/site-packages")
    (torch,) = torch_wheels.build(tmp_path / "torch", "whole")
    with zipfile.ZipFile(torch) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    wheel = therock.pack(tmp_path, "torch", "2.13.0", held, requires=[requirement], tag=TAG)
    options = Options(prefixes=(str(site),), gpus=(gpu,), dry_run=True, python=sys.executable)
    found = [one for one in relink(wheel, options).findings if one.code == "RLK547"]
    assert [(one.level, told in one.message) for one in found] == ([("warning", True)] if told else [])
    if "device-all" in requirement:
        assert "about 10 GB to fetch" in found[0].message
        assert found[0].remedy.startswith("Install rocm[device-gfx942,libraries] instead")


@SLOW
@pytest.mark.parametrize(
    ("requires", "gpus", "after"),
    [
        (["rocm[libraries,device-all]==10.0.*"], ["gfx942"], ["rocm[device-gfx942,libraries]==10.0.*"]),
        (
            ["rocm-sdk-device-gfx942==10.0.*", "rocm-sdk-device-gfx11==10.0.*", "rocm-bootstrap"],
            ["gfx1100"],
            ["rocm-bootstrap", "rocm-sdk-device-gfx11==10.0.*"],
        ),
        (["rocm[device-gfx11]==10.0.*"], ["gfx942"], None),
        (["rocm[device-all]>=10"], ["RX 7900 XTX", "MI250"], ["rocm[device-gfx1100,device-gfx90a]>=10"]),
        (["rocm[device-gfx9-4,device-gfx11]==10.0.*"], ["MI300X"], ["rocm[device-gfx9-4]==10.0.*"]),
        (["rocm[device-all]==10.0.*"], ["gfx11-generic"], None),
        (['rocm[device-all]==10.0.*; extra == "all"'], ["gfx942"], None),
    ],
    ids=["all", "packages", "another", "two GPUs", "families", "generic", "optional"],
)
def test_packages_with_code_for_other_gpus_are_not_required(
    rocm: list[Path], tmp_path: Path, requires: list[str], gpus: list[str], after: list[str] | None
) -> None:
    """The wheel has no code itself: what it requires is all that can be less, whether its ROCm is there or not."""
    site, python = environment(tmp_path)
    unpack(rocm, site)
    wheel = therock.pack(tmp_path, "demo", "1.0", {"demo/__init__.py": b""}, requires=requires, tag=TAG)
    here = Options(prefixes=(str(site),), python=python, output_directory=tmp_path / "here", only_gpus=gpus)
    for options in (
        here,
        replace(here, prefixes=(), python=sys.executable, output_directory=tmp_path / "out"),
    ):
        if after is None:
            if options is here:
                assert "RLK430" in {one.code for one in relink(wheel, options).findings}
            continue
        report = relink(wheel, options)
        told = {one.code: one for one in report.findings}
        assert {one for one in told if told[one].level != "info"} <= {"RLK520"}
        assert "alone: of others no package is required" in told["RLK429"].message
        if "device-all" in requires[0]:
            assert told["RLK547"].message.endswith(
                f"one GPU needs one of these packages: {after[-1]} takes its place"
            )
        with zipfile.ZipFile(report.path or "") as archive:
            (text,) = (archive.read(one).decode() for one in archive.namelist() if one.endswith("METADATA"))
            archive.extractall(site)
        lines = [line.removeprefix("Requires-Dist: ") for line in text.splitlines()]
        assert sorted(set(lines) & {*requires, *after}) == sorted(after)
        assert f"Supported-Platform: {report.plan.only_gpus[0]}" in lines
        command = [sys.executable, "-m", "pip", "--python", python, "check"]
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert checked.stdout == "No broken requirements found.\n"
        shutil.rmtree(next(site.glob("demo-*.dist-info")))


@pytest.mark.slow(reason="an installation; the parametrized test above has the requirement of each")
def test_install_brings_the_package_of_one_gpu(
    rocm: list[Path], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ROCm is there before: the requirement of the wheel brings it, with the code for that GPU."""
    requires = ["rocm[libraries,device-all]==10.0.*"]
    wheel = therock.pack(tmp_path, "demo", "1.0", {"demo/__init__.py": b""}, requires=requires, tag=TAG)
    for path in rocm:
        shutil.copy(path, tmp_path)
    for name, value in (OFFLINE | {"UV_CACHE_DIR": str(tmp_path / "uv"), "UV_NO_INDEX": "1"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    site, python = environment(tmp_path)
    code, _, err = run("install", wheel, "--only-gpu", "gfx942", "--python", python)
    assert (code, err) == (0, "")
    installed = {path.name.partition("-")[0] for path in site.glob("*.dist-info")}
    assert installed == {"demo", "rocm", "rocm_sdk_core", "rocm_sdk_device_gfx942", "rocm_sdk_libraries"}
    command = [sys.executable, "-m", "pip", "--python", python, "check"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_files_of_kernels_that_lie_by_gpu_and_their_compressed_indexes(tmp_path: Path) -> None:
    therock.write_device_files(tmp_path, "10.1.0", "gfx1100")
    states = {one.kind: one.state(parse_target_id("gfx1100")) for one in find_side_files(tmp_path)}
    assert states["rocblas"] == "fallback"
    (files,) = [one for one in find_side_files(tmp_path) if one.kind == "hipblaslt"]
    assert [(str(target), "index" in kinds) for target, kinds in files.targets.items()] == [("gfx1100", True)]


def test_each_library_of_the_newest_release_belongs_to_a_component() -> None:
    parts = [part.soname for part in therock.parts("10.1.0") if "sysdeps" not in part.stem]
    parts += ["librocdecode.so.1", "librocjpeg.so.1", "librocdxg.so.1"]
    assert [soname for soname in parts if who_has(soname) is None] == []
    smi = who_has("libamd_smi.so.27")
    assert smi is not None
    assert "libamd_smi.so.27" in smi.of(10)  # the sonames of ROCm 10 are those of HIP's soname, .so.7
    assert smi.of(6) == ()


def extension(site: Path, prefix: Path, tmp_path: Path) -> Path:
    """Make the wheel of an extension of the torch that lies in a site-packages."""
    module = shared(
        tmp_path / "build/extra.so",
        "extern int torch_hip(void), hipMalloc(void), rocprofiler_get_version(void);"
        "int extra(void) { return torch_hip() + hipMalloc() + rocprofiler_get_version(); }",
        needed=[
            site / "torch/lib/libtorch_hip.so",
            *(prefix / "lib" / name for name in ("libamdhip64.so.7", "librocprofiler-sdk.so.1")),
        ],
        flags=["-Wl,-rpath,/home/builder/rocm/lib"],
    )
    files = {"extra/__init__.py": b"import torch\n", "extra/extra.so": module.read_bytes()}
    return therock.pack(tmp_path, "torch-extra", "1.0", files, requires=["torch"])


def environment(tmp_path: Path) -> tuple[Path, str]:
    venv.create(tmp_path / "venv", with_pip=False)
    (site,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    return site, str(tmp_path / "venv/bin/python")


@SLOW
@pytest.mark.parametrize("kind", torch_wheels.KINDS)
def test_an_extension_of_torch_is_relinked_beside_the_torch_that_is_installed(
    kind: str, tmp_path: Path
) -> None:
    prefix = therock.tarball(tmp_path / "rocm", "10.1.0")
    (torch, *_) = torch_wheels.build(tmp_path / "torch", kind)
    site, python = environment(tmp_path)
    options = Options(prefixes=(str(prefix),), python=python, output_directory=tmp_path / "out")
    unpack([Path(relink(torch, options).path or "")], site)
    report = relink(extension(site, prefix, tmp_path), options)
    (found,) = [found for found in report.findings if found.code == "RLK119"]
    assert f"libtorch_hip.so of extra.so are those of {site}/torch" in found.message
    assert report.verified == 1
    unpack([Path(report.path or "")], site)
    call = (
        "import torch, extra, ctypes; print(ctypes.CDLL(extra.__path__[0] + '/extra.so').extra());"
        "print(*{line.split()[-1] for line in open('/proc/self/maps') if 'libamdhip64' in line})"
    )
    run = subprocess.run([python, "-c", call], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert [Path(path).parent for path in run.stdout.split()[1:]] == [prefix / "lib"]


@SLOW
def test_an_extension_of_a_torch_that_is_not_relinked_says_what_comes_first(tmp_path: Path) -> None:
    prefix = therock.tarball(tmp_path / "rocm", "10.1.0")
    (torch, *_) = torch_wheels.build(tmp_path / "torch", "split")
    site, python = environment(tmp_path)
    unpack([torch], site)
    options = Options(prefixes=(str(prefix),), python=python, dry_run=True)
    report = relink(extension(site, prefix, tmp_path), options)
    steps = {found.step for found in report.findings if found.level == "error"}
    assert steps == {f"relink repair torch --prefix {prefix} --python {python}"}


@SLOW
def test_a_library_that_torch_was_linked_to_and_does_not_use_is_dropped(tmp_path: Path) -> None:
    prefix = therock.tarball(tmp_path / "rocm", "10.1.0")
    (torch,) = torch_wheels.build(tmp_path / "torch", "whole", also_needed=["libmpi_cxx.so.40"])
    report = relink(torch, Options(prefixes=(str(prefix),), output_directory=tmp_path / "out"))
    (found,) = [found for found in report.findings if found.code == "RLK113"]
    assert found.message.startswith("NEEDED libmpi_cxx.so.40 dropped")
    run = imported(unpack([Path(report.path or "")], tmp_path / "site"))
    assert run.returncode == 0, run.stderr


def test_what_is_to_be_set_makes_python_code_find_a_library(tmp_path: Path) -> None:
    prefix = therock.tarball(tmp_path / "rocm", "10.1.0")
    hip = prefix / "lib/libamdhip64.so"
    library = shared(
        tmp_path / "demo.so", "extern int hipMalloc(void); int f(void) { return hipMalloc(); }", needed=[hip]
    )
    code = b'import ctypes\nprint(ctypes.CDLL("libamdhip64.so").hipMalloc())\n'
    files = {"demo/__init__.py": code, "demo/demo.so": library.read_bytes()}
    wheel = therock.pack(tmp_path, "demo", "1.0", files)
    report = relink(wheel, Options(prefixes=(str(prefix),), output_directory=tmp_path / "out"))
    (found,) = [found for found in report.findings if found.code == "RLK538"]
    site = unpack([Path(report.path or "")], tmp_path / "site")

    def run(before: str) -> subprocess.CompletedProcess[str]:
        command = f"{before}; {shlex.quote(sys.executable)} -c 'import demo'"
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(site)}
        return subprocess.run(
            ["sh", "-c", command], env=environment, capture_output=True, text=True, check=False
        )

    assert "libamdhip64.so: cannot open" in run("true").stderr
    assert run(found.step or "").returncode == 0
