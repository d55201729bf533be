"""Runs many commands of relink, each in a process of its own that need not import anything first, into pipes or onto terminals.

``python -m tests.support.forking`` takes a JSON list of [words, columns] on standard input (columns null: a pipe) and prints a
list of [exit code, output]; the output is standard output and standard error together, each byte a character.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import traceback
from collections.abc import Sequence
from pathlib import Path

__all__ = ["run_all"]

WORDS = tuple[list[str], int | None]


def run_all(commands: Sequence[WORDS]) -> list[tuple[int, str]]:
    """Run every command; an output is decoded, with lone surrogates for bytes that are no UTF-8."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.forking"],
        input=json.dumps(commands).encode(),
        stdout=subprocess.PIPE,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
        timeout=300,
    )
    return [
        (code, said.encode("latin-1").decode("utf-8", "surrogateescape"))
        for code, said in json.loads(run.stdout)
    ]


def _serve() -> None:
    from relink import cli, comparison, pipeline, queries  # noqa: F401, PLC0415
    from relink.report import diff_text, doctor_text, inspection, isa_text, tree  # noqa: F401, PLC0415

    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        os.environ.pop(name, None)
    os.environ.update(TERM="xterm-256color", LC_ALL="C.UTF-8")
    json.dump([_run(words, columns) for words, columns in json.load(sys.stdin)], sys.stdout)


def _run(words: Sequence[str], columns: int | None) -> tuple[int, str]:
    ours, theirs = os.pipe() if columns is None else pty.openpty()
    if columns is not None:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    child = os.fork()
    if child == 0:
        _become(words, ours, theirs)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # EIO: nobody has the other end of the terminal any more
        while data := os.read(ours, 65536):
            said += data
    os.close(ours)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.decode("latin-1")


def _become(words: Sequence[str], ours: int, theirs: int) -> None:
    from relink import cli  # noqa: PLC0415

    os.close(ours)
    for descriptor in (1, 2):
        os.dup2(theirs, descriptor)
    os.close(theirs)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    code = 70
    try:
        cli.main(list(words))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
