"""A wheel for the ROCm of site-packages, relinked to another: what METADATA requires, and what pip and Python make of it."""

from __future__ import annotations

import csv
import dataclasses
import io
import posixpath
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from relink import Options, Plan, Report, apply, diff, plan, relink
from relink.planning.model.files import ChangedRequirement
from relink.planning.site_requirements import following_label, of_vendor
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


def test_the_requirements_of_wheels_that_belong_together(tarball: Path, tmp_path: Path) -> None:
    wheels = torch_wheels.build(tmp_path / "torch", "split", gpus=["gfx1100"])
    torch, device = relinked_all(wheels, Options(prefixes=(str(tarball),), output_directory=tmp_path / "out"))
    assert metadata(device) == ["Requires-Dist: torch==2.13.0+rocm10.1.0"]
    assert 'Requires-Dist: amd-torch-device-gfx11==2.13.0+rocm10.1.0; extra == "device-gfx11"' in metadata(
        torch
    )
    (found,) = [found for found in device.findings if found.code == "RLK539"]
    assert found.message.startswith("METADATA requires no longer rocm-sdk-device-gfx11 == 10.0.0; ")


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


def test_with_the_release_that_it_was_made_for_a_device_wheel_stays_as_it_is(tmp_path: Path) -> None:
    _, device = torch_wheels.build(tmp_path / "torch", "split", gpus=["gfx1100"])
    python = environment(tmp_path / "venv", therock.pip(tmp_path / "pip", "10.0.0"))
    options = Options(
        prefixes=(str(tmp_path / "venv"),), python=str(python), output_directory=tmp_path / "out"
    )
    report = relink(device, options)
    assert (Path(report.path or "").name, report.plan.empty) == (device.name, True)


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
        assert following_label(archive, output, rocm) == (
            ChangedRequirement("torch == 2.0+rocm10.0.0", "torch==2.0+rocm7.2.4"),
        )
        assert of_vendor(archive, rocm, ()) == (ChangedRequirement("rocm==10"),)
        installed = {version: Provider("site-packages", "/s", (), {}, packages=(InstalledPackage("rocm-sdk-core", version, "x"),))
                     for version in ("10.0.0", "10.1.0", "no version")}  # fmt: skip
        changed = {version: of_vendor(archive, rocm, [site]) for version, site in installed.items()}
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
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_prefix(tmp_path_factory.mktemp("tiny") / "rocm")


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


def test_a_link_for_compilers_to_another_version_is_not_taken(
    torch: Path, own_rocm: Path, tmp_path: Path
) -> None:
    other = shared(own_rocm / "lib/libamdhip64.so.8", "int hipMalloc(void) { return 1; }")
    (own_rocm / "lib/libamdhip64.so").unlink()
    (own_rocm / "lib/libamdhip64.so").symlink_to(other.name)
    report, _ = made(torch, own_rocm, tmp_path)
    assert "libamdhip64.so.7" in needed(report, "torch/lib/libc10_hip.so")
    assert not [path for file in report.files for _, path in file.closure if path.endswith(".so.8")]


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
