"""index.starting_recipe: what it writes is a recipe, of what this machine has."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from relink.indexes.build.recipe import read_recipe
from relink.indexes.build.starting_recipe import starting_recipe
from tests.support.works import Works


def test_of_what_is_there(works: Works, tmp_path: Path) -> None:
    works.small(tmp_path)
    (tmp_path / "uv.lock").touch()
    (tmp_path / "index.toml").write_text(starting_recipe(tmp_path, {"ROCM_PATH": str(works.prefix)}))
    recipe = read_recipe(tmp_path / "index.toml")
    assert sys.version_info[:2] in recipe.pythons
    assert [source.kind for source in recipe.sources] == ["directory", "lock"]
    assert [target.prefixes for target in recipe.targets] == [(str(works.prefix),)]
    assert [target.name for target in recipe.targets] == ["rocm"]


def test_where_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.indexes.build.starting_recipe.find_places", lambda *_: ())
    text = starting_recipe(tmp_path, os.environ)
    assert "No ROCm was found" in text
    (tmp_path / "index.toml").write_text(text)
    recipe = read_recipe(tmp_path / "index.toml")
    assert [(source.kind, source.place) for source in recipe.sources] == [("index", "pip")]
