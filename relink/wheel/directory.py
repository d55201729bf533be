"""Reading a ZIP file's central directory, and comparing every local header with it.

The central directory is what installers that seek believe; the local headers are what installers that stream
believe. A wheel on which the two disagree, or that has bytes which belong to neither, means different things to
different tools, so it is refused. The last end record whose comment ends with the file counts; ZIP64's (4.3.14, 4.3.15) must
agree with it, lie directly before it, and directly behind the directory: readers differ on anything else. Section numbers: PKWARE
APPNOTE.TXT 6.3.10.

Which member names a wheel may hold: those that mean the same file, inside the tree, to every installer.
"""

from __future__ import annotations

import re
import stat
import struct
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from relink.system.errors import WheelError
from relink.wheel import zipformat as z
from relink.wheel.limits import WheelLimits
from relink.wheel.zipformat import (
    Member,
    RangeReader,
    extra_fields,
    has_contradicting_zip64,
    has_second_name,
    zip64_values,
)

# Also what Python's str.splitlines takes for the end of a line, by which pip reads RECORD.
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
# Bytes: Linux, PATH_MAX without the NUL; what is longer cannot be opened.
_MAX_PATH = 4095
_MAX_COMPONENT = 255  # bytes: Linux, NAME_MAX
# Components of a path; vendors' wheels have less than 20.
_MAX_DEPTH = 100
_DRIVE = re.compile(r"[A-Za-z]:")


def name_defect(name: str) -> str | None:
    """Say why ``name`` (a member's path, ``/`` at the end for a directory) is refused, or None."""
    if not name or name == "/":
        return "the name is empty"
    size = len(name.encode("utf-8", "surrogateescape"))
    if size > _MAX_PATH:
        return f"the name has {size} bytes; a path has {_MAX_PATH} at most"
    if size > _MAX_COMPONENT and any(
        len(part.encode("utf-8", "surrogateescape")) > _MAX_COMPONENT for part in name.split("/")
    ):
        return f"a component of the name is longer than {_MAX_COMPONENT} bytes"
    if "\0" in name:
        return "the name holds a NUL: unpackers cut it there"
    if _CONTROL.search(name):
        return "the name holds control characters"
    if "\\" in name:
        return "the name holds a backslash: a separator to some unpackers"
    if name.startswith("/"):
        return "the path is absolute"
    if _DRIVE.match(name):
        return "the path begins with a drive"
    parts = name.removesuffix("/").split("/")
    if ".." in parts:
        return "the path leaves the wheel ('..')"
    if len(parts) > _MAX_DEPTH:
        return f"the path goes through {len(parts) - 1} directories; at most {_MAX_DEPTH - 1} are expected"
    if "" in parts or "." in parts:
        return "the path is not in its shortest form (empty or '.' component)"
    return None


def find_collisions(names: Iterable[str]) -> list[str]:
    """Find the distinct ``names`` that become one file where case or composition does not count.

    Also a file that would have to be a directory for another member. Takes O(n log n) steps whatever the
    names are: they may have been made up to be slow.
    """
    issues: list[str] = []
    seen: dict[str, str] = {}
    for name in names:
        key = unicodedata.normalize("NFC", name.removesuffix("/").casefold())
        other = seen.setdefault(key, name)
        if other != name:
            issues.append(f"{name!r}: differs from {other!r} only in case, composition or a final slash")
    keys = sorted(seen)
    for key, name in seen.items():
        if not name.endswith("/"):
            # In sorted order the first key from here on is below this one, or none is.
            at = bisect_left(keys, f"{key}/")
            if at < len(keys) and keys[at].startswith(f"{key}/"):
                issues.append(f"{name!r}: is a file, and the directory of {seen[keys[at]]!r}")
    return issues


_NAME_SHOWN = 200  # characters
# Defects that are reported: a hostile wheel has room for millions.
_MOST_DEFECTS = 100


