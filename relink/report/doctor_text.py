"""What `relink doctor` prints."""

from __future__ import annotations

from relink.planning.checks.machine import MachineCheck
from relink.report.lines import Line
from relink.report.text import findings_text


def doctor_text(check: MachineCheck) -> list[Line]:
    """Return what `relink doctor` prints: the machine, each prefix, then what is wrong."""
    lines = [Line("This machine", style="bold")]
    lines += [Line(f"  {text}", style=style) for found in check.diagnoses for text, style in found.rows]
    for path, release, rows in (prefix for found in check.diagnoses for prefix in found.prefix_rows):
        lines += [Line(), Line.assemble((path, "bold"), f"  {release}")]
        lines += [Line(f"  {text}", style=style) for text, style in rows]
    lines += [Line(), *findings_text(check.findings, verbose=True)]
    return [*lines, Line("The packages of an environment: relink check")]
