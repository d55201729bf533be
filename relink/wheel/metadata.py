"""METADATA and WHEEL: reading the few fields relink needs, and changing the few it must, byte by byte.

Source of the rules: "Core metadata" and "Binary distribution format" of the PyPA specifications. Both files have
the form of an e-mail's header; where the header ends is decided as Python's :mod:`email` does, since pip and
`packaging` read the files with it. Parsing and printing the whole would change folding, line ends and order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from relink.system.errors import WheelError
from relink.wheel.naming import WheelName

# email.feedparser: a header line is a name of printable characters and a colon, or the continuation of one.
_HEADER = re.compile(
    rb"(?P<name>[\x21-\x39\x3b-\x7e]+):(?P<space>[ \t]*)(?P<value>[^\r\n]*)(?P<end>\r\n|\r|\n|\Z)"
)
# email.feedparser goes on behind such lines without a field: no name, a "From " of mailboxes, or a continuation of nothing.
_IGNORED = re.compile(rb"(?::|From |[ \t])[^\r\n]*(?:\r\n|\r|\n|\Z)")
# Bytes of METADATA or WHEEL; a long description has one MiB.
_MAX_SIZE = 16 << 20
# Fields of a header, and lines that are none; a distribution with many extras has some hundreds.
_MAX_FIELDS = 10_000
_CONTINUATION = re.compile(rb"[ \t][^\r\n]*(?:\r\n|\r|\n|\Z)")


class Metadata(msgspec.Struct, frozen=True):
    """The fields of METADATA that relink looks at, as spelled there."""

    name: str
    version: str
    requires_dist: tuple[str, ...]
    requires_python: str | None = None

    def requirements(self) -> Iterator[tuple[str, Requirement]]:
        """Yield the requirements that can be read, each with its text; markers are not decided."""
        for text in self.requires_dist:
            try:
                yield text, Requirement(text)
            except (InvalidRequirement, RecursionError):  # a marker in thousands of brackets
                continue

    def required(self) -> Iterator[str]:
        """Yield the normalized names of the distributions that are required without an extra."""
        return (name for name, _ in self.required_extras())

    def required_extras(self) -> Iterator[tuple[str, set[str]]]:
        """Yield the same names, each with the extras of theirs that are required."""
        for _, requirement in self.requirements():
            if "extra" not in str(requirement.marker):
                yield canonicalize_name(requirement.name), requirement.extras


class _Field(msgspec.Struct, frozen=True):
    """One header: its lower-case name, where it begins and ends (continuations included), its first line."""

    name: str
    start: int
    stop: int
    line: re.Match[bytes]
    folded: bool

    @property
    def value(self) -> str:
        return self.line["value"].decode("utf-8").strip()


def _header(data: bytes, file: str) -> list[_Field]:
    """Find the header fields of ``data``.

    :raises WheelError: it is not UTF-8, is too large, or has too many fields.
    """
    if len(data) > _MAX_SIZE:
        raise WheelError(f"{file} has {len(data)} bytes; at most {_MAX_SIZE} are expected")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WheelError(f"{file} is not UTF-8: {error}") from error
    fields: list[_Field] = []
    position, ignored = 0, 0
    while position < len(data):
        if (line := _HEADER.match(data, position)) is None:
            if (line := _IGNORED.match(data, position)) is None:
                break
            position, ignored = line.end(), ignored + 1
            if ignored > _MAX_FIELDS:
                raise WheelError(f"{file} has more than {_MAX_FIELDS} lines that are no field")
            continue
        position = line.end()
        folded = False
        while position < len(data) and (more := _CONTINUATION.match(data, position)):
            position = more.end()
            folded = True
        if len(fields) >= _MAX_FIELDS:
            raise WheelError(f"{file} has more than {_MAX_FIELDS} fields")
        fields.append(_Field(line["name"].decode("ascii").lower(), line.start(), position, line, folded))
    return fields


def _one(fields: Sequence[_Field], name: str, file: str) -> _Field:
    """Return the field that must be there exactly once and on one line."""
    matching = [field for field in fields if field.name == name.lower()]
    if len(matching) != 1 or matching[0].folded or not matching[0].value:
        how = f"{len(matching)} times" if len(matching) != 1 else "empty or folded"
        raise WheelError(f"{file} has the field {name} {how}; it must be there once, on one line")
    return matching[0]


def _values(fields: Sequence[_Field], name: str) -> tuple[str, ...]:
    return tuple(field.value for field in fields if field.name == name.lower())


def read_metadata(data: bytes) -> Metadata:
    """Read METADATA.

    :raises WheelError: not UTF-8, or Name or Version is not there exactly once.
    """
    fields = _header(data, "METADATA")
    return Metadata(
        _one(fields, "Name", "METADATA").value,
        _one(fields, "Version", "METADATA").value,
        _values(fields, "Requires-Dist"),
        next(iter(_values(fields, "Requires-Python")), None),
    )


def read_tags(data: bytes) -> tuple[str, ...]:
    """Return the tags in WHEEL, as spelled there.

    :raises WheelError: not UTF-8.
    """
    return _values(_header(data, "WHEEL"), "Tag")


def check_metadata(metadata: Metadata, name: WheelName) -> list[str]:
    """Say where METADATA names another distribution or version than the filename: pip refuses such wheels."""
    issues: list[str] = []
    if canonicalize_name(metadata.name) != name.canonical:
        issues.append(f"METADATA is of {metadata.name!r}, the filename of {name.distribution!r}")
    try:
        same = Version(metadata.version) == name.version
    except ValueError:  # InvalidVersion, or more digits than Python makes a number of
        same = False
    if not same:
        issues.append(f"METADATA is of version {metadata.version!r}, the filename of {name.version_text!r}")
    return issues


def rewrite_metadata(
    data: bytes,
    version: str,
    *,
    add: Sequence[str] = (),
    requires: Mapping[str, str | None] | None = None,
) -> bytes:
    """Return METADATA with another Version; every other byte stays.

    :param add: header lines to add at the end of the header, except an extra that is there already.
    :param requires: a Requires-Dist as it is spelled → the one in its place, or None to take it out.
    :raises WheelError: not UTF-8, or Version is not there exactly once.
    """
    # From the last field to the first, so that the places of the fields before stay right.
    for field in reversed(_header(data, "METADATA") if requires else []):
        if requires and field.name == "requires-dist" and field.value in requires:
            after = requires[field.value]
            end = field.line["end"] or b"\n"
            new_field = b"" if after is None else f"Requires-Dist: {after}".encode() + end
            data = data[: field.start] + new_field + data[field.stop :]
    fields = _header(data, "METADATA")
    line = _one(fields, "Version", "METADATA").line
    extras = {f"Provides-Extra: {extra}" for extra in _values(fields, "Provides-Extra")}
    new = [text for text in add if text not in extras]
    end, stop = line["end"] or b"\n", fields[-1].stop
    before = data[line.end("value") : stop]
    if new and not before.endswith((b"\n", b"\r")):
        before += end
    lines = b"".join(text.encode() + end for text in new)
    return data[: line.start("value")] + version.encode() + before + lines + data[stop:]


def rewrite_wheel_info(data: bytes, tags: Sequence[str]) -> bytes:
    """Return WHEEL with ``tags`` (``python-abi-platform``) in place of its own; every other byte stays.

    The new lines stand where the first Tag stood, or at the end of the header.

    :raises WheelError: not UTF-8.
    """
    fields = _header(data, "WHEEL")
    old = [field for field in fields if field.name == "tag"]
    model = old[0] if old else fields[-1] if fields else None
    line_end = (model.line["end"] if model else b"") or b"\n"
    lines = b"".join(b"Tag: " + tag.encode() + line_end for tag in tags)
    at = old[0].start if old else fields[-1].stop if fields else 0
    unended = fields and not old and not data[:at].endswith((b"\n", b"\r"))
    starts = [field.stop for field in old] or [at]
    stops = [*(field.start for field in old[1:]), len(data)]
    rest = (data[start:stop] for start, stop in zip(starts, stops, strict=True))
    return b"".join([data[:at], line_end if unended else b"", lines, *rest])
