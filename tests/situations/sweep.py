"""Run every command that relink prints for real wheels: ``python -m tests.situations.sweep WHEELS PREFIX…``.

WHEELS is a directory with the wheels of wheels.tsv; what is not there is said. Each is relinked for each prefix, verified as it
came out, and checked in an environment of the Python that it is for. A printed command that relink has tried is run again; of the
others the reasons are counted. The exit code is 1 where a command is refused as wrong usage, prints itself again, or fails.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("wheels.tsv")
PROGRAM = [sys.executable, "-m", "relink"]
# These only tell something: doctor ends with 1 where the machine has no GPU.
_TELL = ("rules", "doctor")
_LEFT = {"VIRTUAL_ENV", "ROCM_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"}


def listed(directory: Path) -> Iterator[tuple[Path, str]]:
    """Yield the wheels of the list that are in a directory, each with the version of its Python; say what is not there."""
    for line in LIST.read_text().splitlines():
        if line.startswith("#"):
            continue
        name, version, python = line.split("\t")
        found = sorted(directory.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
        fitting = [one for one in found if f"-cp{python.replace('.', '')}-" in one.name] or found
        if fitting:
            yield fitting[0], python
        else:
            print(f"not there: {name} {version}", file=sys.stderr)  # noqa: T201


def relink(place: Path, *words: str | Path) -> tuple[int, str]:
    """Run relink; returns the exit code and the output, or what it says about wrong usage."""
    environment = {name: value for name, value in os.environ.items() if name not in _LEFT}
    environment["XDG_CACHE_HOME"] = str(place.parent / "cache")
    command = [*PROGRAM, *map(str, words)]
    run = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout or run.stderr


def ask(place: Path, *words: str | Path) -> tuple[int, list[dict[str, Any]], str | None]:
    """Ask with JSON; returns the exit code, the printed commands, and the path of the wheel that was written."""
    code, text = relink(place, *words, "--output-format", "json")
    if code == 2:
        return code, [], None
    said = json.loads(text)
    output = said.get("output")
    return code, said["verdict"]["commands"], output["path"] if output else None


def try_command(place: Path, command: str) -> str | None:
    """Run a printed command; returns what is wrong with it, or None."""
    words = shlex.split(command)[1:]
    code, text = relink(place, *words)
    if words[0] in _TELL:
        return None if code < 2 else f"exit code {code}"
    if code == 2:
        return f"wrong usage: {text.strip().splitlines()[-1]}"
    if code and f"    {command}\n" in text:
        return "prints itself again"
    return f"exit code {code}" if code else None


def environment_of(place: Path, python: str, wheel: Path) -> Path | None:
    """Make an environment with a wheel alone; None where this machine has no such Python, or the wheel is for another system."""
    program = shutil.which(f"python{python}")
    if program is None:
        return None
    uv = str(Path(sys.executable).with_name("uv"))
    made = place / "venv"
    for words in (["venv", "--quiet", "--clear", "--python", program, str(made)],
                  ["pip", "install", "--quiet", "--no-deps", f"--python={made}/bin/python", str(wheel)]):  # fmt: skip
        if subprocess.run([uv, *words], capture_output=True, check=False).returncode:
            return None
    return made


def questions(
    place: Path, wheel: Path, python: str, prefix: Path
) -> Iterator[tuple[str, int, list[dict[str, Any]]]]:
    """Yield the questions about a wheel and a prefix: the word, the exit code and the printed commands."""
    loader = next(prefix.glob("lib*/x86_64-linux-gnu/ld-linux-x86-64.so.2"), None)
    target: list[str | Path] = ["--interpreter", loader] if loader else []
    code, commands, output = ask(place, wheel, "--prefix", prefix, *target, "-o", place / "out")
    yield "run", code, commands
    yield "verify", *ask(place, "verify", output or wheel, *target)[:2]
    shutil.rmtree(place / "out", ignore_errors=True)
    if (made := environment_of(place, python, wheel)) is None:
        print(f"{wheel.name}: not checked: no environment for it with Python {python}")  # noqa: T201
    else:
        yield "check", *ask(place, "check", made, "--prefix", prefix)[:2]


def main(arguments: Sequence[str]) -> int:
    """Sweep, and print a line for each question; returns the exit code."""
    directory, *prefixes = map(Path, arguments)
    untried: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    wrong = 0
    for wheel, python in listed(directory):
        for prefix in prefixes:
            with tempfile.TemporaryDirectory() as temporary:
                place = Path(temporary, "here")
                place.mkdir()
                for word, code, commands in questions(place, wheel, python, prefix):
                    counted[word] += 1
                    print(f"{wheel.name} {prefix} {word}: exit code {code}", flush=True)  # noqa: T201
                    for one in commands:
                        if one["untried"]:
                            untried[one["untried"]] += 1
                            continue
                        problem = try_command(place, one["command"])
                        counted["commands that were run"] += 1
                        wrong += problem is not None
                        print(f"    {one['command']}: {problem or 'right'}", flush=True)  # noqa: T201
    print(f"{dict(counted)}; wrong: {wrong}; not tried: {dict(untried)}")  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
