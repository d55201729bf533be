"""The wheels that a recipe's sources have, and the choice among them by requirement, Python and release.

Sources of the rules: "Dependency specifiers" and "Version specifiers" of the PyPA specifications (PEP 508, PEP 440).
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from relink.indexes.build.fingerprint import Digests
from relink.indexes.build.pip_settings import PipSettings
from relink.indexes.build.recipe import Recipe, WheelSource
from relink.indexes.build.simple_api import PAGE_LIMIT, ListedWheel, read_lock, read_page
from relink.indexes.build.web import FetchError, Page, Web, without_secrets
from relink.loader.python import PythonFacts
from relink.planning.checks.tags import installs, is_for
from relink.system.errors import RelinkError, UsageError, WheelError
from relink.system.safe_open import read_bytes
from relink.system.system_errors import raise_if_machine_fault
from relink.wheel.naming import WheelName, parse_wheel_name

_PAGES = 8  # pages that are read at the same time
_TAGS = 10_000  # sets of tags whose answer is remembered


_Case: TypeAlias = tuple[tuple[int, int], str]  # a Python, and a machine


@dataclass(frozen=True, slots=True)
class Listing:
    """What the sources have.

    :ivar wheels: what is taken, in the order of names and versions.
    :ivar notes: sentences about what was passed over.
    :ivar failures: sentences about sources, or projects of one, that could not be read; nothing is known of those.
    """

    wheels: list[ListedWheel]
    notes: list[str]
    failures: list[str]


@cache
def _environment(version: tuple[int, int], machine: str) -> dict[str, str]:
    """What markers are evaluated with: Linux, on `machine`, under this CPython."""
    text = ".".join(map(str, version))
    own = {key: str(value) for key, value in default_environment().items()}
    return own | {
        "implementation_name": "cpython",
        "implementation_version": f"{text}.0",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{text}.0",
        "python_version": text,
        "sys_platform": "linux",
        "extra": "",
    }


def fits(wheel: ListedWheel, python: tuple[int, int], machine: str) -> bool:
    """Whether a CPython on a machine installs a wheel; of glibc nothing is asked."""
    name = wheel.name
    return _fits(name.python, name.abi, name.platform, wheel.requires_python, python, machine)


@lru_cache(_TAGS)
def _fits(
    interpreter: str,
    abi: str,
    platform: str,
    requires_python: str | None,
    python: tuple[int, int],
    machine: str,
) -> bool:
    """The same for all wheels of these tags, of which there are many."""
    name = WheelName("any", Version("0"), "0", "", interpreter, abi, platform)
    if requires_python is not None:
        specifier, text = SpecifierSet(requires_python), ".".join(map(str, python))
        if not any(specifier.contains(f"{text}.{patch}", prereleases=True) for patch in (0, 99)):
            return False
    on_machine = any(is_for(platform, machine) for platform in name.platform.split("."))
    return on_machine and installs(PythonFacts("", "cpython", python), name, machine)


def find_wheels(
    recipe: Recipe, web: Web, digests: Digests, settings: PipSettings, machines: Iterable[str]
) -> Listing:
    """Ask every source of a recipe, and choose.

    :param settings: what ``index = "pip"`` stands for.
    :param machines: the targets' words for their machines in tags.
    :raises UsageError: a directory or a lock file cannot be read.
    """
    listing = Listing([], [], [])
    chosen: dict[str, ListedWheel] = {}
    cases = [(python, machine) for machine in dict.fromkeys(machines) for python in recipe.pythons]
    for source in recipe.sources:
        if source.kind == "directory":
            found = list(_in_directory(Path(source.place), digests, listing))
        elif source.kind == "lock":
            found = list(read_lock(Path(source.place)))
        else:
            own = source.place == "pip"
            found = list(_in_links(settings.find_links if own else (), web, digests, listing))
            known = {wheel.name.canonical for wheel in found}
            found += _in_indexes(settings.indexes if own else (source.place,), source, web, listing, known)
        for wheel in _choice(found, source, cases):
            if recipe.denies(wheel.name):
                continue
            if chosen.setdefault(wheel.filename, wheel).sha256 != wheel.sha256:
                listing.notes.append(f"{wheel.filename}: two sources have other contents; the first is taken")
    listing.wheels.extend(
        sorted(chosen.values(), key=lambda one: (one.name.canonical, one.name.version, one.filename))
    )
    return listing


def _choice(
    wheels: Iterable[ListedWheel], source: WheelSource, cases: Sequence[_Case]
) -> Iterator[ListedWheel]:
    """Choose by the requirements of a source, of each the newest; a release that is yanked whole does not count as one."""
    projects: dict[str, list[tuple[ListedWheel, list[_Case]]]] = {}
    for wheel in wheels:
        if own := [case for case in cases if fits(wheel, *case)]:
            projects.setdefault(wheel.name.canonical, []).append((wheel, own))
    wanted: list[tuple[str, Requirement | None]] = [
        (canonicalize_name(one.name), one) for one in source.requirements
    ]
    for project, requirement in wanted or [(project, None) for project in projects]:
        listed = [wheel for wheel, own in projects.get(project, ()) if _in_force(requirement, own)]
        versions = {wheel.name.version for wheel in listed}
        if requirement is not None:
            versions = set(requirement.specifier.filter(versions))
        if source.latest:
            offered = {wheel.name.version for wheel in listed if wheel.yanked is None} & versions
            versions = set(sorted(offered, reverse=True)[: source.latest])
        yield from (wheel for wheel in listed if wheel.name.version in versions)


def _in_force(requirement: Requirement | None, cases: Iterable[_Case]) -> bool:
    marker = None if requirement is None else requirement.marker
    return marker is None or any(marker.evaluate(_environment(*case)) for case in cases)


def _in_links(places: Iterable[str], web: Web, digests: Digests, listing: Listing) -> Iterator[ListedWheel]:
    """The wheels of what pip's find-links names: directories, and pages of several projects."""
    for place in places:
        parts = urlsplit(place)
        try:
            path = Path(os.path.abspath(unquote(parts.path)))
            here = parts.scheme in ("", "file")
            if here and not path.is_file():
                yield from _in_directory(path, digests, listing)
                continue
            page = (
                Page(path.as_uri(), "text/html", read_bytes(path, PAGE_LIMIT))
                if here
                else web.page(place, PAGE_LIMIT)
            )
            wheels, refused = read_page(page, None)
            listing.notes.extend(refused)
            yield from wheels
        except (RelinkError, OSError) as error:
            listing.failures.append(str(error))


