"""Bundles of code objects: raw and compressed, one or a chain, with hostile input reported and never fatal.

In ``.hip_fatbin`` a bundle starts at each multiple of 4096 after the end of the one before: the chain is walked, never
searched, since compressed payloads contain stray magics. Raw layout: ClangOffloadBundler.rst.

Compressed ones are CCOB of versions 1 to 3: clang's OffloadBundler.cpp, RawCompressedBundleHeader; packed, little-endian. Only as
much is decompressed as the header of the bundle inside needs, so a bomb costs no more than a bundle.
"""

from __future__ import annotations

import bisect
import struct
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import msgspec

from relink.elf.constants import EM_AMDGPU
from relink.elf.image import HEADER_SIZE
from relink.elf.source import ByteSource
from relink.gpu.amd.target_id import HIP_KINDS, SPIRV, CodeTarget, parse_bundle_id, table
from relink.gpu.coverage import TargetId

# Unsupported, any, off, on.
_STATES: dict[int, bool | None] = {0: None, 1: None, 2: False, 3: True}


class CodeObject(msgspec.Struct, frozen=True):
    """What the header of one code object says.

    :ivar version: code object version 2 to 6, None for an ABI version that is not known.
    :ivar mach: e_flags & 0xff.
    :ivar target: None when the machine number is not in the table.
    :ivar generic_version: 1 to 255 for generic targets of version 6, else 0.
    """

    abi_version: int
    version: int | None
    mach: int
    target: TargetId | None
    generic_version: int

    @property
    def name(self) -> str:
        """The target id, or the machine number where relink does not know it."""
        return str(self.target) if self.target else f"unknown machine 0x{self.mach:02x}"


def parse_code_object(header: bytes | memoryview) -> CodeObject | None:
    """Read the first 64 bytes of a code object; None when they are no ELF of an AMD GPU."""
    data = bytes(header[:HEADER_SIZE])
    if len(data) < HEADER_SIZE or data[:6] != b"\x7fELF\x02\x01":
        return None
    machine, flags = struct.unpack_from("<H", data, 18)[0], struct.unpack_from("<I", data, 48)[0]
    if machine != EM_AMDGPU:
        return None
    abi = data[8]
    mach = flags & 0xFF
    processor = table().machines.get(mach)
    target = None
    if processor is not None:
        features: list[tuple[str, bool]] = []
        # v4 on: two bits a feature.
        if abi >= 2:
            states = (("sramecc", _STATES[flags >> 10 & 3]), ("xnack", _STATES[flags >> 8 & 3]))
            features = [(name, on) for name, on in states if on is not None]
        elif abi == 1:  # v3: one bit a feature, on or not
            features = [(name, True) for name, bit in (("sramecc", 0x200), ("xnack", 0x100)) if flags & bit]
        if not table().features(processor):
            # No feature is to be chosen: ROCr drops the bits (gfx12.5, whose replay is always on).
            features = []
        target = TargetId(processor, tuple(features))
    return CodeObject(
        abi_version=abi,
        version=abi + 2 if abi <= 4 else None,
        mach=mach,
        target=target,
        generic_version=flags >> 24 if abi >= 4 else 0,
    )


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


CCOB_MAGIC = b"CCOB"
# Bytes of the payload that are read at once.
_STEP = 16 * 1024
# Bytes of a payload that is looked through to its end. comgr hands zstd all of it: what lies behind the frame is an error there.
_WHOLE = 128 * 1024
# Bytes of the payload more than come out of it; a compressor stores what it cannot shrink with some bytes a block.
_SPARE = 256 * 1024
_METHODS = {0: "zlib", 1: "zstd"}
# version: header size, struct after the 8 common bytes
_LAYOUTS = {1: (20, "<IQ"), 2: (24, "<IIQ"), 3: (32, "<QQQ")}


class CompressedHeader(msgspec.Struct, frozen=True):
    """`size` counts the header too and is None in version 1, which does not say where it ends."""

    version: int
    method: str
    header_size: int
    size: int | None
    uncompressed_size: int


