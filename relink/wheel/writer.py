"""Writing the relinked wheel: unchanged members are copied without inflating them, and RECORD is made anew.

Follows "Binary distribution format" of the PyPA specifications for names and RECORD, and PKWARE's APPNOTE for ZIP.

The new members are read again: RECORD lists what the file gives back, not what was meant to be in it. The CRC, which was
computed of the content before it was deflated, says whether it is what was meant. Of a member that reuses blocks of an old one
(:mod:`relink.wheel.deflate.splice`) only the new blocks are inflated: the others were when the old one was read, ends included
(:mod:`relink.wheel.deflate.splice`), and must be the same bytes as then. RECORD lists there the content that was deflated.

The bytes depend on the arguments alone: no extra fields but ZIP64's own, no data descriptors, no comments. Section numbers:
PKWARE APPNOTE.TXT 6.3.10.

New content is deflated (RFC 1951) in one pass; the sizes and the CRC are those of section 4.4.
"""

from __future__ import annotations

import calendar
import contextlib
import errno
import hashlib
import os
import shutil
import stat
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import msgspec
from isal import isal_zlib
from msgspec.structs import replace

from relink.system.atomic import atomic_file
from relink.system.errors import RelinkError, UsageError, WheelError, raise_if_machine_fault
from relink.system.progress import OnProgress
from relink.wheel import zipformat as z
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import Changes, NewContent, Packed, PackedAhead, WriteOptions, iterate_content
from relink.wheel.deflate.splice import Deflater, Joiner, Piece, Span
from relink.wheel.deflate.stream import LAST_BLOCK_BYTES, content
from relink.wheel.directory import find_collisions, name_defect
from relink.wheel.metadata import read_metadata, read_tags, rewrite_metadata, rewrite_wheel_info
from relink.wheel.naming import WheelName, rename_directory
from relink.wheel.record import (
    RecordEntry,
    collect_entries,
    default_jobs,
    find_signatures,
    read_record,
    render_record,
    start_verification,
)
from relink.wheel.zipformat import EXTRA_ZIP64, BytesLike, DosTime, Member

# Memory level, of isal's nine: up to 1.5 % smaller than the default at the same speed (measured: onnxruntime-rocm's ELF files).
_ISAL_MEMORY: Final = 4


def _deflater(level: int) -> Deflater:
    """Levels 1 to 3 are isal's (fast), 4 to 9 zlib's (small).

    isal's level 0 is not offered: it makes data that does not compress a quarter larger.
    """
    # -15: a raw stream (RFC 1951) with the largest window, as ZIP has it, without zlib's header.
    if 1 <= level <= 3:
        return isal_zlib.compressobj(level, isal_zlib.DEFLATED, -15, _ISAL_MEMORY)
    return zlib.compressobj(level, zlib.DEFLATED, -15)


def largest_packed_size(method: int, size: int) -> int:
    """Return an upper bound of the compressed size; measured: 0.01 % more than `size` for random data."""
    return size if method == z.STORED else size + size // 8 + 1024


def pack(name: str, new: NewContent, write: Callable[[BytesLike | Span], object], *, level: int) -> Packed:
    """Deflate the content of a member apart from its spans, or store it.

    :param write: takes the compressed bytes, and the spans between them.
    :raises RelinkError: the content does not have the size that was announced.
    """
    announced, method, spans = new.length, new.method, new.spans()
    crc = seen = compressed = 0

    def put(data: BytesLike | Span) -> None:
        nonlocal compressed
        write(data)
        compressed += data.length if isinstance(data, Span) else len(data)

    joiner = Joiner(lambda: _deflater(level), spans, put) if method == z.DEFLATED else None
    digest = hashlib.sha256()
    for data in iterate_content(new.content):
        view = memoryview(data).cast("B")
        if spans:
            digest.update(view)
        if joiner:
            joiner.add(view)
        else:
            crc = isal_zlib.crc32(view, crc)
            put(view)
        seen += len(view)
    made = joiner.finish() if joiner else ()
    for piece in made:
        crc = isal_zlib.crc32_combine(crc, piece.crc, piece.size)
    if seen != announced:
        raise RelinkError(f"{name!r} was announced with {announced} bytes and has {seen}")
    if compressed > largest_packed_size(method, seen):
        raise RelinkError(f"{name!r}: {seen} bytes became {compressed}; please report this")
    return Packed(crc, compressed, seen, made if spans else (), digest.digest() if spans else None)


