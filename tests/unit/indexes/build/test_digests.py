"""index.digests: a digest is of the content; it is remembered as long as nothing has changed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from relink.indexes.build.digests import Digests
from relink.system import safe_open as files
from relink.system.errors import UsageError


def test_each_content_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = files.file_sha256

    def counted(path: str, limit: int) -> str:
        read.append(path)
        return real(path, limit)

    monkeypatch.setattr("relink.indexes.build.digests.file_sha256", counted)
    file = tmp_path / "x"
    file.write_bytes(b"one")
    place = tmp_path / "d.sqlite"
    first = Digests(place)
    expected = hashlib.sha256(b"one").hexdigest()
    assert first.sha256(str(file)) == first.sha256(str(file)) == expected
    first.save()
    assert Digests(place).sha256(str(file)) == expected
    assert len(read) == 1
    times = file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # the same size and time: its ctime tells
    assert Digests(place).sha256(str(file)) == hashlib.sha256(b"two").hexdigest()


def test_without_a_place(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"one")
    (tmp_path / "d.sqlite").write_bytes(b"no database, but something else" * 100)
    for place in (tmp_path / "d.sqlite", tmp_path / "x" / "d.sqlite"):
        found = Digests(place)
        assert found.sha256(str(tmp_path / "x")) == hashlib.sha256(b"one").hexdigest()
        found.save()
    with pytest.raises(UsageError, match="cannot be read"):
        Digests().sha256(str(tmp_path))
