"""kpack: device code moved out of a library into ``.kpack`` archives, one an architecture.

The library keeps wrappers with the magic HIPK that point to a MessagePack ``{kernel_name, kpack_search_paths}``
(section ``.rocm_kpack_ref``); paths are relative to the library and may hold ``@GFXARCH@``. In an archive the code for
wrapper *n* is under ``kernel_name#n``. Layout, and which archive serves which GPU: ROCm's shared/kpack (kpack.cpp,
toc_parser.cpp, loader.cpp). The loader puts the GPU's target id into the path, with any part of its features, the most specific
first, and takes a kernel from an archive only if ``gfx_arches`` names the target, too. Of several such archives a loader before
rocm-systems#9953 takes the first alone: code that this one lacks is not found in the others (TheRock#7081).

All archives of one wheel together, or of one library on disk, have a bound on what is spent on them (:data:`STEPS`): the names
that search paths are compared with, the objects of their tables, and what is looked up in these.
"""

from __future__ import annotations

import os
import posixpath
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress, product
from typing import Any

import msgspec

from relink.elf.source import ByteSource, FileSource
from relink.gpu.amd.bundle import Bundle, BundleEntry
from relink.gpu.amd.target_id import configurations, parse_target_id, table
from relink.gpu.coverage import TargetId
from relink.system.errors import UsageError
from relink.system.text import group_pairs, pluralize

# Levels of nesting: the reader is recursive.
_DEPTH = 32
# Objects of one table; a table of contents has some for each kernel.
_OBJECTS = 1_000_000
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_LENGTHS = {0: ">B", 1: ">H", 2: ">I"}


class MsgpackError(ValueError):
    """The bytes are no MessagePack, are cut off, or nest too deep. Internal to the package: becomes a problem."""


class Effort(msgspec.Struct):
    """What may be spent on all tables of one wheel together.

    :ivar left: steps of less than a microsecond: objects read here, and what is done with them elsewhere.
    """

    left: int

    def take(self, steps: int) -> bool:
        """Spend steps; False where there are not that many."""
        self.left -= steps
        return self.left >= 0


def read_msgpack(data: bytes, effort: Effort | None = None) -> tuple[Any, int]:
    """Read one object from the start of `data`; return it and how many bytes it took.

    Extension types become their raw bytes.

    :param effort: gives a step for each object that is inside; a table has a million at most.
    :raises MsgpackError: see the class.
    """
    most = min(_OBJECTS, max(effort.left, 0)) if effort else _OBJECTS
    reader = _MsgpackReader(data, Effort(most))
    try:
        return reader.value(), reader.at
    # TypeError: a list or a map that is the key of a map.
    except (struct.error, IndexError, UnicodeDecodeError, TypeError) as error:
        raise MsgpackError(f"damaged MessagePack: {error}") from error
    finally:
        if effort:
            effort.take(most - reader.left.left)


