"""rocm.places: where a ROCm is found, what says which release it is, and ROCm as pip installs it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.gpu.amd.device import find_local
from relink.loader.target import CacheEntry, LoaderCache, Target, find_target
from relink.planning.case import open_providers
from relink.planning.options import Options
from relink.providers.prefix import open_prefix
from relink.system.errors import ProviderError, SeveralPlacesError, UsageError
from relink.vendors import registry
from relink.vendors.protocol import Place, Release
from relink.vendors.registry import choose_place
from relink.vendors.rocm.places import (
    find_places,
    find_site,
    open_site,
    packages_of,
    prefix_of_libraries,
    release_of,
    site_findings,
)
from relink.vendors.rocm.vendor import rocm as rocm_vendor
from tests.support import therock
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.rocm_sdk import Settings, build, tiny_prefix, unpack
from tests.support.wheels import make_wheel
from tests.support.works import Works
from tests.unit.gpu.amd.test_device import node
from tests.unit.providers.test_prefix import HIP, library, opened, target

TRIPLET = "usr/lib/x86_64-linux-gnu"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root directory without any ROCm."""
    (tmp_path / "root" / "opt").mkdir(parents=True)
    (tmp_path / "root" / TRIPLET).mkdir(parents=True)
    return (tmp_path / "root").resolve()


def rocm(path: Path, release: str) -> None:
    """An installation as AMD's packages make it."""
    library(path / "lib" / HIP)
    (path / ".info").mkdir()
    (path / ".info" / "version").write_text(f"{release}\n")


def cached(root: Path, path: str, soname: str = HIP) -> Target:
    cache = LoaderCache({soname: (CacheEntry(soname, path, 0x0303),)})
    return replace(target(root), cache=cache)


def places(found: Target, **environment: str) -> list[tuple[str, str]]:
    return [(place.path, place.found_by) for place in find_places(found, environment)]


def test_nothing_anywhere(root: Path) -> None:
    library(root / TRIPLET / "libother.so.1")
    assert places(target(root)) == []
    with pytest.raises(UsageError, match="no ROCm: name one by --prefix DIR"):
        choose_place(target(root), {}, own=True)


def test_rocm_path_ends_the_search(root: Path) -> None:
    rocm(root / "opt/rocm", "7.2.4")
    assert places(target(root), ROCM_PATH="/somewhere") == [("/somewhere", "ROCM_PATH")]
    assert places(target(root), ROCM_PATH="") == [("/opt/rocm", "/opt")]


@pytest.mark.parametrize("variable", ["ROCM_PATH", "CRAY_ROCM_PREFIX", "CRAY_ROCM_DIR"])
def test_a_variable_of_a_module_ends_the_search(root: Path, variable: str) -> None:
    """HPE's module sets all three; it is named where the path has its version."""
    rocm(root / "opt/rocm-7.2.4", "7.2.4")
    loaded = {"LOADEDMODULES": "craype/2.7.31:rocm/6.2.4:amd/6.2.4.old", variable: "/opt/rocm-6.2.4"}
    named = Place("/opt/rocm-6.2.4", f"{variable}, module rocm/6.2.4")
    assert find_places(target(root), loaded) == (named,)
    assert choose_place(target(root), loaded, own=False) == named
    assert places(target(root), **loaded | {variable: "/mine"}) == [("/mine", variable)]
    assert places(target(root), **loaded, CRAY_ROCM_VERSION="6.2.4") == [(named.path, named.found_by)]


def test_library_path_comes_before_opt(tmp_path: Path) -> None:
    """A module, or a user, names the directory of libraries alone; two ROCms in it are two."""
    for release in ("6.2.4", "7.2.4"):
        rocm(tmp_path / f"rocm-{release}", release)
    library(tmp_path / "rccl" / "lib" / "librccl.so.1")
    one, other = (tmp_path / f"rocm-{release}" for release in ("6.2.4", "7.2.4"))
    found = {"LD_LIBRARY_PATH": f":{tmp_path}/none:{one}/lib/:relative", "LOADEDMODULES": "amd-mixed/6.2.4"}
    here = target()
    named = Place(str(one), "LD_LIBRARY_PATH, module amd-mixed/6.2.4")
    assert choose_place(here, found, own=True) == named
    assert registry.find_places_beside(here, found, named.path) == ()
    parts = {"LD_LIBRARY_PATH": f"{one}/lib:{one}/lib/rocprofiler:{tmp_path}/rccl/lib"}
    library(one / "lib/rocprofiler/librocprofiler64.so.2")
    beside = registry.find_places_beside(here, parts, str(one))
    assert [(place.path, place.found_by) for place in beside] == [(f"{tmp_path}/rccl", "LD_LIBRARY_PATH")]
    with pytest.raises(UsageError, match="several ROCms are here") as caught:
        choose_place(here, {"LD_LIBRARY_PATH": f"{other}/lib;{one}/lib"}, own=True)
    assert caught.value.issues[0] == f"--prefix {other}  ROCm 7.2.4, found in LD_LIBRARY_PATH"


