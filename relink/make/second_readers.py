"""Readers that share no code with relink's: pyelftools reads each edited file, and the package `wheel` the finished archive.

:mod:`relink.elf.image` plans an edit, checks the edit and reads the result: a mistake in it would be made three times alike. Here
another implementation of the gABI ("Program Header" and "Dynamic Section") reads what ld.so goes by. Where the two differ on
damaged files, and which one is right, is listed in ``tests/fuzz/readers.py``. Of the archive `wheel` reads the name, the central
directory and RECORD. Both are imported when the first file is read: pyelftools takes 40 ms.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from relink.elf.dynamic import Buffer
from relink.elf.edit import predict_edit
from relink.elf.image import Image
from relink.elf.patchelf import Edited
from relink.planning.model import FilePlan
from relink.system.errors import ElfError
from relink.system.findings.model import Finding, Level, finding
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import NO_LIMITS

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile


# Bytes of one read: the largest structure is an ELF header, the largest piece of a string 64.
_LONGEST_READ: Final = 1 << 12
# Entries of the dynamic array; relink.elf.dynamic has the same limit.
_MAX_ENTRIES: Final = 1 << 16
_MAX_SEGMENTS: Final = 4096
_Result = TypeVar("_Result")
_FIELDS: Final = {
    "needed": "NEEDED",
    "rpath": "RPATH",
    "runpath": "RUNPATH",
    "soname": "the soname",
    "interpreter": "the interpreter",
}


class Linking(msgspec.Struct, frozen=True):
    """The facts that ld.so uses, as pyelftools reads them; the first five fields are those of :class:`relink.elf.image.Image`.

    :ivar headers: the program headers, as pyelftools gives them.
    :ivar dynamic: the last value of each tag of the dynamic array; a tag without a name is a number.
    """

    needed: tuple[str, ...]
    rpath: str | None
    runpath: str | None
    soname: str | None
    interpreter: str | None
    headers: tuple[Any, ...]
    dynamic: Mapping[str | int, int]


class _Stream(io.RawIOBase):
    """A buffer as pyelftools reads it: few bytes at a time, none inside of `gaps`, and no section headers.

    Without section headers pyelftools finds the strings by DT_STRTAB, as ld.so does, and does not read every section's header.
    """

    def __init__(self, view: memoryview, gaps: Sequence[range]) -> None:
        super().__init__()
        self._view, self._cuts, self._at = view, gaps, 0
        head = bytearray(view[:64])
        if len(head) == 64:
            # e_shoff, e_shnum and e_shstrndx (Elf64_Ehdr, Elf32_Ehdr)
            for start, size in ((40, 8), (60, 4)) if head[4] == 2 else ((32, 4), (48, 4)):
                head[start : start + size] = bytes(size)
        self._head = bytes(head)

    def show_all(self) -> None:
        """Show the first bytes as they are, once the ELF header is read: hostile tables may lie inside of it."""
        self._head = b""

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to an offset; see :meth:`io.IOBase.seek`."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes.

        :raises ElfError: they are many, or lie in a gap.
        """
        start, stop = self._at, min(self._at + size, len(self._view))
        if not 0 <= size <= _LONGEST_READ:
            raise ElfError(f"a structure of {size} bytes at {start:#x}")
        if any(start < gap.stop and gap.start < stop for gap in self._cuts):
            raise ElfError(f"a structure at {start:#x}, in the content of a large section")
        self._at = max(start, stop)
        head = self._head[start:stop]
        return head + bytes(self._view[start + len(head) : stop])


