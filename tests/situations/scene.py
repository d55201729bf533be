"""What a situation is tried with: a directory, an environment, the installed relink, and what really happens."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tests.support.wheels import make_wheel

TAG = f"cp3{sys.version_info[1]}-cp3{sys.version_info[1]}-manylinux_2_34_x86_64"
HERE = str(Path(sys.executable).parent)
Kind: TypeAlias = Literal["answer", "way out"]
Check: TypeAlias = tuple[Kind, bool, str]
"""Something that was looked at: whether it is about the answer or about what to do, whether it is right, and what it is."""
Situation: TypeAlias = Callable[["Scene"], Iterator[Check]]

_MAPPED = (
    "import sys\n{code}\nlines = open('/proc/self/maps').read().split()\n"
    "print('\\n'.join(sorted({{path for path in lines if path.startswith('/')}})))"
)


@dataclass(frozen=True)
class Told:
    """What relink said: its exit code, its output, and the commands that its last lines print."""

    code: int
    text: str
    commands: tuple[str, ...]

    @property
    def loads(self) -> bool:
        return self.code == 0


class Scene:
    """A directory with an environment of this Python, and an index of the wheels that were made.

    :param program: the command that starts relink.
    """

    def __init__(self, root: Path, program: tuple[str, ...]) -> None:
        self.root, self.program = root, program
        self.index = root / "index"
        self.index.mkdir(parents=True)
        self.venv = root / "venv"
        venv.create(self.venv, symlinks=True)
        self.python = self.venv / "bin/python"
        left = {"VIRTUAL_ENV", "ROCM_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"}
        own = {
            "PATH": f"{HERE}:{os.environ['PATH']}",
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.index),
            "UV_OFFLINE": "1",
            "UV_CACHE_DIR": str(root / "uv"),
            "XDG_CACHE_HOME": str(root / "cache"),
            "COLUMNS": "250",
        }
        kept = {name: value for name, value in os.environ.items() if name not in left}
        self.environment = kept | own
        if path := os.environ.get("PYTHONPATH"):
            self.of_relink = self.environment | {"PYTHONPATH": path}
        else:
            self.of_relink = self.environment

    def wheel(self, name: str, files: dict[str, bytes | Path], *, requires: tuple[str, ...] = ()) -> Path:
        """Write a wheel into the index."""
        return make_wheel(self.index, files, name=name, tag=TAG, requires=requires)

    def install(self, *wheels: Path) -> None:
        """Install wheels as a user does, without what they depend on."""
        uv = ["uv", "pip", "install", "--quiet", "--no-deps", "--reinstall", f"--python={self.python}"]
        subprocess.run([*uv, *map(str, wheels)], check=True, env=self.environment)

    def relink(self, *words: str | Path) -> Told:
        """Run relink; the commands are the lines of four blanks behind the last line that begins with ``Next``."""
        told = subprocess.run(
            [*self.program, *map(str, words)],
            cwd=self.root,
            env=self.of_relink,
            text=True,
            capture_output=True,
            check=False,
        )
        assert "Traceback" not in told.stderr, told.stderr
        last = re.split(r"^Next", told.stdout, flags=re.MULTILINE)
        lines = last[-1].splitlines() if len(last) > 1 else []
        # 0.2.0 wrote a single command behind "Next: ".
        commands = [line.strip() for line in lines if line.startswith("    ")]
        if not commands and lines and lines[0].startswith((": relink ", ": pip ")):
            commands = [lines[0].removeprefix(": ")]
        return Told(told.returncode, told.stdout + told.stderr, tuple(commands))

    def check(self, *words: str | Path) -> Told:
        """Run `relink check` for the environment."""
        return self.relink("check", self.venv, *words)

    def levels(self, *words: str | Path) -> list[str]:
        """Return how bad `relink check` finds each distribution."""
        told = self.check(*words, "--output-format", "json")
        return [one["level"] for one in json.loads(told.text)["distributions"]]

    def relinked(self, wheel: Path, *words: str | Path) -> Told:
        """Run `relink WHEEL` for the environment; the result is put into ``out``."""
        return self.relink(wheel, "--python", self.python, "-o", self.root / "out", *words)

    def follow(self, told: Told) -> bool:
        """Type the printed commands; returns whether one of them changes or makes something, and none fails.

        A command for the system's package manager is not run.
        """
        made = False
        for command in told.commands:
            words = shlex.split(command)
            if words[:2] == ["pip", "install"]:
                self.install(*map(Path, words[2:]))
            elif words[0] == "relink":
                again = self.relink(*words[1:])
                if again.code:
                    return False
                if again.commands and words[1] not in ("rules", "doctor", "repair"):
                    self.follow(again)
            made = made or (words[0] in ("pip", "relink") and words[1] not in ("rules", "doctor"))
        return made

    def knows_package(self, name: str) -> bool:
        """Whether apt has a package of that name."""
        told = subprocess.run(["apt-cache", "policy", name], capture_output=True, text=True, check=False)
        return "Candidate: " in told.stdout and "Candidate: (none)" not in told.stdout

    def works(self, code: str) -> bool:
        """Whether Python code succeeds in the environment."""
        command = [str(self.python), "-c", code]
        return not subprocess.run(command, env=self.environment, capture_output=True, check=False).returncode

    def runtimes(self, code: str) -> list[str]:
        """Return the copies of HIP that a process has mapped after Python code."""
        command = [str(self.python), "-c", _MAPPED.format(code=code)]
        run = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        return [path for path in run.stdout.split() if "amdhip" in path and "relink-stubs" not in path]


def grade(checks: list[Check]) -> str:
    """Return ``wrong`` where an answer is not true, ``partly`` where it is, and the way out is none; else ``good``."""
    if not all(ok for kind, ok, _ in checks if kind == "answer"):
        return "wrong"
    return "good" if all(ok for _, ok, _ in checks) else "partly"
