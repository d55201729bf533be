"""trees.managed: whose tree it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.trees.managed import keeper_of


def test_a_users_own(tmp_path: Path) -> None:
    assert keeper_of(tmp_path) is None
    site = tmp_path / "venv/lib/python3.11/site-packages"
    site.mkdir(parents=True)
    assert keeper_of(site) is None


@pytest.mark.parametrize(
    ("path", "keeper"),
    [
        ("/usr", "system"),
        ("/usr/lib/python3", "system"),
        ("/usr/local", None),
        ("/usr/local/lib/rocm", None),
        ("/nix/store/x-rocm", "Nix"),
        ("/opt/rocm-7", None),
    ],
)
def test_by_the_path(path: str, keeper: str | None) -> None:
    found = keeper_of(Path(path))
    assert found is None if keeper is None else keeper in str(found)


def test_conda_keeps_an_environment_and_not_an_unpacked_package(tmp_path: Path) -> None:
    (tmp_path / "env/conda-meta").mkdir(parents=True)
    (tmp_path / "env/conda-meta/history").touch()
    (tmp_path / "env/lib/x").mkdir(parents=True)
    (tmp_path / "pkgs/rocm-7-0/info").mkdir(parents=True)
    assert "conda" in str(keeper_of(tmp_path / "env/lib/x"))
    assert keeper_of(tmp_path / "pkgs/rocm-7-0") is None


def test_site_packages_that_are_externally_managed(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    (site / "pkg").mkdir(parents=True)
    (site.parent / "EXTERNALLY-MANAGED").touch()
    assert "EXTERNALLY-MANAGED" in str(keeper_of(site / "pkg"))
