"""index.web: what is read of an address, and what is refused.

And what pip itself says that it is configured for.

index.simple_api: HTML and JSON say the same, and what is hostile in them is passed over or refused.

And what pip, uv and relink itself read of the pages of a site.
"""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from relink.indexes.build.web import (
    FetchError,
    ListedWheel,
    Page,
    PipSettings,
    Web,
    WrongFileError,
    list_pages,
    listed_file,
    pip_settings,
    project_pages,
    read_lock,
    read_page,
    without_secrets,
)
from relink.indexes.install.installers import InstallerError, cache_directory
from relink.system.errors import UsageError
from tests.support.web_server import Answer, WebServer


def test_a_page_and_who_asks(server: WebServer) -> None:
    server.answers["/simple/demo/"] = Answer(b"{}", "application/vnd.pypi.simple.v1+json; charset=utf-8")
    page = Web().page(f"{server.url}/simple/demo/", 100)
    assert (page.kind, page.body) == ("application/vnd.pypi.simple.v1+json", b"{}")
    assert "application/vnd.pypi.simple.v1+json" in server.asked[0][1]["Accept"]
    assert "Authorization" not in server.asked[0][1]


def test_credentials_of_the_address_or_netrc_stay_with_their_host(server: WebServer, tmp_path: Path) -> None:
    server.answers["/a"] = Answer(
        status=302, headers={"Location": f"{server.url.replace('127.0.0.1', 'localhost')}/b"}
    )
    server.answers["/b"] = Answer(b"x")
    address = f"{server.url}/a"
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    expected = ("Basic " + base64.b64encode(b"me:secret").decode(), None)
    Web().page(address, 10)
    Web().page(address.replace("//", "//me:secret@"), 10)
    sent = [headers.get("Authorization") for _, headers in server.asked]
    assert tuple(sent) == expected * 2
    assert without_secrets(address.replace("//", "//me:secret@")) == address


def test_credentials_of_an_index_are_for_its_host(server: WebServer, tmp_path: Path) -> None:
    """Its files may lie beside it, and their addresses have none; another host gets nothing."""
    server.answers["/files/x"] = server.answers["/a"] = Answer(b"x")
    index = server.url.replace("//", "//me:s%40cret@") + "/simple"
    web = Web(PipSettings(addresses=("pip", index)))
    web.file(f"{server.url}/files/x", tmp_path / "x", 10)
    web.file(f"{server.url.replace('127.0.0.1', 'localhost')}/a", tmp_path / "y", 10)
    sent = [headers.get("Authorization") for _, headers in server.asked]
    assert sent == ["Basic " + base64.b64encode(b"me:s@cret").decode(), None]


@pytest.mark.parametrize("header", ["ETag", "Last-Modified"])
def test_a_page_that_has_not_changed_is_not_sent_again(server: WebServer, header: str) -> None:
    server.answers["/a"] = Answer(b"old", headers={header: '"one"'})
    first = Web().page(f"{server.url}/a", 100)
    server.answers["/a"] = Answer(b"", status=304)
    assert Web().page(f"{server.url}/a", 100) == first
    asked = {"ETag": "If-None-Match", "Last-Modified": "If-Modified-Since"}[header]
    assert [headers.get(asked) for _, headers in server.asked] == [None, '"one"']
    (kept,) = (cache_directory().parent / "pages").iterdir()
    kept.write_bytes(kept.read_bytes()[:-1])  # damaged: it is asked for as if it were not there
    server.answers["/a"] = Answer(b"new")
    assert Web().page(f"{server.url}/a", 100).body == b"new"
    assert asked not in server.asked[-1][1]


@pytest.mark.parametrize(
    "place", ["file:///etc/passwd", "ftp://127.0.0.1/x", "javascript:alert(1)", "gopher://x"]
)
def test_redirects_lead_to_the_web_only(server: WebServer, place: str) -> None:
    server.answers["/a"] = Answer(status=302, headers={"Location": place})
    with pytest.raises(FetchError, match=r"not followed|cannot be read|not an address|answers 302"):
        Web().page(f"{server.url}/a", 100)


