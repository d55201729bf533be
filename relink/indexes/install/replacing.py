"""Replacing an installed distribution: one process owns the environment meanwhile, and all is as before if it fails.

The owner has a lock (flock) on site-packages, which the installer that it starts inherits: the lock is free when both have ended.
What the installer will remove or write over lies, as hard links, in a directory beside, with a manifest. While that manifest is
there the replacement has not been done; whoever is the next owner puts the files back. Before anything is removed, what RECORD
says is looked at: pip and uv remove whatever stands there.
"""

from __future__ import annotations

import csv
import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from relink.indexes.install.environment import Installed, TargetEnvironment, find_installed, list_dist_infos
from relink.system.atomic import atomic_file
from relink.system.bounded_json import parse_json
from relink.system.errors import (
    MachineError,
    UsageError,
    WheelError,
    describe_failure,
    raise_if_machine_fault,
)
from relink.system.safe_open import hash_pieces, open_regular, read_bytes, read_text
from relink.system.text import join_truncated
from relink.wheel.archive import WheelArchive
from relink.wheel.naming import parse_wheel_name
from relink.wheel.record import RecordEntry, parse_record
from relink.wheel.schemes import ENTRY_POINTS, installed_path, read_script_names, script_names, site_path
from relink.wheel.source import READ_LIMIT, read_prefix

_PLACE = ".relink-replaced"
_MANIFEST = "manifest.json"
_MANIFEST_LIMIT = 1 << 30  # bytes
# Seconds that another owner is waited for: an installer that goes on after relink was killed.
PATIENCE = 10.0
_MINE = threading.local()


def held_locks() -> dict[Path, int]:
    """Return the descriptors of this thread's locks, by site-packages; an installer inherits them."""
    locks: dict[Path, int] = _MINE.__dict__.setdefault("locks", {})
    return locks


