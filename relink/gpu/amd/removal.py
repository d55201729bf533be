"""Taking code for other GPUs out of bundles, in their place.

Of a raw bundle the rows go out of the table, the offsets of the others stay, and the payloads become zeros. HIP hands comgr the
bytes from the wrapper's pointer on and takes offsets from there (clr, hip_fatbin.cpp), so nothing has to move. A compressed
bundle (CCOB) is inflated, treated alike, and compressed again into its old place: clang's OffloadBundler.cpp has the header,
whose size and hash change. An entry stays where one of the GPUs might run it, and where relink does not know what it is.
"""

from __future__ import annotations

import hashlib
import struct
import sys
import zlib
from collections.abc import Collection, Sequence
from typing import Final

from relink.elf.source import BufferSource, ByteSource
from relink.gpu.amd.bundle import (
    CCOB_MAGIC,
    RAW_MAGIC,
    Budget,
    Bundle,
    BundleEntry,
    parse_bundle,
    parse_header,
)
from relink.gpu.amd.device_code import DeviceCode, read_device_code
from relink.gpu.amd.isa_table import table
from relink.gpu.amd.target_id import HIP_KINDS, SPIRV, CodeTarget, match
from relink.gpu.coverage import TargetId
from relink.gpu.removal import ReplacedSource, Replacement, hash_range

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Bytes that a compressed bundle may inflate to; the largest real ones have a tenth.
_MAX_INFLATED: Final = 512 << 20
# Of a file: each compressed bundle is inflated whole.
_MAX_TOTAL: Final = 8 << 30
# Of zstd, twice as small as the default for code; clang itself uses 20, which takes ten times as long.
_LEVEL: Final = 12
_MAX_ENTRIES: Final = 1024
# Behind the magic, the version and the method: the size of all, the size inflated, the hash.
_HEADERS: Final = {2: "<IIQ", 3: "<QQQ"}


def list_agents(gpus: Collection[TargetId]) -> tuple[TargetId, ...]:
    """Return the GPUs, with the members of a generic target in its place."""
    generics = table().generics
    members = (
        [TargetId(name, gpu.features) for name in generics[gpu.processor].members]
        if gpu.processor in generics
        else [gpu]
        for gpu in gpus
    )
    return tuple(dict.fromkeys(member for several in members for member in several))


def remove_other_code(
    source: ByteSource, code: DeviceCode, gpus: Collection[TargetId]
) -> tuple[Replacement, ...]:
    """Return what takes the code for other GPUs out of a file, in order; nothing where it cannot be seen to be harmless.

    :param code: what the file has.
    """
    if code.form != "elf":
        return ()
    agents, last, total = list_agents(gpus), 0, 0
    found: list[Replacement] = []
    for bundle in code.bundles:
        if bundle.offset < last or len(bundle.entries) > _MAX_ENTRIES:
            continue
        made: tuple[Replacement, ...] = ()
        if bundle.container == "raw":
            made = _edit_table(source, bundle, agents)
        elif bundle.container in ("ccob-v2", "ccob-v3") and total < _MAX_TOTAL:
            total += bundle.uncompressed_size or 0
            made = _compress_again(source, bundle, agents)
        if made:
            found += made
            last = made[-1].stop
    if found and not _is_harmless(source, code, agents, found):
        return ()
    return tuple(found)


def _stays(entry: BundleEntry, agents: Sequence[TargetId]) -> bool:
    """Whether a GPU might run an entry, or nobody can say."""
    target, code = entry.target, entry.code
    known = table()
    if target is None or not entry.usable or entry.text.partition("-")[0] not in HIP_KINDS:
        return True
    if target.processor == SPIRV or not (
        target.processor in known.processors or target.processor in known.generics
    ):
        return True
    if code is not None and (code.target is None or code.target.processor != target.processor):
        return True
    return any(match([CodeTarget(target)], agent).served for agent in agents)


def _choose(bundle: Bundle, agents: Sequence[TargetId], start: int, end: int) -> list[int]:
    """Return the numbers of the entries that are taken out.

    :param start: where payloads may begin, behind the table; `end`: where they end.
    """
    # Of code that serves none of the GPUs nobody knows why it is there: a patched HIP may take a related GPU's.
    if not any(match(bundle.targets, agent).served for agent in agents):
        return []
    order = sorted(range(len(bundle.entries)), key=lambda at: bundle.entries[at].offset)
    reached, chosen = start, []
    for place, number in enumerate(order):
        entry = bundle.entries[number]
        following = (bundle.entries[after] for after in order[place + 1 :])
        limit = next((other.offset for other in following if other.size), end)
        stop = entry.offset + entry.size
        if reached <= entry.offset and stop <= min(limit, end) and not _stays(entry, agents):
            chosen.append(number)
        reached = max(reached, stop if entry.size else 0)
    return chosen


