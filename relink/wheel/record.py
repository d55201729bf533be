"""RECORD: which files a wheel has, how large, with which hash.

Source of the rules: "Recording installed projects" and "Binary distribution format" of the PyPA specifications
(PEP 376, PEP 427): CSV, UTF-8, ``path,algorithm=urlsafe-base64-nopad,size``; RECORD itself and its signatures have no
hash; sha256 or better.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
import os
import re
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from enum import StrEnum
from functools import cache
from typing import Final, Literal

import msgspec

from relink.system.errors import WheelError
from relink.wheel.archive import WheelArchive
from relink.wheel.zipformat import Member

_STRONG: Final = frozenset(
    {"sha256", "sha384", "sha512", "sha3_256", "sha3_384", "sha3_512", "blake2b", "blake2s"}
)
_WEAK: Final = frozenset({"md5", "sha1", "sha224", "sha3_224"})
_BASE64: Final = re.compile(r"[A-Za-z0-9_-]*={0,2}")
_SIGNATURES: Final = ("RECORD.jws", "RECORD.p7s")


class RecordKind(StrEnum):
    """What can be wrong with a line of RECORD, or with a member that has none."""

    NO_HASH = "no-hash"
    WEAK_HASH = "weak-hash"
    HEX_HASH = "hex-hash"
    MALFORMED = "malformed"
    DUPLICATE = "duplicate"
    SIZE_MISMATCH = "size-mismatch"
    NOT_LISTED = "not-listed"
    ABSENT = "absent"
    SIGNATURE_LISTED = "signature-listed"
    STALE = "stale"


#: RECORD is written anew, so what is only missing or weak does no harm in the output.
_WARNINGS: Final = frozenset(
    {
        *(RecordKind.NO_HASH, RecordKind.WEAK_HASH, RecordKind.HEX_HASH),
        *(RecordKind.SIGNATURE_LISTED, RecordKind.STALE),
    }
)

_LINES: Final = 1_000_000
# Lines beyond two for each member. A line without a member is an issue; a million of them would help nobody.
_MORE_LINES: Final = 1000
# Bytes of small members that are verified together, and how many of these at most.
_TASK: Final = 1 << 20
_MOST_TOGETHER: Final = 256


class RecordEntry(msgspec.Struct, frozen=True):
    """One line: ``algorithm`` (as :mod:`hashlib` calls it) and ``digest`` are None together."""

    path: str
    algorithm: str | None
    digest: bytes | None
    size: int | None

    @property
    def hash_field(self) -> str:
        """The second field of the line, empty without a hash."""
        if self.algorithm is None or self.digest is None:
            return ""
        return f"{self.algorithm}={base64.urlsafe_b64encode(self.digest).rstrip(b'=').decode()}"


class RecordIssue(msgspec.Struct, frozen=True):
    """Something wrong with RECORD; ``path`` is the member or, for a malformed line, what stands there."""

    kind: RecordKind
    path: str
    message: str

    @property
    def level(self) -> Literal["warning", "error"]:
        """Whether a wheel with this can still be used."""
        return "warning" if self.kind in _WARNINGS else "error"


def _parse_hash(field: str) -> tuple[str | None, bytes | None]:
    """Take ``algorithm=digest`` apart.

    :raises ValueError: unknown algorithm, not base64, or of the wrong length.
    """
    if not field:
        return None, None
    algorithm, equals, text = field.partition("=")
    algorithm = algorithm.lower()
    if not equals or algorithm not in _STRONG | _WEAK:
        raise ValueError(f"{field!r} is not a hash that relink knows")
    if _is_hex(algorithm, text):
        return algorithm, bytes.fromhex(text)
    # b64decode takes the plain alphabet along with the URL-safe one.
    if not _BASE64.fullmatch(text):
        raise ValueError(f"{text!r} is not URL-safe base64")
    try:
        digest = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not URL-safe base64") from error
    if len(digest) != _digest_size(algorithm):
        raise ValueError(f"{text!r} has the wrong length for {algorithm}")
    return algorithm, digest


@cache
def _digest_size(algorithm: str) -> int:
    """Return how many bytes the digest of one of the known algorithms has."""
    return hashlib.new(algorithm, usedforsecurity=False).digest_size


def _is_hex(algorithm: str, text: str) -> bool:
    """Whether a digest is in hexadecimal, as the splitter of AMD's wheels writes it: no base64 of a digest is as long."""
    return len(text) == 2 * _digest_size(algorithm) and re.fullmatch(r"[0-9a-fA-F]+", text) is not None