def pack_ahead(name: str, new: NewContent, level: int, most: int) -> PackedAhead | None:
    """Deflate the content of a member, and return its compressed bytes in order, too; raises as :func:`pack`.

    :param most: bytes of the content apart from its spans; None is returned where there are more.
    """
    if new.length - sum(span.stop - span.start for span in new.spans()) > most:
        return None
    parts: list[bytes | Span] = []

    def put(data: BytesLike | Span) -> None:
        parts.append(data if isinstance(data, Span) else bytes(data))

    return pack(name, new, put, level=level), parts


def new_member(name: str, method: int, moment: DosTime, attributes: int) -> Member:
    """Return the headers of a member whose content is yet to come."""
    # "version made by" is 3 (APPNOTE 4.4.2): the external attributes are Unix permissions.
    return Member(name, method, 0, 0, 0, 0, 0, 0, 0, moment, attributes, 3, name.endswith("/"))


def _needs_zip64(method: int, compressed_size: int, size: int) -> bool:
    """Whether the sizes go to a ZIP64 field (4.5.3).

    A member that is still to be deflated has to be decided by what it may become; a copied one is decided by
    the same rule, so that writing a written wheel again gives the same bytes.
    """
    return max(compressed_size, largest_packed_size(method, size)) >= z.ZIP64_LIMIT


def _version(header: Member, *, zip64: bool) -> int:
    """Version needed to extract (4.4.3), times ten."""
    return 45 if zip64 else 20 if header.method == z.DEFLATED or header.name.endswith("/") else 10


def _encoded(name: str) -> tuple[bytes, int]:
    """The name's bytes and flags: UTF-8, flagged (Appendix D) where that makes a difference."""
    return name.encode("utf-8"), 0 if name.isascii() else z.FLAG_UTF8


def _local(header: Member, crc: int, compressed_size: int, size: int) -> bytes:
    """The local header (4.3.7); its length depends on sizes only by :func:`_needs_zip64`."""
    name, flags = _encoded(header.name)
    date, time = z.dos_time(header.date_time)
    zip64 = _needs_zip64(header.method, compressed_size, size)
    extra = struct.pack("<2H2Q", EXTRA_ZIP64, 16, size, compressed_size) if zip64 else b""
    shown = (z.MARK32, z.MARK32) if zip64 else (compressed_size, size)
    version = _version(header, zip64=zip64)
    fixed = z.LOCAL.pack(
        z.LOCAL_SIGNATURE, version, flags, header.method, time, date, crc, *shown, len(name), len(extra)
    )
    return fixed + name + extra


def _central(entry: Member) -> bytes:
    """The central directory's entry (4.3.12)."""
    name, flags = _encoded(entry.name)
    date, time = z.dos_time(entry.date_time)
    big_size = _needs_zip64(entry.method, entry.compressed_size, entry.size)
    big_offset = entry.header_offset >= z.ZIP64_LIMIT
    values = [entry.size, entry.compressed_size] if big_size else []
    values += [entry.header_offset] if big_offset else []
    extra = struct.pack(f"<2H{len(values)}Q", EXTRA_ZIP64, 8 * len(values), *values) if values else b""
    version = _version(entry, zip64=bool(values))
    return (
        z.CENTRAL.pack(
            z.CENTRAL_SIGNATURE,
            entry.create_system << 8 | max(version, 20),
            version,
            flags,
            entry.method,
            time,
            date,
            entry.crc,
            z.MARK32 if big_size else entry.compressed_size,
            z.MARK32 if big_size else entry.size,
            len(name),
            len(extra),
            0,  # comment
            0,  # disk
            0,  # internal attributes
            entry.external_attributes,
            z.MARK32 if big_offset else entry.header_offset,
        )
        + name
        + extra
    )


