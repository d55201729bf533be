"""ELF files read by pyelftools, which shares no code with relink's reader: the second opinion of the fuzz tests.

What an edit can change is read by the specifications (gABI, "Program Header" and "Dynamic Section"; LSB, "Symbol Versioning").
Where the two readers differ on damaged files, and which one is right, is listed in ``tests/fuzz/readers.py``.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice, zip_longest
from typing import TYPE_CHECKING, Any, Final

from relink.elf.image import Buffer, Image, Segment
from relink.elf.patchelf import ElfEdit
from relink.elf.version_edits import edited_needs
from relink.elf.versions import VersionNeed
from relink.system.errors import ElfError

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

__all__ = [
    "Reading",
    "differences",
    "planned_needs",
    "read_with_pyelftools",
]

Version = tuple[str, int, bool, bool, int]
"""Of a version that is required: name, number, whether it is weak, whether it is hidden, hash."""
VersionNeeds = tuple[tuple[str, tuple[Version, ...]], ...]
"""By soname, in the file's order, the versions that are required of it."""

_LONGEST_READ: Final = (
    1 << 12
)  # bytes: the largest structure that is read is an ELF header, the largest chunk of a string 64
_MAX_ENTRIES: Final = 1 << 16  # of the dynamic array; relink.elf.dynamic has the same limit
_MAX_SEGMENTS: Final = 4096
_MAX_VERSIONS: Final = 1 << 15  # a version number has 15 bits


@dataclass(frozen=True, slots=True)
class Reading:
    """What pyelftools says of a file; the fields are those of :class:`relink.elf.image.Image`.

    :ivar needs: the version needs (DT_VERNEED).
    """

    needed: tuple[str, ...]
    rpath: str | None
    runpath: str | None
    soname: str | None
    interpreter: str | None
    segments: tuple[Segment, ...]
    needs: VersionNeeds


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


class _Strings:
    """A string table for pyelftools, whose own fails on a name that is not UTF-8; in the gABI strings are bytes."""

    def __init__(self, elf: ELFFile, stream: Any, address: int) -> None:
        self._stream, self._start = stream, _offset(elf, address)

    def get_string(self, offset: int) -> str:
        """Return the string at an offset of the table.

        :raises ElfError: it has no end.
        """
        return _string(self._stream, self._start + offset)


def _string(stream: Any, offset: int) -> str:
    from elftools.common.utils import parse_cstring_from_stream  # noqa: PLC0415

    raw = parse_cstring_from_stream(stream, offset)
    if raw is None:
        raise ElfError(f"the string at {offset:#x} has no end")
    return raw.decode("utf-8", "surrogateescape")


def read_with_pyelftools(buffer: Buffer, gaps: Sequence[range] = ()) -> Reading:
    """Read the facts of one ELF file by pyelftools.

    Of entries that may occur once the last one counts, as in ld.so (glibc elf/get-dynamic-info.h), of PT_DYNAMIC too
    (elf/dl-load.c), and of PT_INTERP the first, as in Linux (fs/binfmt_elf.c).

    :param gaps: file offsets at which the bytes are not the file's (:mod:`relink.elf.gaps`); nothing there is read.
    :raises ElfError: pyelftools cannot read it; the message has its reason.
    """
    from elftools.common.exceptions import ELFError  # noqa: PLC0415
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415

    with memoryview(buffer) as raw, raw.cast("B") as view:
        stream: Any = _Stream(view, gaps)  # pyelftools asks for IO[bytes], and uses seek, tell and read
        try:
            elf = ELFFile(stream)
            stream.show_all()
            return _read(elf, stream)
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


def _read(elf: ELFFile, stream: Any) -> Reading:
    headers: list[Any] = [part.header for part in islice(elf.iter_segments(), _MAX_SEGMENTS)]
    interpreters = [header.p_offset for header in headers if header.p_type == "PT_INTERP"]
    dynamics = [header.p_offset for header in headers if header.p_type == "PT_DYNAMIC"]
    tags = list(_tags(elf, stream, dynamics[-1])) if dynamics else []
    last = dict(tags)
    strings = _Strings(elf, stream, last["DT_STRTAB"]) if "DT_STRTAB" in last else None

    def text(offset: int) -> str:
        if strings is None:
            raise ElfError("there is no DT_STRTAB")
        return strings.get_string(offset)

    return Reading(
        needed=tuple(text(value) for tag, value in tags if tag == "DT_NEEDED"),
        rpath=text(last["DT_RPATH"]) if "DT_RPATH" in last else None,
        runpath=text(last["DT_RUNPATH"]) if "DT_RUNPATH" in last else None,
        soname=text(last["DT_SONAME"]) if "DT_SONAME" in last else None,
        interpreter=_string(stream, interpreters[0]) if interpreters else None,
        segments=tuple(map(_segment, headers)),
        needs=tuple(_version_needs(elf, last, strings)),
    )


