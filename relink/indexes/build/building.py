"""`relink index build`: ask the sources, see what is done, fetch and relink the rest, publish.

Everything that is decided stands in the store (:mod:`relink.indexes.build.store`) before the next step relies on it, so a run
that was killed goes on where it was. Work that rests on the same things is never done again.

A recipe's sources have wheels; requirement, Python and release choose among them.
Sources of the rules: "Dependency specifiers" and "Version specifiers" of the PyPA specifications (PEP 508, PEP 440).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from relink import __version__
from relink.indexes.build.engine import ClusterEngine, LocalEngine, run_tasks
from relink.indexes.build.recipe import IndexTarget, Recipe, WheelSource, covers
from relink.indexes.build.running import BuildOptions, Say, Summary
from relink.indexes.build.site import check_place, named_results, publish_site
from relink.indexes.build.store import Store
from relink.indexes.build.web import (
    PAGE_LIMIT,
    FetchError,
    ListedWheel,
    PipSettings,
    Web,
    pip_settings,
    read_lock,
    read_page,
    without_secrets,
)
from relink.indexes.build.work import (
    TargetState,
    TargetTask,
    TaskOutcome,
    WheelTask,
    digest_of,
    is_still_valid,
    open_digests,
    relink_wheel,
    state_of,
)
from relink.indexes.install.installers import cached_sha256s
from relink.loader.python import PythonFacts
from relink.planning.checks.tags import accepts_wheel, fits_machine
from relink.python.facts_cache import FactsCache
from relink.system.errors import RelinkError, UsageError, WheelError, describe_failure
from relink.system.text import group_pairs
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
    on_machine = any(fits_machine(platform, machine) for platform in name.platform.split("."))
    return on_machine and accepts_wheel(PythonFacts("", "cpython", python), name, machine)


def find_wheels(
    recipe: Recipe, web: Web, digests: FactsCache, machines: Iterable[str], tell: Tell
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
            if any(covers(requirement, wheel.name) for requirement in recipe.deny):
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
        self, source: WheelSource, cases: Sequence[_Case], web: Web, digests: FactsCache, tell: Tell
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
        self.here: dict[str, list[ListedWheel]] = group_pairs(
            (wheel.name.canonical, wheel) for wheel in found
        )
        self.wanted: dict[str, list[Requirement]] = group_pairs(
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


def _in_links(web: Web, digests: FactsCache, tell: Tell) -> Iterator[ListedWheel]:
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


def _in_directory(directory: Path, digests: FactsCache, tell: Tell) -> Iterator[ListedWheel]:
    with describe_failure(UsageError, f"{directory}: the directory of wheels cannot be read"):
        names = sorted(name for name in os.listdir(directory) if name.endswith(".whl"))
    for name in names:
        path = Path(os.path.abspath(directory / name))
        try:
            parsed = parse_wheel_name(name)
        except WheelError as error:
            tell("note", f"{path}: is passed over: {error.message}")
            continue
        yield ListedWheel(parsed, path.as_uri(), digest_of(digests, str(path)), os.stat(path).st_size)


# Bytes of a process that relinks a wheel of small libraries.
_BASE_MEMORY = 500 << 20
# Bytes: larger libraries are worked on in a file (docs/large-wheels.md).
_MOST_MEMORY = 2 << 30
# Bytes of memory for each of a wheel: a library of it, four times as large, its edited copy, what patchelf holds.
_PER_BYTE = 12


def build(recipe: Recipe, site: Path, options: BuildOptions, say: Say) -> Summary:
    """Bring a site up to date with a recipe.

    :param say: called with everything that happens, on this thread.
    :raises UsageError: another run works on the same site, or it is for another release; nothing was begun then.
    :raises RelinkError: a source of files, a target, the cluster or the disk cannot be used.
    """
    start = time.monotonic()
    check_place(site)
    with Store(site) as store:
        with contextlib.closing(open_digests()) as digests:
            states = {target.name: state_of(target, digests) for target in recipe.targets}
            store.begin({name: state.facts for name, state in states.items()})
            for requirement in recipe.deny:
                store.drop(row["id"] for row in named_results(store, requirement))
            asks_pip = any(source.kind != "directory" for source in recipe.sources)
            settings = pip_settings() if asks_pip else PipSettings()
            named = (source.place for source in recipe.sources if source.kind == "index")
            settings = replace(settings, addresses=(*settings.indexes, *named))
            run = _Run(recipe, store, states, say, str(store.files.absolute()))
            machines = {state.machine for state in states.values()}
            wheels = find_wheels(recipe, Web(settings), digests, machines, run.note)
            store.supersede(stale_results(store, recipe, states, digests, options.since))
        plan = plan_tasks(store, run.known(wheels), recipe, states)
        run.begin(plan)
        if plan.todo:
            mirror = recipe.originals == "mirror"
            tasks = (
                WheelTask(wheel, tuple(own), run.files, mirror, settings, recipe.cache_size)
                for wheel, own in plan.todo.items()
            )
            with run.engine(options, plan.todo) as engine:
                run_tasks(engine, relink_wheel, tasks, run.on_done)
        summary = run.summary
        if recipe.refused == "fail" and (refused := plan.refused + summary.refused):
            summary.red = refused
            run.note("note", "the site stays as it is: a wheel was refused, and the recipe says fail")
        else:
            summary.published = publish_site(store, site, recipe)
            summary.red = store.count("refused", "failed")
        summary.seconds = round(time.monotonic() - start, 3)
        say("published", {"changed": summary.published, "seconds": summary.seconds})
        return summary


class _Run(msgspec.Struct):
    """One run: what an engine gives back is noted, each result on disk before the next one is looked at."""

    recipe: Recipe
    store: Store
    states: Mapping[str, TargetState]
    say: Say
    files: str
    summary: Summary = msgspec.field(default_factory=Summary)

    def note(self, kind: str, text: str) -> None:
        """Tell what was passed over (``note``), or what could not be asked (``source``)."""
        self.summary.source_failures += kind == "source"
        self.say(kind, {"text": text})

    def known(self, found: Iterable[list[ListedWheel]]) -> Iterator[ListedWheel]:
        """Yield wheels, and note what the sources say of them, so that it holds where they cannot be reached, too."""
        # Of wheels that were fetched, and whose source says no hash.
        query = "select unhashed, sha256 from wheels where unhashed is not null"
        known: dict[str, str] = dict(map(tuple, self.store.rows(query)))
        for some in found:
            wheels = [one if one.sha256 else replace(one, sha256=known.get(one.url)) for one in some]
            said = ((one.sha256, one.yanked, one.uploaded, None) for one in wheels if one.sha256)
            self.store.keep_wheels(said)
            self.summary.wheels += len(wheels)
            yield from wheels

    def begin(self, plan: TaskPlan) -> None:
        """Tell what is to be done, and note it as far as it has to be noted before."""
        cached = cached_sha256s()
        fetched = [one for one in plan.todo if not one.url.startswith("file:") and one.sha256 not in cached]
        summary = self.summary
        summary.tasks, summary.done_before = plan.tasks, plan.tasks - sum(map(len, plan.todo.values()))
        facts = {
            "wheels": summary.wheels,
            "tasks": summary.tasks,
            "done": summary.done_before,
            "fetches": len(fetched),
            "download": sum(wheel.size or 0 for wheel in fetched),
            "unknown": sum(wheel.size is None for wheel in fetched),
        }
        self.say("budget", facts)
        self.store.allocate(plan.releases)
        self.store.supersede(plan.again)

    def engine(self, options: BuildOptions, wheels: Iterable[ListedWheel]) -> LocalEngine | ClusterEngine:
        """Return where wheels are relinked."""
        needs = (_MOST_MEMORY if one.size is None else _BASE_MEMORY + _PER_BYTE * one.size for one in wheels)
        need = min(_MOST_MEMORY, max(needs))
        if options.scheduler is None:
            return LocalEngine(need, options.workers, options.memory)
        expected = {name: state.fingerprint for name, state in self.states.items()}
        say = functools.partial(self.note, "note")
        return ClusterEngine(options.scheduler, self.recipe.targets, expected, self.files, need, say)

    def on_done(self, task: WheelTask, result: Any) -> None:
        """Note what came of a task: outcomes, or the exception that it ended with; the next run tries again what has failed."""
        wheel, sha256, outcomes = task.wheel, task.wheel.sha256, {}
        if isinstance(result, BaseException):
            failed = TaskOutcome("failed", {"error": str(result) or type(result).__name__})
            outcomes = dict.fromkeys((own.target.name for own in task.targets), failed)
        else:
            sha256, size, outcomes = result
            if wheel.sha256 is None:
                self.store.keep_wheels([(sha256, wheel.yanked, wheel.uploaded, wheel.url)])
            if not wheel.url.startswith("file:"):
                self.summary.fetched += 1
                self.summary.bytes_fetched += size
            self.say("fetched", {"wheel": wheel.filename, "sha256": sha256, "size": size})
        for own in task.targets:
            name = own.target.name
            outcome = outcomes[name]
            facts = {
                "project": wheel.name.canonical,
                "version": str(wheel.name.version),
                "filename": wheel.filename,
                "target": name,
                "input": sha256,
                "key": target_key(own.target),
                "relink": __version__,
                "status": outcome.status,
            }
            setattr(self.summary, outcome.status, getattr(self.summary, outcome.status) + 1)
            event, record, said = "failure", outcome.record, outcome.record
            if outcome.status != "failed":
                about = {"url": wheel.url, "requires_python": wheel.requires_python, "size": size}
                record = {"file": None, **record, "wheel": about}
                file = record["file"] or {}
                self.summary.bytes_written += file.get("size", 0)
                event, said = "result", {"status": outcome.status, "seconds": outcome.seconds}
                said |= {"text": record["verdict"]["text"], "file": file.get("filename")}
            self.store.record_result(facts, own.number, record, outcome.rests)
            self.say(event, {"wheel": wheel.filename, "target": name, **said})


class TaskPlan(msgspec.Struct):
    """What is to be done.

    :ivar tasks: how many there are, with those that are done.
    :ivar refused: how many of those that are done were refused.
    :ivar todo: each wheel with what it is relinked for.
    :ivar releases: project, version, target and number, where the number is new.
    :ivar again: ids of results that do not hold any more.
    """

    tasks: int = 0
    refused: int = 0
    todo: dict[ListedWheel, list[TargetTask]] = msgspec.field(default_factory=dict)
    releases: list[tuple[str, str, str, int]] = msgspec.field(default_factory=list)
    again: list[int] = msgspec.field(default_factory=list)


@functools.lru_cache
def target_key(target: IndexTarget) -> str:
    """Return a digest of everything that the recipe says of a target."""
    return hashlib.sha256(json.dumps(msgspec.to_builtins(target), sort_keys=True).encode()).hexdigest()


def stale_results(
    store: Store, recipe: Recipe, states: Mapping[str, TargetState], digests: FactsCache, since: str | None
) -> list[int]:
    """Return the ids of results that do not hold any more: of another relink, or of something that has changed.

    :param states: of the recipe's targets, by name.
    :param since: the oldest release of relink whose results are kept; None for this one alone.
    :raises UsageError: `since` is no version.
    """
    try:
        oldest = since and Version(since)
    except InvalidVersion as error:
        raise UsageError(
            f"--since {since}: no version of relink; write it like --since {__version__}"
        ) from error
    keys = {target.name: target_key(target) for target in recipe.targets}
    rests = {name: store.parsed(body) for name, body in store.rows("select id, body from rests")}

    @functools.cache
    def unchanged(target: str, key: str, relink: str, rests_on: str | None) -> bool:
        kept = Version(relink) >= oldest if oldest else relink == __version__
        same = kept and key == keys.get(target)
        return same and (rests_on is None or is_still_valid(rests[rests_on], states[target], digests))

    def has_file(row: Any) -> bool:
        if row["file_sha256"]:
            return os.path.exists(store.path_of(row["file_sha256"], row["file_name"]))
        return row["status"] != "original" or recipe.originals != "mirror"

    return [
        row["id"]
        for row in store.rows("select * from results where until is null order by id")
        if not (unchanged(row["target"], row["key"], row["relink"], row["rests"]) and has_file(row))
    ]


def plan_tasks(
    store: Store, wheels: Iterable[ListedWheel], recipe: Recipe, states: Mapping[str, TargetState]
) -> TaskPlan:
    """Return every wheel with every target on whose machine one of the recipe's Pythons installs it, but for what is done.

    All wheels of one release have one number in an index. Where one of them would get a name that the index has had already,
    the release gets the next number, and its other relinked wheels are done again with it.

    :param wheels: in the order of projects and releases.
    """
    plan = TaskPlan()
    for project, listed in itertools.groupby(wheels, lambda one: one.name.canonical):
        holding = [row for row in store.results_of(project) if row["until"] is None]
        rows = {(row["filename"], row["target"]): row for row in holding}
        for version, group in itertools.groupby(listed, lambda one: str(one.name.version)):
            release = {wheel.filename: wheel for wheel in group}
            for target in recipe.targets:
                state = states[target.name]
                own = [
                    (name, wheel, rows.get((name, target.name)))
                    for name, wheel in release.items()
                    if any(fits(wheel, python, state.machine) for python in recipe.pythons)
                ]
                plan.tasks += len(own)
                todo = {name for name, wheel, row in own if row is None or row["input"] != wheel.sha256}
                if todo:
                    number, new = store.number(project, version, target.name, todo)
                    if new:
                        plan.releases.append((project, version, target.name, number))
                        if number > 1:
                            todo |= {name for name, _, row in own if row and row["status"] == "written"}
                for name, wheel, row in own:
                    if name in todo:
                        plan.todo.setdefault(wheel, []).append(TargetTask(target, state.fingerprint, number))
                        plan.again += [row["id"]] if row else []
                    elif row and row["status"] == "refused":
                        plan.refused += 1
    return plan