@contextmanager
def own(environment: TargetEnvironment) -> Iterator[list[str]]:
    """Own an environment: no other relink changes it meanwhile. What an owner before has not ended is taken back first.

    :return: a sentence where what a replacement that was killed had removed was put back.
    :raises UsageError: another process owns it.
    """
    site = environment.site[0]
    if site in held_locks():
        yield []
        return
    with describe_failure(UsageError, f"{site}: cannot be opened"):
        site.mkdir(parents=True, exist_ok=True)  # the first package of a Python makes it
        descriptor = os.open(site, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + PATIENCE
        while not _lock(descriptor):
            if time.monotonic() > end:
                raise UsageError(
                    f"{environment.prefix} is being changed by another relink, or by an installer that one has started; "
                    "wait until that has ended, then do this again"
                )
            time.sleep(0.05)
        held_locks()[site] = descriptor
        place, what = site / _PLACE, find_interrupted(environment)
        if place.exists():
            _put_back(environment, place)
        text = f"{what} was being replaced when relink was killed: it is as it was before."
        yield [text] if what else []
    finally:
        held_locks().pop(site, None)
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without locks (NFS has none for what is open for reading) has no owners.
        return error.errno != errno.EWOULDBLOCK
    return True


def find_interrupted(environment: TargetEnvironment) -> str | None:
    """Return what was being replaced when relink was killed, as ``NAME VERSION``; None where nothing is left to be put back."""
    with suppress(OSError, ValueError, TypeError, LookupError):
        return str(_manifest(environment.site[0] / _PLACE)["what"])
    return None


def _manifest(place: Path) -> dict[str, Any]:
    return dict(parse_json(read_text(place / _MANIFEST, _MANIFEST_LIMIT, errors="surrogateescape")))


def read_rows(dist_info: Path) -> tuple[list[str], Mapping[str, RecordEntry]]:
    """Return the paths that any installer reads in an installed RECORD, and the lines of which a hash is known.

    pip takes more characters for the end of a line (str.splitlines) than the format has, so both readings count.

    :raises UsageError: there is none, or it cannot be read.
    """
    try:
        data = read_bytes(dist_info / "RECORD", READ_LIMIT)
        text = data.decode()
        rows = [*csv.reader(io.StringIO(text, newline="")), *csv.reader(text.splitlines())]
        entries = parse_record(data)[0]
    except (OSError, ValueError, csv.Error, WheelError) as error:
        raise UsageError(
            f"{dist_info / 'RECORD'} cannot be read ({error}), so no installer knows which files to remove; install the package "
            "again by the program that has installed it"
        ) from error
    return list(dict.fromkeys(row[0] for row in rows if row)), {entry.path: entry for entry in entries}


def list_removed(environment: TargetEnvironment, installed: Installed) -> list[str]:
    """Return the files that an installer removes with a distribution, as far as they are there.

    :raises UsageError: it would remove what is not the distribution's own.
    """
    site = os.path.normpath(installed.dist_info.parent)
    rows, _ = read_rows(installed.dist_info)
    # The names in ``bin`` that pip removes although RECORD need not have them (iter_scripts_to_remove).
    names: set[str] = set()
    with suppress(OSError):
        names |= {*os.listdir(installed.dist_info / "scripts")}
    with suppress(OSError):
        names |= script_names(read_bytes(installed.dist_info / ENTRY_POINTS, READ_LIMIT))
    scripts = [f"{environment.prefix}/bin/{name}" for name in names]
    roots = [os.path.realpath(root) + "/" for root in (environment.prefix, *environment.site)]
    others = _files_of_others(environment, installed.dist_info)
    removed, refused = [], []
    for name in [*rows, *(os.path.relpath(path, site) for path in scripts)]:
        path = os.path.normpath(f"{site}/{name}")
        real = _real(path) if "\0" not in name else name
        inner = real.removeprefix(f"{os.path.realpath(site)}/").partition("/")[0]
        if os.path.relpath(path, site) != name or not any(real.startswith(root) for root in roots):
            refused.append(f"{name!r} does not stay in the environment as a plain path")
        elif real in others:
            refused.append(f"{name!r} is a file of {others[real]}")
        elif not os.path.lexists(real):
            continue
        elif inner.endswith((".dist-info", ".egg-info")) and inner != installed.dist_info.name:
            refused.append(f"{name!r} describes another distribution")
        elif os.path.isdir(real) and not os.path.islink(real):
            refused.append(f"{name!r} is a directory")
        else:
            removed.append(path)
    if refused:
        raise UsageError(
            f"the RECORD of {installed.name} {installed.version} has an installer remove what is not its own, so nothing was "
            f"changed: {join_truncated(refused)}; remove these lines from {installed.dist_info / 'RECORD'} (or the names from "
            f"{ENTRY_POINTS}), or remove the package that has them as well"
        )
    return list(dict.fromkeys(removed))


def _files_of_others(environment: TargetEnvironment, own_info: Path) -> dict[str, str]:
    """Return the file of each path that another distribution's RECORD has, or that the environment itself consists of."""
    programs = environment.prefix / "bin"
    mine = [environment.prefix / "pyvenv.cfg", *programs.glob("python*"), *programs.glob("[aA]ctivate*")]
    found = {_real(str(path)): "the environment itself" for path in mine}
    directories: dict[str, str] = {}
    for site in environment.site:
        for entry in os.listdir(site) if site.is_dir() else ():
            if not entry.endswith(".dist-info") or site / entry == own_info:
                continue
            with suppress(UsageError):
                for name in read_rows(site / entry)[0]:
                    parent, _, last = f"{site}/{name}".rpartition("/")
                    if parent not in directories:
                        directories[parent] = os.path.realpath(parent) if "\0" not in parent else ""
                    found[f"{directories[parent]}/{last}"] = entry.removesuffix(".dist-info")
    return found


def _real(path: str) -> str:
    """Return a path without links in it; its last component is not followed, as an installer removes a link itself."""
    parent, _, last = path.rpartition("/")
    return f"{os.path.realpath(parent)}/{last}"


def _list_written(environment: TargetEnvironment, wheel: Path) -> list[str]:
    """Return where an installer may put a file of a wheel; bytecode and what else comes into dist-info is not among them."""
    written = []
    with WheelArchive(wheel) as archive:
        for name, member in archive.members.items():
            if not member.is_directory:
                for site in environment.site:
                    inner = installed_path(name, os.path.relpath(site, environment.prefix))
                    # uv unpacks all into site-packages, and moves what is below .data from there.
                    written += [os.path.normpath(environment.prefix / inner), f"{site}/{name}"]
        written += [f"{environment.prefix}/bin/{name}" for name in read_script_names(archive)]
    return list(dict.fromkeys(written))


def _find_changed(removed: Iterable[str], installed: Installed, original: Path | None) -> list[str]:
    """Return the files that are not as they were installed: by their hash in RECORD, else by the wheel they came from."""
    site = os.path.normpath(installed.dist_info.parent)
    rows = read_rows(installed.dist_info)[1]
    differing = []
    for path in removed:
        row = rows.get(os.path.relpath(path, site))
        is_described = path.startswith(f"{installed.dist_info}/")
        if row is None or os.path.islink(path) or path == f"{installed.dist_info}/RECORD":
            continue
        if row.algorithm is None or row.digest is None:
            if path.endswith(".pyc") or original is None:
                continue
        elif _digest(path, row.algorithm) == row.digest or (is_described and original is None):
            # Lines about dist-info are stale in some vendors' wheels, and pip takes them over.
            continue
        differing.append(path)
    if original is not None and differing:
        with WheelArchive(original) as archive:
            members = members_at(archive, differing, site)
            differing = [
                path
                for path in differing
                if path not in members or not _is_member(archive, members[path], path)
            ]
    return differing


def members_at(archive: WheelArchive, paths: Iterable[str], site: str) -> dict[str, str]:
    """Return the member that each installed file is of, where the wheel has it: outside of site-packages by the path's end."""
    inner = {path: name for name in archive.members if (path := site_path(name))}
    outer = [(name.split("/", 2)[2], name) for name in archive.members if site_path(name) is None]
    found = {}
    for path in paths:
        below = path.removeprefix(f"{site}/")
        ends = (name for end, name in outer if below == path and path.endswith(f"/{end}"))
        if (name := inner.get(below) or next(ends, None)) is not None:
            found[path] = name
    return found


def _is_member(archive: WheelArchive, name: str, path: str) -> bool:
    """Whether a file has the content of a member; of a script whose first line is written anew nobody can say it."""
    if read_prefix(archive, name, 8) == b"#!python":
        return "/scripts/" in name
    return _digest(path, "sha256") == hash_pieces(archive.chunks(name))


def are_as_recorded(dist_info: Path, paths: Iterable[str]) -> bool:
    """Whether each of some files is the one whose hash RECORD has, or RECORD has none of it.

    :param paths: from the site-packages that the distribution lies in.
    :raises UsageError: RECORD cannot be read.
    """
    rows = read_rows(dist_info)[1]
    found = ((path, row) for path in dict.fromkeys(paths) if (row := rows.get(path)) and row.algorithm)
    return all(
        _digest(str(dist_info.parent / path), row.algorithm or "") == row.digest for path, row in found
    )


def _digest(path: str, algorithm: str) -> bytes | None:
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).digest()
    except OSError as error:
        raise_if_machine_fault(error, path)
        return None


