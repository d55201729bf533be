"""The local headers of a ZIP file, compared with the central directory; and that every byte belongs to exactly one member.

Installers that seek read the central directory, installers that stream read the local headers. Section numbers: PKWARE
APPNOTE.TXT 6.3.10.
"""

from __future__ import annotations

import struct

from relink.wheel import zipformat as z
from relink.wheel.directory_scan import DirectoryScan
from relink.wheel.extra_fields import extra_fields, has_contradicting_zip64, has_second_name, zip64_values
from relink.wheel.zipformat import Member

__all__ = ["at_local_header", "check_extents"]


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
        # 4.5.3: in a local header the field must have both sizes.
        values = zip64_values(fields, 2)
        if values is None:
            scan.add(name, "local header: sizes are left to a ZIP64 field that is not there")
        else:
            size, compressed = values
    elif has_contradicting_zip64(fields, 0, size, compressed):
        scan.add(name, "local header: a ZIP64 field gives it other sizes")
    if has_second_name(fields, name):
        scan.add(name, "local header: an extra field gives it another name")
    streamed = bool(flags & z.FLAG_DESCRIPTOR)
    for what, local, central in (
        ("flags", flags & ~z.FLAG_LEVEL, member.flags & ~z.FLAG_LEVEL),
        ("method", method, member.method),
        ("crc", crc, member.crc),
        ("compressed size", compressed, member.compressed_size),
        ("size", size, member.size),
    ):
        # 4.4.4, bit 3: the three are zero here and follow the data.
        unknown = streamed and local == 0 and what not in ("flags", "method")
        if local != central and not unknown:
            scan.add(name, f"local header and central directory disagree: {what} {local:#x} and {central:#x}")
    scan.extents.append((at, data_at + member.compressed_size, name))
    # Slots and frozen: dataclasses.replace costs as much as the rest of this function for small members.
    return Member(
        name, member.method, member.flags, member.crc, member.compressed_size, member.size, at, data_at,
        member.mode, member.date_time, member.external_attributes, member.create_system, member.is_directory,
    )  # fmt: skip


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
