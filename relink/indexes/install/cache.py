"""The directory in which fetched wheels stay: each in a directory that is called by the SHA-256 of its content.

It lies in ``$XDG_CACHE_HOME/relink/wheels`` (``~/.cache/relink/wheels``) and holds at most 20 GiB: what has been unused longest
is removed, but for the vendors' wheels of what is installed relinked (:func:`pin_for_undo`). It may be deleted at any time; what
is installed then can be undone only with the vendor's wheel from elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from relink.planning.embedded import PLAN_MEMBER
from relink.python.facts_cache import user_cache_directory
from relink.system.atomic import atomic_file, copy_file, working_directory
from relink.system.bounded_json import JSON_LIMIT
from relink.system.errors import UsageError, WheelError, describe_failure, raise_if_machine_fault
from relink.system.safe_open import file_sha256, read_bytes, read_text
from relink.wheel.naming import WheelName, parse_wheel_name

# Bytes: some twenty wheels of ROCm's frameworks, of which one has up to 4 GiB.
SIZE = 20 << 30
# Bytes of a wheel that is hashed at most.
LARGEST = 64 << 30
_HELD = ".held"
_LONGEST_PATH = 4096  # bytes, Linux: PATH_MAX
_DIGEST = re.compile(r"[0-9a-f]{64}")


class CachedWheel(msgspec.Struct, frozen=True):
    """A wheel in the cache.

    :ivar sha256: of its content when it was put there.
    """

    path: Path
    sha256: str
    name: WheelName

    @property
    def size(self) -> int:
        """Its bytes, as it is now."""
        return self.path.stat().st_size


def cache_directory() -> Path:
    """Return the directory of fetched wheels, which need not exist."""
    return user_cache_directory() / "wheels"


@contextlib.contextmanager
def working_place() -> Iterator[Path]:
    """Make a directory beside the cached wheels, so that a wheel can be moved into the cache; it is gone at the end.

    :raises UsageError: it cannot be made.
    """
    directory = cache_directory()
    step = "; set XDG_CACHE_HOME to another directory"
    with describe_failure(UsageError, f"{directory}: the cache cannot be made", step):
        directory.mkdir(parents=True, exist_ok=True)
    with working_directory(directory) as place:
        yield place


def store_wheel(wheel: Path, size: int | None = None) -> CachedWheel:
    """Move a wheel from :func:`working_place` into the cache, and remove there what has been unused for longest.

    :param size: bytes that the cache may hold then; :data:`SIZE` by default.
    :raises WheelError: it does not have a wheel's name.
    """
    name = parse_wheel_name(wheel.name)
    sha256 = file_sha256(wheel, LARGEST)
    place = cache_directory() / sha256
    place.mkdir(exist_ok=True)
    kept = place / wheel.name
    wheel.replace(kept)
    os.utime(kept)  # it was used now
    _shrink(kept, SIZE if size is None else size)
    return CachedWheel(kept, sha256, name)


def copy_to_cache(wheel: Path) -> CachedWheel:
    """Return a wheel in the cache: itself where it lies there, else a copy.

    :raises UsageError: it cannot be copied.
    :raises WheelError: it does not have a wheel's name.
    """
    if wheel.parent.parent == cache_directory() and _DIGEST.fullmatch(wheel.parent.name):
        return CachedWheel(wheel, wheel.parent.name, parse_wheel_name(wheel.name))
    failed = f"{wheel}: cannot be copied into the cache"
    with working_place() as place, describe_failure(UsageError, failed):
        return store_wheel(copy_file(wheel, place / wheel.name))


def pin_for_undo(wheel: CachedWheel, dist_info: Path) -> None:
    """Keep a wheel for --undo, whatever the cache's size: until what it became is not installed any more.

    :param dist_info: the directory of the relinked distribution.
    :raises OSError: it cannot be noted.
    """
    place = os.fsencode(os.path.abspath(dist_info))
    with atomic_file(wheel.path.parent / f"{hashlib.sha256(place).hexdigest()}{_HELD}") as file:
        file.write(place)


def _is_held(directory: Path) -> bool:
    """Whether a distribution that was made of the wheel in a directory of the cache is still where it was installed."""
    for note in directory.glob(f"*{_HELD}"):
        with contextlib.suppress(OSError):
            plan = os.path.join(os.fsdecode(read_bytes(note, _LONGEST_PATH)), PLAN_MEMBER)
            if directory.name in read_text(plan, JSON_LIMIT, errors="replace"):
                return True
    return False


def cached_sha256s() -> frozenset[str]:
    """Return the digests of all cached wheels; their content is not read."""
    return frozenset(wheel.sha256 for wheel in _all())


def find_by_sha256(sha256: str) -> CachedWheel | None:
    """Return the cached wheel of that content, if its content is still so; of which package it is, is another question."""
    found = next((wheel for wheel in _all() if wheel.sha256 == sha256), None)
    if found is None:
        return None
    with contextlib.suppress(OSError):
        if file_sha256(found.path, LARGEST) == found.sha256:
            os.utime(found.path)
            return found
    # It has not the content any more that it was kept with.
    shutil.rmtree(found.path.parent, ignore_errors=True)
    return None


def _all() -> Iterator[CachedWheel]:
    directory = cache_directory()
    try:
        digests = sorted(os.listdir(directory))
    except OSError as error:
        raise_if_machine_fault(error, str(directory))
        return
    for digest in digests:
        if not _DIGEST.fullmatch(digest):
            continue
        for file in sorted((directory / digest).glob("*.whl")):
            with contextlib.suppress(WheelError):
                yield CachedWheel(file, digest, parse_wheel_name(file.name))


def _shrink(newest: Path, limit: int) -> None:
    """Remove wheels, the one that was used longest ago first, until the rest takes at most `limit`.

    `newest` stays, and what is held; that takes as much as it takes.
    """
    aged = []
    for wheel in _all():
        # Another process may have removed the wheel.
        with contextlib.suppress(OSError):
            facts = wheel.path.stat()
            aged.append((wheel.path == newest, facts.st_mtime, facts.st_size, wheel.path.parent))
    total = sum(size for _, _, size, _ in aged)
    # False comes before True, so that `newest` is the last, whatever its time is.
    for is_newest, _, size, directory in sorted(aged):
        if total <= limit or is_newest:
            return
        if _is_held(directory):
            continue
        shutil.rmtree(directory, ignore_errors=True)
        total -= size
