"""index.site: what is published of which result. tests/unit/indexes/build/test_building.py has whole runs.

A site appears whole, and where something else is nothing is written.
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from relink.indexes.build.checking import check_site
from relink.indexes.build.recipe import IndexTarget, Recipe
from relink.indexes.build.site import atom_feed, check_place, publish_site, publishing, shows
from relink.indexes.build.store import Store
from relink.system.errors import UsageError
from tests.unit.indexes.build.test_matrix import FACTS, record

TARGET = IndexTarget("one", ("/x",))
SHA = "ab" * 32


def keep(store: Store, status: str, name: str = "demo-1.0") -> None:
    filename = f"{name}-py3-none-any.whl"
    wheel = {"url": f"https://x.test/{filename}", "requires_python": None, "size": 5}
    file: dict[str, Any] = {"filename": filename, "sha256": SHA, "size": 5, "requires_python": None}
    file |= {"metadata": SHA, "statement": False}
    facts = {"project": name.rpartition("-")[0].lower().replace("_", "-"), "version": name.rpartition("-")[2]}
    facts |= {
        "filename": filename,
        "target": "one",
        "input": SHA,
        "key": "key",
        "relink": "1",
        "status": status,
    }
    store.keep(facts, 1, {**record(), "wheel": wheel, "file": None if status == "refused" else file}, None)


def recipe_with(originals: str = "mirror") -> Recipe:
    return Recipe(Path("x"), ((3, 12),), (), (TARGET,), originals=originals, superseded=0)


def addresses(tmp_path: Path, originals: str, status: str) -> list[str]:
    site = tmp_path / "site"
    with Store(site) as store:
        store.begin({"one": FACTS})
        keep(store, status)
        publish_site(store, site, recipe_with(originals))
    page = site / "one/simple/demo/index.json"
    return [file["url"] for file in json.loads(page.read_text())["files"]] if page.exists() else []


def test_what_an_index_has(tmp_path: Path) -> None:
    own = f"../../../files/ab/{SHA}/demo-1.0-py3-none-any.whl"
    assert addresses(tmp_path, "mirror", "written") == [own]
    assert addresses(tmp_path, "omit", "written") == [own]
    assert addresses(tmp_path, "mirror", "original") == [own]
    assert addresses(tmp_path, "link", "original") == ["https://x.test/demo-1.0-py3-none-any.whl"]
    assert addresses(tmp_path, "omit", "original") == []
    assert addresses(tmp_path, "mirror", "refused") == []


def test_changes_are_noted_once(tmp_path: Path) -> None:
    for _ in range(2):
        addresses(tmp_path, "mirror", "written")
    addresses(tmp_path, "mirror", "refused")
    changes = json.loads((tmp_path / "site/matrix.json").read_text())["changes"]
    assert [(one["before"], one["after"], one["text"]) for one in changes] == [
        ("written", "refused", "t"),
        (None, "written", "t"),
    ]


def test_a_large_site_has_a_page_for_each_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.indexes.build.site.ONE_PAGE", 2)
    site = tmp_path / "site"
    with Store(site) as store:
        store.begin({"one": FACTS})
        for name in ("demo-1.0", "demo-2.0", "Other_One-1.0"):
            keep(store, "refused", name)
        assert publish_site(store, site, recipe_with())
        assert not publish_site(store, site, recipe_with())
        assert store.count("refused", "failed") == 3
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
    for link in ("demo.json", "../changes.atom"):
        assert f'href="{link}"' in page
        assert (site / "projects" / link).resolve().is_file()
    assert check_site(site).problems == ()
    (site / "projects/demo.html").unlink()
    own["rows"].pop()
    (site / "projects/demo.json").write_text(json.dumps(own))
    assert check_site(site).problems == (
        "projects/demo.json: lacks what matrix.json has of it",
        "projects/demo.json: there is no page of it",
    )
    (site / "projects/demo.json").unlink()
    assert "projects/demo.json: cannot be read" in check_site(site).problems[0]
    data["projects"] = ["/etc/demo"]
    (site / "matrix.json").write_text(json.dumps(data))
    assert "name is invalid" in check_site(site).problems[0]


ATOM = "{http://www.w3.org/2005/Atom}"
CHANGE = {
    "project": "demo",
    "version": "1.0",
    "wheel": "demo-1.0-py3-none-any.whl",
    "target": "one",
    "before": None,
    "after": "written",
    "text": "]]><script>\x00\x1b[2J",
}


SITE_ID = "6a0c7d58-2f4c-5d0f-9f2e-0d7f5e6b1a37"


def parsed(*changes: tuple[float, dict[str, str | None]], site: str = SITE_ID) -> ET.Element:
    told = [{"time": time, **change} for time, change in changes]
    return ET.fromstring(atom_feed("Changes", uuid.UUID(site), told))  # noqa: S314 (relink's own)


def test_entries() -> None:
    feed = parsed((86400.0, CHANGE), (0.0, CHANGE))
    assert feed.findtext(f"{ATOM}updated") == "1970-01-02T00:00:00Z"
    first, second = feed.findall(f"{ATOM}entry")
    assert first.findtext(f"{ATOM}title") == "demo 1.0 for one: written"
    assert "<script>\\x00\\x1b[2J" in (first.findtext(f"{ATOM}content") or "")
    ids = {entry.findtext(f"{ATOM}id") for entry in (feed, first, second)}
    assert len(ids) == 3
    assert parsed().findall(f"{ATOM}entry") == []


def test_sites_have_their_own_ids() -> None:
    one, other = parsed((0.0, CHANGE)), parsed((0.0, CHANGE), site=SITE_ID.replace("6", "7"))
    for path in (f"{ATOM}id", f"{ATOM}entry/{ATOM}id"):
        assert one.findtext(path) != other.findtext(path)


def publish(store: Store, site: Path, text: str) -> None:
    with publishing(store, site, text) as write:
        write("one/index.html", text.encode())


def test_old_or_new(tmp_path: Path) -> None:
    site = tmp_path / "site"
    with Store(site) as store:
        (store.files / "x").write_text("wheel")
        assert not shows(site, "old")
        publish(store, site, "old")
        assert (site / "one/index.html").read_text() == "old"
        assert (site / "files/x").read_text() == "wheel"
        first = site.resolve()
        assert shows(site, "old")
        assert not shows(site, "new")

        def interrupted() -> None:
            with publishing(store, site, "half") as write:
                write("one/index.html", b"half")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert (site / "one/index.html").read_text() == "old"
        assert shows(site, "old")
        publish(store, site, "new")
        assert (site / "one/index.html").read_text() == "new"
        assert (first / "one/index.html").read_text() == "old"  # a web server may still read it
        publish(store, site, "newer")
        assert not first.exists()
        assert len(os.listdir(store.sites)) == 2
    (tmp_path / "moved").mkdir()
    for path in (site, site.with_name("site.relink")):
        path.rename(tmp_path / "moved" / path.name)
    assert (tmp_path / "moved/site/one/index.html").read_text() == "newer"  # links are relative


@pytest.mark.parametrize("what", ["file", "directory", "link"])
def test_something_else_is_left_alone(tmp_path: Path, what: str) -> None:
    site = tmp_path / "site"
    if what == "file":
        site.touch()
    elif what == "directory":
        site.mkdir()
    else:
        site.symlink_to("/nowhere")
    with pytest.raises(UsageError, match="is no site of relink"):
        check_place(site)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    site = tmp_path / "site"
    with Store(site) as store:
        (store.directory / "next").mkdir()
        (store.directory / "next" / "x").touch()
        with pytest.raises(UsageError, match="the site cannot be written"):
            publish(store, site, "x")
