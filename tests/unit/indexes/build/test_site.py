"""index.site: what is published of which result. tests/unit/indexes/build/test_building.py has whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relink.indexes.build.checking import check_site
from relink.indexes.build.recipe import IndexTarget, Recipe
from relink.indexes.build.site import publish_site
from relink.indexes.build.site_diff import site_diff
from relink.indexes.build.store import Store
from relink.system.errors import UsageError
from tests.unit.indexes.build.test_matrix import STATE, record

TARGET = IndexTarget("one", ("/x",))
SHA = "ab" * 32


def result(status: str) -> dict[str, Any]:
    wheel: dict[str, Any] = {"filename": "demo-1.0-py3-none-any.whl", "url": "https://x.test/demo-1.0-py3-none-any.whl",
             "requires_python": None, "size": 5}  # fmt: skip
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
    recipe = Recipe(Path("x"), ((3, 12),), (), (TARGET,), originals=originals, superseded=0)
    site = tmp_path / "site"
    with Store(site) as store:
        stored = store.keep("key", SHA, "one", "1", facts, None, ("demo", "1.0", 1))
        publish_site(store, site, recipe, {"one": STATE}, {(SHA, "one"): stored}, {})
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


def test_a_large_site_has_a_page_for_each_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.indexes.build.site.ONE_PAGE", 2)
    recipe, site, results = Recipe(Path("x"), ((3, 12),), (), (TARGET,)), tmp_path / "site", {}
    with Store(site) as store:
        for name in ("demo-1.0", "demo-2.0", "Other_One-1.0"):
            facts = result("refused")
            facts["wheel"]["filename"] = f"{name}-py3-none-any.whl"
            results[name, "one"] = store.keep(name, name, "one", "1", facts, None, (name, "1.0", 1))
        assert publish_site(store, site, recipe, {"one": STATE}, results, {}).red == 3
        assert not publish_site(store, site, recipe, {"one": STATE}, results, {}).changed
    data = json.loads((site / "matrix.json").read_text())
    assert data["projects"] == ["demo", "other-one"]
    assert [(row["project"], row["version"]) for row in data["rows"]] == [
        ("demo", "2.0"),
        ("other-one", "1.0"),
    ]
    own = json.loads((site / "projects/demo.json").read_text())
    assert [row["version"] for row in own["rows"]] == ["1.0", "2.0"]
    assert {change["project"] for change in own["changes"]} == {"demo"}
    page = (site / "projects/demo.html").read_text()
    for link in ("../index.html", "demo.json", "../changes.atom", "../one/find-links.html"):
        assert f'href="{link}"' in page
        assert (site / "projects" / link).resolve().is_file()
    assert check_site(site, 0, {}).problems == ()
    assert site_diff(site, site) == ()
    (site / "projects/demo.html").unlink()
    own["rows"].pop()
    (site / "projects/demo.json").write_text(json.dumps(own))
    assert check_site(site, 0, {}).problems == (
        "projects/demo.json: lacks what matrix.json has of it",
        "projects/demo.json: there is no page of it",
    )
    (site / "projects/demo.json").unlink()
    assert "projects/demo.json: cannot be read" in check_site(site, 0, {}).problems[0]
    with pytest.raises(UsageError, match="is no site that this relink reads"):
        site_diff(site, site)
    data["projects"] = ["/etc/demo"]
    (site / "matrix.json").write_text(json.dumps(data))
    with pytest.raises(UsageError, match="is no site that this relink reads"):
        site_diff(site, site)
    assert "name is invalid" in check_site(site, 0, {}).problems[0]
