"""index.pages: what pip, uv and relink itself read of them."""

from __future__ import annotations

import json
from dataclasses import replace

from packaging.utils import canonicalize_name

from relink.indexes.build.pages import SiteFile, list_pages, project_pages
from relink.indexes.build.simple_api import read_page
from relink.indexes.build.web import Page
from relink.wheel.naming import parse_wheel_name

SHA, OTHER = "ab" * 32, "cd" * 32
FILE = SiteFile(
    parse_wheel_name("Demo_Pkg-1.0+rocm7.2-py3-none-linux_x86_64.whl"), SHA, 10, ">=3.11", None, None, OTHER
)


def test_both_forms_say_the_same() -> None:
    linked = replace(FILE, name=parse_wheel_name("demo_pkg-2.0-py3-none-any.whl"), yanked='"bad" <b>', metadata=None,
                     url="https://x.test/demo_pkg-2.0-py3-none-any.whl", size=None)  # fmt: skip
    pages = project_pages("demo-pkg", [linked, FILE])
    base = "https://site.test/one/simple/demo-pkg/"
    project = canonicalize_name("demo-pkg")
    by_html = read_page(Page(base, "text/html", pages["index.html"]), project)
    by_json = read_page(Page(base, "application/json", pages["index.json"]), project)
    assert by_html[1] == by_json[1] == ()
    assert [replace(wheel, size=None) for wheel in by_json[0]] == list(by_html[0])
    first, second = by_html[0]
    assert first.url == f"https://site.test/files/ab/{SHA}/Demo_Pkg-1.0%2Brocm7.2-py3-none-linux_x86_64.whl"
    assert (first.sha256, first.requires_python, first.yanked) == (SHA, ">=3.11", None)
    assert (second.yanked, second.url) == ('"bad" <b>', linked.url)
    data = json.loads(pages["index.json"])
    assert data["meta"] == {"api-version": "1.0"}  # a size is missing, which 1.1 requires
    assert data["versions"] == ["1.0+rocm7.2", "2.0"]
    assert data["files"][0]["core-metadata"] == {"sha256": OTHER}
    assert "core-metadata" not in data["files"][1]
    assert f'data-core-metadata="sha256={OTHER}"'.encode() in pages["index.html"]
    assert json.loads(project_pages("demo-pkg", [FILE])["index.json"])["meta"] == {"api-version": "1.1"}


def test_the_list_of_projects() -> None:
    pages = list_pages("one", ["demo-pkg"])
    assert b'<a href="demo-pkg/">' in pages["index.html"]
    assert json.loads(pages["index.json"])["projects"] == [{"name": "demo-pkg"}]


def test_a_name_has_one_content() -> None:
    pages = project_pages("demo-pkg", [FILE, replace(FILE, sha256="ff" * 32)])
    assert [file["hashes"]["sha256"] for file in json.loads(pages["index.json"])["files"]] == [SHA]
