"""The files of a site, each wheel in a directory that is called by its SHA-256, with what lies beside it; `relink index check`.

Beside a wheel lie its metadata (PEP 658), and of a relinked one the bill of materials.

What checks a site reads every page, link, hash and name of it as an installer does, and uses nothing that the run that made it
remembers. A wheel of the right content has the RECORD and the plan that it was made with; `relink verify` asks its loader.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from relink.indexes.build.simple_api import (
    FILES,
    METADATA,
    PAGE_LIMIT,
    SBOM_FILE,
    ListedWheel,
    read_page,
)
from relink.indexes.build.site import BASIS, MATRIX_LIMIT, PROJECTS, not_a_site_error
from relink.indexes.build.store import Store
from relink.indexes.build.web import Page
from relink.indexes.install.cache import LARGEST, cache_directory
from relink.make.added_members import SBOM_MEMBER
from relink.system.atomic import atomic_file, copy_file, publish_directory
from relink.system.bounded_json import parse_json
from relink.system.errors import RelinkError
from relink.system.safe_open import file_sha256, read_bytes, read_text
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import NO_LIMITS
from relink.wheel.metadata import read_metadata

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
            with contextlib.suppress(OSError, RelinkError):
                found = _beside(path, sha256)
            if found is None:
                damaged.append(number)
                said.append(f"{name}: is not what it was; the next build makes it again")
            for ending, content in (found or {}).items():
                beside = Path(f"{path}{ending}")
                with contextlib.suppress(OSError, RelinkError):
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
    else:
        _copy(wheel, made / wheel.name)
    final = files / sha256[:2] / sha256
    if not _is_there(made, final):
        final.parent.mkdir(exist_ok=True)
        made.chmod(0o755)
        with contextlib.suppress(FileNotFoundError):
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
    with contextlib.suppress(OSError):
        return all(
            file_sha256(final / path.name, LARGEST) == file_sha256(path, LARGEST) for path in made.iterdir()
        )
    return False


def _copy(source: Path, destination: Path) -> None:
    """Copy a wheel; one of the cache, which nobody changes, becomes one file of two names where that can be."""
    if source.is_relative_to(cache_directory()):
        with contextlib.suppress(OSError):
            os.link(source, destination)
            return
    copy_file(source, destination)
