"""The contents of one wheel's members between reading and writing, the memory for them, and the threads that work ahead.

Takes a source of members; gives each member's content to the reader once, and to the writer once more. Of a large member only
what is read is in memory (:mod:`relink.wheel.deflate.ranges`), and what is outside of its gaps (:mod:`relink.elf.gaps`) stays:
some megabytes of several hundred. With ``--max-memory`` a content that is too large goes to a file (:mod:`relink.system.spool`),
and what is edited side by side waits for its turn. What remains are the facts of all files, and what patchelf gets of a file.

Inflating, hashing and looking for deflate blocks hardly need the interpreter lock (GIL), so threads do them while the main
thread reads, plans and edits. No caller has to know: each method returns when its result is there.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import msgspec

from relink.elf.gaps import Gap, pages_in, ranges_between, release_gaps
from relink.elf.image import is_elf
from relink.gpu.removal import Replacement, cut_ranges
from relink.planning.options import Options
from relink.system.errors import UsageError, WheelError
from relink.system.progress import OnProgress
from relink.system.safe_open import read_text
from relink.system.spool import KEPT, WHOLE, LazyMemory, Spool, fill, is_spooled, release_pages
from relink.wheel.archive import WheelArchive
from relink.wheel.deflate.stream import Checkpoint
from relink.wheel.limits import WheelLimits
from relink.wheel.record import RecordEntry, RecordIssue, check_digest, default_jobs, read_record
from relink.wheel.source import MemberSource, read_prefix
from relink.wheel.zipformat import DEFLATED, RangeReader

if TYPE_CHECKING:
    from relink.wheel.deflate.splice import Span

Chunk: TypeAlias = bytes | memoryview

# Bytes. A smaller member is inflated before a thread would pay.
READ_AHEAD: Final = 32 << 20
# Bytes. Deflating a smaller member anew takes hardly any time.
REUSE: Final = 1 << 20
# Bytes. Gaps that lie closer together are joined, since an edit seldom touches so few bytes.
_JOINED: Final = 64 << 10
# All other members together may take this part, an eighth, of the memory of the largest one.
SHARE: Final = 8
# Chunks of 1 MiB that are inflated before they are asked for.
_CHUNKS_AHEAD: Final = 4
# Bytes. Smaller members stay in memory, as each file takes a descriptor.
MOVED: Final = 8 << 20


_CALLED = (b"CDLL", b"PyDLL", b"LoadLibrary", b"dlopen")
_CALL = re.compile(
    r"\b(?:CDLL|PyDLL|LoadLibrary|dlopen)\(\s*(?:name\s*=\s*)?[\"'](?P<soname>lib[\w+.-]+?\.so(?:\.[\d.]+)?)[\"']"
)
# Bytes of each module that are looked at.
_MODULE_BYTES = 1 << 20
# The most modules of a wheel that are looked at; PyTorch's has as many.
_MODULES = 2_000


class LoadedMember(msgspec.Struct, frozen=True):
    """The part of a large member that stays in memory.

    :ivar view: its bytes; zeros in `gaps` except in `kept_ranges`, unless it is a file.
    :ivar gaps: ranges of the file that no edit touches.
    :ivar kept_ranges: whole pages in the gaps that readers of device code have read.
    """

    view: memoryview
    gaps: tuple[Gap, ...]
    kept_ranges: tuple[range, ...]


class Contents:
    """An open wheel with the parts of its members that are in memory; leaving the context closes it and ends its threads.

    Large members are read ahead, from the moment of opening.

    :ivar beside: other wheels that will be installed with it; they are opened where they are asked for.

    :param path: the wheel.
    :param limits: sizes and counts that it may not exceed.
    :param source: in the place of the wheel: a tree, or an installed distribution.
    :param spool: where members are that are too large for memory.
    :param keeps: keep of large members what an edit or a dry run needs.
    :param jobs: threads that read ahead; None: :func:`relink.wheel.record.default_jobs`.
    :param reuse: look for spans of deflated bytes that the output can take over (:meth:`spans`).
    :raises WheelError: it is not a wheel that can be trusted.
    """

    def __init__(
        self,
        path: Path,
        limits: WheelLimits | None = None,
        *,
        source: MemberSource | None = None,
        keeps: bool = True,
        reuse: bool = False,
        spool: Spool | None = None,
        jobs: int | None = None,
    ) -> None:
        self.source: MemberSource = source or WheelArchive(path, limits=limits)
        self.keeps = keeps
        self.beside: tuple[Path, ...] = ()
        self.limits = limits
        self.loaded: dict[str, LoadedMember] = {}
        self._reuse = reuse
        self.spool = spool or Spool()
        # Bytes of all members that are in memory without their gaps.
        self._kept = 0
        self._closing = threading.Event()
        self._readers = ThreadPoolExecutor(jobs or default_jobs(), "relink-read")
        self._searcher = ThreadPoolExecutor(1, "relink-search")
        self._reading: dict[str, Future[memoryview]] = {}
        self._checkpoints: dict[str, list[Checkpoint]] = {}
        self._finding_spans: dict[str, Future[tuple[Span, ...]]] = {}
        self._unreleased: list[tuple[int, Future[tuple[Span, ...]]]] = []
        try:
            self._read_ahead()
        # Also Ctrl-C: no `with` holds the object yet, and its file and threads must not stay.
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the threads and close the wheel."""
        # Set before the pools are shut down, which wait: running work sees the flag and ends early.
        self._closing.set()
        for pool in (self._readers, self._searcher):
            pool.shutdown(cancel_futures=True)
        self.source.close()
        # The memory of the members is released now, not when the garbage collector finds a cycle.
        self.loaded.clear()

    @property
    def archive(self) -> WheelArchive:
        """The wheel, as a source that has compressed bytes and a RECORD of its own."""
        assert isinstance(self.source, WheelArchive)  # noqa: S101 (nothing else is written as a wheel)
        return self.source

    @cached_property
    def record(self) -> tuple[tuple[RecordEntry, ...], tuple[RecordIssue, ...]]:
        """The vendor's RECORD: its entries, and the defects of its lines."""
        return read_record(self.archive)

    @cached_property
    def listed(self) -> Mapping[str, RecordEntry]:
        """The entries of the vendor's RECORD by path."""
        return {entry.path: entry for entry in self.record[0]}

    @cached_property
    def calls(self) -> tuple[tuple[str, list[str]], ...]:
        """The modules that load libraries by their names, with these names."""
        return tuple(find_calls(self.source))

    @cached_property
    def _largest(self) -> int:
        return max(member.size for member in self.source.members.values())

    def _read_ahead(self) -> None:
        """Begin to inflate the large members, the largest first; then to hash the archive."""
        members = self.source.members.values() if self.keeps else ()
        large = [member for member in members if member.size >= READ_AHEAD]
        for member in sorted(large, key=lambda member: member.size, reverse=True):
            if is_elf(read_prefix(self.source, member.name, 4)):
                self._reading[member.name] = self._readers.submit(self._read, member.name, self._check_open)
        if self._reading:
            self._readers.submit(self.source.sha256, self._check_open)

    def _check_open(self, _more: int) -> None:
        if self._closing.is_set():
            raise WheelError(f"{self.source.path} has been closed")

    def _read(self, name: str, on_progress: OnProgress) -> memoryview:
        if self.source.members[name].size < REUSE:
            return self.source.read_into(name, on_progress, spool=self.spool)
        # The thread that reads ahead imports it, while the main thread imports the rest of relink.
        from relink.vendors.registry import VENDORS  # noqa: PLC0415

        signatures = frozenset(signature for vendor in VENDORS for signature in vendor.gpus.signatures)
        content, self._checkpoints[name] = self.source.read_lazily(name, on_progress, signatures, self.spool)
        return content

    def read(self, name: str, on_progress: OnProgress) -> memoryview:
        """Return a member's content in a buffer of its own, in which parts are missing until :func:`fill` is asked for them.

        :raises WheelError: the content is not what the archive's directory says.
        :raises RelinkError: there is not that much memory.
        """
        begun = self._reading.pop(name, None)
        if begun is None:
            return self._read(name, on_progress)
        content = begun.result()
        on_progress(len(content))
        return content

    def discard(self, name: str, content: memoryview) -> None:
        """Release a member that is not retained."""
        self._checkpoints.pop(name, None)
        content.release()

    def retain(
        self,
        name: str,
        content: memoryview,
        gaps: tuple[Gap, ...],
        noted: Iterable[range],
        *,
        edited: range = range(0),
        replaced: Sequence[Replacement] = (),
    ) -> None:
        """Keep a member in memory, without its gaps.

        :param content: from :meth:`read`.
        :param noted: ranges inside of gaps that must remain readable.
        :param edited: bytes between gaps that an edit is sure to change.
        :param replaced: ranges that get other bytes.
        """
        kept_ranges = pages_in(gaps, noted)
        parts = [*ranges_between(gaps, len(content)), *kept_ranges]
        for part in parts:
            fill(content, part.start, part.stop)
        self.loaded[name] = LoadedMember(content, gaps, kept_ranges)
        unchanged = cut_ranges(join_gaps(gaps, edited), replaced)
        search = self._find_spans(name, content, unchanged) if self._reuse else None
        memory = content.obj
        if not isinstance(memory, mmap.mmap):
            return
        in_file = is_spooled(content)

        def release(_: object = None) -> None:
            if in_file:
                release_pages(content)
            else:
                release_gaps(memory, gaps, kept_ranges)
            if isinstance(memory, LazyMemory):
                memory.stop_fetching()

        if search is None:
            release()
        else:
            search.add_done_callback(release)
        if in_file:
            return
        self._kept += len(content) - sum(map(len, gaps))
        # What is kept of all members has outgrown its share, so this one goes to a file. Its search has to end before, since it
        # reads the content that is released here.
        if self._kept > self.spool.kept and len(content) >= MOVED:
            if search is not None:
                wait([search])
            self.loaded[name] = LoadedMember(self.spool.copy_to_file(content, parts), gaps, kept_ranges)
            self._kept -= len(content) - sum(map(len, gaps))
            content.release()
            return
        if search is None:
            return
        # A member keeps its memory until its search is done. Those that wait may take a part of what the largest takes.
        self._unreleased = [(size, pending) for size, pending in self._unreleased if not pending.done()]
        self._unreleased.append((len(content), search))
        if sum(size for size, _ in self._unreleased) > min(self._largest // SHARE, self.spool.kept):
            wait(pending for _, pending in self._unreleased)

    def _find_spans(
        self, name: str, content: memoryview, unchanged: Sequence[range]
    ) -> Future[tuple[Span, ...]] | None:
        """Begin to search the spans of a member whose deflated bytes may be reused; None for a small or stored member."""
        from relink.wheel.deflate.splice import find_spans  # noqa: PLC0415 - for a wheel that is written, and here only

        member = self.source.members[name]
        if member.method != DEFLATED or member.size < REUSE:
            return None
        self._finding_spans[name] = self._searcher.submit(
            find_spans,
            self._raw_reader(name),
            member.compressed_size,
            content,
            unchanged,
            self._checkpoints.pop(name, ()),
        )
        return self._finding_spans[name]

    def _raw_reader(self, name: str) -> RangeReader:
        read = self.archive.raw_reader(name)

        def checked(offset: int, length: int) -> bytes:
            self._check_open(0)
            return read(offset, length)

        return checked

    def spans(self, name: str) -> tuple[Span, ...]:
        """Return the spans of a kept member's deflated bytes that the output can take over where its content stays the same.

        :raises WheelError: the deflated bytes are damaged.
        """
        search = self._finding_spans.get(name)
        return search.result() if search else ()

    def original(self, name: str, *, check: bool) -> Iterator[Chunk]:
        """Return the original content of a member.

        :param check: compare it with the vendor's RECORD, at the end if not before.
        :raises WheelError: it is damaged, or is not what RECORD lists.
        """
        size = self.source.members[name].size
        entry = self.listed.get(name) if check else None
        chunks: Iterator[Chunk]
        # A small member is inflated at once. Of a larger one only a few chunks are in memory.
        if size <= min(self._largest // SHARE, self.spool.kept):
            chunks = iter([self.source.read_into(name)])
        else:
            chunks = self._ahead(self.source.chunks(name))
        return self._compared(chunks, entry) if entry else chunks

    def _ahead(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Yield the chunks; inflate some of them before the caller asks."""
        # A thread of its own: chunks come in order, and several members may be written at once.
        with ThreadPoolExecutor(1, "relink-contents") as worker:
            waiting = [worker.submit(next, chunks, b"") for _ in range(_CHUNKS_AHEAD)]
            while data := waiting.pop(0).result():
                waiting.append(worker.submit(next, chunks, b""))
                yield data

    def _compared(self, chunks: Iterator[Chunk], entry: RecordEntry) -> Iterator[Chunk]:
        """Yield the chunks, and compare their digest with RECORD after the last one."""
        if entry.digest is None or entry.algorithm is None:
            yield from chunks
            return
        digest = hashlib.new(entry.algorithm, usedforsecurity=False)
        for chunk in chunks:
            digest.update(chunk)
            yield chunk
        check_digest(self.archive, entry, digest.digest())


def find_calls(source: MemberSource) -> Iterator[tuple[str, list[str]]]:
    """Yield each module that loads libraries by their names, with these names."""
    for module in islice((name for name in source.members if name.endswith(".py")), _MODULES):
        content = read_prefix(source, module, _MODULE_BYTES)
        # The pattern begins with no character that `re` could skip to.
        if any(name in content for name in _CALLED):
            text = content.decode("utf-8", "replace")
            yield module, [*dict.fromkeys(match["soname"] for match in _CALL.finditer(text))]


def join_gaps(gaps: Sequence[Gap], edited: range) -> list[range]:
    """Join gaps that lie close together: where an edit does not touch the bytes between them, less is deflated again.

    :param edited: bytes between gaps that an edit is sure to change.
    """
    joined: list[range] = []
    for gap in gaps:
        # Not across the bytes that the edit changes: those have to be deflated anew.
        apart = joined and joined[-1].stop <= edited.start < gap.start
        if joined and not apart and gap.start - joined[-1].stop <= _JOINED:
            joined[-1] = range(joined[-1].start, gap.stop)
        else:
            joined.append(gap)
    return joined


LEAST_MEMORY: Final = 256 << 20
"""Bytes: the program itself, what it reads a file with, and the facts of a small wheel and of a prefix."""
# Bytes that are edited side by side, if nothing limits them.
_USUAL: Final = 256 << 20
# Each share's usual size, and the divisor of --max-memory that bounds the share.
_PARTS: Final = ((WHOLE, 4), (KEPT, 12), (_USUAL, 8))
# Copies of what patchelf gets of a file: three of its own (measured), or those that the result is made and checked with.
_COPIES: Final = 4
# The files' facts are read again after the edit, which takes a quarter of the memory that is in use before.
_VERIFIED: Final = 4
# Bytes for writing one member, however small: its entries of RECORD and of the directory, old and new. Measured with 250,000
# empty members: 1,033 MB at the end, 289 MB before the first edit.
_WRITTEN: Final = 3 << 10


class Shares(msgspec.Struct, frozen=True):
    """Bytes of memory for each purpose.

    :ivar whole: of one member's content; a larger one is in a file. `kept`: of the parts of all members that are read again.
    :ivar edits: of files that are edited side by side.
    """

    whole: int = WHOLE
    kept: int = KEPT
    edits: int = _USUAL


def divide_memory(most: int | None) -> Shares:
    """Divide the memory of a run; None: nothing limits the run."""
    return Shares() if most is None else Shares(*(min(usual, most // part) for usual, part in _PARTS))


def make_spool(options: Options) -> Spool:
    """Return where the contents of a run go that are too large for memory: beside the output.

    :raises UsageError: `max_memory` is less than any run takes.
    """
    most = options.max_memory
    if most is not None and most < LEAST_MEMORY:
        raise UsageError(f"--max-memory {most >> 20}: a run takes at least {LEAST_MEMORY >> 20} MiB")
    shares = divide_memory(most)
    output = options.output_place.absolute()
    directories = (output, *output.parents)
    beside = (
        None
        if options.dry_run
        else next((directory for directory in directories if directory.is_dir()), None)
    )
    return Spool(beside, shares.whole, shares.kept)


def estimate_edit_memory(contents: Contents, name: str) -> int:
    """Return about how many bytes the edit of a member takes."""
    loaded = contents.loaded.get(name)
    gaps = sum(map(len, loaded.gaps)) if loaded else 0
    return _COPIES * (contents.source.members[name].size - gaps)


def check_room(most: int | None, contents: Contents, changed: Iterable[str]) -> None:
    """Refuse a run before its first edit if it needs more memory than `most`.

    :param changed: the members that are edited.
    :raises UsageError: says how much it takes.
    """
    if most is None:
        return
    # Memory of this process that no file holds: pages that are resident, less those that are shared (proc(5), statm).
    resident, shared = (int(field) for field in read_text("/proc/self/statm", 4096).split()[1:3])
    used = (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    edits = max((estimate_edit_memory(contents, name) for name in changed), default=0)
    least = used + used // _VERIFIED + _WRITTEN * len(contents.source.members) + edits
    if least > most:
        raise UsageError(
            f"{contents.source.path.name}: --max-memory {most >> 20} is too little, {-(-least >> 20)} MiB are needed; "
            "nothing was edited"
        )
