"""Which kind of sandbox works on this machine: each is tried by running a program in it, best first, once in a process."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final

from relink.system.atomic import working_directory
from relink.system.errors import SandboxError
from relink.system.findings.model import Finding, Level, finding
from relink.system.sandbox.filter import filter_for
from relink.system.sandbox.start import ENFORCED, KINDS, OFF, Limits, Sandbox, failure, start_in, stop

__all__ = ["MODES", "best_sandbox", "find_sandbox", "first_working", "sandbox_findings", "why_not"]


MODES: Final = ("auto", "require", "off")
"""The values of ``--sandbox``: the best kind that works here; only one that the kernel enforces; none."""


_TIMEOUT = 20.0  # seconds for a probe; it takes 0.03


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
    with _probe_lock:  # another thread that needs the answer waits, and does not probe again
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
    process = start_in(
        Sandbox(kind),
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
    level: Level | None = "info" if _in_nix_build() else None
    return (finding("RLK604", "sandbox", f"{what} ({'; '.join(sandbox.without)})", level=level),)


def _in_nix_build() -> bool:
    """Whether this is a build of Nix, which has a sandbox of its own; a shell of Nix sets the same variable, and another."""
    return "NIX_BUILD_TOP" in os.environ and "IN_NIX_SHELL" not in os.environ
