"""Which kind of sandbox works here, starting a program in it, ending it, and reading how it ended.

Each kind is tried by running a program in it, best first, once in a process. unshare(2), landlock(7), seccomp(2) and setrlimit(2)
are called in the child (:mod:`relink.system.sandbox.inside`), since they hold for the process that calls them.

The system call filter of the sandbox: which calls a dynamic loader and patchelf need, as a seccomp program.

It lists what is allowed. Anything else fails with ENOSYS: a C library then tries an older call or fails. Numbers are those of
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (aarch64); the instructions are classic BPF on
``struct seccomp_data`` (Documentation/userspace-api/seccomp_filter.rst).
"""

from __future__ import annotations

import errno
import functools
import marshal
import os
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from relink.system.atomic import working_directory
from relink.system.errors import SandboxError
from relink.system.findings.model import Finding, Level, finding
from relink.system.programs import make_child_environment
from relink.system.sandbox.inside import FAILED, REFUSED

Instruction = tuple[int, int, int, int]
"""``struct sock_filter``: code, jump if true, jump if false, value."""

PID = -1
"""A placeholder for the process's own id, which only the child knows (:mod:`relink.system.sandbox.inside`)."""

# BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JSET|K, BPF_RET|K.
_LOAD, _JUMP_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000  # SECCOMP_RET_*
# Offsets in struct seccomp_data.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_EPERM, _EACCES, _ENOSYS = 1, 13, 38

# O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_APPEND and O_TMPFILE (asm-generic/fcntl.h; the same on both architectures).
_WRITING = 0x400643
# MAP_SHARED, and MAP_GROWSDOWN: memory of these kinds does not count for RLIMIT_DATA (mm/mmap.c, is_data_mapping).
_UNCOUNTED = 0x101


# AUDIT_ARCH_* (include/uapi/linux/audit.h), and where the machine's numbers stand in `_CALLS`.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# Name: the number on x86_64 and on aarch64; None where the architecture does not have it.
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "lseek": (8, 62),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "access": (21, None),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "getpid": (39, 172),
    "exit": (60, 93),
    "uname": (63, 160),
    "getcwd": (79, 17),
    "readlink": (89, None),
    "gettimeofday": (96, 169),
    "getrlimit": (97, 163),
    "sysinfo": (99, 179),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "sigaltstack": (131, 132),
    "arch_prctl": (158, None),
    "gettid": (186, 178),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "getdents64": (217, 61),
    "set_tid_address": (218, 96),
    "clock_gettime": (228, 113),
    "exit_group": (231, 94),
    "newfstatat": (262, 79),
    "readlinkat": (267, 78),
    "faccessat": (269, 48),
    "set_robust_list": (273, 99),
    "getrandom": (318, 278),
    "statx": (332, 291),
    "rseq": (334, 293),
    "faccessat2": (439, 439),
    "mseal": (462, 462),
}
_OPEN, _OPENAT, _MMAP = (2, None), (257, 56), (9, 222)
_EXECVE, _TGKILL, _PRLIMIT, _FCNTL = (59, 221), (234, 131), (302, 261), (72, 25)
# F_GETFD, F_SETFD, F_GETFL: F_SETOWN would send signals.
_FCNTL_READING = (1, 2, 3)


def filter_for(machine: str, key: int, *, writes: bool) -> tuple[Instruction, ...] | None:
    """Return the filter for one program, or None where the machine's numbers are not known.

    :param machine: as ``os.uname().machine`` has it.
    :param key: 64 bits: execve is allowed where its fourth argument, which execve itself does not use, is this number. The child
        that starts the program knows it. The program begins with cleared registers and does not, so it can execute nothing.
    :param writes: whether files may be opened for writing; a filter cannot see which ones.
    """
    if machine not in _MACHINES:
        return None
    audit, column = _MACHINES[machine]

    def call(numbers: tuple[int | None, int | None], *body: Instruction) -> list[Instruction]:
        number = numbers[column]
        return [] if number is None else [(_JUMP_EQUAL, 0, len(body), number), *body]

    flags = () if writes else (_WRITING,)
    reading = (step for value in _FCNTL_READING for step in ((_JUMP_EQUAL, 0, 1, value), _return(_ALLOW)))
    return (
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, audit),
        _return(_KILL),
        (_LOAD, 0, 0, _NUMBER),
        *(step for numbers in _CALLS.values() for step in call(numbers, _return(_ALLOW))),
        *call(_OPEN, *_unless_set(1, *flags, error=_EACCES)),
        *call(_OPENAT, *_unless_set(2, *flags, error=_EACCES)),
        *call(_MMAP, *_unless_set(3, _UNCOUNTED, error=_EPERM)),
        *call(_EXECVE, *_if_equal(3, key)),
        # The new limit is NULL: limits can be read, not set.
        *call(_PRLIMIT, *_if_equal(2, 0)),
        *call(_TGKILL, _argument(0), (_JUMP_EQUAL, 0, 1, PID), _return(_ALLOW), _denied(_EPERM)),
        *call(_FCNTL, _argument(1), *reading, _denied(_EPERM)),
        _denied(_ENOSYS),
    )


