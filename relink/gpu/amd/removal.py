"""Taking code for other GPUs out of bundles, in their place.

Of a raw bundle the rows go out of the table, the offsets of the others stay, and the payloads become zeros. HIP hands comgr the
bytes from the wrapper's pointer on and takes offsets from there (clr, hip_fatbin.cpp), so nothing has to move. A compressed
bundle (CCOB) is inflated, treated alike, and compressed again into its old place: clang's OffloadBundler.cpp has the header,
whose size and hash change. An entry stays where one of the GPUs might run it, and where relink does not know what it is.
SPIR-V, which comgr compiles for any GPU on first use, goes only where that is asked for and no GPU needs it.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

from msgspec.structs import replace

from relink.elf.source import BufferSource, ByteSource
from relink.gpu.amd.bundle import (
    RAW_MAGIC,
    Budget,
    Bundle,
    BundleEntry,
    CompressedHeader,
    find_end_problem,
    parse_bundle,
    parse_header,
)
from relink.gpu.amd.device_code import DeviceCode, read_device_code
from relink.gpu.amd.side_files import find_named_targets
from relink.gpu.amd.target_id import HIP_KINDS, SPIRV, CodeTarget, match, table
from relink.gpu.coverage import TargetId
from relink.gpu.removal import CodeRemoval, ReplacedSource, Replacement, hash_range

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Bytes that a compressed bundle may inflate to; the largest real ones have a tenth.
_MAX_INFLATED: Final = 512 << 20
# Of a file: each compressed bundle is inflated whole.
_MAX_TOTAL: Final = 8 << 30
# Of zstd: 3 % larger than level 12, in half the time; clang uses 20, and the place is there anyway.
_LEVEL: Final = 6
_MAX_ENTRIES: Final = 1024
# Behind the magic, the version and the method: the size of all, the size inflated; the hash follows.
_HEADERS: Final = {2: "<II", 3: "<QQ"}
_PIECE: Final = 1 << 20
_MOST_THREADS: Final = 4


Agents: TypeAlias = tuple[tuple[TargetId, ...], ...]
"""For each GPU what it may be."""


def list_agents(gpus: Collection[TargetId]) -> Agents:
    """Return for each GPU what it may be: itself, or one of the members of a generic target."""
    generics = table().generics
    return tuple(
        tuple(TargetId(name, gpu.features) for name in generics[gpu.processor].members)
        if gpu.processor in generics
        else (gpu,)
        for gpu in gpus
    )


def _is_run(targets: Iterable[TargetId], gpu: Sequence[TargetId]) -> bool:
    """Whether some code is for a GPU; `gpu`: what it may be."""
    return any(match(map(CodeTarget, targets), agent).served for agent in gpu)


def remove_other_code(
    source: ByteSource, code: DeviceCode, gpus: Collection[TargetId], drop_jit: bool = False
) -> CodeRemoval:
    """Return what takes the code for other GPUs out of a file; nothing where it cannot be seen to be harmless.

    :param code: what the file has.
    :param drop_jit: SPIR-V goes, too, where no GPU needs it.
    """
    if code.form != "elf":
        return CodeRemoval((), code)
    agents, total, meeting = list_agents(gpus), 0, _find_meeting(code.bundles)
    chosen: list[Bundle] = []
    for number, bundle in sorted(enumerate(code.bundles), key=lambda pair: pair[1].offset):
        if number in meeting or len(bundle.entries) > _MAX_ENTRIES:
            continue
        if bundle.container in ("ccob-v2", "ccob-v3"):
            total += bundle.uncompressed_size or 0
        elif bundle.container != "raw":
            continue
        if total <= _MAX_TOTAL:
            chosen.append(bundle)

    def edit(bundle: Bundle) -> tuple[Replacement, ...]:
        if bundle.container != "raw":
            return _compress_again(source, bundle, agents, drop_jit)
        return tuple(
            replace(one, sha256=hash_range(source, one.offset, one.size))
            for one in _edit_table(source, bundle, agents, drop_jit)
        )

    # MD5 and zstd work without the interpreter's lock; each thread has a bundle in memory.
    with ThreadPoolExecutor(min(_MOST_THREADS, len(os.sched_getaffinity(0)))) as pool:
        found = tuple(one for several in pool.map(edit, chosen) for one in several)
    after = read_device_code(ReplacedSource(source, found), code.path) if found else code
    return CodeRemoval(found, after) if _is_harmless(code, after, agents, drop_jit) else CodeRemoval((), code)


def find_changed_entries(source: ByteSource, code: DeviceCode, kept: Mapping[int, str]) -> list[str]:
    """Return what of the code that stayed is not what it was, one sentence each.

    :param kept: the offset of each range with a table → the SHA-256 of its entries, as :class:`Replacement` has it.
    """
    headers = {"raw": len(RAW_MAGIC)}
    bundles = {bundle.offset + headers.get(bundle.container, 0): bundle for bundle in code.bundles}
    wrong = []
    for at, digest in kept.items():
        held, bundle = source, bundles.get(at)
        if bundle is not None and bundle.container != "raw":
            unpacked = _unpack(source, bundle)
            held, bundle = (BufferSource(unpacked[1]), unpacked[2]) if unpacked else (source, None)
        # Entries that cannot be read have no digest.
        if bundle is None or _hash_entries(held, bundle, bundle.entries) != digest:
            wrong.append(f"what --only-gpu left at 0x{at:x} is other code")
    return wrong


def _hash_entries(source: ByteSource, bundle: Bundle, entries: Iterable[BundleEntry]) -> str:
    """Return the SHA-256 (hex) of entries of a raw bundle: their rows, then their bytes in order, each once."""
    order = sorted(entries, key=lambda entry: (entry.offset, entry.size, entry.text))
    rows = "".join(f"{one.text} {one.offset} {one.size}\n" for one in order)
    digest, reached = hashlib.sha256(rows.encode()), 0
    for one in order:
        start, reached = max(one.offset, reached), max(min(one.offset + one.size, bundle.size), reached)
        for at in range(start, reached, _PIECE):
            digest.update(source.read_at(bundle.offset + at, min(_PIECE, reached - at)))
    return digest.hexdigest()


def _find_meeting(bundles: Sequence[Bundle]) -> set[int]:
    """Return the numbers of the bundles that share bytes with another, or in which a wrapper finds what is not read."""
    order = sorted(range(len(bundles)), key=lambda number: bundles[number].offset)
    found: set[int] = set()
    reached, longest = 0, -1
    for number in order:
        bundle = bundles[number]
        if longest >= 0 and bundle.offset < reached:
            found |= {longest, number}
        if bundle.offset + max(bundle.size, 1) > reached:
            reached, longest = bundle.offset + max(bundle.size, 1), number
    return found


def list_other_files(
    members: Iterable[str], kernels: Mapping[str, DeviceCode], gpus: Collection[TargetId]
) -> dict[str, str]:
    """Return the files of kernels and tuning data that are for other GPUs alone → for which.

    A directory without a file for one of the GPUs stays whole.

    :param kernels: the code of files that hold nothing else.
    """
    agents = list_agents(gpus)
    groups: dict[str, dict[str, tuple[TargetId, ...]]] = {}
    for member in members:
        if member in kernels:
            targets = tuple(code.target for bundle in kernels[member].bundles for code in bundle.targets)
            groups.setdefault("", {})[member] = targets
        elif found := find_named_targets(member):
            groups.setdefault(found[0], {})[member] = found[1]
    gone: dict[str, str] = {}
    for files in groups.values():
        other = {
            member: ", ".join(dict.fromkeys(map(str, targets)))
            for member, targets in files.items()
            if targets and not any(_is_run(targets, gpu) for gpu in agents)
        }
        if all(any(_is_run(targets, gpu) for targets in files.values()) for gpu in agents):
            gone |= other
    return gone


def _stays(entry: BundleEntry, agents: Agents, drop_jit: bool) -> bool:
    """Whether a GPU might run an entry, or nobody can say."""
    target, code = entry.target, entry.code
    known = table()
    if target is None or not entry.usable or entry.text.partition("-")[0] not in HIP_KINDS:
        return True
    if target.processor == SPIRV:
        return not drop_jit
    if not (target.processor in known.processors or target.processor in known.generics):
        return True
    if code is not None and (code.target is None or code.target.processor != target.processor):
        return True
    return any(_is_run([target], gpu) for gpu in agents)


def _choose(bundle: Bundle, agents: Agents, drop_jit: bool, start: int, end: int) -> list[int]:
    """Return the numbers of the entries that are taken out.

    :param start: where payloads may begin, behind the table; `end`: where they end.
    """
    compiled = [code for code in bundle.targets if code.target.processor != SPIRV]
    found = [[match(compiled, agent) for agent in gpu] for gpu in agents]
    # Without code for one of the GPUs nobody knows what that one runs: a patched HIP may take a related GPU's. And where a
    # payload lies over the table, a change of the table is one of the payload.
    if not all(any(one.served for one in gpu) for gpu in found) or any(
        entry.size and entry.offset < start for entry in bundle.entries
    ):
        return []
    # Where a GPU has no other code in some setting, it takes SPIR-V.
    drop_jit = drop_jit and all(len(one.served) == one.total for gpu in found for one in gpu)
    order = sorted(range(len(bundle.entries)), key=lambda at: bundle.entries[at].offset)
    reached, chosen = start, []
    for place, number in enumerate(order):
        entry = bundle.entries[number]
        following = (bundle.entries[after] for after in order[place + 1 :])
        limit = next((other.offset for other in following if other.size), end)
        stop = entry.offset + entry.size
        if reached <= entry.offset and stop <= min(limit, end) and not _stays(entry, agents, drop_jit):
            chosen.append(number)
        reached = max(reached, stop if entry.size else 0)
    return chosen


def _edit_table(source: ByteSource, bundle: Bundle, agents: Agents, drop_jit: bool) -> list[Replacement]:
    """Return the ranges of a raw bundle that change, the table's first; without the SHA-256 of what they were."""
    (count,) = struct.unpack("<Q", source.read_at(bundle.offset + len(RAW_MAGIC), 8))
    if count != len(bundle.entries):
        return []
    rows, at = [], bundle.offset + 32
    for _ in range(count):
        length = 24 + struct.unpack("<Q", source.read_at(at + 16, 8))[0]
        rows.append(bytes(source.read_at(at, length)))
        at += length
    chosen = {*_choose(bundle, agents, drop_jit, at - bundle.offset, bundle.size)}
    if not chosen:
        return []
    staying = [number for number in range(count) if number not in chosen]
    content = struct.pack("<Q", len(staying)) + b"".join(rows[number] for number in staying)
    digest = _hash_entries(source, bundle, (bundle.entries[number] for number in staying))
    begin = bundle.offset + len(RAW_MAGIC)
    ranges = [Replacement(begin, at - begin, "", "", content, digest)]
    for number in sorted(chosen, key=lambda number: bundle.entries[number].offset):
        entry = bundle.entries[number]
        ranges.append(Replacement(bundle.offset + entry.offset, entry.size, entry.text, ""))
    return ranges


