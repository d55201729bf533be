"""Carrying out a plan on ELF members: what patchelf edits is small, what it does not touch goes by as a stream.

Between reading and writing, a large member is *held*: its memory without its cuts (:mod:`relink.elf.hollow`), some megabytes of
several hundred. The cuts come by a second time when the output is written, from the archive, piece by piece.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from relink.checks.gpu_findings import changed_code
from relink.contents import SHARE, Hashing, SpanFinder
from relink.elf.hollow import kept
from relink.elf.image import Image
from relink.elf.patchelf import Edited, apply_edit, edit_hollow
from relink.errors import PatchelfError
from relink.findings.model import Finding, finding
from relink.gpu import BufferSource, DeviceCode, read_device_code, same_device_code
from relink.plans.model import FilePlan
from relink.reading import Held
from relink.wheel.archive import WheelArchive
from relink.wheel.deflate.inflate import WINDOW
from relink.wheel.deflate.splice import Span
from relink.wheel.packing import Replacement
from relink.wheel.record import RecordEntry, check_digest, verify_member

__all__ = ["EditedFile", "edit_files"]

Chunk: TypeAlias = bytes | memoryview

_AHEAD = 4  # pieces of 1 MiB that are inflated before they are asked for
# Bytes: few, since they are held; many, since who hashes them waits for the interpreter each time.
_SLICE = 8 << 20
_LARGE = 64 << 20  # bytes: what patchelf does to a smaller file whole needs no words


@dataclass(frozen=True, slots=True)
class EditedFile:
    """A member with what patchelf made of it, and its new content."""

    name: str
    edited: Edited
    replacement: Replacement
    findings: tuple[Finding, ...]


def edit_files(
    archive: WheelArchive,
    files: Iterable[FilePlan],
    images: Mapping[str, Image],
    codes: Mapping[str, DeviceCode],
    held: Mapping[str, Held],
    listed: Mapping[str, RecordEntry],
    hashing: Mapping[str, Hashing],
    spans: SpanFinder,
    directory: Path,
    told: Callable[[int], object] = lambda _: None,
) -> Iterator[EditedFile]:
    """Edit files, one each time that the next is asked for.

    In this thread: a hollow copy takes 0.1 s, and an interruption ends a patchelf that hangs.

    :param listed: what RECORD says of the files; it is compared when the content goes by, since nobody can afterwards.
    :param hashing: of what is held whole, by the algorithm in `listed` (:func:`relink.contents.hashed_ahead`).
    :param spans: finds what an edit should leave alone.
    :param directory: for what patchelf works on; must exist as long as the content is read.
    :param told: how many bytes of the new content have been read, each time; on any thread.
    :raises PatchelfError: an edit failed, or its result does not hold up.
    :raises WheelError: a file is not the one that RECORD lists.
    """
    for number, file in enumerate(files):
        name = file.path
        held_one = held.get(name)
        spans.begin(name)  # while patchelf runs
        edited, found = _edited(archive, file, images[name], held_one, directory / f"{number}.elf")
        if before := codes.get(name):
            after = read_device_code(BufferSource(edited.view), name)
            found += changed_code(name, same_device_code(before, after))
        pieces = _pieces(archive, name, edited, held_one, listed.get(name), hashing.get(name))
        yield EditedFile(
            name,
            edited,
            Replacement(_counted(pieces, told), len(edited.view), _spared(name, edited, held_one, spans)),
            tuple(found),
        )


def _spared(name: str, edited: Edited, held: Held | None, spans: SpanFinder) -> tuple[Span, ...]:
    """Return the spans that an edit has left alone: in cuts, and what lies between these, nothing may have changed."""
    if held is None or not edited.cuts:
        return ()
    with memoryview(edited.view) as after:

        def stays(span: Span) -> bool:
            known = range(max(0, span.start - WINDOW), span.stop)
            return all(
                after[part.start : part.stop] == held.view[part.start : part.stop]
                for gap in kept(edited.cuts, len(held.view))
                if (part := range(max(gap.start, known.start), min(gap.stop, known.stop)))
            )

        return tuple(span for span in spans.begin(name).result() if stays(span))


def _counted(pieces: Iterable[memoryview], told: Callable[[int], object]) -> Iterator[memoryview]:
    for piece in pieces:
        yield piece
        told(piece.nbytes)


def _edited(
    archive: WheelArchive, file: FilePlan, image: Image, held: Held | None, path: Path
) -> tuple[Edited, list[Finding]]:
    """Edit one file: hollow if that can be done, whole if not."""
    reason = "none of its large sections can be left out"
    if held is not None:
        try:
            return edit_hollow(path, file.edit, image, held.view, held.cuts, held.stay), []
        except PatchelfError as error:
            reason = "; ".join([error.message, *error.issues])
    content = archive.read_into(file.path)
    try:
        path.write_bytes(content)
        after = apply_edit(path, file.edit, image, content)
    finally:
        content.release()
    more = (
        [finding("RLK510", file.path, f"patchelf was given all of it: {reason}")]
        if image.size >= _LARGE
        else []
    )
    with path.open("rb") as written:
        return Edited(after, mmap.mmap(written.fileno(), 0, access=mmap.ACCESS_READ)), more


def _pieces(
    archive: WheelArchive,
    name: str,
    edited: Edited,
    held: Held | None,
    listed: RecordEntry | None,
    hashing: Hashing | None,
) -> Iterator[memoryview]:
    """Yield the edited file: its cuts from the file as it was, in the archive if it is not held whole; the rest from memory."""
    with memoryview(edited.view) as view:
        if not edited.cuts:
            if listed is not None and listed.digest is not None:
                verify_member(archive, listed)
            yield view
            return
        before: Iterator[Chunk]
        if held and held.whole:
            before = _slices(held.view, hashing)
            if hashing is None:
                before = _against_record(archive, before, listed)
        elif len(view) <= max(member.size for member in archive.members.values()) // SHARE:
            # In one go: who hands over piece by piece waits for the interpreter each time.
            before = _against_record(archive, _slices(archive.read_into(name), None), listed)
        else:
            before = _ahead(_against_record(archive, archive.chunks(name), listed))
        position = 0
        rest = list(kept(edited.cuts, len(view)))
        for chunk in before:
            start, end = position, position + len(chunk)
            while position < end:
                part = rest[0]
                if position < part.start:
                    stop = min(end, part.start)
                    yield memoryview(chunk)[position - start : stop - start]
                else:
                    stop = min(end, part.stop)
                    yield view[position:stop]
                position = stop
                if position == part.stop:
                    del rest[0]
        if listed and hashing:
            check_digest(archive, listed, hashing.digest.result())
        yield view[position:]


def _slices(view: memoryview, hashing: Hashing | None) -> Iterator[memoryview]:
    """Yield a member that is held whole, once: memory that has been written, and hashed as it was, goes back."""
    memory = view.obj
    for start in range(0, len(view), _SLICE):
        yield view[start : start + _SLICE]
        if start and isinstance(memory, mmap.mmap):  # the last one may be hashed still
            if hashing:
                hashing.wait(start)
            memory.madvise(mmap.MADV_DONTNEED, start - _SLICE, _SLICE)


def _against_record(
    archive: WheelArchive, chunks: Iterator[Chunk], listed: RecordEntry | None
) -> Iterator[Chunk]:
    """Yield a member's content; in the end it must be what RECORD lists."""
    if listed is None or listed.digest is None or listed.algorithm is None:
        yield from chunks
        return
    digest = hashlib.new(listed.algorithm, usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
        yield chunk
    check_digest(archive, listed, digest.digest())


def _ahead(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Yield the same, made on a thread of its own a little before it is wanted."""
    with ThreadPoolExecutor(1, "relink-inflate") as pool:
        waiting = [pool.submit(next, chunks, b"") for _ in range(_AHEAD)]
        while data := waiting.pop(0).result():
            waiting.append(pool.submit(next, chunks, b""))
            yield data