class DirectoryScan(msgspec.Struct):
    """A directory being read: the defects so far, and where each member's bytes begin and end.

    :ivar read: gives exactly as many bytes as it is asked for, or raises WheelError.
    :ivar file_size: bytes.
    :ivar issues: one sentence for each defect.
    :ivar extents: offset of the local header, offset behind the data, and name of each member whose local header was read.
    """

    read: RangeReader
    file_size: int
    issues: list[str] = msgspec.field(default_factory=list)
    members: dict[str, Member] = msgspec.field(default_factory=dict)
    extents: list[tuple[int, int, str]] = msgspec.field(default_factory=list)

    def add(self, name: str, defect: str) -> None:
        """Add a defect, up to a number that a person can read."""
        if len(self.issues) < _MOST_DEFECTS:
            shown = name if len(name) <= _NAME_SHOWN else f"{name[:_NAME_SHOWN]}…"
            self.issues.append(f"{shown!r}: {defect}" if name else defect)
        elif len(self.issues) == _MOST_DEFECTS:
            self.issues.append("and more")


class NoArchiveError(WheelError):
    """A file is no archive, or the beginning of one; the message says which without the file's name."""


def unreadable_error(reason: str) -> WheelError:
    """Return the error for a structure of which no member can be read."""
    return WheelError("the ZIP structure cannot be read", [reason])


class EndRecord(NamedTuple):
    """What the end records say: number of entries, and where the directory is."""

    entries: int
    size: int
    offset: int


def _find_end(scan: DirectoryScan) -> tuple[int, tuple[int, ...]]:
    """Return offset and fields of the end record (4.3.16): the last one whose comment ends with the file."""
    # 4.3.16: the length of a comment has 16 bits.
    tail_size = min(scan.file_size, z.END.size + 0xFFFF)
    tail = scan.read(scan.file_size - tail_size, tail_size)
    at = tail.rfind(z.END_SIGNATURE)
    last = at
    while at >= 0:
        if at + z.END.size <= len(tail):
            _, *fields = z.END.unpack_from(tail, at)
            if at + z.END.size + fields[-1] == len(tail):
                if at != last:
                    scan.add(
                        "", "the archive comment holds another end record: readers differ on which is true"
                    )
                return scan.file_size - tail_size + at, tuple(fields)
        # The search ends three bytes into this signature: any earlier one is found, and this one not again.
        at = tail.rfind(z.END_SIGNATURE, 0, at + 3)
    if last >= 0:
        raise unreadable_error("trailing data after the end record, or the file is cut inside it")
    is_cut = z.LOCAL_SIGNATURE.startswith(scan.read(0, min(4, scan.file_size)))
    what = "the file is truncated" if is_cut else "the file is no ZIP archive, as a wheel is"
    issue = f"no end of central directory record: {what}"
    raise NoArchiveError("is truncated; get it again" if is_cut else "is not a wheel", [issue])


def read_end_records(scan: DirectoryScan) -> EndRecord:
    """Read the end records, with ZIP64's (4.3.14, 4.3.15) if there are any, and check that they join up."""
    at, (disk, first_disk, here, entries, size, offset, _) = _find_end(scan)
    end = EndRecord(entries, size, offset)
    locator_at = at - z.END64_LOCATOR.size
    locator = scan.read(locator_at, z.END64_LOCATOR.size) if locator_at >= 0 else b""
    if locator.startswith(z.END64_LOCATOR_SIGNATURE):
        _, end64_disk, end64_at, disks = z.END64_LOCATOR.unpack(locator)
        if end64_at + z.END64.size > locator_at:
            raise unreadable_error("the ZIP64 locator points outside of the file")
        signature, rest, _, _, disk64, first64, here64, *values = z.END64.unpack(
            scan.read(end64_at, z.END64.size)
        )
        # 4.3.14.1: the size in the record leaves out its first 12 bytes.
        if signature != z.END64_SIGNATURE or end64_at + 12 + rest != locator_at:
            raise unreadable_error(
                "the ZIP64 locator does not point at a ZIP64 end record that ends where it begins"
            )
        if end64_at + z.END64.size != locator_at:
            raise unreadable_error(
                "the ZIP64 end record holds more than its fields: some readers take that for a directory"
            )
        for short, true, mark in zip(end, values, (z.MARK16, z.MARK32, z.MARK32), strict=True):
            if short not in (mark, true):
                scan.add("", f"end record and ZIP64 end record disagree: {short} and {true}")
        if here not in (z.MARK16, here64):
            scan.add("", f"end record and ZIP64 end record disagree: {here} and {here64}")
        end = EndRecord(*values)
        here = here64
        disks_used = {disk64, first64, end64_disk} | {
            number for number in (disk, first_disk) if number != z.MARK16
        }
        if disks_used != {0} or disks > 1:
            raise unreadable_error("the archive says it is one disk of several")
        at = end64_at
    elif disk or first_disk:
        raise unreadable_error("the archive says it is one disk of several")
    if here != end.entries:
        raise unreadable_error("the archive says it is one disk of several")
    if end.offset + end.size > at:
        raise unreadable_error(
            "the central directory reaches past the end record: the file is truncated or damaged"
        )
    if end.offset + end.size < at:
        gap = at - end.offset - end.size
        raise unreadable_error(
            f"{gap} bytes between central directory and end record, or prepended to the file"
        )
    return end