def refuse_another(wheel: Path, installed: Installed, environment: TargetEnvironment) -> None:
    """Compare what a wheel has with what is installed, both ways, but for files that another distribution has written as well.

    :raises UsageError: a file is another one, or missing on one side.
    """
    site = os.path.normpath(installed.dist_info.parent)
    paths = [os.path.normpath(f"{site}/{row}") for row in read_rows(installed.dist_info)[0]]
    with WheelArchive(wheel) as archive:
        members = members_at(archive, paths, site)
        scripts = read_script_names(archive)
        other = [
            name
            for name, member in archive.members.items()
            if not member.is_directory and site_path(name) and f"{site}/{site_path(name)}" not in members
        ]
        for path in paths:
            if path in members:
                same = path == f"{installed.dist_info}/RECORD" or _is_member(archive, members[path], path)
            else:
                same = _is_generated(path, paths, installed.dist_info, scripts) or not os.path.lexists(path)
            if not same:
                other.append(os.path.relpath(path, site))
    others = _files_of_others(environment, installed.dist_info) if other else {}
    if other := [name for name in other if _real(f"{site}/{site_path(name) or name}") not in others]:
        raise UsageError(
            f"{wheel.name} is not the wheel that {installed.name} was installed from, or its files were changed since: "
            f"{join_truncated(other)} differ; pass the very wheel by --wheel, or install the package again"
        )