class _MsgpackReader:
    """Reads objects, each from where the one before has ended."""

    def __init__(self, data: bytes, left: Effort) -> None:
        self.data, self.at, self.left = data, 0, left

    def value(self, depth: int = 0) -> Any:
        if not self.left.take(1):
            raise MsgpackError("more objects than are read")
        if depth > _DEPTH:
            raise MsgpackError(f"MessagePack nested deeper than {_DEPTH}")
        tag = self.data[self.at]
        self.at += 1
        if tag < 0x80 or tag >= 0xE0:
            return tag if tag < 0x80 else tag - 256
        if tag < 0x90:
            return self._map(tag & 15, depth)
        if tag < 0xA0:
            return self._array(tag & 15, depth)
        if tag < 0xC0:
            return self._raw(tag & 31).decode("utf-8")
        if tag in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[tag]
        if tag in _NUMBERS:
            return self._number(_NUMBERS[tag])
        if 0xD9 <= tag <= 0xDB:
            return self._raw(self._number(_LENGTHS[tag - 0xD9])).decode("utf-8")
        if 0xC4 <= tag <= 0xC6:
            return self._raw(self._number(_LENGTHS[tag - 0xC4]))
        if 0xC7 <= tag <= 0xC9 or 0xD4 <= tag <= 0xD8:
            # fixext: a byte for the type, then 1, 2, 4, 8 or 16 bytes.
            count = self._number(_LENGTHS[tag - 0xC7]) if tag <= 0xC9 else 1 << (tag - 0xD4)
            self.at += 1
            return self._raw(count)
        if tag in (0xDC, 0xDD):
            return self._array(self._number(_LENGTHS[tag - 0xDB]), depth)
        if tag in (0xDE, 0xDF):
            return self._map(self._number(_LENGTHS[tag - 0xDD]), depth)
        raise MsgpackError(f"MessagePack has no type 0x{tag:02x}")

    def _number(self, form: str) -> Any:
        (number,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return number

    def _raw(self, count: int) -> bytes:
        at, self.at = self.at, self.at + count
        if self.at > len(self.data):
            raise MsgpackError(
                f"MessagePack wants {count} bytes at {at}, only {len(self.data) - at} are left"
            )
        return self.data[at : self.at]

    def _array(self, count: int, depth: int) -> list[Any]:
        if count > len(self.data) - self.at:
            raise MsgpackError(f"MessagePack array of {count} in {len(self.data) - self.at} bytes")
        return [self.value(depth + 1) for _ in range(count)]

    def _map(self, count: int, depth: int) -> dict[Any, Any]:
        if 2 * count > len(self.data) - self.at:
            raise MsgpackError(f"MessagePack map of {count} in {len(self.data) - self.at} bytes")
        items = {}
        for _ in range(count):
            key = self.value(depth + 1)
            items[key] = self.value(depth + 1)
        return items


ARCHIVE_MAGIC = b"KPAK"
PLACEHOLDER = "@GFXARCH@"
_MAX_TOC = 64 << 20
_VERSION = 1
_SCHEMES = ("none", "zstd-per-kernel")
MAX_PROBLEMS = 100
"""Problems of one archive, or of those of one library."""
STEPS = 2_000_000
"""Steps (:class:`Effort`) for all archives of a wheel: a few seconds."""
# Steps for one archive of one library: it is opened.
_PAIR = 100


class KpackReference(msgspec.Struct, frozen=True):
    """What a library says of its archives. `wrappers` are the numbers of its HIPK wrappers."""

    kernel_name: str
    search_paths: tuple[str, ...]
    wrappers: tuple[int, ...] = ()


class KpackArchive(msgspec.Struct, frozen=True):
    """The table of contents of one archive: key (``lib/libfoo.so#0``) → target ids.

    :ivar readable: False where nobody knows what it holds: torn, or of a version or a compression that relink does not know.
    """

    path: str
    architectures: frozenset[str]
    contents: dict[str, tuple[TargetId, ...]]
    problems: tuple[str, ...] = ()
    readable: bool = True


class Found(msgspec.Struct, frozen=True):
    """An archive's path, and what stands there for ``@GFXARCH@``: None if the search path names one file.

    :ivar order: the number of the search path.
    """

    path: str
    target: str | None
    order: int = 0


class Doubt(msgspec.Struct, frozen=True):
    """An archive that is there and cannot be read: its `target` may have code or not; None: any may."""

    target: str | None
    reason: str


class Shadow(msgspec.Struct, frozen=True):
    """An archive that some loaders take alone, although another has code that it lacks.

    :ivar instead: an archive that has the code.
    :ivar agents: the GPUs, with all features, that lose it; `lost` is how many wrappers have code then that is not found.
    """

    path: str
    instead: str
    agents: tuple[TargetId, ...]
    lost: int

    def __str__(self) -> str:
        short, other = os.path.basename(self.path), os.path.basename(self.instead)
        return f"{short} lacks {pluralize(self.lost, 'code object')} that {other} has"


class Resolved(msgspec.Struct, frozen=True):
    """What archives hold for a library.

    :ivar bundles: one a wrapper, with the targets that any archive has; `doubts` is what nobody knows of them.
    :ivar first: the same for a loader that takes one archive alone; empty where there are no `shadows`.
    """

    bundles: tuple[Bundle, ...]
    doubts: tuple[Doubt, ...] = ()
    first: tuple[Bundle, ...] = ()
    shadows: tuple[Shadow, ...] = ()


_SPENT = Doubt(
    None, f"its kpack archives take more than the {STEPS} steps that relink spends on those of a wheel"
)


def parse_reference(data: bytes) -> KpackReference | str:
    """Read the MessagePack of ``.rocm_kpack_ref`` (padding after it is allowed); a string says what is wrong."""
    try:
        value, _ = read_msgpack(data[:65536])
    except MsgpackError as error:
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
        value, _ = read_msgpack(bytes(source.read_at(place, source.size - place)), effort)
    except MsgpackError as error:
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
        targets: list[TargetId] = []
        for name in kernels if isinstance(kernels, dict) else ():
            try:
                target = parse_target_id(str(name))
                # The loader asks for no other spelling.
                targets += [target] if str(target) == str(name) else []
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
    found: dict[tuple[str, str], Found] = {}
    for order, pattern in enumerate(dict.fromkeys(reference.search_paths)):
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
            found.setdefault((full, inner), Found(full, inner or None, order))
    return tuple(found.values())


def resolve(
    reference: KpackReference,
    archives: Iterable[tuple[Found, KpackArchive]],
    effort: Effort | None = None,
) -> Resolved:
    """Return one bundle a wrapper, with the targets that the archives hold for it."""
    effort = effort or Effort(STEPS)
    # What a wrapper has: the target, and the number of the archive.
    held: dict[str, set[tuple[str, int]]] = {
        f"{reference.kernel_name}#{number}": set() for number in reference.wrappers
    }
    doubts: list[Doubt] = []
    readable: list[tuple[Found, KpackArchive]] = []
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
            targets = map(str, archive.contents[key])
            held[key].update((t, len(readable)) for t in targets if t in archive.architectures)
        readable.append((found, archive))
    numbers = group_pairs((frozenset(pairs), key) for key, pairs in held.items())
    union = {pairs: _in_order(_union(pairs, readable)) for pairs in numbers}
    first, shadows = _take_first({pairs: len(keys) for pairs, keys in numbers.items()}, readable, effort)
    bundles, taken = (
        tuple(made[frozenset(pairs)] for pairs in held.values()) if made else () for made in (union, first)
    )
    return Resolved(bundles, tuple(doubts) if effort.left >= 0 else (_SPENT,), taken, shadows)


def kpack_bundle(targets: Iterable[TargetId]) -> Bundle:
    """Return the bundle that stands for code in archives."""
    entries = (BundleEntry(f"kpack {t}", t, 0, 1, usable=True) for t in targets)
    return Bundle(0, None, 0, "kpack", tuple(entries))


def _in_order(targets: Iterable[TargetId]) -> Bundle:
    return kpack_bundle(sorted(set(targets), key=str))


def _union(
    pairs: Iterable[tuple[str, int]], archives: Sequence[tuple[Found, KpackArchive]]
) -> Iterator[TargetId]:
    """Yield which GPUs get the code for targets from archives: the target and the name in the path must fit."""
    for text, number in pairs:
        target, named = parse_target_id(text), archives[number][0].target
        try:
            other = parse_target_id(named) if named is not None else target
        except UsageError:
            continue
        # The loader asks for no other spelling.
        if named not in (None, str(other)):
            continue
        if other.processor in _members(target.processor):
            target = TargetId(other.processor, target.features)
        elif other.processor != target.processor and target.processor not in _members(other.processor):
            continue
        both = dict(target.features) | dict(other.features)
        if all(both[name] == on for name, on in target.features):
            yield target.with_features(**both)


def _members(generic: str) -> Collection[str]:
    found = table().generics.get(generic)
    return found.members if found else ()


def _parts_of(agent: TargetId) -> tuple[str, ...]:
    """Return the agent's target id with all features, then with ever fewer, as the loader tries them."""
    chosen = product((True, False), repeat=len(agent.features))
    return tuple(str(TargetId(agent.processor, tuple(compress(agent.features, kept)))) for kept in chosen)


def _take_first(
    counts: Mapping[frozenset[tuple[str, int]], int],
    archives: Sequence[tuple[Found, KpackArchive]],
    effort: Effort,
) -> tuple[dict[frozenset[tuple[str, int]], Bundle], tuple[Shadow, ...]]:
    """Return what a loader finds that takes the first archive alone, and which archives are in the way; nothing where none is.

    :param counts: what wrappers have, and how many have that.
    """
    served: dict[frozenset[tuple[str, int]], list[TargetId]] = {pairs: [] for pairs in counts}
    shadows: dict[tuple[int, int], tuple[list[TargetId], dict[frozenset[tuple[str, int]], int]]] = {}
    named = {parse_target_id(text).processor for pairs in counts for text, _ in pairs}
    processors = {one for name in named for one in _members(name) or (name,)}
    for agent in (one for name in sorted(processors) for one in configurations(TargetId(name))):
        # CLR and the loader ask for the GPU's own target ids, then for those of its generic target.
        generic = next((one for one in table().generics if agent.processor in _members(one)), None)
        parts = (*_parts_of(agent), *(_parts_of(TargetId(generic, agent.features)) if generic else ()))
        valid = [
            (found.order, parts.index(found.target) if found.target else 0, number)
            for number, (found, _) in enumerate(archives)
            if found.target is None or found.target in parts
        ]
        tried = [
            (part, number)
            for part in parts
            for _, _, number in sorted(valid)
            if part in archives[number][1].architectures
        ]
        if not effort.take(len(archives) + len(tried) * len(counts)):
            return {}, ()
        for pairs, count in counts.items():
            having = next((one for one in tried if one in pairs), None)
            if having is not None and having == tried[0]:
                served[pairs].append(agent)
            elif having is not None:
                agents, lost = shadows.setdefault((tried[0][1], having[1]), ([], {}))
                agents += [agent] if agent not in agents else []
                lost[pairs] = count
    if not shadows:
        return {}, ()
    return {pairs: _in_order(agents) for pairs, agents in served.items()}, tuple(
        Shadow(archives[before][0].path, archives[after][0].path, tuple(agents), sum(lost.values()))
        for (before, after), (agents, lost) in shadows.items()
    )


def read_archive(path: str, effort: Effort | None = None) -> KpackArchive:
    """Read an archive on disk; one that cannot be opened is returned with the problem."""
    try:
        with FileSource(path) as source:
            return parse_archive(source, path, effort)
    except OSError as error:
        return _unreadable(path, f"cannot be read: {error.strerror}")
