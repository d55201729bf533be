"""index.fingerprint: of content, and of what was looked at; a digest is remembered as long as nothing has changed."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from relink.indexes.build.fingerprint import Digests, TargetState, hold, state_of
from relink.indexes.build.recipe import IndexTarget
from relink.system import safe_open as files
from relink.system.errors import UsageError
from tests.support.cc import shared
from tests.support.works import Works


def test_content_and_not_time(works: Works, tmp_path: Path) -> None:
    prefix = tmp_path / "rocm"
    shutil.copytree(works.prefix, prefix)
    target = IndexTarget("one", (str(prefix),))
    first = state_of(target, Digests())
    assert sorted(map(os.path.basename, first.libraries)) == ["libdeep.so.1", "libhip.so.7"]
    assert first.paths == (str(prefix),)
    for path in prefix.rglob("*"):
        os.utime(path)
    assert state_of(target, Digests()).fingerprint == first.fingerprint
    (prefix / "lib" / "rocblas").mkdir()
    (prefix / "lib" / "rocblas" / "kernels.dat").write_bytes(b"x")
    with_data = state_of(target, Digests())
    # A whole /usr has files of any other package below its lib.
    (prefix / "lib" / "python3").mkdir()
    (prefix / "lib" / "python3" / "other.txt").write_bytes(b"x")
    assert state_of(target, Digests()).data == with_data.data
    assert (with_data.libraries, with_data.data == first.data) == (first.libraries, False)
    shared(prefix / "lib" / "libdeep.so.1", "int deep(void){return 7;}")
    assert state_of(target, Digests()).fingerprint != with_data.fingerprint
    (prefix / ".info" / "version").write_text("7.2.5-1\n")
    assert state_of(target, Digests()).release != with_data.release


STATE = TargetState(
    {"/r/libx.so.1": "aa", "/r/liby.so.1": "bb"},
    "data",
    "loader",
    "release",
    "x86_64",
    "/",
    ("/r",),
    "rocm7.2.4",
)
RESTS = {
    "library /r/libx.so.1": "aa",
    "stem libx.so": "/r/libx.so.1",
    "stem libz.so": "",
    "loader": "loader",
    "release": "release",
}


@pytest.mark.parametrize(
    ("rests", "state", "expected"),
    [
        (RESTS, STATE, True),
        (RESTS, replace(STATE, libraries={**STATE.libraries, "/r/liby.so.1": "cc"}), True),
        (RESTS, replace(STATE, libraries={**STATE.libraries, "/r/libx.so.1": "cc"}), False),
        (RESTS, replace(STATE, libraries={"/r/liby.so.1": "bb"}), False),
        (RESTS, replace(STATE, libraries={**STATE.libraries, "/r/libz.so.3": "dd"}), False),
        (RESTS, replace(STATE, libraries={**STATE.libraries, "/r/liba.so.3": "dd"}), True),
        (RESTS | {"odd": "x"}, STATE, False),
        (RESTS, replace(STATE, data="other"), True),
        (RESTS | {"data": "data"}, replace(STATE, data="other"), False),
        (RESTS, replace(STATE, loader="other"), False),
        (RESTS, replace(STATE, release="other"), False),
        (RESTS | {"fingerprint": STATE.fingerprint}, STATE, True),
        (RESTS | {"fingerprint": STATE.fingerprint}, replace(STATE, libraries={"/r/libx.so.1": "aa"}), False),
        (RESTS | {"library /nowhere/libx.so.1": "aa"}, STATE, False),
    ],
)  # fmt: skip
def test_what_a_result_rests_on(rests: dict[str, str], state: TargetState, expected: bool) -> None:
    assert hold(rests, state, Digests()) is expected


def test_each_content_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = files.file_sha256

    def counted(path: str, limit: int) -> str:
        read.append(path)
        return real(path, limit)

    monkeypatch.setattr("relink.indexes.build.fingerprint.file_sha256", counted)
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
