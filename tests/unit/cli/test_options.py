"""Commands get their signatures from the tables, and the objects that the tables describe."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from relink.cli import app
from relink.cli.formats import Shown
from relink.cli.options import (
    REMOVED_OPTIONS,
    explain_unknown_word,
    is_requirement,
    list_option_names,
    takes_options,
)
from relink.indexes.build.running import BuildOptions
from relink.planning.options import WORK, Option, Options, option_table, parse_mebibytes
from tests.support.command import Run

COMMANDS = ["run", "verify", "inspect", "doctor", "rules", "profile", "explain"]


def words_of(error: str) -> str:
    """What typer prints in a box, on one line."""
    return " ".join(error.replace("│", " ").split())


# Commands and options


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("inspct", "inspect"),
        ("doktor", "doctor"),
        ("verfy", "verify"),
        ("Rule", "rules"),
        ("explian", "explain"),
    ],
)
def test_a_misspelt_command(run: Run, typed: str, meant: str) -> None:
    code, out, err = run(typed, "demo-1.0-py3-none-any.whl")
    assert (code, out) == (2, "")
    assert f"No such command or file: {typed}. Did you mean `relink {meant}`?" in words_of(err)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["demo.whl", "--prefx", "/x"], "--prefix"),
        (["--prefx", "/x", "demo.whl"], "--prefix"),
        (["inspect", "--jsn", "demo.whl"], "--json"),
        (["demo.whl", "--dryrun"], "--dry-run"),
    ],
)
def test_a_misspelt_option(run: Run, words: list[str], meant: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert re.search(rf"(Did you mean|Possible options:) .*{meant}\b", words_of(err))


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("option", REMOVED_OPTIONS)
def test_a_removed_option(run: Run, option: str) -> None:
    """One error says what to do instead: on the command line, as the first word, and in a settings file."""
    advice = f"{option} was removed from relink: {REMOVED_OPTIONS[option]}."
    for words in (["demo.whl", option, "x"], [option, "x", "demo.whl"], ["demo.whl", f"{option}=x"]):
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert advice in words_of(err)
    Path("relink.toml").write_text(f"prefix = []\n{option.removeprefix('--')} = true\n")
    code, out, err = run("demo.whl")
    assert (code, out) == (2, "")
    assert f"relink.toml:2: {option.removeprefix('--')}: {advice.removesuffix('.')}" in err
    assert "not taken from a file" not in err


def test_help_is_no_package(run: Run) -> None:
    """A package of that name is a stranger's: none is proposed."""
    code, out, err = run("help")
    assert (code, out, err) == run("--help")
    assert (code, err) == (0, "")
    assert "Usage: " in out


def test_a_bare_name_is_not_fetched(run: Run) -> None:
    code, _, err = run("onnxruntime-rocm")
    assert code == 2
    assert "`relink fetch onnxruntime-rocm`" in words_of(err)
    assert "'onnxruntime-rocm==VERSION'" in words_of(err)


def test_what_is_there_is_taken_for_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert explain_unknown_word("inspct", COMMANDS) is not None
    assert is_requirement("demo==1.0")
    Path("inspct").touch()
    Path("demo==1.0").touch()
    assert explain_unknown_word("inspct", COMMANDS) is None
    assert not is_requirement("demo==1.0")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("demo==1.0", True),
        ("demo[all] == 1.0", True),
        ("demo===1.0", True),
        ("demo", False),
        ("demo>=1.0", False),
        ("../demo==1.0", False),
        ("demo==1.0/x.whl", False),
        ("--prefix==1.0", False),
    ],
)
def test_what_is_a_requirement(word: str, expected: bool) -> None:
    assert is_requirement(word) is expected


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
    memory: int | None = Option(SAMPLE, WORK, "MiB.", kind=int, least=2, parse=parse_mebibytes).field(None)
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
    assert list_option_names("sample") == {
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
