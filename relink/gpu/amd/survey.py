"""What `relink isa` looks at: a wheel, a file, or a directory with everything below it that is or holds device code.

Of a directory each regular file is looked at once, with limits on number, depth and time; few links out of it are followed.
"""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from relink.elf.constants import DT_NEEDED, DT_SONAME
from relink.elf.source import BufferSource, ByteSource, FileSource
from relink.gpu.amd.bundle import CCOB_MAGIC, RAW_MAGIC
from relink.gpu.amd.device_code import DeviceCode, read_device_code, read_file, resolve_kpack, with_archives
from relink.gpu.amd.file_coverage import (
    FileCoverage,
    LibraryCoverage,
    are_choice,
    coverage_of,
    file_of,
    intersect,
    kernels_of,
    library_coverage_of,
)
from relink.gpu.amd.kpack import ARCHIVE_MAGIC, STEPS, Effort
from relink.gpu.amd.side_files import SideFiles, find_side_files
from relink.gpu.amd.target_id import table
from relink.gpu.coverage import Coverage, Group, Survey, TargetId
from relink.gpu.host_elf import parse_host_elf, strings_at
from relink.system.errors import UsageError, raise_if_machine_fault
from relink.system.text import group_pairs, join_truncated

_MAX_FILES = 1_000_000  # and directories
_MAX_DEPTH = 100
# Seconds; ROCm's 6,000 files take one. The time in which the caller reads them is counted, too.
_MAX_SECONDS = 300
_KERNEL_FILE_SYSTEMS = ("/proc/", "/sys/", "/dev/")
# Nix manual, "Store Path"; Guix has the same.
_STORE_ITEM = re.compile(r"/[0-9a-df-np-sv-z]{32}-[0-9a-zA-Z+\-._?=]+(?:/|\Z)")


def _leads_out(entry: os.DirEntry[str], top: str, *, directory: bool) -> str | None:
    """Return where a symbolic link leads that is not followed; None for the others.

    Followed are those that stay below `top`, and links to files elsewhere except in /proc, /sys, /dev. A link to a directory
    elsewhere may lead anywhere, for example to ``/``. Links into the items of a store are followed: a Nix or Guix profile, or
    what symlinkJoin makes, consists of them.
    """
    real = os.path.realpath(entry.path)
    inside = real == top or real.startswith(top.rstrip("/") + "/")
    elsewhere = not real.startswith(_KERNEL_FILE_SYSTEMS) and (not directory or _STORE_ITEM.search(real))
    return None if inside or elsewhere else real


def walk(top: Path, problems: list[str]) -> Iterator[str]:
    """Yield every regular file below `top` once; what is not looked at, for its place, number, depth or time, is a problem."""
    links: list[str] = []
    unread: list[str] = []
    yield from _files(os.path.realpath(top), problems, links, unread)
    if links:
        problems.append(
            f"{os.path.realpath(top)}: links that lead out of it are not followed: {join_truncated(links)}; "
            "name their targets to look at them"
        )
    if unread:
        problems.append(join_truncated(unread))


def _files(top: str, problems: list[str], links: list[str], unread: list[str]) -> Iterator[str]:
    pending = [(top, 0)]
    seen: set[tuple[int, int]] = set()
    count = 0
    end = time.monotonic() + _MAX_SECONDS
    while pending:
        directory, depth = pending.pop()
        if time.monotonic() > end:
            problems.append(f"{top}: takes more than {_MAX_SECONDS} s; the rest was not looked at")
            return
        try:
            info = os.stat(directory)
            if (info.st_dev, info.st_ino) in seen:
                continue
            seen.add((info.st_dev, info.st_ino))
            with os.scandir(directory) as entries:
                # A file before the links to it, so that it goes by its own name.
                ordered = sorted(
                    # A hostile directory may have more entries than are ever looked at.
                    islice(entries, _MAX_FILES + 1 - count),
                    key=lambda entry: (entry.is_symlink(), entry.name),
                )
        except OSError as error:
            raise_if_machine_fault(error, directory)
            unread.append(f"{directory}: cannot be read ({error.strerror})")
            continue
        below = []
        for entry in ordered:
            count += 1
            if count > _MAX_FILES:
                problems.append(f"{top}: more than {_MAX_FILES} files; the rest was not looked at")
                return
            try:
                is_directory = entry.is_dir()
                if not is_directory and not entry.is_file():
                    continue
                if entry.is_symlink() and (real := _leads_out(entry, top, directory=is_directory)):
                    links.append(f"{entry.path} to {real}")
                    continue
                if is_directory:
                    if f"{entry.path}/" in _KERNEL_FILE_SYSTEMS and not entry.is_symlink():
                        # `isa /` comes here, and no file of these file systems lies on a disk.
                        continue
                    if depth < _MAX_DEPTH:
                        below.append((entry.path, depth + 1))
                    else:
                        unread.append(f"{entry.path}: more than {_MAX_DEPTH} directories deep, not looked at")
                    continue
                info = entry.stat()
            except OSError as error:
                raise_if_machine_fault(error, entry.path)
                # As a rule a link that leads nowhere.
                continue
            key = (info.st_dev, info.st_ino)
            if info.st_size < 64 or key in seen:
                continue
            seen.add(key)
            yield entry.path
        pending += reversed(below)