def _unpack(source: ByteSource, bundle: Bundle) -> tuple[CompressedHeader, bytearray, Bundle] | None:
    """Return what a compressed bundle of version 2 or 3 is inflated; None where it is not just what its header says."""
    blob = bytes(source.read_at(bundle.offset, bundle.size))
    header = parse_header(blob[:32])
    if isinstance(header, str) or header.size != len(blob) or header.uncompressed_size > _MAX_INFLATED:
        return None
    payload = memoryview(blob)[header.header_size :]
    if header.method == "zstd" and find_end_problem(payload, header):
        return None
    data = bytearray()
    for piece in _inflate(payload, header.method):
        data += piece
        if len(data) > header.uncompressed_size:
            return None
    inner = BufferSource(data)
    raw = parse_bundle(inner, 0, len(data), Budget()) if len(data) == header.uncompressed_size else None
    return (header, data, raw) if raw is not None and raw.container == "raw" else None


def _compress_again(
    source: ByteSource, bundle: Bundle, agents: Agents, drop_jit: bool
) -> tuple[Replacement, ...]:
    """Return what takes entries out of a compressed bundle of version 2 or 3, where the result fits into its place."""
    staying = all(_stays(entry, agents, drop_jit) for entry in bundle.entries)
    if staying or not (unpacked := _unpack(source, bundle)):
        return ()
    header, data, raw = unpacked
    ranges = _edit_table(BufferSource(data), raw, agents, drop_jit)
    for one in ranges:
        data[one.offset : one.stop] = one.content.ljust(one.size, b"\0")
    if not ranges:
        return ()
    packed = zstd.compress(data, _LEVEL) if header.method == "zstd" else zlib.compress(data, 9)
    size = header.header_size + len(packed)
    if size > bundle.size or not _inflates_to(packed, header.method, data):
        return ()
    # comgr keeps what it unpacks by this number, the first half of the MD5 (clang, CompressedOffloadBundle::compress).
    digest = hashlib.md5(data, usedforsecurity=False).digest()[:8]
    fields = struct.pack(_HEADERS[header.version], size, len(data)) + digest
    names = ", ".join(one.entry for one in ranges if one.entry)
    before = hash_range(source, bundle.offset, bundle.size)
    content = bytes(source.read_at(bundle.offset, 8)) + fields + packed
    return (Replacement(bundle.offset, bundle.size, names, before, content, ranges[0].kept),)


