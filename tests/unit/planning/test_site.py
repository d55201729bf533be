"""beside: what an environment has beside a wheel, and what of that a relinked wheel relies on."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import posixpath
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink import Options, Plan, Report, apply, diff, plan, relink, verify
from relink.planning.contents import find_calls
from relink.planning.model import ChangedRequirement
from relink.planning.site import (
    find_environment_site,
    find_vendor_requirements,
    follow_label,
    python_call_findings,
)
from relink.providers.prefix import InstalledPackage, Provider
from relink.report.summary import verdict
from relink.system.errors import UsageError
from relink.vendors.rocm.vendor import rocm
from relink.wheel.archive import WheelArchive
from relink.wheel.naming import relinked_name
from tests.support import therock, torch_wheels
from tests.support.cc import cc, shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.rocm_sdk import Settings, build, skip_with_own_zlib, tiny_prefix, unpack
from tests.support.wheels import make_wheel
from tests.support.works import MACHINE, PYTHON_TAG, Works, install

SLOW = pytest.mark.slow(
    reason="a relink and several checks; test_an_environment_that_has_it is the shortest of this kind"
)

SOURCE = "extern int hipblasSgemm(void); int answer(void){return hipblasSgemm() + 1;}"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_prefix(tmp_path_factory.mktemp("tiny") / "rocm")


def site_of(prefix: Path, root: Path, settings: Settings | None = None) -> Path:
    site = root / "lib" / "python3.11" / "site-packages"
    root.mkdir()
    unpack(build(prefix, root, settings), site)
    return site


@pytest.fixture
def relinked(works: Works, prefix: Path, tmp_path: Path) -> Path:
    member = shared(tmp_path / "a.so", SOURCE, needed=[prefix / "lib" / "libhipblas.so.3"])
    site = site_of(prefix, tmp_path / "first")
    wheel = works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": member})
    report = relink(wheel, Options(prefixes=(str(site),), output_directory=tmp_path / "out"))
    shutil.rmtree(tmp_path / "first")
    assert report.path is not None
    return Path(report.path)


@pytest.fixture
def wheel(works: Works, prefix: Path, tmp_path: Path) -> Path:
    member = shared(tmp_path / "a.so", SOURCE, needed=[prefix / "lib" / "libhipblas.so.3"])
    return works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": member})


def virtual_environment(root: Path, *, layered: bool = False) -> tuple[str, Path]:
    """Make a virtual environment; returns its Python and its site-packages."""
    base = os.path.realpath(sys.executable)
    site = root / f"lib/python3.{sys.version_info[1]}/site-packages"
    site.mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to(base)
    text = f"home = {os.path.dirname(base)}\ninclude-system-site-packages = {str(layered).lower()}\n"
    (root / "pyvenv.cfg").write_text(text)
    return str(root / "bin" / "python"), site


def rocm_into(prefix: Path, root: Path, site: Path) -> Path:
    root.mkdir()
    unpack(build(prefix, root), site)
    return site


def test_rocm_that_a_pth_file_names(prefix: Path, wheel: Path, tmp_path: Path) -> None:
    """No prefix is named: it is found as Python finds it, and no line of the .pth file is executed."""
    python, own = virtual_environment(tmp_path / "venv")
    shelf = rocm_into(prefix, tmp_path / "work", tmp_path / "venv" / "shelf")
    (own / "rocm.pth").write_text(f"import os; open({str(tmp_path / 'ran')!r}, 'w')\n../../../shelf\n")
    report = relink(wheel, Options(python=python, output_directory=tmp_path / "out"))
    assert [(item.kind, item.path) for item in report.providers] == [("site-packages", str(shelf))]
    (told,) = [item for item in report.findings if item.code == "RLK534"]
    assert (told.subject, f"installed into {own}," in told.message) == (str(shelf), True)
    assert (report.plan.relocatable, report.plan.relies_on) == (False, ())
    assert report.files[0].rpath.after == f"{shelf}/_rocm_sdk_libraries/lib"
    assert not (tmp_path / "ran").exists()
    unpack([Path(report.path or "")], own)
    skip_with_own_zlib()
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).answer())"
    run = subprocess.run(
        [python, "-S", "-c", code, str(own / "demo/a.so")], capture_output=True, text=True, check=True
    )
    assert run.stdout == "5\n"


def test_rocm_of_a_user(prefix: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "home"))
    site = tmp_path / f"home/lib/python3.{sys.version_info[1]}/site-packages"
    rocm_into(prefix, tmp_path / "work", site)
    python, _ = virtual_environment(tmp_path / "venv", layered=True)
    options = Options(python=python, output_directory=tmp_path, dry_run=True)
    report = relink(wheel, options)
    assert report.files[0].rpath.after == f"{site}/_rocm_sdk_libraries/lib"
    assert "RLK534" in [item.code for item in report.findings]
    alone, _ = virtual_environment(tmp_path / "alone")
    with pytest.raises(UsageError, match="no ROCm: name one"):
        relink(wheel, Options(python=alone, output_directory=tmp_path, dry_run=True))


def test_rocm_in_two_layers(prefix: Path, wheel: Path, tmp_path: Path) -> None:
    python, own = virtual_environment(tmp_path / "venv")
    rocm_into(prefix, tmp_path / "first", own)
    shelf = rocm_into(prefix, tmp_path / "second", tmp_path / "shelf")
    (own / "rocm.pth").write_text(f"{shelf}\n")
    report = relink(wheel, Options(python=python, output_directory=tmp_path / "out"))
    assert report.plan.relocatable
    (told,) = [item for item in report.findings if item.code == "RLK550"]
    assert told.subject == str(shelf)
    assert f"rocm-sdk-libraries 7.2.4, which are ignored; {own} is used" in told.message


def cublas(directory: Path, version: str = "12.4.5", soname: str = "libcublas.so.12") -> Path:
    """A wheel of another package, in whose directory the vendor's search path leads."""
    library = shared(directory / soname, "int cublas(void){return 3;}")
    files: dict[str, bytes | Path] = {f"nvidia/cublas/lib/{soname}": library}
    return make_wheel(directory, files, name="nvidia_cublas_cu12", version=version)


