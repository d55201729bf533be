"""beside: what an environment has beside a wheel, and what of that a relinked wheel relies on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from relink import Options, relink, verify
from relink.beside import environment_site
from relink.errors import UsageError
from tests.support.cc import shared
from tests.support.rocm_sdk import Settings, build, tiny_prefix, unpack
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


def found(wheel: Path, environment: Path) -> list[tuple[str, str, str]]:
    result = verify(wheel, Options(environment=str(environment)))
    return [(item.code, item.subject, item.message) for item in result.findings]


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
