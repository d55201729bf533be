"""How two wheels differ as ZIP files, beyond the contents of their members: order, times, what the headers say, RECORD's form.

Contents and names are compared elsewhere. What is read here changes no installed file, but data can be hidden in
it, and it is why two wheels of equal contents may have different digests. Source: PKWARE APPNOTE.TXT 4.3 and 4.4.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from relink.provenance import MEMBERS, STORE_MEMBER
from relink.text import join_truncated
from relink.wheel import zipformat as z
from relink.wheel.archive import WheelArchive
from relink.wheel.extra_fields import EXTRA_ZIP64, extra_fields
from relink.wheel.record import parse_record, render_record

__all__ = ["ContainerEntry", "differences", "entries", "unlike_relink"]

_UNIX: Final = 3  # upper byte of "version made by", APPNOTE.TXT 4.4.2.2
_METHODS: Final = {z.STORED: "stored", z.DEFLATED: "deflated"}
_SYSTEMS: Final = {0: "DOS", _UNIX: "Unix", 19: "macOS"}  # APPNOTE.TXT 4.4.2.2


@dataclass(frozen=True, slots=True)
class ContainerEntry:
    """What a ZIP file says of one member beside its name, size and CRC; everything as it is shown.

    :ivar attributes: the external ones without the Unix mode, which is compared with the contents.
    :ivar extra: fields of the central directory but ZIP64's, and bytes of the local header's but ZIP64's own.
    :ivar versions: made by (without the system), needed to extract.
    """

    time: str
    system: str
    method: str
    flags: str
    extra: str
    comment: str
    attributes: str
    versions: str


_WORDS: Final = {
    "time": "time",
    "system": "create_system",
    "method": "method",
    "flags": "flags",
    "extra": "extra fields",
    "comment": "comment",
    "attributes": "attributes",
    "versions": "ZIP versions",
}


def entries(archive: WheelArchive) -> tuple[dict[str, ContainerEntry], bytes]:
    """Return what the central directory says of each member, in its order, and the comment of the whole file.

    The archive has been checked when it was opened; Python's own reader sees the rest.
    """
    with archive.file() as file, zipfile.ZipFile(file) as listing:
        return {item.filename: _entry(archive, item) for item in listing.infolist()}, listing.comment


def _entry(archive: WheelArchive, item: zipfile.ZipInfo) -> ContainerEntry:
    member = archive.member(item.filename)
    return ContainerEntry(
        _time(member.date_time),
        _system(item.create_system),
        _METHODS[item.compress_type],
        f"{item.flag_bits:#06x}",
        _extra(archive, item),
        _shown(item.comment),
        f"{item.external_attr & 0xFFFF:#06x}, internal {item.internal_attr:#06x}",
        f"{item.create_version}, {item.extract_version}",
    )


def _system(number: int) -> str:
    return _SYSTEMS.get(number, str(number))


def _time(moment: z.DosTime) -> str:
    return "{:04}-{:02}-{:02} {:02}:{:02}:{:02}".format(*moment)


def _shown(data: bytes) -> str:
    return f"{len(data)} bytes {data[:40]!r}" if data else "none"


def _extra(archive: WheelArchive, item: zipfile.ZipInfo) -> str:
    """Fields but ZIP64's. In the local header that one has 20 bytes, and is there where the sizes are large."""
    fields = [_field(kind, data) for kind, data in _fields(item.extra) if kind != EXTRA_ZIP64]
    member = archive.member(item.filename)
    name = item.orig_filename.encode("utf-8" if item.flag_bits & z.FLAG_UTF8 else "cp437")
    local = archive.local_extra(member, len(name))
    fields += [f"local {_field(kind, data)}" for kind, data in _fields(local) if kind != EXTRA_ZIP64]
    return ", ".join(fields) or "none"


def _field(kind: int, data: bytes) -> str:
    return f"{len(data)} bytes that are no field" if kind < 0 else f"{kind:#06x} ({len(data)} bytes)"


