"""planning.siblings: libraries that the import of another package maps, and which packages a wheel comes after."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.library import plan, relink, verify
from relink.loader.python import ask_python
from relink.loader.seen_files import Files
from relink.planning.options import Options
from relink.planning.resolve.decide import PlanDraft, decide
from relink.planning.siblings import Sibling, find_sibling, list_sibling_paths, may_map_other_copies
from relink.providers.profiles import Profile, shipped_profiles
from relink.report.model import Report
from tests.support.cc import shared
from tests.support.rocm_sdk import unpack
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works
from tests.unit.planning.resolve.scenes import Scene, call, codes, define

SONAME, MEMBER = "libfirst.so", "demo/a.so"
PROFILE = Profile("first", ("first",), ("first",), brings=("first/lib/libfirst*.so",))
WHY = "METADATA requires first"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    made.provide("lib/libelse.so.1", source=define("other"))
    made.member(MEMBER, [SONAME], call("first"))
    return made


def planned(scene: Scene, sibling: Sibling) -> PlanDraft:
    return decide(replace(scene.context(), siblings=(sibling,)))


def installed(scene: Scene, *exports: str) -> Sibling:
    path = scene.library(scene.root / "site" / "first" / "lib" / SONAME, [], define(*exports))
    directory = str(scene.root / "site" / "first")
    return Sibling(PROFILE, WHY, directory, (str(scene.root / "site"),), {SONAME: str(path)})


def test_which_sibling_brings_a_soname() -> None:
    sibling = Sibling(PROFILE, WHY)
    assert find_sibling([sibling], "libfirst_cpu.so") is sibling
    assert find_sibling([sibling], "libsecond.so") is None
    assert list_sibling_paths([sibling, Sibling(PROFILE, WHY, "/d", (), {"x": "/d/x"})]) == ["/d/x"]


def test_which_copies_it_may_map(tmp_path: Path) -> None:
    """A copy has the same name up to .so, beside the libraries that members need of the package."""
    for name in (SONAME, "libhsa.so"):
        (tmp_path / name).touch()
    sibling = Sibling(PROFILE, WHY, str(tmp_path), (), {SONAME: f"{tmp_path}/{SONAME}"})

    def may(*mapped: tuple[str, str]) -> bool:
        return may_map_other_copies([sibling], mapped, Files("/"))

    assert may(("libhsa.so.1", "/rocm/lib/libhsa.so.1"))
    assert not may(("libother.so.1", "/rocm/lib/libother.so.1"))
    assert not may((SONAME, f"{tmp_path}/{SONAME}"), ("libhsa.so", f"{tmp_path}/libhsa.so"))
    assert not may_map_other_copies([], [("libhsa.so.1", "/rocm/lib/libhsa.so.1")], Files("/"))


def test_without_it_nothing_brings_the_library(scene: Scene) -> None:
    assert [item.code for item in scene.decide().findings if item.level == "error"] == ["RLK101"]


def test_one_that_is_not_there_is_assumed(scene: Scene) -> None:
    draft = planned(scene, Sibling(PROFILE, WHY))
    (told,) = (item for item in draft.findings if item.level != "info")
    assert (told.code, told.level, told.subject, told.profile) == ("RLK118", "warning", "first", "first")
    assert (
        told.message
        == f"libfirst.so of a.so come by its import ({WHY}), which is assumed: no Python of the target is known"
    )
    assert [item.origin for file in draft.files for item in file.needed if item.soname == SONAME] == [
        "assumed"
    ]


def test_where_it_was_looked_for(scene: Scene) -> None:
    draft = planned(scene, Sibling(PROFILE, WHY, None, ("/site",)))
    (told,) = (item for item in draft.findings if item.code == "RLK118")
    assert told.message.endswith("which is assumed: it is not installed in /site")


def test_an_installed_one_is_resolved_for_real(scene: Scene) -> None:
    sibling = installed(scene, "first")
    draft = planned(scene, sibling)
    assert not [item for item in draft.findings if item.level != "info"]
    (told,) = (item for item in draft.findings if item.code == "RLK119")
    assert told.message == f"libfirst.so of a.so are those of {sibling.directory} ({WHY})"
    (entry,) = (item for file in draft.files for item in file.needed if item.soname == SONAME)
    assert (entry.resolved, entry.found_by) == (sibling.libraries[SONAME], "already loaded")
    assert not any(file.changed for file in draft.files)


def test_an_installed_one_that_lacks_the_symbol_is_refused(scene: Scene) -> None:
    draft = planned(scene, installed(scene, "second"))
    (error,) = (item for item in draft.findings if item.level == "error")
    assert error.code == "RLK302"
    assert "first" in error.message


def test_an_installed_one_that_lacks_the_library_is_refused(scene: Scene) -> None:
    """A build of the package for the CPU has no library of the GPU."""
    draft = planned(scene, replace(installed(scene, "first"), libraries={}))
    (error,) = (item for item in draft.findings if item.level == "error")
    assert (error.code, error.subject) == ("RLK101", SONAME)
    assert f"{scene.root}/site/first should bring it ({WHY}) and does not have it" in error.message
    assert error.remedy == "Install a build of first that has it, for the same Python, and relink again."


def test_another_library_is_not_assumed(scene: Scene) -> None:
    scene.member("demo/b.so", ["libsecond.so"], call("second"))
    draft = planned(scene, Sibling(PROFILE, WHY))
    assert [item.subject for item in draft.findings if item.code == "RLK101"] == ["libsecond.so"]
    assert "RLK118" in codes(draft)


def test_what_a_prefix_has_is_not_assumed(scene: Scene) -> None:
    scene.provide(f"lib/{SONAME}", source=define("first"))
    draft = planned(scene, Sibling(PROFILE, WHY))
    assert "RLK118" not in codes(draft)
    assert [item.origin for file in draft.files for item in file.needed if item.soname == SONAME] == [
        "provider"
    ]


USES = """extern int hip(void), tensor(void);
int g(void){return hip() + tensor();}
void *PyInit_ext(void){return 0;}"""
IMPORTS = b"import os\nimport torch\n"


def wheel(
    works: Works,
    directory: Path,
    init: bytes = b"",
    requires: tuple[str, ...] = (),
    member: str = "demo/ext.so",
) -> Path:
    """An extension of PyTorch: it needs libc10.so and has no search path to it."""
    torch = shared(directory / "build" / "libc10.so", "int tensor(void){return 1;}")
    extension = shared(directory / "ext.so", USES, needed=[works.prefix / "lib" / "libhip.so.7", torch])
    files: dict[str, bytes | Path] = {"demo/__init__.py": init, member: extension}
    return make_wheel(directory, files, tag=TAG, requires=requires)


def environment(directory: Path, *exports: str, more: Mapping[str, bytes | Path] | None = None) -> Path:
    """A virtual environment with a torch that has such a libc10.so, and more files; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    python = directory / "bin" / "python"
    (site,) = ask_python(str(python)).site_packages
    assert site.startswith(str(directory))
    source = "".join(f"int {name}(void){{return 1;}}" for name in exports)
    library = shared(directory / "build" / "libc10.so", source)
    files: dict[str, bytes | Path] = {
        "torch/__init__.py": b"",
        "torch/lib/libc10.so": library,
        **(more or {}),
    }
    unpack([make_wheel(directory, files, name="torch", version="2.9.1")], Path(site))
    return python


