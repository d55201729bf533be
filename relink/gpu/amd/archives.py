"""Device code with what kpack archives hold for it: archives on disk beside a library, or in the wheel that brings it."""

from __future__ import annotations

import os
import posixpath
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from relink.elf.source import ByteSource
from relink.gpu.amd.device_code import DeviceCode
from relink.gpu.amd.isa_table import table
from relink.gpu.amd.kpack import (
    MAX_PROBLEMS,
    STEPS,
    Doubt,
    Effort,
    KpackArchive,
    directory_names,
    find_archives,
    parse_archive,
    read_archive,
    resolve,
)

if TYPE_CHECKING:  # slow to load
    from relink.wheel.source import MemberSource

# Bytes: magic, version, offset of the table.
_HEAD = 16
# Bytes of a table that are kept: one more than the reader of archives takes.
_MOST = (64 << 20) + 1


def resolve_kpack(
    code: DeviceCode,
    path: str | None = None,
    *,
    names_in: Callable[[str], Collection[str]] = directory_names,
    read: Callable[[str, Effort], KpackArchive] = read_archive,
    effort: Effort | None = None,
) -> DeviceCode:
    """Return `code` with the bundles that archives hold for it.

    :param path: of the library, where it is not `code.path`.
    :param names_in: the names in a directory, and `read` an archive there: on disk, unless something else is given.
    :param effort: what may be spent; where it is not enough, the library has a doubt.
    """
    if code.kpack is None:
        return code
    effort = effort or Effort(STEPS)
    # The runtime leaves `..` to the kernel, which follows links first: /opt/rocm/lib/.. is /opt/rocm/core-10.1.
    folder = os.path.dirname(path) if path is not None else os.path.realpath(os.path.dirname(code.path))
    found = find_archives(code.kpack, folder, names_in, effort)
    archives = [(one, read(one.path, effort)) for one in found]
    problems = (f"{archive.path}: {text}" for _, archive in archives for text in archive.problems)
    found_code = resolve(code.kpack, archives, effort)
    return replace(
        code,
        bundles=(*code.bundles, *found_code.bundles),
        first=(*code.bundles, *found_code.first) if found_code.first else (),
        problems=(*code.problems, *islice(problems, MAX_PROBLEMS)),
        doubts=found_code.doubts,
        shadows=found_code.shadows,
    )


def as_taken(code: DeviceCode, hip: tuple[int, int] | None) -> DeviceCode:
    """Return `code` as the kpack loader of a HIP of that version finds it, one that takes no more than one archive say."""
    if not code.shadows:
        return code
    falls_through = hip is None or hip >= table().falls_through
    return replace(code, shadows=()) if falls_through else replace(code, bundles=code.first)


def with_archives(
    codes: Mapping[str, DeviceCode],
    archive: MemberSource,
    path_of: Callable[[str], str] = lambda member: member,
    sites: Iterable[tuple[str, str]] = (),
    beside: Iterable[MemberSource] = (),
    without: Collection[str] = (),
) -> dict[str, DeviceCode]:
    """Return the device code of a wheel's members with what the kpack archives hold for them.

    Where there is no archive at all, and no `sites` to look in, the code lies in a distribution that was not seen: it is unknown
    and not absent.

    :param path_of: where a member is installed: search paths are relative to that.
    :param beside: other wheels that will be installed with it.
    :param without: members that are not installed.
    :param sites: pairs of a directory in which members are installed and one on disk that has other distributions' files.
    :raises WheelError: an archive's content is not what the wheel claims.
    """
    members: dict[str, dict[str, tuple[MemberSource, str]]] = {}
    if any(code.kpack is not None for code in codes.values()):
        for wheel in (*beside, archive):
            for name in (name for name in wheel.members if wheel is not archive or name not in without):
                folder, base = posixpath.split(posixpath.normpath(path_of(name)))
                members.setdefault(folder, {})[base] = wheel, name
    pairs = tuple(sites)

    def on_disk(path: str) -> Iterable[str]:
        for installed, place in pairs:
            if path == installed or path.startswith(f"{installed}/"):
                yield place + path[len(installed) :]

    def names_in(folder: str) -> Collection[str]:
        beside = (name for place in on_disk(folder) for name in directory_names(place))
        return dict.fromkeys((*members.get(folder, ()), *beside))

    known: dict[str, KpackArchive] = {}

    def read(path: str, effort: Effort) -> KpackArchive:
        # An archive of several libraries.
        if path not in known:
            folder, base = posixpath.split(path)
            if member := members.get(folder, {}).get(base):
                known[path] = parse_archive(_Ends(*member), member[1], effort)
            else:
                known[path] = read_archive(next(place for place in on_disk(path)), effort)
        return known[path]

    effort = Effort(STEPS)
    return {
        name: _with(code, path_of(name), names_in, read, effort, everywhere=bool(pairs))
        for name, code in codes.items()
    }


def _with(
    code: DeviceCode,
    path: str,
    names_in: Callable[[str], Collection[str]],
    read: Callable[[str, Effort], KpackArchive],
    effort: Effort,
    *,
    everywhere: bool,
) -> DeviceCode:
    seen = []

    def noted(place: str, effort: Effort) -> KpackArchive:
        seen.append(place)
        return read(place, effort)

    found = resolve_kpack(code, path, names_in=names_in, read=noted, effort=effort)
    if code.kpack is None or seen or everywhere or found.doubts:
        return found
    paths = ", ".join(posixpath.basename(one) for one in code.kpack.search_paths[:3])
    return replace(
        found,
        doubts=(Doubt(None, f"its code lies in kpack archives, and none of them is in the wheel ({paths})"),),
    )


class _Ends(ByteSource):
    """The head of an archive and its table, which is at the end; what is between is inflated and not kept."""

    def __init__(self, archive: MemberSource, member: str) -> None:
        self._size = archive.members[member].size
        kept = bytearray()
        at, self._from = 0, self._size
        head = b""
        for chunk in archive.chunks(member):
            if len(head) < _HEAD:
                head += chunk[: _HEAD - len(head)]
                if len(head) == _HEAD:
                    self._from = min(max(struct.unpack_from("<Q", head, 8)[0], 0), self._size)
            start = max(self._from - at, 0)
            if len(head) == _HEAD and start < len(chunk) and len(kept) < _MOST:
                kept += chunk[start : start + _MOST - len(kept)]
            at += len(chunk)
        self._head, self._kept = head, bytes(kept)

    @property
    def size(self) -> int:
        return self._size

    def read_at(self, offset: int, length: int) -> bytes:
        part, at = (self._kept, offset - self._from) if offset >= self._from else (self._head, offset)
        return part[at : at + max(length, 0)] if at >= 0 else b""
