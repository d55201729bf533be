"""The wheels that a recipe's sources have, and the choice among them by requirement, Python and release.

WheelSources of the rules: "Dependency specifiers" and "Version specifiers" of the PyPA specifications (PEP 508, PEP 440).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from relink.indexes.build.digests import Digests
from relink.indexes.build.pip_settings import PipSettings
from relink.indexes.build.recipe import Recipe, WheelSource
from relink.indexes.build.simple_api import PAGE_LIMIT, ListedWheel, read_page
from relink.indexes.build.uv_lock import read_lock
from relink.indexes.build.web import FetchError, Page, Web, without_secrets
from relink.loader.python import PythonFacts
from relink.planning.checks.tags import installs, is_for
from relink.system.errors import RelinkError, UsageError, WheelError
from relink.system.safe_open import read_bytes
from relink.system.system_errors import raise_if_machine_fault
from relink.wheel.naming import WheelName, parse_wheel_name

__all__ = ["Listing", "find_wheels", "fits"]

_PAGES = 8  # pages that are read at the same time
_FILES_HERE = 100_000  # wheels of one directory
_TAGS = 10_000  # sets of tags whose answer is remembered


@dataclass(frozen=True, slots=True)
class Listing:
    """What the sources have.

    :ivar wheels: what is taken, in the order of names and versions.
    :ivar notes: sentences about what was passed over.
    :ivar failures: sentences about sources, or projects of one, that could not be read; nothing is known of those.
    """

    wheels: tuple[ListedWheel, ...]
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


@cache
def _cpython(version: tuple[int, int]) -> PythonFacts:
    return PythonFacts("", "cpython", version)


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


def fits(name: WheelName, requires_python: str | None, python: tuple[int, int], machine: str) -> bool:
    """Whether a CPython on a machine installs a wheel; of glibc nothing is asked."""
    return _fits(name.python, name.abi, name.platform, requires_python, python, machine)


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
    return on_machine and installs(_cpython(python), name, machine)


def find_wheels(
    recipe: Recipe, web: Web, digests: Digests, settings: PipSettings, machines: Iterable[str]
) -> Listing:
    """Ask every source of a recipe, and choose.

    :param settings: what ``index = "pip"`` stands for.
    :param machines: the targets' words for their machines in tags.
    :raises UsageError: a directory or a lock file cannot be read.
    """
    chosen: dict[tuple[str, str], ListedWheel] = {}
    notes: list[str] = []
    failures: list[str] = []
    machines = tuple(dict.fromkeys(machines))
    for source in recipe.sources:
        if source.kind == "directory":
            found = list(_in_directory(Path(source.place), digests, notes))
        elif source.kind == "lock":
            found = list(_in_lock(Path(source.place)))
        else:
            own = source.place == "pip"
            asked = settings.indexes if own else (source.place,)
            places = settings.find_links if own else ()
            found = list(_in_links(places, web, digests, notes, failures))
            known = {wheel.name.canonical for wheel in found}
            found += _in_indexes(asked, source, web, notes, failures, known)
        for wheel in _choice(found, source, recipe.pythons, machines):
            if not recipe.denies(wheel.name):
                chosen.setdefault((wheel.filename, wheel.sha256 or wheel.url), wheel)
    wheels = sorted(
        chosen.values(), key=lambda one: (one.name.canonical, one.name.version, one.filename, one.url)
    )
    return Listing(tuple(wheels), tuple(dict.fromkeys(notes)), tuple(dict.fromkeys(failures)))


def _choice(
    wheels: Iterable[ListedWheel],
    source: WheelSource,
    pythons: Sequence[tuple[int, int]],
    machines: Sequence[str],
) -> Iterator[ListedWheel]:
    fitting = [
        (wheel, cases)
        for wheel in wheels
        if (
            cases := tuple(
                (python, machine)
                for python in pythons
                for machine in machines
                if fits(wheel.name, wheel.requires_python, python, machine)
            )
        )
    ]
    if not source.requirements:
        yield from _newest([wheel for wheel, _ in fitting], source.latest)
        return
    projects: dict[NormalizedName, list[tuple[ListedWheel, tuple[tuple[tuple[int, int], str], ...]]]] = {}
    for wheel, cases in fitting:
        projects.setdefault(wheel.name.canonical, []).append((wheel, cases))
    for requirement in source.requirements:
        listed = projects.get(canonicalize_name(requirement.name), ())
        own = [wheel for wheel, cases in listed if _in_force(requirement, cases)]
        versions = set(requirement.specifier.filter({wheel.name.version for wheel in own}))
        yield from _newest([wheel for wheel in own if wheel.name.version in versions], source.latest)


def _in_force(requirement: Requirement, cases: Iterable[tuple[tuple[int, int], str]]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate(_environment(python, machine)) for python, machine in cases)


def _newest(wheels: Sequence[ListedWheel], latest: int | None) -> Iterator[ListedWheel]:
    """The wheels of the newest releases of each project; a release that is yanked whole does not count as one."""
    projects: dict[NormalizedName, list[ListedWheel]] = {}
    for wheel in wheels:
        projects.setdefault(wheel.name.canonical, []).append(wheel)
    for own in projects.values():
        offered = sorted({wheel.name.version for wheel in own if wheel.yanked is None}, reverse=True)
        kept = set(offered[:latest]) if latest else {wheel.name.version for wheel in own}
        yield from (wheel for wheel in own if wheel.name.version in kept)


def _in_links(
    places: Iterable[str], web: Web, digests: Digests, notes: list[str], failures: list[str]
) -> Iterator[ListedWheel]:
    """The wheels of what pip's find-links names: directories, and pages of several projects."""
    for place in places:
        parts = urlsplit(place)
        try:
            path = Path(unquote(parts.path))
            here = parts.scheme in ("", "file")
            if here and not path.is_file():
                yield from _in_directory(path, digests, notes)
                continue
            page = _page_of(path) if here else web.page(place, PAGE_LIMIT)
            wheels, refused = read_page(page, None)
            notes += refused
            yield from wheels
        except RelinkError as error:
            failures.append(str(error))