_OF_INSTALLERS = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json")


def _is_generated(path: str, paths: Collection[str], dist_info: Path, scripts: Collection[str]) -> bool:
    """Whether an installer makes a file: bytecode, what it notes in dist-info, and the scripts of entry points."""
    parent, _, last = path.rpartition("/")
    if last.endswith(".pyc"):
        source = f"{parent.removesuffix('/__pycache__')}/{last.partition('.')[0]}.py"
        return source in paths
    if parent == str(dist_info):
        return last in _OF_INSTALLERS
    return parent.endswith("/bin") and last in scripts


def replace_files(
    environment: TargetEnvironment,
    installed: Installed | None,
    wheel: Path,
    install: Callable[[], object],
    original: Path | None = None,
) -> tuple[str, ...]:
    """Have a wheel installed in place of a distribution; if that fails, all is as before. The environment is owned.

    :param installed: what is there, as it was seen before `wheel` was made.
    :param original: the wheel that it came from, if it is known.
    :return: the files that somebody had changed, where they are kept now.
    :raises UsageError: what is there is not what was seen, or removing it would remove what is another's.
    :raises InstallerError: the installer fails.
    :raises MachineError: there is no room to keep what is there; nothing was changed.
    """
    name = parse_wheel_name(wheel.name)
    if find_installed(environment, name.distribution) != installed:
        raise UsageError(
            f"{name.distribution} in {environment.prefix} was changed by another program meanwhile, so nothing was done; do this "
            "again"
        )
    removed = list_removed(environment, installed) if installed else []
    changed = _find_changed(removed, installed, original) if installed else []
    written = _list_written(environment, wheel)
    over = [path for path in written if os.path.lexists(path) and not os.path.isdir(path)]
    over = [path for path in over if path not in set(removed)]
    others = _files_of_others(environment, installed.dist_info if installed else Path())
    kept = [*removed, *over, *_bytecode([*removed, *over])]
    changed += [path for path in over if _real(path) not in others]
    place = environment.site[0] / _PLACE
    what = f"{installed.name} {installed.version}" if installed else f"nothing of {name.distribution}"
    try:
        try:
            place.mkdir(0o700)
            _keep(environment, place, what, list(dict.fromkeys(kept)), written)
            install()
            _confirm(environment, wheel)
            saved = _save_changed(environment, place, kept, changed, what)
        except _ReplacedByOtherError as error:
            saved = _save_changed(environment, place, kept, removed, what)
            _forget(place)
            raise UsageError(f"{error}; what relink has replaced is kept: {join_truncated(saved)}") from error
        except BaseException:
            if place.exists():
                _put_back(environment, place)
            raise
        _forget(place)
    except OSError as error:
        raise MachineError(
            f"{place}: {error.strerror}: what is replaced cannot be kept or put back; {what} is "
            + ("to be put back: do this again" if place.exists() else "as it was before")
        ) from error
    return tuple(saved)


class _ReplacedByOtherError(Exception):
    """Another program has installed the same distribution meanwhile."""


def _confirm(environment: TargetEnvironment, wheel: Path) -> None:
    """Compare what is installed now with what was to be.

    :raises MachineError: a file is not there.
    """
    name = parse_wheel_name(wheel.name)
    with WheelArchive(wheel) as archive:
        expected = archive.dist_info
    found = list_dist_infos(environment, name.distribution)
    others = [info.name for info in found if info.name != expected]
    if others:
        raise _ReplacedByOtherError(
            f"another program has installed {join_truncated(others)} in {environment.prefix} meanwhile, and that is there now"
        )
    missing = [expected]
    for info in found:
        site = os.path.normpath(info.parent)
        missing = [
            row for row in read_rows(info)[0] if not os.path.lexists(os.path.normpath(f"{site}/{row}"))
        ]
    if missing:
        raise MachineError(
            f"{wheel.name}: the installer has ended, and {join_truncated(missing)} is not there; what was there before is again"
        )


def _bytecode(paths: Iterable[str]) -> list[str]:
    """Return what lies in the ``__pycache__`` beside modules: uv removes all of it.

    Python that is interrupted leaves NAME.pyc.NUMBER (Lib/importlib/_bootstrap_external.py, _write_atomic).
    """
    parents = {path.rpartition("/")[0] for path in paths if path.endswith(".py")}
    return [str(path) for parent in parents for path in Path(parent, "__pycache__").glob("*.pyc*")]


