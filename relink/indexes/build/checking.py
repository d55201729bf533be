"""`relink index check`: every link, hash and name of a site; RECORD and plan of each wheel; the loader's answer of some.

It reads the site as an installer does, through its pages, and uses nothing that the run that made it remembers.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from relink.indexes.build.matrix import MATRIX_LIMIT
from relink.indexes.build.matrix_page import PROJECTS
from relink.indexes.build.pages import FILES
from relink.indexes.build.publishing import BASIS
from relink.indexes.build.recipe import IndexTarget
from relink.indexes.build.simple_api import PAGE_LIMIT, ListedWheel, read_page
from relink.indexes.build.store import Store
from relink.indexes.build.web import Page
from relink.indexes.build.wheel_files import METADATA, METADATA_LIMIT, STATEMENT_FILE, read_beside
from relink.indexes.install.cache import LARGEST
from relink.make.added_members import read_plan
from relink.runs.questions import verify_wheel
from relink.system.atomic import atomic_file
from relink.system.bounded_json import parse_json
from relink.system.errors import RelinkError, UsageError
from relink.system.safe_open import file_sha256, read_bytes, read_text
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import NO_LIMITS
from relink.wheel.record import check_record, read_record, verify_members

__all__ = ["CheckedSite", "check_site", "repair_site"]

_READERS = 2


@dataclass(frozen=True, slots=True)
class CheckedSite:
    """What was looked at, and a sentence for each thing that is wrong."""

    pages: int
    files: int
    verified: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """A wheel of a page, the hash of its metadata file there, and the first index that has it."""

    wheel: ListedWheel
    metadata: Any
    index: str


def check_site(site: Path, sample: int, targets: Mapping[str, IndexTarget]) -> CheckedSite:
    """Check a site.

    :param sample: of how many relinked wheels each member is read and the loader is asked, by chance.
    :param targets: of a recipe, by name: whoever names them lets their loaders run. Only wheels for these are sampled.
    :raises UsageError: there is no site.
    """
    if not (site / "index.html").is_file() or not (site / "matrix.json").is_file():
        raise _no_site(site)
    site = site.resolve()  # the one that is shown now, also if a new one appears meanwhile
    problems: list[str] = []
    wheels: dict[str, _Found] = {}
    pages = 0
    for path in sorted(path for path in site.glob("*/simple/*") if path.is_dir()):
        pages += 1
        _read_project(site, str(path.relative_to(site)), wheels, problems)
    local = {key: one for key, one in wheels.items() if urlsplit(key).scheme == ""}
    with ThreadPoolExecutor(_READERS, "relink-check") as pool:
        for found in pool.map(lambda item: list(_wheel_problems(site, *item)), local.items()):
            problems += found
    problems += _matrix_problems(site)
    relinked = [
        key
        for key in sorted(local)
        if local[key].index in targets and (site / f"{key}{STATEMENT_FILE}").exists()
    ]
    chosen = random.Random(0).sample(relinked, min(sample, len(relinked)))  # noqa: S311 (a sample, and no secret)
    for key in chosen:
        problems += [f"{Path(key).name}: {text}" for text in _sampled(site / key, targets[local[key].index])]
    return CheckedSite(pages, len(local), len(chosen), tuple(problems))


def repair_site(site: Path) -> tuple[str, ...]:
    """Make good what a store has lost: what lies beside wheels is written again, and the next build makes the rest again.

    :return: a sentence for each thing that was done.
    :raises UsageError: another run works on the site, or it cannot be written.
    """
    if not site.is_symlink():
        raise _no_site(site)
    said = []
    with Store(site) as store:
        if removed := store.repair():
            said.append(f"{removed} damaged records are removed")
        damaged = set()
        for target, filename, sha256, name in store.all_files():
            path = Path(store.path_of(sha256, name))
            try:
                whole = file_sha256(path, LARGEST) == sha256
                if whole:
                    with WheelArchive(path, limits=NO_LIMITS) as archive:
                        beside = read_beside(archive)
            except (OSError, RelinkError):
                whole = False
            if not whole:
                damaged.add((target, filename))
                said.append(f"{name}: is not what it was; the next build makes it again")
                continue
            for ending, content in beside.items():
                if not _has(Path(f"{path}{ending}"), content):
                    with atomic_file(Path(f"{path}{ending}")) as file:
                        file.write(content)
                    said.append(f"{name}{ending}: is written again")
        store.drop(damaged)
        (site / BASIS).unlink(missing_ok=True)  # so that the next build writes all pages
    return tuple(said)


def _no_site(site: Path) -> UsageError:
    return UsageError(f"{site}: is no site; make one by `relink index build RECIPE -o {site}`")


def _has(path: Path, content: bytes) -> bool:
    try:
        return read_bytes(path, METADATA_LIMIT) == content
    except (OSError, RelinkError):
        return False


def _sampled(path: Path, target: IndexTarget) -> Iterator[str]:
    """Compare the content of each member with RECORD, and ask the loader."""
    try:
        with WheelArchive(path, limits=NO_LIMITS) as archive:
            verify_members(archive, read_record(archive)[0])
        found = verify_wheel(path, target.options()).findings
        yield from (f"{one.code} {one.subject}: {one.message}" for one in found if one.level == "error")
    except RelinkError as error:
        yield str(error)


def _read_project(site: Path, place: str, wheels: dict[str, _Found], problems: list[str]) -> None:
    """Read both pages of a project, which have to say the same."""
    base = f"https://site.invalid/{place}/"
    project = canonicalize_name(place.rpartition("/")[2])
    try:
        html = read_bytes(site / place / "index.html", PAGE_LIMIT)
        body = read_bytes(site / place / "index.json", PAGE_LIMIT)
        by_html, said = read_page(Page(base, "text/html", html), project)
        by_json, more = read_page(Page(base, "application/json", body), project)
        metadata = {
            file["filename"]: (file.get("core-metadata") or {}).get("sha256")
            for file in parse_json(body.decode("utf-8", "replace"))["files"]
        }
    except (OSError, RelinkError, ValueError, LookupError, TypeError, AttributeError) as error:
        problems.append(f"{place}: the pages cannot be read ({error})")
        return
    problems += [*said, *more]
    if [(one.url, one.sha256, one.yanked, one.requires_python) for one in by_html] != [
        (one.url, one.sha256, one.yanked, one.requires_python) for one in by_json
    ]:
        problems.append(f"{place}: index.html and index.json do not say the same")
    for wheel in by_json:
        own = wheel.url.startswith("https://site.invalid/")
        key = unquote(urlsplit(wheel.url).path).lstrip("/") if own else wheel.url
        known = wheels.setdefault(key, _Found(wheel, metadata.get(wheel.filename), place.partition("/")[0]))
        if known.wheel.sha256 != wheel.sha256:
            problems.append(f"{place}: {wheel.filename} has another hash than in another index")


def _wheel_problems(site: Path, key: str, found: _Found) -> Iterator[str]:
    wheel, metadata = found.wheel, found.metadata
    path = site / key
    if not key.startswith(f"{FILES}/") or ".." in Path(key).parts:
        yield f"{key}: lies outside of the site's files"
        return
    try:
        if file_sha256(path, LARGEST) != wheel.sha256:
            yield f"{key}: its content is not that of its hash"
            return
        with WheelArchive(path, limits=NO_LIMITS) as archive:
            content = archive.read(f"{archive.dist_info}/METADATA", METADATA_LIMIT)
            beside = read_bytes(f"{path}{METADATA}", METADATA_LIMIT)
            if content != beside or hashlib.sha256(beside).hexdigest() != metadata:
                yield f"{key}: the metadata beside it is not that of the wheel, or its hash is wrong"
            if os.path.exists(f"{path}{STATEMENT_FILE}"):
                yield from _relinked_problems(archive, path, wheel)
    except (OSError, RelinkError) as error:
        yield f"{key}: cannot be read ({error})"


def _relinked_problems(archive: WheelArchive, path: Path, wheel: ListedWheel) -> Iterator[str]:
    entries, issues = read_record(archive)
    for issue in (*issues, *check_record(entries, archive.members, archive.dist_info)):
        yield f"{path.name}: RECORD: {issue.path}: {issue.message}"
    if read_plan(archive) is None:
        yield f"{path.name}: there is no plan in it"
    try:
        statement = parse_json(read_bytes(f"{path}{STATEMENT_FILE}", PAGE_LIMIT).decode("utf-8", "replace"))
        digest = statement["subject"][0]["digest"]["sha256"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        yield f"{path.name}: its statement cannot be read ({error})"
        return
    if digest != wheel.sha256:
        yield f"{path.name}: its statement is about another file"


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
    except (OSError, ValueError, LookupError, TypeError) as error:
        yield f"{name}: cannot be read ({error})"
        return
    for target in targets:
        if not (site / target / "simple" / "index.html").is_file():
            yield f"{target}: the matrix has it, and there is no index of it"
