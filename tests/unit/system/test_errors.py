"""Errors are sentences with further lines; one of this machine is no fact about a wheel, and nothing is concluded from it."""

from __future__ import annotations

import errno
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relink.elf.source import FileSource
from relink.library import relink
from relink.loader.target import find_target
from relink.providers.prefix import open_prefix
from relink.system import errors
from relink.system.errors import (
    EditError,
    MachineError,
    PatchelfError,
    ProviderError,
    RelinkError,
    WheelError,
    find_machine_fault,
    raise_if_machine_fault,
)
from relink.system.sandbox.start import Sandbox
from tests.support.command import Run
from tests.support.forking import run as forked
from tests.support.works import OUTPUT, Works


def test_a_message_and_its_issues() -> None:
    error = WheelError("two things are wrong", iter(["one", "two"]))
    assert (error.message, error.issues) == ("two things are wrong", ("one", "two"))
    assert str(error) == "two things are wrong\n  - one\n  - two"
    assert str(WheelError("one thing")) == "one thing"


def test_whoever_catches_the_root_catches_each() -> None:
    classes = [
        one for one in vars(errors).values() if isinstance(one, type) and one.__module__ == errors.__name__
    ]
    assert len(classes) >= 10
    assert all(issubclass(one, RelinkError) for one in classes)
    assert issubclass(EditError, PatchelfError), "whoever cannot go on without patchelf catches both"


TROUBLE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE)
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENAMETOOLONG)


@pytest.mark.parametrize("number", TROUBLE)
def test_trouble(number: int) -> None:
    error = OSError(number, os.strerror(number), "/a/b.so")
    with pytest.raises(MachineError, match=re.escape(f"/a/b.so: {os.strerror(number)}: ")):
        raise_if_machine_fault(error)
    found = find_machine_fault(f"/a/b.so: cannot open shared object file: {os.strerror(number)}", "ld.so")
    assert found is not None
    assert found.message.startswith(f"ld.so: {os.strerror(number)}: ")


@pytest.mark.parametrize("number", ABSENT)
def test_what_says_that_nothing_is_there(number: int) -> None:
    error = OSError(number, os.strerror(number), "/a/b.so")
    raise_if_machine_fault(error)
    assert (
        find_machine_fault(f"/a/b.so: cannot open shared object file: {os.strerror(number)}", "ld.so") is None
    )


def test_static_tls_is_no_memory_of_this_machine() -> None:
    """glibc elf/dl-reloc.c: too many thread-local variables in one process."""
    assert find_machine_fault("/a/b.so: cannot allocate memory in static TLS block", "ld.so") is None


def test_the_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (77, 99))
    with pytest.raises(MachineError, match=r"\(its limit is 77\); raise that \(ulimit -n\)"):
        raise_if_machine_fault(OSError(errno.EMFILE, ""), "x")


# In every place where libraries are looked for


def failing(monkeypatch: pytest.MonkeyPatch, number: int, name: str, call: str) -> list[str]:
    """Let one call of the system fail for what is called `name`; returns the paths for which it did."""
    real: Callable[..., Any] = getattr(os, call)
    failed: list[str] = []

    def fail(path: Any, *more: Any, **named: Any) -> Any:
        if isinstance(path, str | Path) and os.path.basename(path) == name:
            failed.append(str(path))
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *more, **named)

    monkeypatch.setattr(os, call, fail)
    return failed


