"""kpack: device code moved out of a library into ``.kpack`` archives, one an architecture.

The library keeps wrappers with the magic HIPK that point to a MessagePack ``{kernel_name, kpack_search_paths}``
(section ``.rocm_kpack_ref``); paths are relative to the library and may hold ``@GFXARCH@``. In an archive the code for
wrapper *n* is under ``kernel_name#n``. Layout: TheRock shared/kpack (kpack.cpp, kpack_transform.py).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from relink.elf.source import ByteSource, FileSource
from relink.errors import UsageError
from relink.gpu import msgpack
from relink.gpu.bundle import Bundle, BundleEntry
from relink.gpu.target_id import TargetId, parse_target_id
from relink.system_errors import raise_trouble

__all__ = [
    "ARCHIVE_MAGIC",
    "KpackArchive",
    "KpackReference",
    "find_archives",
    "parse_archive",
    "parse_reference",
    "read_archives",
    "resolve",
]

ARCHIVE_MAGIC = b"KPAK"
PLACEHOLDER = "@GFXARCH@"
_MAX_TOC = 64 << 20


@dataclass(frozen=True, slots=True)
class KpackReference:
    """What a library says of its archives. `wrappers` are the numbers of its HIPK wrappers."""

    kernel_name: str
    search_paths: tuple[str, ...]
    wrappers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KpackArchive:
    """The table of contents of one archive: key (``lib/libfoo.so#0``) → target ids."""

    path: str
    architectures: tuple[str, ...]
    contents: dict[str, tuple[TargetId, ...]]
    problems: tuple[str, ...] = ()


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


def parse_archive(source: ByteSource, path: str) -> KpackArchive:
    """Read the table of contents of a ``.kpack`` file; what is wrong with it is in `problems`."""
    head = bytes(source.read_at(0, 16))
    if len(head) < 16 or head[:4] != ARCHIVE_MAGIC:
        return KpackArchive(path, (), {}, ("no kpack archive (KPAK expected)",))
    version, place = struct.unpack_from("<IQ", head, 4)
    if not 16 <= place < source.size:
        return KpackArchive(path, (), {}, (f"kpack contents at 0x{place:x} lie outside of the file",))
    problems: list[str] = []
    if source.size - place > _MAX_TOC:
        problems.append(f"kpack contents of {source.size - place} bytes: only {_MAX_TOC} are read")
    try:
        value, _ = msgpack.unpack(bytes(source.read_at(place, min(source.size - place, _MAX_TOC))))
    except msgpack.MsgpackError as error:
        return KpackArchive(path, (), {}, (*problems, f"kpack version {version}: {error}"))
    table = value if isinstance(value, dict) else {}
    architectures, toc = table.get("gfx_arches"), table.get("toc")
    contents: dict[str, tuple[TargetId, ...]] = {}
    for key, kernels in toc.items() if isinstance(toc, dict) else ():
        if not isinstance(kernels, dict):
            problems.append(f"kpack entry {str(key)[:120]!r} is no table")
            continue
        targets = []
        for name in kernels:
            try:
                targets.append(parse_target_id(str(name)))
            except UsageError as error:
                problems.append(str(error))
        contents[str(key)] = tuple(targets)
    if not isinstance(toc, dict):
        problems.append(f"kpack version {version}: no table of contents in it")
    names = tuple(str(name) for name in architectures) if isinstance(architectures, list) else ()
    return KpackArchive(path, names, contents, tuple(problems[:100]))


def find_archives(reference: KpackReference, directory: str) -> tuple[str, ...]:
    """Return the files that the search paths name, seen from the library's `directory`; ``@GFXARCH@`` matches any."""
    found: dict[str, None] = {}
    for pattern in reference.search_paths:
        path = os.path.join(directory, pattern)
        folder, name = os.path.split(path)
        before, mark, after = name.partition(PLACEHOLDER)
        try:
            names = sorted(os.listdir(folder)) if mark else [name]
        except OSError as error:
            raise_trouble(error, folder)
            continue
        for candidate in names:
            inner = len(candidate) > len(before) + len(after)
            if candidate == name or (
                mark and inner and candidate.startswith(before) and candidate.endswith(after)
            ):
                full = os.path.join(folder, candidate)
                if os.path.isfile(full):
                    found[full] = None
    return tuple(found)


def resolve(reference: KpackReference, archives: Sequence[KpackArchive]) -> tuple[Bundle, ...]:
    """Return one bundle a wrapper, with the targets that the archives hold for it."""
    bundles = []
    for number in reference.wrappers:
        key = f"{reference.kernel_name}#{number}"
        targets = {t for archive in archives for t in archive.contents.get(key, ())}
        entries = tuple(BundleEntry(f"kpack {t}", t, 0, 1, usable=True) for t in sorted(targets, key=str))
        bundles.append(Bundle(0, None, 0, "kpack", entries))
    return tuple(bundles)


def read_archives(paths: Sequence[str]) -> tuple[KpackArchive, ...]:
    """Read archives from disk; one that cannot be opened is returned with the problem."""
    archives = []
    for path in paths:
        try:
            with FileSource(path) as source:
                archives.append(parse_archive(source, path))
        except OSError as error:
            raise_trouble(error, path)
            archives.append(KpackArchive(path, (), {}, (f"cannot be read: {error.strerror}",)))
    return tuple(archives)