class ZipWriter:
    """Writes members to ``file``, from position 0; :meth:`finish` writes the directory.

    :param level: of deflate: 1..3 isal's, 4..9 zlib's. isal's output may differ between kinds of processor.
    """

    def __init__(self, file: BinaryIO, level: int) -> None:
        if not 1 <= level <= 9:
            raise ValueError(f"deflate level {level} is not in 1..9")
        self._file = file
        self._level = level
        self._offset = 0
        self._members: list[Member] = []

    @property
    def members(self) -> Sequence[Member]:
        """What has been written, in order."""
        return self._members

    @property
    def size(self) -> int:
        """Bytes that have been written."""
        return self._offset

    def copy(self, header: Member, raw: Iterable[bytes]) -> None:
        """Add a member whose (compressed) bytes are ``raw``."""
        packed = Packed(header.crc, header.compressed_size, header.size)
        offset = self._offset
        self._write(_local(header, packed.crc, packed.compressed_size, packed.size))
        start = self._offset
        for data in raw:
            self._write(data)
        self._note(header, packed, offset, start)

    def add(self, header: Member, new: NewContent) -> Packed:
        """Add a member with new content, of the method that `header` has; what it says of another content does not count.

        Memory does not depend on the content's size, unless it was deflated ahead.

        :raises RelinkError: the content does not have the size that was announced.
        """
        offset = self._offset
        # A first header with what is known: it is as long as the right one, which replaces it.
        self._write(_local(header, 0, 0, new.length))
        start = self._offset
        ahead = new.ahead.result() if new.ahead else None
        if ahead is None:
            packed = pack(header.name, new, self._write, level=self._level)
        else:
            packed, parts = ahead
            for part in parts:
                self._write(part)
            parts.clear()
        self._file.seek(offset)
        self._file.write(_local(header, packed.crc, packed.compressed_size, packed.size))
        self._file.seek(self._offset)
        self._note(header, packed, offset, start)
        return packed

    def _note(self, header: Member, packed: Packed, offset: int, start: int) -> None:
        self._members.append(
            replace(
                header,
                flags=_encoded(header.name)[1],
                crc=packed.crc,
                compressed_size=packed.compressed_size,
                size=packed.size,
                header_offset=offset,
                data_offset=start,
                mode=header.external_attributes >> 16,
            )
        )

    def finish(self) -> int:
        """Write the central directory and the end records; return the file's size in bytes."""
        start = self._offset
        for member in self._members:
            self._write(_central(member))
        size = self._offset - start
        count = len(self._members)
        if count >= z.ZIP64_COUNT or size >= z.ZIP64_LIMIT or start >= z.ZIP64_LIMIT:
            at = self._offset
            rest = z.END64.size - 12
            self._write(z.END64.pack(z.END64_SIGNATURE, rest, 45, 45, 0, 0, count, count, size, start))
            self._write(z.END64_LOCATOR.pack(z.END64_LOCATOR_SIGNATURE, 0, at, 1))
        short_count = z.MARK16 if count >= z.ZIP64_COUNT else count
        short_size = z.MARK32 if size >= z.ZIP64_LIMIT else size
        short_start = z.MARK32 if start >= z.ZIP64_LIMIT else start
        self._write(z.END.pack(z.END_SIGNATURE, 0, 0, short_count, short_count, short_size, short_start, 0))
        return self._offset

    def _write(self, data: BytesLike | Span) -> None:
        for part in data.stream() if isinstance(data, Span) else (data,):
            self._file.write(part)
            self._offset += len(part)