def _fields(extra: bytes) -> list[tuple[int, bytes]]:
    """The fields, and what is left behind them as one of no kind."""
    fields = extra_fields(extra)
    rest = len(extra) - sum(4 + len(data) for _, data in fields)
    return [*fields, *([(-1, extra[-rest:])] if rest else [])]


def differences(
    before: WheelArchive, after: WheelArchive, names: Mapping[str, str], repacked: Sequence[str]
) -> tuple[str, ...]:
    """Return how the containers of two wheels differ, one line a kind of difference.

    :param names: members that both have, by their names in the new wheel.
    :param repacked: members of the new wheel that have the old content in other compressed bytes.
    """
    old, new = entries(before), entries(after)
    lines = [
        _line(word, [(name, a, b) for name, a, b in _pairs(old[0], new[0], names, field) if a != b])
        for field, word in _WORDS.items()
    ]
    shared = set(names.values())
    lines.append(
        _order([names[name] for name in new[0] if name in names], [name for name in old[0] if name in shared])
    )
    lines.append(f"compressed anew: {join_truncated(repacked, 3)}" if repacked else "")
    if old[1] != new[1]:
        lines.append(f"comment of the archive: {_shown(old[1])} -> {_shown(new[1])}")
    lines += _record_differences(before, after, {old: new for new, old in names.items()})
    return tuple(line for line in lines if line)


def _pairs(
    old: Mapping[str, ContainerEntry], new: Mapping[str, ContainerEntry], names: Mapping[str, str], field: str
) -> Iterator[tuple[str, str, str]]:
    for name, before in names.items():
        yield name, getattr(old[before], field), getattr(new[name], field)


def _line(word: str, differing: Sequence[tuple[str, str, str]]) -> str:
    """``time of 3 members: demo/a.so 2024… -> 2025…``, the first as an example."""
    if not differing:
        return ""
    name, a, b = differing[0]
    return f"{word} of {len(differing)} members: {name}: {a} -> {b}" + ("; …" if len(differing) > 1 else "")


def _order(now: Sequence[str], order: Sequence[str]) -> str:
    differing = [(a, b) for a, b in zip(order, now, strict=True) if a != b]
    return f"order of members: {differing[0][1]} where {differing[0][0]} was" if differing else ""


def _record_differences(
    before: WheelArchive, after: WheelArchive, renamed: Mapping[str, str]
) -> Iterator[str]:
    """How RECORD is written: line ends, and the order of the lines that both have."""
    old, new = (_record(archive) for archive in (before, after))
    if (a := _ends(old)) != (b := _ends(new)):
        yield f"line ends of RECORD: {a} -> {b}"
    olds = [renamed.get(entry.path, entry.path) for entry in parse_record(old)[0]]
    news = [entry.path for entry in parse_record(new)[0]]
    common = set(olds) & set(news)
    if [path for path in olds if path in common] != [path for path in news if path in common]:
        yield "order of RECORD's lines"


def _record(archive: WheelArchive) -> bytes:
    return archive.read(f"{archive.dist_info}/RECORD")


def _ends(data: bytes) -> str:
    found = sorted(set(re.findall(rb"\r\n|\r|\n", data)))
    text = ", ".join(repr(end)[2:-1] for end in found) or "none"
    return text if data.endswith((b"\r", b"\n")) else f"{text}, the last line without"