def at_local_header(scan: DirectoryScan, member: Member, raw_name: bytes) -> Member:
    """Compare the local header (4.3.7) with the central entry; return the member with its data offset."""
    name = member.name
    at = member.header_offset
    if at + z.LOCAL.size + len(raw_name) > scan.file_size:
        scan.add(name, "its local header is past the end of the file")
        return member
    # In nearly all wheels the extra field is empty, and one read has it all.
    raw = scan.read(at, z.LOCAL.size + len(raw_name))
    signature, _, flags, method, _, _, crc, compressed, size, name_size, extra_size = z.LOCAL.unpack_from(raw)
    if signature != z.LOCAL_SIGNATURE:
        scan.add(name, "the directory points at something that is not its local header")
        return member
    if name_size != len(raw_name) or raw[z.LOCAL.size :] != raw_name:
        scan.add(name, "local header and central directory give different names")
        return member
    extra_at = at + z.LOCAL.size + name_size
    data_at = extra_at + extra_size
    if data_at + member.compressed_size > scan.file_size:
        scan.add(name, "its data reaches past the end of the file")
        return member
    try:
        fields = extra_fields(scan.read(extra_at, extra_size)) if extra_size else []
    except ValueError as error:
        scan.add(name, f"local header: {error}")
        fields = []
    if z.MARK32 in (size, compressed):
        # 4.5.3: in a local header the field must have both sizes; some writers store the one that is marked.
        if (values := zip64_values(fields, 2)) is not None:
            size, compressed = values
        elif size != compressed and (values := zip64_values(fields, 1)) is not None:
            size, compressed = (values[0] if value == z.MARK32 else value for value in (size, compressed))
        else:
            scan.add(name, "local header: sizes are left to a ZIP64 field that is not there")
    elif has_contradicting_zip64(fields, 0, size, compressed):
        scan.add(name, "local header: a ZIP64 field gives it other sizes")
    if has_second_name(fields, name):
        scan.add(name, "local header: an extra field gives it another name")
    streamed = bool(flags & z.FLAG_DESCRIPTOR)
    # 4.4.4: the local header decides whether a data descriptor follows; some writers do not repeat the bit in the directory.
    member_flags = member.flags | flags & z.FLAG_DESCRIPTOR
    for what, local, central in (
        ("flags", flags & ~z.FLAG_LEVEL, member_flags & ~z.FLAG_LEVEL),
        ("method", method, member.method),
        ("crc", crc, member.crc),
        ("compressed size", compressed, member.compressed_size),
        ("size", size, member.size),
    ):
        # 4.4.4, bit 3: CRC and sizes are zero here and follow the data.
        unknown = streamed and local == 0 and what not in ("flags", "method")
        if local != central and not unknown:
            scan.add(name, f"local header and central directory disagree: {what} {local:#x} and {central:#x}")
    scan.extents.append((at, data_at + member.compressed_size, name))
    return replace(member, flags=member_flags, data_offset=data_at)


def _is_descriptor(raw: bytes, member: Member) -> bool:
    """Whether ``raw`` is this member's data descriptor (4.3.9): with or without signature, 32 or 64 bit."""
    body = raw.removeprefix(z.DESCRIPTOR_SIGNATURE) if len(raw) in (16, 24) else raw
    layout = {12: "<3L", 20: "<L2Q"}.get(len(body))
    return layout is not None and struct.unpack(layout, body) == (
        member.crc,
        member.compressed_size,
        member.size,
    )