def _parse_row(row: list[str]) -> RecordEntry:
    """Parse one line.

    :raises ValueError: it is not what the specification says.
    """
    if len(row) != 3:
        raise ValueError(f"{len(row)} fields instead of 3")
    path, hash_field, size = row
    if not path:
        raise ValueError("the path is empty")
    algorithm, digest = _parse_hash(hash_field)
    # int() would take "1_0", " 1" and other alphabets' digits.
    if size and not (size.isascii() and size.isdigit() and len(size) <= 19):
        raise ValueError(f"{size!r} is not a size")
    return RecordEntry(path, algorithm, digest, int(size) if size else None)


def parse_record(data: bytes, most: int = _LINES) -> tuple[tuple[RecordEntry, ...], tuple[RecordIssue, ...]]:
    """Parse RECORD; malformed lines become issues.

    :param most: lines; a wheel has one for each member.
    :raises WheelError: it is not UTF-8, or has more lines.
    """
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WheelError(f"RECORD is not UTF-8: {error}") from error
    entries: list[RecordEntry] = []
    issues: list[RecordIssue] = []
    # As a stream: as text all of it would take several times the memory.
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8", newline="")
    rows = csv.reader(text, strict=True)
    try:
        for row in rows:
            if not row:
                continue
            if len(entries) + len(issues) >= most:
                raise WheelError(f"RECORD has more than {most} lines")
            try:
                entries.append(_parse_row(row))
                algorithm, _, digest = row[1].partition("=")
                if algorithm and _is_hex(algorithm.lower(), digest):
                    told = "has a hash in hexadecimal, where the format has base64"
                    issues.append(RecordIssue(RecordKind.HEX_HASH, row[0], told))
            except ValueError as error:
                message = f"line {rows.line_num}: {error}"
                issues.append(RecordIssue(RecordKind.MALFORMED, row[0], message))
    except csv.Error as error:
        # Nothing after this can be trusted to be a line: a quote may be open.
        issues.append(RecordIssue(RecordKind.MALFORMED, "", f"line {rows.line_num}: {error}"))
    return tuple(entries), tuple(issues)


def read_record(archive: WheelArchive) -> tuple[tuple[RecordEntry, ...], tuple[RecordIssue, ...]]:
    """:func:`parse_record` of the wheel's own RECORD."""
    return parse_record(archive.read(f"{archive.dist_info}/RECORD"), 2 * len(archive.members) + _MORE_LINES)


def find_signatures(dist_info: str, members: Iterable[str]) -> tuple[str, ...]:
    """Return the members that sign RECORD: they cannot be right any more once RECORD is rewritten."""
    names = {f"{dist_info}/{name}" for name in _SIGNATURES}
    return tuple(member for member in members if member in names)


def check_record(
    entries: Iterable[RecordEntry], members: Mapping[str, Member], dist_info: str
) -> list[RecordIssue]:
    """Compare RECORD's lines with the members, by name and size; :func:`verify_members` compares the contents."""
    issues: list[RecordIssue] = []

    def add(kind: RecordKind, path: str, message: str) -> None:
        issues.append(RecordIssue(kind, path, message))

    record = f"{dist_info}/RECORD"
    unhashed = {record, *find_signatures(dist_info, members)}
    seen: set[str] = set()
    for entry in entries:
        path = entry.path
        if path in seen:
            add(RecordKind.DUPLICATE, path, "has two lines")
            continue
        seen.add(path)
        member = members.get(path)
        if member is None:
            add(RecordKind.ABSENT, path, "is listed and not in the wheel")
            continue
        if path in unhashed:
            if path != record:
                add(RecordKind.SIGNATURE_LISTED, path, "signs RECORD and should not be listed in it")
            continue
        if entry.algorithm is None:
            add(RecordKind.NO_HASH, path, "has no hash")
        elif entry.algorithm in _WEAK:
            add(RecordKind.WEAK_HASH, path, f"has a hash that can be forged ({entry.algorithm})")
        if entry.size is not None and entry.size != member.size:
            kind = RecordKind.STALE if path.startswith(f"{dist_info}/") else RecordKind.SIZE_MISMATCH
            add(kind, path, f"has {member.size} bytes, RECORD says {entry.size}")
    for name, member in members.items():
        if name not in seen and name not in unhashed and not member.is_directory:
            add(RecordKind.NOT_LISTED, name, "is in the wheel and not listed")
    return issues


def is_metadata(archive: WheelArchive, path: str) -> bool:
    """Whether a path lies in the wheel's ``*.dist-info``."""
    return path.startswith(f"{archive.dist_info}/")


