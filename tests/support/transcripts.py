"""Blocks of commands in Markdown files: run as a reader would, and held against what the file says was printed.

A block is fenced by ```` ```sh ```` and can be pasted into a shell: a line that starts with ``#`` is output, folded as on a
terminal, each other one is a command (a backslash at its end continues it). ``<!-- not run: REASON -->`` on the line before the
fence keeps a block from being run.

``python -m tests.support.transcripts FILE.md DIRECTORY`` runs the blocks there and writes into FILE what they print.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOME = "/home/you/try"
"""Stands for the directory that the commands are run in."""
WIDTH = 90
"""Columns of a line of output: a page of the site has room for so many."""
_FENCE, _NOT_RUN = "```sh", "<!-- not run:"
_MARK = "\x1e"  # between the outputs of two commands


@dataclass(frozen=True, slots=True)
class Command:
    """A command as printed: its text, the number of its first line, the lines that show its output."""

    text: str
    line: int
    shown: list[str]


@dataclass(frozen=True, slots=True)
class Result:
    """What a command did: its exit code, and what it printed on both streams, with `HOME` for the directory."""

    code: int
    output: str


def commands(markdown: str, mark: str = "") -> list[Command]:
    """Return the commands that a file has for its reader to run, in order; with `mark`, those of the blocks below that line."""
    found: list[Command] = []
    lines = markdown.splitlines()
    at = 0
    while at < len(lines):
        before = lines[at - 1] if at else ""
        if lines[at] == _FENCE and (before == mark if mark else not before.startswith(_NOT_RUN)):
            end = lines.index("```", at)
            found += _block(lines[at + 1 : end], at + 2)
            at = end
        at += 1
    return found


def _block(lines: Sequence[str], first: int) -> list[Command]:
    found: list[Command] = []
    at = 0
    while at < len(lines):
        if lines[at].startswith("#"):
            raise ValueError(f"line {first + at}: output without a command: {lines[at]}")
        start, text = at, lines[at]
        while text.endswith("\\"):
            at += 1
            text += "\n" + lines[at]
        at += 1
        printed = at
        while at < len(lines) and lines[at].startswith("#"):
            at += 1
        found.append(Command(text, first + start, [*lines[printed:at]]))
    return found


def show(output: str) -> list[str]:
    """Return output as a block has it: comments, folded between words where a line is too long."""
    shown: list[str] = []
    for line in output.splitlines():
        indent = " " * (len(line) - len(line.lstrip(" ")) + 2)
        folded = [line]
        if len(line) > WIDTH - 2:
            folded = textwrap.wrap(
                line, WIDTH - 2, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
        shown += [f"# {part}".rstrip() for part in folded]
    return shown


def run(
    asked: Sequence[Command], directory: Path, environment: Mapping[str, str], inside: Sequence[str] = ()
) -> list[Result]:
    """Run commands in one shell, one after another; stop behind the first that fails.

    With words before the command that enter a chroot (`inside`), they run in the chroot's `HOME`.
    """
    after = f"code=$?; printf '{_MARK}%s\\n' $code; [ $code = 0 ] || exit\n"
    script = "exec 2>&1 </dev/null\n" + "".join(f"{one.text}\n{after}" for one in asked)
    if inside:
        script = f"cd {HOME} || exit\n{script}"
    command = [*inside, "bash", "--norc", "-c", script]
    done = subprocess.run(command, cwd=directory, env=environment, stdout=subprocess.PIPE, check=False)
    text = normal(done.stdout.decode(), directory)
    parts = re.split(f"{_MARK}(\\d+)\n", text)
    return [Result(int(code), output) for output, code in zip(parts[::2], parts[1::2], strict=False)]


def normal(text: str, directory: Path) -> str:
    """Return output with `HOME` for the directory, and without what differs from run to run and from machine to machine.

    That is the seconds, the commit of relink, and what pip has to say of the indexes in its configuration.
    """
    for path in (str(directory), os.path.realpath(directory)):
        text = text.replace(path, HOME)
    text = re.sub(r"^WARNING: Location '.*' is ignored.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"^(relink [\d.]+)( \([0-9a-f]{12}(-dirty)?\))?$", r"\1 (1a2b3c4d5e6f)", text, flags=re.MULTILINE
    )
    return re.sub(r"\bin \d+ s\b", "in 9 s", text)


def rewritten(markdown: str, asked: Sequence[Command], results: Sequence[Result]) -> str:
    """Return the file's text with what the commands printed."""
    lines = markdown.splitlines()
    for one, result in reversed(list(zip(asked, results, strict=True))):
        start = one.line - 1 + len(one.text.splitlines())
        lines[start : start + len(one.shown)] = show(result.output)
    return "\n".join(lines) + "\n"


def main(file: str, directory: str) -> int:
    """Write into a file what its commands print."""
    path = Path(file)
    markdown = path.read_text(encoding="utf-8")
    asked = commands(markdown)
    results = run(asked, Path(directory).absolute(), os.environ)
    if len(results) < len(asked) or results[-1].code:
        last = asked[len(results) - 1]
        sys.stderr.write(f"{file}:{last.line}: {last.text}: failed\n{results[-1].output}")
        return 1
    path.write_text(rewritten(markdown, asked, results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
