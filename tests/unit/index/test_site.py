"""index.site: what is published of which result. tests/unit/index/test_building.py has whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relink.index.recipe import IndexTarget, Recipe
from relink.index.site import publish_site
from relink.index.sources import Listing
from relink.index.store import Store
from tests.unit.index.test_matrix import STATE, record

TARGET = IndexTarget("one", ("/x",))
SHA = "ab" * 32


def result(status: str) -> dict[str, Any]:
    wheel: dict[str, Any] = {"filename": "demo-1.0-py3-none-any.whl", "url": "https://x.test/demo-1.0-py3-none-any.whl",
             "requires_python": None, "yanked": None, "size": 5}  # fmt: skip
    file: dict[str, Any] = {
        "filename": wheel["filename"],
        "sha256": SHA,
        "size": 5,
        "requires_python": None,
        "metadata": SHA,
        "beside": [],
    }
    return {"status": status, **record(), "wheel": wheel, "file": None if status == "refused" else file}


def addresses(tmp_path: Path, originals: str, facts: dict[str, Any]) -> list[str]:
    recipe = Recipe(Path("x"), ((3, 12),), (), (TARGET,), originals=originals)
    site = tmp_path / "site"
    with Store(site) as store:
        stored = store.keep("key", SHA, "one", "1", facts, None)
        publish_site(store, site, recipe, {"one": STATE}, Listing(()), {(SHA, "one"): stored}, {})
    page = site / "one/simple/demo/index.json"
    return [file["url"] for file in json.loads(page.read_text())["files"]] if page.exists() else []


def test_what_an_index_has(tmp_path: Path) -> None:
    own = f"../../../files/ab/{SHA}/demo-1.0-py3-none-any.whl"
    assert addresses(tmp_path, "mirror", result("written")) == [own]
    assert addresses(tmp_path, "omit", result("written")) == [own]
    assert addresses(tmp_path, "mirror", result("original")) == [own]
    assert addresses(tmp_path, "link", result("original")) == ["https://x.test/demo-1.0-py3-none-any.whl"]
    assert addresses(tmp_path, "omit", result("original")) == []
    assert addresses(tmp_path, "mirror", result("refused")) == []


def test_changes_are_noted_once(tmp_path: Path) -> None:
    for _ in range(2):
        addresses(tmp_path, "mirror", result("written"))
    addresses(tmp_path, "mirror", result("refused"))
    changes = json.loads((tmp_path / "site/matrix.json").read_text())["changes"]
    assert [(one["before"], one["after"]) for one in changes] == [("written", "refused"), (None, "written")]
