"""What is printed for people, made of parts in which every untrusted string is escaped as it comes in.

A :class:`Line` is one line of output, :func:`branch` a tree of such lines. rich's own ``Text`` is not used elsewhere: it prints
control characters, and a line feed in a name begins a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.text import Text
from rich.tree import Tree

from relink.system.text import escape_untrusted

NEXT = "Next: "
"""What a line begins with that says what to type or to do."""
_INDENT = 2
# Columns of a pipe: no path is longer (PATH_MAX is 4096), so rich wraps nothing.
_WIDE = 1 << 16


class Line(Text):
    """One line: what :func:`relink.system.text.escape_untrusted` spells out never reaches the terminal, line feeds included."""

    def __init__(self, text: str = "", style: str | Style = "", **layout: Any) -> None:
        super().__init__(escape_untrusted(text), style, **layout)

    def append(self, text: Text | str, style: str | Style | None = None) -> Text:
        """Add text with a style of its own; :meth:`assemble` uses it for each part."""
        return super().append(escape_untrusted(text) if isinstance(text, str) else _line(text), style)

    @classmethod
    def assemble(
        cls, *parts: str | Text | tuple[str, str | Style], style: str | Style = "", **layout: Any
    ) -> Line:
        """Return one line of several parts; a part is a str, or a str and its style."""
        line = cls(style=style, **layout)
        for part in parts:
            line.append(*part) if isinstance(part, tuple) else line.append(part)
        return line


Part: TypeAlias = str | Line | Tree
"""What :func:`show` prints; a str is one line as it stands."""


def align_rows(rows: Iterable[Sequence[str | Line]]) -> list[Line]:
    """Return a line for each row, whose cells stand below those of the other rows."""
    cells = [[_line(cell) for cell in row] for row in rows]
    # In columns of the terminal, of which some characters take two.
    widths = [max(cell_len(cell.plain) for cell in column) for column in zip(*cells, strict=True)]
    return [
        Line.assemble(
            *(
                part
                for cell, width in zip(row[:-1], widths, strict=False)
                for part in (cell, " " * (width + _INDENT - cell_len(cell.plain)))
            ),
            row[-1],
        )
        for row in cells
    ]


def branch(*parts: str | tuple[str, str]) -> Tree:
    """Return a tree with one line as its label; ``tree.add(Line(…))`` puts branches below it."""
    return Tree(Line.assemble(*parts))


def show(console: Console, *parts: Part) -> None:
    """Print `parts` below each other; long lines are folded on a terminal only, so that a pipe gets whole lines.

    A line is folded between words: a path stays whole, to be copied, also where it is longer than the terminal is wide. A line
    with the next command is not folded: the terminal wraps it without a line feed, and what is copied can be pasted.

    :raises TypeError: a part is of a kind in which nothing is escaped.
    """
    width = console.width if console.is_terminal else _WIDE
    for folds in [[*_folds(part, width)] for part in parts]:
        for fold in folds:
            # A pipe gets no styles. The lines are folded already, so rich folds none (soft_wrap).
            console.print(fold if console.is_terminal else Text(fold.plain), soft_wrap=True)


def _folds(part: Part, width: int) -> Iterator[Text]:
    """Yield the lines that a part takes; the labels of a tree are folded beside its guides."""
    if not isinstance(part, Tree):
        line = _line(part)
        yield from [line] if line.plain.startswith(NEXT) else fold_line(line, width)
        return
    pending = [(part, "", "")]
    while pending:
        node, first, rest = pending.pop()
        guide = "│ " if node.children else "  "
        for number, fold in enumerate(fold_line(_line(node.label), width - len(rest))):
            yield Text(rest + guide).append_text(fold[_INDENT:]) if number else Text(first).append_text(fold)
        # Reversed, since the stack gives the last one back first. So number 0 is the last child, whose guide ends there.
        for number, child in enumerate(reversed(node.children)):
            pending.append(
                (child, rest + ("├── " if number else "└── "), rest + ("│   " if number else "    "))
            )


def fold_line(line: Line, width: int) -> list[Text]:
    """Return the lines that `line` takes on a terminal, those after the first indented by two columns more than it is.

    A line with ``no_wrap`` is one, and what is between backticks is a command: a line end in it would break what is copied.
    """
    if line.no_wrap:
        return [line]
    text = line.plain
    indent = len(text) - len(text.lstrip()) + _INDENT
    cuts: list[int] = []
    used = 0
    for word in re.finditer(r"(?P<space>\s*)(?P<word>(?:`[^`]+`|\S)+)", text):
        size = cell_len(word["word"])
        if used and used + cell_len(word["space"]) + size > width and word.start("space") > 0:
            cuts.append(word.start("word"))
            used = indent + size
        else:
            used += cell_len(word["space"]) + size
    parts = list(line.divide(cuts))
    for part in parts:
        part.rstrip()
    return [parts[0], *(Text(" " * indent).append_text(part) for part in parts[1:])]


def _line(part: Any) -> Line:
    if not isinstance(part, str | Line):
        raise TypeError(f"{type(part).__name__} is not escaped; use a str, Line, Grid or Tree")
    return Line(part) if isinstance(part, str) else part
