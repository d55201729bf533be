"""vendors.rocm.sdk_packages: which packages of ROCm a site-packages has, and which of their directories hold libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.loader.target import Target, find_target
from relink.vendors.rocm.installation import release_of
from relink.vendors.rocm.sdk_packages import SitePackages, find_site, open_site, packages_of
from tests.support.cc import shared
from tests.support.rocm_sdk import Settings, build, tiny_prefix, unpack
from tests.support.wheels import make_wheel


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_prefix(tmp_path_factory.mktemp("tiny") / "rocm")


@pytest.fixture(scope="module")
def target() -> Target:
    return find_target()


def environment(prefix: Path, root: Path, *settings: Settings) -> Path:
    site = root / "venv" / "lib" / "python3.12" / "site-packages"
    for number, item in enumerate(settings or (Settings(),)):
        work = root / f"work{number}"
        work.mkdir()
        unpack(build(prefix, work, item), site)
    return site


@pytest.mark.parametrize("named", [".", "../../..", "_rocm_sdk_core"])
def test_what_a_user_may_name(prefix: Path, target: Target, tmp_path: Path, named: str) -> None:
    site = environment(prefix, tmp_path)
    assert find_site(str(site / named), target) == str(site)


def test_of_two_pythons_the_targets(prefix: Path, target: Target, tmp_path: Path) -> None:
    assert target.python_facts is not None
    own = f"python3.{target.python_facts.version[1]}"
    site = environment(prefix, tmp_path)
    other = site.parents[1] / own / "site-packages"
    unpack(build(prefix, tmp_path), other)
    assert find_site(str(tmp_path / "venv"), target) == str(other)


def test_an_environment_without_rocm_is_none(target: Target, tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    (site / "rocm_sdk_device_gfx1100-7.2.0.dist-info").mkdir(parents=True)
    (site / "_rocm_sdk_core" / "lib").mkdir(parents=True)  # files that no distribution owns
    assert find_site(str(tmp_path), target) is None


def test_directories_packages_and_release(prefix: Path, target: Target, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path, Settings(version="7.2.4", gpus=("gfx1100", "gfx942")))
    found = SitePackages(str(site), packages_of(str(site), target))
    provider = open_site(str(site), target)
    assert [item.removeprefix(f"{site}/") for item in provider.directories] == [
        "_rocm_sdk_core/lib",
        "_rocm_sdk_libraries/lib",
        "_rocm_sdk_core/lib/rocm_sysdeps/lib",
    ]
    assert provider.find("librocm_sysdeps_z.so.1")
    assert provider.find("libhipblas.so.3")
    assert found.devices == ("gfx1100", "gfx942")
    release = release_of(provider)
    assert release is not None
    assert (release.release, release.evidence) == ("7.2.4", "rocm-sdk-core 7.2.4")


def test_a_nonce_is_read_from_the_metadata(prefix: Path, target: Target, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path, Settings(nonce="_7_3_0a1", version="7.3.0a1"))
    provider = open_site(str(site), target)
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
    prefix: Path, target: Target, tmp_path: Path, gpus: tuple[str, ...], taken: str
) -> None:
    families = (Settings(family="gfx94X-dcgpu"), Settings(family="gfx110X-all"))
    site = environment(prefix, tmp_path, *families)
    found = SitePackages(str(site), packages_of(str(site), target))
    provider = open_site(str(site), target, gpus)
    assert provider.packages[1].name == taken
    assert len(found.libraries) == 2


def test_neutral_libraries_come_before_a_family(prefix: Path, target: Target, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path, Settings(family="gfx110X-all"), Settings())
    provider = open_site(str(site), target, ("gfx1100",))
    assert provider.packages[1].name == "rocm-sdk-libraries"


def test_damaged_metadata_is_no_package(prefix: Path, target: Target, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path)
    (site / "rocm_sdk_libraries-7.2.4.dist-info" / "METADATA").write_bytes(b"\xff\xfe Name")
    provider = open_site(str(site), target)
    assert [item.name for item in provider.packages] == ["rocm-sdk-core"]
    (site / "rocm_sdk_core-7.2.4.dist-info" / "METADATA").unlink()
    assert find_site(str(site), target) is None


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


def test_packages_that_are_not_of_the_sdk(prefix: Path, target: Target, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path)
    more(tmp_path, site, "7.2.1")
    found = SitePackages(str(site), packages_of(str(site), target))
    provider = open_site(str(site), target)
    assert provider.find("libmigraphx_c.so.3") == f"{site}/migraphx_libs/libmigraphx_c.so.3"
    assert provider.find("librocprof-sys.so.1") == f"{site}/_rocm_profiler/lib/librocprof-sys.so.1"
    assert [item.directory for item in provider.packages] == [
        "_rocm_sdk_core",
        "_rocm_sdk_libraries",
        "migraphx_libs",
        "_rocm_profiler",
    ]
    assert found.strangers == ()


def test_a_label_of_another_series(prefix: Path, target: Target, tmp_path: Path) -> None:
    site = environment(prefix, tmp_path)
    more(tmp_path, site, "10.0.0")
    found = SitePackages(str(site), packages_of(str(site), target))
    assert [item.name for item in found.strangers] == ["migraphx_libs"]
