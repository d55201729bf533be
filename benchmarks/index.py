"""What a large index costs where nothing is left to do: seconds and memory of the coordinator, bytes of the pages.

The source is made up: releases of many projects in a directory that is an index, each with a result for each of six targets. The
results are copies of those of one real build of three small wheels (written, refused, original), with other names, digests and
texts; nothing is relinked, and the wheels of the site are empty. RELINK_BENCH_WHEELS says how many wheels (1000,10000).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.cost import measured
from relink.indexes.build.building import target_key
from relink.indexes.build.recipe import read_recipe
from relink.indexes.build.store import Store
from tests.support.wheels import make_wheel
from tests.support.works import TAG, build_works

_SIZES = tuple(int(word) for word in os.environ.get("RELINK_BENCH_WHEELS", "1000,10000").split(","))
_RELEASES = 50  # of a project
_TARGETS = tuple(f"rocm{number}" for number in range(6))
_PADDING = 2500  # characters, so that a result is as long as those of real wheels
_PYTHON = ".".join(map(str, sys.version_info[:2]))


def _recipe(place: Path, prefix: Path, source: str) -> Path:
    tables = "".join(
        f'[targets.{name}]\nprefixes = ["{prefix}"]\ngpus = ["RX 6750 XT", "gfx942"]\n' for name in _TARGETS
    )
    path = place / "index.toml"
    path.write_text(f'pythons = ["{_PYTHON}"]\n[[sources]]\n{source}\n{tables}')
    return path


def _build(recipe: Path, site: Path) -> list[str]:
    words = ["index", "build", str(recipe), "-o", str(site), "--json"]
    return [sys.executable, "-m", "relink", *words]


def _samples(place: Path) -> tuple[Path, list[dict[str, Any]], dict[str, str]]:
    """Relink three wheels for the targets; returns the prefix, their rows of the state, and what they rest on."""
    works = build_works(place / "works")
    for number, library in enumerate((works.library, works.lost, works.plain)):
        make_wheel(place / "wheels", {"demo/a.so": library}, version=f"{number}.0", tag=TAG)
    recipe = _recipe(place, works.prefix, 'directory = "wheels"')
    subprocess.run(_build(recipe, place / "sample"), stdout=subprocess.DEVNULL, check=True)
    with contextlib.closing(sqlite3.connect(place / "sample.relink" / "state.sqlite")) as state:
        state.row_factory = sqlite3.Row
        query = "select results.*, body from results join records using (id) order by input, target"
        rows = [dict(row) for row in state.execute(query)]
        rests = dict(state.execute("select id, body from rests").fetchall())
    return works.prefix, rows, rests


def _source(place: Path, wheels: int) -> Iterator[tuple[str, str, str]]:
    """Write the pages of an index; yields project, version and SHA-256 of each wheel."""
    for first in range(0, wheels, _RELEASES):
        project = f"demo-{first // _RELEASES}"
        files = []
        for number in range(min(_RELEASES, wheels - first)):
            name = f"{project.replace('-', '_')}-{number}.0-{TAG}.whl"
            sha256 = hashlib.sha256(name.encode()).hexdigest()
            address = f"https://wheels.invalid/{name}"
            files.append(
                {
                    "filename": name,
                    "url": address,
                    "hashes": {"sha256": sha256},
                    "size": 1 << 20,
                    "yanked": False,
                }
            )
            yield project, f"{number}.0", sha256
        page = place / project / "index.json"
        page.parent.mkdir(parents=True)
        page.write_text(json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": files}))


def _fill(
    place: Path, wheels: int, samples: list[dict[str, Any]], rests: dict[str, str], prefix: Path
) -> Path:
    """Write the source and the state of a site; returns the recipe."""
    named = list(_source(place / "source", wheels))
    projects = json.dumps(list(dict.fromkeys(project for project, _, _ in named)))
    recipe = _recipe(place, prefix, f'index = "{(place / "source").as_uri()}"\nrequirements = {projects}')
    targets = {target.name: target for target in read_recipe(recipe).targets}
    inputs = list(dict.fromkeys(row["input"] for row in samples))
    with Store(place / "site") as store:
        files = store.files

    def rows() -> Iterator[dict[str, Any]]:
        count = 0
        for number, (project, version, sha256) in enumerate(named):
            own = inputs[number % len(inputs)]
            name = project.replace("-", "_")
            for row in samples:
                if row["input"] != own:
                    continue
                record = json.loads(row["body"])
                filename = f"{name}-{version}-{TAG}.whl"
                record["wheel"]["url"] = f"https://wheels.invalid/{filename}"
                record["causes"].append(f"RLK999 info: {project} {'x' * _PADDING}")
                if file := record["file"]:
                    local = file["filename"].partition("+")[2].partition("-")[0]
                    file["filename"] = f"{name}-{version}{f'+{local}' if local else ''}-{TAG}.whl"
                    file["sha256"] = hashlib.sha256(f"{sha256} {row['target']}".encode()).hexdigest()
                    made = files / file["sha256"][:2] / file["sha256"]
                    made.mkdir(parents=True)
                    (made / file["filename"]).touch()
                count += 1
                yield row | {
                    "id": count,
                    "project": project,
                    "version": version,
                    "key": target_key(targets[row["target"]]),
                    "input": sha256,
                    "filename": filename,
                    "file_sha256": file and file["sha256"],
                    "file_name": file and file["filename"],
                    "body": json.dumps(record),
                }

    with contextlib.closing(sqlite3.connect(place / "site.relink" / "state.sqlite")) as state, state:
        state.executemany("insert into rests values (?, ?)", rests.items())
        columns = [name for name in samples[0] if name != "body"]
        marks = ", ".join(f":{name}" for name in columns)
        for row in rows():
            state.execute(f"insert into results ({', '.join(columns)}) values ({marks})", row)
            state.execute("insert into records values (:id, :body)", row)
    return recipe


def _pages(site: Path) -> tuple[int, int, int, int]:
    """The number of pages, bytes of all, of the matrix, and of the largest."""
    sizes = [
        path.stat().st_size for path in site.resolve().rglob("*") if path.is_file() and not path.is_symlink()
    ]
    return len(sizes), sum(sizes), (site / "index.html").stat().st_size, max(sizes)


def nothing_to_do() -> Iterator[str]:
    """The first run publishes what the state has, and the second one finds that nothing has changed."""
    yield (
        "  wheels    tasks  state MB |  publish s  processor s  peak MB |  again s  processor s  peak MB |"
        "    pages  all MB  index.html MB  largest MB"
    )
    with tempfile.TemporaryDirectory(prefix="relink-index-", dir=os.environ.get("RELINK_BENCH_DIR")) as top:
        os.environ["XDG_CACHE_HOME"] = f"{top}/cache"
        prefix, samples, rests = _samples(Path(top))
        for wheels in _SIZES:
            place = Path(top) / str(wheels)
            place.mkdir()
            recipe = _fill(place, wheels, samples, rests, prefix)
            state = (place / "site.relink" / "state.sqlite").stat().st_size
            publish, again = (measured([_build(recipe, place / "site")], place) for _ in range(2))
            count, every, index, largest = _pages(place / "site")
            runs = "".join(
                f" | {run.wall:9.1f}  {run.processor:11.1f}  {run.memory / 1e6:7.0f}"
                for run in (publish, again)
            )
            yield (
                f"{wheels:8} {wheels * len(_TARGETS):8} {state / 1e6:9.0f}{runs} | {count:8} {every / 1e6:7.1f} "
                f"{index / 1e6:14.1f} {largest / 1e6:11.1f}"
            )
            shutil.rmtree(place)


BENCHMARKS = (nothing_to_do,)