def using_cublas(works: Works, directory: Path) -> Path:
    """A wheel that needs the prefix's library and that of another package, by ``$ORIGIN``."""
    other = shared(directory / "link" / "libcublas.so.12", "int cublas(void){return 3;}")
    source = "extern int hip(void), cublas(void); int answer(void){return hip() + cublas();}"
    flags = ["-Wl,--enable-new-dtags,-rpath,/opt/rocm-0.0.0/lib:$ORIGIN/../nvidia/cublas/lib"]
    needed = [works.prefix / "lib" / "libhip.so.7", other]
    member = shared(directory / "b.so", source, needed=needed, flags=flags)
    return works.wheel(directory, {"demo/__init__.py": b"", "demo/b.so": member})


def test_another_package_is_recorded_and_looked_for(works: Works, tmp_path: Path) -> None:
    python, site = virtual_environment(tmp_path / "venv")
    unpack([cublas(tmp_path)], site)
    wheel = using_cublas(works, tmp_path)
    report = relink(wheel, works.options(tmp_path / "out", python=python))
    library = "nvidia/cublas/lib/libcublas.so.12"
    assert [(item.name, item.version, item.files) for item in report.plan.relies_on] == [
        ("nvidia_cublas_cu12", "12.4.5", (library,))
    ]
    assert report.files[0].rpath.after == f"{works.prefix}/lib:$ORIGIN/../nvidia/cublas/lib"
    assert not report.plan.relocatable
    result = Path(report.path or "")
    with zipfile.ZipFile(result) as archive:
        texts = [archive.read(name).decode("latin-1") for name in archive.namelist() if "dist-info" in name]
    assert str(site) not in "".join(texts)
    assert "Requires-Dist" not in "".join(texts)
    _, other = virtual_environment(tmp_path / "other")
    wanted = "the wheel relies on {}nvidia_cublas_cu12 12.4{}"
    assert ("RLK536", str(other), wanted.format("", ", which is not installed there")) in found(
        result, tmp_path / "other"
    )
    unpack([cublas(tmp_path, "12.9.0", "libcublas.so.13")], other)
    told = found(result, tmp_path / "other")
    assert ("RLK536", str(other), wanted.format("", ", and 12.9.0 is installed")) in told
    assert ("RLK536", str(other), wanted.format(f"{library} of ", ", which 12.9.0 has not")) in told
    assert found(result, tmp_path / "venv") == []


def test_a_library_of_the_system_in_place_of_another_package(works: Works, tmp_path: Path) -> None:
    """What an environment without the package does: the loader goes on, and finds one elsewhere."""
    python, site = virtual_environment(tmp_path / "venv")
    unpack([cublas(tmp_path)], site)
    usual = shared(tmp_path / "usual" / "lib" / "libcublas.so.12", "int cublas(void){return 9;}")
    options = works.options(tmp_path / "out", python=python)
    result = relink(using_cublas(works, tmp_path), options).path or ""
    shutil.rmtree(site / "nvidia")
    (works.prefix / "lib" / usual.name).symlink_to(usual)
    try:
        told = found(Path(result), tmp_path / "venv")
    finally:
        (works.prefix / "lib" / usual.name).unlink()
    (text,) = [message for code, subject, message in told if (code, subject) == ("RLK537", usual.name)]
    assert text.startswith(f"the loader takes {works.prefix}/lib/{usual.name}, and not nvidia/cublas/lib/")


def found(wheel: Path, environment: Path) -> list[tuple[str, str, str]]:
    result = verify(wheel, Options(environment=str(environment)))
    return [(item.code, item.subject, item.message) for item in result.findings if item.level != "info"]