_T = TypeVar("_T")
_STANDALONE = (RAW_MAGIC, CCOB_MAGIC, ARCHIVE_MAGIC)
_HIP = re.compile(r"libamdhip64\.so\.\d{1,9}")


class _Found(msgspec.Struct):
    """What a walk has collected; `hips` is the HIP runtime that an item needs, by path."""

    root: str
    items: list[Coverage] = msgspec.field(default_factory=list)
    hips: dict[str, str] = msgspec.field(default_factory=dict)
    loose: dict[str, list[DeviceCode]] = msgspec.field(default_factory=dict)
    plain: list[str] = msgspec.field(default_factory=list)
    problems: list[str] = msgspec.field(default_factory=list)
    read: int = 0

    def standalone(self, code: DeviceCode) -> None:
        self.loose.setdefault(os.path.dirname(code.path), []).append(code)
        self.read += 1

    def gather(self, known: Mapping[str, SideFiles]) -> None:
        """Put kernel files of one directory together where they are a choice; compare those of libraries with their names."""
        sides = {
            directory: known.get(os.path.realpath(directory)) if known else None for directory in self.loose
        }
        free = [code for directory, codes in self.loose.items() if sides[directory] is None for code in codes]
        choice = are_choice(free, os.path.realpath(self.root))
        for directory, codes in self.loose.items():
            side = sides[directory]
            if side is None and not choice:
                self.items += [coverage_of(code) for code in codes]
                continue
            kernels = kernels_of(directory, codes)
            if side is not None:
                self.problems += [f"{directory}: {text}" for text in kernels.problems]
                held = {code.target for codes, _ in kernels.sets for code in codes}
                self.problems += [
                    f"{side.directory}: files are named for {target}, none holds code for it"
                    for target, kinds in side.targets.items()
                    if kinds & {"tuned", "fallback"} and target not in held
                ]
            else:
                self.items.append(kernels)


def _is_choice(item: Coverage) -> bool:
    return isinstance(item, FileCoverage) and item.files > 0


def _group(name: str, items: tuple[Coverage, ...]) -> Group:
    # It is unknown which program needs kernel files, so beside a library none is missing.
    items = tuple(item for item in items if not _is_choice(item))
    return Group(name, items, intersect(items), _HIP.fullmatch(name) is not None)


def _survey(
    found: _Found,
    kind: str,
    groups: Sequence[Group],
    side: Iterable[SideFiles] = (),
    problems: Iterable[str] = (),
) -> Survey:
    hidden = (
        f"{item.path}: {shadow}, and HIP before {'.'.join(map(str, table().falls_through))} takes it first and alone"
        for item in found.items
        if (file := file_of(item)) is not None
        for shadow in file.shadows
    )
    return Survey(
        "rocm",
        found.root,
        kind,
        tuple(found.items),
        tuple(groups),
        TargetId("gfx1100"),
        tuple(filter(_is_choice, found.items)),
        tuple({"kind": s.kind, "directory": s.directory, "processors": list(s.processors())} for s in side),
        tuple(found.plain),
        found.read,
        (*problems, *hidden),
    )


def survey(path: Path, variants: Sequence[str] = (), scan_limit: int = 0) -> Survey:
    """Read `path`.

    :param variants: globs of a wheel's members of which one is loaded.
    :param scan_limit: > 0 also searches that many bytes of other data sections of each file.
    :raises UsageError: there is nothing of that name.
    :raises WheelError: it is called .whl and is no wheel.
    """
    # Path.is_dir raises for a link to a name that is too long.
    if os.path.isdir(path):
        return _directory(path, scan_limit)
    if not os.path.exists(path):
        raise UsageError(f"{path}: no such file or directory; name a wheel, a library or a directory")
    if path.suffix == ".whl":
        return _wheel(path, variants, scan_limit)
    code = resolve_kpack(read_file(path, scan_limit=scan_limit))
    soname, hip = read_names(path)
    item: Coverage = coverage_of(code)
    library = library_coverage_of(code, soname)
    if library.role is not None:
        item = library
    problems = () if code.form != "other" else (f"{path}: neither ELF nor a container of GPU code",)
    return _survey(_Found(str(path), [item], read=1), "file", [_group(hip, (item,))], (), problems)


