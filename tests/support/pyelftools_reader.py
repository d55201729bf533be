"""ELF files read by pyelftools, which shares no code with relink's reader: the second opinion of the fuzz tests.

What an edit can change is read by the specifications (gABI, "Program Header" and "Dynamic Section"; LSB, "Symbol Versioning").
Where the two readers differ on damaged files, and which one is right, is listed in ``tests/fuzz/readers.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from relink.elf.dynamic import Buffer
from relink.elf.edit import ElfEdit, edit_needs
from relink.elf.image import Image, Segment
from relink.elf.symbols import VersionNeed
from relink.make.output import Linking, find_offset, parse_elf, read_linking, read_string
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


def read_with_pyelftools(buffer: Buffer, gaps: Sequence[range] = ()) -> Reading:
    """Read the facts of one ELF file by pyelftools.

    :param gaps: file offsets at which the bytes are not the file's (:mod:`relink.elf.gaps`); nothing there is read.
    :raises ElfError: pyelftools cannot read it; the message has its reason.
    """
    return parse_elf(buffer, gaps, _read)


def _read(elf: ELFFile, stream: Any) -> Reading:
    linking = read_linking(elf, stream)
    needs = tuple(_version_needs(elf, linking, stream))
    segments = tuple(map(_segment, linking.headers))
    return Reading(**{name: getattr(linking, name) for name in _PLANNED}, segments=segments, needs=needs)


class _Strings:
    """A string table for pyelftools, whose own fails on a name that is not UTF-8."""

    def __init__(self, headers: Iterable[Any], stream: Any, address: int) -> None:
        self._stream, self._start = stream, find_offset(headers, address)

    def get_string(self, offset: int) -> str:
        """Return the string at an offset of the table."""
        return read_string(self._stream, self._start + offset)


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


def _version_needs(elf: ELFFile, linking: Linking, stream: Any) -> Iterator[tuple[str, tuple[Version, ...]]]:
    """Yield the version needs, as many as DT_VERNEEDNUM and each record say."""
    from elftools.construct.lib.container import Container  # noqa: PLC0415
    from elftools.elf.gnuversions import GNUVerNeedSection  # noqa: PLC0415

    dynamic, headers = linking.dynamic, linking.headers
    if "DT_VERNEED" not in dynamic:
        return
    if "DT_STRTAB" not in dynamic:
        raise ElfError("there is no DT_STRTAB")
    strings: Any = _Strings(headers, stream, dynamic["DT_STRTAB"])
    # The section header that a file without any would have.
    header = Container(
        sh_offset=find_offset(headers, dynamic["DT_VERNEED"]),
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
        for need in edit_needs(needs, dict(edit.replace), edit.versions)
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
