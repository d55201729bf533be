"""What people pass where a command, an option or a wheel is expected: each is told in one sentence with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.cli.guessing import is_requirement, unknown_word
from relink.wheel.lookalikes import not_a_wheel
from tests.support.command import Run
from tests.support.works import Works

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
    assert f"Did you mean {meant}?" in words_of(err)


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


def test_a_wheel_that_is_not_there(run: Run) -> None:
    code, _, err = run("demo-1.0-py3-none-any.whl")
    assert code == 2
    assert "demo-1.0-py3-none-any.whl cannot be opened: No such file or directory" in err


# Files that are no wheels


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("demo-1.0.tar.gz", "is a source distribution, and relink takes wheels"),
        ("demo-1.0.zip", "is a source distribution, and relink takes wheels"),
        ("demo-1.0-0.conda", "is a package of conda's"),
        ("demo_1.0_amd64.deb", "is a package of Debian's"),
    ],
)
def test_a_file_of_another_kind(run: Run, tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8b")
    for command in ([], ["inspect"], ["verify"]):
        code, out, err = run(*command, tmp_path / name)
        assert (code, out) == (2, "")
        assert sentence in err
        assert err.count("\n") == 1


def test_a_directory(run: Run, works: Works, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    assert "there is no wheel in it" in run(tmp_path / "d")[2]
    (tmp_path / "d" / "pyproject.toml").touch()
    assert f"build one: pip wheel --no-deps {tmp_path}/d" in run(tmp_path / "d")[2]
    wheel = works.small(tmp_path / "d")
    code, _, err = run(tmp_path / "d")
    assert code == 2
    assert f"pass those in it: {wheel}" in err


def test_what_may_be_a_wheel_is_opened(tmp_path: Path) -> None:
    (tmp_path / "store-name").touch()
    assert not_a_wheel(tmp_path / "store-name") is None
    assert not_a_wheel(tmp_path / "gone.tar.gz") is None
