"""What a test of `make test` may not use: the network, Nix, a browser, containers.

An audit hook (PEP 578) sees every socket of this process and every program that it starts. It cannot see what that program
does, so pip and uv are also put offline by their environment variables. The loopback interface belongs to this machine.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["OFFLINE", "inside"]

OFFLINE = {"PIP_NO_INDEX": "1", "UV_OFFLINE": "1"}
_PROGRAMS = frozenset(
    {
        "nix",
        "nix-build",
        "nix-env",
        "nix-instantiate",
        "nix-store",
        "chromium",
        "chromium-browser",
        "google-chrome",
    }
    | {"docker", "podman", "curl", "wget", "apt-get"}
)
_SOCKETS = frozenset({"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"})
_NAMES = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"})
_TEMPORARY = os.path.join(os.path.realpath(tempfile.gettempdir()), "")  # now: some tests set another
_active: list[list[str]] = []


def _is_loopback(address: object) -> bool:
    host = str(address[0]) if isinstance(address, tuple) and address else ""
    return host in ("::1", "localhost") or host.startswith("127.")


def _used(event: str, arguments: tuple[Any, ...]) -> str | None:
    """Return what was used that is outside, or None."""
    if event in _SOCKETS:
        local = getattr(arguments[0], "family", None) in (socket.AF_UNIX, None) or _is_loopback(arguments[1])
        return None if local else f"{event} {arguments[1]!r}"
    if event in _NAMES:
        return None if _is_loopback(arguments) else f"{event} {arguments[0]!r}"
    if event == "subprocess.Popen":
        program, environment = os.fsdecode(arguments[0]), arguments[3]
        if os.path.basename(program) in _PROGRAMS:
            found = shutil.which(program, path=(environment or os.environ).get("PATH"))
            stand_in = found is not None and os.path.realpath(found).startswith(_TEMPORARY)
            return None if stand_in else f"the program {program}"
    return None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _active or not (event == "subprocess.Popen" or event.startswith("socket.")):
        return
    if used := _used(event, arguments):
        _active[-1].append(used)
        raise RuntimeError(
            f"a test of `make test` may not use {used}; mark it network, nix, browser or examples"
        )


sys.addaudithook(_hook)


@contextmanager
def inside() -> Iterator[list[str]]:
    """Refuse what is outside as long as this is open; gives the list of what was refused, also where the error was caught."""
    refused: list[str] = []
    _active.append(refused)
    try:
        yield refused
    finally:
        _active.remove(refused)