def check_extents(scan: DirectoryScan, directory_at: int) -> None:
    """Every byte before the directory belongs to exactly one member: no overlap, no gap, nothing in front."""
    position = 0
    before: Member | None = None
    extents = sorted(scan.extents)
    for start, end, name in [*extents, (directory_at, directory_at, "")]:
        gap = start - position
        if gap < 0:
            other = before.name if before else ""
            scan.add(name, f"overlaps {other!r}" if name else f"{other!r} overlaps the central directory")
        elif before is not None and before.flags & z.FLAG_DESCRIPTOR:
            if gap > 24 or not _is_descriptor(scan.read(position, gap), before):
                scan.add(before.name, "its data descriptor is missing or says something else")
        elif gap:
            where = f"after {before.name!r}" if before else "in front of the first member"
            scan.add("", f"{gap} bytes {where} belong to no member")
        position = max(position, end)
        before = scan.members.get(name)


_UNIX = frozenset({3, 19})  # 4.4.2: UNIX, OS X
_KNOWN_FLAGS = z.FLAG_LEVEL | z.FLAG_DESCRIPTOR | z.FLAG_UTF8
_ENCRYPTION = z.FLAG_ENCRYPTED | z.FLAG_STRONG | z.FLAG_MASKED
# RFC 1951: 258 bytes for two bits is the most that deflate can promise.
_DEFLATE_MOST = 1032


def read_directory(
    read: RangeReader, file_size: int, limits: WheelLimits
) -> tuple[dict[str, Member], list[str]]:
    """Read and check the structure of a ZIP file.

    :param read: ``read(offset, length)`` of the file gives exactly ``length`` bytes or raises WheelError.
    :param file_size: bytes.
    :return: the members in the directory's order, and all defects found.
    :raises WheelError: the directory cannot be found or is larger than the limits allow.
    """
    scan = DirectoryScan(read, file_size)
    end = read_end_records(scan)
    if end.entries > limits.members:
        raise unreadable_error(
            f"{end.entries} members; the limit is {limits.members}, and --limit members=N allows more"
        )
    if end.size > limits.directory_size:
        raise unreadable_error(
            f"a central directory of {end.size} bytes; the limit is {limits.directory_size}"
        )
    raw = read(end.offset, end.size)
    position = 0
    for number in range(end.entries):
        if position + z.CENTRAL.size > len(raw) or not raw.startswith(z.CENTRAL_SIGNATURE, position):
            scan.add("", f"the central directory is damaged at entry {number + 1} of {end.entries}")
            break
        _, *entry = z.CENTRAL.unpack_from(raw, position)
        name_at = position + z.CENTRAL.size
        extra_at = name_at + entry[9]
        position = extra_at + entry[10] + entry[11]
        if position > len(raw):
            scan.add("", f"the central directory is damaged at entry {number + 1} of {end.entries}")
            break
        _central_entry(scan, tuple(entry), raw[name_at:extra_at], raw[extra_at : extra_at + entry[10]])
    else:
        if position != len(raw):
            scan.add("", f"the central directory holds {len(raw) - position} bytes more than its entries")
    if len(scan.extents) == end.entries:
        # With a member missing from the map its bytes would be reported a second time, as a gap.
        check_extents(scan, end.offset)
    for issue in find_collisions(scan.members):
        scan.add("", issue)
    _check_limits(scan, limits)
    return scan.members, scan.issues