def test_an_environment_that_has_it(prefix: Path, relinked: Path, tmp_path: Path) -> None:
    site = site_of(prefix, tmp_path / "second")
    assert found(relinked, tmp_path / "second") == []
    (scope,) = verify(relinked, Options(environment=str(site))).maps.values()
    assert (
        "libhipblas.so.3",
        f"{site}/_rocm_sdk_libraries/lib/libhipblas.so.3",
    ) in scope.objects


@SLOW
def test_an_environment_that_has_it_not(relinked: Path, tmp_path: Path) -> None:
    site = tmp_path / "empty" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    text = "the wheel relies on {} 7.2, which is not installed there"
    assert found(relinked, tmp_path / "empty")[1:] == [
        ("RLK536", str(site), text.format("rocm-sdk-core")),
        ("RLK536", str(site), text.format("rocm-sdk-libraries")),
    ]


@SLOW
def test_another_series(prefix: Path, relinked: Path, tmp_path: Path) -> None:
    site = site_of(prefix, tmp_path / "second", Settings(version="7.3.0"))
    assert found(relinked, tmp_path / "second") == [
        ("RLK536", str(site), f"the wheel relies on {name} 7.2, and 7.3.0 is installed")
        for name in ("rocm-sdk-core", "rocm-sdk-libraries")
    ]


@SLOW
def test_a_library_of_the_system_is_no_replacement(prefix: Path, relinked: Path, tmp_path: Path) -> None:
    libraries = site_of(prefix, tmp_path / "second") / "_rocm_sdk_libraries" / "lib"
    (libraries / "librocblas.so.5").unlink()
    # Where the loader finds it all the same; elsewhere this is /usr/lib.
    search_path = ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{prefix / 'lib'}"]
    needed = [prefix / "lib" / "librocblas.so.5"]
    shared(
        libraries / "libhipblas.so.3", "int hipblasSgemm(void){return 1;}", needed=needed, flags=search_path
    )
    text = f"the loader takes {prefix}/lib/librocblas.so.5, and not _rocm_sdk_libraries/lib/librocblas.so.5"
    told = found(relinked, tmp_path / "second")
    assert ("RLK537", "librocblas.so.5", f"{text} as when the wheel was relinked") in told


def test_which_site_packages(tmp_path: Path) -> None:
    (tmp_path / "lib64" / "python3.12" / "site-packages").mkdir(parents=True)
    place = tmp_path / "lib" / "python3.12" / "site-packages"
    place.mkdir(parents=True)
    assert find_environment_site(str(tmp_path), "3.12") == str(place)
    assert find_environment_site(str(place), "3.9") == str(place)
    with pytest.raises(UsageError, match="no site-packages in it"):
        find_environment_site(str(tmp_path / "lib"), "3.12")


def test_the_site_packages_of_a_free_threaded_python(tmp_path: Path) -> None:
    free = tmp_path / "lib" / "python3.13t" / "site-packages"
    free.mkdir(parents=True)
    for python in ("3.13", "3.13t", "3.12"):
        assert find_environment_site(str(tmp_path), python) == str(free)
    usual = tmp_path / "lib" / "python3.13" / "site-packages"
    usual.mkdir(parents=True)
    assert find_environment_site(str(tmp_path), "3.13") == str(usual)
    assert find_environment_site(str(tmp_path), "3.13t") == str(free)


PROVIDER = Provider(
    "site-packages",
    "/site",
    ("/site/_rocm_sdk_core/lib",),
    {name: (f"/site/_rocm_sdk_core/lib/{name}",) for name in ("libamdhip64.so.7", "libMIOpen.so.1")},
)
MODULE = """
import ctypes
from ctypes import CDLL, cdll
hip = ctypes.CDLL("libamdhip64.so", mode=ctypes.RTLD_GLOBAL)
miopen = CDLL(
    'libMIOpen.so.1')
cdll.LoadLibrary("libm.so.6")            # another library
CDLL("/opt/rocm/lib/libamdhip64.so.7")   # by a path
CDLL(name)
print("libamdhip64.so.7")                # no call
"""


def test_the_two_lines_that_help(tmp_path: Path) -> None:
    files: dict[str, bytes | Path] = {"demo/__init__.py": MODULE.encode(), "demo/other.py": b"print(1)"}
    files["demo/bad.py"] = b"\xff CDLL('libm.so')"
    with WheelArchive(make_wheel(tmp_path, files)) as archive:
        (found,) = python_call_findings(find_calls(archive), PROVIDER, rocm)
    assert (found.code, found.subject) == ("RLK538", "demo/__init__.py")
    assert found.message == (
        "loads libamdhip64.so, libMIOpen.so.1 by name, which no search path of the wheel leads to"
    )
    assert 'preload_shortnames=["amdhip64", "miopen"]' in found.remedy


