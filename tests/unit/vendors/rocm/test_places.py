"""rocm.places: which ROCm is taken where none was named, and when the user is asked."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from relink.loader.cache import CacheEntry, LoaderCache
from relink.loader.target import Target
from relink.planning.options import Options
from relink.planning.wheel_plan import open_providers
from relink.system.errors import ProviderError, UsageError
from relink.vendors.protocol import Place
from relink.vendors.registry import choose_place
from relink.vendors.rocm.places import find_places, prefix_of_libraries
from tests.support import therock
from tests.support.command import Run
from tests.support.works import Works
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
