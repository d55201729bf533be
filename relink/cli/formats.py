"""The option ``--output-format``, and printing in the format that it names."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from relink.cli.options import SHOWN
from relink.system.errors import RelinkError, UsageError

if TYPE_CHECKING:
    from relink.report.formats import WheelResult

__all__ = ["OutputFormat", "OutputFormatOption", "chosen_format", "print_results"]


class OutputFormat(StrEnum):
    """Words for :data:`relink.report.formats.FORMATS`, and text."""

    text = "text"
    json = "json"
    sarif = "sarif"
    github = "github"


OutputFormatOption = Annotated[
    OutputFormat | None,
    typer.Option(
        "--output-format",
        metavar="text|json|sarif|github",
        help="How findings are printed: for people, as JSON, as SARIF 2.1.0, or as workflow commands of GitHub Actions. "
        "Default: text.",
        rich_help_panel=SHOWN,
    ),
]


def chosen_format(output_format: OutputFormat | None, as_json: bool) -> OutputFormat:
    """Return the format to print: ``--json`` is short for ``--output-format json``.

    :raises UsageError: the two options name two formats.
    """
    if as_json and output_format not in (None, OutputFormat.json):
        raise UsageError(f"--json and --output-format {output_format} are two formats; pass one of them")
    return OutputFormat.json if as_json else output_format or OutputFormat.text


def print_results(
    chosen: OutputFormat,
    outcomes: Sequence[WheelResult],
    failures: Sequence[RelinkError] = (),
    *,
    several: bool | None = None,
) -> None:
    """Print all that a command found, in a format that programs read.

    :param several: whether more than one wheel was named; None where the command takes one only.
    :raises OutputError: it cannot be written.
    """
    from relink.cli.terminal import write
    from relink.report.formats import FORMATS, Results

    messages = tuple("; ".join((failure.message, *failure.issues)) for failure in failures)
    write(FORMATS[chosen](Results(tuple(outcomes), messages, several)))
