"""kpack: device code moved out of a library into ``.kpack`` archives, one an architecture.

The library keeps wrappers with the magic HIPK that point to a MessagePack ``{kernel_name, kpack_search_paths}``
(section ``.rocm_kpack_ref``); paths are relative to the library and may hold ``@GFXARCH@``. In an archive the code for
wrapper *n* is under ``kernel_name#n``. Layout, and which archive serves which GPU: ROCm's shared/kpack (kpack.cpp,
toc_parser.cpp, loader.cpp). The loader puts the GPU's target id into the path, with any part of its features, and takes a kernel
from an archive only if ``gfx_arches`` names the target, too.

All archives of one wheel together, or of one library on disk, have a bound on what is spent on them (:data:`STEPS`): the names
that search paths are compared with, the objects of their tables, and what is looked up in these.
"""

from __future__ import annotations

import os
import posixpath
import struct
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from relink.elf.source import ByteSource, FileSource
from relink.gpu import msgpack
from relink.gpu.amd.bundle import Bundle, BundleEntry
from relink.gpu.amd.target_id import parse_target_id
from relink.gpu.coverage import TargetId
from relink.gpu.msgpack import Effort
from relink.system.errors import UsageError
from relink.system.system_errors import raise_if_machine_fault

ARCHIVE_MAGIC = b"KPAK"
PLACEHOLDER = "@GFXARCH@"
_MAX_TOC = 64 << 20
_VERSION = 1
_SCHEMES = ("none", "zstd-per-kernel")
MAX_PROBLEMS = 100
"""Problems of one archive, or of those of one library."""
STEPS = 2_000_000
"""Steps (:class:`relink.gpu.msgpack.Effort`) for all archives of a wheel: a few seconds."""
# Steps for one archive of one library: it is opened.
_PAIR = 100


@dataclass(frozen=True, slots=True)
class KpackReference:
    """What a library says of its archives. `wrappers` are the numbers of its HIPK wrappers."""

    kernel_name: str
    search_paths: tuple[str, ...]
    wrappers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KpackArchive:
    """The table of contents of one archive: key (``lib/libfoo.so#0``) → target ids.

    :ivar readable: False where nobody knows what it holds: torn, or of a version or a compression that relink does not know.
    """

    path: str
    architectures: frozenset[str]
    contents: dict[str, tuple[TargetId, ...]]
    problems: tuple[str, ...] = ()
    readable: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """An archive's path, and what stands there for ``@GFXARCH@``: None if the search path names one file."""

    path: str
    target: str | None


@dataclass(frozen=True, slots=True)
class Doubt:
    """An archive that is there and cannot be read: its `target` may have code or not; None: any may."""

    target: str | None
    reason: str


_SPENT = Doubt(
    None, f"its kpack archives take more than the {STEPS} steps that relink spends on those of a wheel"
)


def parse_reference(data: bytes) -> KpackReference | str:
    """Read the MessagePack of ``.rocm_kpack_ref`` (padding after it is allowed); a string says what is wrong."""
    try:
        value, _ = msgpack.unpack(data[:65536])
    except msgpack.MsgpackError as error:
        return f".rocm_kpack_ref: {error}"
    name = value.get("kernel_name") if isinstance(value, dict) else None
    paths = value.get("kpack_search_paths") if isinstance(value, dict) else None
    if not isinstance(name, str) or not isinstance(paths, list) or not all(isinstance(p, str) for p in paths):
        return ".rocm_kpack_ref: no kernel_name and kpack_search_paths in it"
    return KpackReference(name, tuple(paths))


def parse_archive(source: ByteSource, path: str, effort: Effort | None = None) -> KpackArchive:
    """Read the table of contents of a ``.kpack`` file; what is wrong with it is in `problems`."""
    head = bytes(source.read_at(0, 16))
    if len(head) < 16 or head[:4] != ARCHIVE_MAGIC:
        return _unreadable(path, "no kpack archive (KPAK expected)")
    version, place = struct.unpack_from("<IQ", head, 4)
    if version != _VERSION:
        return _unreadable(path, f"kpack version {version} is not known ({_VERSION} is)")
    if not 16 <= place < source.size:
        return _unreadable(path, f"torn: kpack contents at 0x{place:x} lie outside of the file")
    if source.size - place > _MAX_TOC:
        return _unreadable(path, f"kpack contents of {source.size - place} bytes: only {_MAX_TOC} are read")
    try:
        value, _ = msgpack.unpack(bytes(source.read_at(place, source.size - place)), effort)
    except msgpack.MsgpackError as error:
        return _unreadable(path, f"torn: {error}")
    table = value if isinstance(value, dict) else {}
    architectures, toc = table.get("gfx_arches"), table.get("toc")
    if not isinstance(toc, dict):
        return _unreadable(path, "no table of contents in it")
    scheme = table.get("compression_scheme", _SCHEMES[0])
    if scheme not in _SCHEMES:
        return _unreadable(path, f"kpack compression {str(scheme)[:40]!r} is not known")
    if _end(table) > source.size:
        return _unreadable(path, "torn: its code ends past the end of the file")
    problems: list[str] = []
    contents: dict[str, tuple[TargetId, ...]] = {}
    for key, kernels in toc.items():
        targets = []
        for name in kernels if isinstance(kernels, dict) else ():
            try:
                targets.append(parse_target_id(str(name)))
            except UsageError as error:
                problems += [str(error)] if len(problems) < MAX_PROBLEMS else []
        if not isinstance(kernels, dict) and len(problems) < MAX_PROBLEMS:
            problems.append(f"kpack entry {str(key)[:120]!r} is no table")
        if targets:
            contents[str(key)] = tuple(targets)
    names = frozenset(str(name) for name in architectures) if isinstance(architectures, list) else frozenset()
    return KpackArchive(path, names, contents, tuple(problems))


