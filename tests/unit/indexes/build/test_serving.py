"""index.serving: what an installer asks of a web server."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from relink.indexes.build.serving import site_server
from relink.indexes.build.web import Web
from relink.system.errors import UsageError

JSON = "application/vnd.pypi.simple.v1+json"


@contextmanager
def served(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    # The server asks for the name of its address, which no test may.
    monkeypatch.setattr("socket.getfqdn", lambda name="": name)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with site_server(site, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def small_site(place: Path) -> Path:
    for name in ("index.html", "one/simple/demo/index.html", "one/simple/demo/index.json", "files/ab/x.whl"):
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"name": name}))
    return place


def asked(url: str, **headers: str) -> Any:
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 (its own server)
    return urllib.request.urlopen(request, timeout=10)  # noqa: S310


REQUESTS = {
    "a NUL": (b"GET /%00 HTTP/1.1", 404),
    "a NUL in a page's name": (b"GET /one/simple/%00/ HTTP/1.1\r\nAccept: " + JSON.encode(), 404),
    "a part of a NUL": (b"GET /files/%00 HTTP/1.1\r\nRange: bytes=0-1", 404),
    "half of a surrogate pair": (b"GET /%ed%a0%80 HTTP/1.1", 404),
    "no UTF-8": (b"GET /%ff HTTP/1.1", 404),
    "no address": (b"GET http://[/ HTTP/1.1", 404),
    "no address, to look at": (b"HEAD http://[x/files/%00 HTTP/1.1", 404),
    "long": (b"GET /" + b"a" * 60_000 + b" HTTP/1.1", 404),
    "too long": (b"GET /" + b"a" * 70_000 + b" HTTP/1.1", 414),
    "many directories": (b"GET /" + b"a/" * 5000 + b" HTTP/1.1", 404),
    "no request": (b"x y z q", 0),  # no status line either: to HTTP/0.9 there is none
    "another version": (b"GET / HTTP/9.1", 0),
    "another method": (b"POST / HTTP/1.1", 501),
    "a long header": (b"GET / HTTP/1.1\r\nA: " + b"a" * 70_000, 431),
    "many headers": (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200, 431),
    "a large part": (b"GET /index.html HTTP/1.1\r\nRange: bytes=" + b"9" * 5000 + b"-", 200),
    "a command to a runner": (b"GET /##[add-path]x HTTP/1.1", 200),
}


def answered(url: str, request: bytes) -> bytes:
    """The first line of the answer; empty where the server hangs up without one."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request + b"\r\nConnection: close\r\n\r\n")
        with connection.makefile("rb") as answer:
            return answer.readline()


def test_serve_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No request ends in a traceback or without an answer, and the next one is answered."""
    with served(small_site(tmp_path / "site"), monkeypatch) as url:
        got = {name: answered(url, request) for name, (request, _) in REQUESTS.items()}
        codes = {
            name: int(line.split(b" ")[1]) if line.startswith(b"HTTP/") else 0 for name, line in got.items()
        }
        with asked(f"{url}/") as answer:
            assert answer.status == 200
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert "##" not in said
    assert codes == {name: code for name, (_, code) in REQUESTS.items()}


def test_serve_traceback_of_a_client_that_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site = small_site(tmp_path / "site")
    os.truncate(site / "files" / "ab" / "x.whl", 64 << 20)  # more than the sockets' buffers take
    with served(site, monkeypatch) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(b"GET /files/ab/x.whl HTTP/1.1\r\n\r\n")
            assert connection.recv(1000)
        said, end = "", time.monotonic() + 30
        while "Errno" not in said and time.monotonic() < end:
            time.sleep(0.01)
            said += capfd.readouterr().err
    assert "\n127.0.0.1: [Errno" in said
    assert "Traceback" not in said


def test_a_missing_file_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(small_site(tmp_path / "site"), monkeypatch) as url:
        with pytest.raises(urllib.error.HTTPError) as caught:
            asked(f"{url}/files/cd/y.whl")
        with caught.value as answer:
            assert (answer.code, answer.headers["Cache-Control"]) == (404, "no-cache")


def test_pages_parts_and_caching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(small_site(tmp_path / "site"), monkeypatch) as url:
        with asked(f"{url}/one/simple/demo/") as answer:
            assert answer.headers.get_content_type() == "text/html"
            assert answer.headers["Cache-Control"] == "no-cache"
        with asked(f"{url}/one/simple/demo/", Accept=f"{JSON}, text/html;q=0.1") as answer:
            assert answer.headers.get_content_type() == JSON
            assert json.load(answer)["name"].endswith("index.json")
        with asked(f"{url}/files/ab/x.whl", Range="bytes=2-5") as answer:
            assert (answer.status, answer.read()) == (206, b"name")
            assert "immutable" in answer.headers["Cache-Control"]
        with asked(f"{url}/files/ab/x.whl", Range="bytes=2-") as answer:
            assert (answer.status, answer.read()) == (206, b'name": "files/ab/x.whl"}')
        with Web().opened(f"{url}/files/ab/x.whl", 3) as part:
            assert part.start == 3
        with pytest.raises(urllib.error.HTTPError, match="404"):
            asked(f"{url}/../../etc/passwd")


def test_what_cannot_be_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="is no site"):
        site_server(tmp_path, "127.0.0.1", 0)
    with (
        served(small_site(tmp_path / "site"), monkeypatch) as url,
        pytest.raises(UsageError, match="cannot be listened on"),
    ):
        site_server(tmp_path / "site", "127.0.0.1", int(url.rpartition(":")[2]))
