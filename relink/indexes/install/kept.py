"""What an installer has made of its own (RECORD, INSTALLER, scripts, compiled modules) kept aside, and put back.

A wheel that is installed again has the same content, but not the same .pyc files, which hold times, nor the same notes of who
installed it, when and from where. So `relink repair` keeps those in ``share/relink/NAME`` of the environment, for ``--undo``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from relink.indexes.install.environment import TargetEnvironment
from relink.indexes.install.installed import Installed
from relink.system.atomic import atomic_file, copy_file
from relink.system.bounded_json import JSON_LIMIT, parse_json
from relink.system.safe_open import read_text

__all__ = ["keep_aside", "put_back"]

_Value = TypeVar("_Value")


def _place(environment: TargetEnvironment, installed: Installed) -> Path:
    place = environment.prefix / "share" / "relink" / installed.dist_info.name.partition("-")[0].lower()
    if not environment.holds(place / "kept.json"):
        raise OSError(errno.EXDEV, f"lies outside of {environment.prefix}", str(place))
    return place


def keep_aside(
    environment: TargetEnvironment, installed: Installed, content: frozenset[Path], sha256: str
) -> None:
    """Copy what is installed and is no content of the wheel.

    :param content: the files that are as the wheel has them; of these the times alone are noted.
    :param sha256: of the wheel.
    :raises OSError: a file cannot be read or written, or lies outside of the environment.
    """
    place = _place(environment, installed)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    files, times = {}, {}
    for number, path in enumerate(sorted(_all_files(environment, installed))):
        relative = str(path.relative_to(environment.prefix))
        times[relative] = path.stat().st_mtime_ns
        if path not in content:
            files[relative] = str(number)
            copy_file(path, place / str(number))
    state = {"sha256": sha256, "files": files, "times": times}
    with atomic_file(place / "kept.json") as file:
        file.write(json.dumps(state).encode())


def put_back(environment: TargetEnvironment, before: Installed, now: Installed, sha256: str) -> bool:
    """Make the installation `now` of a wheel what it was when :func:`keep_aside` was called.

    :param before: what was installed under the same name until now.
    :return: whether there was anything kept for this very wheel.
    :raises OSError: a file cannot be written, or what is kept lies outside of the environment.
    """
    place = _place(environment, before)
    state = _read(place)
    if state is None or state[0] != sha256:
        return False
    _, files, numbers = state
    times = dict(_inside(environment, numbers))
    for path in _all_files(environment, now) - times.keys():
        path.unlink()
    for path, number in _inside(environment, files):
        path.parent.mkdir(parents=True, exist_ok=True)
        copy_file(place / os.path.basename(number), path)
    for path, time in times.items():
        with contextlib.suppress(FileNotFoundError):
            os.utime(path, ns=(time, time), follow_symlinks=False)
    shutil.rmtree(place)
    for parent in (place.parent, place.parent.parent):
        with contextlib.suppress(OSError):  # something else is in it
            parent.rmdir()
    return True


def _read(place: Path) -> tuple[str, dict[str, str], dict[str, int]] | None:
    """Return the hash of the wheel, the files by path, and the times by path; None where that is not what lies there."""
    try:
        state = parse_json(read_text(place / "kept.json", JSON_LIMIT))
        files = {str(name): str(number) for name, number in state["files"].items()}
        times = {str(name): time for name, time in state["times"].items()}
        names = os.fsencode("".join((*files, *files.values(), *times)))
        if b"\0" in names or any(type(time) is not int for time in times.values()):
            return None
        return str(state["sha256"]), files, times
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _inside(environment: TargetEnvironment, items: Mapping[str, _Value]) -> Iterator[tuple[Path, _Value]]:
    """The paths that lie inside of the environment, symbolic links of directories followed."""
    for name, value in items.items():
        path = Path(os.path.normpath(environment.prefix / name))
        if environment.holds(path):
            yield path, value


def _all_files(environment: TargetEnvironment, installed: Installed) -> set[Path]:
    """What RECORD lists, what else lies in the dist-info directory, and the compiled modules beside the sources."""
    found = set(installed.files) | set(installed.dist_info.rglob("*"))
    for source in installed.files:
        if source.suffix == ".py":
            found.update(source.parent.glob(f"__pycache__/{source.stem}.*.pyc"))
    return {path for path in found if path.is_file() and environment.holds(path)}
