"""beside: what an environment has beside a wheel, and what of that a relinked wheel relies on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from relink import Options, relink, verify
from relink.planning.surroundings import environment_site, python_call_findings
from relink.providers.prefix import Provider
from relink.system.errors import UsageError
from relink.vendors.rocm.vendor import rocm
from relink.wheel.archive import WheelArchive
from tests.support.cc import shared
from tests.support.rocm_sdk import Settings, build, skip_with_own_zlib, tiny_prefix, unpack
from tests.support.wheels import make_wheel
from tests.support.works import Works

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
    assert f"rocm-sdk-libraries 7.2.4, which are not looked at: {own} is taken" in told.message


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


def test_an_environment_that_has_it_not(relinked: Path, tmp_path: Path) -> None:
    site = tmp_path / "empty" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    text = "the wheel relies on {} 7.2, which is not installed there"
    assert found(relinked, tmp_path / "empty")[1:] == [
        ("RLK536", str(site), text.format("rocm-sdk-core")),
        ("RLK536", str(site), text.format("rocm-sdk-libraries")),
    ]


def test_another_series(prefix: Path, relinked: Path, tmp_path: Path) -> None:
    site = site_of(prefix, tmp_path / "second", Settings(version="7.3.0"))
    assert found(relinked, tmp_path / "second") == [
        ("RLK536", str(site), f"the wheel relies on {name} 7.2, and 7.3.0 is installed")
        for name in ("rocm-sdk-core", "rocm-sdk-libraries")
    ]


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
    assert environment_site(str(tmp_path), "3.12") == str(place)
    assert environment_site(str(place), "3.9") == str(place)
    with pytest.raises(UsageError, match="no site-packages in it"):
        environment_site(str(tmp_path / "lib"), "3.12")


def test_the_site_packages_of_a_free_threaded_python(tmp_path: Path) -> None:
    free = tmp_path / "lib" / "python3.13t" / "site-packages"
    free.mkdir(parents=True)
    for python in ("3.13", "3.13t", "3.12"):
        assert environment_site(str(tmp_path), python) == str(free)
    usual = tmp_path / "lib" / "python3.13" / "site-packages"
    usual.mkdir(parents=True)
    assert environment_site(str(tmp_path), "3.13") == str(usual)
    assert environment_site(str(tmp_path), "3.13t") == str(free)


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
        (found,) = python_call_findings(archive, PROVIDER, rocm)
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
        (found,) = python_call_findings(archive, prefix, rocm)
        assert (found.remedy, found.step) == (remedy, step)
        assert list(python_call_findings(archive, prefix, rocm, lambda _: True)) == []
        (other,) = python_call_findings(archive, prefix, rocm, lambda soname: "hip" in soname)
        assert other.message.startswith("loads libMIOpen.so.1 by name")
