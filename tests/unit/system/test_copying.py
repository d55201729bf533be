"""copying: one file, with what it has and without what it has not."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from relink.system.copying import copy_content, copy_file

HOLE = 4 << 20  # bytes


def sparse(path: Path) -> Path:
    with path.open("wb") as file:
        file.write(b"begin")
        file.seek(HOLE)
        file.write(b"middle")
        file.truncate(2 * HOLE)
    return path


@pytest.mark.parametrize("holes", [True, False])
def test_content_and_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, holes: bool) -> None:
    """Also on a file system that does not tell of holes (lseek(2): EINVAL)."""
    real = os.lseek

    def seek(descriptor: int, at: int, how: int) -> int:
        if not holes and how in (os.SEEK_DATA, os.SEEK_HOLE):
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(descriptor, at, how)

    source = sparse(tmp_path / "source")
    monkeypatch.setattr(os, "lseek", seek)
    with source.open("rb") as reader, (tmp_path / "copy").open("xb") as writer:
        copy_content(reader.fileno(), writer.fileno())
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    if holes:
        assert (tmp_path / "copy").stat().st_blocks == source.stat().st_blocks


def test_blocks_are_shared_where_the_file_system_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ioctl_ficlone(2) is asked first; nothing is read then."""
    asked: list[tuple[int, int, int]] = []

    def shared(target: int, request: int, source: int) -> int:
        asked.append((target, request, source))
        return 0

    with sparse(tmp_path / "source").open("rb") as reader, (tmp_path / "copy").open("xb") as writer:
        monkeypatch.setattr(fcntl, "ioctl", shared)
        copy_content(reader.fileno(), writer.fileno())
        assert asked == [(writer.fileno(), 0x40049409, reader.fileno())]
    assert (tmp_path / "copy").stat().st_size == 0


def test_a_file_with_its_mode_and_times(tmp_path: Path) -> None:
    source = sparse(tmp_path / "source")
    source.chmod(0o640)
    os.utime(source, ns=(10**18, 10**18))
    place = copy_file(source, tmp_path / "copy")
    assert place.read_bytes() == source.read_bytes()
    assert (place.stat().st_mode & 0o777, place.stat().st_mtime_ns) == (0o640, 10**18)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        copy_file(tmp_path / "pipe", tmp_path / "other")
    (tmp_path / "empty").touch()
    assert copy_file(tmp_path / "empty", place).read_bytes() == b""