@pytest.mark.parametrize(
    ("there", "remedy", "step"),
    [
        (
            ["libamdhip64.so", "libMIOpen.so.1"],
            "export LD_LIBRARY_PATH='/opt/my rocm/lib', before Python starts.",
            "export LD_LIBRARY_PATH='/opt/my rocm/lib'",
        ),
        (
            ["libamdhip64.so.7", "libMIOpen.so.1"],
            (
                "/opt/my rocm has libamdhip64.so.7 and no libamdhip64.so: make a link of that name in a directory that "
                "LD_LIBRARY_PATH names before Python starts."
            ),
            None,
        ),
    ],
)
def test_what_to_set_for_a_prefix(there: list[str], remedy: str, step: str | None, tmp_path: Path) -> None:
    lib = "/opt/my rocm/lib"
    prefix = Provider("prefix", "/opt/my rocm", (lib,), {name: (f"{lib}/{name}",) for name in there})
    with WheelArchive(make_wheel(tmp_path, {"demo/__init__.py": MODULE.encode()})) as archive:
        (found,) = python_call_findings(find_calls(archive), prefix, rocm)
        assert (found.remedy, found.step) == (remedy, step)
        assert list(python_call_findings(find_calls(archive), prefix, rocm, lambda _: True)) == []
        (other,) = python_call_findings(find_calls(archive), prefix, rocm, lambda soname: "hip" in soname)
        assert other.message.startswith("loads libMIOpen.so.1 by name")


pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return therock.tarball(tmp_path_factory.mktemp("tarball"), "10.1.0")


def relinked_all(wheels: Iterable[Path], options: Options) -> list[Report]:
    reports = [relink(wheel, options) for wheel in wheels]
    assert all(report.path and report.verified for report in reports[:1]), [
        report.findings for report in reports
    ]
    return reports


def environment(place: Path, wheels: Sequence[str | Path]) -> Path:
    """Install wheels, and return the Python of the environment."""
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    install(python, *wheels)
    return python


