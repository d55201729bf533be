"""The process that the command line runs in: closed and full streams, signals, no threads, numbers without end."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.wheel.archive import WheelArchive
from tests.support import forking
from tests.support.command import Run
from tests.support.works import OUTPUT, Works

SLOW = pytest.mark.slow(reason="a Python each; the others have such processes")

RELINK = [sys.executable, "-m", "relink"]
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")


def shell(line: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run ``relink WORDS`` in a shell, with what `line` does to its streams."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {line}', "sh", *RELINK, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def holds(path: Path) -> bool:
    """Whether a wheel is whole: every member is read and compared with RECORD's sums."""
    with WheelArchive(path) as archive:
        for name in archive.members:
            archive.read(name)
    return True


# Closed streams


ALIKE = pytest.mark.slow(reason="a Python each; the streams are closed in other combinations always")


@SLOW
@pytest.mark.parametrize(
    "line",
    [
        "2>&-",
        pytest.param(">&-", marks=ALIKE),
        pytest.param("<&-", marks=ALIKE),
        pytest.param(">&- 2>&-", marks=ALIKE),
        pytest.param("<&- >&-", marks=ALIKE),
        "<&- >&- 2>&-",
        pytest.param("2>&- | cat", marks=ALIKE),
    ],
)
def test_closed_streams(works: Works, tmp_path: Path, line: str) -> None:
    """The wheel is written, byte for byte, and nothing that is printed goes into a file that took the stream's number."""
    vendor = works.wheel(tmp_path)
    usual = forking.run(vendor, "--prefix", works.prefix, "-o", tmp_path / "usual")
    ended = shell(line, vendor, "--prefix", works.prefix, "-o", tmp_path / "out")
    assert (usual.returncode, ended.returncode) == (0, 0), ended.stderr
    assert (tmp_path / "out" / OUTPUT).read_bytes() == (tmp_path / "usual" / OUTPUT).read_bytes()
    if ">&-" not in line.replace("2>&-", ""):
        assert ended.stdout == usual.stdout.replace("/usual/", "/out/")


@SLOW
@pytest.mark.parametrize(
    "line",
    [
        "2>&-",
        pytest.param(">&-", marks=ALIKE),
        pytest.param("<&-", marks=ALIKE),
        pytest.param("<&- >&- 2>&-", marks=ALIKE),
    ],
)
def test_errors_with_closed_streams(works: Works, tmp_path: Path, line: str) -> None:
    lost = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    assert shell(line, lost, "--prefix", works.prefix, "-o", tmp_path / "out").returncode == 1
    assert shell(line, tmp_path / "gone.whl", "--prefix", works.prefix).returncode == 2
    assert not (tmp_path / "out").exists()


# Full streams


def full(*words: str | Path, error: bool = False) -> subprocess.CompletedProcess[str]:
    """Run ``relink WORDS`` with a standard output, or a standard error, that takes nothing."""
    with FULL.open("w") as device:
        return forking.run(*words, **{"stderr" if error else "stdout": device.fileno()})


@pytest.mark.few(1, reason="a process for each other form of output")
@needs_full
@pytest.mark.parametrize("words", [(), ("--json",), ("--quiet",)])
def test_a_full_standard_output(works: Works, tmp_path: Path, words: tuple[str, ...]) -> None:
    """The report cannot be read, which is exit code 2; the wheels are there, all of them, and standard error says so."""
    one = works.small(tmp_path / "one")
    ended = full(one, "--prefix", works.prefix, "-o", tmp_path / "out", *words)
    assert holds(tmp_path / "out" / OUTPUT)
    if words == ("--quiet",):  # nothing is to be printed
        assert (ended.returncode, ended.stderr) == (0, "")
        return
    assert ended.returncode == 2
    assert ended.stderr.count("relink: ") == 1
    assert "standard output cannot be written (No space left on device)" in ended.stderr
    assert "files that were written are" in ended.stderr
    assert "fault of relink" not in ended.stderr


@pytest.mark.slow(reason="a process; one wheel is tried always")
@needs_full
def test_several_wheels_with_a_full_standard_output(works: Works, tmp_path: Path) -> None:
    lost = works.wheel(tmp_path / "lost", {"demo/lost.so": works.lost})
    ended = full(lost, works.small(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "out")
    assert ended.returncode == 2
    assert holds(tmp_path / "out" / OUTPUT)


@needs_full
@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("run", "--help"),
        ("--version",),
        ("rules",),
        ("rules", "RLK101"),
        ("profile", "show", "torch"),
    ],
)
def test_everything_else_with_a_full_standard_output(words: tuple[str, ...]) -> None:
    ended = full(*words)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("standard output cannot be written (No space left on device)") == 1
    assert "fault of relink" not in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow(reason="a process; the same of standard output is tried always")
@needs_full
def test_a_full_standard_error(works: Works, tmp_path: Path) -> None:
    words = (works.small(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "out")
    assert full(*words, error=True).returncode == 0
    assert holds(tmp_path / "out" / OUTPUT)
    assert full(tmp_path / "gone.whl", "--prefix", works.prefix, error=True).returncode == 2


# Signals


SIGNALS = ["INT", "TERM", "HUP", "QUIT", "XCPU", "USR1", "USR2", "ALRM", "VTALRM"]


def hanging(works: Works, tmp_path: Path, *ignored: int) -> tuple[forking.Process, Path]:
    """A run in the middle of a patchelf that hangs, and the file with that one's process id."""
    vendor, started, script = works.small(tmp_path), tmp_path / "started", tmp_path / "bin" / "patchelf"
    script.parent.mkdir()
    (script.parent / "python").symlink_to(sys.executable)
    script.write_text(
        "#!/bin/sh\n"
        'case "$*" in --version) echo patchelf 0.19.3; exit;; esac\n'
        f"echo $$ > {started}.new; mv {started}.new {started}; exec sleep 600\n"
    )
    script.chmod(0o755)
    running = forking.start(
        vendor,
        *("--prefix", works.prefix, "-o", tmp_path / "out"),
        *("--sandbox", "off"),  # whose programs may be scripts
        python=script.parent / "python",
        limits={resource.RLIMIT_CORE: 0},
        ignored=ignored,
    )
    end = time.monotonic() + 60
    while not started.exists() and running.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.3)  # until whoever started it knows so
    assert len(os.listdir(tmp_path / "out")) == 1
    return running, started


