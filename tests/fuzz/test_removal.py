"""Damaged bundles and CCOB lose code for other GPUs: nothing outside of them changes, and what a kept GPU has stays.

400 files in `make test-all`, a tenth of them in `make test`, RELINK_FUZZ_REMOVAL (10,000) in `make fuzz`. A file's number gives
it again.
"""

from __future__ import annotations

import os
import random
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

from relink.elf.source import BufferSource
from relink.gpu.amd.bundle import Budget, Bundle, BundleEntry, parse_bundle
from relink.gpu.amd.device_code import DeviceCode, read_device_code
from relink.gpu.amd.removal import find_changed_entries, remove_other_code
from relink.gpu.amd.target_id import SPIRV, CodeTarget, match, parse_target_id
from relink.gpu.coverage import TargetId
from relink.gpu.removal import cut_ranges, replace_ranges
from tests.fuzz.conftest import COUNTED, SEED
from tests.support.amount import amount
from tests.unit.gpu.amd.build import ccob, code_object, hip, library, raw

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ORDINARY = amount(400)
LONG = int(os.environ.get("RELINK_FUZZ_REMOVAL", "10000"))
BATCH = 1_000
TARGETS = (
    *("gfx90a", "gfx90a:xnack+", "gfx90a:xnack-", "gfx90a:sramecc+:xnack-", "gfx942", "gfx1030", "gfx1031"),
    *("gfx1100", "gfx1101", "gfx11-generic", "gfx10-3-generic", "gfx9-4-generic"),
)
OTHERS = (
    "hipv4-spirv64-amd-amdhsa--amdgcnspirv",
    "openmp-amdgcn-amd-amdhsa--gfx90a",
    hip("gfx9999"),
    hip("gfx1030", "hip"),
)

Property = Callable[[str, object], None]


def bundle_of(chance: random.Random) -> bytes:
    """A raw bundle for some targets, damaged in its table or anywhere, or whole."""
    names = [hip(name) for name in chance.sample(TARGETS, chance.randint(1, 6))]
    names += [name for name in OTHERS if chance.random() < 0.2]
    chance.shuffle(names)
    entries = {}
    for name in names:
        target = name.partition("amdhsa--")[2]
        head = code_object(target if target in TARGETS else "gfx90a")
        entries[name] = head + chance.randbytes(chance.choice((0, 300, 3000)))
    data = bytearray(raw(entries, align=chance.choice((1, 256, 4096)), host=chance.random() < 0.9))
    for _ in range(chance.choice((0, 0, 1, 1, 2, 4))):
        place = chance.randrange(len(data) if chance.random() < 0.3 else min(len(data), 700))
        data[place] = chance.choice((0, 1, 8, 255, chance.randrange(256)))
    return bytes(data)


def file_of(chance: random.Random) -> bytes:
    """A library with one to three bundles, compressed or not, whose wrappers may lead elsewhere."""
    bundles = []
    for _ in range(chance.randint(1, 3)):
        one = bundle_of(chance)
        if chance.random() < 0.5:
            packed = bytearray(ccob(one, chance.choice((1, 2, 2, 3, 3)), chance.choice(("zlib", "zstd"))))
            if chance.random() < 0.3:
                place = chance.randrange(len(packed) if chance.random() < 0.5 else 40)
                packed[place] = chance.randrange(256)
            packed += bytes(chance.choice((0, 0, 0, 5)))
            one = bytes(packed)
        bundles.append(one)
    if chance.random() < 0.1:
        # A wrapper finds a bundle in a payload of another one.
        inside = bundle_of(chance)
        entries = {hip("gfx90a"): inside} | {
            hip(name): code_object(name) for name in chance.sample(TARGETS[3:], 2)
        }
        bundles[0] = raw(entries)
        return library(bundles, pointers=[0, bundles[0].index(inside)])
    return library(bundles, pointers=[0, chance.randrange(9000)] if chance.random() < 0.1 else None)


def unpack(packed: bytes) -> bytes:
    """What comes out of a CCOB by its header (clang's OffloadBundler.cpp); nothing where it cannot be read."""
    version, method = struct.unpack_from("<HH", packed, 4)
    payload = packed[{1: 20, 2: 24, 3: 32}[version] :]
    try:
        return (
            zstd.ZstdDecompressor().decompress(payload)
            if method
            else zlib.decompressobj().decompress(payload)
        )
    except (zstd.ZstdError, zlib.error):
        return b""


