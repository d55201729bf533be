"""A site of the results that hold: indexes of files and the matrix; see docs/index-building.md for what lies where.

It is written project by project, so that an index of a hundred thousand wheels needs no more memory than its largest project, and
not at all where nothing of what it is made of has changed.

A site appears whole: its pages are written aside, and one rename of a symbolic link puts them in the place of the old ones.
``SITE`` is a link to ``SITE.relink/sites/NAME``, and ``files`` in there leads to ``SITE.relink/files``, which pages of all times
share: files there never change, so an installer that has read an old page still gets what the page says.

`relink index prune|remove`: releases leave a site, and files that nothing names any more leave the disk. What `prune` leaves are
the newest releases of each project and target, and always the newest one that works.

What works where: each wheel with each target and GPU, as data (``matrix.json``) and as one HTML page (`index.html`).

The page works from a file, without a server and without a network, and loads nothing.

The files of a site, each wheel in a directory that is called by its SHA-256, with what lies beside it; `relink index check`.

Beside a wheel lie its metadata (PEP 658), and of a relinked one the bill of materials.

What checks a site reads every page, link, hash and name of it as an installer does, and uses nothing that the run that made it
remembers. A wheel of the right content has the RECORD and the plan that it was made with; `relink verify` asks its loader.
"""

from __future__ import annotations

import hashlib
import html
import itertools
import json
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from relink import __version__
from relink.indexes.build.recipe import IndexTarget, Recipe, covers
from relink.indexes.build.store import Store, read_clock
from relink.indexes.build.web import (
    FILES,
    METADATA,
    PAGE_LIMIT,
    SBOM_FILE,
    ListedWheel,
    Page,
    json_bytes,
    list_pages,
    listed_file,
    name_of,
    project_pages,
    read_page,
)
from relink.indexes.install.installers import LARGEST, cache_directory
from relink.make.added_members import SBOM_MEMBER
from relink.report.html.markup import inline_source
from relink.system.atomic import atomic_file, copy_file, publish_directory, sync_directory, working_directory
from relink.system.bounded_json import parse_json
from relink.system.errors import RelinkError, UsageError, describe_failure
from relink.system.safe_open import file_sha256, read_bytes, read_text
from relink.system.text import group_pairs
from relink.vendors.registry import VENDORS, list_products, requested_gpus
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import NO_LIMITS
from relink.wheel.metadata import read_metadata

MATRIX_SCHEMA = "relink.indexes.build-matrix/1"
MATRIX_LIMIT = 256 << 20
"""Bytes of the data of one page, which has at most some ten thousand wheels."""
PROJECTS = "projects"
"""Where a site has a page for each project, which only a large one has; so is the list of them called in ``matrix.json``."""
CELL_STATES = ("works", "compiles", "part", "lacks", "refused", "failed")
"""Of a wheel on a GPU, from best to worst: it loads and has kernels; they are compiled on first use; it has only some of them, or
slow ones, or it is not known; it loads and lacks them: `relink WHEEL --gpu` refuses it, and the index has it; it does not load,
and the index does not have it; it could not be tried."""
_OF_GPU = {"none": "lacks", "jit": "compiles", "full": "works"}


def state_of(status: str, record: Mapping[str, Any], gpu: str | None) -> str:
    """Return one of :data:`CELL_STATES`: what relink itself says of the wheel, and of that GPU.

    :param gpu: a target id; None where the target names no GPU.
    """
    if status in ("refused", "failed"):
        return status
    # A wheel without GPU code has no entry, and works on each GPU.
    found = record.get("gpus", {}).get(gpu, "full")
    return _OF_GPU.get(found, "part")


