"""Device code outside of ``.hip_fatbin``: bundles and bare code objects in data sections, found by a bounded search.

XLA keeps raw bundles in .rodata and loads them with hipModuleLoadData; libhsa-runtime64 keeps its trap handlers as bare
code objects in .data. Strings of compilers contain the magics too, so a hit counts only when it parses.
"""

from __future__ import annotations

from relink.elf.image import HEADER_SIZE
from relink.elf.source import ByteSource
from relink.gpu.amd import compressed
from relink.gpu.amd.bundle import RAW_MAGIC, Budget, Bundle, BundleEntry, parse_bundle
from relink.gpu.amd.code_object import CodeObject, parse_code_object
from relink.gpu.host_elf import HostElf

SEARCH_STEP = 8 << 20
# Bytes; more than the longest magic, so that none is lost between two steps.
_OVERLAP = 64
_MAGICS = (RAW_MAGIC, compressed.MAGIC, b"\x7fELF\x02\x01\x01")
# SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS.
_ALLOC, _EXEC, _PROGBITS = 2, 4, 1


def code_object_entry(code: CodeObject, size: int, offset: int = 0) -> BundleEntry:
    """Return the entry that stands for a bare code object."""
    return BundleEntry(f"code object {code.name}", code.target, offset, size, code.target is not None, code)


def scan(source: ByteSource, elf: HostElf, budget: Budget, limit: int) -> tuple[Bundle, ...]:
    """Search the loaded data sections except ``.hip_fatbin`` (without sections: nothing), `limit` bytes in all."""
    found: list[Bundle] = []
    for section in elf.sections:
        if (
            section.type != _PROGBITS
            or not section.flags & _ALLOC
            or section.flags & _EXEC
            or not section.file_size
        ):
            continue
        if section.name in (".hip_fatbin", ".hipFatBinSegment") or section.name.startswith(
            RAW_MAGIC.decode()
        ):
            continue
        if limit <= 0:
            budget.problem(f"{section.name} was not searched for device code: the limit is used up")
            break
        end = section.offset + min(section.file_size, limit)
        if end < section.offset + section.file_size:
            budget.problem(
                f"only {limit} of {section.file_size} bytes of {section.name} were searched for device code"
            )
        limit -= section.file_size
        found += _scan_range(source, section.offset, end, section.address - section.offset, budget)
    return tuple(found)


def _scan_range(source: ByteSource, start: int, end: int, shift: int, budget: Budget) -> list[Bundle]:
    found: list[Bundle] = []
    position = start
    while position < end:
        data = bytes(source.read_at(position, min(SEARCH_STEP + _OVERLAP, end - position)))
        if not data:
            break
        hits = sorted(
            place
            for magic in _MAGICS
            for place in _all(data, magic, min(len(data), SEARCH_STEP))
            if place < SEARCH_STEP
        )
        done = position
        for hit in hits:
            place = position + hit
            # Inside of a bundle that was just read.
            if place < done:
                continue
            bundle = _try(source, place, end, shift, budget)
            if bundle is not None:
                found.append(bundle)
                done = place + max(bundle.size, 1)
        position = max(position + SEARCH_STEP, done)
    return found


def _all(data: bytes, magic: bytes, limit: int) -> list[int]:
    places: list[int] = []
    at = data.find(magic)
    while 0 <= at < limit and len(places) < 100_000:
        places.append(at)
        at = data.find(magic, at + 1)
    return places


def _try(source: ByteSource, place: int, end: int, shift: int, budget: Budget) -> Bundle | None:
    """Return the bundle or code object at `place` if there really is one; its doubts stay unsaid."""
    head = source.read_at(place, HEADER_SIZE)
    if head[:4] == b"\x7fELF":
        code = parse_code_object(head)
        if code is None:
            return None
        entry = code_object_entry(code, HEADER_SIZE)
        return Bundle(place, place + shift, HEADER_SIZE, "code-object", (entry,))
    trial = Budget(entries=min(budget.entries, 4096), inflated=budget.inflated)
    granted = trial.entries
    bundle = parse_bundle(source, place, end, trial, address=place + shift)
    budget.inflated = trial.inflated
    budget.entries -= granted - trial.entries
    if bundle is None or not bundle.entries or not bundle.targets:
        return None
    # No size of its own: step over its header only.
    if bundle.container == "ccob-v1":
        bundle = Bundle(bundle.offset, bundle.address, 20, bundle.container, bundle.entries, bundle.method)
    if trial.problems and not any(entry.usable and entry.code for entry in bundle.entries):
        return None
    return bundle
