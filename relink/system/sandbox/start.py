"""Which kind of sandbox works here, starting a program in it, ending it, and reading how it ended.

Each kind is tried by running a program in it, best first, once in a process. unshare(2), landlock(7), seccomp(2) and setrlimit(2)
are called in the child (:mod:`relink.system.sandbox.inside`), since they hold for the process that calls them.
"""

from __future__ import annotations

import functools
import importlib.util
import marshal
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relink.system.atomic import working_directory
from relink.system.errors import SandboxError
from relink.system.findings.model import Finding, Level, finding
from relink.system.sandbox.environment import child_environment
from relink.system.sandbox.filter import filter_for
from relink.system.sandbox.inside import FAILED, REFUSED

KINDS: Final = ("bubblewrap", "namespaces", "landlock", "filter", "limits")
"""The kinds, best first. The kernel enforces the first three in full; with ``filter`` a program that may write one file may
write any, and ``limits`` restricts nothing but resources."""


ENFORCED: Final = KINDS[:3]
_MIB = 1 << 20
# The child reads its own code and the request from a descriptor: a request may be longer than arguments can be.
_CHILD = (
    "import marshal,sys\n"
    "file=open(int(sys.argv[1]),'rb')\n"
    "code=marshal.load(file)\n"
    "request=marshal.load(file)\n"
    "file.close()\n"
    "names={'__name__':'inside'}\n"
    "exec(code,names)\n"
    "names['main'](request)\n"
)


@dataclass(frozen=True, slots=True)
class Limits:
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


@dataclass(frozen=True, slots=True)
class Sandbox:
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
        :func:`stop`. :func:`failure` says why it could not be started.

        :param command: absolute path and arguments.
        :param environment: the whole environment of the program.
        :param writable: the one file that it may write; must exist.
        :param root: the root directory of the program (chroot).
        :param native: whether it is for this machine. An emulator needs more system calls, so there is no filter then.
        :param probe: a file that the child must not be able to write. The child checks it, and that it can start no process.
        :raises OSError: no process can be started.
        """
        if self.kind == "off" and root is None:
            return _popen(command, environment)
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
            start = [sys.executable, "-I", "-S", "-c", _CHILD, str(end)]
            if self.kind == "bubblewrap":
                start = [*_bubblewrap(real_path, chroot=root is not None), "--", *start]
            process = _popen(start, child_environment(), end)
            reading.close()
            # The child has ended, and has written why to standard error.
            with suppress(BrokenPipeError):
                writing.write(_code() + marshal.dumps(request))
        return process


OFF: Final = Sandbox("off")
"""No sandbox: the program runs as the user, with all that the user may do."""


def _popen(
    command: Sequence[str], environment: Mapping[str, str], *descriptors: int
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="surrogateescape",
        start_new_session=True,
        pass_fds=descriptors,
    )


@functools.cache
def _code() -> bytes:
    """Return the compiled module that runs in the child; Python's importer reads it from __pycache__ if it is there."""
    name = "relink.system.sandbox.inside"
    spec = importlib.util.find_spec(name)
    code = spec.loader.get_code(name) if spec and spec.loader and hasattr(spec.loader, "get_code") else None
    return marshal.dumps(code)


def _bubblewrap(writable: bytes | None, *, chroot: bool) -> list[str]:
    program = shutil.which("bwrap")
    if program is None:
        raise FileNotFoundError(2, "there is no bwrap")
    bind = ["--bind", os.fsdecode(writable), os.fsdecode(writable)] if writable else []
    capability = ["--cap-add", "CAP_SYS_CHROOT"] if chroot else []
    return [
        *(program, "--unshare-all", "--ro-bind", "/", "/", *bind),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL", *capability),
    ]


def stop(process: subprocess.Popen[str]) -> None:
    """Kill a program that :meth:`Sandbox.start` started, with its whole process group, and wait for its end."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def failure(status: int, errors: str) -> str | None:
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


# Seconds for a probe; it takes 0.03.
_TIMEOUT = 20.0


_probe_lock = threading.Lock()


def find_sandbox(mode: str = "auto") -> Sandbox:
    """Return the best kind that works here. Each is tried once in a process, by running a program in it.

    :param mode: one of :data:`MODES`.
    :raises SandboxError: the kernel must enforce it (``require``), and none of its kinds works.
    """
    if mode == "off":
        return OFF
    best = best_sandbox()
    if mode == "require" and not best.enforced:
        raise SandboxError(
            "--sandbox require: nothing here confines the loader and patchelf; install bubblewrap, or allow user namespaces or "
            "Landlock",
            best.without,
        )
    return best


def best_sandbox() -> Sandbox:
    """Return the first kind that works here, which the first call in a process finds out."""
    # Another thread that needs the answer waits, and does not probe again.
    with _probe_lock:
        return first_working()


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
            process, output, errors = _probe(kind, str(directory))
    except OSError as error:
        return str(error.strerror)
    except subprocess.TimeoutExpired:
        return f"no answer in {_TIMEOUT:.0f} s"
    if process.returncode == 0 and output.startswith("Python "):
        return None
    return failure(process.returncode, errors) or f"status {process.returncode}: {errors.strip()[:200]}"


def _probe(kind: str, directory: str) -> tuple[subprocess.Popen[str], str, str]:
    """Run a program in a kind of sandbox; return its process, its output and its errors."""
    inside, outside = (os.path.join(directory, name) for name in ("inside", "outside"))
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
        return process, *process.communicate(timeout=_TIMEOUT)
    except BaseException:
        stop(process)
        raise


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