def test_redirects_end(server: WebServer) -> None:
    server.answers["/a"] = Answer(status=302, headers={"Location": "/a"})
    with pytest.raises(FetchError, match=r"10. redirects"):
        Web().page(f"{server.url}/a", 100)
    assert len(server.asked) < 20


def test_a_page_without_end(server: WebServer) -> None:
    server.answers["/a"] = Answer(b"x" * 65536, endless=True)
    with pytest.raises(FetchError, match="larger than the 2097152 bytes"):
        Web().page(f"{server.url}/a", 2 << 20)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b"x", endless=True, trickle=0.01),
        Answer(raw=b"x", trickle=0.01),  # no status line, without end
        Answer(raw=b"HTTP/1.1 200 OK:\r\n", trickle=0.01),  # headers without end
        Answer(b"x", status=302, headers={"Location": "/end"}, endless=True, trickle=0.01),
    ],
    ids=["body", "status", "headers", "redirect"],
)
def test_index_trickle(
    server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    """Each byte comes within the socket's timeout; together they have to be enough."""
    monkeypatch.setattr("relink.indexes.build.web.PAGE_PACE", 0.5)
    monkeypatch.setattr("relink.indexes.build.web.FILE_PACE", (1, 100_000))
    server.answers["/a"] = answer
    server.answers["/end"] = Answer(b"end")
    if answer.status == 302:  # what comes with a redirect is not read
        assert Web().page(f"{server.url}/a", 1 << 20).body == b"end"
        return
    with pytest.raises(FetchError, match=r"too slow|HTTP/0\.9"):
        Web().page(f"{server.url}/a", 1 << 20)
    with pytest.raises(FetchError, match=r"too slow|HTTP/0\.9"):
        Web().file(f"{server.url}/a", tmp_path / "x", 1 << 20)


def test_what_is_not_there(server: WebServer) -> None:
    with pytest.raises(FetchError, match="the server answers 404") as caught:
        Web().page(f"{server.url}/a", 100)
    assert caught.value.missing
    server.answers["/a"] = Answer(status=500)
    with pytest.raises(FetchError, match="the server answers 500") as caught:
        Web().page(f"{server.url}/a", 100)
    assert not caught.value.missing
    with pytest.raises(FetchError, match="not an address that is read"):
        Web().page("ftp://127.0.0.1/", 100)
    with pytest.raises(FetchError, match="cannot be read"):
        Web().page("http://127.0.0.1:1/", 100)


def test_an_index_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    with pytest.raises(FetchError) as caught:
        Web().page(f"{tmp_path.as_uri()}/demo/", 10)
    assert caught.value.missing
    (tmp_path / "demo" / "index.html").write_text("<a>")
    assert Web().page(f"{tmp_path.as_uri()}/demo/", 10).kind == "text/html"
    (tmp_path / "demo" / "index.json").write_text("{}")
    assert Web().page(f"{tmp_path.as_uri()}/demo/", 10).body == b"{}"
    with pytest.raises(FetchError, match="larger than"):
        Web().page(f"{tmp_path.as_uri()}/demo/", 1)
    (tmp_path / "file").write_text("<a>")
    assert Web().page(f"{tmp_path.as_uri()}/file", 10).body == b"<a>"
    with pytest.raises(FetchError, match="Not a directory"):
        Web().page(f"{tmp_path.as_uri()}/file/", 10)


def test_a_file_from_a_byte_on(server: WebServer, tmp_path: Path) -> None:
    server.answers["/a"] = Answer(b"0123456789")
    place = tmp_path / "x"

    def read(begun: bytes, limit: int = 10) -> bytes:
        place.write_bytes(begun)
        Web().file(f"{server.url}/a", place, limit)
        return place.read_bytes()

    assert read(b"abcd") == b"abcd456789"
    assert server.asked[-1][1]["Range"] == "bytes=4-"
    assert read(b"0123456789") == b"0123456789"  # all of it is there: the server has no more
    server.answers["/a"].ranges = False
    assert read(b"abcd") == b"0123456789"
    with pytest.raises(WrongFileError):
        read(b"", 9)


CONFIG = """\
[global]
index-url = https://one.test/simple/
extra-index-url =
    https://two.test/simple
    file:///srv/simple
cert = /etc/ca.pem
find-links = /srv/a https://links.test/
[download]
cert = /etc/other.pem
[install]
index-url = https://never.test/simple
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("INDEX_URL", "EXTRA_INDEX_URL", "CERT", "PROXY", "NO_INDEX", "FIND_LINKS"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    path = tmp_path / "pip.conf"
    path.write_text(CONFIG)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(path))
    return path


@pytest.mark.slow(reason="pip runs")
def test_files_sections_and_environment(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ("https://two.test/simple", "file:///srv/simple")
    assert config.exists()
    assert pip_settings() == PipSettings(
        ("https://one.test/simple", *more), "/etc/other.pem", find_links=("/srv/a", "https://links.test/")
    )
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:x@three.test/simple")
    monkeypatch.setenv("PIP_PROXY", "http://proxy.test:1")
    settings = pip_settings()
    assert settings.indexes == ("https://me:x@three.test/simple", *more)
    assert settings.proxy == "http://proxy.test:1"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert pip_settings().indexes == ()


@pytest.mark.slow(reason="pip runs")
def test_the_index_that_pip_asks_by_itself(config: Path) -> None:
    config.write_text("")
    (index,) = pip_settings().indexes
    assert index.startswith("https://")
    assert index.endswith("/simple")


def test_a_pip_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "pip"
    broken.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr("relink.indexes.build.web.find_pip", lambda: [str(broken)])
    with pytest.raises(InstallerError, match="pip cannot be asked") as caught:
        pip_settings()
    assert caught.value.issues == ("broken",)
    broken.write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(UsageError, match="which index it asks"):
        pip_settings()


BASE = "https://index.test/simple/demo-pkg/"
WHEEL = "demo_pkg-1.0-py3-none-any.whl"
SHA = "ab" * 32
PROJECT = canonicalize_name("demo-pkg")


TAG_PRODUCT = "-".join([".".join(f"p{number}" for number in range(20))] * 3)


def read(
    body: str, kind: str = "text/html", base: str = BASE
) -> tuple[tuple[ListedWheel, ...], tuple[str, ...]]:
    return read_page(Page(base, kind, body.encode()), PROJECT)


def listed(**more: Any) -> tuple[tuple[ListedWheel, ...], tuple[str, ...]]:
    file = {"filename": WHEEL, "url": f"../../files/{WHEEL}", "hashes": {"sha256": SHA}} | more
    return read(
        json.dumps({"meta": {"api-version": "1.1"}, "name": "x", "files": [file]}), "application/x+json"
    )


def test_html_and_json_say_the_same() -> None:
    anchors = (
        f'<a href="../../files/{WHEEL}#sha256={SHA.upper()}" data-requires-python="&gt;=3.11" data-yanked="bad &amp; old">'
        f'{WHEEL}</a><a href="../../files/demo-pkg-1.0.tar.gz">demo-pkg-1.0.tar.gz</a>'
    )
    by_json = listed(**{"requires-python": ">=3.11", "yanked": "bad & old"})
    assert read(f"<!DOCTYPE html><html><body>{anchors}</body></html>") == by_json
    (wheel,) = by_json[0]
    assert wheel.url == f"https://index.test/files/{WHEEL}"
    assert (wheel.sha256, wheel.requires_python, wheel.yanked) == (SHA, ">=3.11", "bad & old")
    assert read(f'<base href="https://other.test/x/"><a href="{WHEEL}">{WHEEL}</a>')[0][0].url == (
        f"https://other.test/x/{WHEEL}"
    )


@pytest.mark.parametrize(
    ("yanked", "expected"),
    [(True, ""), (False, None), ("", ""), ("why", "why"), (7, None), ("\x1b[2Jgone", r"\x1b[2Jgone")],
)
def test_yanked(yanked: Any, expected: str | None) -> None:
    assert listed(yanked=yanked)[0][0].yanked == expected


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"url": f"javascript:alert(1)//{WHEEL}"}, "none of http or https"),
        ({"url": f"file:///etc/{WHEEL}"}, "none of http or https"),
        ({"url": f"data:text/html,{WHEEL}"}, "none of http or https"),
        ({"url": f"http://[::1/{WHEEL}"}, "its address"),
        ({"url": None}, "no address"),
        ({"url": "other-1.0-py3-none-any.whl"}, "another file name"),
        ({"hashes": {"sha256": "xyz"}}, "its sha256 is none"),
        ({"hashes": {"sha256": 7}}, "its sha256 is none"),
        ({"filename": "../../demo_pkg-1.0-py3-none-any.whl"}, "not the name of a wheel|no wheel of"),
        ({"filename": "demo_pkg-1.0-py3-none-any/../x.whl"}, "not the name of a wheel"),
        ({"filename": "other-1.0-py3-none-any.whl"}, "no wheel of demo-pkg"),
        ({"filename": f"demo_pkg-{'9' * 5000}-py3-none-any.whl"}, "not the name of a wheel"),
        ({"filename": f"demo_pkg-1.0-{TAG_PRODUCT}.whl"}, "8000 tags"),
    ],
)
def test_a_hostile_entry_is_passed_over(more: dict[str, Any], said: str) -> None:
    wheels, refused = listed(**more)
    assert wheels == ()
    assert len(refused) == 1
    assert any(part in refused[0] for part in said.split("|")), refused


def test_a_file_of_a_directory_is_for_an_index_in_a_directory_alone() -> None:
    anchor = f'<a href="{WHEEL}">{WHEEL}</a>'
    assert (
        read(anchor, base="file:///srv/simple/demo-pkg/")[0][0].url == f"file:///srv/simple/demo-pkg/{WHEEL}"
    )


def test_a_base_that_is_no_address() -> None:
    wheels, refused = read(f'<base href="http://[x/"><a href="{WHEEL}">{WHEEL}</a>')
    assert ([wheel.url for wheel in wheels], refused) == ([f"{BASE}{WHEEL}"], ())  # as if there were none


def test_two_hashes_of_one_name() -> None:
    anchor = '<a href="{0}#sha256={1}">{0}</a>'
    wheels, refused = read(anchor.format(WHEEL, SHA) + anchor.format(WHEEL, "cd" * 32))
    assert [wheel.sha256 for wheel in wheels] == [SHA]
    assert "two hashes" in refused[0]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("nothing", "not JSON"),
        ("[]", "not a page of a simple index"),
        ('{"meta": {"api-version": "2.0"}, "files": []}', "version '2.0'"),
        ("[" * 100_000, "not JSON"),
        (f"[{'[],' * 1_000_001}[]]", "not JSON"),
    ],
)
def test_what_is_no_page(body: str, said: str) -> None:
    with pytest.raises(FetchError, match=said):
        read(body, "application/vnd.pypi.simple.v1+json")


def test_odd_values_mean_nothing() -> None:
    (wheel,), _ = listed(**{"size": -1, "requires-python": "not a specifier", "hashes": []})
    assert (wheel.size, wheel.requires_python, wheel.sha256) == (None, None, None)


@pytest.mark.few(3, reason="the same of other values")
@pytest.mark.parametrize("part", ["<a ", "<!--", "<a href='", "<", "</", "<![", "<?", "&#"])
def test_broken_markup_ends_soon(part: str) -> None:
    start = time.monotonic()
    assert read(part * 20_000)[0] == ()
    assert time.monotonic() - start < 5


ONE, TWO = "1" * 64, "2" * 64
LOCK = f"""
version = 1
requires-python = ">=3.12"

[[package]]
name = "onnxruntime-rocm"
version = "1.22.2.post3"
source = {{ registry = "https://example.org/simple" }}
wheels = [
    {{ url = "https://example.org/onnxruntime_rocm-1-cp312-cp312-linux_x86_64.whl", hash = "sha256:{ONE}", size = 7 }},
    {{ url = "https://example.org/onnxruntime_rocm-1%2Blocal-cp313-cp313-linux_x86_64.whl", hash = "sha256:{TWO}" }},
    {{ path = "local.whl", hash = "sha256:{TWO}" }},
    {{ url = "https://example.org/md5-1-py3-none-any.whl", hash = "md5:0" }},
    {{ url = "https://example.org/no-wheel.whl", hash = "sha256:{ONE}" }},
    {{ url = "https://[::1/a-1-py3-none-any.whl", hash = "sha256:{ONE}" }},
]

[[package]]
name = "plain"
source = {{ virtual = "." }}
"""


def lock(directory: Path, text: str) -> Path:
    path = directory / "uv.lock"
    path.write_text(text)
    return path


def test_wheels_by_their_hashes(tmp_path: Path) -> None:
    path = lock(tmp_path, LOCK)
    found = read_lock(path)
    assert [(wheel.name.version_text, wheel.sha256, wheel.size) for wheel in found] == [
        ("1", ONE, 7),
        ("1+local", TWO, None),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[", "not TOML"),
        ("x = 1", r"no uv\.lock"),
        ("package = 1", r"no uv\.lock"),
        ("[" * 40, "nested too deep"),
    ],
)
def test_what_is_no_lock(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_lock(lock(tmp_path, text))


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_lock(tmp_path / "none")


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.sampled_from(["1", '"x"', "true", f'"sha256:{ONE}"']),
        lambda v: st.lists(v, max_size=3).map(lambda i: f"[{', '.join(i)}]"),
    )
)
def test_any_value_in_any_place(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    directory = tmp_path_factory.mktemp("lock")
    for text in (
        f"package = [{value}]",
        f"[[package]]\nwheels = {value}",
        f"[[package]]\nname = {value}\nwheels = [{{ url = {value}, hash = {value}, size = {value} }}]",
    ):
        read_lock(lock(directory, text))


OTHER = "cd" * 32
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


def entry(record: dict[str, Any] = RECORD, **row: Any) -> dict[str, Any]:
    found = listed_file(ROW | row, record, "link")
    assert found is not None
    return found


def test_both_forms_say_the_same() -> None:
    address = "https://x.test/demo_pkg-2.0-py3-none-any.whl"
    wheel = {"url": address, "requires_python": ">=3.11", "size": None}
    linked = entry(
        {"file": None, "wheel": wheel},
        filename="demo_pkg-2.0-py3-none-any.whl",
        status="original",
        yanked='"bad" <b>',
        uploaded="2026-01-01T00:00:00Z",
        input=SHA,
    )
    assert linked["upload-time"] == "2026-01-01T00:00:00Z"
    pages = project_pages("demo-pkg", [linked, entry(yanked=None, allocated=86400.0)])
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
    assert json.loads(project_pages("demo-pkg", [entry()])["index.json"])["meta"] == {"api-version": "1.1"}


def test_the_list_of_projects() -> None:
    pages = list_pages("one", ["demo-pkg"])
    assert b'<a href="demo-pkg/">' in pages["index.html"]
    assert json.loads(pages["index.json"])["projects"] == [{"name": "demo-pkg"}]


def test_a_name_has_one_content() -> None:
    other = entry({**RECORD, "file": FILE | {"sha256": "ff" * 32}})
    pages = project_pages("demo-pkg", [other, entry()])
    assert [file["hashes"]["sha256"] for file in json.loads(pages["index.json"])["files"]] == [SHA]
