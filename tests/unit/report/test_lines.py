"""What people read is printed by one module, in which everything is escaped."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from relink.report.lines import Line, align_rows, branch, show
from relink.report.summary import Verdict
from relink.report.text import verdict_text


def printed(*parts: Any, width: int = 20, terminal: bool = False) -> str:
    file = io.StringIO()
    show(Console(file=file, width=width, force_terminal=terminal, color_system=None), *parts)
    return file.getvalue()


def test_lines_of_a_pipe_are_whole() -> None:
    long = "word " * 20 + "end"
    assert printed(long, Line("next")) == f"{long}\nnext\n"
    assert printed(long, terminal=True).count("\n") > 4


def test_no_markup_and_no_second_line() -> None:
    said = "[bold]a[/bold]\n\x1b[2J"
    assert printed(said) == "[bold]a[/bold]\\n\\x1b[2J\n"
    assert printed(Line.assemble(("a\n", "bold"), said)) == "a\\n[bold]a[/bold]\\n\\x1b[2J\n"


def test_rows_are_aligned() -> None:
    assert printed(*align_rows([("na\nme", "size"), ("[b]", "1")])) == "na\\nme  size\n[b]     1\n"
    assert align_rows([]) == []


def test_a_tree() -> None:
    tree = branch("root\n", ("x", "bold"))
    tree.add("leaf\r").add(Line("deep"))
    assert printed(tree) == "root\\nx\n└── leaf\\x0d\n    └── deep\n"


def test_a_path_stays_whole_on_a_narrow_terminal() -> None:
    """Longer than the terminal is wide, it is the terminal that wraps it; what is copied is one word."""
    path = "/usr/lib/x86_64-linux-gnu/librocblas.so.5"
    tree = branch("root")
    tree.add(Line(f"librocblas.so.5 {path} by RUNPATH")).add(Line("deep"))
    tree.add("last")
    assert printed(tree, terminal=True) == (
        f"root\n├── librocblas.so.5\n│   │ {path}\n│   │ by RUNPATH\n│   └── deep\n└── last\n"
    )
    assert printed(*align_rows([("RUNPATH", path)]), terminal=True).split() == ["RUNPATH", path]
    assert printed("a b", terminal=True) == "a b\n"


def test_what_is_not_escaped_is_refused() -> None:
    with pytest.raises(TypeError, match="Text is not escaped"):
        printed(Text("a\nb"))
    tree = branch("root")
    tree.add(Text("a\nb"))
    with pytest.raises(TypeError, match="Text is not escaped"):
        printed(tree)
    assert printed() == ""


def test_a_command_is_one_line_on_a_narrow_terminal() -> None:
    """What is copied from a terminal is what a shell is to get: no line end is put into it."""
    command = "pip install '/a b/demo 1.whl' --constraint file"
    verdict = Verdict("info", "Loads.", f"{command}; or, without them: relink x", (command, "relink x"))
    told = printed(*verdict_text(verdict), terminal=True).splitlines()
    assert (told[0], told[-3:]) == ("Loads.", [f"    {command}", "or, without them:", "    relink x"])
    assert " ".join(told[1:-3]).split() == ["Next", "(not", "tried:", "it", "changes", "the", "environment):"]
    assert f"`{command}`" in printed(f"it is put back by `{command}`, says relink", terminal=True)
