"""pip and uv as programs: which of them there is, running them, and wheels that pip chooses for a target's Python.

pip downloads, since uv cannot. Both read their own configuration (index, proxies, credentials), of which relink knows nothing.
Only wheels are taken, without dependencies, and kept in the cache: to build one of a source distribution would run its code.

The directory in which fetched wheels stay: each in a directory that is called by the SHA-256 of its content.

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
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from relink.elf.image import machine_name
from relink.indexes.install.replacing import held_locks
from relink.loader.python import PythonFacts
from relink.loader.target import Target
from relink.planning.checks.tags import list_supported_tags
from relink.planning.model import PLAN_MEMBER
from relink.python.facts_cache import user_cache_directory
from relink.system.atomic import atomic_file, copy_file, working_directory
from relink.system.bounded_json import JSON_LIMIT
from relink.system.errors import RelinkError, UsageError, WheelError, describe_failure, raise_if_machine_fault
from relink.system.programs import NoAnswerError, ask_program, make_child_environment
from relink.system.safe_open import file_sha256, list_names, read_bytes, read_text
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
    for digest in list_names(directory):
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


# Lines that are shown of a program that has failed: its last ones.
_SHOWN = 8


class InstallerError(RelinkError):
    """pip or uv has failed; the issues are its last lines."""


@cache
def has_pip(python: str) -> bool:
    """Whether a Python has a pip that starts; asked once, since it takes half a second and a command wants to know it thrice."""
    try:
        return ask_program([python, "-I", "-m", "pip", "--version"], directory="/").returncode == 0
    except NoAnswerError:
        return False


def find_pip(pythons: Iterable[str] = ()) -> list[str]:
    """Return a command that is pip: of the Python that runs relink, of one of `pythons`, or of ``python3`` on PATH.

    relink requires pip; a package manager may have left it out.

    :raises UsageError: none of them has it.
    """
    on_path = shutil.which("python3")
    for python in dict.fromkeys((sys.executable, *pythons, *((on_path,) if on_path else ()))):
        if has_pip(python):
            return [python, "-I", "-m", "pip"]
    raise UsageError(
        "no pip was found: not in the Python that runs relink, not in the target's, not in python3 on PATH; install pip, "
        "or download the wheel and pass its path"
    )


def run_installer(command: Sequence[str], directory: Path, failed: str) -> str:
    """Run pip or uv in `directory`; on a terminal its progress is seen there, on standard error. It has ended afterwards.

    :param failed: the beginning of the sentence if it fails.
    :return: what it has printed on standard error.
    :raises InstallerError: it does; has its last lines.
    """
    shown = sys.stderr.isatty()
    try:
        with subprocess.Popen(
            command,
            env=make_child_environment(),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr if shown else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            pass_fds=tuple(held_locks().values()),
        ) as run:
            try:
                said, complained = run.communicate()
            except BaseException:
                run.kill()
                run.wait()
                raise
    except OSError as error:
        raise_if_machine_fault(error, command[0])
        raise InstallerError(f"{failed}: {command[0]} cannot be run ({error.strerror})") from error
    if run.returncode != 0:
        lines = [line.strip() for line in f"{said or ''}\n{complained}".splitlines() if line.strip()]
        raise InstallerError(failed, lines[-_SHOWN:])
    return complained


_EXACT = re.compile(r"={2,3}[^*,]+")


class Platform(msgspec.Struct, frozen=True):
    """What a wheel is chosen for.

    :ivar python: the Python that will load it.
    :ivar glibc: the version of the C library of the target's loader.
    :ivar machine: the word for it in platform tags.
    """

    python: PythonFacts
    glibc: str
    machine: str

    @property
    def shown(self) -> str:
        """``Python 3.12 on x86_64 with glibc 2.36``."""
        return f"{self.python.shown} on {self.machine} with glibc {self.glibc}"


def platform_of(target: Target, own: PythonFacts | None = None) -> Platform:
    """Return what wheels are chosen for: the target's Python, or `own` where only a loader was named.

    :raises UsageError: there is neither.
    """
    python = target.python_facts or own
    if python is None:
        raise UsageError(
            "no Python of this machine was named, so no wheel can be chosen; pass --python, too, or pass a wheel's path"
        )
    return Platform(python, target.glibc, machine_name(target.header.machine))


def fetch(wanted: Requirement, platform: Platform) -> CachedWheel:
    """Return the newest wheel that fits, from the index that pip is configured for.

    :raises UsageError: there is no pip.
    :raises InstallerError: pip fails; it may have found none, too.
    """
    python, text = platform.python, f"{wanted.name}{wanted.specifier}"
    tags = list_supported_tags(python, platform.glibc, platform.machine)
    own = tags[0]
    platforms = dict.fromkeys(tag.platform for tag in tags if tag.platform != "any")
    failed = (
        f"{text}: pip has got no wheel of it for {platform.shown}; check the name and the version, name the "
        "Python that will load it by --python, or see what pip says"
    )
    words = [
        f"--implementation={own.interpreter[:2]}",
        f"--python-version={'.'.join(map(str, python.version))}",
        f"--abi={own.abi}",
        *(f"--platform={name}" for name in platforms),
    ]
    return _download(find_pip([python.file]), words, text, failed)


def _download(pip: list[str], words: list[str], wanted: str, failed: str) -> CachedWheel:
    with working_place() as place:
        fixed = ["download", "--no-input", "--no-deps", "--only-binary=:all:", f"--dest={place}"]
        run_installer([*pip, *fixed, *words, wanted], place, failed)
        wheels = list(place.glob("*.whl"))
        if len(wheels) != 1:
            raise InstallerError(failed)
        return store_wheel(wheels[0])


def fetch_url(url: str) -> CachedWheel:
    """Return the wheel at an address, whatever Python it is for.

    :raises WheelError: the address does not end in the name of a wheel.
    :raises InstallerError: pip fails.
    """
    name = parse_wheel_name(unquote(urlsplit(url).path.rpartition("/")[2]))
    python, abi, platform = name.expanded_tags[0].split("-")
    words = [
        "--ignore-requires-python",
        f"--implementation={python[:2]}",
        f"--python-version={python[2:]}",
        f"--abi={abi}",
        f"--platform={platform}",
    ]
    failed = (
        f"{url}: pip has not got it; see what pip says, or download the wheel and pass its path and --url"
    )
    return _download(find_pip(), words, url, failed)


def parse_requirement(text: str, *, exact: bool = False) -> Requirement:
    """Take apart what a user writes: ``NAME==VERSION``, or for `fetch` and `install` a bare NAME or any version specifier.

    :param exact: it must name one version, since a typing error in a bare name would fetch a stranger's package.
    :raises UsageError: it is none, or one that relink does not fetch.
    """
    try:
        parsed = Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        raise UsageError(f"{text!r} is not a requirement: write it like NAME==VERSION") from error
    if parsed.url or parsed.marker:
        raise UsageError(
            f"{text!r}: a requirement with a URL or an environment marker is not fetched; write it like NAME==VERSION, "
            "or download the wheel and pass its path"
        )
    if exact and not _EXACT.fullmatch(str(parsed.specifier)):
        raise UsageError(
            f"{text!r} does not name one version; write it like {parsed.name}==VERSION, or let `relink fetch` choose one"
        )
    return parsed
