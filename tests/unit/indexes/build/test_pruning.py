"""index.pruning: old releases go, with their files; what is newest and works stays."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from relink.indexes.build.pruning import prune
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
    assert prune(recipe, site, 3).results == 1
    assert versions(site) == ["1.1", "1.2"]
    gone = prune(recipe, site, 1)  # the newest, which was refused; and the newest that works
    assert (gone.results, gone.files) == (1, 0)
    assert versions(site) == ["1.2"]
    files = site.with_name("site.relink") / "files"
    for directory in files.glob("??/*"):
        os.utime(directory, (0, 0))
    gone = prune(recipe, site, 1)
    assert (gone.results, gone.files) == (0, 2)
    assert len(list(files.glob("*/*/*.whl"))) == 1
    for wheel in (tmp_path / "wheels").glob("demo-1.[01]*"):
        wheel.unlink()
    assert built(recipe, site, monkeypatch).ran == []
    with pytest.raises(UsageError, match="is no site"):
        prune(recipe, tmp_path / "other", 1)
