"""index.web: what is read of an address, and what is refused.

And what pip itself says that it is configured for.
"""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from relink.indexes.build.web import (
    FetchError,
    PipSettings,
    Web,
    WrongFileError,
    pip_settings,
    without_secrets,
)
from relink.indexes.install.cache import cache_directory
from relink.indexes.install.installers import InstallerError
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
