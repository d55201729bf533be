#!/usr/bin/env python3
"""Set up .venv with what developing relink needs, and run a program of it: ``scripts/set_up.py [PROGRAM [ARGUMENT…]]``.

``scripts/set_up.py relink demo`` shows the main job on a wheel of AMD's, ``scripts/set_up.py pytest -n 2`` runs the tests. Needs
Python 3.11 or newer with its venv, and a package index. Everything is pinned by hash (requirements/*.txt); with LOCKED=no in the
environment it is what pyproject.toml allows and the index has. What is set up already stays. Exit code: that of the program; 2
where nothing could be set up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / ".venv" / "bin"
READY = ROOT / ".venv" / ".ready"
REQUIREMENTS = [ROOT / "requirements" / f"{group}.txt" for group in ("dev", "compiler")]
INPUTS = [ROOT / "pyproject.toml", *REQUIREMENTS]


def main(command: list[str]) -> int:
    """Set up what is not there or too old, then run the program."""
    if sys.version_info < (3, 11):  # noqa: UP036 (whoever starts this may have any)
        sys.stderr.write(f"relink needs Python 3.11 or newer; this is {sys.version.split()[0]}\n")
        return 2
    if not READY.exists() or READY.stat().st_mtime < max(path.stat().st_mtime for path in INPUTS):
        try:
            set_up(locked=os.environ.get("LOCKED", "yes") != "no")
        except subprocess.CalledProcessError as error:
            sys.stderr.write(f"failed: {' '.join(map(str, error.cmd))}\n")
            return 2
        READY.touch()
    if not command:
        return 0
    os.environ["PATH"] = f"{PROGRAMS}:{os.environ.get('PATH', os.defpath)}"
    return subprocess.run([PROGRAMS / command[0], *command[1:]], check=False, cwd=ROOT).returncode


def set_up(*, locked: bool) -> None:
    """Make .venv and install into it; a wheel for everything, since a build would fetch its tools unpinned."""
    if not (PROGRAMS / "python").exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", ROOT / ".venv"], check=True)
        except subprocess.CalledProcessError:
            shutil.rmtree(ROOT / ".venv", ignore_errors=True)
            sys.stderr.write("Python's venv does not work here (Debian, Ubuntu: apt install python3-venv)\n")
            raise
    pinned = ("--require-hashes", "--only-binary", ":all:", "--requirement")
    editable = ("--editable", str(ROOT))
    if locked:
        pip(*pinned, str(REQUIREMENTS[0]))
        pip("--no-deps", "--no-build-isolation", *editable)
    else:
        pip("--upgrade", "pip>=25.1")  # which knows --group
        pip(*editable, "--group", f"{ROOT / 'pyproject.toml'}:dev")
    if shutil.which("cc") is None:  # for the demo's stand-in; the tests need gcc
        pip(*(*pinned, str(REQUIREMENTS[1])) if locked else ("ziglang",))


def pip(*arguments: str) -> None:
    """Install by the environment's pip."""
    subprocess.run([PROGRAMS / "python", "-m", "pip", "install", "--quiet", *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
