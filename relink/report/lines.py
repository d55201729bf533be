"""What is printed for people, made of parts in which every untrusted string is escaped as it comes in.

A :class:`Line` is one line of output, a :class:`Grid` a table and :func:`branch` a tree of such lines. rich's own ``Text`` and
``Table`` are not used elsewhere: they print control characters, a line feed in a name begins a line, and a table reads ``[bold]``
as markup.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from relink.system.text import escaped

__all__ = ["NEXT", "Grid", "Line", "Part", "Tree", "branch", "folded", "show"]

NEXT = "Next: "
"""What a line begins with that says what to type or to do."""
_INDENT = 2
_WIDE = 1 << 16  # columns of a pipe: no path is longer (PATH_MAX is 4096), so rich wraps nothing


class Line(Text):
    """One line: what :func:`relink.system.text.escaped` spells out never reaches the terminal, line feeds included."""

    def __init__(self, text: str = "", style: str | Style = "", **layout: Any) -> None:
        super().__init__(escaped(text), style, **layout)

    def append(self, text: Text | str, style: str | Style | None = None) -> Text:
        """Add text with a style of its own; :meth:`assemble` uses it for each part."""
        return super().append(escaped(text) if isinstance(text, str) else _line(text), style)

    @classmethod
    def assemble(
        cls, *parts: str | Text | tuple[str, str | Style], style: str | Style = "", **layout: Any
    ) -> Line:
        """Return one line of several parts; a part is a str, or a str and its style."""
        line = cls(style=style, **layout)
        for part in parts:
            line.append(*part) if isinstance(part, tuple) else line.append(part)
        return line


class Grid(Table):
    """A table without lines whose cells are escaped; a str in it is no markup."""

    def __init__(self, **layout: Any) -> None:
        super().__init__(box=None, pad_edge=False, header_style="bold", **layout)

    def add_row(self, *cells: Any, **layout: Any) -> None:
        """Add a row of one line each."""
        super().add_row(*(_line(cell) for cell in cells), **layout)

    def add_column(self, header: Any = "", *arguments: Any, **layout: Any) -> None:
        """Add a column below a heading of one line."""
        super().add_column(_line(header), *arguments, **layout)


Part: TypeAlias = str | Line | Grid | Tree
"""What :func:`show` prints; a str is one line as it stands."""


def branch(*parts: str | tuple[str, str]) -> Tree:
    """Return a tree with one line as its label; ``tree.add(Line(…))`` puts branches below it."""
    return Tree(Line.assemble(*parts))


def show(console: Console, *parts: Part) -> None:
    """Print `parts` below each other; long lines are folded on a terminal only, so that a pipe gets whole lines.

    A line is folded between words: a path stays whole, to be copied, also where it is longer than the terminal is wide. A line
    with the next command is not folded: the terminal wraps it without a line feed, and what is copied can be pasted.

    :raises TypeError: a part is of a kind in which nothing is escaped.
    """
    safe = [_safe(part) for part in parts]
    if console.is_terminal:
        for part in safe:
            if isinstance(part, Line) and part.plain.startswith(NEXT):
                console.print(part, soft_wrap=True)
            elif isinstance(part, Line):
                for fold in folded(part, console.width):
                    console.print(fold, soft_wrap=True)
            elif isinstance(part, Tree):
                for fold in _folded_tree(part, console.width):
                    console.print(fold, soft_wrap=True)
            else:
                _show_grid(console, part)
        return
    plain = Console(file=io.StringIO(), width=_WIDE, color_system=None)
    with plain.capture() as lines:
        for part in safe:
            plain.print(part, soft_wrap=isinstance(part, Line))
    for line in lines.get().removesuffix("\n").split("\n") if safe else ():
        console.print(Line(line.rstrip()), soft_wrap=True)


def folded(line: Line, width: int) -> list[Text]:
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


def _show_grid(console: Console, grid: Grid) -> None:
    """Print a grid whose longest words stay whole, also where it is wider than the terminal then."""
    width = console.width
    try:
        console.width = _WIDE
        console.width = max(width, console.measure(grid).minimum)
        console.print(grid, crop=False)
    finally:
        console.width = width


def _folded_tree(tree: Tree, width: int) -> Iterator[Text]:
    """Yield the lines that a tree takes on a terminal: its labels are folded as lines are, beside the guides."""
    pending = [(tree, "", "")]
    while pending:
        node, first, rest = pending.pop()
        guide = "│ " if node.children else "  "
        for number, fold in enumerate(folded(_line(node.label), width - len(rest))):
            yield (
                Text(first).append_text(fold)
                if not number
                else Text(rest + guide).append_text(fold[_INDENT:])
            )
        for number, child in enumerate(reversed(node.children)):
            pending.append(
                (child, rest + ("├── " if number else "└── "), rest + ("│   " if number else "    "))
            )


def _safe(part: Part) -> Line | Grid | Tree:
    if isinstance(part, Grid):
        return part
    if isinstance(part, Tree):
        pending = [part]
        while pending:
            tree = pending.pop()
            tree.label = _line(tree.label)
            pending += tree.children
        return part
    return _line(part)


def _line(part: Any) -> Line:
    if not isinstance(part, str | Line):
        raise TypeError(f"{type(part).__name__} is not escaped; use a str, Line, Grid or Tree")
    return Line(part) if isinstance(part, str) else part