def _edit_table(source: ByteSource, bundle: Bundle, agents: Sequence[TargetId]) -> tuple[Replacement, ...]:
    """Return what takes entries out of a raw bundle."""
    (count,) = struct.unpack("<Q", source.read_at(bundle.offset + len(RAW_MAGIC), 8))
    if count != len(bundle.entries):
        return ()
    rows, at = [], bundle.offset + 32
    for _ in range(count):
        length = 24 + struct.unpack("<Q", source.read_at(at + 16, 8))[0]
        rows.append(bytes(source.read_at(at, length)))
        at += length
    chosen = _choose(bundle, agents, at - bundle.offset, bundle.size)
    if not chosen:
        return ()
    kept = [row for number, row in enumerate(rows) if number not in set(chosen)]
    begin = bundle.offset + len(RAW_MAGIC)
    parts = [(begin, at - begin, "", struct.pack("<Q", len(kept)) + b"".join(kept))]
    for number in sorted(chosen, key=lambda number: bundle.entries[number].offset):
        entry = bundle.entries[number]
        parts.append((bundle.offset + entry.offset, entry.size, entry.text, b""))
    return tuple(
        Replacement(offset, size, text, hash_range(source, offset, size), content)
        for offset, size, text, content in parts
    )


def _compress_again(
    source: ByteSource, bundle: Bundle, agents: Sequence[TargetId]
) -> tuple[Replacement, ...]:
    """Return what takes entries out of a compressed bundle of version 2 or 3, where the result fits into its place."""
    if all(_stays(entry, agents) for entry in bundle.entries):
        return ()
    blob = bytes(source.read_at(bundle.offset, bundle.size))
    header = parse_header(blob[:32])
    if isinstance(header, str) or header.size != len(blob) or header.uncompressed_size > _MAX_INFLATED:
        return ()
    data = _inflate(blob[header.header_size :], header.method, header.uncompressed_size)
    (stored,) = struct.unpack_from("<Q", blob, header.header_size - 8)
    # A hash of another kind could not be made anew.
    if data is None or stored != _hash(data):
        return ()
    inner = BufferSource(data)
    raw = parse_bundle(inner, 0, len(data), Budget())
    if raw is None or raw.container != "raw":
        return ()
    edits = _edit_table(inner, raw, agents)
    if not edits:
        return ()
    edited = ReplacedSource(inner, edits).read_at(0, len(data))
    payload = zstd.compress(edited, _LEVEL) if header.method == "zstd" else zlib.compress(edited, 9)
    size = header.header_size + len(payload)
    if size > len(blob) or _inflate(payload, header.method, len(edited)) != edited:
        return ()
    fields = struct.pack(_HEADERS[header.version], size, len(edited), _hash(edited))
    content = CCOB_MAGIC + blob[4:8] + fields + payload
    names = ", ".join(edit.entry for edit in edits if edit.entry)
    digest = hashlib.sha256(blob).hexdigest()
    return (Replacement(bundle.offset, bundle.size, names, digest, content),)


def _hash(data: bytes) -> int:
    """Return clang's hash of what is compressed: the first half of its MD5, a number."""
    number: int = struct.unpack("<Q", hashlib.md5(data, usedforsecurity=False).digest()[:8])[0]
    return number


def _inflate(payload: bytes, method: str, size: int) -> bytes | None:
    """Return all that is compressed, or None where it is not `size` bytes."""
    try:
        if method == "zstd":
            unpacker = zstd.ZstdDecompressor()
            data: bytes = unpacker.decompress(payload, size + 1)
        else:
            inflater = zlib.decompressobj()
            data = inflater.decompress(payload, size + 1)
    except (zstd.ZstdError, zlib.error, MemoryError):
        return None
    return data if len(data) == size else None


def _is_harmless(
    source: ByteSource, code: DeviceCode, agents: Sequence[TargetId], found: Sequence[Replacement]
) -> bool:
    """Whether the file, read again, has the same bundles, and for each GPU the same code in each, at the same places."""
    after = read_device_code(ReplacedSource(source, found), code.path)
    if len(after.bundles) != len(code.bundles) or len(after.problems) > len(code.problems):
        return False
    return all(
        (old.offset, old.container) == (new.offset, new.container)
        and set(new.entries) <= {entry._replace(code=None) for entry in old.entries} | set(old.entries)
        and all(_list_code(old, agent) == _list_code(new, agent) for agent in agents)
        for old, new in zip(code.bundles, after.bundles, strict=True)
    )


def _list_code(bundle: Bundle, agent: TargetId) -> list[tuple[str, int, int]]:
    """Return the entries that a GPU might run."""
    return [(entry.text, entry.offset, entry.size) for entry in bundle.entries if _stays(entry, [agent])]
