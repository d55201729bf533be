"""The directory in which an output is made, beside its final name: created, filled, and published or removed.

Takes new contents as they come and the rest of the output when it is known. Threads deflate, write and read back while the
caller goes on; :meth:`Staging.publish` waits for them.

Readers that share no code with relink's read the output: pyelftools each edited file, the package `wheel` the finished archive.
:mod:`relink.elf.image` plans an edit, checks the edit and reads the result: a mistake in it would be made three times alike. So
another implementation of the gABI ("Program Header" and "Dynamic Section") reads what ld.so goes by. Where the two differ on
damaged files, and which one is right, is listed in ``tests/fuzz/readers.py``. Of the archive `wheel` reads the name, the central
directory and RECORD. Both are imported when the first file is read: pyelftools takes 40 ms.
"""

from __future__ import annotations

import csv
import errno
import io
import os
import shutil
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import count, islice, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec
from msgspec.structs import replace

from relink.elf.dynamic import Buffer
from relink.elf.edit import predict_edit
from relink.elf.image import Image
from relink.elf.patchelf import Edited
from relink.planning.contents import Contents, divide_memory
from relink.planning.model import FilePlan
from relink.planning.options import COMPRESSION_LEVELS, Options
from relink.system.atomic import move_synced, working_directory
from relink.system.errors import ElfError, RelinkError, UsageError, raise_if_machine_fault
from relink.system.findings.model import Finding, Level, finding
from relink.system.progress import OnProgress
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import Changes, NewContent, WriteOptions
from relink.wheel.limits import NO_LIMITS
from relink.wheel.naming import WheelName
from relink.wheel.record import default_jobs, verify_members
from relink.wheel.writer import pack_ahead, write_wheel

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
        return read_string(stream, find_offset(headers, last["DT_STRTAB"]) + offset)

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


def find_offset(headers: Iterable[Any], address: int) -> int:
    """Return the file offset of an address, by the program headers that pyelftools has read.

    :raises ElfError: no PT_LOAD segment has it.
    """
    for header in headers:
        if header.p_type == "PT_LOAD" and header.p_vaddr <= address < header.p_vaddr + header.p_filesz:
            return int(header.p_offset + address - header.p_vaddr)
    raise ElfError(f"no PT_LOAD segment has the address {address:#x}")


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


# Bytes of a member with gaps that are deflated anew around the spans in these.
_SPARE: Final = 16 << 20
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


_ELSEWHERE: Final = "name another directory by --output"
_STEPS: Final = {
    errno.ENOSPC: f"make room there, or {_ELSEWHERE}",
    errno.EDQUOT: f"make room in your quota, or {_ELSEWHERE}",
    errno.EFBIG: "files may not be that large there; raise the limit of this process (ulimit -f)",
    errno.ENAMETOOLONG: "names may not be that long there; shorten it by --local-version or --keep-version",
    errno.EISDIR: f"move the directory of that name away, or {_ELSEWHERE}",
}
"""What to do about an output that cannot be written, where another directory is not the answer, or not the only one."""


