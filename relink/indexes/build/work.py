"""The tasks of an index: each fetches a wheel and relinks it for targets, in any process that sees the same files.

Tasks and outcomes are plain data. Refused is what the plan of a wheel says, or its reading: the wheel is damaged. Everything else
that keeps a wheel from being written (a full disk, a cache that cannot be used, a loader that disagrees) is ``failed``, and the
next run tries it again.

A wheel is fetched into the cache: resumed where it was cut, checked by its hash, by one process at a time. The cache is that of
`relink install` (:mod:`relink.indexes.install.installers`). What came so far stays beside it, in ``partial``.

What relinking for a target depends on, by content: the libraries of its prefixes, their kernel files, the loader, the release.

Two machines have the same fingerprint of a target if relinking gives the same on both. A result remembers which part of it was
looked at (:func:`dependencies_of`), so a prefix that changes redoes what depends on the change and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import posixpath
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace
from packaging.version import Version

from relink.elf.image import machine_name
from relink.elf.patchelf import find_patchelf
from relink.indexes.build.recipe import IndexTarget
from relink.indexes.build.site import METADATA_LIMIT, place_wheel
from relink.indexes.build.web import (
    FetchError,
    ListedWheel,
    PipSettings,
    Web,
    WrongFileError,
    without_secrets,
)
from relink.indexes.install.installers import (
    LARGEST,
    CachedWheel,
    cache_directory,
    find_by_sha256,
    store_wheel,
)
from relink.loader.seen_files import resolve_inside
from relink.planning.case import choose_target, open_providers
from relink.planning.contents import Contents, make_spool
from relink.planning.options import list_words
from relink.providers.prefix import Provider, soname_stem
from relink.python.facts_cache import FactsCache
from relink.report.model import Report
from relink.report.summary import verdict
from relink.runs.relink_wheel import carry_out, make_plan
from relink.system.atomic import working_directory
from relink.system.errors import RelinkError, UsageError, WheelError, describe_failure
from relink.system.findings.model import Cause, causes
from relink.system.progress import Clock
from relink.system.safe_open import file_sha256
from relink.system.text import group_pairs, join_truncated
from relink.vendors.registry import VENDORS, list_products, release_of
from relink.wheel.naming import WheelName

# The most files of a prefix beside its libraries.
_DATA_FILES = 500_000
_READERS = 2  # files hashed at once
# The codes of findings about libraries, and about versions and symbols.
_SEARCHING = ("RLK1", "RLK3")


class TargetState(msgspec.Struct, frozen=True, dict=True):
    """A target as it is on this machine.

    :ivar libraries: SHA-256 of each library of its prefixes, by path as the target sees it.
    :ivar data: a digest of names and sizes of the vendors' kernel files and tuning data beside the libraries.
    :ivar loader: a digest of the loader, its C library and its default directories.
    :ivar release: of the vendors' libraries in its prefixes, with what says so; `label` is the first as versions have it.
    :ivar machine: the word for the machine in tags.
    """

    libraries: Mapping[str, str]
    data: str
    loader: str
    release: str
    machine: str
    sysroot: str
    paths: tuple[str, ...]
    label: str

    @cached_property
    def stems(self) -> dict[str, list[str]]:
        """The libraries' paths by their sonames up to ``.so``."""
        return group_pairs((soname_stem(posixpath.basename(path)), path) for path in sorted(self.libraries))

    @property
    def facts(self) -> dict[str, Any]:
        """What the matrix says of it, as JSON data; its release is that of an index."""
        own = {"fingerprint": self.fingerprint, "machine": self.machine}
        return {"prefixes": list(self.paths), "release": self.label, **own}

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all of it, in hex."""
        parts = [sorted(self.libraries.items()), self.data, self.loader, self.release]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def open_digests(place: Path | None = None) -> FactsCache:
    """Open the digests of files that are remembered on this machine, in ``$XDG_CACHE_HOME/relink/digests.sqlite``.

    :param place: the file that they are remembered in instead.
    """
    return FactsCache(place or cache_directory().parent / "digests.sqlite")


def digest_of(digests: FactsCache, path: str) -> str:
    """Return the SHA-256 of a file's content, in hex: a file that was only touched is read again, and has the same one.

    :raises UsageError: it cannot be read, or is no regular file.
    """
    with describe_failure(UsageError, f"{path}: cannot be read"):
        # The time of the last change of its inode (ctime) cannot be set back; it changes while the file does.
        kind = f"sha256 {os.stat(path).st_ctime_ns}"
        return str(digests.facts(kind, path, lambda: {kind: file_sha256(path, LARGEST)}))


def state_of(target: IndexTarget, digests: FactsCache) -> TargetState:
    """Read a target: every library of its prefixes whole, unless its digest is known.

    :raises RelinkError: the target or a prefix cannot be used.
    """
    options = target.options()
    loader = choose_target(options)
    providers = open_providers(options, loader)
    paths = sorted({path for provider in providers for own in provider.libraries.values() for path in own})
    own = (loader.interpreter, loader.libc_directory and posixpath.join(loader.libc_directory, "libc.so.6"))
    real = {path: os.path.realpath(resolve_inside(loader.sysroot, path)) for path in (*paths, *own) if path}
    files = sorted(set(real.values()))
    with ThreadPoolExecutor(_READERS, "relink-digest") as pool:
        contents = dict(zip(files, pool.map(partial(digest_of, digests), files), strict=True))
    releases = [release_of(provider, loader.sysroot) for provider in providers]
    loaded = [path and contents[real[path]] for path in own]
    facts = [*loaded, loader.glibc, list(loader.directories), str(find_patchelf().version)]
    return TargetState(
        {path: contents[real[path]] for path in paths},
        _data(providers, loader.sysroot),
        hashlib.sha256(json.dumps(facts).encode()).hexdigest(),
        json.dumps([[found.release, found.evidence] if found else None for found in releases]),
        machine_name(loader.header.machine),
        loader.sysroot,
        tuple(provider.path for provider in providers),
        next((found.label for found in releases if found), VENDORS[0].name),
    )


def _data(providers: Iterable[Provider], sysroot: str) -> str:
    """A digest of the names and sizes of kernel files beside libraries; of a whole /usr nothing else counts."""
    found: dict[str, int] = {}
    kernels = {name for vendor in VENDORS for name in vendor.gpus.kernel_directories}
    for provider in providers:
        for directory, kernel in product(provider.directories, sorted(kernels)):
            for place, _, names in os.walk(resolve_inside(sysroot, posixpath.join(directory, kernel))):
                for name in names:
                    if len(found) > _DATA_FILES:
                        raise UsageError(
                            f"{provider.path}: more than {_DATA_FILES} files beside its libraries; name {list_products()} alone"
                        )
                    path = os.path.join(place, name)
                    if ".so" not in name and path not in found:
                        found[path] = os.lstat(path).st_size
    return hashlib.sha256(json.dumps(sorted(found.items())).encode("utf-8", "surrogateescape")).hexdigest()


def dependencies_of(report: Report, state: TargetState, digests: FactsCache) -> dict[str, str]:
    """Return what a result rests on, as JSON data: the loader, the release, libraries by content, and which there are of a name.

    Where kernel files were looked at it rests on their names and sizes, too.

    A wheel of which a library or symbol was missing rests on the whole target: all of it was searched. Of every other wheel each
    import is bound, and a library that nothing names cannot change that.

    :raises UsageError: a library cannot be read.
    """
    paths = {path for file in report.files for _, path in file.closure}
    paths |= {load.resolved for load in report.loads if load.resolved}
    isa = report.isa or {}
    reached = isa.get("libraries") or ()
    paths |= {str(library["path"]) for library in reached}
    outside = {posixpath.normpath(path) for path in paths if path.startswith("/")}
    names = {load.soname for load in report.loads} | {posixpath.basename(path) for path in outside}
    for file in report.files:
        names |= {name for one in file.needed for name in (one.soname, one.soname_after) if name}
    stems = state.stems
    asked = {soname_stem(posixpath.basename(name)) for name in names}
    # A GPU runtime, which decides what can be loaded, is found beside the libraries.
    if reached:
        asked |= {stem for vendor in VENDORS for stem in vendor.libraries.runtime_libraries if stem in stems}
    outside |= {path for stem in asked for path in stems.get(stem, ())}
    searched = any(found.level == "error" and found.code.startswith(_SEARCHING) for found in report.findings)
    keys = ["loader", "release", *(["data"] if reached else ()), *(["fingerprint"] if searched else ())]
    keys += [f"library {path}" for path in sorted(outside)] + [f"stem {stem}" for stem in sorted(asked)]
    return {key: _value(key, state, digests) for key in keys}


def is_still_valid(rests_on: Mapping[str, Any], state: TargetState, digests: FactsCache) -> bool:
    """Whether all that a result rests on is as it was."""
    # One of the libraries is gone.
    with contextlib.suppress(UsageError):
        return all(_value(key, state, digests) == value for key, value in rests_on.items())
    return False


def _value(key: str, state: TargetState, digests: FactsCache) -> str:
    """What stands behind a key of what a result rests on, as it is now."""
    kind, _, name = key.partition(" ")
    if kind == "stem":
        return "\n".join(state.stems.get(name, ()))
    if kind == "library":
        known = state.libraries.get(name)
        return known or digest_of(digests, os.path.realpath(resolve_inside(state.sysroot, name)))
    return str(getattr(state, kind, None))


_SUBJECTS = 6  # kept of one cause
_TEXT = 1200  # characters of a text


class TargetTask(msgspec.Struct, frozen=True):
    """What one wheel is relinked for.

    :ivar fingerprint: the target's, where the coordinator runs.
    :ivar number: that the version of the result ends in.
    """

    target: IndexTarget
    fingerprint: str
    number: int


class WheelTask(msgspec.Struct, frozen=True):
    """Fetch one wheel, and relink it for targets where it was fetched.

    :ivar files: the directory that published wheels lie in.
    :ivar mirror: a wheel that needs no relinking is copied there.
    """

    wheel: ListedWheel
    targets: tuple[TargetTask, ...]
    files: str
    mirror: bool
    settings: PipSettings
    cache_size: int


class TaskOutcome(msgspec.Struct, frozen=True):
    """What came of a relink task.

    :ivar status: ``original``: it loads as it is; ``refused``: its plan has errors; ``failed``: this machine could not do it.
    :ivar record: JSON data for the site and the matrix; of one that failed `error` alone.
    :ivar rests: what it rests on, as JSON data; None where it rests on the wheel alone.
    """

    status: Literal["written", "original", "refused", "failed"]
    record: dict[str, Any]
    rests: dict[str, str] | None = None
    seconds: float = 0.0


_web = functools.cache(Web)
_digests = functools.cache(open_digests)


def fingerprints(targets: tuple[IndexTarget, ...], files: str) -> dict[str, str]:
    """Return the fingerprint of each target as this process sees it, or the reason why it cannot be used here.

    :param files: the directory that results go to; a worker that does not see it cannot be used for anything.
    """
    if not os.access(files, os.W_OK):
        return dict.fromkeys((target.name for target in targets), f"{files} cannot be written here")
    found = {}
    with contextlib.closing(open_digests()) as digests:
        for target in targets:
            try:
                found[target.name] = state_of(target, digests).fingerprint
            except RelinkError as error:
                found[target.name] = str(error)
    return found


def relink_wheel(task: WheelTask) -> tuple[str, int, dict[str, TaskOutcome]]:
    """Fetch a wheel, relink it for its targets, and put the results where the site's files lie.

    :return: the SHA-256 and the bytes of the wheel, and what came of it by the names of the targets.
    :raises RelinkError: a prefix here is not the coordinator's, or the wheel cannot be fetched.
    """
    states = {}
    for own in task.targets:
        states[own] = state_of(own.target, _digests())
        if states[own].fingerprint != own.fingerprint:
            raise RelinkError(f"the prefix of {own.target.name} has other content on this machine")
    cached = fetch_wheel(task.wheel, _web(task.settings), task.cache_size)
    outcomes = {}
    for own, state in states.items():
        start = time.monotonic()
        try:
            status, record, report = _relinked(task, own, cached)
            rests = dependencies_of(report, state, _digests()) if report else None
            outcome = TaskOutcome(status, record, rests, round(time.monotonic() - start, 3))
        except (RelinkError, OSError, MemoryError) as error:
            outcome = TaskOutcome("failed", {"error": str(error)[:_TEXT] or type(error).__name__})
        outcomes[own.target.name] = outcome
    return cached.sha256, cached.size, outcomes


def _relinked(
    task: WheelTask, own: TargetTask, cached: CachedWheel
) -> tuple[Literal["written", "original", "refused"], dict[str, Any], Report | None]:
    """:raises RelinkError: this machine could not do it."""
    files = Path(task.files)
    with working_directory(files) as place:
        options, clock = own.target.options(place), Clock()
        with contextlib.ExitStack() as stack:
            try:
                opened = Contents(cached.path, None, reuse=True, spool=make_spool(options), jobs=options.jobs)
                contents = stack.enter_context(opened)
                # A wheel without readable metadata is refused: the site has it beside the wheel.
                archive = contents.archive
                archive.read(f"{archive.dist_info}/METADATA", METADATA_LIMIT)
                wheel, planned = make_plan(contents, options, clock)
            except WheelError as error:
                # The disk is at fault, not the wheel: failed, and tried again.
                if isinstance(error.__cause__, OSError):
                    raise
                return "refused", record_of_error(error), None
            report = Report((), planned.plan, None, planned.isa, timings=clock.timings)
            if planned.plan.ok and not planned.plan.empty:
                plan = replace(planned.plan, output=number_version(planned.output, own.number))
                report = carry_out(wheel, replace(planned, plan=plan), options, clock)
        record = record_of(report, task.wheel.name, own.target)
        if not planned.plan.ok:
            return "refused", record, report
        if not report.ok:
            told = (cause.message[:_TEXT] for cause in causes(report.findings) if cause.level != "info")
            raise RelinkError(record["verdict"]["text"], told)
        if planned.plan.empty:
            if task.mirror:
                record["file"] = place_wheel(cached.path, files, place)
            return "original", record, report
        assert report.output is not None  # noqa: S101 (it is ok, and its plan is not empty)
        record["file"] = place_wheel(Path(report.output.path), files, place)
        return "written", record, report


def number_version(name: WheelName, number: int) -> str:
    """Return the file name with a number at the end of the version: ``+rocm7.2.4`` becomes ``+rocm7.2.4.1``."""
    version = Version(f"{name.version}{'.' if name.version.local else '+'}{number}")
    return replace(name, version=version, version_text=str(version)).filename


def record_of(report: Report, name: WheelName, target: IndexTarget) -> dict[str, Any]:
    """Return what the site and the matrix say of a result.

    :param name: of the input.
    """
    # Its directory is that of the task, and gone when anybody reads this.
    output = report.output and replace(report.output, path=os.path.basename(report.output.path))
    found = verdict(replace(report, output=output))
    isa = report.isa or {}
    # The command that does the same for one wheel, for a person to see all of what it says.
    options = list_words(target, (name for name in target.__struct_fields__ if name != "name"))
    return {
        "verdict": {"level": found.level, "text": found.text[:_TEXT]},
        "causes": [_cause_text(cause) for cause in causes(report.findings) if cause.level != "info"],
        "gpus": {gpu["target"]: gpu["state"] for gpu in isa.get("gpus", ())},
        "command": shlex.join(["relink", f"{name.distribution}=={name.version}", *options]),
    }


def _cause_text(cause: Cause) -> str:
    names = join_truncated(cause.subjects, _SUBJECTS)
    subjects = f" ({names})" if names else ""
    return f"{cause.code} {cause.level}: {cause.message[:_TEXT]}{subjects}. {cause.remedy[:_TEXT]}".strip()


def record_of_error(error: RelinkError) -> dict[str, Any]:
    """Return the same for a wheel that cannot be read."""
    verdict = {"level": "error", "text": error.message[:_TEXT]}
    return {"verdict": verdict, "causes": [f"error: {str(error)[:_TEXT]}."]}


# Connections that may break; each goes on where the one before ended.
_TRIES = 4


def fetch_wheel(wheel: ListedWheel, web: Web, cache_size: int) -> CachedWheel:
    """Return a wheel's file: of a directory where it lies, any other from the cache, fetched if it is not there.

    :param cache_size: bytes that the cache may hold afterwards; what was unused longest goes first.
    :raises FetchError: it cannot be read, or is not what the source's hash and size say.
    """
    parts = urlsplit(wheel.url)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        return CachedWheel(path, _checked(wheel, path), wheel.name)
    with _alone(wheel) as partial:
        if wheel.sha256 and (found := find_by_sha256(wheel.sha256)):
            return found
        most = LARGEST if wheel.size is None else min(LARGEST, wheel.size)
        try:
            for left in reversed(range(_TRIES)):
                try:
                    web.file(wheel.url, partial, most)
                    break
                except FetchError as error:
                    if error.missing or not left or isinstance(error, WrongFileError):
                        raise
            _checked(wheel, partial)
        except WrongFileError:
            partial.unlink()
            raise
        return store_wheel(partial, cache_size)


def _checked(wheel: ListedWheel, path: Path) -> str:
    """The digest of a file, if it is that of a wheel."""
    with describe_failure(FetchError, f"{path}: cannot be read"):
        sha256 = file_sha256(path, LARGEST)
    if wheel.sha256 and sha256 != wheel.sha256:
        raise WrongFileError(
            f"{without_secrets(wheel.url)}: its sha256 is {sha256}, and the source says {wheel.sha256}; it is not taken"
        )
    return sha256


@contextlib.contextmanager
def _alone(wheel: ListedWheel) -> Iterator[Path]:
    """Give the path of the partial file, which no other process of this machine uses meanwhile."""
    what = wheel.sha256 or hashlib.sha256(wheel.url.encode()).hexdigest()
    place = cache_directory() / "partial" / what
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.ExitStack() as stack:
        with describe_failure(UsageError, f"{place}: the cache cannot be written", "; set XDG_CACHE_HOME"):
            place.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(f"{place}.lock", flags, 0o666)
            stack.callback(os.close, descriptor)
            # A file system without locks: two may fetch the same, and one is kept.
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            place.mkdir(exist_ok=True)
        yield place / wheel.filename
        shutil.rmtree(place, ignore_errors=True)