def _tags(elf: ELFFile, stream: Any, start: int) -> Iterator[tuple[str | int, int]]:
    """Yield the entries of the dynamic array, up to its DT_NULL; a tag without a name is a number."""
    from elftools.common.utils import struct_parse  # noqa: PLC0415

    layout = elf.structs.Elf_Dyn
    for at in islice(count(start, layout.sizeof()), _MAX_ENTRIES):
        entry = struct_parse(layout, stream, at)
        if entry.d_tag == "DT_NULL":
            return
        yield entry.d_tag, entry.d_val
    raise ElfError(f"the dynamic array has more than {_MAX_ENTRIES} entries")


def _offset(elf: ELFFile, address: int) -> int:
    offset = next(elf.address_offsets(address), None)
    if offset is None:
        raise ElfError(f"no PT_LOAD segment has the address {address:#x}")
    return offset


def _segment(header: Any) -> Segment:
    """Return a program header; pyelftools gives the type's name where it knows one, which depends on the machine."""
    from elftools.elf import enums  # noqa: PLC0415

    kind = header.p_type
    if isinstance(kind, str):
        machines = ("AARCH64", "ARM", "MIPS", "RISCV")
        known = [enums.ENUM_P_TYPE_BASE, *(getattr(enums, f"ENUM_P_TYPE_{name}") for name in machines)]
        kind = next(table[kind] for table in known if kind in table)
    return Segment(
        kind, header.p_flags, header.p_offset, header.p_vaddr, header.p_filesz, header.p_memsz, header.p_align
    )


def _version_needs(
    elf: ELFFile, dynamic: dict[str | int, int], strings: Any
) -> Iterator[tuple[str, tuple[Version, ...]]]:
    """Yield the version needs, as many as DT_VERNEEDNUM and each record say."""
    from elftools.construct.lib.container import Container  # noqa: PLC0415
    from elftools.elf.gnuversions import GNUVerNeedSection  # noqa: PLC0415

    if "DT_VERNEED" not in dynamic:
        return
    if strings is None:
        raise ElfError("there is no DT_STRTAB")
    # The section header that a file without any would have.
    header = Container(
        sh_offset=_offset(elf, dynamic["DT_VERNEED"]),
        sh_info=dynamic.get("DT_VERNEEDNUM", 0),
        sh_flags=0,
        sh_size=0,
        sh_addralign=4,
    )
    section = GNUVerNeedSection(header, ".gnu.version_r", elf, strings)
    total = 0
    for need, versions in section.iter_versions():
        required = []
        for version in versions:
            total += 1
            if total > _MAX_VERSIONS:
                raise ElfError(f"more than {_MAX_VERSIONS} versions")
            number, flags = version["vna_other"], version["vna_flags"]
            required.append(
                (version.name, number & 0x7FFF, bool(flags & 2), bool(number & 0x8000), version["vna_hash"])
            )
        yield need.name or "", tuple(required)


def planned_needs(needs: Iterable[VersionNeed], edit: ElfEdit) -> VersionNeeds:
    """Return the version needs that a file has after an edit: those of before, with what the edit changes."""
    return tuple(
        (
            need.file,
            tuple(
                (version.name, version.index, version.weak, version.hidden, version.hash)
                for version in need.versions
            ),
        )
        for need in edited_needs(needs, dict(edit.replace), edit.versions)
    )


_PLANNED: Final = {
    "needed": "NEEDED",
    "rpath": "RPATH",
    "runpath": "RUNPATH",
    "soname": "the soname",
    "interpreter": "the interpreter",
}


def differences(
    buffer: Buffer,
    planned: Image,
    segments: Sequence[Segment],
    needs: VersionNeeds,
    gaps: Sequence[range] = (),
) -> list[str]:
    """Compare what pyelftools reads in an edited file with the plan; returns a sentence for each field that differs.

    The plan does not say where patchelf puts a segment; there the answer of relink's own reader is compared.

    :param buffer: the bytes after the edit.
    :param planned: the facts that were asked for (:func:`relink.elf.patchelf.result_of`).
    :param segments: the program headers as relink reads them in `buffer`.
    :param needs: :func:`planned_needs`.
    :param gaps: see :func:`read_with_pyelftools`.
    """
    try:
        other = read_with_pyelftools(buffer, gaps)
    except ElfError as error:
        return [f"relink can read the edited file, pyelftools cannot: {error.message}"]
    fields = [(word, getattr(planned, name), getattr(other, name)) for name, word in _PLANNED.items()]
    fields += [
        (f"segment {number}", ours, theirs)
        for number, (ours, theirs) in enumerate(zip_longest(segments, other.segments))
    ]
    fields += [
        (f"version need {number}", ours, theirs)
        for number, (ours, theirs) in enumerate(zip_longest(needs, other.needs))
    ]
    return [
        f"{word}: relink has {_shown(ours)}, pyelftools reads {_shown(theirs)}"
        for word, ours, theirs in fields
        if ours != theirs
    ]


def _shown(fact: object) -> str:
    return "nothing" if fact is None else repr(fact)
