"""How two wheels differ as ZIP files, beyond the contents of their members: order, times, and what the headers say.

What is read here changes no installed file, but data can be hidden in it, and it is why two wheels of equal contents may have
different digests. That no byte lies outside of members, and no name is there twice, :class:`~relink.wheel.archive.WheelArchive`
has seen. Source: PKWARE APPNOTE.TXT 4.3 and 4.4.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Final

from relink.wheel import zipformat as z
from relink.wheel.archive import WheelArchive
from relink.wheel.extra_fields import EXTRA_ZIP64, extra_fields

# Characters of a fact that is shown; all of it is compared.
_LONGEST: Final = 200


def differences(before: WheelArchive, after: WheelArchive, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return how the containers of two wheels differ, one line a kind of difference.

    :param names: members that both have: new names to old ones.
    """
    (old, old_comment), (new, new_comment) = _read(before), _read(after)
    lines = []
    for what in next(iter(new.values()), {}):
        pairs = ((name, old[names[name]][what], new[name][what]) for name in names)
        if differing := [pair for pair in pairs if pair[1] != pair[2]]:
            name, a, b = differing[0]
            more = "; …" if len(differing) > 1 else ""
            lines.append(f"{what} of {len(differing)} members: {name}: {_shown(a)} -> {_shown(b)}{more}")
    lines += _order([name for name in new if name in names], list(old), {a: b for b, a in names.items()})
    if old_comment != new_comment:
        lines.append(f"comment of the archive: {_shown(old_comment)} -> {_shown(new_comment)}")
    return tuple(lines)


def _order(now: Sequence[str], old: Sequence[str], new_names: Mapping[str, str]) -> Iterator[str]:
    was = (new_names[name] for name in old if name in new_names)
    differing = next(((a, b) for a, b in zip(was, now, strict=True) if a != b), None)
    if differing:
        yield f"order of members: {differing[1]} where {differing[0]} was"


def _read(archive: WheelArchive) -> tuple[dict[str, dict[str, object]], bytes]:
    """Return what the headers say of each member, in the directory's order, and the comment of the whole file.

    The archive has been checked when it was opened; Python's own reader sees the rest.
    """
    with archive.file() as file, zipfile.ZipFile(file) as listing:
        return {item.filename: _facts(archive, file, item) for item in listing.infolist()}, listing.comment


def _facts(archive: WheelArchive, file: BinaryIO, item: zipfile.ZipInfo) -> dict[str, object]:
    """Return what a ZIP file says of one member beside name, mode, sizes and CRC: in the directory, then before the member."""
    member = archive.member(item.filename)
    file.seek(member.header_offset)
    local = file.read(member.data_offset - member.header_offset)
    _, version, _, _, moment, date, *_, name_size, _ = z.LOCAL.unpack_from(local)
    return {
        "time": (member.date_time, z.from_dos_time(date, moment)),
        "create_system": item.create_system,
        "method": item.compress_type,
        "flags": item.flag_bits,
        "extra fields": (_fields(item.extra), _fields(local[z.LOCAL.size + name_size :])),
        "comment": item.comment,
        "attributes": (item.external_attr & 0xFFFF, item.internal_attr),
        "ZIP versions": (item.create_version, item.extract_version, version),
    }


def _fields(extra: bytes) -> tuple[object, ...]:
    """The fields but ZIP64's, which is there where sizes are large, and what is left behind them."""
    fields = extra_fields(extra)
    rest = len(extra) - sum(4 + len(data) for _, data in fields)
    return (*((kind, data) for kind, data in fields if kind != EXTRA_ZIP64), extra[len(extra) - rest :])


def _shown(fact: object) -> str:
    text = repr(fact)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