def parse_header(data: bytes | memoryview) -> CompressedHeader | str:
    """Read the header from the first 32 bytes; a string says why it is none."""
    if len(data) < 8 or bytes(data[:4]) != CCOB_MAGIC:
        return "no CCOB header"
    version, method = struct.unpack_from("<HH", data, 4)
    layout = _LAYOUTS.get(version)
    if layout is None:
        return f"CCOB version {version} is not known (1 to 3 are)"
    if method not in _METHODS:
        return f"CCOB compression method {method} is not known (0 zlib, 1 zstd)"
    header_size, form = layout
    if len(data) < header_size:
        return f"the CCOB header is cut off after {len(data)} bytes"
    fields = struct.unpack_from(form, data, 8)
    size = None if version == 1 else fields[0]
    if size is not None and size < header_size:
        return f"CCOB says {size} bytes, less than its own header"
    return CompressedHeader(version, _METHODS[method], header_size, size, fields[-2])


def find_end_problem(payload: bytes | memoryview, header: CompressedHeader) -> str:
    """Return why a zstd payload does not end where its one frame does, by the headers of the frame's blocks (RFC 8878, 3.1.1)."""
    try:
        length = zstd.get_frame_size(payload)
    except zstd.ZstdError:
        return f"the zstd frame does not end in the {len(payload)} bytes of its payload"
    # Version 1 does not say where the payload ends.
    if header.size is not None and length < len(payload):
        return f"{len(payload) - length} bytes lie behind the zstd frame in its payload"
    return ""


class Inflater:
    """The first bytes of a payload, on demand: :meth:`at_least` grows `data` and never beyond `limit`.

    :ivar taken: bytes of the payload that were read. Blocks may be empty, so `data` alone bounds no work.
    :ivar problem: why no more came, when less came than was asked for.
    """

    def __init__(
        self, source: ByteSource, header: CompressedHeader, start: int, end: int, limit: int
    ) -> None:
        self.data = b""
        self.taken = 0
        self.problem = ""
        self._limit = limit
        self._source, self._start, self._end = source, start + header.header_size, end
        # No method of the object is kept in the object: such a circle would keep the decompressor until a garbage collection.
        self._zstd = zstd.ZstdDecompressor() if header.method == "zstd" else None
        self._zlib = zlib.decompressobj()
        if header.method == "zstd":
            length = end - self._start
            payload = source.read_at(self._start, length if length <= _WHOLE else 18)
            try:
                size = zstd.get_frame_info(payload[:18]).decompressed_size
                self.problem = find_end_problem(payload, header) if length <= _WHOLE else ""
            except zstd.ZstdError as error:
                self.problem = f"the zstd payload cannot be read: {error}"
                self._end = self._start
                return
            if size not in (header.uncompressed_size, None):
                self.problem = (
                    f"CCOB says {header.uncompressed_size} bytes uncompressed, its zstd frame {size}"
                )
            # The default limit of the window is 128 MiB, which clang stays below; only what is written is touched.

    def at_least(self, wanted: int) -> bool:
        """Grow `data` to `wanted` bytes; False when the payload ends, is damaged, or the limit is below it."""
        reach = min(wanted, self._limit)
        try:
            while len(self.data) < reach:
                piece = self._more(reach - len(self.data))
                if not piece:
                    return False
                self.data += piece
        except (zstd.ZstdError, zlib.error) as error:
            self.problem = f"the payload is damaged: {error}"
            return False
        return reach == wanted

    def _more(self, size: int) -> bytes:
        unpacker = self._zstd or self._zlib
        while not unpacker.eof:
            # zlib gives back what it has not taken yet, zstd keeps that.
            pending = self._zlib.unconsumed_tail
            if not pending and (self._zstd is None or self._zstd.needs_input):
                if self.taken > self._limit + _SPARE:
                    self.problem = (
                        f"the payload takes {self.taken} bytes for {len(self.data)}; the rest is not read"
                    )
                    break
                at = self._start + self.taken
                pending = bytes(self._source.read_at(at, min(_STEP, self._end - at)))
                self.taken += len(pending)
                if not pending:
                    break
            if piece := unpacker.decompress(pending, size):
                return piece
        return b""


