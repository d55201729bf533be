"""trees.sibling: a copy of a directory made of links, and what others do meanwhile."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from relink.trees.sibling import CopyError, carry_over, link_copy, remove_copy
from tests.unit.trees.build import snapshot


@pytest.fixture
def top(tmp_path: Path) -> Path:
    top = tmp_path / "top"
    (top / "a/b").mkdir(parents=True)
    (top / "empty").mkdir(mode=0o555)
    for number, name in enumerate(("x", "a/y", "a/b/z")):
        (top / name).write_text(name)
        os.utime(top / name, ns=(10**18 + number, 10**18 + number))
    (top / "link").symlink_to("a/y")
    (top / "nowhere").symlink_to("../nowhere")
    os.mkfifo(top / "pipe")
    (top / "x").chmod(0)  # that nobody may read it is nothing to a link
    (top / "a").chmod(0o2750)
    try:
        os.setxattr(top / "a", "user.note", b"kept")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    for number, name in enumerate(("a/b", "a", "empty", "")):
        os.utime(top / name, ns=(10**18, 10**18 + 100 + number))
    (tmp_path / "new").write_text("new")
    return top


def test_the_copy_has_all_of_it(top: Path, tmp_path: Path) -> None:
    listing = link_copy(top, tmp_path / "copy", {"a/y": tmp_path / "new"})
    found, expected = snapshot(tmp_path / "copy"), snapshot(top)
    new = found.pop("a/y")
    expected.pop("a/y")
    assert found == expected
    assert new[3] == b"new"
    assert listing.keys() == snapshot(top).keys()
    assert listing["a/b/z"] == (top / "a/b/z").stat().st_ino
    assert os.getxattr(tmp_path / "copy/a", "user.note") == b"kept"
    assert (tmp_path / "copy").stat().st_mtime_ns == top.stat().st_mtime_ns
    remove_copy(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert snapshot(top).keys() == listing.keys()


def test_what_cannot_be_copied(top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CopyError, match="more than 3 files"):
        link_copy(top, tmp_path / "copy", {}, most=3)
    remove_copy(tmp_path / "copy")

    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "setxattr", refused)
    with pytest.raises(
        CopyError, match=r"top/a cannot have its owner and attributes \(Operation not permitted\)"
    ):
        link_copy(top, tmp_path / "copy", {})


def test_what_others_do_meanwhile_is_done_in_the_copy(top: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    listing = link_copy(top, copy, {"a/y": tmp_path / "new"})
    carry_over(top, copy, listing)
    untouched = snapshot(copy)
    assert untouched["a/b/z"] == snapshot(top)["a/b/z"]

    (top / "added").write_text("added")
    (top / "folder/in").mkdir(parents=True)
    (top / "folder/in/it").write_text("added")
    (top / "other").write_text("written anew")
    os.replace(top / "other", top / "a/b/z")
    (top / "link").unlink()
    (top / "empty").rmdir()
    carry_over(top, copy, listing)
    found, expected = snapshot(copy), snapshot(top)
    assert found.pop("a/y")[3] == b"new"
    expected.pop("a/y")
    assert {name: facts[3] for name, facts in found.items()} == {
        name: facts[3] for name, facts in expected.items()
    }
    assert found["a/b/z"] == expected["a/b/z"]


def test_what_others_have_done_in_the_copy_stays(top: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    listing = link_copy(top, copy, {})
    os.link(top / "a/b/z", tmp_path / "z")  # else its inode number is given to the next file
    for root, text in ((top, "late"), (copy, "newer")):
        (root / "added").write_text(text)
        (root / "a/b/z").unlink()
        (root / "a/b/z").write_text(text)
    for name in ("link", "empty"):
        (top / name).rmdir() if name == "empty" else (top / name).unlink()
    (copy / "link").unlink()
    (copy / "link").write_text("newer")
    (copy / "empty").chmod(0o755)
    (copy / "empty/file").write_text("newer")
    carry_over(top, copy, listing)
    for name in ("added", "a/b/z", "link", "empty/file"):
        assert (copy / name).read_text() == "newer"