def _central_entry(scan: DirectoryScan, entry: tuple[int, ...], raw_name: bytes, extra: bytes) -> None:
    """Check one entry of the central directory and its local header; add the member or its defects."""
    made_by, needed, flags, method, time, date, crc, compressed, size, *_, disk, _, attributes, offset = entry
    try:
        # Appendix D: UTF-8 if flagged, else code page 437, as Python's zipfile reads it.
        name = raw_name.decode("utf-8" if flags & z.FLAG_UTF8 else "cp437")
    except UnicodeDecodeError:
        scan.add(repr(raw_name), "the name is flagged as UTF-8 and is not")
        return
    defect = name_defect(name)
    if defect:
        scan.add(name, defect)
    # Appendix D: code page 437, which Python believes, while others take the bytes as they are.
    if not (name.isascii() or flags & z.FLAG_UTF8):
        scan.add(name, "the name is not ASCII and not flagged as UTF-8: unpackers spell it in different ways")
    if name in scan.members:
        scan.add(name, "two members have this name")
    try:
        fields = extra_fields(extra)
    except ValueError as error:
        scan.add(name, str(error))
        return
    marked = [value == z.MARK32 for value in (size, compressed, offset)]
    if any(marked):
        values = zip64_values(fields, sum(marked))
        if values is None:
            scan.add(name, "sizes are left to a ZIP64 field that is not there")
            return
        # 4.5.3: the field has the marked values only, in this order.
        true = iter(values)
        size, compressed, offset = (
            next(true) if mark else value
            for mark, value in zip(marked, (size, compressed, offset), strict=True)
        )
    if has_contradicting_zip64(fields, sum(marked), size, compressed, offset):
        scan.add(name, "a ZIP64 field gives it other sizes")
    if disk:
        scan.add(name, "is on another disk")
    if has_second_name(fields, name):
        scan.add(name, "an extra field gives it another name")
    if needed & 0xFF > z.NEWEST_VERSION:
        scan.add(name, f"asks for version {(needed & 0xFF) / 10} of the ZIP format to be unpacked")
    create_system = made_by >> 8
    is_directory = name.endswith("/")
    _check_kind(scan, name, attributes, is_directory=is_directory)
    _check_coding(scan, name, flags=flags, method=method, compressed=compressed, size=size)
    # Nothing deflates to the two bytes of an empty block; Java's writers leave them.
    if is_directory and (size or crc or compressed > 2):
        scan.add(name, "a directory with content")
    partial = Member(
        name=name,
        method=method,
        flags=flags,
        crc=crc,
        compressed_size=compressed,
        size=size,
        header_offset=offset,
        data_offset=0,
        mode=attributes >> 16 if create_system in _UNIX else 0,
        date_time=z.from_dos_time(date, time),
        external_attributes=attributes,
        create_system=create_system,
        is_directory=is_directory,
    )
    member = at_local_header(scan, partial, raw_name)
    if is_directory and compressed and scan.read(member.data_offset, compressed) != b"\x03\0":
        scan.add(name, "a directory with content")
    scan.members.setdefault(name, member)


def _check_kind(scan: DirectoryScan, name: str, attributes: int, *, is_directory: bool) -> None:
    """Only plain files and directories: unpackers believe the type bits whatever system the entry names."""
    kind = stat.S_IFMT(attributes >> 16)
    if kind == stat.S_IFLNK:
        scan.add(name, "is a symbolic link: wheels have none")
    elif kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        scan.add(name, "is a device, socket or pipe")
    elif kind and (kind == stat.S_IFDIR) != is_directory:
        scan.add(name, "name and mode disagree on whether it is a directory")
    # Installers take the execute bits at most, unzip the others too. A directory has set-group-ID where it was made in one.
    special = stat.S_IMODE(attributes >> 16) & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX)
    if special and not is_directory:
        scan.add(name, f"its mode has set-user-ID, set-group-ID or the sticky bit ({attributes >> 16:#o})")


def _check_coding(
    scan: DirectoryScan, name: str, *, flags: int, method: int, compressed: int, size: int
) -> None:
    """Flags (4.4.4), method (4.4.5), and sizes that these allow."""
    if flags & _ENCRYPTION:
        scan.add(name, "is encrypted")
    elif flags & ~_KNOWN_FLAGS:
        scan.add(name, f"has flags that relink does not know ({flags:#06x})")
    if method == z.STORED:
        if compressed != size:
            scan.add(name, f"is stored, yet its sizes differ: {compressed} and {size}")
    elif method != z.DEFLATED:
        scan.add(name, f"compression method {method}: wheels use 0 (stored) and 8 (deflated)")
    elif size > _DEFLATE_MOST * (compressed + 1):
        scan.add(name, f"claims to inflate from {compressed} to {size} bytes: more than deflate can do")


def _check_limits(scan: DirectoryScan, limits: WheelLimits) -> None:
    """Compare the claimed sizes with the limits; inflating later stops at the claimed size."""
    total = 0
    for member in scan.members.values():
        total += member.size
        if member.size > limits.member_size:
            scan.add(member.name, f"{member.size} bytes; the limit for a member is {limits.member_size}")
    if total > limits.total_size:
        scan.add("", f"the wheel inflates to {total} bytes; the limit is {limits.total_size}")
    if total > limits.ratio_from and total > limits.ratio * scan.file_size:
        scan.add(
            "",
            f"the wheel inflates to {total / scan.file_size:.0f} times its size; the limit is {limits.ratio:g}",
        )
