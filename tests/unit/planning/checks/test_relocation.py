"""checks.relocation: results that find ROCm beside them in site-packages, held against the real loader."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from relink import Options, diff, relink
from relink.report.model import Report
from relink.report.summary import verdict
from tests.support.cc import cc, shared
from tests.support.rocm_sdk import Settings, build, tiny_prefix, unpack
from tests.support.wheels import make_wheel
from tests.support.works import MACHINE, PYTHON_TAG, Works

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


def environment(prefix: Path, root: Path, *settings: Settings) -> Path:
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
    site = environment(prefix, tmp_path)
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
    site = environment(prefix, tmp_path)
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


def test_a_second_run_changes_nothing(works: Works, prefix: Path, member: Path, tmp_path: Path) -> None:
    options = Options(prefixes=(str(environment(prefix, tmp_path)),), output_directory=tmp_path / "out")
    first = relink(works.wheel(tmp_path, {"demo/a.so": member}), options)
    again = relink(first.path or "", dataclasses.replace(options, output_directory=tmp_path / "again"))
    assert (again.ok, again.output) == (True, None)
    assert not any(file.changed for file in again.files)


def test_a_library_of_a_prefix_keeps_it_here(works: Works, prefix: Path, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path)
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
    site = environment(prefix, tmp_path)
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
        "they do not belong together: rocm 7.2.4, rocm-sdk-core 7.2.5, rocm-sdk-device-gfx1100 7.2.4, rocm-sdk-libraries 7.2.4"
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
    site = environment(prefix, tmp_path)
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
    site = environment(tiny_prefix(tmp_path / "rocm"), tmp_path)
    unpack([make_wheel(tmp_path, files, name="migraphx_libs", version="2.17.0+rocm7.2.4")], site)
    source = "extern int program(void); int answer(void){return program();}"
    wheel = works.wheel(tmp_path, {"demo/a.so": shared(tmp_path / "a.so", source, needed=[own])})
    options = Options(prefixes=(str(site),), output_directory=tmp_path, dry_run=True, preload_known=False)
    found = [item for item in relink(wheel, options).findings if item.subject == "libmigraphx_gpu.so.2"]
    assert [(item.code, item.step) for item in found] == [("RLK120", None)]
    assert str(found[0].remedy).startswith("Relink migraphx_libs, too: ")


def test_a_package_for_another_rocm(works: Works, prefix: Path, member: Path, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path)
    unpack([migraphx_libs(tmp_path, "2.17.0+rocm10.0.0", member)], site)
    wheel = works.wheel(tmp_path, {"demo/a.so": member})
    report = relink(wheel, Options(prefixes=(str(site),), output_directory=tmp_path, dry_run=True))
    (found,) = [item for item in report.findings if item.code == "RLK531"]
    assert "migraphx_libs 2.17.0+rocm10.0.0" in found.message
    assert found.step is None


def test_two_families(works: Works, prefix: Path, member: Path, tmp_path: Path) -> None:
    families = (Settings(family="gfx94X-dcgpu"), Settings(family="gfx110X-all"))
    site = environment(prefix, tmp_path, *families)
    wheel = works.wheel(tmp_path, {"demo/a.so": member})
    report = relink(wheel, Options(prefixes=(str(site),), output_directory=tmp_path, dry_run=True))
    assert codes(report)["RLK532"] == (
        "rocm-sdk-libraries-gfx110X-all, rocm-sdk-libraries-gfx94X-dcgpu are installed; "
        "rocm-sdk-libraries-gfx110X-all is taken"
    )
    assert report.files[0].rpath.after == "$ORIGIN/../_rocm_sdk_libraries_gfx110X_all/lib"


def test_no_device_package(works: Works, prefix: Path, member: Path, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path, Settings(gpus=()))
    wheel = works.wheel(tmp_path, {"demo/a.so": member})
    report = relink(wheel, Options(prefixes=(str(site),), output_directory=tmp_path, dry_run=True))
    (found,) = [item for item in report.findings if item.code == "RLK533"]
    assert found.remedy == "Install the package for the GPU, such as rocm-sdk-device-gfx1100==7.2.4."


def test_a_program_of_the_scripts(works: Works, prefix: Path, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path)
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
