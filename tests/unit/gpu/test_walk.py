"""The files below a directory: each once, and what is not looked at is told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

import pytest

from relink.gpu.walk import walk

HASH = "0123456789abcdfghijklmnpqrsvwxyz"


def put(path: Path, size: int = 64) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


def found(top: Path) -> tuple[list[str], list[str]]:
    problems: list[str] = []
    return [str(Path(path).relative_to(top)) for path in walk(top, problems)], problems


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "top").mkdir()
    return tmp_path.resolve() / "top"


def test_directories_in_order_and_each_file_once(top: Path) -> None:
    put(top / "b" / "two")
    put(top / "a" / "one")
    put(top / "file")
    os.link(top / "file", top / "same")
    (top / "a" / "again").symlink_to("../b/two")
    (top / "a" / "0-first").symlink_to("one")
    (top / "b" / "circle").symlink_to("..")
    assert found(top) == (["file", "a/one", "a/again"], [])
    (top / "a" / "again").unlink()
    assert found(top) == (["file", "a/one", "b/two"], [])


def test_what_is_too_small_and_what_is_no_file(top: Path) -> None:
    put(top / "small", 63)
    put(top / "large", 64)
    os.mkfifo(top / "fifo")
    (top / "dangling").symlink_to("nowhere")
    assert found(top) == (["large"], [])


def test_a_link_out_to_a_file_is_followed_and_one_to_a_directory_is_not(top: Path) -> None:
    put(top.parent / "other" / "file")
    (top / "file").symlink_to("../other/file")
    for number in range(6):
        (top / f"link{number}").symlink_to("../other")
    (top / "status").symlink_to("/proc/self/status")
    files, (problem,) = found(top)
    assert files == ["file"]
    assert f"{top}/link0 to {top.parent}/other, " in problem
    assert "and 3 more; name their targets to look at them" in problem


def test_links_into_the_items_of_a_store_are_followed(top: Path) -> None:
    item = top.parent / f"{HASH}-clr-7.2.3"
    put(item / "lib" / "libx.so")
    (top / "lib").symlink_to(item / "lib")
    assert found(top) == (["lib/libx.so"], [])


def test_depth_has_a_limit(top: Path) -> None:
    deepest = top.joinpath(*["d"] * 100)
    put(deepest / "in")
    put(deepest / "d" / "out")
    files, (problem,) = found(top)
    assert [Path(path).name for path in files] == ["in"]
    assert problem == f"{deepest}/d: more than 100 directories deep, not looked at"


def test_the_number_of_files_has_a_limit(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        """One of more files than a test can make."""

        name, path = "x", "/x"

        def is_symlink(self) -> bool:
            return False

        def is_dir(self) -> bool:
            return False

        is_file = is_dir

    class Listing(list[Entry]):
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", lambda _: Listing([Entry()] * 1_000_002))
    assert found(top) == ([], [f"{top}: more than 1000000 files; the rest was not looked at"])


def test_time_has_a_limit(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(top / "a" / "file")
    put(top / "file")
    clock = iter([0.0, 1.0, 301.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    assert found(top) == (["file"], [f"{top}: takes more than 300 s; the rest was not looked at"])
