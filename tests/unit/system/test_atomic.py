""""""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from relink.system.atomic import (
    atomic_file,
    copy_content,
    copy_file,
    make_unnamed_file,
    move_synced,
    publish_directory,
    remove_stale,
    working_directory,
)


def test_whole_or_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")
    with atomic_file(target) as file:
        file.write(b"new")
        assert target.read_bytes() == b"old"
        (temporary,) = tmp_path.glob(".relink-*.tmp")
        assert f"-{os.getpid()}-" in temporary.name
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_failure_leaves_what_was(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "out"
    target.write_bytes(b"old")

    def fail() -> None:
        with atomic_file(target) as file:
            file.write(b"new")
            raise error

    with pytest.raises(error):
        fail()
    assert os.listdir(tmp_path) == ["out"]
    assert target.read_bytes() == b"old"


def test_failure_at_the_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"), atomic_file(tmp_path / "out") as file:
        file.write(b"new")
    assert os.listdir(tmp_path) == []


def test_mode_is_the_umask_s(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic_file(tmp_path / "out"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640


def _temporary(tmp_path: Path, pid: int) -> Path:
    path = tmp_path / f".relink-{pid}-0123456789abcdef.tmp"
    path.write_bytes(b"x")
    return path


def test_stale_ones_go(tmp_path: Path) -> None:
    # The second is of a live process, but its number was given out again: nobody holds the lock.
    stale = [_temporary(tmp_path, 2**22 + 1), _temporary(tmp_path, os.getpid())]
    for name in (".relink-x.tmp", "relink-1-0123456789abcdef.tmp", "other"):
        (tmp_path / name).write_bytes(b"")
    with atomic_file(tmp_path / "out"):
        assert sorted(remove_stale(tmp_path)) == sorted(stale)
        assert len(list(tmp_path.glob(".relink-*-*.tmp"))) == 1
    assert sorted(os.listdir(tmp_path)) == [".relink-x.tmp", "other", "out", "relink-1-0123456789abcdef.tmp"]


def test_a_killed_run_s_goes(tmp_path: Path) -> None:
    script = """
        import os, signal, sys
        from pathlib import Path
        from relink.system.atomic import atomic_file
        with atomic_file(Path(sys.argv[1]) / "out") as file:
            file.write(b"x")
            print("ready", flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        assert remove_stale(tmp_path) == []
        process.kill()
    assert len(remove_stale(tmp_path)) == 1
    assert os.listdir(tmp_path) == []


def test_without_locks_it_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(_fd: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    left = _temporary(tmp_path, 2**22 + 1)
    assert remove_stale(tmp_path) == []
    assert left.exists()


def test_links_and_directories_stay(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"")
    (tmp_path / ".relink-1-0123456789abcdef.tmp").symlink_to("precious")
    (tmp_path / ".relink-2-0123456789abcdef.tmp").mkdir()
    assert remove_stale(tmp_path) == []
    assert remove_stale(tmp_path / "nowhere") == []
    assert len(os.listdir(tmp_path)) == 3


def test_a_place_to_work_in(tmp_path: Path) -> None:
    with working_directory(tmp_path) as place:
        (place / "deep").mkdir()
        (place / "deep" / "x").write_bytes(b"x")
        assert place.stat().st_mode & 0o777 == 0o700
        assert remove_stale(tmp_path) == []
        assert (place / "deep" / "x").exists()
    assert os.listdir(tmp_path) == []
    with pytest.raises(KeyboardInterrupt), working_directory(tmp_path):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_a_killed_run_s_place_goes_at_the_next(tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path
        from relink.system.atomic import working_directory
        with working_directory(Path(sys.argv[1])) as place:
            (place / "deep").mkdir()
            (place / "deep" / "x").write_bytes(b"x")
            print("ready", flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        with working_directory(tmp_path):
            assert len(os.listdir(tmp_path)) == 2
        process.kill()
    assert len(os.listdir(tmp_path)) == 1
    with working_directory(tmp_path) as place:
        assert os.listdir(tmp_path) == [place.name]
    assert os.listdir(tmp_path) == []


def test_taken_for_stale_before_it_was_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.flock
    removed: list[Path] = []

    def slow(fd: int, operation: int) -> None:
        if not removed:
            (path,) = tmp_path.iterdir()
            path.rmdir()
            removed.append(path)
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", slow)
    with working_directory(tmp_path) as place:
        assert removed != [place]
        assert place.is_dir()


def test_a_link_in_a_place_s_name_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "x").write_bytes(b"x")
    (tmp_path / ".relink-1-0123456789abcdef.dir").symlink_to("precious")
    assert remove_stale(tmp_path) == []
    assert (tmp_path / "precious" / "x").exists()


@pytest.mark.parametrize("number", [None, errno.EOPNOTSUPP, errno.EISDIR])
def test_a_file_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None) -> None:
    """Also on file systems that make none."""
    real = os.open

    def refusing(path: Path, flags: int, *more: int) -> int:
        if number is not None and flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(number, os.strerror(number))
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", refusing)
    fd = make_unnamed_file(tmp_path)
    status = os.fstat(fd)
    os.close(fd)
    assert (status.st_nlink, status.st_mode & 0o777) == (0, 0o600)
    assert os.listdir(tmp_path) == []


def test_no_file_without_a_name_where_there_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        make_unnamed_file(tmp_path / "nowhere")


def test_a_moved_file_and_its_name_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content before the name leads to it, the directory after that; what a power cut leaves cannot be tried here."""
    steps: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(fd: int) -> None:
        steps.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    def renamed(source: Path, target: Path) -> None:
        steps.append("renamed")
        replace(source, target)

    source, target = tmp_path / "aside" / "new", tmp_path / "out" / "whl"
    for path in (source, target):
        path.parent.mkdir()
    source.write_bytes(b"new")
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    move_synced(source, target)
    assert steps == [str(source), "renamed", str(target.parent)]
    assert target.read_bytes() == b"new"
    assert not source.exists()


def test_a_directory_gets_a_name_that_nothing_has(tmp_path: Path) -> None:
    staged, final = tmp_path / "staged", tmp_path / "final"
    staged.mkdir()
    (staged / "x").write_text("x")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/y").write_text("mine")
    (tmp_path / "empty").mkdir()
    for name in ("file", "link", "full", "empty"):
        with pytest.raises(FileExistsError):
            publish_directory(staged, tmp_path / name)
    publish_directory(staged, final)
    assert (final / "x").read_text() == "x"
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "final", "full", "link"]
    with pytest.raises(FileNotFoundError):
        publish_directory(final, tmp_path / "nowhere/final")


def test_what_is_read_only_goes_too_and_links_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir(mode=0o500)
    with working_directory(tmp_path) as place:
        (place / "deep").mkdir()
        (place / "deep/link").symlink_to(tmp_path / "precious")
        (place / "deep/x").write_bytes(b"x")
        (place / "deep").chmod(0o500)
        code = "import sys, pathlib; from relink.system.atomic import remove_stale as r; r(pathlib.Path(sys.argv[1]))"
        stale = tmp_path / ".relink-1-0123456789abcdef.dir"
        place.rename(stale)
    drop = ["setpriv", "--inh-caps=-all", "--bounding-set=-dac_override"]
    command = [*(drop if os.geteuid() == 0 and shutil.which("setpriv") else []), sys.executable, "-c", code]
    subprocess.run([*command, str(tmp_path)], check=True)
    assert os.listdir(tmp_path) == ["precious"]
    assert (tmp_path / "precious").stat().st_mode & 0o777 == 0o500


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
