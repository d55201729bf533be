"""cli.watching: what a person sees, and what a log has."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from relink.cli.terminal import say, watch_build
from relink.system.errors import UsageError

EVENTS: list[tuple[str, dict[str, Any]]] = [
    (
        "budget",
        {"wheels": 2, "tasks": 4, "done": 1, "fetches": 1, "download": 5_000_000, "unknown": 1},
    ),
    ("note", {"text": "a note"}),
    ("result", {"wheel": "a-1.whl", "target": "one", "status": "written", "text": "Loads.", "seconds": 1}),
    (
        "result",
        {"wheel": "b-1.whl", "target": "one", "status": "refused", "text": "Cannot \x1b work.", "seconds": 1},
    ),
    ("failure", {"wheel": "c-1.whl", "target": "one", "error": "no disk"}),
    ("source", {"text": "no answer"}),
    ("published", {"changed": True, "seconds": 2.0}),
]


@pytest.mark.parametrize("quiet", [False, True])
def test_lines_and_log(tmp_path: Path, capsys: pytest.CaptureFixture[str], quiet: bool) -> None:
    with watch_build(tmp_path / "log", quiet=quiet) as say:
        for event in EVENTS:
            say(*event)
    lines = capsys.readouterr().err.splitlines()
    told = [
        "2 wheels, 4 tasks, 1 of them done; to fetch: 1 wheels, 5.0 MB and 1 of unknown size",
        "a note",
        "b-1.whl for one: refused: Cannot \\x1b work.",
    ]
    failed = ["c-1.whl for one: no disk", "no answer"]
    assert lines == (failed if quiet else [*told, *failed])
    logged = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["event"] for line in logged] == [event for event, _ in EVENTS]
    with pytest.raises(UsageError, match="the log cannot be written"), watch_build(tmp_path, quiet=True):
        pass


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["w.whl", "--prefix", "/a b"], "relink w.whl --prefix /c"),
        (["w.whl", "--prefix=/a b"], "relink w.whl --prefix=/c"),
        (["w.whl", "--prefix", "/x/a b"], None),
    ],
)
def test_the_same_command_with_another_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], told: str | None
) -> None:
    """Where a variable or a settings file has the word, no command is printed."""
    monkeypatch.setattr(sys, "argv", ["relink", *words])
    say(UsageError("no such directory", step=("/a b", "/c")))
    first, *following = capsys.readouterr().err.splitlines()
    assert first == "relink: no such directory"
    assert following == (["Next (not tried: this run ended before it):", f"    {told}"] if told else [])