def told(report: Report, code: str) -> list[str]:
    return [found.message for found in report.findings if found.code == code]


@pytest.mark.few(3, reason="the same of other values")
@pytest.mark.parametrize(
    ("init", "requires", "why"),
    [
        (IMPORTS, (), "demo/__init__.py imports torch"),
        (b"from torch.ops import x\n", (), "demo/__init__.py imports torch"),
        (b"", ("Torch >= 2 ; python_version >= '3.8'",), "METADATA requires torch"),
        (b"", ("torchvision",), None),
        (b"", ("torch ; extra == 'gpu'",), None),
        (b"", ("not a requirement !",), None),
        (b"", (f"torch ; {'(' * 2000}python_version > '3'{')' * 2000}",), None),
        (b"import torchvision\n    import torch\n", (), None),
    ],
)
def test_what_says_that_the_package_is_there(
    works: Works, tmp_path: Path, init: bytes, requires: tuple[str, ...], why: str | None
) -> None:
    made = plan(wheel(works, tmp_path, init, requires), works.options(tmp_path))
    warned = [found.message for found in made.findings if found.code == "RLK118"]
    missing = [found.subject for found in made.findings if found.code == "RLK101"]
    assert (len(warned), missing) == ((1, []) if why else (0, ["libc10.so"]))
    assert why is None or f"({why})" in warned[0]