def _page_of(path: Path) -> Page:
    try:
        return Page(Path(os.path.abspath(path)).as_uri(), "text/html", read_bytes(path, PAGE_LIMIT))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error


def _in_directory(directory: Path, digests: Digests, notes: list[str]) -> Iterator[ListedWheel]:
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".whl"))
    except OSError as error:
        raise_if_machine_fault(error, str(directory))
        raise UsageError(f"{directory}: the directory of wheels cannot be read ({error.strerror})") from error
    if len(names) > _FILES_HERE:
        raise UsageError(f"{directory}: more than {_FILES_HERE} wheels; name a smaller directory")
    for name in names:
        path = Path(os.path.abspath(directory / name))
        try:
            parsed = parse_wheel_name(name)
        except WheelError as error:
            notes.append(f"{path}: is passed over: {error.message}")
            continue
        yield ListedWheel(parsed, path.as_uri(), digests.sha256(str(path)), os.stat(path).st_size)


def _in_lock(lock: Path) -> Iterator[ListedWheel]:
    for wheel in read_lock(lock):
        if wheel.name.canonical == wheel.package and wheel.sha256 is not None:
            yield ListedWheel(wheel.name, wheel.url.partition("#")[0], wheel.sha256, wheel.size)


def _in_indexes(
    indexes: Sequence[str],
    source: WheelSource,
    web: Web,
    notes: list[str],
    failures: list[str],
    known: Collection[str],
) -> list[ListedWheel]:
    """The wheels of the projects that are asked for; a project that the first index lacks may be in the next one.

    :param known: projects that no index need have.
    """
    projects = tuple(
        dict.fromkeys(canonicalize_name(requirement.name) for requirement in source.requirements)
    )
    found: list[ListedWheel] = []

    def read(project: NormalizedName) -> tuple[list[ListedWheel], list[str], list[str]]:
        wheels: list[ListedWheel] = []
        said: list[str] = []
        failed: list[str] = []
        missing = 0
        for index in indexes:
            try:
                listed, refused = read_page(web.page(f"{index.rstrip('/')}/{project}/", PAGE_LIMIT), project)
            except RelinkError as error:
                missing += isinstance(error, FetchError) and error.missing
                if not (isinstance(error, FetchError) and error.missing):
                    failed.append(str(error))
                continue
            wheels += listed
            said += refused
        if missing == len(indexes) and project not in known:
            failed.append(
                f"{project}: no index has it ({', '.join(map(without_secrets, indexes)) or 'none is configured'})"
            )
        return wheels, said, failed

    with ThreadPoolExecutor(_PAGES, "relink-pages") as pool:
        for wheels, said, failed in pool.map(read, projects):
            found += wheels
            notes += said
            failures += failed
    return found
