#!/usr/bin/env python3
"""Write docs/relink.1, cli.md, rules.md and producers.md from the program itself: `make docs`. A test compares them."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import typer

import relink
from relink.cli import app
from relink.planning.assess import PRODUCERS
from relink.planning.case import Command as Asker
from relink.system.findings.model import RULES

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 90
"""Columns of a line in a block: a page of the site has room for so many."""
SUMMARY = "relink AMD's prebuilt ROCm wheels against the ROCm you have"
EXIT_CODES = {
    "0": "Done.",
    "1": "There are errors, and nothing was written (`--force` writes all the same); or what `install` or `repair` installed "
    "cannot be imported; or `isa`, `doctor` or `diff` found "
    "what it was asked to look for.",
    "2": "Wrong usage, an input that cannot be read, too little memory, files or processes of this machine, or standard output "
    "that cannot be written (wheels that were written are complete then). A reader that has left changes nothing.",
    "128 + N": "Ended by signal N, 130 by Ctrl-C. No unfinished file is left behind.",
}
ENVIRONMENT = {
    "ROCM_PATH": "The prefix where no `--prefix` is given. Without it the one ROCm in /opt, ld.so.cache and /usr is taken.",
    "CRAY_ROCM_PREFIX, CRAY_ROCM_DIR": "The same, as HPE's modules set them.",
    "LD_LIBRARY_PATH": "Without these the ROCm in it is taken before that of /opt.",
    "LOADEDMODULES": "Names the module that set them.",
    "RELINK_SETTINGS": "A file of settings to take in place of the one that is found here or above, whoever it belongs to; "
    "`none` takes none.",
    "VIRTUAL_ENV": "The active virtual environment: its Python is the target where no `--python`, `--interpreter` or "
    "`--sysroot` is given.",
    "SOURCE_DATE_EPOCH": "The time of the files that relink adds to a wheel, in seconds since 1970, and of no file a later one. "
    "Without it they have the time of the input's METADATA.",
    "XDG_CACHE_HOME": "Where fetched wheels are kept, in relink/wheels: 20 GiB at most. Default: ~/.cache.",
    "PIP_*, UV_*": "pip and uv take their configuration from these, from files and from netrc: indexes, proxies, credentials.",
    "HSA_OVERRIDE_GFX_VERSION": "Taken into account by `--gpu auto` and `relink doctor`.",
    "NO_COLOR, FORCE_COLOR, COLUMNS": "No colours; colours in a pipe, too; the width of the terminal.",
    "TMPDIR": "Where files are laid out for the loader's dry run. Programs have to be runnable there.",
    "RELINK_DEBUG": "Set to anything: a fault of relink itself is shown with its traceback.",
}


@dataclass(frozen=True)
class Parameter:
    """An option or an argument: how it is written, and what it means."""

    written: str
    text: str


@dataclass(frozen=True)
class Command:
    """One command as `--help` has it; `groups` are its options by heading."""

    name: str
    synopsis: str
    paragraphs: tuple[str, ...]
    example: str
    arguments: tuple[Parameter, ...]
    groups: tuple[tuple[str, tuple[Parameter, ...]], ...]


def commands() -> Iterator[Command]:
    """Yield the commands in the order of `relink --help`; the program's own options come first, under the name ''."""
    top: Any = typer.main.get_command(app)
    yield _command(top, "")
    for name, command in leaves(top):
        yield _command(command, name)


