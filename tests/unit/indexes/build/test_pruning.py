"""index.pruning: old releases go, with their files; what is newest and works stays."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from relink.indexes.build.checking import check_site
from relink.indexes.build.pruning import prune, remove
from relink.system.errors import UsageError
from tests.support.indexes import built, recipe_of
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works


def versions(site: Path) -> list[str]:
    page = json.loads((site / "one/simple/demo/index.json").read_text())
    return [version.partition("+")[0] for version in page["versions"]]


def test_old_releases(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("1.0", "1.1", "1.2"):
        make_wheel(tmp_path / "wheels", {"demo/a.so": works.library}, version=version, tag=TAG)
    make_wheel(tmp_path / "wheels", {"demo/a.so": works.lost}, version="2.0", tag=TAG)
    recipe, site = recipe_of(tmp_path, works), tmp_path / "site"
    built(recipe, site, monkeypatch)
    assert versions(site) == ["1.0", "1.1", "1.2"]
    assert prune(recipe, site, 3)[0] == 1
    assert versions(site) == ["1.1", "1.2"]
    gone = prune(recipe, site, 1)  # the newest, which was refused; and the newest that works
    assert gone[:2] == (1, 0)
    assert versions(site) == ["1.2"]
    files = site.with_name("site.relink") / "files"
    for directory in files.glob("??/*"):
        os.utime(directory, (0, 0))
    gone = prune(recipe, site, 1)
    assert gone[:2] == (0, 2)
    assert len(list(files.glob("*/*/*.whl"))) == 1
    for wheel in (tmp_path / "wheels").glob("demo-1.[01]*"):
        wheel.unlink()
    assert built(recipe, site, monkeypatch).ran == []
    with pytest.raises(UsageError, match="is no site"):
        prune(recipe, tmp_path / "other", 1)


def test_a_release_is_taken_out(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files at once, those that were superseded, too; and it stays out where the recipe denies it."""
    for version in ("1.0", "1.1"):
        make_wheel(tmp_path / "wheels", {"demo/a.so": works.library}, version=version, tag=TAG)
    recipe, site = recipe_of(tmp_path, works), tmp_path / "site"
    built(recipe, site, monkeypatch)
    gone = remove(recipe, site, Requirement("Demo==1.0"))
    assert gone[:2] == (1, 1)
    assert versions(site) == ["1.1"]
    assert check_site(site).problems == ()
    assert [row["version"] for row in json.loads((site / "matrix.json").read_text())["rows"]] == ["1.1"]
    denying = recipe_of(tmp_path, works, head='deny = ["demo<1.1"]')
    assert built(denying, site, monkeypatch).ran == []
    assert len(built(recipe, site, monkeypatch).ran) == 1  # the source still has it
    page = json.loads((site / "one/simple/demo/index.json").read_text())
    assert [file["filename"].split("-")[1] for file in page["files"]] == [
        "1.0+rocm7.2.4.2",
        "1.1+rocm7.2.4.1",
    ]
    built(denying, site, monkeypatch)
    assert versions(site) == ["1.1"]
    assert remove(recipe, site, Requirement("demo"))[1] == 2
    assert not (site / "one/simple/demo").exists()


def test_a_prune_that_is_killed_leaves_directories_whole(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(tmp_path / "wheels", {"demo/a.so": works.library}, tag=TAG)
    recipe, site = recipe_of(tmp_path, works), tmp_path / "site"
    built(recipe, site, monkeypatch)
    files = site.with_name("site.relink") / "files"

    removed: list[object] = []
    unlink = os.unlink

    def killed(path: str, **more: int) -> None:
        """The first file of a wheel goes, and the second one does no more."""
        if os.fspath(path).endswith((".whl", ".metadata", ".json")):
            if removed:
                raise KeyboardInterrupt
            removed.append(path)
        unlink(path, **more)

    with monkeypatch.context() as patch:
        patch.setattr("os.unlink", killed)
        with contextlib.suppress(KeyboardInterrupt):
            remove(recipe, site, Requirement("demo"))
    assert removed
    assert [path for path in files.glob("??/*") if len(list(path.iterdir())) != 4] == []
