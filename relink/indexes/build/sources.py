"""The wheels that a recipe's sources have, and the choice among them by requirement, Python and release.

Sources of the rules: "Dependency specifiers" and "Version specifiers" of the PyPA specifications (PEP 508, PEP 440).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from relink.indexes.build.fingerprint import Digests
from relink.indexes.build.recipe import Recipe, WheelSource
from relink.indexes.build.simple_api import PAGE_LIMIT, ListedWheel, read_lock, read_page
from relink.indexes.build.web import FetchError, Web, without_secrets
from relink.loader.python import PythonFacts
from relink.planning.checks.tags import installs, is_for
from relink.system.errors import RelinkError, UsageError, WheelError
from relink.system.system_errors import raise_if_machine_fault
from relink.system.text import grouped
from relink.wheel.naming import parse_wheel_name

_PAGES = 8  # pages read at once
_TAGS = 10_000  # answers remembered
_BATCH = 64  # projects held at once

_Case: TypeAlias = tuple[tuple[int, int], str]  # a Python, a machine
Tell: TypeAlias = Callable[[str, str], None]
"""Takes a sentence of a kind: ``note``, about what was passed over; ``source``, about a source, or a project of one, that could
not be read: nothing is known of that."""


def fits(wheel: ListedWheel, python: tuple[int, int], machine: str) -> bool:
    """Whether a CPython on a machine installs a wheel; of glibc nothing is asked."""
    name = wheel.name
    return _fits(f"{name.python}-{name.abi}-{name.platform}", wheel.requires_python, python, machine)


@lru_cache(_TAGS)
def _fits(tags: str, requires_python: str | None, python: tuple[int, int], machine: str) -> bool:
    """The same for all wheels of these tags, of which there are many."""
    name = parse_wheel_name(f"any-0-{tags}.whl")
    if requires_python is not None:
        specifier, text = SpecifierSet(requires_python), ".".join(map(str, python))
        if not any(specifier.contains(f"{text}.{patch}", prereleases=True) for patch in (0, 99)):
            return False
    on_machine = any(is_for(platform, machine) for platform in name.platform.split("."))
    return on_machine and installs(PythonFacts("", "cpython", python), name, machine)


def find_wheels(
    recipe: Recipe, web: Web, digests: Digests, machines: Iterable[str], tell: Tell
) -> Iterator[list[ListedWheel]]:
    """Ask every source of a recipe, and choose: the wheels of some projects at a time, in the order of names and versions.

    :param web: its settings say what ``index = "pip"`` stands for.
    :param machines: the targets' words for their machines in tags.
    :raises UsageError: a directory or a lock file cannot be read.
    """
    cases = [(python, machine) for machine in sorted(machines) for python in recipe.pythons]
    sources = [_Source(source, cases, web, digests, tell) for source in recipe.sources]
    projects = sorted({project for source in sources for project in source.wanted or source.here})

    def read(project: str) -> tuple[list[ListedWheel], list[tuple[str, str]]]:
        chosen: dict[str, ListedWheel] = {}
        said: list[tuple[str, str]] = []
        for wheel in itertools.chain.from_iterable(source.choice(project, said) for source in sources):
            if recipe.denies(wheel.name):
                continue
            if chosen.setdefault(wheel.filename, wheel).sha256 != wheel.sha256:
                text = f"{wheel.filename}: two sources have other contents; the first is taken"
                said.append(("note", text))
        return sorted(chosen.values(), key=lambda one: (one.name.version, one.filename)), said

    def batches() -> Iterator[list[ListedWheel]]:
        with ThreadPoolExecutor(_PAGES, "relink-pages") as pool:
            for first in range(0, len(projects), _BATCH):
                found, said = zip(*pool.map(read, projects[first : first + _BATCH]), strict=True)
                for kind, text in itertools.chain.from_iterable(said):
                    tell(kind, text)
                yield list(itertools.chain.from_iterable(found))

    return batches()


class _Source:
    """A source: wheels that are here, by project, and indexes that are asked when a project's turn comes."""

    def __init__(
        self, source: WheelSource, cases: Sequence[_Case], web: Web, digests: Digests, tell: Tell
    ) -> None:
        self.cases, self.web, self.latest = cases, web, source.latest
        self.indexes: tuple[str, ...] | None = None
        found: Iterable[ListedWheel] = ()
        if source.kind == "directory":
            found = _in_directory(Path(source.place), digests, tell)
        elif source.kind == "lock":
            found = read_lock(Path(source.place))
        elif source.place == "pip":
            found, self.indexes = _in_links(web, digests, tell), web.settings.indexes
        else:
            self.indexes = (source.place,)
        self.here: dict[str, list[ListedWheel]] = grouped((wheel.name.canonical, wheel) for wheel in found)
        self.wanted: dict[str, list[Requirement]] = grouped(
            (canonicalize_name(one.name), one) for one in source.requirements
        )

    def choice(self, project: str, said: list[tuple[str, str]]) -> Iterator[ListedWheel]:
        """Choose by the requirements, of each the newest; a release that is yanked whole does not count as one.

        :param said: gets what is to be told.
        """
        if self.wanted and project not in self.wanted:
            return
        wheels = [*self.here.get(project, ()), *self._asked(project, said)]
        fitting = [(wheel, [one for one in self.cases if fits(wheel, *one)]) for wheel in wheels]
        for requirement in self.wanted.get(project, (None,)):
            listed = [wheel for wheel, own in fitting if own and _in_force(requirement, own)]
            versions = {wheel.name.version for wheel in listed}
            if requirement is not None:
                versions = set(requirement.specifier.filter(versions))
            if self.latest:
                offered = {wheel.name.version for wheel in listed if wheel.yanked is None} & versions
                versions = set(sorted(offered, reverse=True)[: self.latest])
            yield from (wheel for wheel in listed if wheel.name.version in versions)

    def _asked(self, project: str, said: list[tuple[str, str]]) -> Iterator[ListedWheel]:
        """The wheels that indexes have; a project that the first index lacks may be in the next one."""
        lacking = 0
        for index in self.indexes or ():
            try:
                address = f"{index.rstrip('/')}/{project}/"
                wheels, refused = read_page(self.web.page(address, PAGE_LIMIT), canonicalize_name(project))
            except RelinkError as error:
                if isinstance(error, FetchError) and error.missing:
                    lacking += 1
                else:
                    said.append(("source", str(error)))
                continue
            said += [("note", text) for text in refused]
            yield from wheels
        if self.indexes is not None and lacking == len(self.indexes) and project not in self.here:
            names = ", ".join(map(without_secrets, self.indexes)) or "none is configured"
            said.append(("source", f"{project}: no index has it ({names})"))