def rows(bundle: Bundle, gpu: TargetId, drop_jit: bool) -> list[BundleEntry]:
    """The entries that a GPU might run, without relink's own choice of what stays."""
    usable = [entry for entry in bundle.entries if entry.usable and entry.target]
    return [
        entry._replace(code=None)
        for entry in usable
        if entry.target and match([CodeTarget(entry.target)], gpu).served
        and not (drop_jit and entry.target.processor == SPIRV)
    ]  # fmt: skip


def contents(data: bytes, bundle: Bundle, gpu: TargetId, drop_jit: bool) -> list[tuple[str, int, bytes]]:
    """The code that a GPU might run in one bundle: id, offset and bytes; of a CCOB those that come out of it."""
    inside: Bundle | None = bundle
    held = data[bundle.offset :]
    if bundle.container.startswith("ccob"):
        held = unpack(data[bundle.offset : bundle.offset + bundle.size])
        inside = parse_bundle(BufferSource(held), 0, len(held), Budget())
    if inside is None:
        return []
    found = rows(inside, gpu, drop_jit)
    return [(one.text, one.offset, held[one.offset : one.offset + one.size]) for one in found]


def served(code: DeviceCode, gpu: TargetId) -> list[Sequence[TargetId]]:
    return [match(bundle.targets, gpu).served for bundle in code.bundles]


def shrink(number: int, counts: Counter[str]) -> None:
    """Take code out of one file, and hold what is left against what was there."""
    chance = random.Random(number)
    data = file_of(chance)
    gpus = [parse_target_id(name) for name in chance.sample(TARGETS[:9], chance.choice((1, 1, 2)))]
    drop_jit = chance.random() < 0.4
    before = read_device_code(BufferSource(data), "a.so")
    made = remove_other_code(BufferSource(data), before, gpus, drop_jit).ranges
    after_data = b"".join(replace_ranges([memoryview(data)], made, "a.so"))
    after = read_device_code(BufferSource(after_data), "a.so")
    counts["files"] += 1
    counts["files that shrink"] += bool(made)
    assert len(after_data) == len(data)
    outside = cut_ranges([range(len(data))], made)
    assert all(data[part.start : part.stop] == after_data[part.start : part.stop] for part in outside)
    for one in made:
        assert any(
            bundle.offset <= one.offset and one.stop <= bundle.offset + bundle.size
            for bundle in before.bundles
        )
    assert (
        find_changed_entries(
            BufferSource(after_data), after, {one.offset: one.kept for one in made if one.kept}
        )
        == []
    )
    assert len(after.bundles) == len(before.bundles)
    for gpu in gpus:
        assert served(after, gpu) == served(before, gpu)
        for old, new in zip(before.bundles, after.bundles, strict=True):
            assert (old.offset, old.container) == (new.offset, new.container)
            kept = contents(data, old, gpu, drop_jit)
            assert contents(after_data, new, gpu, drop_jit) == kept
            counts["entries of kept GPUs, equal in every byte"] += len(kept)


def shrink_many(first: int, count: int, record_property: Property) -> None:
    wrong, counts = [], Counter[str]()
    for number in range(first, first + count):
        try:
            shrink(number, counts)
        except Exception as error:  # noqa: BLE001 - all are reported at once, each with its number
            wrong.append((number, f"{type(error).__name__}: {str(error)[:200]}"))
    assert wrong == []
    assert counts["files that shrink"] > count / 10
    for name, value in counts.items():
        record_property(f"{COUNTED}code for other GPUs: {name}", value)


def test_some(record_property: Property) -> None:
    shrink_many(0, ORDINARY, record_property)


def batches() -> Iterator[tuple[int, int]]:
    for first in range(0, LONG, BATCH):
        yield ORDINARY + first, min(BATCH, LONG - first)


@pytest.mark.fuzz
@pytest.mark.parametrize(("first", "count"), list(batches()))
def test_many(first: int, count: int, record_property: Property) -> None:
    shrink_many(SEED + first, count, record_property)