@pytest.mark.few(2, reason="a process each for another signal that ends it")
@pytest.mark.parametrize("name", SIGNALS)
def test_ended_by_a_signal(works: Works, tmp_path: Path, name: str) -> None:
    """Nothing is left behind, no process and no directory, and the end is by that very signal."""
    number = signal.Signals[f"SIG{name}"]
    running, started = hanging(works, tmp_path)
    running.send_signal(number)
    running.send_signal(number)  # while it cleans up
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out) == (-number, "")
    assert err == "relink: interrupted; no unfinished file was left behind\n"
    assert not (tmp_path / "out").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


@pytest.mark.slow(reason="waits for half a second")
def test_what_is_ignored_stays_ignored(works: Works, tmp_path: Path) -> None:
    """As nohup(1) asks for."""
    running, _ = hanging(works, tmp_path, signal.SIGHUP)
    running.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert running.poll() is None
    running.terminate()
    running.communicate(timeout=30)
    assert running.returncode == -signal.SIGTERM


@pytest.mark.slow(reason="takes a second of processor time, and as much again")
def test_processor_time_that_runs_out(works: Works, tmp_path: Path) -> None:
    """RLIMIT_CPU really sends SIGXCPU, each second anew."""
    noise = os.urandom(1 << 20) * 60
    vendor = works.wheel(tmp_path, {"demo/noise": noise, "demo/a.so": works.library})
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_CPU: (1, 20)}
    ended = forking.run(vendor, "--prefix", works.prefix, "-o", tmp_path / "out", limits=limits)
    assert ended.returncode in (0, -signal.SIGXCPU), (
        ended.stderr
    )  # 0 on a machine that needs less than a second
    assert (tmp_path / "out").exists() == (ended.returncode == 0)


# No threads


@SLOW
def test_no_more_threads(works: Works, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The n-th thread cannot be started, for every n until the run goes well."""
    name = next(name for name in ("_start_joinable_thread", "_start_new_thread") if hasattr(threading, name))
    real: Callable[..., object] = getattr(threading, name)
    for allowed in range(100):
        left = [allowed]

        def start(*words: object, left: list[int] = left, **named: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise RuntimeError("can't start new thread")
            return real(*words, **named)

        monkeypatch.setattr(threading, name, start)
        out = tmp_path / f"out{allowed}"
        code, _, err = run(works.small(tmp_path), "--prefix", works.prefix, "-o", out)
        monkeypatch.undo()
        if code == 0:
            break
        assert code == 2, err
        assert "no more processes or threads can be started" in err
        assert "fault of relink" not in err
        assert not out.exists()
    assert allowed > 0
    assert holds(out / OUTPUT)


# Numbers without end


@pytest.mark.parametrize("value", ["9" * 5000, "9" * 19, "٣", "-1", "1e3", " 1"])
def test_a_source_date_epoch_that_is_none(
    works: Works, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", value)
    code, _, err = run(works.small(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "out")
    assert code == 2
    assert err.startswith("relink: SOURCE_DATE_EPOCH=")
    assert "is not a number of seconds since 1970" in " ".join(err.split())
    assert len(err) < 200
    assert not (tmp_path / "out").exists()


def test_the_largest_source_date_epoch(
    works: Works, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "9" * 18)
    assert run(works.small(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "out")[0] == 0


@pytest.mark.few(1, reason="other lengths")
@pytest.mark.parametrize("digits", [19, 5000, 50_000])
def test_an_integer_without_end_in_a_profile(works: Works, run: Run, tmp_path: Path, digits: int) -> None:
    profile = tmp_path / "p.toml"
    profile.write_text(f"schema = {'9' * digits}\n")
    code, _, err = run(
        works.small(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "out", "--profile", profile
    )
    assert code == 2
    assert "p.toml" in err
    assert "fault of relink" not in err
    assert len(err) < 1000


@SLOW
def test_numbers_without_end_elsewhere(works: Works, run: Run, tmp_path: Path) -> None:
    """The release of a prefix, the version in METADATA, a saved report."""
    endless = "1" * 5000
    prefix = tmp_path / "rocm"
    (prefix / "lib").mkdir(parents=True)
    for path in (works.prefix / "lib").iterdir():
        (prefix / "lib" / path.name).symlink_to(path)
    (prefix / ".info").mkdir()
    for text in (f"{endless}.2", f"7.{endless}", f"7.2.{endless}"):
        (prefix / ".info" / "version").write_text(text)
        out = tmp_path / "out"
        code, _, err = run(works.small(tmp_path), "--prefix", prefix, "-o", out)
        assert (code, err) == (0, "")
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps({"schema": "relink.report/1"})[:-1] + f', "x": {endless}}}')
    code, _, err = run("report", saved)
    assert code == 2
    assert "fault of relink" not in err