def unlike_relink(
    before: WheelArchive,
    after: WheelArchive,
    old_names: Mapping[str, str],
    rewritten: Iterable[str],
    left_out: Iterable[str],
    repacked: Sequence[str],
) -> Iterator[str]:
    """Say what of the new container is not as :func:`relink.wheel.writer.write_wheel` makes it of the old one.

    :param old_names: names in the old wheel of the members that both have, by those in the new one.
    :param rewritten: members of the new wheel whose content is not the old one's, or that the old one lacks.
    :param left_out: members of the old wheel that are left out.
    :param repacked: members of the new wheel that have the old content in other compressed bytes.
    """
    (old, _), (new, comment) = entries(before), entries(after)
    info = after.dist_info
    record = f"{info}/RECORD"
    own = {f"{info}/{name}" for name in MEMBERS}
    rewritten = {*rewritten, *(own & set(new))}
    if comment:
        yield f"the archive has a comment, {_shown(comment)}"
    times = {new[name].time for name in rewritten if name in new}
    if len(times) > 1:
        yield f"members that relink writes have several times: {', '.join(sorted(times))}"
    expected: dict[str, Callable[[str], str]] = {
        "time": lambda name: new[name].time if name in rewritten else old[old_names[name]].time,
        "system": lambda name: (
            old[old_names[name]].system if name in old_names and name not in own else _system(_UNIX)
        ),
        "method": lambda name: _expected_method(name, info, old, old_names, rewritten),
        "flags": lambda name: f"{0 if name.isascii() else z.FLAG_UTF8:#06x}",
        "extra": lambda _: "none",
        "comment": lambda _: "none",
        "attributes": lambda name: _expected_attributes(before, name, old_names, own),
        "versions": lambda name: _expected_versions(after, name, new[name]),
    }
    for field, value in expected.items():
        wrong = [
            (name, value(name), found) for name in new if (found := getattr(new[name], field)) != value(name)
        ]
        if wrong:
            name, right, found = wrong[0]
            more = f" ({len(wrong)} members)" if len(wrong) > 1 else ""
            yield f"{name}: {_WORDS[field]} {found}, relink writes {right}{more}"
    new_names = {old: new for new, old in old_names.items()}
    kept = [
        new_names[name]
        for name in old
        if name in new_names and new_names[name] != record and name not in set(left_out)
    ]
    added = [name for name in (f"{info}/{part}" for part in MEMBERS) if name in new]
    order = [*kept, *(name for name in added if name not in kept), record]
    if set(order) == set(new) and order != list(new):
        yield _order(list(new), order).replace("order of members:", "order of members: relink does not write")
    yield from (f"{name}: compressed anew, relink copies it" for name in repacked if name not in rewritten)
    yield from _record_form(after, record)


def _expected_method(
    name: str, info: str, old: Mapping[str, ContainerEntry], old_names: Mapping[str, str], rewritten: set[str]
) -> str:
    if name == f"{info}/{STORE_MEMBER}":
        return _METHODS[z.STORED]
    return _METHODS[z.DEFLATED] if name in rewritten else old[old_names[name]].method


def _expected_attributes(before: WheelArchive, name: str, old_names: Mapping[str, str], own: set[str]) -> str:
    kept = (
        before.member(old_names[name]).external_attributes & 0xFFFF
        if name in old_names and name not in own
        else 0
    )
    return f"{kept:#06x}, internal 0x0000"


def _expected_versions(after: WheelArchive, name: str, found: ContainerEntry) -> str:
    """Needed: 1.0, 2.0 for deflate and directories, 4.5 for ZIP64, which depends on sizes and places (4.4.3.2)."""
    if found.versions == "45, 45":
        return found.versions
    plain = after.member(name).method == z.STORED and not name.endswith("/")
    return f"20, {10 if plain else 20}"


def _record_form(after: WheelArchive, record: str) -> Iterator[str]:
    """RECORD as it is written: a line a member in their order, itself last, LF at line ends, quotes where CSV needs them."""
    data = after.read(record)
    rows = {entry.path: entry for entry in parse_record(data)[0]}
    names = [name for name in after.members if name in rows and name != record]
    if (
        len(names) + (record in rows) == len(rows)
        and render_record((rows[name] for name in names), record) != data
    ):
        yield f"{record}: its lines are not in the order of the members, or not written as relink writes them"