def _unreadable(path: str, problem: str) -> KpackArchive:
    return KpackArchive(path, frozenset(), {}, (problem,), readable=False)


def _end(table: dict[str, object]) -> int:
    """Return where the code ends, by the table: ``zstd_offset`` and ``zstd_size``, or ``blobs`` of offset and size."""
    blobs = table.get("blobs")
    ranges = [(table.get("zstd_offset"), table.get("zstd_size"))]
    ranges += (
        [(one.get("offset"), one.get("size")) for one in blobs if isinstance(one, dict)]
        if isinstance(blobs, list)
        else []
    )
    return max(at + size if isinstance(at, int) and isinstance(size, int) else 0 for at, size in ranges)


def find_archives(
    reference: KpackReference,
    directory: str,
    names_in: Callable[[str], Collection[str]],
    effort: Effort | None = None,
) -> tuple[Found, ...]:
    """Return the archives that the search paths name, seen from the library's `directory`; fewer where the effort is spent.

    :param names_in: the names in a directory; none where there is no such directory.
    """
    effort = effort or Effort(STEPS)
    found: dict[str, Found] = {}
    for pattern in dict.fromkeys(reference.search_paths):
        path = os.path.normpath(os.path.join(directory, pattern))
        before, mark, after = path.partition(PLACEHOLDER)
        folder, _, start = before.rpartition("/")
        last, _, rest = after.partition("/")
        if not mark:
            folder, _, start = path.rpartition("/")
        names = names_in(folder)
        if not effort.take(_PAIR + len(names)):
            break
        for name in names:
            inner = name[len(start) : len(name) - len(last)] if mark else ""
            if name != start + inner + last or bool(inner) != bool(mark):
                continue
            full = f"{folder}/{name}"
            if rest:
                full = f"{full}/{rest}"
                below = names_in(posixpath.dirname(full))
                if not effort.take(_PAIR + len(below)) or posixpath.basename(full) not in below:
                    continue
            found.setdefault(full, Found(full, inner or None))
    return tuple(found.values())


def directory_names(folder: str) -> list[str]:
    """The names in a directory on disk, in order; none where it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise_if_machine_fault(error, folder)
        return []


def resolve(
    reference: KpackReference,
    archives: Iterable[tuple[Found, KpackArchive]],
    effort: Effort | None = None,
) -> tuple[tuple[Bundle, ...], tuple[Doubt, ...]]:
    """Return one bundle a wrapper, with the targets that the archives hold for it; and what nobody knows of them."""
    effort = effort or Effort(STEPS)
    held: dict[str, set[TargetId]] = {
        f"{reference.kernel_name}#{number}": set() for number in reference.wrappers
    }
    doubts: list[Doubt] = []
    effort.take(len(held))
    for found, archive in archives:
        if not archive.readable:
            reason = f"{os.path.basename(found.path)}: {archive.problems[0]}"
            doubts.append(Doubt(found.target, reason))
            continue
        fewer = min(len(held), len(archive.contents))
        # Looks up each of the fewer.
        keys = held.keys() & archive.contents.keys()
        if not effort.take(_PAIR + fewer + sum(len(archive.contents[key]) for key in keys)):
            break
        for key in keys:
            targets = [t for t in archive.contents[key] if str(t) in archive.architectures]
            held[key].update(served for t in targets if (served := _served(t, found.target)))
    alike: dict[frozenset[TargetId], Bundle] = {}
    bundles = []
    for having in map(frozenset, held.values()):
        if having not in alike:
            entries = (BundleEntry(f"kpack {t}", t, 0, 1, usable=True) for t in sorted(having, key=str))
            alike[having] = Bundle(0, None, 0, "kpack", tuple(entries))
        bundles.append(alike[having])
    return tuple(bundles), tuple(doubts) if effort.left >= 0 else (_SPENT,)


def _served(target: TargetId, named: str | None) -> TargetId | None:
    """Which GPUs get the code for `target` from an archive whose path has `named`: both must fit."""
    if named is None:
        return target
    try:
        other = parse_target_id(named)
    except UsageError:
        return None
    if other.processor != target.processor:
        return None
    return max(target, other, key=lambda one: str(one).count(":"))


def read_archive(path: str, effort: Effort | None = None) -> KpackArchive:
    """Read an archive on disk; one that cannot be opened is returned with the problem."""
    try:
        with FileSource(path) as source:
            return parse_archive(source, path, effort)
    except OSError as error:
        raise_if_machine_fault(error, path)
        return _unreadable(path, f"cannot be read: {error.strerror}")
