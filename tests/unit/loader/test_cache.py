"""ld.so.cache: caches written here, this system's own against ldconfig -p, and damaged ones."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relink.loader.cache import lookup, parse_cache
from relink.system.errors import TargetError
from tests.support.amount import amount

Entry = tuple[str, str, int, int]  # soname, path, flags, hwcap
X86_64, I386, ELF, AARCH64 = 0x0303, 0x0003, 0x0001, 0x0A03
EXTENSION = 1 << 62
HOST_CACHE = Path("/etc/ld.so.cache")


def build_cache(entries: Sequence[Entry], hwcaps: Sequence[str] = (), *, old: bool = False) -> bytes:
    """Write a cache as ldconfig does (sysdeps/generic/dl-cache.h); with `old`, behind one of the old format."""
    strings = bytearray()
    base = 48 + 24 * len(entries)

    def put(text: str) -> int:
        strings.extend(text.encode() + b"\0")
        return base + len(strings) - len(text.encode()) - 1

    rows = b"".join(
        struct.pack("<iIIIQ", flags, put(name), put(path), 0, hwcap) for name, path, flags, hwcap in entries
    )
    offsets = [put(name) for name in hwcaps]
    extension = base + len(strings) + -(base + len(strings)) % 4
    body = bytearray(rows + strings)
    body.extend(bytes(extension - 48 - len(body)))
    if hwcaps:
        listed = extension + 8 + 16
        body += struct.pack("<IIIIII", 0xEAA42174, 1, 1, 0, listed, 4 * len(offsets))
        body += struct.pack(f"<{len(offsets)}I", *offsets)
    head = b"glibc-ld.so.cache1.1" + struct.pack(
        "<IIB3xI12x", len(entries), len(strings), 2, extension if hwcaps else 0
    )
    data = bytes(head + body)
    if old:
        first = b"ld.so-1.7.0\0" + struct.pack("<I", 1) + bytes(12)
        data = first + bytes(-len(first) % 8) + data
    return data


def find(
    data: bytes,
    name: str,
    *,
    machine: int = 62,
    elf_class: int = 64,
    hwcaps: tuple[str, ...] = ("x86-64-v3", "x86-64-v2"),
) -> str | None:
    return lookup(parse_cache(data), name, machine=machine, elf_class=elf_class, hwcaps=hwcaps)


@pytest.mark.parametrize("old", [False, True])
def test_entry_of_the_right_machine(old: bool) -> None:
    data = build_cache(
        [("liba.so.1", "/32/liba.so.1", I386, 0), ("liba.so.1", "/64/liba.so.1", X86_64, 0)], old=old
    )
    assert find(data, "liba.so.1") == "/64/liba.so.1"
    assert find(data, "liba.so.1", machine=3, elf_class=32) == "/32/liba.so.1"
    assert find(data, "liba.so.1", machine=183) is None
    assert find(data, "liba.so") is None


def test_first_of_equals() -> None:
    data = build_cache([("liba.so.1", f"/{place}/liba.so.1", X86_64, 0) for place in "xy"])
    assert find(data, "liba.so.1") == "/x/liba.so.1"


def test_best_active_hwcaps_win() -> None:
    names = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
    rows = [("liba.so.1", f"/{name}", X86_64, EXTENSION | index) for index, name in enumerate(names)]
    data = build_cache([*rows, ("liba.so.1", "/plain", X86_64, 0)], names)
    assert find(data, "liba.so.1") == "/x86-64-v3"
    assert find(data, "liba.so.1", hwcaps=("x86-64-v2",)) == "/x86-64-v2"
    assert find(data, "liba.so.1", hwcaps=()) == "/plain"
    assert {entry.hwcaps for entry in parse_cache(data).entries["liba.so.1"]} == {*names, None}


def test_legacy_hwcaps_are_left_out() -> None:
    data = build_cache([("liba.so.1", "/haswell", X86_64, 1 << 50), ("liba.so.1", "/plain", X86_64, 0)])
    assert find(data, "liba.so.1") == "/plain"


def test_numbers_are_compared_as_numbers() -> None:
    """_dl_cache_libcmp (elf/dl-cache.c): digits count by value, so 01 is 1, but 10 is not 1."""
    data = build_cache([("liba-2.04.so.1", "/a", X86_64, 0), ("libb.so.10", "/b", X86_64, 0)])
    assert find(data, "liba-2.4.so.01") == "/a"
    assert find(data, "libb.so.10") == "/b"
    assert find(data, "libb.so.1") is None
    assert find(data, "liba-.04.so.1") is None


@pytest.mark.skipif(not HOST_CACHE.exists(), reason="this system has no ld.so.cache")
def test_this_system() -> None:
    ldconfig = shutil.which("ldconfig") or shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if ldconfig is None:
        pytest.skip("no ldconfig here")
    run = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True)
    listed = re.findall(r"^\t(\S+) \(.*\) => (\S+)$", run.stdout, re.MULTILINE)
    parsed = parse_cache(HOST_CACHE.read_bytes())
    assert len(listed) > 0
    assert sorted(listed) == sorted(
        (entry.name, entry.path) for entries in parsed.entries.values() for entry in entries
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"ld.so-1.7.0\0",
        b"ld.so-1.7.0\0\xff\xff\xff\xff",
        b"glibc-ld.so.cache1.1",
        b"glibc-ld.so.cache1.2" + bytes(100),
        build_cache([("liba.so", "/liba.so", X86_64, 0)])[:60],
        build_cache([("liba.so", "/liba.so", X86_64, 0)])[:-8],
        b"#!/bin/sh\n" * 20,
    ],
)
def test_damage_is_reported(data: bytes) -> None:
    with pytest.raises(TargetError, match=r"ld\.so\.cache .*ldconfig"):
        parse_cache(data)


SAMPLE = build_cache(
    [
        ("liba.so.1", "/best/liba.so.1", X86_64, EXTENSION),
        ("liba.so.1", "/liba.so.1", X86_64, 0),
        ("libb.so.2", "/libb.so.2", ELF, 0),
    ],
    ("x86-64-v3",),
    old=True,
)


@settings(max_examples=amount(500), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=8),
    st.integers(0, len(SAMPLE)),
)
def test_flipped_bytes_never_escape(flips: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(SAMPLE)
    for place, value in flips:
        data[place] = value
    for damaged in (bytes(data), bytes(data[:cut])):
        try:
            found = parse_cache(damaged)
        except TargetError:
            continue
        lookup(found, "liba.so.1", machine=62, elf_class=64, hwcaps=("x86-64-v3",))
