"""``python -m benchmarks.imports DIRECTORY [NAME…]``: what `relink check` says of packages, against what their imports do.

The packages of imports.tsv (rank by downloads, name) go into as few environments as their requirements allow. Each environment
is built, checked without and with ``--import``, and removed before the next; what has a result in DIRECTORY/imports.json is not
tried again, so an interrupted run goes on. The code of the packages runs. ``--table`` writes docs/imports.md from the results.
"""

from __future__ import annotations

import bisect
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from relink.report.check_text import NOT_FOLLOWED

LIST: Final = Path(__file__).with_name("imports.tsv")
TABLE: Final = Path(__file__).parents[1] / "docs" / "imports.md"
# What is said of a package for a vendor's GPUs whose libraries are not here: it may be imported all the same.
_GPU_PART: Final = "its GPU part does not load"
_GROUP: Final = 60  # packages of one environment; the largest seen has 9 GB
# What ld.so writes where a library, a symbol or a version of one is missing.
_LOADER: Final = re.compile(r"cannot open shared object file|undefined symbol|version [`'].*not found")


@dataclass(frozen=True)
class Outcome:
    """One distribution: what `relink check` says before its modules are imported, and what the import maps and how it ends."""

    package: str
    version: str
    level: str
    text: str
    missed: tuple[str, ...]
    invented: tuple[str, ...]
    error: str | None

    @property
    def verdict(self) -> str:
        """The first word of the answer: works, fails, GPU part, or unknown where the import could not be followed."""
        if self.text.startswith(NOT_FOLLOWED):
            return "unknown"
        if self.text.startswith(_GPU_PART):
            return "GPU part"
        return "fails" if self.level == "error" else "works"

    @property
    def is_wrong(self) -> bool:
        """Whether one that is imported is called not working, or the other way round for a reason that the loader gives."""
        if self.error is None:
            return self.verdict == "fails"
        return self.verdict == "works" and _LOADER.search(self.error) is not None

    @property
    def is_exact(self) -> bool:
        return self.error is None and not self.missed and not self.invented


def check(directory: Path, *options: str, variables: Mapping[str, str] | None = None) -> tuple[Any, float]:
    """Return the JSON of `relink check` and its seconds of processor time.

    :param variables: environment variables that it has besides this process's own.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "relink", "check", str(directory), "--json", *options]
    environment = {**os.environ, **(variables or {})}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode not in (0, 1):
        raise SystemExit(run.stderr)
    return json.loads(run.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(directory: Path) -> Iterator[Outcome]:
    """Yield what came of each distribution of an environment that has native code."""
    said, seconds = check(directory)
    files = sum(len(one["parts"]) for one in said["distributions"])
    print(f"{len(said['distributions'])} distributions, {files} files: {seconds:.1f} s", flush=True)
    # The first import may write caches that the second one opens.
    check(directory, "--import")
    seen = {one["name"]: one for one in check(directory, "--import")[0]["distributions"]}
    for one in said["distributions"]:
        real = seen[one["name"]]["imported"]
        if real is not None:
            missed, invented = (tuple(map(shown, real[which])) for which in ("missed", "invented"))
            heads = (one["name"], one["version"], one["level"], one["text"])
            yield Outcome(*heads, missed, invented, real["error"])


def shown(path: str) -> str:
    """Return a path from site-packages on, or the name of a file elsewhere."""
    _, found, below = path.rpartition("-packages/")
    return below if found else path.rpartition("/")[2]


def build(directory: Path, names: Sequence[str]) -> None:
    """Make a new environment with the packages; one that conflicts with others before it is left out."""
    subprocess.run(["uv", "venv", "--quiet", "--clear", str(directory)], check=True)
    rest = [*names]
    while rest and (answer := install(directory, rest, "--dry-run")):
        # The first one that cannot be there with those before it is the end of the shortest list that fails.
        end = bisect.bisect_left(
            range(len(rest)), True, key=lambda last: install(directory, rest[: last + 1], "--dry-run") != ""
        )
        print(f"{rest.pop(end)} is left out: {' '.join(answer.split())[:200]}", flush=True)
    while rest and (answer := install(directory, rest)):
        named = [name for name in rest if re.search(rf"`{re.escape(name)}[`=]", answer)]
        rest.remove(named[0] if named else rest[-1])
        print(f"{' '.join(answer.split())[:200]}", flush=True)


def install(directory: Path, names: Sequence[str], *options: str) -> str:
    """Install packages into an environment, and return what is in the way; empty if nothing."""
    command = [
        "uv",
        "pip",
        "install",
        "--quiet",
        "--only-binary",
        ":all:",
        "--python",
        str(directory / "bin" / "python"),
    ]
    run = subprocess.run([*command, *options, *names], capture_output=True, text=True, check=False)
    return (run.stderr or "no reason told") if run.returncode else ""


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the results as Markdown: a line for each distribution that is not works-and-imports with the files predicted."""
    imported = [one for one in outcomes if one.error is None]
    exact = sum(one.is_exact for one in outcomes)
    words = ("works", "fails", "GPU part", "unknown")
    counts = {word: sum(one.verdict == word for one in outcomes) for word in words}
    wrong = sum(one.is_wrong for one in outcomes)
    summary = (
        f"Of {len(outcomes)} distributions with native code `relink check` says that {counts['works']} work, that "
        f"{counts['fails']} do not, that the GPU part of {counts['GPU part']} does not load, and of {counts['unknown']} that it "
        f"cannot tell; {wrong} of these answers are wrong. "
        f"{len(imported)} are imported without an error; of {exact} of them the mapped files are those that were predicted."
    )
    lines = [
        "# What an import maps: prediction and reality",
        "",
        summary,
        "",
        "| distribution | answer | mapped, not predicted | predicted, not mapped | error of the import |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in sorted(outcomes, key=lambda one: one.package):
        if not one.is_exact or one.verdict != "works":
            # No page has a path of the machine on which it was made.
            text, error = (re.sub(r"/\S+-packages/", "", each) for each in (one.text, one.error or ""))
            answer = f"**{text}**" if one.is_wrong else text
            cells = [one.package, answer, short(one.missed), short(one.invented), error[:100]]
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def short(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def main(arguments: list[str]) -> int:
    directory = Path(arguments[0]).resolve()
    results = directory / "imports.json"
    done = [Outcome(**one) for one in json.loads(results.read_text())] if results.exists() else []
    if "--table" in arguments:
        TABLE.write_text(table(done))
        return 0
    listed = arguments[1:] or [
        line.split("\t")[1] for line in LIST.read_text().splitlines() if not line.startswith("#")
    ]
    tried = directory / "tried.json"
    known = set(json.loads(tried.read_text())) if tried.exists() else set()
    left = [name for name in listed if name not in known]
    for start in range(0, len(left), _GROUP):
        group = left[start : start + _GROUP]
        build(directory / "environment", group)
        for outcome in measure(directory / "environment"):
            if outcome.package not in {one.package for one in done}:
                done.append(outcome)
                print(outcome.package, "wrong" if outcome.is_wrong else outcome.verdict, flush=True)
        results.write_text(json.dumps([asdict(one) for one in done]))
        known |= {*group}
        tried.write_text(json.dumps(sorted(known)))
        shutil.rmtree(directory / "environment")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