def test_a_part_of_rocm_in_a_directory_of_its_own(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module has RCCL alone, as Spack installs it; a directory of which the target can load nothing is passed over."""
    rocm(tmp_path / "rocm", "7.2.4")
    rccl = shared(tmp_path / "rccl" / "lib" / "librccl.so.1", "int ncclF(void){return 1;}")
    library(tmp_path / "arm" / "lib" / "librocblas.so.5", machine=183)
    member = shared(tmp_path / "a.so", "int ncclF(void); int f(void){return ncclF();}", needed=[rccl])
    wheel = make_wheel(tmp_path / "vendor", {"demo/a.so": member})
    monkeypatch.setenv("ROCM_PATH", f"{tmp_path}/rocm")
    assert run(wheel, "--dry-run")[0] == 1
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/arm/lib:{tmp_path}/rocm/lib:{tmp_path}/rccl/lib")
    code, out, _ = run(wheel, "--dry-run", "--json")
    providers = json.loads(out)["providers"]
    assert code == 0
    assert [(one["path"], one["found_by"]) for one in providers] == [
        (f"{tmp_path}/rocm", "ROCM_PATH"),
        (f"{tmp_path}/rccl", "LD_LIBRARY_PATH"),
    ]


def test_library_path_is_that_of_this_machine(root: Path) -> None:
    rocm(root / "opt/rocm", "7.2.4")
    rocm(root / str(root)[1:] / "mine", "6.2.4")
    assert places(target(root), LD_LIBRARY_PATH=f"{root}/mine/lib") == [("/opt/rocm", "/opt")]


def test_a_link_in_opt_is_one_installation(root: Path) -> None:
    rocm(root / "opt/rocm-7.2.4", "7.2.4")
    (root / "opt/rocm").symlink_to("rocm-7.2.4")
    assert choose_place(target(root), {}, own=True) == Place("/opt/rocm", "/opt")


def test_todays_packages_lie_side_by_side(tmp_path: Path) -> None:
    therock.native(tmp_path, "7.14.0", "10.1.0")
    assert places(target(tmp_path)) == [("/opt/rocm", "/opt"), ("/opt/rocm/core-7.14", "/opt/rocm")]
    with pytest.raises(UsageError, match="several ROCms are here") as caught:
        choose_place(target(tmp_path), {}, own=True)
    assert caught.value.issues == (
        "--prefix /opt/rocm  ROCm 10.1.0, found in /opt",
        "--prefix /opt/rocm/core-7.14  ROCm 7.14.0, found in /opt/rocm",
    )


def test_debians_is_found_under_usr(root: Path) -> None:
    library(root / TRIPLET / HIP)
    assert places(target(root)) == [("/usr", "/usr")]


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("/srv/rocm/lib", "/srv/rocm"),
        ("/srv/rocm/lib64", "/srv/rocm"),
        ("/srv/rocm/libraries", "/srv/rocm/libraries"),
    ],
)
def test_the_cache_names_libraries(root: Path, path: str, prefix: str) -> None:
    library(root / path.strip("/") / HIP)
    assert places(cached(root, f"{path}/{HIP}")) == [(prefix, "ld.so.cache")]


def test_what_the_cache_names_and_what_lies_there_are_one(root: Path) -> None:
    """ldconfig names /lib of a merged system, and what /etc/ld.so.conf.d has of /opt."""
    library(root / TRIPLET / HIP)
    (root / "lib").symlink_to("usr/lib")
    assert places(cached(root, f"/lib/x86_64-linux-gnu/{HIP}")) == [("/usr", "ld.so.cache")]
    shutil.rmtree(root / TRIPLET)
    rocm(root / "opt/rocm", "7.2.4")
    assert places(cached(root, f"/opt/rocm/lib/{HIP}")) == [("/opt/rocm", "/opt")]


def test_an_entry_of_the_cache_for_another_machine_is_none(root: Path) -> None:
    library(root / "srv/lib" / HIP)
    found = replace(target(root, machine=183), cache=cached(root, f"/srv/lib/{HIP}").cache)
    assert places(found) == []


def test_several_are_listed_and_none_is_taken(root: Path) -> None:
    rocm(root / "opt/rocm-6.2.2", "6.2.2")
    rocm(root / "opt/rocm-7.2.4", "7.2.4")
    library(root / TRIPLET / HIP)
    with pytest.raises(UsageError, match="several ROCms are here; choose one by --prefix") as caught:
        choose_place(target(root), {}, own=True)
    assert caught.value.issues == (
        "--prefix /opt/rocm-6.2.2  ROCm 6.2.2, found in /opt",
        "--prefix /opt/rocm-7.2.4  ROCm 7.2.4, found in /opt",
        "--prefix /usr  ROCm of an unknown release, found in /usr",
    )


def test_several_are_named_by_their_releases(root: Path) -> None:
    """The link hides which release it leads to, and is no ROCm of its own."""
    rocm(root / "opt/rocm-6.4.3", "6.4.3")
    rocm(root / "opt/rocm-7.2.4", "7.2.4")
    (root / "opt/rocm").symlink_to("rocm-7.2.4")
    with pytest.raises(SeveralPlacesError, match="several ROCms are here") as caught:
        choose_place(target(root), {}, own=True)
    assert caught.value.places == ()
    assert caught.value.issues == (
        "--prefix /opt/rocm-6.4.3  ROCm 6.4.3, found in /opt",
        "--prefix /opt/rocm-7.2.4  ROCm 7.2.4, found in /opt",
    )


def test_every_place(root: Path) -> None:
    """A variable hides none, a link is its release, and what lies in or beside a directory is there, too."""
    rocm(root / "opt/rocm-7.2.4", "7.2.4")
    (root / "opt/rocm").symlink_to("/opt/rocm-7.2.4")
    for path in ("mine", "srv/rocm-6.2.2", "srv/rocm/core-7.14"):
        rocm(root / path, "6.2.2")

    def every(near: str, **environment: str) -> list[str]:
        return [place.path for place in registry.find_places(target(root), environment, near)]

    assert every("/") == ["/opt/rocm-7.2.4"]
    assert every("/", ROCM_PATH="/mine") == ["/mine", "/opt/rocm-7.2.4"]
    assert every("/", ROCM_PATH="/none") == ["/opt/rocm-7.2.4"]
    assert every("/srv/rocm") == ["/opt/rocm-7.2.4", "/srv/rocm/core-7.14", "/srv/rocm-6.2.2"]
    assert every("/srv/none") == every("/srv") == ["/opt/rocm-7.2.4", "/srv/rocm-6.2.2"]


def test_nothing_is_guessed_for_another_loader(root: Path) -> None:
    rocm(root / "opt/rocm", "7.2.4")
    with pytest.raises(UsageError, match="no ROCm is guessed with --interpreter or --sysroot") as caught:
        choose_place(target(root), {}, own=False)
    assert caught.value.issues == ("--prefix /opt/rocm  ROCm 7.2.4, found in /opt",)
    assert choose_place(target(root), {"ROCM_PATH": "/r"}, own=False) == Place("/r", "ROCM_PATH")


def test_options_say_whether_the_target_is_another(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCM_PATH", raising=False)
    rocm(root / "opt/rocm", "7.2.4")
    (provider,) = open_providers(Options(), target(root))
    assert (provider.path, provider.found_by) == ("/opt/rocm", "/opt")
    for options in (Options(sysroot=str(root)), Options(interpreter="/lib64/ld-linux-x86-64.so.2")):
        with pytest.raises(UsageError, match="no ROCm is guessed"):
            open_providers(options, target(root))


# Directories that are named


@pytest.mark.parametrize("part", ["lib", "lib64", "lib/x86_64-linux-gnu"])
def test_the_directory_of_libraries_stands_for_its_prefix(tmp_path: Path, part: str) -> None:
    library(tmp_path / "rocm" / part / HIP)
    found = target()
    assert prefix_of_libraries(f"{tmp_path}/rocm/{part}/", found) == f"{tmp_path}/rocm"
    library(tmp_path / "other" / part / "libother.so.1")
    assert prefix_of_libraries(f"{tmp_path}/other/{part}", found) == f"{tmp_path}/other/{part}"


def test_lib_of_a_multiarch_prefix_stands_for_it(tmp_path: Path) -> None:
    library(tmp_path / TRIPLET / HIP)
    assert prefix_of_libraries(f"{tmp_path}/usr/lib", target()) == f"{tmp_path}/usr"


def test_a_root_directory_is_not_a_prefix(tmp_path: Path) -> None:
    library(tmp_path / TRIPLET / HIP)
    with pytest.raises(ProviderError, match=f"but in its usr/: pass --prefix {tmp_path}/usr"):
        opened(tmp_path)


def test_a_prefix_with_releases_beside_each_other(tmp_path: Path) -> None:
    """/opt/rocm of AMD's packages since 7.14, without the link to one of them."""
    for release in ("7.13", "7.14"):
        library(tmp_path / f"core-{release}" / "lib" / HIP)
    with pytest.raises(ProviderError, match="but in its core-") as told:
        opened(tmp_path)
    assert f" --prefix {tmp_path}/core-7.13" in str(told.value)
    assert f" --prefix {tmp_path}/core-7.14" in str(told.value)


@pytest.mark.parametrize("part", [":", "$LIB", "${ORIGIN}"])
def test_a_path_that_no_search_path_can_hold(tmp_path: Path, part: str) -> None:
    """It is told before anything else, whether the directory is there or not."""
    with pytest.raises(ProviderError, match="no search path can hold this directory"):
        opened(tmp_path / f"a{part}" / "b")


# The command line


def test_usr_works_as_a_prefix(run: Run, works: Works, tmp_path: Path) -> None:
    """The system's own libraries are a provider like any other."""
    code, _, err = run(works.wheel(tmp_path, {"demo/plain.so": works.plain}), "--prefix", "/usr", "--dry-run")
    assert (code, err) == (0, "")


@pytest.mark.slow(reason="whole runs; the other places are found without")
def test_the_one_that_was_found_is_told_first(
    run: Run, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCM_PATH", str(works.prefix))
    code, out, _ = run(works.small(tmp_path), "-o", tmp_path / "found")
    assert code == 0
    first = f"with ROCm 7.2.4 in {works.prefix} ($PREFIX, no --prefix: found by ROCM_PATH), for glibc "
    assert out.splitlines()[1].startswith(first)
    data = json.loads(run(works.small(tmp_path), "--dry-run", "--json")[1])
    assert data["providers"][0]["found_by"] == "ROCM_PATH"
    assert (
        "no --prefix" not in run(works.small(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "named")[1]
    )
    (found,), (named,) = ((tmp_path / name).iterdir() for name in ("found", "named"))
    assert found.read_bytes() == named.read_bytes()


def test_doctor_looks_at_every_one(run: Run, works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_PATH", str(works.prefix))
    assert str(works.prefix) in run("doctor")[1]
    assert ", found by ROCM_PATH" in run("doctor")[1]


@pytest.fixture(scope="module")
def here() -> Target:
    return find_target()


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_prefix(tmp_path_factory.mktemp("tiny") / "rocm")


def environment(prefix: Path, root: Path, *settings: Settings) -> Path:
    site = root / "venv" / "lib" / "python3.12" / "site-packages"
    for number, item in enumerate(settings or (Settings(),)):
        work = root / f"work{number}"
        work.mkdir()
        unpack(build(prefix, work, item), site)
    return site


@pytest.mark.parametrize("named", [".", "../../..", "_rocm_sdk_core"])
def test_what_a_user_may_name(prefix: Path, here: Target, tmp_path: Path, named: str) -> None:
    site = environment(prefix, tmp_path)
    assert find_site(str(site / named), here) == str(site)


def test_of_two_pythons_the_targets(prefix: Path, here: Target, tmp_path: Path) -> None:
    assert here.python_facts is not None
    own = f"python3.{here.python_facts.version[1]}"
    site = environment(prefix, tmp_path)
    other = site.parents[1] / own / "site-packages"
    unpack(build(prefix, tmp_path), other)
    assert find_site(str(tmp_path / "venv"), here) == str(other)


def test_an_environment_without_rocm_is_none(here: Target, tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    (site / "rocm_sdk_device_gfx1100-7.2.0.dist-info").mkdir(parents=True)
    (site / "_rocm_sdk_core" / "lib").mkdir(parents=True)  # files that no distribution owns
    assert find_site(str(tmp_path), here) is None


def test_directories_packages_and_release(prefix: Path, here: Target, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path, Settings(version="7.2.4", gpus=("gfx1100", "gfx942")))
    provider = open_site(str(site), here)
    assert [item.removeprefix(f"{site}/") for item in provider.directories] == [
        "_rocm_sdk_core/lib",
        "_rocm_sdk_libraries/lib",
        "_rocm_sdk_core/lib/rocm_sysdeps/lib",
    ]
    assert provider.find("librocm_sysdeps_z.so.1")
    assert provider.find("libhipblas.so.3")
    names = [item.name for item in packages_of(str(site), here)]
    assert [name for name in names if "device" in name] == [
        "rocm-sdk-device-gfx1100",
        "rocm-sdk-device-gfx942",
    ]
    release = release_of(provider)
    assert release is not None
    assert (release.release, release.evidence) == ("7.2.4", "rocm-sdk-core 7.2.4")


def test_a_nonce_is_read_from_the_metadata(prefix: Path, here: Target, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path, Settings(nonce="_7_3_0a1", version="7.3.0a1"))
    provider = open_site(str(site), here)
    assert [item.directory for item in provider.packages] == [
        "_rocm_sdk_core_7_3_0a1",
        "_rocm_sdk_libraries_7_3_0a1",
    ]


@pytest.mark.parametrize(
    ("gpus", "taken"),
    [
        ((), "rocm-sdk-libraries-gfx110X-all"),
        (("gfx942",), "rocm-sdk-libraries-gfx94X-dcgpu"),
        (("gfx1102",), "rocm-sdk-libraries-gfx110X-all"),
    ],
)
def test_of_two_families_the_one_for_the_gpu(
    prefix: Path, here: Target, tmp_path: Path, gpus: tuple[str, ...], taken: str
) -> None:
    families = (Settings(family="gfx94X-dcgpu"), Settings(family="gfx110X-all"))
    site = environment(prefix, tmp_path, *families)
    provider = open_site(str(site), here, gpus)
    assert provider.packages[1].name == taken
    (both,) = [item for item in site_findings(provider, [], here, gpus) if item.code == "RLK532"]
    assert both.message.endswith(f"are installed; {taken} is taken")


@pytest.mark.parametrize(
    ("text", "taken"),
    [("MI300X", "rocm-sdk-libraries-gfx94X-dcgpu"), ("auto", "rocm-sdk-libraries-gfx94X-dcgpu")],
)
def test_a_product_and_auto_take_the_family_of_their_gpu(
    prefix: Path, here: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, taken: str
) -> None:
    site = environment(prefix, tmp_path, Settings(family="gfx94X-dcgpu"), Settings(family="gfx110X-all"))
    root = tmp_path / "root"
    node(root, 1, gfx_target_version=90402)
    local = find_local(str(root), {})
    monkeypatch.setattr(
        registry,
        "VENDORS",
        (replace(rocm_vendor, gpus=replace(rocm_vendor.gpus, find_local=lambda *_: local)),),
    )
    (provider,) = open_providers(Options(prefixes=[str(site)], gpus=[text]), here)
    assert provider.packages[1].name == taken


def test_mixed_releases_where_the_core_has_no_record(prefix: Path, here: Target, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path)
    provider = open_site(str(site), here)
    (core,) = site.glob("rocm_sdk_core-*.dist-info")
    (core / "RECORD").unlink()
    (libraries,) = site.glob("rocm_sdk_libraries-*.dist-info")
    libraries.rename(other := site / "rocm_sdk_libraries-7.2.3.dist-info")
    metadata = (other / "METADATA").read_text()
    (other / "METADATA").write_text(metadata.replace("Version: 7.2.4", "Version: 7.2.3"))
    found = [item for item in site_findings(provider, [], here, ()) if item.code == "RLK531"]
    assert [item.step for item in found] == ["pip install rocm-sdk-libraries==7.2.4"]


def test_neutral_libraries_come_before_a_family(prefix: Path, here: Target, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path, Settings(family="gfx110X-all"), Settings())
    provider = open_site(str(site), here, ("gfx1100",))
    assert provider.packages[1].name == "rocm-sdk-libraries"


def test_damaged_metadata_is_no_package(prefix: Path, here: Target, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path)
    (site / "rocm_sdk_libraries-7.2.4.dist-info" / "METADATA").write_bytes(b"\xff\xfe Name")
    provider = open_site(str(site), here)
    assert [item.name for item in provider.packages] == ["rocm-sdk-core"]
    (site / "rocm_sdk_core-7.2.4.dist-info" / "METADATA").unlink()
    assert find_site(str(site), here) is None


def more(root: Path, site: Path, release: str) -> None:
    """Install the packages of ROCm that are not of its SDK."""
    library = shared(root / "libmigraphx_c.so.3")
    profiler = shared(root / "librocprof-sys.so.1")
    files: dict[str, bytes | Path] = {"migraphx_libs/libmigraphx_c.so.3": library}
    wheels = [make_wheel(root, files, name="migraphx_libs", version=f"2.17.0+rocm{release}")]
    files = {"_rocm_profiler/lib/librocprof-sys.so.1": profiler}
    wheels.append(make_wheel(root, files, name="rocm_profiler", version="7.2.4"))
    wheels.append(
        make_wheel(root, {"rocm_bootstrap/__init__.py": b""}, name="rocm_bootstrap", version="0.1.0")
    )
    unpack(wheels, site)


def test_packages_that_are_not_of_the_sdk(prefix: Path, here: Target, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path)
    more(tmp_path, site, "7.2.1")
    provider = open_site(str(site), here)
    assert provider.find("libmigraphx_c.so.3") == f"{site}/migraphx_libs/libmigraphx_c.so.3"
    assert provider.find("librocprof-sys.so.1") == f"{site}/_rocm_profiler/lib/librocprof-sys.so.1"
    assert [item.directory for item in provider.packages] == [
        "_rocm_sdk_core",
        "_rocm_sdk_libraries",
        "migraphx_libs",
        "_rocm_profiler",
    ]
    assert [*site_findings(provider, [], here, ("gfx1100",))] == []


def test_a_label_of_another_series(prefix: Path, here: Target, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path)
    more(tmp_path, site, "10.0.0")
    provider = open_site(str(site), here)
    (found,) = site_findings(provider, [], here, ("gfx1100",))
    # The label says which ROCm it is for, and no version of it is known for another one.
    assert (found.code, found.step) == ("RLK531", None)
    assert "migraphx_libs 2.17.0+rocm10.0.0" in found.message


def rocm_release(release: str, evidence: str) -> Release:
    return Release(release, evidence, f"rocm{release}")


@pytest.fixture
def laid_out(tmp_path: Path) -> Path:
    return tmp_path.resolve()


Evidence = Callable[[Path], object]


def written(name: str, content: str) -> Evidence:
    def write(root: Path) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)

    return write


def named(*names: str) -> Evidence:
    """A runtime of that file name, with the usual link to it."""

    def write(root: Path) -> None:
        for name in names:
            library(root / "lib" / name)
            link = root / "lib" / ".".join(name.split(".")[:3])
            if not link.exists():
                link.symlink_to(name)

    return write


def rocm_header(numbers: str, name: str = "include/rocm-core/rocm_version.h") -> Evidence:
    parts = zip(("MAJOR", "MINOR", "PATCH"), numbers.split("."), strict=False)
    lines = [f"#define ROCM_VERSION_{part}   {number}" for part, number in parts]
    return written(name, "/* ROCM_VERSION_MAJOR */\n" + "\n".join(lines) + "\n")


def hip_header(numbers: str) -> Evidence:
    major, minor = numbers.split(".")
    content = f"#define HIP_VERSION_MAJOR {major}\n  # define HIP_VERSION_MINOR {minor}\n#define HIP_VERSION_PATCH 53211\n"
    return written("include/hip/hip_version.h", content)


def changelog(version: str, package: str = "libamdhip64-7") -> Evidence:
    name = f"share/doc/{package}/changelog.Debian.gz"
    return written(name, f"rocm-hipamd ({version}) unstable; urgency=medium\n\n  * New upstream.\n")


def manifest(key: str, release: str) -> Evidence:
    return written(MANIFEST, f'{{"the_rock_commit": "", "{key}": "{release}"}}')


AMDS = "libamdhip64.so.7.14.60850-0000000"
HIP_7_2 = "libamdhip64.so.7.2.53211, inferred from HIP 7.2"
MANIFEST = "share/therock/therock_manifest.json"
CHANGELOG = "share/doc/libamdhip64-{}/changelog.Debian.gz"


@pytest.mark.parametrize(
    ("evidence", "release", "source"),
    [
        ([written(".info/version", "7.2.4-93\n")], "7.2.4", ".info/version"),
        ([written(".info/version", "\n6.4\n")], "6.4", ".info/version"),
        ([rocm_header("7.1.1")], "7.1.1", "include/rocm-core/rocm_version.h"),
        ([rocm_header("5.7.0", "include/rocm_version.h")], "5.7.0", "include/rocm_version.h"),
        ([changelog("6.1.2-3")], "6.1.2", CHANGELOG.format(7)),
        ([changelog("1:5.7.1~rc1-2")], "5.7.1", CHANGELOG.format(7)),
        (
            [changelog("7.2.0-1", "libamdhip64-7"), changelog("10.0.1-1", "libamdhip64-10")],
            "10.0.1",
            CHANGELOG.format(10),
        ),
        (
            [changelog("9.9.9-1", "libamdhip64-dev"), changelog("5.7.1-1", "libamdhip64-5")],
            "5.7.1",
            CHANGELOG.format(5),
        ),
        ([named("libamdhip64.so.6.2.60204")], "6.2.4", "libamdhip64.so.6.2.60204"),
        ([named("libamdhip64.so.6.2.60204-a1b2c3")], "6.2.4", "libamdhip64.so.6.2.60204-a1b2c3"),
        ([named("libamdhip64.so.6.2.60104")], "6.2", "libamdhip64.so.6.2.60104, inferred from HIP 6.2"),
        ([named("libamdhip64.so.7.2.53211")], "7.2", "libamdhip64.so.7.2.53211, inferred from HIP 7.2"),
        ([named("libamdhip64.so.6.2.53211", "libamdhip64.so.7.2.53211")], "7.2", HIP_7_2),
        ([named("libamdhip64.so.7.14.60850-0000000")], "7.14", f"{AMDS}, inferred from HIP 7.14"),
        ([named("libamdhip64.so.7.15.26333")], "10.0", "libamdhip64.so.7.15.26333, inferred from HIP 7.15"),
        ([hip_header("7.16")], "10.1", "include/hip/hip_version.h, inferred from HIP 7.16"),
        ([hip_header("7.17"), named("libamdhip64.so.7.17.1")], None, None),
        ([hip_header("7.2")], "7.2", "include/hip/hip_version.h, inferred from HIP 7.2"),
        ([named("librocm-core.so.1.0.71300")], "7.13.0", "librocm-core.so.1.0.71300"),
        ([named("librocm-core.so.1.0.100100")], "10.1.0", "librocm-core.so.1.0.100100"),
        ([manifest("rocm_package_version", "7.13.0rc1")], "7.13.0", MANIFEST),
        ([manifest("rocm_version", "10.1.0"), hip_header("7.14")], "10.1.0", MANIFEST),
        # the more exact and direct one wins
        ([written(".info/version", "7.2.4"), rocm_header("7.2.3")], "7.2.4", ".info/version"),
        ([rocm_header("7.2.3"), changelog("7.2.2-1")], "7.2.3", "include/rocm-core/rocm_version.h"),
        (
            [rocm_header("7.2.3", "include/rocm_version.h"), rocm_header("7.2.9")],
            "7.2.9",
            "include/rocm-core/rocm_version.h",
        ),
        ([changelog("7.2.2-1"), named("libamdhip64.so.6.2.60204")], "7.2.2", CHANGELOG.format(7)),
        ([named("libamdhip64.so.6.2.60204"), hip_header("7.2")], "6.2.4", "libamdhip64.so.6.2.60204"),
        # what says nothing is passed over
        ([written(".info/version", "unknown"), rocm_header("7.1")], None, None),
        (
            [written(".info/version", ""), hip_header("7.1")],
            "7.1",
            "include/hip/hip_version.h, inferred from HIP 7.1",
        ),
        ([named("libamdhip64.so.7"), named("libamdhip64.so.7.2")], None, None),
        ([], None, None),
    ],
)
def test_what_says_which_release_it_is(
    laid_out: Path, evidence: list[Evidence], release: str | None, source: str | None
) -> None:
    library(laid_out / "lib/libother.so.1")
    for one in evidence:
        one(laid_out)
    rocm = release_of(opened(laid_out))
    assert (rocm and rocm.release, rocm and rocm.evidence) == (release, source)


def test_evidence_that_is_damaged_or_not_a_file_does_not_stop_or_stall(laid_out: Path) -> None:
    library(laid_out / "lib" / HIP)
    (laid_out / ".info").mkdir()
    os.mkfifo(laid_out / ".info/version")
    (laid_out / "include/hip").mkdir(parents=True)
    (laid_out / "include/hip/hip_version.h").symlink_to("/dev/zero")
    (laid_out / "include/rocm_version.h").mkdir()
    documents = laid_out / "share/doc/libamdhip64-7"
    documents.mkdir(parents=True)
    whole = gzip.compress(os.urandom(300))
    for damage in (b"", b"no gzip", whole[:20] + b"\xff" * 40 + whole[60:], whole[:-9], whole[:5]):
        (documents / "changelog.Debian.gz").write_bytes(damage)
        assert release_of(opened(laid_out)) is None
    bomb = gzip.compress(b"rocm (7.2.4-1)" + b"\n" * (64 << 20))
    (documents / "changelog.Debian.gz").write_bytes(bomb)
    tracemalloc.start()
    rocm = release_of(opened(laid_out))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rocm
    assert rocm.release == "7.2.4"
    assert peak < 4 << 20


EVIDENCE = {
    ".info/version": "10.1.0",
    "include/rocm-core/rocm_version.h": "10.1.0",
    "share/therock/therock_manifest.json": "10.1.0",
    "lib/librocm-core.so.1": "10.1.0",
    "lib/libamdhip64.so.7": "10.1",
    "include/hip/hip_version.h": "10.1",
}


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return therock.tarball(tmp_path_factory.mktemp("tarball") / "rocm", "10.1.0")


@pytest.mark.parametrize("kind", EVIDENCE)
def test_each_single_kind_of_evidence_tells_the_release_of_a_tarball(
    tarball: Path, tmp_path: Path, kind: str
) -> None:
    root = shutil.copytree(tarball, tmp_path / "rocm", symlinks=True)
    for other in EVIDENCE:
        path = root / other
        if other == kind:
            continue
        if path.is_symlink():  # its real name says it
            real = path.resolve()
            path.unlink()
            real.rename(path)
        else:
            path.unlink()
    found = release_of(opened(root))
    assert found is not None
    assert found.release == EVIDENCE[kind]
    inferred = kind in ("lib/libamdhip64.so.7", "include/hip/hip_version.h")
    assert ("inferred from HIP 7.16" in found.evidence) == inferred


def test_links_of_opt_rocm_are_followed_to_what_says_the_release(tmp_path: Path) -> None:
    rocm = therock.native(tmp_path / "root", "7.14.0", "10.1.0")
    seen = replace(find_target(), sysroot=str(tmp_path / "root"))

    def release(path: str) -> Release | None:
        return release_of(open_prefix(path, seen), seen.sysroot)

    assert release("/opt/rocm") == rocm_release("10.1.0", "/opt/rocm/core-10.1/.info/version")
    assert release("/opt/rocm/core-7.14") == rocm_release("7.14.0", ".info/version")
    chosen = rocm / "core-10.1"
    shutil.rmtree(chosen / ".info")
    assert release("/opt/rocm") == rocm_release("10.1.0", "include/rocm-core/rocm_version.h")
    for gone in ("include", "share"):
        shutil.rmtree(chosen / gone)
    for soname in ("librocm-core.so.1", "libamdhip64.so.7"):
        real = (chosen / "lib" / soname).resolve()
        (chosen / "lib" / soname).unlink()
        real.rename(chosen / "lib" / soname)
    assert release("/opt/rocm") == rocm_release("10.1", "core-10.1")
    chosen.rename(rocm / "other")
    information = tmp_path / "root/var/lib/dpkg/info"
    information.mkdir(parents=True)
    for package in ("amdrocm-runtime10.1", "amdrocm-base10.1", "amdrocm-blas10.1-gfx1100", "amdrocm-base"):
        (information / f"{package}.list").touch()
    assert release("/opt/rocm/other") == rocm_release("10.1", "package amdrocm-base10.1")
    (information / "amdrocm-base7.14.list").touch()
    assert release("/opt/rocm/other") is None
