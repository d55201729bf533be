"""A store for the tests, removed when they are done."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from relink.providers import nix_store
from tests.nix.stores import C_CLR, C_CXX, Nix, make_store, remove_store
from tests.nix.worlds import world
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import TAG

__all__ = ["world"]


@pytest.fixture(scope="session")
def nix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nix]:
    root = Path(os.path.realpath(tmp_path_factory.mktemp("nix")))
    made = make_store(root)
    yield made
    remove_store(root)


@pytest.fixture
def in_store(nix: Nix, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nix]:
    """The same store for relink in this process."""
    for name, value in nix.environment.items():
        monkeypatch.setenv(name, value)
    nix_store.store_directory_by_nix.cache_clear()
    yield nix
    nix_store.store_directory_by_nix.cache_clear()


@pytest.fixture(scope="session")
def vendor_files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A library that the vendor linked with ROCm 7, libstdc++, and rocm-smi under the other of its two sonames."""
    root = tmp_path_factory.mktemp("vendor")
    hip = shared(root / "libamdhip64.so.7", C_CLR)
    smi = shared(root / "librocm_smi64.so.7", "int rsmi_init(void){return 2;}")
    cxx = shared(root / "libstdc++.so.6", C_CXX)
    source = "extern int hip_init(void), rsmi_init(void), cxx(void); int g(void){return hip_init() + rsmi_init() + cxx();}"
    path = "-Wl,--enable-new-dtags,-rpath,$ORIGIN:/opt/rocm/lib"
    library = shared(root / "a.so", source, needed=[hip, smi, cxx], flags=[path])
    return {"demo/a.so": library, "demo/plain.so": shared(root / "plain.so", "int p(void){return 1;}")}


@pytest.fixture
def vendor_wheel(vendor_files: Mapping[str, Path], tmp_path: Path) -> Path:
    return make_wheel(
        tmp_path / "wheel", {"demo/__init__.py": b"", **vendor_files}, tag=TAG, requires=("numpy",)
    )


@pytest.fixture
def lost_wheel(tmp_path: Path) -> Path:
    """It needs a library that nobody has."""
    lost = shared(tmp_path / "librccl.so.1", "int ncclInit(void){return 1;}")
    library = shared(
        tmp_path / "s.so", "extern int ncclInit(void); int s(void){return ncclInit();}", needed=[lost]
    )
    return make_wheel(tmp_path / "wheel", {"demo/__init__.py": b"", "demo/s.so": library}, tag=TAG)
