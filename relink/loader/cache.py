"""``/etc/ld.so.cache`` as ldconfig writes it and ld.so reads it (glibc elf/cache.c, elf/dl-cache.c,
sysdeps/generic/dl-cache.h).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from relink.system.errors import TargetError

_OLD_MAGIC = b"ld.so-1.7.0\0"
_NEW_MAGIC = b"glibc-ld.so.cache1.1"
_EXTENSION_MAGIC = 0xEAA42174
_TAG_GLIBC_HWCAPS = 1
# DL_CACHE_HWCAP_EXTENSION: the low half is an index into the glibc-hwcaps names.
_HWCAP_EXTENSION = 1 << 62
# Bytes of a string with its NUL: PATH_MAX of Linux.
_MAX_STRING = 4096
_ISA_LEVEL_MASK = ((1 << 10) - 1) << 32

# sysdeps/generic/ldconfig.h: FLAG_ELF_LIBC6 (3) with the architecture's own flag, by (e_machine, class).
_FLAGS = {
    (62, 64): 0x0303,
    (3, 32): 0x0003,
    (183, 64): 0x0A03,
    (62, 32): 0x0803,
    (243, 64): 0x1003,
    (258, 64): 0x1203,
}


class CacheEntry(msgspec.Struct, frozen=True):
    """One line of ``ldconfig -p``: a soname, the path it stands for, and for which processors it is.

    :ivar hwcaps: the glibc-hwcaps subdirectory the entry came from (``x86-64-v3``), or None.
    :ivar legacy_hwcap: the bit mask of pre-2.37 hardware capabilities; 0 for an ordinary entry.
    """

    name: str
    path: str
    flags: int
    hwcaps: str | None = None
    legacy_hwcap: int = 0


class LoaderCache(msgspec.Struct, frozen=True):
    """The entries by soname, each list in the order of the file.

    :ivar by_number: the same for the names in which a number is written with leading zeros, by the name without them.
    """

    entries: Mapping[str, tuple[CacheEntry, ...]]
    by_number: Mapping[str, tuple[CacheEntry, ...]] = msgspec.field(default_factory=dict)


def parse_cache(data: bytes) -> LoaderCache:
    """Read a cache in the new format, or in the old one with the new one appended.

    :raises TargetError: it is neither, or its tables point outside of it.
    """
    try:
        start = 0
        if data.startswith(_OLD_MAGIC):
            (count,) = struct.unpack_from("<I", data, 12)
            start = -(-(16 + count * 12) // 8) * 8  # ALIGN_CACHE
        if data[start : start + len(_NEW_MAGIC)] != _NEW_MAGIC:
            raise TargetError(
                "ld.so.cache is in a format that relink does not read; run ldconfig to write it anew"
            )
        return _parse(data[start:])
    except (struct.error, ValueError, IndexError) as error:
        raise TargetError(f"ld.so.cache is damaged ({error}); run ldconfig to write it anew") from error


def _parse(data: bytes) -> LoaderCache:
    count, _strings, _flags, extension = struct.unpack_from("<IIB3xI", data, 20)
    names = _hwcaps_names(data, extension) if extension else ()
    table = struct.Struct("<iIIIQ")
    if 48 + count * table.size > len(data):
        raise ValueError(f"{count} entries do not fit")
    entries: dict[str, list[CacheEntry]] = {}
    # Characters of all strings together: ldconfig lets strings share their ends, and no more.
    left = 2 * len(data)
    for flags, key, value, _osversion, hwcap in table.iter_unpack(data[48 : 48 + count * table.size]):
        subdirectory = None
        legacy = hwcap
        # dl_cache_hwcap_extension: in the high half only the level of the processor may stand beside this bit.
        if hwcap & _HWCAP_EXTENSION and not (hwcap >> 32) & ~((_HWCAP_EXTENSION | _ISA_LEVEL_MASK) >> 32):
            subdirectory = names[hwcap & 0xFFFFFFFF]
            legacy = 0
        name = _string(data, key)
        path = _string(data, value)
        left -= len(name) + len(path)
        if left < 0:
            raise ValueError("its strings overlap")
        entries.setdefault(name, []).append(CacheEntry(name, path, flags, subdirectory, legacy))
    by_number: dict[str, list[CacheEntry]] = {}
    for name, listed in entries.items():
        if _ZEROS.search(name):
            by_number.setdefault(_plain(name), []).extend(listed)
    return LoaderCache(_frozen(entries), _frozen(by_number))


_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")


def _plain(name: str) -> str:
    """Drop leading zeros: names are compared with their numbers by value (_dl_cache_libcmp)."""
    return _ZEROS.sub("", name)


def _frozen(lists: dict[str, list[CacheEntry]]) -> Mapping[str, tuple[CacheEntry, ...]]:
    return MappingProxyType({name: tuple(entries) for name, entries in lists.items()})


def _hwcaps_names(data: bytes, extension: int) -> tuple[str, ...]:
    magic, count = struct.unpack_from("<II", data, extension)
    if magic != _EXTENSION_MAGIC:
        raise ValueError("no extension magic")
    for index in range(count):
        tag, _flags, offset, size = struct.unpack_from("<IIII", data, extension + 8 + index * 16)
        if tag == _TAG_GLIBC_HWCAPS:
            return tuple(
                _string(data, at) for (at,) in struct.iter_unpack("<I", data[offset : offset + size])
            )
    return ()


def _string(data: bytes, offset: int) -> str:
    end = data.find(b"\0", offset, offset + _MAX_STRING)
    if end < 0:
        raise ValueError(f"the string at {offset} does not end")
    return data[offset:end].decode("utf-8", "surrogateescape")


def lookup(
    cache: LoaderCache, name: str, *, machine: int, elf_class: int, hwcaps: tuple[str, ...]
) -> str | None:
    """Return the path that ld.so takes for `name`, or None (glibc elf/dl-cache.c, search_cache).

    :param hwcaps: the active glibc-hwcaps subdirectory names, best first. Entries for other processors are passed over;
        of the rest the one with the best subdirectory wins, an ordinary entry last.
    """
    wanted = _FLAGS.get((machine, elf_class))
    best: tuple[int, str] | None = None
    plain = _plain(name)
    for entry in (*cache.entries.get(plain, ()), *cache.by_number.get(plain, ())):
        # _dl_cache_check_flags takes 1 (FLAG_ELF) on every machine; glibc 2.37 has given up the legacy capabilities.
        if entry.flags not in (wanted, 1) or entry.legacy_hwcap:
            continue
        if entry.hwcaps is not None and entry.hwcaps not in hwcaps:
            continue
        rank = len(hwcaps) if entry.hwcaps is None else hwcaps.index(entry.hwcaps)
        if best is None or rank < best[0]:
            best = (rank, entry.path)
    return best[1] if best else None
