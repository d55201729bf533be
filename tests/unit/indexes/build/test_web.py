"""index.web: what is read of an address, and what is refused."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import pytest

from relink.indexes.build.web import FetchError, Web, without_secrets
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


@pytest.mark.parametrize(
    "place", ["file:///etc/passwd", "ftp://127.0.0.1/x", "javascript:alert(1)", "gopher://x"]
)
def test_redirects_lead_to_the_web_only(server: WebServer, place: str) -> None:
    server.answers["/a"] = Answer(status=302, headers={"Location": place})
    with pytest.raises(FetchError, match=r"not followed|cannot be read|not an address|answers 302"):
        Web().page(f"{server.url}/a", 100)


def test_redirects_end(server: WebServer) -> None:
    server.answers["/a"] = Answer(status=302, headers={"Location": "/a"})
    with pytest.raises(FetchError, match="the server answers 302"):
        Web().page(f"{server.url}/a", 100)
    assert len(server.asked) < 20


def test_a_page_without_end(server: WebServer) -> None:
    server.answers["/a"] = Answer(b"x" * 65536, endless=True)
    with pytest.raises(FetchError, match="the page is larger than 2 MiB"):
        Web().page(f"{server.url}/a", 2 << 20)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b"x", endless=True, trickle=0.01),
        Answer(raw=b"x", trickle=0.01),  # a status line without end
        Answer(raw=b"HTTP/1.1 200 OK\r\n", trickle=0.01),  # headers without end
        Answer(b"x", status=302, headers={"Location": "/end"}, endless=True, trickle=0.01),
    ],
    ids=["body", "status", "headers", "redirect"],
)
def test_index_trickle(server: WebServer, monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    """Each byte comes within the socket's timeout; together they have to be enough."""
    monkeypatch.setattr("relink.indexes.build.web.PAGE_PACE", (0.5, float("inf")))
    monkeypatch.setattr("relink.indexes.build.web.FILE_PACE", (0.5, 100_000))
    server.answers["/a"] = answer
    server.answers["/end"] = Answer(b"end")
    if answer.status == 302:  # what follows a redirect is not read
        assert Web().page(f"{server.url}/a", 1 << 20).body == b"end"
        return
    with pytest.raises(FetchError, match="too slow"):
        Web().page(f"{server.url}/a", 1 << 20)
    with (
        pytest.raises(FetchError, match="too slow"),
        Web().opened(f"{server.url}/a") as part,
    ):
        part.stream.read()


def test_a_slow_file_that_comes_is_read(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is waited for counts, and enough bytes begin anew."""
    monkeypatch.setattr("relink.indexes.build.web.FILE_PACE", (0.5, 1000))
    server.answers["/a"] = Answer(bytes(1000), endless=True, trickle=0.1)
    with Web().opened(f"{server.url}/a") as part:
        for _ in range(10):
            assert len(part.stream.read(1000)) == 1000
        time.sleep(0.6)
        assert len(part.stream.read(1000)) == 1000


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


def test_a_file_from_a_byte_on(server: WebServer) -> None:
    server.answers["/a"] = Answer(b"0123456789")
    web = Web()
    with web.opened(f"{server.url}/a", 4) as part:
        assert (part.start, part.stream.read()) == (4, b"456789")
    with web.opened(f"{server.url}/a", 10) as part:  # all of it is there: the server has no more
        assert (part.start, part.stream.read()) == (0, b"0123456789")
    server.answers["/a"].ranges = False
    with web.opened(f"{server.url}/a", 4) as part:
        assert (part.start, part.stream.read()) == (0, b"0123456789")
