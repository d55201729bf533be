"""Commands get their signatures from the tables, and the objects that the tables describe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from relink.cli import app
from relink.cli.formats import Shown
from relink.cli.options import option_names, takes_options
from relink.indexes.build.running import BuildOptions
from relink.planning.option_fields import WORK, Option, mebibytes, option_table
from relink.planning.options import Options

TOP: Any = typer.main.get_command(app)
SAMPLE = ("sample",)


@dataclass(frozen=True)
class Sample:
    """One option of each kind."""

    word: str | None = Option(SAMPLE, WORK, "A word.").field(None)
    words: tuple[str, ...] = Option(SAMPLE, WORK, "Words.").field(())
    wanted: bool = Option(SAMPLE, WORK, "A flag.").field(False)
    checked: bool = Option(SAMPLE, WORK, "A flag.", ("--no-check",)).field(True)
    speed: str = Option(SAMPLE, WORK, "A choice.", choices=("slow", "fast")).field("slow")
    memory: int | None = Option(SAMPLE, WORK, "MiB.", kind=int, least=2, parse=mebibytes).field(None)
    place: Path = Option(SAMPLE, WORK, "A path.", ("--place", "-p"), kind=Path).field(Path())  # noqa: RUF009
    length: int = Option(SAMPLE, WORK, "So long.", repeatable=True, parse=len).field(0)
    foreign: str = Option(("other",), WORK, "Of another command.").field("kept")


def sample(*words: str) -> tuple[int, list[Any]]:
    """Exit code of a command with all options of :class:`Sample`, and what its function was given."""
    given: list[Any] = []
    application = typer.Typer()

    @application.command()
    @takes_options("sample")
    def command(
        name: Annotated[str, typer.Argument()], table: Sample, *, own: Annotated[bool, typer.Option()] = False
    ) -> None:
        given.extend((name, table, own))

    return CliRunner().invoke(application, words).exit_code, given


def test_nothing_is_passed() -> None:
    assert sample("x") == (0, ["x", Sample(), False])
    assert option_names("sample") == {
        *(
            "--word",
            "--words",
            "--wanted",
            "--no-check",
            "--speed",
            "--memory",
            "--place",
            "--length",
            "--own",
        )
    }


def test_each_kind() -> None:
    words = "--word a --words b --words c --wanted --no-check --speed fast --memory 3 -p d --length e --length f --own"
    code, given = sample("x", *words.split())
    assert (code, given) == (
        0,
        ["x", Sample("a", ("b", "c"), True, False, "fast", 3 << 20, Path("d"), 2), True],
    )
    assert type(given[1].speed) is str


@pytest.mark.parametrize("words", ["--speed other", "--memory 1", "--foreign x", "--check"])
def test_what_is_refused(words: str) -> None:
    assert sample("x", *words.split()) == (2, [])


@pytest.mark.parametrize("table", [Options, Shown, BuildOptions])
def test_commands_take_what_the_table_says(table: type) -> None:
    for field, option in option_table(table).items():
        assert len(set(option.commands)) == len(option.commands) > 0
        assert option.instead.keys() <= set(option.commands)
        for name in option.commands:
            command = TOP
            for word in name.split():
                command = command.commands[word]
            (parameter,) = (each for each in command.params if each.name == field)
            assert sorted(parameter.opts) == sorted(option.names), name
            assert parameter.help.replace("\\[", "[") == option.instead.get(name, option.help)
            assert parameter.rich_help_panel == option.group
