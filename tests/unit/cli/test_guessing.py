"""What people pass where a command or an option is expected: each is told in one sentence with what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relink.cli.guessing import REMOVED_OPTIONS, is_requirement, unknown_word
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
    code, _, err = run("help")
    assert code == 2
    assert "`relink --help` lists the commands" in words_of(err)
    assert "install" not in words_of(err)


def test_a_bare_name_is_not_fetched(run: Run) -> None:
    code, _, err = run("onnxruntime-rocm")
    assert code == 2
    assert "`relink fetch onnxruntime-rocm`" in words_of(err)
    assert "'onnxruntime-rocm==VERSION'" in words_of(err)


def test_what_is_there_is_taken_for_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert unknown_word("inspct", COMMANDS) is not None
    assert is_requirement("demo==1.0")
    Path("inspct").touch()
    Path("demo==1.0").touch()
    assert unknown_word("inspct", COMMANDS) is None
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