def _in_directory(directory: Path, digests: Digests, listing: Listing) -> Iterator[ListedWheel]:
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".whl"))
    except OSError as error:
        raise_if_machine_fault(error, str(directory))
        raise UsageError(f"{directory}: the directory of wheels cannot be read ({error.strerror})") from error
    for name in names:
        path = Path(os.path.abspath(directory / name))
        try:
            parsed = parse_wheel_name(name)
        except WheelError as error:
            listing.notes.append(f"{path}: is passed over: {error.message}")
            continue
        yield ListedWheel(parsed, path.as_uri(), digests.sha256(str(path)), os.stat(path).st_size)


def _in_indexes(
    indexes: Sequence[str], source: WheelSource, web: Web, listing: Listing, known: Collection[str]
) -> Iterator[ListedWheel]:
    """The wheels of the projects that are asked for; a project that the first index lacks may be in the next one.

    :param known: projects that no index need have.
    """
    projects = dict.fromkeys(canonicalize_name(requirement.name) for requirement in source.requirements)

    def read(
        project: NormalizedName, index: str
    ) -> tuple[tuple[ListedWheel, ...], tuple[str, ...]] | RelinkError:
        try:
            return read_page(web.page(f"{index.rstrip('/')}/{project}/", PAGE_LIMIT), project)
        except RelinkError as error:
            return error

    asked = list(itertools.product(projects, indexes))
    lacking = Counter[str]()
    with ThreadPoolExecutor(_PAGES, "relink-pages") as pool:
        for (project, _), found in zip(asked, pool.map(lambda one: read(*one), asked), strict=True):
            if not isinstance(found, RelinkError):
                listing.notes.extend(found[1])
                yield from found[0]
            elif isinstance(found, FetchError) and found.missing:
                lacking[project] += 1
            else:
                listing.failures.append(str(found))
    for project in projects:
        if lacking[project] == len(indexes) and project not in known:
            names = ", ".join(map(without_secrets, indexes)) or "none is configured"
            listing.failures.append(f"{project}: no index has it ({names})")