def pip(python: Path, *words: str | Path) -> str:
    command = [sys.executable, "-m", "pip", "--python", str(python), *map(str, words)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def others(directory: Path) -> list[Path]:
    """What torch requires besides ROCm."""
    rows = (("triton", "3.8.0"), ("triton-rocm", "3.8.0"), ("typing-extensions", "4.15.0"))
    return [therock.pack(directory, *row, {f"{row[0]}.py": b""}, tag="py3-none-any") for row in rows]


def metadata(report: Report) -> list[str]:
    with zipfile.ZipFile(report.path or "") as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return [line for line in archive.read(name).decode().splitlines() if line.startswith("Requires-Dist")]


def imported(python: Path) -> int:
    command = [str(python), "-c", "import torch; print(torch._call_rocm())"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


@SLOW
@pytest.mark.parametrize("kind", ["split", "whole"])
def test_a_torch_for_pips_rocm_is_imported_with_the_systems(kind: str, tarball: Path, tmp_path: Path) -> None:
    wheels = torch_wheels.build(tmp_path / "torch", kind)
    options = Options(prefixes=(str(tarball),), output_directory=tmp_path / "out")
    reports = relinked_all(wheels, options)
    assert {"RLK539", "RLK541"} <= {found.code for found in reports[0].findings}
    python = environment(tmp_path / "venv", [*(report.path or "" for report in reports), *others(tmp_path)])
    assert "No broken requirements" in pip(python, "check")
    assert imported(python) > 20
    with zipfile.ZipFile(reports[0].path or "") as archive:
        (record,) = [name for name in archive.namelist() if name.endswith("/RECORD")]
        listed = {row[0] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
        assert "torch/_rocm_init.py" not in listed
        assert listed == set(archive.namelist())
    for report in reports:
        assert not [line for line in metadata(report) if "rocm-sdk" in line or "rocm[" in line]


@SLOW
def test_the_requirements_of_wheels_that_belong_together(tarball: Path, tmp_path: Path) -> None:
    wheels = torch_wheels.build(tmp_path / "torch", "split", gpus=["gfx1100"])
    torch, device = relinked_all(wheels, Options(prefixes=(str(tarball),), output_directory=tmp_path / "out"))
    assert metadata(device) == ["Requires-Dist: torch==2.13.0+rocm10.1.0"]
    assert 'Requires-Dist: amd-torch-device-gfx11==2.13.0+rocm10.1.0; extra == "device-gfx11"' in metadata(
        torch
    )
    (found,) = [found for found in device.findings if found.code == "RLK539"]
    assert found.message.startswith("METADATA requires no longer rocm-sdk-device-gfx11 == 10.0.0; ")


@SLOW
def test_a_torch_for_one_release_of_pips_rocm_requires_the_other(tmp_path: Path) -> None:
    wheels = torch_wheels.build(tmp_path / "torch", "split")
    packages = [wheel for wheel in therock.pip(tmp_path / "pip", "10.1.0") if "triton" not in wheel.name]
    python = environment(tmp_path / "venv", packages)
    options = Options(
        prefixes=(str(tmp_path / "venv"),), python=str(python), output_directory=tmp_path / "out"
    )
    reports = relinked_all(wheels, options)
    assert "Requires-Dist: rocm[libraries]==10.1.*" in metadata(reports[0])
    assert "RLK541" not in {found.code for found in reports[0].findings}
    install(python, *(report.path or "" for report in reports), *others(tmp_path))
    assert "No broken requirements" in pip(python, "check")
    assert imported(python) > 20


@SLOW
def test_with_the_release_that_it_was_made_for_a_device_wheel_stays_as_it_is(tmp_path: Path) -> None:
    _, device = torch_wheels.build(tmp_path / "torch", "split", gpus=["gfx1100"])
    python = environment(tmp_path / "venv", therock.pip(tmp_path / "pip", "10.0.0"))
    options = Options(
        prefixes=(str(tmp_path / "venv"),), python=str(python), output_directory=tmp_path / "out"
    )
    report = relink(device, options)
    assert (Path(report.path or "").name, report.plan.empty) == (device.name, True)


@SLOW
def test_a_saved_plan_gives_the_same_bytes(tarball: Path, tmp_path: Path) -> None:
    torch, *_ = torch_wheels.build(tmp_path / "torch", "split")
    options = Options(prefixes=(str(tarball),), output_directory=tmp_path / "out", epoch=1_700_000_000)
    at_once = Path(relink(torch, options).path or "").read_bytes()
    plan(torch, options).save(tmp_path / "plan.json")
    saved = Plan.load(tmp_path / "plan.json")
    made = apply(saved, wheel=torch, output_directory=tmp_path / "again", options=options)
    assert Path(made.path or "").read_bytes() == at_once


def test_what_cannot_be_read_and_what_is_not_pinned_stays(tmp_path: Path) -> None:
    requires = [
        "(((",
        "torch == 2.0+rocm10.0.0",
        "numpy==1.0",
        "a==1.0+cpu",
        "b==2.*",
        "c>=1.0+rocm10.0.0",
        "rocm==10",
    ]
    wheel = therock.pack(tmp_path, "demo", "1.0+rocm10.0.0", {}, requires=requires, tag="py3-none-any")
    with WheelArchive(wheel) as archive:
        output = relinked_name(
            archive.name, local="rocm7.2.4", platform="any", replaces=rocm.packages.version_label
        )
        assert follow_label(archive, output, rocm) == (
            ChangedRequirement("torch == 2.0+rocm10.0.0", "torch==2.0+rocm7.2.4"),
        )
        assert find_vendor_requirements(archive, rocm, ()) == (ChangedRequirement("rocm==10"),)
        installed = {version: Provider("site-packages", "/s", (), {}, packages=(InstalledPackage("rocm-sdk-core", version, "x"),))
                     for version in ("10.0.0", "10.1.0", "no version")}  # fmt: skip
        changed = {
            version: find_vendor_requirements(archive, rocm, [site]) for version, site in installed.items()
        }
        assert changed == {
            "10.0.0": (),
            "10.1.0": (ChangedRequirement("rocm==10", "rocm==10.1.*"),),
            "no version": (),
        }


@pytest.mark.parametrize(
    ("name", "own"),
    [("rocm", True), ("ROCm_SDK.core", True), ("rocm-sdk-device-gfx11", True), ("rocm-bootstrap", True),
     ("migraphx-libs", True), ("rocm-bindings-hip", False), ("jax-rocm7-plugin", False), ("triton-rocm", False)],
)  # fmt: skip
def test_which_distributions_are_those_of_rocm(name: str, own: bool) -> None:
    assert rocm.packages.is_distribution(name) is own


CALL = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).answer())"
VENDOR = ["-Wl,--enable-new-dtags,-rpath,/build/rocm/lib:$ORIGIN/../_rocm_sdk_libraries_gfx94X_dcgpu/lib"]
SOURCE = "extern int hipblasSgemm(void); int answer(void){return hipblasSgemm() + 1;}"


@pytest.fixture(scope="module")
def member(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("member") / "a.so"
    return shared(output, SOURCE, needed=[prefix / "lib" / "libhipblas.so.3"], flags=VENDOR)


def with_rocm(prefix: Path, root: Path, *settings: Settings) -> Path:
    site = root / "venv" / "lib" / "python3" / "site-packages"
    for number, item in enumerate(settings or (Settings(),)):
        (root / f"work{number}").mkdir()
        unpack(build(prefix, root / f"work{number}", item), site)
    return site


def codes(report: Report) -> dict[str, str]:
    return {found.code: found.message for found in report.findings}


@SLOW
def test_the_result_works_wherever_the_packages_are(
    works: Works, prefix: Path, member: Path, tmp_path: Path
) -> None:
    site = with_rocm(prefix, tmp_path)
    deep: dict[str, bytes | Path] = {"demo/a.so": member, "demo/x/y/b.so": member}
    wheel = works.wheel(tmp_path, {**deep, "demo-1.0.data/platlib/other/c.so": member})
    report = relink(wheel, Options(prefixes=(str(tmp_path / "venv"),), output_directory=tmp_path / "out"))
    assert report.plan.relocatable
    assert [(item.name, item.version, item.directories) for item in report.plan.relies_on] == [
        ("rocm-sdk-core", "7.2.4", ()),
        ("rocm-sdk-libraries", "7.2.4", ("_rocm_sdk_libraries/lib",)),
    ]
    assert {file.path: file.rpath.after for file in report.files} == {
        "demo/a.so": "$ORIGIN/../_rocm_sdk_libraries/lib",
        "demo/x/y/b.so": "$ORIGIN/../../../_rocm_sdk_libraries/lib",
        "demo-1.0.data/platlib/other/c.so": "$ORIGIN/../_rocm_sdk_libraries/lib",
    }
    assert "RLK530" in codes(report)
    skip_with_own_zlib()
    assert report.path is not None
    for place in (site, tmp_path / "elsewhere" / "site-packages"):
        if place != site:
            shutil.copytree(site, place)
            shutil.rmtree(site)
        with zipfile.ZipFile(report.path) as archive:
            archive.extractall(place)
        for name in ("demo/a.so", "demo/x/y/b.so"):
            command = [sys.executable, "-c", CALL, str(place / name)]
            assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "5\n"


def test_name_tags_and_metadata_are_true(works: Works, prefix: Path, member: Path, tmp_path: Path) -> None:
    site = with_rocm(prefix, tmp_path)
    wheel = works.wheel(tmp_path, {"demo/a.so": member})
    options = Options(prefixes=(str(site),), output_directory=tmp_path / "out")
    report = relink(wheel, options)
    assert Path(report.path or "").name == (
        f"demo-1.0+rocm7.2.4-{PYTHON_TAG}-{PYTHON_TAG}-manylinux_2_34_{MACHINE}.whl"
    )
    with zipfile.ZipFile(report.path or "") as archive:
        metadata = archive.read("demo-1.0+rocm7.2.4.dist-info/METADATA").decode()
        written = archive.read("demo-1.0+rocm7.2.4.dist-info/relink.json").decode()
        bill = archive.read("demo-1.0+rocm7.2.4.dist-info/sboms/relink.cdx.json").decode()
    assert ('Provides-Extra: rocm\nRequires-Dist: rocm[libraries]==7.2.*; extra == "rocm"\n\n') in metadata
    assert str(tmp_path) not in written + bill
    assert "$SITE/_rocm_sdk_libraries/lib/libhipblas.so.3" in bill
    assert diff(wheel, report.path or "", options).verdict == "only what the plan says"
    required = dataclasses.replace(options, requires=True)
    report = relink(wheel, required)
    assert diff(wheel, report.path or "", required).verdict == "only what the plan says"
    assert not diff(wheel, report.path or "", options).ok
    with zipfile.ZipFile(report.path or "") as archive:
        metadata = archive.read("demo-1.0+rocm7.2.4.dist-info/METADATA").decode()
    assert "Requires-Dist: rocm[libraries]==7.2.*\n" in metadata
    assert "Provides-Extra" not in metadata


def test_a_library_of_a_prefix_keeps_it_here(works: Works, prefix: Path, tmp_path: Path) -> None:
    site = with_rocm(prefix, tmp_path)
    other = tmp_path / "other"
    extra = shared(other / "lib" / "libextra.so.1", "int extra(void){return 0;}")
    source = "extern int hipblasSgemm(void), extra(void); int answer(void){return hipblasSgemm() + extra();}"
    mixed = shared(tmp_path / "a.so", source, needed=[prefix / "lib" / "libhipblas.so.3", extra])
    wheel = works.wheel(tmp_path, {"demo/a.so": mixed})
    report = relink(wheel, Options(prefixes=(str(site), str(other)), output_directory=tmp_path, dry_run=True))
    assert not report.plan.relocatable
    assert codes(report)["RLK535"] == (
        f"works on this machine only, because of libextra.so.1 ({other}/lib/libextra.so.1)"
    )
    assert report.files[0].rpath.after == f"$ORIGIN/../_rocm_sdk_libraries/lib:{other}/lib"


def test_two_versions(works: Works, prefix: Path, member: Path, tmp_path: Path) -> None:
    site = with_rocm(prefix, tmp_path)
    newer = tmp_path / "newer"
    newer.mkdir()
    wheels = build(prefix, newer, Settings(version="7.2.5"))
    for path in site.glob("rocm_sdk_core*"):
        shutil.rmtree(path)
    unpack([path for path in wheels if "core" in path.name], site)
    wheel = works.wheel(tmp_path, {"demo/a.so": member})
    report = relink(wheel, Options(prefixes=(str(site),), output_directory=tmp_path))
    assert not report.ok
    (found,) = [item for item in report.findings if item.code == "RLK531"]
    assert found.message == (
        "these ROCm packages are of different releases: rocm 7.2.4, rocm-sdk-core 7.2.5, "
        "rocm-sdk-device-gfx1100 7.2.4, rocm-sdk-libraries 7.2.4"
    )
    assert found.step == "pip install rocm==7.2.5 rocm-sdk-device-gfx1100==7.2.5 rocm-sdk-libraries==7.2.5"


def migraphx_libs(directory: Path, version: str, member: Path) -> Path:
    """A wheel with libraries that others link to; relinked, it keeps its name where that says the release already."""
    own = shared(directory / "libmigraphx.so.2", SOURCE, needed=[member], flags=VENDOR)
    files: dict[str, bytes | Path] = {"migraphx_libs/a.so": member, "migraphx_libs/libmigraphx.so.2": own}
    return make_wheel(
        directory, files, name="migraphx_libs", version=version, tag=f"py3-none-linux_{MACHINE}"
    )


def test_an_installed_package_of_the_same_name_is_no_provider(
    prefix: Path, member: Path, tmp_path: Path
) -> None:
    site = with_rocm(prefix, tmp_path)
    wheel = migraphx_libs(tmp_path, "2.17.0+rocm7.2.4", member)
    unpack([wheel], site)
    report = relink(wheel, Options(prefixes=(str(site),), output_directory=tmp_path / "out"))
    assert Path(report.path or "").name == wheel.name
    assert report.plan.relocatable
    assert [item.name for item in report.plan.relies_on] == ["rocm-sdk-core", "rocm-sdk-libraries"]
    assert [file.rpath.after for file in report.files] == ["$ORIGIN/../_rocm_sdk_libraries/lib", "$ORIGIN"]


def test_a_package_whose_libraries_do_not_find_each_other(works: Works, tmp_path: Path) -> None:
    """What the package brings itself to load is no matter of the wheel that uses it."""
    lib = tmp_path / "prefix"
    own = shared(lib / "libmigraphx.so.2", "int program(void){return 1;}", flags=["-Wl,-rpath,/build/lib"])
    gpu = shared(lib / "libmigraphx_gpu.so.2", "int target(void){return 1;}")
    files: dict[str, bytes | Path] = {f"migraphx_libs/{path.name}": path for path in (own, gpu)}
    site = with_rocm(tiny_prefix(tmp_path / "rocm"), tmp_path)
    unpack([make_wheel(tmp_path, files, name="migraphx_libs", version="2.17.0+rocm7.2.4")], site)
    source = "extern int program(void); int answer(void){return program();}"
    wheel = works.wheel(tmp_path, {"demo/a.so": shared(tmp_path / "a.so", source, needed=[own])})
    options = Options(prefixes=(str(site),), output_directory=tmp_path, dry_run=True, preload_known=False)
    found = [item for item in relink(wheel, options).findings if item.subject == "libmigraphx_gpu.so.2"]
    assert [(item.code, item.step) for item in found] == [("RLK120", None)]
    assert str(found[0].remedy).startswith("Relink migraphx_libs, too: ")


def test_a_package_for_another_rocm(works: Works, prefix: Path, member: Path, tmp_path: Path) -> None:
    site = with_rocm(prefix, tmp_path)
    unpack([migraphx_libs(tmp_path, "2.17.0+rocm10.0.0", member)], site)
    wheel = works.wheel(tmp_path, {"demo/a.so": member})
    report = relink(wheel, Options(prefixes=(str(site),), output_directory=tmp_path, dry_run=True))
    (found,) = [item for item in report.findings if item.code == "RLK531"]
    assert "migraphx_libs 2.17.0+rocm10.0.0" in found.message
    assert found.step is None


def test_two_families(works: Works, prefix: Path, member: Path, tmp_path: Path) -> None:
    families = (Settings(family="gfx94X-dcgpu"), Settings(family="gfx110X-all"))
    site = with_rocm(prefix, tmp_path, *families)
    wheel = works.wheel(tmp_path, {"demo/a.so": member})
    report = relink(wheel, Options(prefixes=(str(site),), output_directory=tmp_path, dry_run=True))
    assert codes(report)["RLK532"] == (
        "rocm-sdk-libraries-gfx110X-all, rocm-sdk-libraries-gfx94X-dcgpu are installed; "
        "rocm-sdk-libraries-gfx110X-all is taken"
    )
    assert report.files[0].rpath.after == "$ORIGIN/../_rocm_sdk_libraries_gfx110X_all/lib"


def test_no_device_package(works: Works, prefix: Path, member: Path, tmp_path: Path) -> None:
    site = with_rocm(prefix, tmp_path, Settings(gpus=()))
    wheel = works.wheel(tmp_path, {"demo/a.so": member})
    report = relink(wheel, Options(prefixes=(str(site),), output_directory=tmp_path, dry_run=True))
    (found,) = [item for item in report.findings if item.code == "RLK533"]
    assert found.remedy == "Install the package for the GPU, such as rocm-sdk-device-gfx1100==7.2.4."


def test_a_program_of_the_scripts(works: Works, prefix: Path, tmp_path: Path) -> None:
    site = with_rocm(prefix, tmp_path)
    source = "extern int hipblasSgemm(void); int main(void){return hipblasSgemm();}"
    flags = ["-Wl,--allow-shlib-undefined", "-Wl,-rpath,/build/rocm/lib"]
    program = cc(source, tmp_path / "driver", *flags, needed=[prefix / "lib" / "libhipblas.so.3"])
    wheel = works.wheel(tmp_path, {"demo/__init__.py": b"", "demo-1.0.data/scripts/driver": program})
    report = relink(wheel, Options(prefixes=(str(site),), output_directory=tmp_path / "out"))
    assert report.plan.relocatable
    version = f"python3.{sys.version_info[1]}"
    assert f"any venv of Python 3.{sys.version_info[1]} with rocm-sdk-core 7.2" in verdict(report).text
    place = f"$ORIGIN/../lib/{version}/site-packages/_rocm_sdk_libraries/lib"
    assert report.files[0].rpath.after == place
    (tmp_path / "venv" / "lib" / "python3").rename(tmp_path / "venv" / "lib" / version)
    installed = tmp_path / "venv" / "bin" / "driver"
    installed.parent.mkdir()
    with zipfile.ZipFile(report.path or "") as archive:
        installed.write_bytes(archive.read("demo-1.0+rocm7.2.4.data/scripts/driver"))
    installed.chmod(0o755)
    assert subprocess.run([str(installed)], check=False).returncode == 4


# The wheel's own copies of libraries

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
def own_rocm(whole_rocm: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(whole_rocm, tmp_path / "rocm", symlinks=True))


def made(torch: Path, own_rocm: Path, tmp_path: Path) -> tuple[Report, dict[str, bytes]]:
    report = relink(torch, Options(prefixes=(str(own_rocm),), output_directory=tmp_path / "out"))
    with zipfile.ZipFile(report.path or "") as archive:
        return report, {name: archive.read(name) for name in archive.namelist()}


def names(members: dict[str, bytes]) -> set[str]:
    return {posixpath.basename(name) for name in members if name.startswith("torch/lib/lib")}


def needed(report: Report, member: str) -> set[str | None]:
    (file,) = [file for file in report.files if file.path == member]
    return {entry.soname_after for entry in file.needed}


@SLOW
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


@SLOW
def test_what_the_prefix_has_not_stays_and_takes_the_prefixs_runtime(
    torch: Path, own_rocm: Path, tmp_path: Path
) -> None:
    for path in own_rocm.glob("lib/libhipsparselt*"):
        path.unlink()
    report, members = made(torch, own_rocm, tmp_path)
    (found,) = [found for found in report.findings if found.code == "RLK541"]
    assert found.message.endswith("; kept, as it has no such library: libhipsparselt.so")
    assert "libhipsparselt.so" in names(members)
    assert "libhipsparse.so" not in names(members)
    kernels = {name for name in members if name.endswith(".hsaco")}
    assert {name.split("/")[2] for name in kernels} == {"hipsparselt"}
    assert "libhipsparse.so.4" in needed(report, "torch/lib/libhipsparselt.so")


@SLOW
def test_a_link_for_compilers_to_another_version_is_not_taken(
    torch: Path, own_rocm: Path, tmp_path: Path
) -> None:
    other = shared(own_rocm / "lib/libamdhip64.so.8", "int hipMalloc(void) { return 1; }")
    (own_rocm / "lib/libamdhip64.so").unlink()
    (own_rocm / "lib/libamdhip64.so").symlink_to(other.name)
    report, _ = made(torch, own_rocm, tmp_path)
    assert "libamdhip64.so.7" in needed(report, "torch/lib/libc10_hip.so")
    assert not [path for file in report.files for _, path in file.closure if path.endswith(".so.8")]


@SLOW
def test_without_the_runtime_all_copies_stay(torch: Path, own_rocm: Path, tmp_path: Path) -> None:
    for path in own_rocm.glob("lib/libamdhip64*"):
        path.unlink()
    report, members = made(torch, own_rocm, tmp_path)
    (found,) = [found for found in report.findings if found.code == "RLK546"]
    assert (
        found.message == f"the wheel's own copies of the libraries stay: {own_rocm} has no libamdhip64.so.7"
    )
    assert report.plan.empty
    assert "libamdhip64.so" in names(members)


@SLOW
def test_where_the_wheel_would_not_do_without_them_all_copies_stay(
    torch: Path, own_rocm: Path, tmp_path: Path
) -> None:
    for path in own_rocm.glob("lib/libhipfft*"):
        path.unlink()
    shared(own_rocm / "lib/libhipfft.so.0", "int another(void) { return 1; }")
    report, _ = made(torch, own_rocm, tmp_path)
    (found,) = [found for found in report.findings if found.code == "RLK546"]
    assert "stay: it would not do with the prefix's: RLK" in found.message
    assert "hipfftExecC2C" in found.message
    assert report.plan.empty
    assert report.ok


@SLOW
def test_a_saved_plan_without_the_copies_gives_the_same_bytes(
    torch: Path, whole_rocm: Path, tmp_path: Path
) -> None:
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