class ReadBack:
    """Inflates members of a ZIP file while others are still being written to it.

    :param fd: the file; it must stay open until all members have been read or `pool` is shut down.
    :param pool: reads the members; nothing that it runs may wait for :meth:`entries`.
    :param on_progress: called with how many bytes more have been read, each time; on any thread.
    """

    def __init__(
        self, fd: int, pool: ThreadPoolExecutor, on_progress: Callable[[int], object] = lambda _: None
    ) -> None:
        self._fd = fd
        self._on_progress = on_progress
        self._pool = pool
        self._begun: list[Future[RecordEntry]] = []

    def begin(self, member: Member, packed: Packed) -> None:
        """Begin with a member, of which everything is in the file."""
        self._begun.append(self._pool.submit(self._checked, member, packed))

    def entries(self) -> dict[str, RecordEntry]:
        """Wait for all, and return their lines for RECORD by name.

        :raises RelinkError: a member does not have the content that it should have.
        """
        return {entry.path: entry for entry in (reading.result() for reading in self._begun)}

    def _checked(self, member: Member, packed: Packed) -> RecordEntry:
        try:
            if packed.sha256 is None:
                digest = self._digest(member)
            else:
                self._compare(member, packed.pieces)
                digest = packed.sha256
        except WheelError as error:
            raise RelinkError(
                f"{error.message}: the disk does not give back what was written to it"
            ) from error
        return RecordEntry(member.name, "sha256", digest, member.size)

    def _digest(self, member: Member) -> bytes:
        sha256 = hashlib.sha256()
        for chunk in content(self._read, member):
            sha256.update(chunk)
            self._on_progress(len(chunk))
        return sha256.digest()

    def _compare(self, member: Member, pieces: Iterable[Piece]) -> None:
        """Go through a member's compressed data piece by piece."""
        at, end = member.data_offset, member.data_offset + member.compressed_size
        for piece in pieces:
            if piece.span:
                block_at = at
                for data in piece.span.stream():
                    if self._exactly(block_at, len(data)) != data:
                        raise WheelError(f"{member.name!r} has other blocks than were reused")
                    block_at += len(data)
                self._on_progress(piece.size)
            else:
                self._inflate(replace(member, data_offset=at), piece, last=at + piece.length == end)
            at += piece.length

    def _inflate(self, member: Member, piece: Piece, *, last: bool) -> None:
        stop = member.data_offset + piece.length
        # A stream must end with a last block: behind a piece from the middle an empty one is read.
        part = replace(
            member,
            compressed_size=piece.length + (0 if last else len(LAST_BLOCK_BYTES)),
            size=piece.size,
            crc=piece.crc,
        )

        def read(offset: int, length: int) -> bytes:
            return (
                LAST_BLOCK_BYTES[offset - stop :][:length]
                if offset >= stop
                else self._read(offset, min(length, stop - offset))
            )

        for chunk in content(read, part):
            self._on_progress(len(chunk))

    def _exactly(self, offset: int, length: int) -> bytes:
        data = b""
        while len(data) < length:
            data += self._read(offset + len(data), length - len(data))
        return data

    def _read(self, offset: int, length: int) -> bytes:
        """Read at most `length` bytes, at least one."""
        data = os.pread(self._fd, length, offset)
        if not data:
            raise WheelError(f"{length} bytes at {offset} are missing")
        return data


# What the DOS time of a ZIP header can express (APPNOTE 4.4.6), in seconds since 1970.
_FIRST: Final = calendar.timegm((1980, 1, 1, 0, 0, 0))
_LAST: Final = calendar.timegm((2107, 12, 31, 23, 59, 58))
_PIECE: Final = 1 << 20  # bytes hashed at a time
_DEFAULTS: Final = WriteOptions()


_OutputMember: TypeAlias = tuple[Member, Member | NewContent]
"""A member of the output: what its headers say, and the member of the input that is copied, or the new content."""


class WrittenWheel(msgspec.Struct, frozen=True):
    """What was written, and its SHA-256 in hexadecimal."""

    path: Path
    sha256: str


def output_path(archive: WheelArchive, name: WheelName, member: str) -> str:
    """Return what ``member`` of the input is called in the wheel called ``name``.

    dist-info and data directory have the version in their names.
    """
    top, slash, rest = member.partition("/")
    if slash and top in (archive.dist_info, archive.data_dir):
        return f"{rename_directory(top, name)}/{rest}"
    return member