def parse_elf(buffer: Buffer, gaps: Sequence[range], read: Callable[[ELFFile, Any], _Result]) -> _Result:
    """Open an ELF file by pyelftools, and return the result of `read` for the file and its stream.

    :param gaps: file offsets at which the bytes are not the file's (:mod:`relink.elf.gaps`); nothing there is read.
    :raises ElfError: pyelftools cannot read it; the message has its reason.
    """
    from elftools.common.exceptions import ELFError  # noqa: PLC0415
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415

    with memoryview(buffer) as raw, raw.cast("B") as view:
        # pyelftools asks for IO[bytes], and uses seek, tell and read.
        stream: Any = _Stream(view, gaps)
        try:
            elf = ELFFile(stream)
            stream.show_all()
            return read(elf, stream)
        # pyelftools raises what Python does where it does not check a number, AssertionError among others.
        except (
            ELFError,
            ArithmeticError,
            AssertionError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            raise ElfError(str(error) or type(error).__name__) from error


def read_linking(elf: ELFFile, stream: Any) -> Linking:
    """Read the facts that ld.so uses.

    Of entries that may occur once the last one counts, as in ld.so (glibc elf/get-dynamic-info.h), of PT_DYNAMIC too
    (elf/dl-load.c), and of PT_INTERP the first, as in Linux (fs/binfmt_elf.c).

    :raises ElfError: what is read has no end, or lies nowhere.
    """
    headers: list[Any] = [part.header for part in islice(elf.iter_segments(), _MAX_SEGMENTS)]
    interpreters = [header.p_offset for header in headers if header.p_type == "PT_INTERP"]
    dynamics = [header.p_offset for header in headers if header.p_type == "PT_DYNAMIC"]
    tags = list(_tags(elf, stream, dynamics[-1])) if dynamics else []
    last = dict(tags)

    def text(offset: int) -> str:
        if "DT_STRTAB" not in last:
            raise ElfError("there is no DT_STRTAB")
        return read_string(stream, find_offset(elf, last["DT_STRTAB"]) + offset)

    def optional(tag: str) -> str | None:
        return text(last[tag]) if tag in last else None

    return Linking(
        needed=tuple(text(value) for tag, value in tags if tag == "DT_NEEDED"),
        rpath=optional("DT_RPATH"),
        runpath=optional("DT_RUNPATH"),
        soname=optional("DT_SONAME"),
        interpreter=read_string(stream, interpreters[0]) if interpreters else None,
        headers=tuple(headers),
        dynamic=last,
    )


def _tags(elf: ELFFile, stream: Any, start: int) -> Iterator[tuple[str | int, int]]:
    """Yield the entries of the dynamic array, up to its DT_NULL."""
    from elftools.common.utils import struct_parse  # noqa: PLC0415

    layout = elf.structs.Elf_Dyn
    for at in islice(count(start, layout.sizeof()), _MAX_ENTRIES):
        entry = struct_parse(layout, stream, at)
        if entry.d_tag == "DT_NULL":
            return
        yield entry.d_tag, entry.d_val
    raise ElfError(f"the dynamic array has more than {_MAX_ENTRIES} entries")


def find_offset(elf: ELFFile, address: int) -> int:
    """Return the file offset of an address.

    :raises ElfError: no PT_LOAD segment has it.
    """
    offset = next(elf.address_offsets(address), None)
    if offset is None:
        raise ElfError(f"no PT_LOAD segment has the address {address:#x}")
    return offset


def read_string(stream: Any, offset: int) -> str:
    """Return a string; pyelftools' own tables fail on a name that is not UTF-8, and in the gABI strings are bytes.

    :raises ElfError: the string has no end.
    """
    from elftools.common.utils import parse_cstring_from_stream  # noqa: PLC0415

    raw = parse_cstring_from_stream(stream, offset)
    if raw is None:
        raise ElfError(f"the string at {offset:#x} has no end")
    return raw.decode("utf-8", "surrogateescape")


def reread_files(
    files: Iterable[FilePlan], images: Mapping[str, Image], edits: Mapping[str, Edited]
) -> Iterator[Finding]:
    """Yield a finding for each edited file in which pyelftools reads something else than was planned.

    :param files: the plan's; unchanged ones are skipped.
    :param images: by member, the facts before the edit; `edits`, the files after it.
    """
    for file in files:
        if not file.changed:
            continue
        planned, edited = predict_edit(images[file.path], file.edit), edits[file.path]
        try:
            other = parse_elf(edited.view, edited.gaps, read_linking)
        except ElfError as error:
            yield finding("RLK610", file.path, f"relink can read it, pyelftools cannot: {error.message}")
            continue
        pairs = {word: (getattr(planned, name), getattr(other, name)) for name, word in _FIELDS.items()}
        issues = [
            f"{word}: relink has {_shown(ours)}, pyelftools reads {_shown(theirs)}"
            for word, (ours, theirs) in pairs.items()
            if ours != theirs
        ]
        if issues:
            yield finding("RLK610", file.path, "; ".join(issues))


def _shown(fact: object) -> str:
    return "nothing" if fact is None else repr(fact)


# Differences that are listed: one mistake can concern every member.
_MOST = 5


def find_refusals(path: Path, members: Iterable[str]) -> list[str]:
    """Open a wheel by ``WheelFile``; return a sentence for each member that ``WheelFile`` refuses or reads otherwise.

    It must accept the file's name, every line of RECORD, and the local header of each member, which must have a hash in RECORD.

    :param members: the names of the members that relink has written, in the archive's order, directories included.
    """
    from wheel.wheelfile import WheelError, WheelFile  # noqa: PLC0415

    issues: list[str] = []
    # What `wheel` raises for damaged lines of RECORD is what Python does: too many fields, hashes that are not base64.
    errors = (
        WheelError,
        zipfile.BadZipFile,
        csv.Error,
        OSError,
        ValueError,
        LookupError,
        NotImplementedError,
    )
    try:
        with WheelFile(path) as other:
            for ours, theirs in zip_longest(members, other.namelist()):
                if ours != theirs:
                    issues.append(f"relink has written the member {ours!r}, wheel reads {theirs!r}")
                elif ours is not None:
                    try:
                        other.open(ours).close()
                    except errors as error:
                        issues.append(f"relink can read the member {ours!r}, wheel cannot: {_reason(error)}")
                if len(issues) > _MOST:
                    break
    except errors as error:
        issues.append(f"relink can open it, wheel cannot: {_reason(error)}")
    return issues


def _reason(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__


def reread_wheel(path: Path) -> Iterator[Finding]:
    """Yield a finding for each thing in a finished wheel that `wheel` refuses, or reads otherwise than relink.

    :raises WheelError: relink's own reader does not take it.
    """
    # The input was read under the user's limits.
    with WheelArchive(path, limits=NO_LIMITS) as archive:
        expected = f"{archive.name.distribution}-{archive.name.version_text}.dist-info"
        # `wheel` looks for a directory of just this name; pip and relink, which keep the vendor's spelling, for any that means
        # the same distribution and version.
        level: Level = "error" if archive.dist_info.lower() == expected.lower() else "warning"
        members = list(archive.members)
    for refusal in find_refusals(path, members):
        yield finding("RLK611", path.name, refusal, level=level)
