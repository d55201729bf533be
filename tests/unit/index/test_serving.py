"""index.serving: what an installer asks of a web server."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from relink.errors import UsageError
from relink.index.serving import site_server
from relink.index.web import Web

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