def _keep(
    environment: TargetEnvironment, place: Path, what: str, kept: list[str], written: list[str]
) -> None:
    for number, path in enumerate(kept):
        try:
            os.link(path, place / str(number), follow_symlinks=False)
        except OSError:  # another file system, one without links, or a file of somebody else's
            shutil.copy2(path, place / str(number), follow_symlinks=False)
    prefix = str(environment.prefix)
    manifest = {
        "what": what,
        "kept": [os.path.relpath(path, prefix) for path in kept],
        "written": [os.path.relpath(path, prefix) for path in written],
        "there": [os.path.relpath(path, prefix) for path in _stashes([*kept, *written])],
    }
    with atomic_file(place / _MANIFEST) as file:
        file.write(json.dumps(manifest).encode("utf-8", "surrogateescape"))


def _stashes(paths: Iterable[str]) -> list[str]:
    """Return the directories, called ``~…``, that pip moves beside what it removes until it has ended."""
    parents = {parent for path in paths for parent in list(Path(path).parents)[:-1]}
    return [str(path) for parent in sorted(parents) for path in parent.glob("~*")]


def _put_back(environment: TargetEnvironment, place: Path) -> None:
    """Remove what an installer has written, and put back what it has removed; may be done twice.

    :raises OSError: something cannot be put back.
    """
    try:
        manifest = _manifest(place)
        kept, written, there = (
            [_inside(environment, p) for p in manifest[key]] for key in ("kept", "written", "there")
        )
    except FileNotFoundError:  # nothing was changed yet, or all was done
        return shutil.rmtree(place)
    except (ValueError, LookupError, TypeError) as error:
        raise UsageError(
            f"{place} is damaged ({error}); install what is missing again, and remove it"
        ) from error
    staying = {*kept}
    infos = {path.rpartition("/")[0] for path in written if path.endswith(".dist-info/RECORD")}
    found = [str(path) for info in infos for path in Path(info).rglob("*") if not path.is_dir()]
    for path in {*written, *found, *_bytecode(written)} - staying:
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            os.unlink(path)
    for path in {*_stashes([*kept, *written])} - {*there}:
        shutil.rmtree(path, ignore_errors=True)
    for number, path in enumerate(kept):
        if os.path.lexists(place / str(number)):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            # rename(2) does nothing where both are one file: that is so then.
            os.replace(place / str(number), path)
    for path in written:
        for parent in [Path(path).parent / "__pycache__", *Path(path).parents]:
            if parent in (environment.prefix, *environment.site):
                break
            with suppress(OSError):  # not empty
                parent.rmdir()
    _forget(place)
    return None


def _inside(environment: TargetEnvironment, name: str) -> str:
    path = os.path.normpath(environment.prefix / name)
    roots = (environment.prefix, *environment.site)
    if not any(path.startswith(f"{os.path.normpath(root)}/") for root in roots):
        raise ValueError(f"{name!r} is outside of the environment")
    return path


def _forget(place: Path) -> None:
    """End a replacement: from now on nothing is to be put back."""
    manifest = place / _MANIFEST
    try:
        manifest.unlink()
        shutil.rmtree(place, ignore_errors=True)
    finally:  # an interruption leaves nothing, either
        if not manifest.exists():
            shutil.rmtree(place, ignore_errors=True)


def _save_changed(
    environment: TargetEnvironment, place: Path, kept: list[str], changed: Collection[str], what: str
) -> list[str]:
    """Give the changed files among those that are kept a place where they stay."""
    kept = list(dict.fromkeys(kept))
    directory = environment.prefix / f"relink-changed-{what.replace(' ', '-')}"
    count = 1
    while changed and os.path.lexists(directory):
        count += 1
        directory = directory.with_name(f"relink-changed-{what.replace(' ', '-')}-{count}")
    saved = []
    for path in changed:
        to = directory / os.path.relpath(path, environment.prefix)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(place / str(kept.index(path)), to, follow_symlinks=False)
        saved.append(str(to))
    return saved