def _return(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def _denied(error: int) -> Instruction:
    return _return(_ERRNO | error)


def _argument(number: int, *, high: bool = False) -> Instruction:
    """Load one half of an argument: BPF has 32-bit words. Both architectures are little-endian, so the low half comes first."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * number + 4 * high)


def _unless_set(argument: int, *masks: int, error: int) -> list[Instruction]:
    """Allow the call unless one of the bits is set."""
    tests = [
        step for mask in masks for step in (_argument(argument), (_JUMP_SET, 0, 1, mask), _denied(error))
    ]
    return [*tests, _return(_ALLOW)]


def _if_equal(argument: int, value: int) -> list[Instruction]:
    """Allow the call if all 64 bits of an argument are these."""
    return [
        _argument(argument),
        (_JUMP_EQUAL, 0, 3, value & 0xFFFFFFFF),
        _argument(argument, high=True),
        (_JUMP_EQUAL, 0, 1, value >> 32),
        _return(_ALLOW),
        _denied(_EPERM),
    ]


KINDS: Final = ("bubblewrap", "namespaces", "landlock", "filter", "limits")
"""The kinds, best first. The kernel enforces the first three in full; with ``filter`` a program that may write one file may
write any, and ``limits`` restricts nothing but resources."""


ENFORCED: Final = KINDS[:3]
_TIMEOUT = 20.0  # seconds for a probe, and for making a process; these take 0.03 and 0.003
_STREAMS: dict[str, Any] = {"cwd": "/", "stdin": subprocess.DEVNULL, "errors": "surrogateescape"}
_STREAMS |= {**dict.fromkeys(("stdout", "stderr"), subprocess.PIPE), "start_new_session": True}
_MIB = 1 << 20
_helpers = threading.local()


class Limits(msgspec.Struct, frozen=True):
    """What one program may use.

    :ivar seconds: of processor time.
    :ivar data: bytes of memory that it can write (RLIMIT_DATA). Libraries that it maps count with their data segments.
    :ivar addresses: bytes of address space (RLIMIT_AS): the libraries of one closure take some 10 GiB.
    :ivar file: bytes of a file that it writes.
    """

    seconds: int
    data: int = 4096 * _MIB
    addresses: int = 65536 * _MIB
    file: int = 0


class Sandbox(msgspec.Struct, frozen=True):
    """One way of running a program.

    :ivar kind: one of :data:`KINDS`, or ``off``.
    :ivar without: why better kinds do not work here, each with its name.
    """

    kind: str
    without: tuple[str, ...] = ()

    @property
    def enforced(self) -> bool:
        """Whether the kernel enforces all restrictions."""
        return self.kind in ENFORCED

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        limits: Limits,
        *,
        writable: str | None = None,
        root: str | None = None,
        native: bool = True,
        probe: str | None = None,
    ) -> subprocess.Popen[str]:
        """Start a program in / with nothing on standard input; its output and errors are read from the process.

        It is in a session of its own and does not outlive the thread that starts it: wait for it there, and end it by
        :func:`stop`. :func:`explain_failure` says why it could not be started.

        :param command: absolute path and arguments.
        :param environment: the whole environment of the program.
        :param writable: the one file that it may write; must exist.
        :param root: the root directory of the program (chroot).
        :param native: whether it is for this machine. An emulator needs more system calls, so there is no filter then.
        :param probe: a file that the child must not be able to write. The child checks it, and that it can start no process.
        :raises OSError: no process can be started.
        """
        if self.kind == "off" and root is None:
            return subprocess.Popen(command, env=environment, **_STREAMS)
        key = secrets.randbits(64)
        filtered = native and self.kind not in ("limits", "off")
        real_path = os.fsencode(os.path.realpath(writable)) if writable else None
        # RLIMIT_CORE of 1 and not 0: it also keeps the kernel from starting a program of the system's (fs/coredump.c).
        rlimits = [
            (resource.RLIMIT_CORE, 1),
            (resource.RLIMIT_CPU, limits.seconds),
            (resource.RLIMIT_DATA, limits.data),
            (resource.RLIMIT_AS, limits.addresses),
            (resource.RLIMIT_FSIZE, limits.file),
            (resource.RLIMIT_NOFILE, 64),
            *([(resource.RLIMIT_NPROC, 0)] if native else []),
        ]
        request = {
            "kind": self.kind,
            "command": [os.fsencode(word) for word in command],
            "environment": [os.fsencode(f"{name}={value}") for name, value in environment.items()],
            "limits": rlimits,
            "writable": real_path,
            "root": os.fsencode(root) if root else None,
            # bubblewrap has --die-with-parent, and a process id namespace, in which getppid() is another.
            "parent": None if self.kind == "bubblewrap" else os.getpid(),
            "filter": filter_for(os.uname().machine, key, writes=bool(writable)) if filtered else None,
            "key": key,
            "probe": os.fsencode(probe) if probe else None,
        }
        end, begin = os.pipe()
        with open(end, "rb") as reading, open(begin, "wb", buffering=0) as writing:
            if self.kind == "bubblewrap":
                if (program := shutil.which("bwrap")) is None:
                    raise FileNotFoundError(2, "there is no bwrap")
                bind = ["--bind", os.fsdecode(real_path), os.fsdecode(real_path)] if real_path else []
                capability = ["--cap-add", "CAP_SYS_CHROOT"] if root is not None else []
                start = [
                    *(program, "--unshare-all", "--ro-bind", "/", "/", *bind),
                    *("--die-with-parent", "--new-session", "--cap-drop", "ALL", *capability, "--"),
                    *_child("main", end),
                ]
                process = subprocess.Popen(start, env=make_child_environment(), pass_fds=(end,), **_STREAMS)
            else:
                process = _Made(command, env=environment, pass_fds=(end,), **_STREAMS)
            reading.close()
            # The child has ended, and has written why to standard error.
            with suppress(BrokenPipeError):
                writing.write(marshal.dumps(request))
        return process


def _child(function: str, descriptor: int) -> list[str]:
    """Return a Python that calls a function of :mod:`relink.system.sandbox.inside`, the only module of relink that it imports."""
    place = os.path.dirname(os.path.abspath(__file__))
    code = f"import sys; sys.path.append({place!r}); import inside; inside.{function}({descriptor})"
    return [sys.executable, "-I", "-S", "-B", "-c", code]


class _Helper:
    """The process that makes those of one thread, with which they end (:func:`relink.system.sandbox.inside.serve`)."""

    def __init__(self) -> None:
        self.socket, other = socket.socketpair()
        self.socket.settimeout(_TIMEOUT)
        with other:
            end = other.fileno()
            child, environment = _child("serve", end), make_child_environment()
            self.process = subprocess.Popen(child, env=environment, pass_fds=(end,), **_STREAMS)

    def __del__(self) -> None:
        self.socket.close()
        if "process" in vars(self):
            self.process.communicate()


class _Made(subprocess.Popen[str]):
    """A process that the helper of the thread makes; as it is a child of relink, subprocess waits for it as for its own."""

    def _execute_child(self, *arguments: Any) -> None:
        sys.audit("subprocess.Popen", arguments[0][0], arguments[0], *arguments[5:7])
        helper: _Helper = vars(_helpers).pop("one", None) or _Helper()  # not used again if it fails
        # pass_fds has the request; p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite.
        (request,), pipes = arguments[4], arguments[10:16]
        socket.send_fds(helper.socket, [b"\0"], [request, pipes[3], pipes[5]])
        self.pid = int.from_bytes(helper.socket.recv(4), sys.byteorder)
        if not self.pid:
            raise OSError(errno.EPIPE, "what starts programs in the sandbox has ended")
        if self.pid == helper.process.pid:
            helper.process.returncode = 0
        else:
            _helpers.one = helper
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


OFF: Final = Sandbox("off")
"""No sandbox: the program runs as the user, with all that the user may do."""


def stop(process: subprocess.Popen[str]) -> None:
    """Kill a program that :meth:`Sandbox.start` started, with its whole process group, and wait for its end."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def explain_failure(status: int, errors: str) -> str | None:
    """Return why a sandbox did not start its program, or None where it did.

    :param status: how the process ended; `errors`: what it wrote there.
    """
    message = errors.strip()
    if message.startswith("bwrap: "):
        return message.removeprefix("bwrap: ")[:400]
    return message.removeprefix(REFUSED)[:400] if status == FAILED and message.startswith(REFUSED) else None


def status_of(sandbox: Sandbox, status: int) -> int:
    """Return how a program ended, negative for a signal, from how its process ended: bubblewrap adds 128 to a signal's number."""
    return 128 - status if sandbox.kind == "bubblewrap" and status > 128 else status


MODES: Final = ("auto", "require", "off")
"""The values of ``--sandbox``: the best kind that works here; only one that the kernel enforces; none."""


_probe_lock = threading.Lock()


def find_sandbox(mode: str = "auto") -> Sandbox:
    """Return the best kind that works here. Each is tried once in a process, by running a program in it.

    :param mode: one of :data:`MODES`.
    :raises SandboxError: the kernel must enforce it (``require``), and none of its kinds works.
    """
    if mode == "off":
        return OFF
    # Another thread that needs the answer waits, and does not probe again.
    with _probe_lock:
        best = first_working()
    if mode == "require" and not best.enforced:
        raise SandboxError(
            "--sandbox require: nothing here confines the loader and patchelf; install bubblewrap, or allow user namespaces or "
            "Landlock",
            best.without,
        )
    return best


@functools.cache
def first_working() -> Sandbox:
    """Try the kinds in their order; ``first_working.cache_clear()`` forgets what was found."""
    without: list[str] = []
    for kind in KINDS:
        reason = why_not(kind)
        if reason is None:
            return Sandbox(kind, tuple(without))
        without.append(f"{kind}: {reason}")
    return Sandbox("off", tuple(without))


def why_not(kind: str) -> str | None:
    """Return why a kind does not work here, or None where it does: it is tried by running ``python -V`` in it."""
    if kind != "limits" and filter_for(os.uname().machine, 0, writes=False) is None:
        return f"no system call filter for {os.uname().machine}"
    try:
        with working_directory(Path(tempfile.gettempdir())) as directory:
            inside, outside = (str(directory / name) for name in ("inside", "outside"))
            for name in (inside, outside):
                with open(name, "wb"):
                    pass
            process = Sandbox(kind).start(
                [sys.executable, "-I", "-S", "-V"],
                {},
                Limits(seconds=10),
                writable=inside if kind in ENFORCED else None,
                probe=None if kind == "limits" else outside,
            )
            try:
                output, errors = process.communicate(timeout=_TIMEOUT)
            except BaseException:
                stop(process)
                raise
    except OSError as error:
        return str(error.strerror)
    except subprocess.TimeoutExpired:
        return f"no answer in {_TIMEOUT:.0f} s"
    if process.returncode == 0 and output.startswith("Python "):
        return None
    return (
        explain_failure(process.returncode, errors) or f"status {process.returncode}: {errors.strip()[:200]}"
    )


def sandbox_findings(sandbox: Sandbox | None) -> tuple[Finding, ...]:
    """Report it where the loader and patchelf are not confined in full; None: neither is started."""
    if sandbox is None or sandbox.enforced:
        return ()
    if sandbox.kind == "off" and not sandbox.without:
        return (finding("RLK603", "sandbox", "the loader and patchelf run with all that you may do"),)
    what = {
        "filter": "only a filter of system calls confines the loader and patchelf, and patchelf may write any file that you may",
        "limits": "only memory and time of the loader and patchelf are limited",
        "off": "nothing confines the loader and patchelf",
    }[sandbox.kind]
    # A build of Nix has a sandbox of its own; a shell of Nix sets the same variable, and another.
    in_build = "NIX_BUILD_TOP" in os.environ and "IN_NIX_SHELL" not in os.environ
    level: Level | None = "info" if in_build else None
    return (finding("RLK604", "sandbox", f"{what} ({'; '.join(sandbox.without)})", level=level),)
