"""The end records of a ZIP file: where the central directory is, and how many entries it has.

The last record whose comment ends with the file counts. ZIP64's records (PKWARE APPNOTE.TXT 6.3.10, 4.3.14 and 4.3.15) must agree
with it, lie directly before it, and directly behind the directory: readers differ on anything else.
"""

from __future__ import annotations

from typing import NamedTuple

from relink.wheel import zipformat as z
from relink.wheel.directory_scan import DirectoryScan, unreadable

__all__ = ["EndRecord", "read_end_records"]


class EndRecord(NamedTuple):
    """What the end records say: number of entries, and where the directory is."""

    entries: int
    size: int
    offset: int


def _find_end(scan: DirectoryScan) -> tuple[int, tuple[int, ...]]:
    """Return offset and fields of the end record (4.3.16): the last one whose comment ends with the file."""
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
        at = tail.rfind(z.END_SIGNATURE, 0, at + 3)
    if last >= 0:
        raise unreadable("trailing data after the end record, or the file is cut inside it")
    raise unreadable("no end of central directory record: the file is truncated, or not a ZIP file")


def read_end_records(scan: DirectoryScan) -> EndRecord:
    """Read the end records, with ZIP64's (4.3.14, 4.3.15) if there are any, and check that they join up."""
    at, (disk, first_disk, here, entries, size, offset, _) = _find_end(scan)
    end = EndRecord(entries, size, offset)
    locator_at = at - z.END64_LOCATOR.size
    locator = scan.read(locator_at, z.END64_LOCATOR.size) if locator_at >= 0 else b""
    if locator.startswith(z.END64_LOCATOR_SIGNATURE):
        _, end64_disk, end64_at, disks = z.END64_LOCATOR.unpack(locator)
        if end64_at + z.END64.size > locator_at:
            raise unreadable("the ZIP64 locator points outside of the file")
        signature, rest, _, _, disk64, first64, here64, *values = z.END64.unpack(
            scan.read(end64_at, z.END64.size)
        )
        if signature != z.END64_SIGNATURE or end64_at + 12 + rest != locator_at:
            raise unreadable(
                "the ZIP64 locator does not point at a ZIP64 end record that ends where it begins"
            )
        if end64_at + z.END64.size != locator_at:
            raise unreadable(
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
            raise unreadable("the archive says it is one disk of several")
        at = end64_at
    elif disk or first_disk:
        raise unreadable("the archive says it is one disk of several")
    if here != end.entries:
        raise unreadable("the archive says it is one disk of several")
    if end.offset + end.size > at:
        raise unreadable(
            "the central directory reaches past the end record: the file is truncated or damaged"
        )
    if end.offset + end.size < at:
        gap = at - end.offset - end.size
        raise unreadable(f"{gap} bytes between central directory and end record, or prepended to the file")
    return end
