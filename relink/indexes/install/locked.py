"""The wheels for ROCm of a uv.lock, fetched: from the address that is there, held to its hash and size, kept in the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urldefrag

from relink.indexes.install.cache import LARGEST, find_by_sha256, keep, working_place
from relink.indexes.install.installers import InstallerError, find_pip, run_installer
from relink.report.nix.uv_lock import LockedWheel, read_lock, rocm_wheels

__all__ = ["FetchedByLock", "fetch_locked"]

_MARGIN = 16 << 20  # bytes: what pip keeps of a file beside its content


@dataclass(frozen=True, slots=True)
class FetchedByLock:
    """A wheel in the cache, and the address that the lock file has for it."""

    path: Path
    url: str


def fetch_locked(
    lock: Path, python: tuple[int, int] | None, on_wheel: Callable[[str], None]
) -> list[FetchedByLock]:
    """Fetch every wheel for ROCm that a uv.lock names; what is in the cache is not fetched again.

    :param python: only those that this Python takes.
    :param on_wheel: called with the name of each before it is fetched.
    :raises UsageError: the lock file has none, or one that cannot be fetched as it is said there; or there is no pip.
    :raises InstallerError: pip fails, or what came has another hash or size.
    """
    found = []
    for wheel in rocm_wheels(read_lock(lock), lock, python):
        cached = find_by_sha256(wheel.sha256 or "")
        if cached is None:
            on_wheel(wheel.name.filename)
        found.append(FetchedByLock(cached.path if cached else _fetch(wheel), wheel.url))
    return found


def _fetch(wheel: LockedWheel) -> Path:
    """Ask pip for one file: it knows the proxies and credentials of the user, and checks the hash in the address."""
    name = wheel.name
    tag = next(tag for tag in sorted(name.tags, key=str) if tag.interpreter.startswith(("py3", "cp3")))
    with working_place() as place:
        command = [
            *find_pip(),
            "download",
            "--no-input",
            "--no-deps",
            "--only-binary=:all:",
            "--ignore-requires-python",
            f"--dest={place}",
            f"--implementation={tag.interpreter[:2]}",
            f"--python-version={tag.interpreter[2:3]}.{tag.interpreter[3:] or 0}",
            f"--abi={tag.abi}",
            f"--platform={tag.platform}",
            f"{urldefrag(wheel.url).url}#sha256={wheel.sha256}",
        ]
        failed = f"{name.filename}: it cannot be fetched from {wheel.url} as the lock file has it; see what pip says"
        run_installer(command, place, failed, largest=(wheel.size or LARGEST) + _MARGIN)
        wheels = list(place.glob("*.whl"))
        if len(wheels) != 1 or (wheel.size is not None and wheels[0].stat().st_size != wheel.size):
            raise InstallerError(
                f"{name.filename}: what came from {wheel.url} is not what the lock file says; lock anew"
            )
        kept = keep(wheels[0])
    if kept.sha256 != wheel.sha256:
        raise InstallerError(
            f"{name.filename}: what came from {wheel.url} has another hash than the lock file says"
        )
    return kept.path
