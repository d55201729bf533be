"""Try all situations and print a table: ``RELINK=PROGRAM python -m tests.situations [NAME…]``.

RELINK is the program that is tried, by default the relink of this Python. The exit code is 1 where one is not answered well.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path

from tests.situations.cases import SITUATIONS
from tests.situations.scene import Scene, grade


def main(names: list[str]) -> int:
    """Try situations, and print a line of the table for each."""
    program = tuple(shlex.split(os.environ.get("RELINK", ""))) or (sys.executable, "-m", "relink")
    print("| situation | report | answered | what was not right |\n|---|---|---|---|")  # noqa: T201
    grades = []
    for name, (report, situation) in SITUATIONS.items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as root:
            checks = list(situation(Scene(Path(root), program)))
        grades.append(grade(checks))
        wrong = "; ".join(text for _, ok, text in checks if not ok).replace("|", "/")
        print(f"| {name} | {report} | {grades[-1]} | {wrong} |", flush=True)  # noqa: T201
    return 0 if grades.count("good") == len(grades) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