def _check_arguments(archive: WheelArchive, changes: Changes) -> None:
    """Refuse changes that would make no wheel; report every reason at once."""
    replacements = changes.replacements
    own = {f"{archive.dist_info}/{file}" for file in ("METADATA", "WHEEL", "RECORD")}
    named = sorted({*replacements, *changes.removed})
    issues = [f"{path!r} is not in the wheel" for path in named if path not in archive.members]
    for path in named:
        if path in own:
            issues.append(f"{path!r} is written by relink itself")
        elif path in archive.members and archive.members[path].is_directory:
            issues.append(f"{path!r} is a directory and has no content")
    own_output = {output_path(archive, changes.name, path) for path in own}
    for path in changes.additions:
        defect = name_defect(path)
        if defect or path.endswith("/"):
            issues.append(f"{path!r} cannot be added: {defect or 'it is a directory'}")
        elif path in own_output:
            issues.append(f"{path!r} is written by relink itself")
    if issues:
        raise UsageError(f"{archive.path.name} cannot be written like this", issues)


def _own_files(archive: WheelArchive, changes: Changes) -> dict[str, bytes]:
    """Return METADATA and WHEEL by path, where they have to change."""
    name, add, requires = changes.name, changes.metadata, changes.requires
    files: dict[str, bytes] = {}
    path = f"{archive.dist_info}/METADATA"
    data = archive.read(path)
    if add or requires or read_metadata(data).version not in (name.version_text, str(name.version)):
        files[path] = rewrite_metadata(data, name.version_text, add=add, requires=requires)
    path = f"{archive.dist_info}/WHEEL"
    data = archive.read(path)
    if sorted(read_tags(data)) != sorted(name.expanded_tags):
        files[path] = rewrite_wheel_info(data, name.expanded_tags)
    return files


def _output_members(
    archive: WheelArchive, changes: Changes, dropped: AbstractSet[str], new_time: DosTime
) -> list[_OutputMember]:
    """Return what is written, in order, without RECORD; the members in `dropped` are left out."""
    own = {path: NewContent(data) for path, data in _own_files(archive, changes).items()}
    added: dict[str, _OutputMember] = {}
    for path, new in changes.additions.items():
        attributes = (stat.S_IFREG | stat.S_IMODE(new.mode)) << 16
        added[path] = new_member(path, new.method, new_time, attributes), new
    planned: list[_OutputMember] = []
    record = f"{archive.dist_info}/RECORD"
    for path, member in archive.members.items():
        if path in dropped or path == record:
            continue
        target = output_path(archive, changes.name, path)
        # What is added in the place of a member keeps its position.
        if addition := added.pop(target, None):
            planned.append(addition)
            continue
        header = replace(member, name=target)
        if replacement := own.get(path) or changes.replacements.get(path):
            planned.append((replace(header, date_time=new_time, method=z.DEFLATED), replacement))
        else:
            planned.append((header, member))
    planned += added.values()
    issues = find_collisions(header.name for header, _ in planned)
    if issues:
        raise UsageError(f"{archive.path.name} cannot be written like this", issues)
    return planned


