"""``python -m benchmarks.imports DIRECTORY [NAME…]``: what relink predicts that an import maps, against what it does map.

The packages of imports.tsv (rank by downloads, name) go into as few environments as their requirements allow. Each environment
is built, measured and removed before the next; what has a result in DIRECTORY/imports.json is not measured again, so an
interrupted run goes on. The code of the packages runs. ``--table`` writes docs/imports.md from the results.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from relink.indexes.install.real_imports import import_really
from relink.loader.process import Dlopen, Process
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import Target, find_target
from relink.python.events import Event, ImportEvents
from relink.python.facts_cache import FactsCache
from relink.python.modules import Interpreter
from relink.python.process import PythonProcesses
from relink.system.programs import finish_steps

LIST: Final = Path(__file__).with_name("imports.tsv")
TABLE: Final = Path(__file__).parents[1] / "docs" / "imports.md"
_GROUP: Final = 60  # packages of one environment; the largest seen has 9 GB
_COUNTED: Final = ("certain", "guarded", "inferred")
_FACTS: Final = """
import importlib.machinery, json, os, sys, sysconfig
print(json.dumps({"program": os.readlink("/proc/self/exe"), "version": sys.version_info[:2],
    "suffixes": importlib.machinery.EXTENSION_SUFFIXES, "path": [path for path in sys.path if path],
    "builtins": sys.builtin_module_names, "prefix": sys.prefix, "standard": [sysconfig.get_path("stdlib")]}))
"""
_NATIVE: Final = """
import json, os, sys
found = {}
for site in sys.path:
    for entry in sorted(os.listdir(site)) if site.endswith("-packages") else ():
        record = os.path.join(site, entry, "RECORD")
        if entry.endswith(".dist-info") and os.path.exists(record):
            with open(record) as file:
                paths = [line.rsplit(",", 2)[0] for line in file]
            inside = [path for path in paths if path.endswith((".py", ".so")) and not path.startswith("..")]
            tops = {path.split("/")[0].split(".")[0] for path in inside}
            if any(".so" in path for path in paths):
                found[entry.split("-")[0].lower().replace("_", "-")] = sorted(top for top in tops if top.isidentifier())
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Outcome:
    """One import: what it maps and relink does not predict, what relink predicts and it does not map, and how both end."""

    package: str
    name: str
    count: int
    missed: tuple[str, ...]
    invented: tuple[str, ...]
    error: str | None
    predicted_error: str | None

    @property
    def is_right(self) -> bool:
        return not self.missed and not self.invented and bool(self.error) == bool(self.predicted_error)


def ask(python: Path, program: str) -> Any:
    run = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True, cwd="/")
    return json.loads(run.stdout)


def predict(
    target: Target, files: Files, tables: Tables, start: Sequence[Event], events: ImportEvents
) -> tuple[list[str], str | None]:
    """Return what an import maps by the sources and the simulation of the loader; `start`: what comes before the import."""
    process = Process(Environment(target, files), tables, target.python or "")
    error = events.failure
    for event in (*start, *events.events):
        if event.kind in ("extension", "library") and event.when in _COUNTED:
            result = process.dlopen(Dlopen(event.name, event.flags, event.caller))
            if result.failure is not None and event.when == "certain":
                missing = [edge.soname for edge in result.failure.missing]
                error = error or f"{event.name}: {result.failure.cause} {missing}"
    return [loaded.path for loaded in process.objects], error


def measure(python: Path, wanted: Iterable[str]) -> Iterator[Outcome]:
    """Import the packages of an environment that have native code, each module twice: the first time may write caches."""
    facts = ask(python, _FACTS)
    sites = tuple(path for path in facts["path"] if path.endswith("-packages"))
    interpreter = Interpreter(
        program=facts["program"],
        version=(facts["version"][0], facts["version"][1]),
        suffixes=tuple(facts["suffixes"]),
        path=tuple(facts["path"]),
        site_packages=sites,
        standard=tuple(facts["standard"]),
        builtins=frozenset(facts["builtins"]),
        prefix=facts["prefix"],
    )
    target = find_target(python=str(python))
    files = Files(target.sysroot)
    tables = Tables(files, {})
    processes = PythonProcesses(interpreter, cache=FactsCache(None), variables=os.environ)
    before = finish_steps(import_really(str(python), ["sys"]))
    start = processes.read_start()
    for package, names in ask(python, _NATIVE).items():
        for name in names if package in wanted else ():
            finish_steps(import_really(str(python), [name]))
            real = finish_steps(import_really(str(python), [name]))
            predicted, predicted_error = predict(target, files, tables, start, processes.read_import(name))
            missed, invented = real.differs(predicted, before)
            count = len(real.mapped.keys() - before.mapped.keys())
            yield Outcome(
                package,
                name,
                count,
                tuple(map(shown, missed)),
                tuple(map(shown, invented)),
                real.error,
                predicted_error,
            )


def shown(path: str) -> str:
    """Return a path from site-packages on, or the name of a file elsewhere."""
    _, found, below = path.rpartition("-packages/")
    return below if found else path.rpartition("/")[2]


def build(directory: Path, names: Sequence[str]) -> Path:
    """Return the Python of a new environment with the packages; one that conflicts with others before it is left out."""
    python = directory / "bin" / "python"
    subprocess.run(["uv", "venv", "--quiet", "--clear", str(directory)], check=True)
    rest = [*names]
    while rest:
        command = [
            "uv",
            "pip",
            "install",
            "--quiet",
            "--only-binary",
            ":all:",
            "--python",
            str(python),
            *rest,
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode == 0:
            break
        named = [name for name in rest if f"{name}" in run.stderr]
        rest.remove(named[0] if named else rest[-1])
    return python


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the results as Markdown: a line for each import that was not predicted."""
    right = sum(outcome.is_right for outcome in outcomes)
    packages = len({outcome.package for outcome in outcomes})
    called_wrong = sum(bool(outcome.predicted_error) and not outcome.error for outcome in outcomes)
    ends = Counter((bool(outcome.error), bool(outcome.predicted_error)) for outcome in outcomes)
    failing = ends[True, True] + ends[True, False]
    summary = (
        f"{packages} packages with native code, {len(outcomes)} imports; {right} were predicted to the file. Of those that work, "
        f"{called_wrong} were predicted to fail; of the {failing} that fail, {ends[True, True]} were."
    )
    lines = [
        "# What an import maps: prediction and reality",
        "",
        summary,
        "",
        "| package | import | files | mapped, not predicted | predicted, not mapped | error |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in sorted(outcomes, key=lambda one: (one.package, one.name)):
        if not one.is_right:
            error = (one.error or "").replace("|", "/").splitlines()
            cells = [
                one.package,
                one.name,
                str(one.count),
                short(one.missed),
                short(one.invented),
                error[0][:80] if error else "",
            ]
            lines.append(f"| {' | '.join(cells)} |")
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
        python = build(directory / "environment", group)
        for outcome in measure(python, set(group)):
            done.append(outcome)
            print(outcome.package, outcome.name, "right" if outcome.is_right else "wrong", flush=True)
            results.write_text(json.dumps([asdict(one) for one in done]))
        known |= {*group}
        tried.write_text(json.dumps(sorted(known)))
        shutil.rmtree(directory / "environment")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
