"""index.publishing: a site appears whole, and where something else is nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.indexes.build.publishing import Write, check_place, publish, shows
from relink.indexes.build.store import Store
from relink.system.errors import UsageError


def page(text: str) -> Callable[[Write], None]:
    def write_pages(write: Write) -> None:
        write("one/index.html", text.encode())

    return write_pages


def test_old_or_new(tmp_path: Path) -> None:
    site = tmp_path / "site"
    with Store(site) as store:
        (store.files / "x").write_text("wheel")
        assert not shows(site, "old")
        publish(store, site, "old", page("old"))
        assert (site / "one/index.html").read_text() == "old"
        assert (site / "files/x").read_text() == "wheel"
        first = site.resolve()
        assert shows(site, "old")
        assert not shows(site, "new")

        def interrupted(write: Write) -> None:
            write("one/index.html", b"half")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            publish(store, site, "half", interrupted)
        assert (site / "one/index.html").read_text() == "old"
        assert shows(site, "old")
        publish(store, site, "new", page("new"))
        assert (site / "one/index.html").read_text() == "new"
        assert (first / "one/index.html").read_text() == "old"  # a web server may still read it
        publish(store, site, "newer", page("newer"))
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
            publish(store, site, "x", page("x"))