def verify_member(archive: WheelArchive, entry: RecordEntry) -> RecordEntry:
    """Compare a member's content with its line of RECORD and return the line with its SHA-256 and size.

    :param entry: the vendor's line; without a hash in it there is nothing to compare, only to compute.
    :raises WheelError: the hash is wrong, or the archive's CRC or size is.
    """
    sha256 = hashlib.sha256()
    named = entry.algorithm or "sha256"
    # usedforsecurity: a system in FIPS mode refuses MD5 and SHA-1 otherwise (hashlib).
    other = sha256 if named == "sha256" else hashlib.new(named, usedforsecurity=False)
    size = 0
    for chunk in archive.chunks(entry.path):
        size += len(chunk)
        sha256.update(chunk)
        if other is not sha256:
            other.update(chunk)
    if entry.digest is not None:
        check_digest(archive, entry, other.digest())
    return RecordEntry(entry.path, "sha256", sha256.digest(), size)


def check_digest(archive: WheelArchive, entry: RecordEntry, digest: bytes) -> None:
    """Compare a content's digest, by the algorithm of `entry`, with that in `entry`.

    That of a file of ``*.dist-info`` may be another one: :mod:`relink.planning.reading` tells it.

    :raises WheelError: it is another one.
    """
    if digest != entry.digest and not is_metadata(archive, entry.path):
        wrong = RecordEntry(entry.path, entry.algorithm, digest, None).hash_field
        raise WheelError(
            f"{archive.path.name}: {entry.path!r} is not the file that RECORD lists "
            f"({wrong} instead of {entry.hash_field})"
        )


def start_verification(
    archive: WheelArchive, entries: Iterable[RecordEntry], pool: ThreadPoolExecutor
) -> list[Future[list[RecordEntry | WheelError]]]:
    """Begin :func:`verify_member` for each of ``entries`` on ``pool``; :func:`collect_entries` waits for them."""
    # isal and hashlib release the interpreter lock (GIL), so threads run in parallel. A task for each small member would cost
    # more than the member.
    tasks: list[list[RecordEntry]] = []
    room = 0
    for entry in entries:
        member = archive.members.get(entry.path)
        size = (member.size if member else 0) + _TASK // _MOST_TOGETHER
        if size > room:
            tasks.append([])
            room = _TASK
        tasks[-1].append(entry)
        room -= size
    return [pool.submit(_verify_several, archive, task) for task in tasks]


def _verify_several(archive: WheelArchive, entries: Iterable[RecordEntry]) -> list[RecordEntry | WheelError]:
    done: list[RecordEntry | WheelError] = []
    for entry in entries:
        try:
            done.append(verify_member(archive, entry))
        except WheelError as error:
            done.append(error)
    return done


def collect_entries(futures: Iterable[Future[list[RecordEntry | WheelError]]]) -> dict[str, RecordEntry]:
    """Wait for :func:`start_verification` and return the lines with SHA-256 and size, by path.

    :raises WheelError: with every member in ``issues`` that is damaged or is not what RECORD lists.
    """
    rows: dict[str, RecordEntry] = {}
    issues: list[str] = []
    for one in (one for future in futures for one in future.result()):
        if isinstance(one, RecordEntry):
            rows[one.path] = one
        else:
            issues.extend([one.message, *one.issues])
    if issues:
        raise WheelError("the wheel's content is not what it should be; get it again", issues)
    return rows


def verify_members(
    archive: WheelArchive, entries: Iterable[RecordEntry], jobs: int | None = None
) -> dict[str, RecordEntry]:
    """Run :func:`verify_member` over ``entries`` on ``jobs`` threads (None: one a processor, at most 4).

    :raises WheelError: with every member in ``issues`` that is damaged or is not what RECORD lists.
    """
    with ThreadPoolExecutor(jobs or default_jobs(), "relink-verify") as pool:
        return collect_entries(start_verification(archive, entries, pool))


def default_jobs() -> int:
    """Return how many threads are used by default: more than 4 wait for memory."""
    return min(4, os.cpu_count() or 1)


def render_record(rows: Iterable[RecordEntry], record: str) -> bytes:
    r"""Write RECORD: the rows in their order, ``record`` (its own path) last, lines ended by ``\n``."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow((row.path, row.hash_field, "" if row.size is None else row.size))
    writer.writerow((record, "", ""))
    return text.getvalue().encode("utf-8")


def with_new_hashes(data: bytes, new: Mapping[str, RecordEntry], gone: Collection[str] = ()) -> bytes:
    """Return a RECORD in which the lines of some files are new, and without those of `gone`; every other byte stays as it is."""
    lines = []
    for line in io.StringIO(data.decode("utf-8", "surrogateescape"), newline=""):
        try:
            path = next(csv.reader([line]))[0] if line.startswith('"') else line.partition(",")[0]
        except csv.Error:
            path = ""
        if path in gone:
            continue
        if row := new.get(path):
            text = io.StringIO(newline="")
            end = line[len(line.rstrip("\r\n")) :]
            csv.writer(text, lineterminator=end).writerow((path, row.hash_field, row.size))
            lines.append(text.getvalue())
        else:
            lines.append(line)
    return "".join(lines).encode("utf-8", "surrogateescape")