def _wheel(path: Path, variants: Sequence[str], scan_limit: int) -> Survey:
    from relink.wheel.archive import WheelArchive  # noqa: PLC0415 - slow to load, and here only
    from relink.wheel.source import read_prefix  # noqa: PLC0415

    found = _Found(str(path))
    held: dict[str, DeviceCode] = {}
    effort = Effort(STEPS)
    with WheelArchive(path) as archive:
        for name, member in archive.members.items():
            if member.is_directory:
                continue
            head = read_prefix(archive, name, 32)
            if not head.startswith((b"\x7fELF", *_STANDALONE)):
                continue
            content = archive.read_into(name)
            try:
                code = read_device_code(BufferSource(content), name, scan_limit=scan_limit, effort=effort)
            finally:
                content.release()
            if code.form != "elf":
                found.standalone(code)
            elif code.bundles or code.embedded or code.kpack:
                found.read += 1
                held[name] = code
            else:
                found.plain.append(name)
        found.items += [coverage_of(code) for code in with_archives(held, archive).values()]
    found.gather({})
    choice = [item for item in found.items if any(fnmatch.fnmatchcase(item.path, glob) for glob in variants)]
    shared = tuple(item for item in found.items if item not in choice)
    groups = [_group(item.path, (item, *shared)) for item in choice] or [_group("", shared)]
    return _survey(found, "wheel", groups)


def _directory(path: Path, scan_limit: int) -> Survey:
    found = _Found(str(path))
    for file in walk(path, found.problems):
        try:
            with FileSource(file) as source:
                head = bytes(source.read_at(0, 64))
                if head.startswith(b"\x7fELF") and head[18:20] != b"\xe0\x00":
                    code = resolve_kpack(read_device_code(source, file, scan_limit=scan_limit))
                    soname, hip = _names_of(source)
                    library = library_coverage_of(code, soname)
                    if library.file.bundles or library.role is not None or code.kpack or code.embedded:
                        found.items.append(library)
                        found.hips[file] = hip
                        found.read += 1
                    elif ".so" in os.path.basename(file):
                        found.plain.append(file)
                elif head.startswith((b"\x7fELF", *_STANDALONE)):
                    found.standalone(read_device_code(source, file))
        except OSError as error:
            found.problems.append(f"{file}: cannot be read ({error.strerror})")
    libraries = [item for item in found.items if isinstance(item, LibraryCoverage)]
    known = {os.path.realpath(s.directory): s for item in libraries for s in item.side}
    owned = set(known)
    every = find_side_files(path)
    known |= {os.path.realpath(s.directory): s for s in every}
    found.gather(known)
    by_hip = group_by_runtime((found.hips.get(item.path, ""), item) for item in found.items)
    groups = [_group(hip, items) for hip, items in by_hip.items()]
    side = (s for s in every if os.path.realpath(s.directory) not in owned)
    return _survey(
        found,
        "directory",
        groups,
        side,
        [*found.problems, *(text for s in known.values() for text in s.problems)],
    )


def group_by_runtime(pairs: Iterable[tuple[str, _T]]) -> dict[str, tuple[_T, ...]]:
    """Return what needs each HIP runtime, the newest (``libamdhip64.so.10``) first, with what names none; else that alone."""
    groups = group_pairs(pairs)
    free = groups.pop("", [])
    newest_first = sorted(groups, key=lambda name: int(name.rpartition(".")[2]), reverse=True)
    return {hip: (*groups[hip], *free) for hip in newest_first} or {"": tuple(free)}


def read_names(path: str | os.PathLike[str]) -> tuple[str | None, str]:
    """Return the soname of a library, and that of the HIP runtime that it needs, as :func:`_names_of`."""
    try:
        with FileSource(path) as source:
            return _names_of(source)
    except OSError:
        return None, ""


def _names_of(source: ByteSource) -> tuple[str | None, str]:
    """Return the soname of an ELF file (None without one), and the soname of the HIP runtime that it needs ("" without)."""
    elf = parse_host_elf(source)
    if elf is None:
        return None, ""
    soname = next(iter(strings_at(source, elf, DT_SONAME)), None)
    hip = next((name for name in strings_at(source, elf, DT_NEEDED) if _HIP.fullmatch(name)), "")
    return soname, hip