def _inflate(payload: memoryview | bytes, method: str) -> Iterator[bytes]:
    """Yield what is compressed in pieces, up to where it cannot be read."""
    try:
        if method == "zstd":
            unpacker = zstd.ZstdDecompressor()
            yield unpacker.decompress(payload, _PIECE)
            while not unpacker.eof and not unpacker.needs_input:
                yield unpacker.decompress(b"", _PIECE)
        else:
            inflater = zlib.decompressobj()
            yield inflater.decompress(payload, _PIECE)
            while inflater.unconsumed_tail:
                yield inflater.decompress(inflater.unconsumed_tail, _PIECE)
    except (zstd.ZstdError, zlib.error):
        return


def _inflates_to(payload: bytes, method: str, data: bytearray) -> bool:
    position, whole = 0, memoryview(data)
    for piece in _inflate(payload, method):
        if piece != whole[position : position + len(piece)]:
            return False
        position += len(piece)
    return position == len(data)


def _is_harmless(code: DeviceCode, after: DeviceCode, agents: Agents, drop_jit: bool) -> bool:
    """Whether a file, read again, has the same bundles, and for each GPU the same code in each, at the same places."""
    if len(after.bundles) != len(code.bundles) or len(after.problems) > len(code.problems):
        return False
    return all(
        (old.offset, old.container) == (new.offset, new.container)
        and set(new.entries) <= {entry._replace(code=None) for entry in old.entries} | set(old.entries)
        and all(
            _list_code(old, agent, drop_jit) == _list_code(new, agent, drop_jit)
            and (not drop_jit or match(old.targets, agent).served == match(new.targets, agent).served)
            for gpu in agents
            for agent in gpu
        )
        for old, new in zip(code.bundles, after.bundles, strict=True)
    )


def _list_code(bundle: Bundle, agent: TargetId, drop_jit: bool) -> list[tuple[str, int, int]]:
    """Return the entries that a GPU might run, with SPIR-V or without."""
    staying = (entry for entry in bundle.entries if _stays(entry, ((agent,),), drop_jit))
    return [(entry.text, entry.offset, entry.size) for entry in staying]