def write_wheel(
    archive: WheelArchive,
    directory: Path,
    changes: Changes,
    options: WriteOptions = _DEFAULTS,
    *,
    vendor: Mapping[str, RecordEntry] | None = None,
    on_progress: OnProgress = lambda _: None,
) -> WrittenWheel:
    """Write ``archive`` with ``changes`` to ``directory / changes.name.filename``: the whole file appears, or nothing.

    METADATA's Version, WHEEL's Tags and RECORD follow the name; so do the names of the dist-info and the data directory.
    Signatures of RECORD are left out. All other members keep order, mode and, unless replaced, compressed bytes and time. The
    same input, changes, epoch, level and kind of processor give the same output, whatever ``jobs`` is; and the output written
    again under the same name gives the same bytes.

    :param vendor: the lines of the input's RECORD by path, if these were read before.
    :param on_progress: called with the number of bytes, unpacked, of copied members that are in the output, and of new ones that
        have been read back.
    :raises WheelError: a copied member is damaged or is not what RECORD lists.
    :raises UsageError: the changes make no wheel.
    :raises RelinkError: the output cannot be written.
    """
    name = changes.name
    _check_arguments(archive, changes)
    # Of new members: `epoch` in UTC, clipped to what ZIP can express, or that of the input's RECORD.
    new_time = archive.members[f"{archive.dist_info}/RECORD"].date_time
    if options.epoch is not None:
        year, month, day, hour, minute, second, *_ = time.gmtime(min(max(options.epoch, _FIRST), _LAST))
        new_time = year, month, day, hour, minute, second
    dropped = {*find_signatures(archive.dist_info, archive.members), *changes.removed}
    planned = _output_members(archive, changes, dropped, new_time)
    copied = [member.name for _, member in planned if isinstance(member, Member) and not member.is_directory]
    if vendor is None:
        vendor = {entry.path: entry for entry in read_record(archive)[0]}
    # Lines of the vendor's that can be used unchecked.
    trusted = () if options.verify else (path for path in copied if path in vendor)
    rows = {
        path: replace(vendor[path], size=archive.members[path].size)
        for path in trusted
        if vendor[path].algorithm == "sha256"
    }
    unknown = [vendor.get(path, RecordEntry(path, None, None, None)) for path in copied if path not in rows]
    target = directory / name.filename
    with contextlib.ExitStack() as stack:
        stack.enter_context(_os_errors_of(target))
        file = stack.enter_context(atomic_file(target))
        writer = ZipWriter(file, options.level)
        # The tasks of the pool read the file, so they end before it is closed. None waits for another one.
        pool = ThreadPoolExecutor(options.jobs or default_jobs(), "relink-members")
        stack.callback(pool.shutdown, cancel_futures=True)
        readback = ReadBack(file.fileno(), pool, on_progress)
        verification = start_verification(archive, unknown, pool)
        for header, content in planned:
            if isinstance(content, Member):
                writer.copy(header, archive.raw(content.name))
                on_progress(content.size)
                continue
            packed = writer.add(header, content)
            file.flush()
            readback.begin(writer.members[-1], packed)
        # The digest is computed now, and not while writing: `ZipWriter.add` has patched local headers.
        digest, members_end = hashlib.sha256(), writer.size
        file.flush()
        hashing = pool.submit(_hash, digest, file.fileno(), range(members_end))
        # The disk works while the pool computes; the fsync at the end then has little to do.
        os.fdatasync(file.fileno())
        entries = readback.entries()
        rows |= collect_entries(verification)
        lines = tuple(
            replace(rows[content.name], path=header.name)
            if isinstance(content, Member)
            else entries[header.name]
            for header, content in planned
            if not (isinstance(content, Member) and content.is_directory)
        )
        _write_record(archive, writer, name, lines, new_time)
        size = writer.finish()
        file.flush()
        hashing.result()
        _hash(digest, file.fileno(), range(members_end, size))
    return WrittenWheel(target, digest.hexdigest())


@contextlib.contextmanager
def _os_errors_of(target: Path) -> Iterator[None]:
    """Turn an OSError into a RelinkError that says that the output cannot be written, and why."""
    try:
        yield
    except OSError as error:
        raise_if_machine_fault(error, f"{target} cannot be written")
        reason = error.strerror or str(error)
        # The file in question may also be one that a replacement is read from.
        where = f" ({error.filename})" if error.filename else ""
        text = f"{target} cannot be written: {reason}{where}; resolve that, or choose another directory"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            place = next(path for path in target.parents if not path.name.startswith(".relink-"))
            free = shutil.disk_usage(place).free / 1e6
            text = f"{place}: {reason} for {target.name} ({free:.1f} MB are free); free some, or name another by --output"
        raise RelinkError(text) from error


def _write_record(
    archive: WheelArchive,
    writer: ZipWriter,
    name: WheelName,
    rows: tuple[RecordEntry, ...],
    new_time: DosTime,
) -> None:
    """Write RECORD as the last member. It is copied if it does not change, so that rewriting gives the same bytes."""
    path = f"{archive.dist_info}/RECORD"
    target = output_path(archive, name, path)
    member = archive.members[path]
    header = replace(member, name=target)
    data = render_record(rows, target)
    if data == archive.read(path):
        writer.copy(header, archive.raw(path))
    else:
        writer.add(replace(header, date_time=new_time, method=z.DEFLATED), NewContent(data))


def _hash(digest: hashlib._Hash, file: int, part: range) -> None:
    """Hash a part of an open file."""
    start = part.start
    # A network file system may give less than was asked for.
    while data := os.pread(file, min(_PIECE, part.stop - start), start):
        digest.update(data)
        start += len(data)