def _in_force(requirement: Requirement | None, cases: Iterable[_Case]) -> bool:
    """Whether the marker of a requirement is true for one of the cases: of Linux and CPython, as here, is the rest."""
    if requirement is None or requirement.marker is None:
        return True
    for (major, minor), machine in cases:
        text = f"{major}.{minor}"
        full = dict.fromkeys(("implementation_version", "python_full_version"), f"{text}.0")
        if requirement.marker.evaluate(full | {"python_version": text, "platform_machine": machine}):
            return True
    return False


def _in_links(web: Web, digests: Digests, tell: Tell) -> Iterator[ListedWheel]:
    """The wheels of what pip's find-links names: directories, and pages of several projects."""
    for place in web.settings.find_links:
        parts = urlsplit(place)
        try:
            path = Path(os.path.abspath(unquote(parts.path)))
            here = parts.scheme in ("", "file")
            if here and not path.is_file():
                yield from _in_directory(path, digests, tell)
                continue
            wheels, refused = read_page(web.page(path.as_uri() if here else place, PAGE_LIMIT), None)
            for text in refused:
                tell("note", text)
            yield from wheels
        except (RelinkError, OSError) as error:
            tell("source", str(error))


def _in_directory(directory: Path, digests: Digests, tell: Tell) -> Iterator[ListedWheel]:
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
            tell("note", f"{path}: is passed over: {error.message}")
            continue
        yield ListedWheel(parsed, path.as_uri(), digests.sha256(str(path)), os.stat(path).st_size)
