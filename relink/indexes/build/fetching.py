"""Fetching one wheel into the cache: resumed where it was cut, checked by its hash, by one process at a time.

The cache is that of `relink install` (:mod:`relink.indexes.install.cache`). What came so far stays beside it, in ``partial``.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.web import FetchError, TooLargeError, Web, without_secrets
from relink.indexes.install.cache import LARGEST, CachedWheel, cache_directory, find_by_sha256, keep
from relink.system.errors import UsageError
from relink.system.safe_open import file_sha256
from relink.system.system_errors import raise_if_machine_fault

_TRIES = 4  # connections that may break; each goes on where the one before ended


def fetch_wheel(wheel: ListedWheel, web: Web, cache_size: int) -> CachedWheel:
    """Return a wheel's file: of a directory where it lies, any other from the cache, fetched if it is not there.

    :param cache_size: bytes that the cache may hold afterwards; what was unused longest goes first.
    :raises FetchError: it cannot be read, or is not what the source's hash and size say.
    """
    if urlsplit(wheel.url).scheme == "file":
        path = Path(unquote(urlsplit(wheel.url).path))
        return CachedWheel(path, _checked(wheel, path), wheel.name)
    with _alone(wheel) as partial:
        if wheel.sha256 and (found := find_by_sha256(wheel.sha256)):
            return found
        most = LARGEST if wheel.size is None else min(LARGEST, wheel.size)
        for left in reversed(range(_TRIES)):
            try:
                web.file(wheel.url, partial, most)
                break
            except TooLargeError:
                partial.unlink()
                raise
            except FetchError as error:
                if error.missing or not left:
                    raise
        try:
            _checked(wheel, partial)
        except FetchError:
            partial.unlink()
            raise
        return keep(partial, cache_size)


def _checked(wheel: ListedWheel, path: Path) -> str:
    """The digest of a file, if it is that of a wheel."""
    try:
        sha256 = file_sha256(path, LARGEST)
    except OSError as error:
        raise_if_machine_fault(error, str(path))
        raise FetchError(f"{path}: cannot be read ({error.strerror})") from error
    if wheel.sha256 and sha256 != wheel.sha256:
        raise FetchError(
            f"{without_secrets(wheel.url)}: its sha256 is {sha256}, and the source says {wheel.sha256}; it is not taken"
        )
    return sha256


@contextlib.contextmanager
def _alone(wheel: ListedWheel) -> Iterator[Path]:
    """Give the path of the partial file, which no other process of this machine uses meanwhile."""
    what = wheel.sha256 or hashlib.sha256(wheel.url.encode()).hexdigest()
    place = cache_directory() / "partial" / what
    try:
        place.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(
            place.parent / f"{what}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666
        )
    except OSError as error:
        raise_if_machine_fault(error, str(place))
        raise UsageError(
            f"{place}: the cache cannot be written ({error.strerror}); set XDG_CACHE_HOME"
        ) from error
    try:
        # A file system without locks: two may fetch the same, and one is kept.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        place.mkdir(exist_ok=True)  # whoever was here before has removed it
        yield place / wheel.filename
        shutil.rmtree(place, ignore_errors=True)
    finally:
        os.close(descriptor)
