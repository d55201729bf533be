"""index.fetching: wheels come into the cache whole and right, or not at all."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from relink.indexes.build.fetching import fetch_wheel
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.web import FetchError, Web
from relink.indexes.install.cache import cache_directory
from relink.wheel.naming import parse_wheel_name
from tests.support.web_server import Answer, WebServer

NAME = "demo-1.0-py3-none-any.whl"
CONTENT = bytes(range(256)) * 4096
SIZE = 1 << 30


def listed(server: WebServer, content: bytes = CONTENT) -> ListedWheel:
    server.answers[f"/{NAME}"] = Answer(content)
    return ListedWheel(
        parse_wheel_name(NAME), f"{server.url}/{NAME}", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT)
    )


def left_behind() -> list[str]:
    return [path.name for path in (cache_directory() / "partial").iterdir() if path.is_dir()]


@pytest.mark.parametrize("sized", [True, False])
def test_a_cut_connection_is_resumed(server: WebServer, sized: bool) -> None:
    wheel = listed(server)
    wheel = wheel if sized else replace(wheel, size=None)
    server.answers[f"/{NAME}"].cut = [700_000, 300_000]
    found = fetch_wheel(wheel, Web(), SIZE)
    assert found.path.read_bytes() == CONTENT
    assert found.path.name == NAME
    assert [headers.get("Range") for _, headers in server.asked] == [None, "bytes=300000-", "bytes=1000000-"]
    assert left_behind() == []
    assert fetch_wheel(wheel, Web(), SIZE) == found
    assert len(server.asked) == 3


def test_what_a_killed_process_left_is_used(server: WebServer) -> None:
    wheel = listed(server)
    place = cache_directory() / "partial" / str(wheel.sha256)
    place.mkdir(parents=True)
    (place / NAME).write_bytes(CONTENT[:500_000])
    assert fetch_wheel(wheel, Web(), SIZE).path.read_bytes() == CONTENT
    assert server.asked[0][1]["Range"] == "bytes=500000-"


def test_a_wrong_hash_is_not_taken(server: WebServer) -> None:
    wheel = listed(server, CONTENT[::-1])
    with pytest.raises(FetchError, match="and the source says"):
        fetch_wheel(wheel, Web(), SIZE)
    assert list(cache_directory().glob("*/*.whl")) == []
    server.answers[f"/{NAME}"] = Answer(CONTENT)
    assert fetch_wheel(wheel, Web(), SIZE).path.read_bytes() == CONTENT
    assert "Range" not in server.asked[-1][1]


def test_more_than_was_promised(server: WebServer) -> None:
    wheel = listed(server)
    server.answers[f"/{NAME}"] = Answer(CONTENT, endless=True)
    with pytest.raises(FetchError, match="larger than the 1048576 bytes"):
        fetch_wheel(wheel, Web(), SIZE)
    assert len(server.asked) == 1


def test_a_server_that_never_sends_all(server: WebServer) -> None:
    wheel = listed(server)
    server.answers[f"/{NAME}"].cut = [10] * 100
    with pytest.raises(FetchError, match="cannot be read"):
        fetch_wheel(wheel, Web(), SIZE)


def test_a_file_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(CONTENT)
    wheel = ListedWheel(
        parse_wheel_name(NAME), (tmp_path / NAME).as_uri(), hashlib.sha256(CONTENT).hexdigest(), len(CONTENT)
    )
    assert fetch_wheel(wheel, Web(), SIZE).path == tmp_path / NAME
    (tmp_path / NAME).write_bytes(b"")
    with pytest.raises(FetchError, match="and the source says"):
        fetch_wheel(wheel, Web(), SIZE)


def test_the_cache_has_a_size(server: WebServer) -> None:
    first = fetch_wheel(listed(server), Web(), SIZE)
    other = "demo-2.0-py3-none-any.whl"
    server.answers[f"/{other}"] = Answer(b"other")
    second = fetch_wheel(ListedWheel(parse_wheel_name(other), f"{server.url}/{other}"), Web(), 10)
    assert second.path.exists()
    assert not first.path.exists()
