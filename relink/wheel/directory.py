"""Reading a ZIP file's central directory, and comparing every local header with it.

The central directory is what installers that seek believe; the local headers are what installers that stream
believe. A wheel on which the two disagree, or that has bytes which belong to neither, means different things to
different tools, so it is refused. Section numbers: PKWARE APPNOTE.TXT 6.3.10.
"""

from __future__ import annotations

import stat

from relink.wheel import zipformat as z
from relink.wheel.byte_types import RangeReader
from relink.wheel.directory_scan import DirectoryScan, unreadable
from relink.wheel.end_records import read_end_records
from relink.wheel.extra_fields import extra_fields, has_contradicting_zip64, has_second_name, zip64_values
from relink.wheel.limits import WheelLimits
from relink.wheel.local_headers import at_local_header, check_extents
from relink.wheel.paths import collisions, name_defect
from relink.wheel.zipformat import Member

__all__ = ["read_directory"]

_UNIX = frozenset({3, 19})  # 4.4.2: UNIX, OS X
_KNOWN_FLAGS = z.FLAG_LEVEL | z.FLAG_DESCRIPTOR | z.FLAG_UTF8
_ENCRYPTION = z.FLAG_ENCRYPTED | z.FLAG_STRONG | z.FLAG_MASKED
_DEFLATE_MOST = 1032  # RFC 1951: 258 bytes for two bits is the most that deflate can promise


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
        raise unreadable(f"{end.entries} members; the limit is {limits.members}")
    if end.size > limits.directory_size:
        raise unreadable(f"a central directory of {end.size} bytes; the limit is {limits.directory_size}")
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
    for issue in collisions(scan.members):
        scan.add("", issue)
    _check_limits(scan, limits)
    return scan.members, scan.issues


def _central_entry(scan: DirectoryScan, entry: tuple[int, ...], raw_name: bytes, extra: bytes) -> None:
    """Check one entry of the central directory and its local header; add the member or its defects."""
    made_by, needed, flags, method, time, date, crc, compressed, size, *_, disk, _, attributes, offset = entry
    try:
        name = _decode(raw_name, flags)
    except UnicodeDecodeError:
        scan.add(repr(raw_name), "the name is flagged as UTF-8 and is not")
        return
    defect = name_defect(name)
    if defect:
        scan.add(name, defect)
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
    if is_directory and size:
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
    scan.members.setdefault(name, at_local_header(scan, partial, raw_name))


def _decode(raw: bytes, flags: int) -> str:
    """A member's name: UTF-8 if flagged (Appendix D), else code page 437, as Python's zipfile reads it."""
    return raw.decode("utf-8" if flags & z.FLAG_UTF8 else "cp437")


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
