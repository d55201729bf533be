"""All device code of one file, whatever form the file has: :func:`read_device_code`.

What kpack archives hold for it is added: from archives on disk beside a library, or in the wheel that brings it.
"""

from __future__ import annotations

import os
import posixpath
import struct
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from relink.elf.constants import ET_REL
from relink.elf.image import HEADER_SIZE, Section, file_offset
from relink.elf.source import ByteSource, FileSource
from relink.gpu.amd.bundle import (
    CCOB_MAGIC,
    RAW_MAGIC,
    Budget,
    Bundle,
    BundleEntry,
    CodeObject,
    parse_bundle,
    parse_code_object,
    walk,
)
from relink.gpu.amd.kpack import (
    ARCHIVE_MAGIC,
    MAX_PROBLEMS,
    STEPS,
    Doubt,
    Effort,
    KpackArchive,
    KpackReference,
    Shadow,
    find_archives,
    kpack_bundle,
    parse_archive,
    parse_reference,
    read_archive,
    resolve,
)
from relink.gpu.amd.target_id import SPIRV, table
from relink.gpu.host_elf import HostElf, parse_host_elf, pointers
from relink.system.safe_open import list_names

if TYPE_CHECKING:  # slow to load
    from relink.wheel.source import MemberSource

SEARCH_STEP = 8 << 20
# Bytes; more than the longest magic, so that none is lost between two steps.
_OVERLAP = 64
_MAGICS = (RAW_MAGIC, CCOB_MAGIC, b"\x7fELF\x02\x01\x01")
# SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS.
_ALLOC, _EXEC, _PROGBITS = 2, 4, 1


def _bare(code: CodeObject, size: int, place: int = 0, address: int | None = None) -> Bundle:
    """Return the bundle that stands for a bare code object."""
    entry = BundleEntry(f"code object {code.name}", code.target, 0, size, code.target is not None, code)
    return Bundle(place, address, size, "code-object", (entry,))


