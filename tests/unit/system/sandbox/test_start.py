"""Which kind is taken, where some do not work, and what is said of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from relink.library import relink
from relink.runs.questions import verify_wheel
from relink.system.errors import SandboxError
from relink.system.sandbox import start
from relink.system.sandbox.start import (
    KINDS,
    OFF,
    PID,
    Limits,
    Sandbox,
    filter_for,
    find_sandbox,
    sandbox_findings,
    why_not,
)
from tests.support.works import Works

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
KEY = 0x0123456789ABCDEF
OWN = 4321
ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, EACCES, ENOSYS = 0x50001, 0x5000D, 0x50026

# Name: (number on x86_64, on aarch64), arguments, what comes of it for a loader, and for patchelf if that differs.
CALLS: list[tuple[str, tuple[int, int], tuple[int, ...], int, int | None]] = [
    ("read", (0, 63), (3, 0, 8), ALLOW, None),
    ("openat to read", (257, 56), (0, 0, 0x80000), ALLOW, None),
    ("openat to write", (257, 56), (0, 0, 1), EACCES, ALLOW),
    ("openat to read and write", (257, 56), (0, 0, 2), EACCES, ALLOW),
    ("openat to create", (257, 56), (0, 0, 0x40), EACCES, ALLOW),
    ("openat to truncate", (257, 56), (0, 0, 0x200), EACCES, ALLOW),
    ("openat O_TMPFILE", (257, 56), (0, 0, 0x400000), EACCES, ALLOW),
    ("openat2", (437, 437), (0, 0, 0), ENOSYS, None),
    ("mmap private", (9, 222), (0, 1, 5, 2, 3, 0), ALLOW, None),
    ("mmap shared", (9, 222), (0, 1, 3, 1, 3, 0), EPERM, None),
    ("mmap shared, validated", (9, 222), (0, 1, 3, 3, 3, 0), EPERM, None),
    ("mmap of a stack", (9, 222), (0, 1, 3, 0x122, 3, 0), EPERM, None),
    ("execve with the key", (59, 221), (0, 0, 0, KEY), ALLOW, None),
    ("execve", (59, 221), (0, 0, 0, 0), EPERM, None),
    ("execve with half of the key", (59, 221), (0, 0, 0, KEY & 0xFFFFFFFF), EPERM, None),
    ("execve with the other half", (59, 221), (0, 0, 0, KEY >> 32 << 32), EPERM, None),
    ("execveat", (322, 281), (0, 0, 0, KEY), ENOSYS, None),
    ("a limit read", (302, 261), (0, 3, 0, 99), ALLOW, None),
    ("a limit set", (302, 261), (0, 3, 99, 0), EPERM, None),
    ("a limit set from far away", (302, 261), (0, 3, 1 << 40, 0), EPERM, None),
    ("a signal to itself", (234, 131), (OWN, OWN, 6), ALLOW, None),
    ("a signal to another", (234, 131), (OWN + 1, OWN + 1, 6), EPERM, None),
    ("kill", (62, 129), (OWN, 9), ENOSYS, None),
    ("F_GETFL", (72, 25), (1, 3), ALLOW, None),
    ("F_SETOWN", (72, 25), (1, 8, OWN), EPERM, None),
    ("F_DUPFD", (72, 25), (1, 0), EPERM, None),
    ("clone", (56, 220), (0,), ENOSYS, None),
    ("clone3", (435, 435), (0,), ENOSYS, None),
    ("socket", (41, 198), (1, 1, 0), ENOSYS, None),
    ("ptrace", (101, 117), (0,), ENOSYS, None),
    ("io_uring_setup", (425, 425), (0,), ENOSYS, None),
    ("unshare", (272, 97), (0,), ENOSYS, None),
    ("a number of the x32 ABI", (0x40000000, 0x40000000), (), ENOSYS, None),
    ("a number that is not there", (999, 999), (), ENOSYS, None),
]


def run(machine: str, number: int, arguments: tuple[int, ...], *, writes: bool, audit: int) -> int:
    program = filter_for(machine, KEY, writes=writes)
    assert program is not None
    data = struct.pack("<IIQ6Q", number, audit, 0, *(*arguments, *[0] * 6)[:6])
    accumulator, at = 0, 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        if value == PID:
            value = OWN
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x15:
            at += yes if accumulator == value else no
        elif code == 0x45:
            at += yes if accumulator & value else no
        else:
            assert code == 0x06
            return value


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CALLS, ids=lambda case: str(case[0]))
def test_calls(machine: str, case: tuple[str, tuple[int, int], tuple[int, ...], int, int | None]) -> None:
    _, numbers, arguments, loader, patchelf = case
    number = numbers[[*MACHINES].index(machine)]
    audit = MACHINES[machine]
    assert run(machine, number, arguments, writes=False, audit=audit) == loader
    assert run(machine, number, arguments, writes=True, audit=audit) == (
        loader if patchelf is None else patchelf
    )


@pytest.mark.parametrize("machine", MACHINES)
def test_another_abi_is_killed(machine: str) -> None:
    """32-bit calls have other numbers: 0x40000003 is AUDIT_ARCH_I386."""
    assert run(machine, 0, (), writes=False, audit=0x40000003) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_the_kernel_takes_it(machine: str) -> None:
    """At most 4096 instructions, each jump inside (BPF_MAXINSNS, a byte wide), the last one a return."""
    program = filter_for(machine, KEY, writes=False)
    assert program is not None
    assert len(program) < 4096
    assert program[-1][0] == 0x06
    for at, (code, yes, no, _) in enumerate(program):
        if code in (0x15, 0x45):
            assert at + 1 + max(yes, no) < len(program)
            assert max(yes, no) < 256


def test_a_machine_that_is_not_known_has_none() -> None:
    assert filter_for("riscv64", KEY, writes=False) is None


ROOT = Path(__file__).parents[4]
CONTAINER = str(ROOT / "tests" / "support" / "container.py")
DENIED = [["namespaces"], ["namespaces", "landlock"], ["namespaces", "landlock", "seccomp"]]


def in_container(words: list[str], *command: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, CONTAINER, *words, "--", sys.executable, *command]
    return subprocess.run(start, cwd=ROOT, capture_output=True, text=True, check=False)


def kind_in(words: list[str]) -> str:
    run = in_container(
        words, "-c", "from relink.system.sandbox.start import find_sandbox; print(find_sandbox().kind)"
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize(("words", "kind"), list(zip(DENIED, KINDS[2:], strict=True)), ids=KINDS[2:])
def test_the_next_best_is_taken(words: list[str], kind: str) -> None:
    if reason := why_not(kind):
        pytest.skip(f"{kind}: {reason}")
    assert kind_in(words) == kind


HAS = {
    "bubblewrap": ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"],
    "namespaces": ["unshare", "--map-root-user", "--mount", "--net", "true"],
    "landlock": [sys.executable, "-c", "import ctypes; exit(ctypes.CDLL(None).syscall(444, None, 0, 1) < 1)"],
}


@pytest.mark.parametrize("kind", HAS)
def test_what_the_machine_has_works(kind: str) -> None:
    """Or a kind that was broken here would only be skipped by the other tests, since it is tried before it is taken."""
    if shutil.which(HAS[kind][0]) is None or subprocess.run(HAS[kind], check=False).returncode:
        pytest.skip("the machine does not have it")
    assert why_not(kind) is None


def test_namespaces_of_its_own_where_there_is_no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := why_not("namespaces"):
        pytest.skip(reason)
    monkeypatch.setenv("PATH", "/nowhere")
    start.first_working.cache_clear()
    try:
        assert find_sandbox() == Sandbox("namespaces", ("bubblewrap: there is no bwrap",))
    finally:
        start.first_working.cache_clear()


@pytest.mark.slow(reason="a process in namespaces of its own")
def test_a_container_is_no_obstacle(works: Works, tmp_path: Path) -> None:
    if reason := why_not("landlock"):
        pytest.skip(reason)
    words = ["--prefix", str(works.prefix), "-o", str(tmp_path / "out"), "--sandbox", "require", "--json"]
    run = in_container(DENIED[0], "-m", "relink", str(works.small(tmp_path)), *words)
    assert run.returncode == 0, run.stderr
    assert not {"RLK602", "RLK603", "RLK604"} & {
        found["code"] for found in json.loads(run.stdout)["findings"]
    }


@pytest.mark.slow(reason="three processes in a container; sandbox_findings is tried always")
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(DENIED[1], id=KINDS[3], marks=pytest.mark.slow(reason="as with limits alone")),
        pytest.param(DENIED[2], id=KINDS[4]),
    ],
)
def test_gaps_are_told_or_refused(words: list[str], works: Works, tmp_path: Path) -> None:
    wheel = str(works.small(tmp_path))
    base = ["-m", "relink", wheel, "--prefix", str(works.prefix), "-o", str(tmp_path / "out")]
    run = in_container(words, *base, "--sandbox", "require")
    assert run.returncode == 2
    assert not (tmp_path / "out").exists()
    assert "install bubblewrap, or allow user namespaces or Landlock" in run.stderr
    assert "landlock: Landlock: Function not implemented" in run.stderr
    run = in_container(words, *base)
    assert run.returncode == 0, run.stderr
    assert "warning RLK604 sandbox: only" in run.stdout
    (out,) = (tmp_path / "out").iterdir()
    run = in_container(words, "-m", "relink", "verify", str(out), "--sandbox", "require")
    assert (run.returncode, run.stdout) == (2, "")


def test_gaps(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = tuple(f"{kind}: not here" for kind in KINDS[:4])
    monkeypatch.setattr(start, "first_working", lambda: Sandbox("limits", without))
    monkeypatch.delenv("NIX_BUILD_TOP", raising=False)
    report = relink(works.small(tmp_path), works.options(tmp_path / "out"))
    (found,) = (found for found in report.findings if found.code == "RLK604")
    assert found.level == "warning"
    assert "landlock: not here" in found.message
    with pytest.raises(SandboxError, match="install bubblewrap") as caught:
        relink(works.small(tmp_path), works.options(tmp_path / "other", sandbox="require"))
    assert caught.value.issues == without
    assert not (tmp_path / "other").exists()


def test_a_build_of_nix_is_confined_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIX_BUILD_TOP", "/build")
    monkeypatch.delenv("IN_NIX_SHELL", raising=False)
    gaps = Sandbox("filter", ("namespaces: not here",))
    assert [found.level for found in sandbox_findings(gaps)] == ["info"]
    monkeypatch.setenv("IN_NIX_SHELL", "impure")
    assert [found.level for found in sandbox_findings(gaps)] == ["warning"]


def test_off(works: Works, tmp_path: Path) -> None:
    report = relink(works.small(tmp_path), works.options(tmp_path / "out", sandbox="off"))
    assert report.output is not None
    assert [found.level for found in report.findings if found.code == "RLK603"] == ["info"]
    verified = verify_wheel(Path(report.output.path), works.options(tmp_path, sandbox="off"))
    assert [found.code for found in verified.findings if found.code in ("RLK602", "RLK603")] == ["RLK603"]


def test_nothing_is_said_where_the_kernel_holds(works: Works, tmp_path: Path) -> None:
    if not find_sandbox().enforced:
        pytest.skip("no kind that the kernel enforces works here")
    report = relink(works.small(tmp_path), works.options(tmp_path / "out", sandbox="require"))
    assert not {"RLK603", "RLK604"} & {found.code for found in report.findings}


def children() -> list[int]:
    """The processes that this thread has made."""
    return [*map(int, Path("/proc/thread-self/children").read_text(encoding="ascii").split())]


def say(word: str) -> str:
    """What a program in a sandbox says."""
    return Sandbox("filter").start(["/bin/echo", word], {}, Limits(10)).communicate()[0].strip()


def test_one_process_makes_the_others() -> None:
    if reason := why_not("filter"):
        pytest.skip(reason)
    with ThreadPoolExecutor(1) as thread:  # which has no other children
        assert thread.submit(say, "none").result() == "none"
        (before,) = thread.submit(children).result()
        assert [*thread.map(say, ("one", "two"))] == ["one", "two"]
        assert thread.submit(children).result() == [before]


def test_the_process_that_makes_others_is_replaced() -> None:
    if reason := why_not("filter"):
        pytest.skip(reason)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(say, "one").result() == "one"
        (helper,) = thread.submit(children).result()
        os.kill(helper, signal.SIGKILL)
        with pytest.raises(OSError, match=r"has ended|Broken pipe|reset"):
            thread.submit(say, "two").result()
        assert thread.submit(say, "three").result() == "three"
        (other,) = thread.submit(children).result()
        assert other != helper
    with pytest.raises(ProcessLookupError):
        os.kill(other, 0)


def test_where_no_process_makes_others() -> None:
    """gVisor, or a filter of system calls, may refuse CLONE_PARENT."""
    program = (
        "from relink.system.sandbox.start import Limits, Sandbox, why_not\n"
        "run = lambda: Sandbox('filter').start(['/bin/echo', 'said'], {}, Limits(10)).communicate()\n"
        "print([run(), run()], why_not('filter'))"
    )
    run = in_container(["siblings"], "-W", "error", "-c", program)
    assert (run.stdout, run.stderr) == ("[('said\\n', ''), ('said\\n', '')] None\n", "")


def test_nothing_starts_without_a_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedded Python may not know where its program lies."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    start.first_working.cache_clear()
    try:
        found = find_sandbox()
        assert (found.kind, found == OFF) == ("off", False)
        assert [item.code for item in sandbox_findings(found)] == ["RLK604"]
        with pytest.raises(SandboxError):
            find_sandbox("require")
    finally:
        start.first_working.cache_clear()