def test_a_library_beside_the_packages_comes_after_what_these_import(works: Works, tmp_path: Path) -> None:
    made = plan(wheel(works, tmp_path, IMPORTS, member="libext.so"), works.options(tmp_path))
    (found,) = (found for found in made.findings if found.code == "RLK118")
    assert "(demo/__init__.py imports torch)" in found.message
    assert made.ok


@pytest.mark.parametrize("name", [item.name for item in shipped_profiles().values() if item.brings])
def test_what_each_package_is_known_to_bring(works: Works, tmp_path: Path, name: str) -> None:
    profile = shipped_profiles()[name]
    sonames = [Path(glob.replace("*", "")).name for glob in profile.brings]
    libraries = [shared(tmp_path / "build" / soname, "int f(void){return 1;}") for soname in sonames]
    extension = shared(
        tmp_path / "ext.so",
        "extern int hip(void); int g(void){return hip();}",
        needed=[works.prefix / "lib" / "libhip.so.7", *libraries],
        flags=["-Wl,--no-as-needed"],
    )
    required = (profile.distributions[0],)
    made = plan(
        make_wheel(tmp_path, {"demo/ext.so": extension}, tag=TAG, requires=required), works.options(tmp_path)
    )
    (told,) = (found for found in made.findings if found.code == "RLK118")
    assert (told.subject, all(soname in told.message for soname in sonames)) == (name, True)
    assert not [found for found in made.findings if found.level == "error"]


def test_one_that_is_not_installed_is_assumed(works: Works, tmp_path: Path) -> None:
    report = relink(wheel(works, tmp_path, IMPORTS), works.options(tmp_path / "out"))
    assert report.output is not None
    assert told(report, "RLK118")
    found = verify(report.output.path, Options()).findings
    assert [(item.code, item.level) for item in found if item.level != "info"] == [("RLK118", "warning")]


def test_an_installed_one_is_asked_for_real(works: Works, tmp_path: Path) -> None:
    python = environment(tmp_path / "env", "tensor")
    options = works.options(tmp_path / "out", python=str(python))
    report = relink(wheel(works, tmp_path, IMPORTS), options)
    assert report.output is not None
    assert report.verified is not None
    assert not [item for item in report.findings if item.level != "info"]
    (taken,) = told(report, "RLK119")
    assert f"{tmp_path}/env/lib" in taken
    found = verify(report.output.path, Options(python=str(python))).findings
    assert [(one.code, one.level) for one in found] == [("RLK119", "info")]
    (file,) = (item for item in report.files if item.changed)
    assert "torch" not in (file.rpath.after or "")  # it is found by its soname
    assert [(item.name, item.version, item.files) for item in report.plan.relies_on] == [
        ("torch", "2.9.1", ("torch/lib/libc10.so",))
    ]