def scan(source: ByteSource, elf: HostElf, budget: Budget, limit: int) -> tuple[Bundle, ...]:
    """Search the loaded data sections except ``.hip_fatbin`` (without sections: nothing), `limit` bytes in all."""
    found: list[Bundle] = []
    for section in elf.sections:
        name = section.name
        data = section.type == _PROGBITS and section.flags & (_ALLOC | _EXEC) == _ALLOC and section.file_size
        if not data or name in (".hip_fatbin", ".hipFatBinSegment") or name.startswith(RAW_MAGIC.decode()):
            continue
        if limit <= 0:
            budget.problem(f"{name} was not searched for device code: the limit is used up")
            break
        end = section.offset + min(section.file_size, limit)
        if end < section.offset + section.file_size:
            budget.problem(
                f"only {limit} of {section.file_size} bytes of {name} were searched for device code"
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
            for place in _find_all(data, magic, min(len(data), SEARCH_STEP))
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


def _find_all(data: bytes, magic: bytes, limit: int) -> list[int]:
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
        return _bare(code, HEADER_SIZE, place, place + shift) if code else None
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


# Magic, version, pointer, reserved (HIPK: number of the wrapper).
_WRAPPER = struct.Struct("<IIQQ")
# HIP's magics: a wrapper of a bundle, a wrapper of a kpack reference.
_HIPF, _HIPK = 0x48495046, 0x4B504948
_MAX_WRAPPERS = 100_000
# Of wrappers in a file without section headers, each of which takes a look at all relocations; a linker makes one.
_MAX_RUNS = 16
# Bytes of writable segments that are searched for wrappers, in a file without section headers.
_SCAN_WRITABLE = 64 << 20


class DeviceCode(msgspec.Struct, frozen=True):
    """The device code of one file.

    :ivar form: elf, code-object, bundle, kpack-archive, other.
    :ivar bundles: in the order of the file; each is loaded by itself, so a GPU needs all of them.
    :ivar embedded: bundles and bare code objects in other sections, when they were asked for.
    :ivar wrappers: number of ``.hipFatBinSegment`` wrappers, None where there is no such section.
    :ivar kpack: the reference to kpack archives, if there is one; `doubts` of those that are there and could not be read.
    :ivar first: the bundles for a loader of kpack that takes the first archive alone, where there are `shadows` by that.
    :ivar problems: what is wrong with the file, one sentence each.
    """

    path: str
    form: str
    bundles: tuple[Bundle, ...] = ()
    embedded: tuple[Bundle, ...] = ()
    wrappers: int | None = None
    kpack: KpackReference | None = None
    problems: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    first: tuple[Bundle, ...] = ()
    shadows: tuple[Shadow, ...] = ()
    vendor: str = "rocm"

    @property
    def present(self) -> bool:
        """Whether there are bundles that are loaded, or archives with them."""
        return bool(self.bundles) or self.in_archives

    @property
    def in_archives(self) -> bool:
        """Whether the file refers to kpack archives."""
        return self.kpack is not None

    @property
    def is_jit(self) -> bool:
        """Whether a bundle has SPIR-V."""
        return any(code.target.processor == SPIRV for bundle in self.bundles for code in bundle.targets)

    @property
    def container(self) -> str:
        """The containers in the order of first use: ``raw``, ``ccob-v3``, ``raw + ccob-v3``, …; ``none`` without any."""
        names = dict.fromkeys(bundle.container for bundle in self.bundles or self.embedded)
        if self.kpack is not None:
            names["kpack"] = None
        return " + ".join(names) or "none"

    @property
    def code_objects(self) -> tuple[CodeObject, ...]:
        """The ELF headers that were read on the way."""
        return tuple(
            e.code for b in (*self.bundles, *self.embedded) for e in b.entries if e.usable and e.code
        )


def read_file(path: str | os.PathLike[str], *, scan_limit: int = 0) -> DeviceCode:
    """Read the device code of a file on disk. Never raises for its content; one that cannot be opened is a problem."""
    try:
        with FileSource(path) as source:
            return read_device_code(source, os.fspath(path), scan_limit=scan_limit)
    except OSError as error:
        return DeviceCode(os.fspath(path), "other", problems=(f"cannot be read: {error.strerror or error}",))


def read_device_code(
    source: ByteSource, path: str, *, scan_limit: int = 0, effort: Effort | None = None
) -> DeviceCode:
    """Read the device code of `source`, named `path` in the result.

    `scan_limit` > 0 also searches that many bytes of the other data sections for bundles and code objects that are
    loaded by hand (XLA keeps them in .rodata). Everything else costs little more than the headers. `effort` is what may be
    spent on the tables of several kpack archives together.
    """
    head = bytes(source.read_at(0, HEADER_SIZE))
    budget = Budget()
    if head.startswith(b"\x7fELF"):
        code = parse_code_object(head)
        if code is not None:
            problems = () if code.target else (f"{path}: {code.name}",)
            return DeviceCode(path, "code-object", (_bare(code, source.size),), problems=problems)
        elf = parse_host_elf(source)
        if elf is None:
            return DeviceCode(path, "elf")
        return _from_elf(source, path, elf, budget, scan_limit)
    if head.startswith((RAW_MAGIC, CCOB_MAGIC)):
        bundles = walk(source, 0, source.size, budget)
        return DeviceCode(path, "bundle", bundles, problems=tuple(budget.problems))
    if head.startswith(ARCHIVE_MAGIC):
        archive = parse_archive(source, path, effort)
        found = tuple(map(kpack_bundle, archive.contents.values()))
        return DeviceCode(path, "kpack-archive", found, problems=archive.problems)
    return DeviceCode(path, "other")


def _from_elf(source: ByteSource, path: str, elf: HostElf, budget: Budget, scan_limit: int) -> DeviceCode:
    for text in elf.problems:
        budget.problem(text)
    bundles: list[Bundle] = []
    wrappers: int | None = None
    reference: KpackReference | None = None
    segment = elf.section(".hipFatBinSegment")
    if elf.sections:
        known: list[int] = []
        numbers: list[int] = []
        if segment is not None:
            wrappers = segment.file_size // _WRAPPER.size
            if elf.kind != ET_REL:
                known, numbers = _wrappers(
                    source, elf, segment.address, segment.offset, count=wrappers, budget=budget
                )
        fatbins = [s for s in elf.sections if s.name == ".hip_fatbin" and s.file_size]
        for section in fatbins:
            end = section.offset + section.file_size
            inside = known[bisect_left(known, section.offset) : bisect_left(known, end)]
            address = section.address if section.flags & 2 and elf.kind != ET_REL else None
            bundles += walk(
                source, section.offset, section.offset + section.file_size, budget,
                address=address, where=section.name, known=inside,
            )  # fmt: skip
        if segment is not None and elf.kind != ET_REL:
            bundles += _compare(known, fatbins, bundles, budget)
        reference = _reference(source, elf, numbers, budget)
    else:
        if elf.segments:
            budget.problem(
                "no section headers: device code is looked for through its wrappers in writable segments"
            )
        bundles, wrappers = _without_sections(source, elf, budget)
    embedded: tuple[Bundle, ...] = ()
    if scan_limit > 0:
        embedded = scan(source, elf, budget, scan_limit)
    return DeviceCode(path, "elf", tuple(bundles), embedded, wrappers, reference, tuple(budget.problems))


def _wrappers(
    source: ByteSource, elf: HostElf, address: int, offset: int, *, count: int, budget: Budget
) -> tuple[list[int], list[int]]:
    """Return the file offsets that HIPF wrappers point to, sorted, and the numbers of the HIPK wrappers.

    The pointer is the addend of the slot's relocation (LLD leaves the slot empty), or the slot where RELR or nothing
    relocates it.
    """
    if count > _MAX_WRAPPERS:
        budget.problem(f".hipFatBinSegment claims {count} wrappers, only {_MAX_WRAPPERS} are read")
        count = _MAX_WRAPPERS
    size = _WRAPPER.size
    raw = bytes(source.read_at(offset, count * size))
    addends, in_place, named = pointers(source, elf, address, address + count * size)
    known: set[int] = set()
    numbers: list[int] = []
    for index, (magic, version, value, reserved) in enumerate(
        _WRAPPER.iter_unpack(raw[: len(raw) // size * size])
    ):
        slot = address + index * size + 8
        if magic == _HIPK:
            numbers.append(reserved & 0xFFFFFFFF)
            continue
        if magic != _HIPF or version != 1:
            budget.problem(f"wrapper {index} of .hipFatBinSegment has magic 0x{magic:08x}, version {version}")
            continue
        pointer = addends.get(slot, value)
        if (
            slot not in addends
            and slot not in in_place
            and elf.kind == 3
            and (addends or in_place or not value)
        ):
            budget.problem(f"wrapper {index} of .hipFatBinSegment: nothing relocates its pointer")
        place = file_offset(elf.segments, pointer)
        if place is None:
            budget.problem(
                f"wrapper {index} of .hipFatBinSegment points to 0x{pointer:x}, outside of the file"
            )
        elif place in known and not named:
            budget.problem(
                f"wrapper {index} of .hipFatBinSegment points to 0x{pointer:x}, as another one does"
            )
        else:
            known.add(place)
    return sorted(known), numbers


def _compare(known: list[int], fatbins: list[Section], bundles: list[Bundle], budget: Budget) -> list[Bundle]:
    """Note each wrapper without a bundle in .hip_fatbin, and the bundles without a wrapper; return the former."""
    found = {bundle.offset for bundle in bundles}
    lost = [place for place in known if place not in found]
    for place in lost[: Budget.PROBLEMS]:
        inside = any(s.offset <= place < s.offset + s.file_size for s in fatbins)
        where = "where the walk finds no bundle" if inside else "outside of .hip_fatbin"
        budget.problem(f"a wrapper points to file offset 0x{place:x}, {where}")
    extra = sorted(found - set(known))
    if extra and known:
        budget.problem(f"{len(extra)} bundles in .hip_fatbin have no wrapper, the first at 0x{extra[0]:x}")
    return [Bundle(place, None, 0, "unreadable", ()) for place in lost]


def _reference(source: ByteSource, elf: HostElf, numbers: list[int], budget: Budget) -> KpackReference | None:
    section = elf.section(".rocm_kpack_ref")
    if section is None:
        if numbers:
            budget.problem(
                f"{len(numbers)} HIPK wrappers, but no .rocm_kpack_ref says where the archives are"
            )
        return None
    found = parse_reference(bytes(source.read_at(section.offset, min(section.file_size, 65536))))
    if isinstance(found, str):
        budget.problem(found)
        return None
    return KpackReference(found.kernel_name, found.search_paths, tuple(sorted(set(numbers))))


def _without_sections(source: ByteSource, elf: HostElf, budget: Budget) -> tuple[list[Bundle], int]:
    """Find bundles through wrappers: 24 aligned bytes with the magic and version 1 in writable LOAD segments."""
    places: set[int] = set()
    count = runs = 0
    mark = struct.pack("<II", _HIPF, 1)
    left = _SCAN_WRITABLE
    for segment in elf.segments:
        if segment.type != 1 or not segment.flags & 2:
            continue
        data = bytes(source.read_at(segment.offset, min(segment.file_size, left)))
        left -= len(data)
        at = data.find(mark)
        while at >= 0 and count < _MAX_WRAPPERS:
            if (segment.address + at) % 8 == 0:
                runs += 1
                if runs > _MAX_RUNS:
                    budget.problem(f"wrappers in more than {_MAX_RUNS} places: the rest is not seen")
                    break
                run = 1
                while data[at + 24 * run : at + 24 * run + 8] == mark and count + run < _MAX_WRAPPERS:
                    run += 1
                found, _ = _wrappers(
                    source, elf, segment.address + at, segment.offset + at, count=run, budget=budget
                )
                places.update(found)
                count += run
                at += 24 * run - 1
            at = data.find(mark, at + 1)
    # A GPU may need what is in those that are not read.
    bundles = [Bundle(0, None, 0, "unreadable", ())] if runs > _MAX_RUNS else []
    ordered = sorted(places)
    for index, place in enumerate(ordered):
        if bundles and place < bundles[-1].offset + bundles[-1].size:
            continue
        holding = next(
            (s for s in elf.segments if s.type == 1 and s.offset <= place < s.offset + s.file_size), None
        )
        if holding is not None:
            following = ordered[index + 1] if index + 1 < len(ordered) else source.size
            end = min(holding.offset + holding.file_size, following)
            address = holding.address + place - holding.offset
            bundles += walk(source, place, end, budget, address=address, where="segment")[:1]
    return bundles, count


def same_device_code(before: DeviceCode, after: DeviceCode) -> tuple[str, ...]:
    """Return what an edit changed: the same bundles must be at the same virtual addresses, and no problem new."""
    changes = []
    if len(before.bundles) != len(after.bundles):
        changes.append(f"{len(before.bundles)} bundles before, {len(after.bundles)} after")
    for number, (old, new) in enumerate(zip(before.bundles, after.bundles, strict=False)):
        if old.address != new.address:
            changes.append(f"bundle {number} moved from {_hex(old.address)} to {_hex(new.address)}")
        was, now = (
            (
                one.container,
                one.size,
                one.uncompressed_size,
                [(e.text, e.offset, e.size) for e in one.entries],
            )
            for one in (old, new)
        )
        if was != now:
            changes.append(f"bundle {number} has other content")
    if before.wrappers != after.wrappers:
        changes.append(f"{before.wrappers} wrappers before, {after.wrappers} after")
    if before.kpack != after.kpack:
        changes.append("the reference to kpack archives changed")
    if len(after.problems) > len(before.problems):
        changes += [text for text in after.problems if text not in before.problems] or ["new problems"]
    return tuple(changes)


def _hex(address: int | None) -> str:
    return "nowhere" if address is None else f"0x{address:x}"


# Bytes: magic, version, offset of the table.
_HEAD = 16
# Bytes of a table that are kept: one more than the reader of archives takes.
_MOST = (64 << 20) + 1


def resolve_kpack(
    code: DeviceCode,
    path: str | None = None,
    names_in: Callable[[str], Collection[str]] = list_names,
    read: Callable[[str, Effort], KpackArchive] = read_archive,
    effort: Effort | None = None,
    *,
    everywhere: bool = True,
) -> DeviceCode:
    """Return `code` with the bundles that archives hold for it.

    :param path: of the library, where it is not `code.path`.
    :param names_in: the names in a directory, and `read` an archive there: on disk, unless something else is given.
    :param effort: what may be spent; where it is not enough, the library has a doubt.
    :param everywhere: archives are seen wherever they are. Otherwise it is a doubt that there is none.
    """
    if code.kpack is None:
        return code
    effort = effort or Effort(STEPS)
    # The runtime leaves `..` to the kernel, which follows links first: /opt/rocm/lib/.. is /opt/rocm/core-10.1.
    folder = os.path.dirname(path) if path is not None else os.path.realpath(os.path.dirname(code.path))
    found = find_archives(code.kpack, folder, names_in, effort)
    archives = [(one, read(one.path, effort)) for one in found]
    problems = (f"{archive.path}: {text}" for _, archive in archives for text in archive.problems)
    found_code = resolve(code.kpack, archives, effort)
    doubts = found_code.doubts
    if not (found or everywhere or doubts):
        paths = ", ".join(posixpath.basename(one) for one in code.kpack.search_paths[:3])
        reason = f"its code lies in kpack archives, and none of them is in the wheel ({paths})"
        doubts = (Doubt(None, reason),)
    return replace(
        code,
        bundles=(*code.bundles, *found_code.bundles),
        first=(*code.bundles, *found_code.first) if found_code.first else (),
        problems=(*code.problems, *islice(problems, MAX_PROBLEMS)),
        doubts=doubts,
        shadows=found_code.shadows,
    )


def as_taken(code: DeviceCode, hip: tuple[int, int] | None) -> DeviceCode:
    """Return `code` as the kpack loader of a HIP of that version finds it, one that takes no more than one archive say."""
    if not code.shadows:
        return code
    falls_through = hip is None or hip >= table().falls_through
    return replace(code, shadows=()) if falls_through else replace(code, bundles=code.first)


def with_archives(
    codes: Mapping[str, DeviceCode],
    archive: MemberSource,
    path_of: Callable[[str], str] = lambda member: member,
    sites: Iterable[tuple[str, str]] = (),
    beside: Iterable[MemberSource] = (),
    without: Collection[str] = (),
) -> dict[str, DeviceCode]:
    """Return the device code of a wheel's members with what the kpack archives hold for them.

    Where there is no archive at all, and no `sites` to look in, the code lies in a distribution that was not seen: it is unknown
    and not absent.

    :param path_of: where a member is installed: search paths are relative to that.
    :param beside: other wheels that will be installed with it.
    :param without: members that are not installed.
    :param sites: pairs of a directory in which members are installed and one on disk that has other distributions' files.
    :raises WheelError: an archive's content is not what the wheel claims.
    """
    members: dict[str, dict[str, tuple[MemberSource, str]]] = {}
    if any(code.kpack is not None for code in codes.values()):
        for wheel in (*beside, archive):
            for name in (name for name in wheel.members if wheel is not archive or name not in without):
                folder, base = posixpath.split(posixpath.normpath(path_of(name)))
                members.setdefault(folder, {})[base] = wheel, name
    pairs = tuple(sites)

    def on_disk(path: str) -> Iterable[str]:
        for installed, place in pairs:
            if path == installed or path.startswith(f"{installed}/"):
                yield place + path[len(installed) :]

    def names_in(folder: str) -> Collection[str]:
        beside = (name for place in on_disk(folder) for name in list_names(place))
        return dict.fromkeys((*members.get(folder, ()), *beside))

    known: dict[str, KpackArchive] = {}

    def read(path: str, effort: Effort) -> KpackArchive:
        # An archive of several libraries.
        if path not in known:
            folder, base = posixpath.split(path)
            if member := members.get(folder, {}).get(base):
                known[path] = parse_archive(_Ends(*member), member[1], effort)
            else:
                known[path] = read_archive(next(place for place in on_disk(path)), effort)
        return known[path]

    effort = Effort(STEPS)
    return {
        name: resolve_kpack(code, path_of(name), names_in, read, effort, everywhere=bool(pairs))
        for name, code in codes.items()
    }


class _Ends:
    """The head of an archive and its table, which is at the end; what is between is inflated and not kept."""

    def __init__(self, archive: MemberSource, member: str) -> None:
        self.size = archive.members[member].size
        kept = bytearray()
        at, self._from = 0, self.size
        head = b""
        for chunk in archive.chunks(member):
            if len(head) < _HEAD:
                head += chunk[: _HEAD - len(head)]
                if len(head) == _HEAD:
                    self._from = min(max(struct.unpack_from("<Q", head, 8)[0], 0), self.size)
            start = max(self._from - at, 0)
            if len(head) == _HEAD and start < len(chunk) and len(kept) < _MOST:
                kept += chunk[start : start + _MOST - len(kept)]
            at += len(chunk)
        self._head, self._kept = head, bytes(kept)

    def read_at(self, offset: int, length: int) -> bytes:
        part, at = (self._kept, offset - self._from) if offset >= self._from else (self._head, offset)
        return part[at : at + max(length, 0)] if at >= 0 else b""