class Staging:
    """The making of one output; a context manager that removes an output that was not published.

    :param contents: the input.
    :param name: of the output.
    :param on_progress: called with the number of bytes that have been written or read back; on any thread.
    :raises UsageError: the directory cannot be written to.
    """

    final: Path
    directory: Path

    def __init__(
        self, contents: Contents, name: WheelName, options: Options, on_progress: OnProgress = lambda _: None
    ) -> None:
        self.final = options.output_place / name.filename
        self._contents = contents
        self._name = name
        self._options = options
        self._write_options = WriteOptions(
            options.epoch,
            COMPRESSION_LEVELS[options.compress],
            options.verify_record,
            options.jobs,
        )
        self._on_progress = on_progress
        self._replacements: dict[str, NewContent] = {}
        # Bytes of members that may be deflated before it is their turn.
        self._ahead = divide_memory(options.max_memory).edits
        self._closing = threading.Event()
        self._written: Future[tuple[str, tuple[Finding, ...]]] = Future()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        parent = self.final.parent
        with ExitStack() as stack:
            try:
                stack.enter_context(_created(parent))
                self.directory = stack.enter_context(working_directory(parent))
            except OSError as error:
                raise_if_machine_fault(error, f"{parent}: cannot be written to")
                step = _STEPS.get(error.errno or 0, "name another by --output")
                raise UsageError(f"{parent}: cannot be written to ({error.strerror}); {step}") from error
            self._thread = stack.enter_context(ThreadPoolExecutor(1, "relink-write"))
            pool = ThreadPoolExecutor(self._options.jobs or default_jobs(), "relink-pack")
            self._pool = stack.enter_context(pool)
            # Called before the thread is waited for and the directory is removed: an ExitStack goes backwards.
            stack.callback(self._closing.set)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._stack.close()
        if isinstance(error, OSError):
            raise self._failed(error) from error

    def on_progress(self, more: int) -> None:
        """Report bytes, and stop the writer after the context manager has been left: a running thread cannot be cancelled."""
        if self._closing.is_set():
            raise RelinkError(f"{self.final} has been given up")
        self._on_progress(more)

    def add(self, name: str, new: NewContent) -> None:
        """Take a member's new content, and begin to deflate if there is memory for the result.

        SHA-256 of the largest member takes as long as the loader's dry run, so both are done at once.

        :raises UsageError: the output would replace the input.
        """
        self._refuse_the_inputs_place()
        member, loaded = self._contents.archive.members[name], self._contents.loaded.get(name)
        gaps = sum(map(len, loaded.gaps)) if loaded else 0
        # Bytes that are deflated anew: the others are in spans.
        rest = member.size - gaps
        size = 2 * member.compressed_size * rest // max(1, member.size)
        if size <= self._ahead:
            self._ahead -= size
            packing = self._pool.submit(pack_ahead, name, new, self._write_options.level, 2 * rest + _SPARE)
            new = replace(new, content=new.content if gaps else (), size=new.length, ahead=packing)
        self._replacements[name] = new

    def write(
        self,
        additions: Mapping[str, NewContent],
        metadata: tuple[str, ...] = (),
        requires: Mapping[str, str | None] = MappingProxyType({}),
        removed: Iterable[str] = (),
    ) -> None:
        """Begin to write the output: the members that were added replace those of the input.

        :param additions: as for :class:`relink.wheel.changes.Changes`; the others too.
        :raises UsageError: the output would replace the input.
        """
        self._refuse_the_inputs_place()
        changes = Changes(self._name, self._replacements, additions, metadata, requires, frozenset(removed))
        self._written = self._thread.submit(self._write, changes)

    def copy(self) -> None:
        """Begin to copy the input to the output, and compare the input with its RECORD; both may be one file."""
        self._written = self._thread.submit(self._copy)

    def finish(self) -> tuple[Finding, ...]:
        """Wait for the output, and return the findings of the second reader of archives; none for a copy.

        :raises WheelError: a member of the input is damaged or is not what RECORD lists.
        :raises RelinkError: the output cannot be written, or is not what was written.
        """
        return self._written.result()[1]

    def publish(self, *, withhold: bool = False) -> str:
        """Wait for the output, move the file to its final name, and return the SHA-256 (hex); raises as :meth:`finish`.

        :param withhold: do not give it the name.
        """
        sha256, _ = self._written.result()
        if not withhold and not _is_same(self.final, self._contents.archive.path):
            move_synced(self.directory / self.final.name, self.final)
        return sha256

    def _write(self, changes: Changes) -> tuple[str, tuple[Finding, ...]]:
        result = write_wheel(
            self._contents.archive,
            self.directory,
            changes,
            self._write_options,
            vendor=self._contents.listed,
            on_progress=self.on_progress,
        )
        return result.sha256, tuple(reread_wheel(result.path))

    def _copy(self) -> tuple[str, tuple[Finding, ...]]:
        archive = self._contents.archive
        if self._options.verify_record:
            listed = self._contents.listed.values()
            entries = [entry for entry in listed if entry.path in archive.members and entry.digest]
            verify_members(archive, entries, self._options.jobs)
        if not _is_same(self.final, archive.path):
            shutil.copyfile(archive.path, self.directory / self.final.name)
        return archive.sha256(), ()

    def _refuse_the_inputs_place(self) -> None:
        if _is_same(self.final, self._contents.archive.path):
            raise UsageError(f"{self.final}: the result would take the input's place; {_ELSEWHERE}")

    def _failed(self, error: OSError) -> RelinkError:
        """Return the error to raise for an OSError about the output, or about another file that the output needs.

        :raises MachineError: the machine is the reason.
        """
        names = [name for name in (error.filename, error.filename2) if isinstance(name, str | os.PathLike)]
        own = (self.final, self.final.parent)
        reason = error.strerror or str(error)
        if names and not any(path in own or path.is_relative_to(self.directory) for path in map(Path, names)):
            raise_if_machine_fault(error, f"{names[0]}")
            return RelinkError(
                f"{names[0]}: {reason}, so {self.final.name} cannot be made; see to that file, and run this again"
            )
        raise_if_machine_fault(error, f"{self.final}: cannot be written")
        step = _STEPS.get(error.errno or 0, _ELSEWHERE)
        return UsageError(f"{self.final}: cannot be written ({reason}); {step}")


@contextmanager
def _created(directory: Path) -> Iterator[None]:
    """Make a directory and its missing parents; remove those that are empty at the end."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            for path in missing:
                path.rmdir()


def _is_same(final: Path, wheel: Path) -> bool:
    try:
        return os.path.samefile(final, wheel)
    except OSError:  # there is no output of that name yet
        return False