def test_an_installed_one_without_the_symbol_is_refused(works: Works, tmp_path: Path) -> None:
    python = environment(tmp_path / "env", "another")
    report = relink(wheel(works, tmp_path, IMPORTS), works.options(tmp_path / "out", python=str(python)))
    assert report.output is None
    (refused,) = told(report, "RLK302")
    assert "tensor" in refused


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("symbol", ["deep", "another"])
def test_what_an_installed_one_has_mapped_before(works: Works, tmp_path: Path, symbol: str) -> None:
    """torch maps its own HSA runtime, which serves the prefix's HIP in that process."""
    runtime = shared(tmp_path / "build" / "libdeep.so.1", f"int {symbol}(void){{return 1;}}")
    opened = [
        f"ctypes.CDLL(os.path.dirname(__file__) + '/lib/{name}')" for name in ("libdeep.so.1", "libc10.so")
    ]
    opening = "\n".join(["import ctypes, os", *opened]).encode()
    more: dict[str, bytes | Path] = {"torch/__init__.py": opening, "torch/lib/libdeep.so.1": runtime}
    python = environment(tmp_path / "env", "tensor", more=more)
    options = works.options(tmp_path / "out", python=str(python), force=True)
    report = relink(wheel(works, tmp_path, IMPORTS + b"from demo import ext\n"), options)
    assert report.output is not None
    lost = [found.subject for found in report.findings if found.level == "error"]
    assert lost == ([] if symbol == "deep" else [f"{works.prefix}/lib/libhip.so.7"])
    (site,) = ask_python(str(python)).site_packages
    unpack([Path(report.output.path)], Path(site))
    run = subprocess.run([python, "-c", "import demo"], capture_output=True, text=True, check=False)
    assert ("undefined symbol: deep" in run.stderr) is bool(lost)


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize(
    ("member", "brought", "requires", "why"),
    [
        ("demo/ext.so", "planet/_C/libplanet.so", ("planet-rocm",), "METADATA requires planet-rocm"),
        ("P.libs/lib/plugins/ext.so", "P.libs/lib/libplanet.so", (), "its directory is above"),
    ],
)
def test_a_package_that_no_profile_is_about(
    works: Works, tmp_path: Path, member: str, brought: str, requires: tuple[str, ...], why: str
) -> None:
    """triton-utlx-rocm requires triton-rocm, which has libtriton.so; OpenMM's plugins lie below its libOpenMM.so."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    options = works.options(tmp_path / "out", python=str(tmp_path / "env" / "bin" / "python"))
    (site,) = ask_python(str(options.python)).site_packages
    host = shared(tmp_path / "build" / "libplanet.so", "int tensor(void){return 1;}")
    needed = [works.prefix / "lib" / "libhip.so.7", host]
    extension = shared(tmp_path / "ext.so", USES, needed=needed)
    made = make_wheel(tmp_path, {member: extension}, tag=TAG, requires=requires)
    before = plan(made, options)
    assert before.ok is bool(requires)
    assert [found.subject for found in before.findings if found.code in ("RLK101", "RLK118")] == [
        "planet-rocm" if requires else "libplanet.so"
    ]
    unpack([make_wheel(tmp_path, {brought: host}, name="planet_rocm")], Path(site))
    report = relink(made, options)
    assert report.output is not None
    assert not [item for item in report.findings if item.level != "info"]
    (taken,) = told(report, "RLK119")
    assert f"{site}/{Path(brought).parent} ({why})" in taken


@pytest.mark.parametrize(
    ("requires", "missing"),
    [
        (("cuda-toolkit[cufft]==13.*", "nvidia-nvshmem-cu13"), []),
        (("cuda-toolkit[cublas]==13.*", "nvidia-nvshmem-cu13"), ["libcufft.so.12"]),
        ((), ["libcuda.so.1", "libcufft.so.12", "libnvshmem_host.so.3"]),
    ],
)
def test_what_required_packages_of_a_vendor_bring(
    tmp_path: Path, requires: tuple[str, ...], missing: list[str]
) -> None:
    """A wheel that is judged alone is installed with what METADATA requires; what is not there has to have the name."""
    names = ("libcufft.so.12", "libnvshmem_host.so.3", "libcuda.so.1")
    gone = [shared(tmp_path / "gone" / name, "") for name in names]
    extension = shared(
        tmp_path / "ext.so", "int f(void){return 1;}", needed=gone, flags=["-Wl,--no-as-needed"]
    )
    load = b"import ctypes, os\nctypes.CDLL(os.path.join(os.path.dirname(__file__), 'ext.so'))\n"
    shutil.rmtree(tmp_path / "gone")
    made = make_wheel(
        tmp_path, {"demo/__init__.py": load, "demo/ext.so": extension}, tag=TAG, requires=requires
    )
    found = verify(made, Options())
    errors = [one for one in found.findings if one.level == "error"]
    assert sorted({subject for one in errors for subject in one.subjects}) == missing
    assert found.ok is not bool(missing)


def test_no_file_outside_of_site_packages_is_taken_for_a_packages(works: Works, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    options = works.options(tmp_path / "out", python=str(tmp_path / "env" / "bin" / "python"))
    (site,) = ask_python(str(options.python)).site_packages
    host = shared(tmp_path / "build" / "libplanet.so", "int tensor(void){return 1;}")
    extension = shared(tmp_path / "ext.so", USES, needed=[works.prefix / "lib" / "libhip.so.7", host])
    made = make_wheel(tmp_path, {"demo/ext.so": extension}, tag=TAG, requires=("planet-rocm",))
    unpack([make_wheel(tmp_path, {"planet.py": b""}, name="planet_rocm")], Path(site))
    with (Path(site) / "planet_rocm-1.0.dist-info" / "RECORD").open("a") as record:
        record.write("../../../../build/libplanet.so,,\n")
    assert [found.subject for found in plan(made, options).findings if found.level == "error"] == [
        "libplanet.so"
    ]