@pytest.mark.few(4, reason="other places where the same error is met")
@pytest.mark.parametrize("number", TROUBLE)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("libhip.so.7", "stat"),
        ("libhip.so.7", "open"),
        ("libdeep.so.1", "open"),
        ("lib", "scandir"),
        ("lib", "stat"),
        ("rocm", "stat"),
        ("version", "stat"),
    ],
)
def test_a_run(
    works: Works, run: Run, tmp_path: Path, number: int, name: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 and the file, the resource and the next step; no advice to add a prefix, nothing written."""
    wheel = works.small(tmp_path)
    failed = failing(monkeypatch, number, name, call)
    code, out, err = run(wheel, "--prefix", works.prefix, "-o", tmp_path / "out")
    assert failed, "the call was not made"
    assert code == 2, out
    assert "RLK" not in out
    assert os.strerror(number) in err
    assert "fault of relink" not in err
    assert "--prefix" not in err.replace("--prefix /", "")
    assert not (tmp_path / "out").exists()


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("number", ABSENT)
def test_what_the_loader_passes_over_is_missing_still(
    works: Works, run: Run, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = works.small(tmp_path)
    assert failing(monkeypatch, number, "libdeep.so.1", "open") == []
    code, out, _ = run(wheel, "--prefix", works.prefix, "-o", tmp_path / "out")
    assert code == 1
    assert "RLK101 libdeep.so.1" in out


def test_directories_that_may_not_be_read(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the user named is told; one in the depth of a prefix may be closed to most, as /usr/lib/ssl/private is."""
    target = find_target()
    with monkeypatch.context() as patched:
        failing(patched, errno.EACCES, "lib", "scandir")
        with pytest.raises(ProviderError, match="rocm/lib may not be read by this user"):
            open_prefix(str(works.prefix), target)
    (tmp_path / "rocm" / "lib" / "private").mkdir(parents=True)
    (tmp_path / "rocm" / "lib" / "libhip.so.7").symlink_to(works.prefix / "lib" / "libhip.so.7")
    failing(monkeypatch, errno.EACCES, "private", "scandir")
    assert "libhip.so.7" in open_prefix(str(tmp_path / "rocm"), target).libraries


def test_the_loaders_own_answer(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ran out of files where relink did not."""

    def started(*_: object, **_options: object) -> subprocess.Popen[str]:
        said = "/x: error while loading shared libraries: libhip.so.7: cannot open shared object file: Too many open files"
        words = ["sh", "-c", f"echo '{said}' >&2; exit 127"]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    monkeypatch.setattr("relink.loader.dryrun.start_loader", started)
    with pytest.raises(MachineError, match="Too many open files: this process may not open more files"):
        relink(works.small(tmp_path), works.options(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_loader_that_cannot_be_started(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, options = works.small(tmp_path), works.options(tmp_path / "out")

    start = Sandbox.start

    def refuse(*arguments: Any, **named: Any) -> Any:
        if named.get("writable"):  # patchelf, which comes before
            return start(*arguments, **named)
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(Sandbox, "start", refuse)
    with pytest.raises(MachineError, match="no more processes or threads can be started"):
        relink(wheel, options)
    assert not (tmp_path / "out").exists()


def test_a_disk_that_fails_while_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", fail)

    with FileSource(path) as source, pytest.raises(MachineError, match="the disk cannot be read"):
        source.read_at(0, 10)


@pytest.mark.slow(reason="eleven runs, three of them of a Python")
def test_too_few_open_files(works: Works, tmp_path: Path) -> None:
    """At every limit the run does its work, or says that it may not open enough files: it never writes what it has not proved."""
    wheel = works.wheel(tmp_path)
    ended = {}
    imported_under = (8, 10, 13)  # what is imported under the limit, too, in a Python of its own
    for count in (4, 8, 9, 10, 11, 12, 13, 14, 16, 20, 32):
        out = tmp_path / f"out{count}"
        words = [str(wheel), "--prefix", str(works.prefix), "-o", str(out)]

        def limit(count: int = count) -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))

        if count in imported_under:
            command = [sys.executable, "-m", "relink", *words]
            run = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False)
        else:
            run = forked(*words, limits={resource.RLIMIT_NOFILE: count})
        ended[count] = run.returncode
        said = f"{count}: {run.stdout}{run.stderr}"
        if run.returncode == 0:
            assert os.listdir(out) == [OUTPUT], said
            assert "RLK602" not in run.stdout, said
        elif count > 8:  # with fewer Python does not start
            assert run.returncode == 2, said
            assert "Too many open files" in run.stderr, said
            assert "ulimit -n" in run.stderr, said
            assert "--output" not in run.stderr, said
            assert "fault of relink" not in run.stderr, said
        if run.returncode:
            assert not out.exists(), said
    assert ended[32] == 0
    assert 2 in ended.values()