RAW_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
ALIGN = 4096
# Of one bundle: one for each target; the largest real ones have some forty.
MAX_ENTRIES = 4096
MAX_ID = 4096  # bytes of an entry id
_MAX_HEADER = 1 << 20  # bytes
# Bytes decompressed at once: the header and the first code objects of most bundles.
_FIRST_LOOK = 128 * 1024

# Offset, size, length of the id.
_ENTRY = struct.Struct("<QQQ").unpack_from

Read = Callable[[int, int], bytes]


class Budget(msgspec.Struct):
    """What relink reads of one file at most, so that a damaged one costs no more. Real files stay a hundred times below.

    :ivar inflated: bytes that may still be decompressed, or read for that.
    """

    PROBLEMS: ClassVar[int] = 100

    bundles: int = 100_000
    entries: int = 250_000
    inflated: int = 1 << 30
    problems: list[str] = msgspec.field(default_factory=list)

    def problem(self, text: str) -> None:
        """Note a problem; the hundredth is the last."""
        if len(self.problems) < self.PROBLEMS:
            self.problems.append(text)


# Libraries of ROCm have ten thousands.
class BundleEntry(NamedTuple):
    """One entry of a bundle. `usable`: for a GPU, not empty, and inside of the bundle.

    :ivar offset: from the start of the (uncompressed) bundle.
    :ivar code: the ELF header, where reading it was cheap.
    """

    text: str
    target: TargetId | None
    offset: int
    size: int
    usable: bool
    code: CodeObject | None = None

    @property
    def code_target(self) -> CodeTarget | None:
        """What it can run on, None when it is not usable."""
        if not self.usable or self.target is None:
            return None
        known = self.code is not None and self.target.processor in table().generics
        return CodeTarget(self.target, self.code.generic_version if known and self.code else None)


