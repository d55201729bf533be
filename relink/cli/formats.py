"""What is shown of a result: the options that say it, printing in the format that they name, and writing pages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from relink.cli.terminal import print_json, show, write
from relink.planning.options import SHOWN, Option
from relink.report.lines import Part
from relink.system.errors import RelinkError, UsageError

if TYPE_CHECKING:
    from relink.report.formats import WheelResult
    from relink.report.model import Report
    from relink.report.summary import Verdict
    from relink.runs.questions import VerifiedWheel


def choose_page_path(wanted: Path | None, wheels: Sequence[Path], wheel: Path) -> Path | None:
    """Return the path of the page of `wheel`, one of the `wheels` of the command line.

    :param wanted: as ``--report`` names it: the page, or a directory for the pages of all wheels.
    :raises UsageError: `wanted` is one file for several wheels, or its directory does not exist.
    """
    if wanted is None:
        return None
    if os.path.isdir(wanted):
        return wanted / f"{wheel.stem}.html"
    if len(wheels) > 1:
        raise UsageError(
            f"--report {wanted}: a page shows one wheel, and {len(wheels)} were passed; name a directory"
        )
    if not os.path.isdir(wanted.parent):
        raise UsageError(f"--report {wanted}: there is no directory {wanted.parent}; make it first")
    return wanted


def write_page(report: Report, path: Path, *, plan: bool = False) -> None:
    """Write the page of a report under its name whole, or not at all.

    :raises UsageError: it cannot be written, or would take the place of something that is no page.
    """
    from relink.report.html import html_page
    from relink.system.atomic import save_text

    if path.suffix.lower() not in (".html", ".htm") and os.path.exists(path):
        raise UsageError(f"{path}: exists and is not called .html; name another file")
    save_text(path, html_page(report, plan=plan), "the page")


class OutputFormat(StrEnum):
    """Words for :data:`relink.report.formats.FORMATS`, and text."""

    text = "text"
    json = "json"
    sarif = "sarif"
    github = "github"


@dataclass(frozen=True, slots=True)
class Shown:
    """What of the results is printed, and how: the options of commands that no run depends on.

    :ivar as_json: short for `output_format` json.
    """

    output_format: OutputFormat | None = Option(  # noqa: RUF009 (a field)
        ("run", "diff", "verify", "inspect", "check"),
        SHOWN,
        "How findings are printed: for people, as JSON, as SARIF 2.1.0, or as workflow commands of GitHub Actions. "
        "Default: text.",
        metavar="text|json|sarif|github",
        kind=OutputFormat,
    ).field(None)
    as_json: bool = Option(
        (
            *("run", "install", "repair", "check", "diff", "verify", "inspect", "fetch", "isa", "doctor"),
            "config",
            *("index build", "index check"),
        ),
        SHOWN,
        "Nothing but JSON on standard output.",
        ("--json",),
    ).field(False)
    verbose: bool = Option(
        ("run", "install", "repair", "check", "diff", "nix"),
        SHOWN,
        "Every library that is needed (NEEDED) with the evidence, and all findings.",
        ("--verbose", "-v"),
        instead={"diff": "Every difference, however many.", "check": "Every distribution, and all findings."},
    ).field(False)
    quiet: bool = Option(
        ("run", "install", "repair", "index build"),
        SHOWN,
        "Errors only, and no progress.",
        ("--quiet", "-q"),
        instead={"index build": "Only failures and the last line."},
    ).field(False)

    def chosen_format(self) -> OutputFormat:
        """Return the format to print.

        :raises UsageError: the two options name two formats.
        """
        if self.as_json and self.output_format not in (None, OutputFormat.json):
            raise UsageError(
                f"--json and --output-format {self.output_format} are two formats; pass one of them"
            )
        return OutputFormat.json if self.as_json else self.output_format or OutputFormat.text


def print_verification(
    chosen: OutputFormat, result: VerifiedWheel, summed: Verdict, lines: Iterable[Part], **more: Sequence[str]
) -> None:
    """Print what the loader makes of files, and the verdict, as :func:`print_results` does; exit code 1 where it is not well.

    :param more: what the document has beside.
    """
    from relink.planning.model import to_data
    from relink.report.formats import WheelResult
    from relink.report.summary import verdict_to_json

    told = {"ok": result.ok, "verdict": verdict_to_json(summed), **more}
    document = {"schema": "relink.verification/1", **to_data(result), **told}
    outcome = WheelResult(result.path, None, result.findings, document)
    print_results(chosen, [outcome], lines, ok=result.ok)


def print_document(
    shown: Shown, document: Mapping[str, Any], lines: Iterable[Part], *, ok: bool = True
) -> None:
    """Print what a command found that knows no other format than JSON: that, or its lines for people.

    :param ok: whether the command ends with exit code 0; with 1 it ends here.
    """
    if shown.as_json:
        print_json(document)
    else:
        show(*lines)
    if not ok:
        raise typer.Exit(1)


def print_results(
    chosen: OutputFormat,
    outcomes: Sequence[WheelResult],
    lines: Iterable[Part] = (),
    failures: Sequence[RelinkError] = (),
    *,
    several: bool | None = None,
    ok: bool = True,
) -> None:
    """Print all that a command found: its lines for people, or in a format that programs read.

    :param ok: whether the command ends with exit code 0; with 1 it ends here.
    :param several: whether more than one wheel was named; None where the command takes one only.
    :raises OutputError: it cannot be written.
    """
    from relink.report.formats import FORMATS, Results

    if chosen is OutputFormat.text:
        show(*lines)
    else:
        messages = tuple("; ".join((failure.message, *failure.issues)) for failure in failures)
        write(FORMATS[chosen](Results(tuple(outcomes), messages, several)))
    if not ok:
        raise typer.Exit(1)
