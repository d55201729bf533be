"""index.pages: what pip, uv and relink itself read of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from packaging.utils import canonicalize_name

from relink.indexes.build.pages import list_pages, listed_file, project_pages
from relink.indexes.build.simple_api import read_page
from relink.indexes.build.web import Page

SHA, OTHER = "ab" * 32, "cd" * 32
ROW: dict[str, Any] = {
    "filename": "Demo_Pkg-1.0-py3-none-linux_x86_64.whl",
    "input": OTHER,
    "status": "written",
}
ROW |= {"yanked": None, "uploaded": None, "allocated": None}
FILE = {
    "filename": "Demo_Pkg-1.0+rocm7.2-py3-none-linux_x86_64.whl",
    "sha256": SHA,
    "size": 10,
    "requires_python": None,
    "metadata": OTHER,
}
RECORD = {"file": FILE, "wheel": {"url": "https://x.test/y.whl", "requires_python": ">=3.11", "size": 5}}


def listed(record: dict[str, Any] = RECORD, **row: Any) -> dict[str, Any]:
    found = listed_file(ROW | row, record, "link")
    assert found is not None
    return found


def test_both_forms_say_the_same() -> None:
    address = "https://x.test/demo_pkg-2.0-py3-none-any.whl"
    wheel = {"url": address, "requires_python": ">=3.11", "size": None}
    linked = listed(
        {"file": None, "wheel": wheel},
        filename="demo_pkg-2.0-py3-none-any.whl",
        status="original",
        yanked='"bad" <b>',
        uploaded="2026-01-01T00:00:00Z",
        input=SHA,
    )
    assert linked["upload-time"] == "2026-01-01T00:00:00Z"
    pages = project_pages("demo-pkg", [linked, listed(yanked=None, allocated=86400.0)])
    base = "https://site.test/one/simple/demo-pkg/"
    project = canonicalize_name("demo-pkg")
    by_html = read_page(Page(base, "text/html", pages["index.html"]), project)
    by_json = read_page(Page(base, "application/json", pages["index.json"]), project)
    assert by_html[1] == by_json[1] == ()
    assert [replace(wheel, size=None, uploaded=None) for wheel in by_json[0]] == list(by_html[0])
    first, second = by_html[0]
    assert first.url == f"https://site.test/files/ab/{SHA}/Demo_Pkg-1.0%2Brocm7.2-py3-none-linux_x86_64.whl"
    assert (first.sha256, first.requires_python, first.yanked) == (SHA, ">=3.11", None)
    assert (second.yanked, second.url) == ('"bad" <b>', address)
    data = json.loads(pages["index.json"])
    assert data["meta"] == {"api-version": "1.0"}  # a size is missing, which 1.1 requires
    assert data["versions"] == ["1.0+rocm7.2", "2.0"]
    assert data["files"][0]["core-metadata"] == {"sha256": OTHER}
    assert data["files"][0]["upload-time"] == "1970-01-02T00:00:00.000000Z"
    assert "core-metadata" not in data["files"][1]
    assert f'data-core-metadata="sha256={OTHER}"'.encode() in pages["index.html"]
    assert json.loads(project_pages("demo-pkg", [listed()])["index.json"])["meta"] == {"api-version": "1.1"}


def test_the_list_of_projects() -> None:
    pages = list_pages("one", ["demo-pkg"])
    assert b'<a href="demo-pkg/">' in pages["index.html"]
    assert json.loads(pages["index.json"])["projects"] == [{"name": "demo-pkg"}]


def test_a_name_has_one_content() -> None:
    other = listed({**RECORD, "file": FILE | {"sha256": "ff" * 32}})
    pages = project_pages("demo-pkg", [other, listed()])
    assert [file["hashes"]["sha256"] for file in json.loads(pages["index.json"])["files"]] == [SHA]