@dataclass(frozen=True, slots=True)
class Bundle:
    """One bundle in a file.

    :ivar offset: where in the file; `address` is where in memory, None outside of loaded sections.
    :ivar size: bytes in the file, headers included.
    :ivar container: raw, ccob-v1, ccob-v2, ccob-v3, code-object, kpack or unreadable.
    :ivar method: zlib or zstd for ccob, else None.
    :ivar targets: the usable code targets.
    """

    offset: int
    address: int | None
    size: int
    container: str
    entries: tuple[BundleEntry, ...]
    method: str | None = None
    uncompressed_size: int | None = None
    targets: tuple[CodeTarget, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        targets = tuple([code for entry in self.entries if (code := entry.code_target)])
        object.__setattr__(self, "targets", targets)


def parse_bundle(
    source: ByteSource,
    offset: int,
    end: int,
    budget: Budget,
    *,
    address: int | None = None,
    where: str = "file",
) -> Bundle | None:
    """Read the bundle at `offset`, which may reach up to `end`. None with a problem noted when there is none.

    Version 1 of CCOB has no size: the bundle then takes everything up to `end`.
    """
    head = source.read_at(offset, min(32, end - offset))
    place = f"{where}+0x{offset:x}"
    if bytes(head[:4]) == CCOB_MAGIC:
        return _compressed(source, offset, end, budget, head=head, address=address, place=place)
    if bytes(head[: len(RAW_MAGIC)]) != RAW_MAGIC:
        budget.problem(f"{place}: no bundle starts here ({bytes(head[:8]).hex(' ') or 'end of file'})")
        return None

    def read(at: int, length: int) -> bytes:
        return bytes(source.read_at(offset + at, min(length, end - offset - at)))

    entries, size, problem = _entries(read, end - offset, budget)
    if problem:
        budget.problem(f"{place}: {problem}")
        if not entries:
            return None
    if size > end - offset:
        budget.problem(f"{place}: the bundle claims {size} bytes, {end - offset} are there")
        size = end - offset
    return Bundle(offset, address, size, "raw", _with_code(entries, read, budget, place))


def _compressed(
    source: ByteSource,
    offset: int,
    end: int,
    budget: Budget,
    *,
    head: bytes | memoryview,
    address: int | None,
    place: str,
) -> Bundle | None:
    header = parse_header(head)
    if isinstance(header, str):
        budget.problem(f"{place}: {header}")
        return None
    size = end - offset if header.size is None else header.size
    if size > end - offset:
        budget.problem(f"{place}: CCOB claims {size} bytes, {end - offset} are there")
        size = end - offset
    entries: tuple[BundleEntry, ...] = ()
    if budget.inflated <= 0:
        budget.problem(f"{place}: not decompressed, this file has used up what relink spends on one")
    else:
        inflater = Inflater(source, header, offset, offset + size, _MAX_HEADER)
        if not inflater.at_least(min(_FIRST_LOOK, header.uncompressed_size)) and not inflater.problem:
            inflater.problem = (
                f"the payload ends after {len(inflater.data)} of {header.uncompressed_size} bytes"
            )

        def read(at: int, length: int) -> bytes:
            inflater.at_least(at + length)
            return inflater.data[at : at + length]

        if inflater.data.startswith(RAW_MAGIC):
            entries, inner, problem = _entries(read, header.uncompressed_size, budget)
            entries = _with_code(entries, lambda at, size: inflater.data[at : at + size], budget, place)
            if inner > header.uncompressed_size and not problem:
                problem = f"the bundle inside claims {inner} bytes, {header.uncompressed_size} come out"
        else:
            problem = "" if inflater.problem else "what is compressed here is no bundle"
        budget.inflated -= max(len(inflater.data), inflater.taken, _FIRST_LOOK)
        for text in filter(None, (inflater.problem, problem)):
            budget.problem(f"{place}: {text}")
    container = f"ccob-v{header.version}"
    return Bundle(offset, address, size, container, entries, header.method, header.uncompressed_size)


def _entries(read: Read, limit: int, budget: Budget) -> tuple[tuple[BundleEntry, ...], int, str]:
    """Return the entries of a raw bundle, how far it reaches, and what is wrong with its header."""
    # CLR looks at no more than that.
    head = read(0, ALIGN)
    if len(head) < 32:
        return (), 0, f"the bundle's header is cut off after {len(head)} bytes"
    (count,) = struct.unpack_from("<Q", head, 24)
    if count > MAX_ENTRIES:
        return (), 0, f"the bundle claims {count} entries (more than {MAX_ENTRIES} are not believed)"

    def reaches(wanted: int) -> bool:
        nonlocal head
        if len(head) < wanted <= _MAX_HEADER:
            head = read(0, min(max(2 * len(head), wanted), _MAX_HEADER))
        return wanted <= len(head)

    found: list[BundleEntry] = []
    problem = ""
    at, reach = 32, 32
    for number in range(1, count + 1):
        if len(found) >= budget.entries:
            problem = "more entries than relink reads of one file"
            break
        if at + 24 > len(head) and not reaches(at + 24):
            problem = f"the header ends in entry {number} of {count}"
            break
        offset, size, length = _ENTRY(head, at)
        if length > MAX_ID:
            problem = f"entry {number} of {count} claims an id of {length} bytes"
            break
        start, at = at + 24, at + 24 + length
        if at > len(head) and not reaches(at):
            problem = f"the header ends in entry {number} of {count}"
            break
        text = head[start:at].decode("utf-8", "replace")
        target, is_hip = parse_bundle_id(text)
        stop = offset + size
        found.append(BundleEntry(text, target, offset, size, is_hip and size > 0 and stop <= limit))
        reach = max(reach, at, stop)
    budget.entries -= len(found)
    return tuple(found), reach, problem


def _with_code(
    entries: tuple[BundleEntry, ...], read: Read, budget: Budget, place: str
) -> tuple[BundleEntry, ...]:
    """Return the entries with the code objects' ELF headers where `read` has them; note what does not agree."""
    done = []
    for entry in entries:
        header = read(entry.offset, HEADER_SIZE) if entry.usable else b""
        full = len(header) == HEADER_SIZE
        done.append(entry._replace(code=parse_code_object(header)) if full else entry)
        if header and header[:4] != b"\x7fELF":
            kind = "SPIR-V" if header[:4] == b"\x03\x02\x23\x07" else header[:4].hex(" ")
            if entry.target is not None and entry.target.processor != SPIRV:
                budget.problem(f"{place}: {entry.text} is no ELF code object ({kind})")
    for text in id_problems(done):
        budget.problem(f"{place}: {text}")
    return tuple(done)


def id_problems(entries: Sequence[BundleEntry]) -> list[str]:
    """Return what a bundle's ids break: no id twice, a feature left open by all of a processor or by none (AMDGPUUsage),
    no empty or misplaced code object, and the ELF header agrees with the id.
    """
    problems = []
    seen: set[tuple[TargetId, bool]] = set()
    named: dict[str, tuple[str, ...]] = {}
    for text, target, offset, size, usable, code in entries:
        if text.startswith("host"):
            continue
        if target is None:
            if text.split("-", 1)[0] in HIP_KINDS:
                problems.append(f"the id {text[:120]!r} names no target")
            continue
        if not usable and text.split("-", 1)[0] in HIP_KINDS:
            reason = "is empty" if size == 0 else f"ends at {offset + size}, past the end of the bundle"
            problems.append(f"the code object of {text} {reason}: it counts as missing")
            continue
        key = (target, text.startswith("openmp"))
        if key in seen:
            problems.append(f"{text} is there twice")
        seen.add(key)
        processor, values = target
        features = tuple([name for name, _ in values])
        if named.setdefault(processor, features) != features:
            problems.append(f"{processor} is there both with and without a feature named ({text})")
        if code is not None and code.target != target:
            versionless = code.abi_version < 2 and (
                code.mach == 0 or (code.target is not None and code.target.processor == processor)
            )
            if code.target is None and code.mach:
                problems.append(f"{text} holds code for {code.name}")
            elif not versionless:
                problems.append(f"{text} holds code for {code.name}: id and ELF header differ")
    return problems


def walk(
    source: ByteSource,
    start: int,
    end: int,
    budget: Budget,
    *,
    address: int | None = None,
    where: str = "file",
    known: Sequence[int] = (),
) -> tuple[Bundle, ...]:
    """Read the chain of bundles in [start, end) of the file; each begins at a multiple of 4096 from `start`.

    `known` are the file offsets, sorted, that ``.hipFatBinSegment`` points to: they end a CCOB of version 1,
    and are where the walk goes on after bytes that are no bundle.
    """
    bundles: list[Bundle] = []
    position = start
    while position < end:
        if budget.bundles <= 0:
            budget.problem(
                f"{where}+0x{position:x}: more bundles than relink reads of one file; the rest is not seen"
            )
            break
        index = bisect.bisect_right(known, position)
        expected = index > 0 and known[index - 1] == position
        following = known[index] if index < len(known) else None
        head = bytes(source.read_at(position, len(RAW_MAGIC)))
        at = None if address is None else address + position - start
        bundle = None
        if head.startswith(CCOB_MAGIC) or head == RAW_MAGIC:
            unsized = head[:6] == b"CCOB\x01\x00"
            if unsized and following is None and not known:
                budget.problem(
                    f"{where}+0x{position:x}: CCOB version 1 does not say where it ends, nor does a wrapper"
                )
            limit = min(end, following) if unsized and following else end
            bundle = parse_bundle(source, position, limit, budget, address=at, where=where)
        elif any(head) or expected:
            budget.problem(f"{where}+0x{position:x}: no bundle starts here ({head[:8].hex(' ')})")
        # A GPU may need what is in it: it counts.
        if bundle is None and (any(head) or expected):
            bundles.append(Bundle(position, at, (following or end) - position, "unreadable", ()))
        budget.bundles -= 1
        if bundle is not None:
            bundles.append(bundle)
            position = (
                start + -(-(bundle.offset + bundle.size - start) // ALIGN) * ALIGN
            )  # the end, rounded up
        elif following is not None:
            position = following
        else:
            break
    return tuple(bundles)