def leaves(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (``profile list``, command) for the commands of a group and of the groups in it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _command(command: Any, name: str) -> Command:
    text = re.sub(r"\s+", " ", _unescaped(command.help))
    text, _, example = text.partition(" Example: ")
    arguments, groups = [], dict[str, list[Parameter]]()
    words = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            shown = parameter.metavar or parameter.name.upper()
            words.append(shown if parameter.required else f"[{shown}]")
            arguments.append(Parameter(shown, parameter.help or ""))
        else:
            group = getattr(parameter, "rich_help_panel", None) or "Other options"
            groups.setdefault(group, []).append(Parameter(_written(parameter), _meaning(parameter)))
    usage = " ".join(
        ["relink", *([name] if name else []), *words, *(["[OPTION…]"] if name else ["COMMAND …"])]
    )
    return Command(
        name,
        usage,
        tuple(text.split("\n")),
        example,
        tuple(arguments),
        tuple((group, tuple(items)) for group, items in groups.items()),
    )


def _unescaped(text: str | None) -> str:
    """Return a help text without the backslashes that keep rich from taking brackets for markup."""
    return (text or "").replace("\\[", "[")


def _written(parameter: Any) -> str:
    names = ", ".join(sorted(parameter.opts, key=len))
    if parameter.is_flag:
        return names
    if isinstance(parameter.default, Enum):
        return f"{names} {'|'.join(type(parameter.default))}"
    return f"{names} {parameter.metavar or parameter.name.upper()}"


def _meaning(parameter: Any) -> str:
    default = parameter.default
    text = _unescaped(parameter.help)
    if parameter.is_flag or parameter.multiple or default in (None, ()) or "Default" in text:
        return text
    shown = getattr(default, "value", default)
    return f"{text} Default: {shown}." if str(shown) != "." else f"{text} Default: here."


def man_page() -> str:
    """Return relink(1)."""
    lines = [
        '.\\" Made by scripts/make_docs.py from relink --help.',
        f'.TH RELINK 1 "" "relink {relink.__version__}" "User Commands"',
        ".SH NAME",
        f"relink \\- {_roff(SUMMARY)}",
        ".SH SYNOPSIS",
    ]
    every = list(commands())
    for command in every:
        lines += [".PP" if command is not every[0] else ".nh", f".B {_roff(command.synopsis)}"]
    lines += [".hy", ".SH DESCRIPTION"]
    lines += [line for paragraph in every[0].paragraphs for line in (".PP", _roff(paragraph))]
    lines += [".SH OPTIONS", *_roff_options(every[0])]
    lines += [".SH COMMANDS"]
    for command in every[1:]:
        lines += [f".SS {_roff(command.synopsis)}"]
        lines += [line for paragraph in command.paragraphs for line in (".PP", _roff(paragraph))]
        lines += [line for item in command.arguments for line in _roff_item(item)]
        lines += _roff_options(command)
        if command.example:
            lines += [".PP", "Example:", ".PP", ".RS 4", ".EX", _roff(command.example), ".EE", ".RE"]
    for heading, facts in (("EXIT STATUS", EXIT_CODES), ("ENVIRONMENT", ENVIRONMENT)):
        lines.append(f".SH {heading}")
        lines += [line for name, text in facts.items() for line in _roff_item(Parameter(name, text))]
    lines += [".SH SEE ALSO", ".BR ld.so (8),", ".BR patchelf (1),", ".BR readelf (1)"]
    return "\n".join(lines) + "\n"


def _roff_options(command: Command) -> list[str]:
    lines = []
    for group, options in command.groups:
        if len(command.groups) > 1:
            lines += [".PP", f".I {_roff(group)}"]
        lines += [line for item in options for line in _roff_item(item)]
    return lines


def _roff_item(item: Parameter) -> list[str]:
    return [".TP", f".B {_roff(item.written)}", _roff(item.text)]


def _roff(text: str) -> str:
    text = (
        text.replace("`", "")
        .replace("\\", "\\e")
        .replace("-", "\\-")
        .replace("…", "\\&...")
        .replace("'", "\\(aq")
    )
    return f"\\&{text}" if text.startswith(".") else text


def markdown() -> str:
    """Return docs/cli.md."""
    every = list(commands())
    lines = [
        "# The command line",
        "",
        "Made by `make docs` from `relink --help`; relink(1) says the same.",
        "",
    ]
    lines += [*every[0].paragraphs, ""]
    lines += ["| command | |", "| --- | --- |"]
    for command in every[1:]:
        anchor = command.name.replace(" ", "-")
        summary = command.paragraphs[0].split(". ")[0].rstrip(".")
        lines.append(f"| [`{command.name}`](#relink-{anchor}) | {_cell(summary)} |")
    for command in every[1:]:
        lines += ["", f"## relink {command.name}", "", f"`{command.synopsis}`", "", *command.paragraphs]
        if command.example:
            lines += ["", "```sh", *map(_pasted, command.example.split("; ")), "```"]
        rows = [(item.written, item.text) for item in command.arguments if item.text]
        for group, options in (("", ()), *command.groups):
            if group and group != "Other options":
                rows.append((f"*{group}*", ""))
            rows += [(item.written, item.text) for item in options if not item.written.endswith("--help")]
        if rows:
            lines += ["", "| | |", "| --- | --- |"]
            lines += [
                f"| {name if name.startswith('*') else f'`{_cell(name)}`'} | {_cell(text)} |"
                for name, text in rows
            ]
    for heading, facts in (("Exit codes", EXIT_CODES), ("Environment", ENVIRONMENT)):
        lines += ["", f"## {heading}", "", "| | |", "| --- | --- |"]
        lines += [f"| `{name}` | {_cell(text)} |" for name, text in facts.items()]
    return "\n".join(lines) + "\n"


def _pasted(command: str) -> str:
    """Return a command as a block has it; the lines of a long one end in a backslash, so that they can be pasted."""
    return " \\\n    ".join(_folded(command, WIDTH - len("     \\")))


def _folded(line: str, width: int, indent: str = "") -> list[str]:
    """Return the lines that a line of a block takes; words stay whole."""
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def rules() -> str:
    """Return docs/rules.md, what `relink rules CODE` says of every code."""
    lines = [
        "# Findings",
        "",
        "Made by `make docs`; `relink rules CODE` says the same. In the examples `…` shortens paths; `$WHEEL` is site-packages.",
        "",
        "| code | level | |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| [{rule.code}](#{rule.code.lower()}) | {rule.level} | {rule.title} |" for rule in RULES.values()
    ]
    for rule in RULES.values():
        lines += ["", f"## {rule.code}", "", f"**{rule.title}** ({rule.level})", ""]
        lines += [*textwrap.wrap(rule.meaning, 130), "", *textwrap.wrap(f"What to do: {rule.fix}", 130), ""]
        shown = (part for line in rule.example.splitlines() for part in _folded(line, WIDTH, "      "))
        lines += ["```text", *shown, "```"]
    return "\n".join(lines) + "\n"


def producers() -> str:
    """Return docs/producers.md: which command shows what, from the one list of what yields findings."""
    commands = get_args(Asker)
    lines = [
        "# What yields findings, and which command shows it",
        "",
        "Made by `make docs` from `PRODUCERS` in `relink/planning/assess.py`. `tree` is `relink DIR`; `repair`, `install` and",
        "`index build` relink by `run`. Editing, writing and the real loader add what they find.",
        "",
        f"| | {' | '.join(commands)} |",
        f"| --- |{' --- |' * len(commands)}",
    ]
    for producer in PRODUCERS:
        cells = [_cell(producer.not_in.get(command, "yes")) for command in commands]
        lines.append(f"| {producer.subject} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


FILES = {"relink.1": man_page, "cli.md": markdown, "rules.md": rules, "producers.md": producers}


def main() -> None:
    """Write them into docs/, or into the directory that is named."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    for name, made in FILES.items():
        (directory / name).write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main()