def matrix_data(
    targets: Sequence[IndexTarget],
    indexes: Mapping[str, Mapping[str, Any]],
    cells: Iterable[tuple[Any, Mapping[str, Any]]],
    changes: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the matrix as JSON data: texts that many cells have stand in it once.

    :param indexes: what each is for, by target.
    :param cells: `filename`, `target` and `status` of each result, and its record (:mod:`relink.indexes.build.work`).
    :param changes: the newest first.
    """
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    gpus = {target.name: requested_gpus((*target.gpus, *target.only_gpus)) for target in targets}
    columns = []
    for name, own in gpus.items():
        cards = [
            {"id": str(gpu.target), "name": gpu.name or str(gpu.target), "products": list(gpu.products)}
            for gpu in own
        ]
        columns.append({"target": name, "gpus": cards, **indexes[name]})
    rows: dict[str, dict[str, Any]] = {}
    for cell, record in cells:
        wheel, file = name_of(cell["filename"]), record.get("file")
        about = {
            "project": wheel.canonical,
            "version": str(wheel.version),
            "tags": f"{wheel.python}-{wheel.abi}",
        }
        row = rows.setdefault(wheel.filename, {**about, "wheel": wheel.filename, "cells": {}})
        ids: list[str | None] = [str(gpu.target) for gpu in gpus[cell["target"]]] or [None]
        row["cells"][cell["target"]] = {
            "status": cell["status"],
            "states": [CELL_STATES.index(state_of(cell["status"], record, gpu)) for gpu in ids],
            "text": number(record.get("verdict", {}).get("text") or record.get("error", "")),
            "causes": [number(text) for text in record.get("causes", ())],
            "command": number(record.get("command", "")),
            "file": file and file["filename"],
        }
    return {
        "schema": MATRIX_SCHEMA,
        "relink": __version__,
        "targets": columns,
        "rows": list(rows.values()),
        "texts": list(texts),
        "states": list(CELL_STATES),
        "products": {name: list(sold) for vendor in VENDORS for name, sold in vendor.gpus.products().items()},
        "changes": list(changes),
    }


def matrix_page(data: Mapping[str, Any], project: str | None = None) -> str:
    """Return the page.

    :param data: as :func:`relink.indexes.build.site.matrix_data` gives it; with the names of projects where each has a page.
    :param project: the project whose page it is; None for the page of all.
    """
    up, title = "../" if project else "", f"What works with which {list_products()} and which card"
    style, script = _asset("matrix.css"), _asset("matrix.js")
    # Nothing of it can end the element or begin a comment (HTML, "Restrictions for contents of script elements").
    text = json.dumps({**data, "up": up}, separators=(",", ":")).replace("<", "\\u003c")
    return Template(_asset("matrix.html")).substitute(
        style=style,
        style_source=inline_source(style),
        script=script,
        script_source=inline_source(script),
        release=html.escape(data["relink"]),
        title=html.escape(f"{project}: {title[0].lower()}{title[1:]}" if project else title),
        up=up,
        same=f"{project}.json" if project else "matrix.json",
        data=text,
    )


@cache
def _asset(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


_CHANGES = 500  # on the page
ONE_PAGE = 15_000
"""Results that one page shows; where there are more, each project has a page."""
YOUNG = 3600
"""Seconds. A file that is younger may belong to a run that was killed and will go on."""
BASIS = "site.sha256"
"""The file of a site that says what it was made of."""


def publish_site(store: Store, site: Path, recipe: Recipe) -> bool:
    """Publish what holds, where it is not shown yet. A wheel that its source has no more stays, until it is pruned or denied."""
    superseded, indexes = read_clock() - recipe.superseded, store.indexes()
    targets = [target for target in recipe.targets if target.name in indexes]
    told = [[msgspec.to_builtins(target), indexes[target.name]] for target in targets]
    facts = json.dumps([__version__, recipe.originals, told, store.digest(superseded)])
    basis = hashlib.sha256(facts.encode()).hexdigest()
    with suppress(OSError, UnicodeDecodeError):
        if read_text(site / BASIS, 100) == basis:
            return False
    store.note_changes()
    changes = store.changes(_CHANGES)
    many = store.count("written", "original", "refused", "failed") > ONE_PAGE

    def version(cell: tuple[Any, Any]) -> Version:
        return name_of(cell[0]["filename"]).version

    with publishing(store, site, basis) as write:
        projects: dict[str, list[str]] = {target.name: [] for target in targets}
        listed: list[str] = []

        def cells() -> Iterator[tuple[Any, dict[str, Any]]]:
            for project in store.projects():
                own: list[tuple[Any, dict[str, Any]]] = []
                files = defaultdict[str, list[dict[str, Any]]](list)
                for row in store.listed(project, superseded):
                    if row["target"] not in projects:
                        continue
                    record = store.parsed(row["body"])
                    if row["until"] is None:
                        own.append((row, record))
                    if file := listed_file(row, record, recipe.originals):
                        files[row["target"]].append(file)
                for name, found in files.items():
                    projects[name].append(project)
                    for page, content in project_pages(project, found).items():
                        write(f"{name}/simple/{project}/{page}", content)
                own.sort(key=lambda cell: (version(cell), cell[0]["filename"], cell[0]["target"]))
                if many and own:
                    listed.append(project)
                    about = [change for change in changes if change["project"] == project]
                    data = matrix_data(targets, indexes, own, about)
                    write(f"{PROJECTS}/{project}.json", json_bytes(data))
                    write(f"{PROJECTS}/{project}.html", matrix_page(data, project).encode())
                yield from (cell for cell in own if not many or version(cell) == version(own[-1]))

        data = matrix_data(targets, indexes, cells(), changes)
        for name, known in projects.items():
            for page, content in list_pages(name, known).items():
                write(f"{name}/simple/{page}", content)
        data |= {PROJECTS: listed} if many else {}
        write("matrix.json", json_bytes(data))
        write("index.html", matrix_page(data).encode())
    return True


def check_place(site: Path) -> None:
    """Refuse to publish where something else is.

    :raises UsageError: there is a file or a directory that is no site.
    """
    ours = site.is_symlink() and os.readlink(site).startswith(f"{site.name}.relink/")
    if os.path.lexists(site) and not ours:
        raise UsageError(
            f"{site}: is there already and is no site of relink; name another place, or remove it"
        )


def not_a_site_error(site: Path, recipe: Path | str = "RECIPE") -> UsageError:
    """Return the error that says how a site is made."""
    return UsageError(f"{site}: is no site; make one by `relink index build {recipe} -o {site}`")


@contextmanager
def publishing(store: Store, site: Path, basis: str) -> Iterator[Callable[[str, bytes], None]]:
    """Give what writes a file, by its path below the site. At the end the site is shown; a server may still read the one before.

    :param basis: a digest of what it is made of.
    :raises UsageError: it cannot be written.
    """
    check_place(site)
    final, link = store.sites / f"{time.time_ns()}", store.directory / "next"
    with describe_failure(UsageError, f"{site}: the site cannot be written"):
        with working_directory(store.sites) as place:
            made = place / "site"
            made.mkdir(mode=0o755)

            def write(name: str, content: bytes) -> None:
                path = made / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

            yield write
            write(BASIS, basis.encode())
            (made / FILES).symlink_to(f"../../{FILES}")  # from where it will be
            publish_directory(made, final)
        link.unlink(missing_ok=True)
        link.symlink_to(final.relative_to(site.parent))
        os.replace(link, site)
        sync_directory(site.parent)
    others = [path for path in store.sites.iterdir() if path.name.isdigit() and path != final]
    for path in sorted(others, key=lambda path: int(path.name))[:-1]:
        shutil.rmtree(path, ignore_errors=True)


def named_results(store: Store, requirement: Requirement) -> list[Any]:
    """Return the results of the wheels that a requirement names."""
    rows = store.results_of(canonicalize_name(requirement.name))
    return [row for row in rows if covers(requirement, name_of(row["filename"]))]


def old_results(store: Store, keep: int) -> Iterator[Any]:
    """Yield all results but those of the releases that stay: so many of each project and target, the newest."""
    for project in store.projects():
        for rows in group_pairs((row["target"], row) for row in store.results_of(project)).values():
            own = group_pairs((name_of(row["filename"]).version, row) for row in rows)
            held = {
                version: {row["status"] for row in rows if row["until"] is None} - {"failed"}
                for version, rows in own.items()
            }
            ordered = sorted((version for version, statuses in held.items() if statuses), reverse=True)
            working = (version for version in ordered if held[version] != {"refused"})
            for version in set(ordered) - {*ordered[:keep], next(working, None)}:
                yield from own[version]


def remove_results(
    recipe: Recipe, site: Path, chosen: Callable[[Store], Iterable[Any]], young: float = 0
) -> tuple[int, int, int]:
    """Publish a site without some results, and remove the files that nothing names.

    :param chosen: gives the results, of a store.
    :param young: files of fewer seconds stay.
    :return: how many results and files went, and their bytes.
    :raises UsageError: there is no site.
    """
    check_place(site)
    if not site.is_symlink():
        raise not_a_site_error(site, recipe.path)
    with Store(site) as store:
        rows = list(chosen(store))
        store.drop(row["id"] for row in rows)
        publish_site(store, site, recipe)
        named = {sha256 for _, sha256, _ in store.files_of(read_clock() - recipe.superseded)}
        count = size = 0
        # Renamed first: a directory is there whole, or it is not.
        with working_directory(store.files) as place:
            for directory in sorted(store.files.glob("??/*")):
                if directory.name not in named and directory.stat().st_mtime <= time.time() - young:
                    size += sum(path.stat().st_size for path in directory.iterdir())
                    count += 1
                    directory.rename(place / directory.name)
        return sum(row["until"] is None for row in rows), count, size


METADATA_LIMIT = 16 << 20
"""Bytes of METADATA; the largest of real wheels has some hundred KiB."""
_READERS = 2
_BASE = "https://site.invalid/"
# What reading odd data raises.
_ODD = (OSError, RelinkError, ValueError, LookupError, TypeError, AttributeError)


class CheckedSite(msgspec.Struct, frozen=True):
    """What was looked at, and a sentence for each thing that is wrong."""

    pages: int
    files: int
    problems: tuple[str, ...]


def check_site(site: Path) -> CheckedSite:
    """Check a site.

    :raises UsageError: there is no site.
    """
    if not (site / "index.html").is_file() or not (site / "matrix.json").is_file():
        raise not_a_site_error(site)
    # The site that is shown now is checked, also if a new one appears meanwhile.
    site = site.resolve()
    problems: list[str] = []
    wheels: dict[str, tuple[ListedWheel, Any]] = {}
    places = [str(path.relative_to(site)) for path in sorted(site.glob("*/simple/*")) if path.is_dir()]
    for place in places:
        for wheel, metadata in _read_project(site, place, problems):
            if wheels.setdefault(wheel.url, (wheel, metadata))[0].sha256 != wheel.sha256:
                problems.append(f"{place}: {wheel.filename} has another hash than in another index")
    local = {url.removeprefix(_BASE): found for url, found in wheels.items() if url.startswith(_BASE)}
    with ThreadPoolExecutor(_READERS, "relink-check") as pool:
        each = pool.map(lambda key: list(_wheel_problems(site, unquote(key), *local[key])), local)
        problems += itertools.chain.from_iterable(each)
    problems += _matrix_problems(site)
    return CheckedSite(len(places), len(local), tuple(problems))


def repair_site(site: Path) -> tuple[str, ...]:
    """Make good what a store has lost: what lies beside wheels is written again, and the next build makes the rest again.

    :return: a sentence for each thing that was done.
    :raises UsageError: another run works on the site, or it cannot be written.
    """
    if not site.is_symlink():
        raise not_a_site_error(site)
    said, damaged = [], []
    with Store(site) as store:
        if removed := store.repair():
            said.append(f"{removed} damaged records are removed")
        for number, sha256, name in store.files_of():
            path = Path(store.path_of(sha256, name))
            found = None
            with suppress(OSError, RelinkError):
                found = _beside(path, sha256)
            if found is None:
                damaged.append(number)
                said.append(f"{name}: is not what it was; the next build makes it again")
            for ending, content in (found or {}).items():
                beside = Path(f"{path}{ending}")
                with suppress(OSError, RelinkError):
                    if read_bytes(beside, METADATA_LIMIT) == content:
                        continue
                with atomic_file(beside) as file:
                    file.write(content)
                said.append(f"{beside.name}: is written again")
        store.drop(damaged)
        # Without the basis the next build writes all pages.
        (site / BASIS).unlink(missing_ok=True)
    return tuple(said)


def _beside(path: Path, sha256: str | None) -> dict[str, bytes] | None:
    """What is to lie beside a wheel; None where its content is not that of its hash.

    :raises OSError: it cannot be read.
    :raises RelinkError: it is no wheel.
    """
    if file_sha256(path, LARGEST) != sha256:
        return None
    with WheelArchive(path, limits=NO_LIMITS) as archive:
        return read_beside(archive)


def _read_project(site: Path, place: str, problems: list[str]) -> Iterator[tuple[ListedWheel, Any]]:
    """Read both pages of a project, which have to say the same; yields its wheels, with the hashes of their metadata."""
    base, project = f"{_BASE}{place}/", canonicalize_name(place.rpartition("/")[2])
    try:
        html = Page(base, "text/html", read_bytes(site / place / "index.html", PAGE_LIMIT))
        data = Page(base, "application/json", read_bytes(site / place / "index.json", PAGE_LIMIT))
        (by_html, said), (by_json, more) = read_page(html, project), read_page(data, project)
        files = parse_json(data.body.decode("utf-8", "replace"))["files"]
        metadata = {file["filename"]: (file.get("core-metadata") or {}).get("sha256") for file in files}
    except _ODD as error:
        problems.append(f"{place}: the pages cannot be read ({error})")
        return
    problems += [*said, *more]
    # A page in HTML has no sizes and times.
    if by_html != tuple(replace(one, size=None, uploaded=None) for one in by_json):
        problems.append(f"{place}: index.html and index.json do not say the same")
    yield from ((wheel, metadata.get(wheel.filename)) for wheel in by_json)


def _wheel_problems(site: Path, key: str, wheel: ListedWheel, metadata: Any) -> Iterator[str]:
    path = site / key
    if not key.startswith(f"{FILES}/") or ".." in Path(key).parts:
        yield f"{key}: lies outside of the site's files"
        return
    try:
        found = _beside(path, wheel.sha256)
        if found is None:
            yield f"{key}: its content is not that of its hash"
            return
        beside = read_bytes(f"{path}{METADATA}", METADATA_LIMIT)
        if found[METADATA] != beside or hashlib.sha256(beside).hexdigest() != metadata:
            yield f"{key}: the metadata beside it is not that of the wheel, or its hash is wrong"
    except (OSError, RelinkError) as error:
        yield f"{key}: cannot be read ({error})"


def _matrix_problems(site: Path) -> Iterator[str]:
    name = "matrix.json"
    try:
        data = parse_json(read_text(site / name, MATRIX_LIMIT), MATRIX_LIMIT)
        targets = [str(target["target"]) for target in data["targets"]]
        for project in data.get(PROJECTS, ()):
            name = f"{PROJECTS}/{canonicalize_name(project, validate=True)}.json"
            rows = parse_json(read_text(site / name, MATRIX_LIMIT), MATRIX_LIMIT)["rows"]
            wheels = {row["wheel"] for row in rows}
            if any(row["project"] == project and row["wheel"] not in wheels for row in data["rows"]):
                yield f"{name}: lacks what matrix.json has of it"
            if not (site / name).with_suffix(".html").is_file():
                yield f"{name}: there is no page of it"
    except _ODD as error:
        yield f"{name}: cannot be read ({error})"
        return
    for target in targets:
        if not (site / target / "simple" / "index.html").is_file():
            yield f"{target}: the matrix has it, and there is no index of it"


def place_wheel(wheel: Path, files: Path, place: Path) -> dict[str, Any]:
    """Put a wheel, and what lies beside it, into the directory of its content: all of it appears at once.

    :param place: a working directory of the same file system.
    """
    sha256 = file_sha256(wheel, LARGEST)
    made = place / "made"
    made.mkdir()
    with WheelArchive(wheel) as archive:
        beside = read_beside(archive)
    for ending, content in beside.items():
        (made / f"{wheel.name}{ending}").write_bytes(content)
    if wheel.is_relative_to(place):
        wheel.replace(made / wheel.name)
    elif wheel.is_relative_to(cache_directory()):
        # Nobody changes one of the cache: it becomes one file of two names where that can be.
        with suppress(OSError):
            os.link(wheel, made / wheel.name)
    if not (made / wheel.name).exists():
        copy_file(wheel, made / wheel.name)
    final = files / sha256[:2] / sha256
    if not _is_there(made, final):
        final.parent.mkdir(exist_ok=True)
        made.chmod(0o755)
        with suppress(FileNotFoundError):
            final.rename(place / "damaged")
        try:
            publish_directory(made, final)
        except OSError:  # another worker has just done the same
            if not _is_there(made, final):
                raise
    return {
        "filename": wheel.name,
        "sha256": sha256,
        "size": (final / wheel.name).stat().st_size,
        "metadata": hashlib.sha256(beside[METADATA]).hexdigest(),
        "requires_python": read_metadata(beside[METADATA]).requires_python,
    }


def read_beside(archive: WheelArchive) -> dict[str, bytes]:
    """Return what lies beside a wheel and is in it, too, by the ending of its name."""
    found = {METADATA: archive.read(f"{archive.dist_info}/METADATA", METADATA_LIMIT)}
    if (sbom := f"{archive.dist_info}/{SBOM_MEMBER}") in archive.members:
        found[SBOM_FILE] = archive.read(sbom)
    return found


def _is_there(made: Path, final: Path) -> bool:
    """Whether a directory has all that is to be in it, with its content."""
    with suppress(OSError):
        return all(
            file_sha256(final / path.name, LARGEST) == file_sha256(path, LARGEST) for path in made.iterdir()
        )
    return False
