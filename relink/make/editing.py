"""Carrying out a plan on ELF members: takes file plans and the contents they are for, gives each file's new content.

A member that patchelf must not read, or cannot edit, gives findings instead, and the other members are edited all the same.
patchelf gets a file without its gaps, which is small. The gaps' content is streamed from the input when the output is written.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from relink.elf.gaps import ranges_between
from relink.elf.image import Image
from relink.elf.patchelf import Edited, short_edit, whole_edit
from relink.gpu import BufferSource, DeviceCode, read_device_code, same_device_code
from relink.make.static_scan import screen_member
from relink.planning.checks.gpu_findings import changed_code
from relink.planning.contents import Contents, LoadedMember
from relink.planning.memory import edit_memory
from relink.planning.model.model import FilePlan
from relink.planning.resolve.layout import Layout
from relink.system.errors import EditError
from relink.system.findings.model import Finding, finding, has_errors
from relink.system.processes import Steps, side_by_side
from relink.system.progress import OnProgress
from relink.system.sandbox import Sandbox
from relink.system.spool import Spool, release_pages
from relink.wheel.changes import Replacement
from relink.wheel.deflate.inflate import WINDOW
from relink.wheel.deflate.splice import Span
from relink.wheel.record import verify_member

__all__ = ["EditedFile", "UneditedFile", "edit_files"]

REPORTED_FROM = 64 << 20  # bytes: that patchelf read all of a smaller file is not worth a finding
_COMPARED = 8 << 20  # bytes compared at a time


@dataclass(frozen=True, slots=True)
class EditedFile:
    """A member with what patchelf made of it, and its new content."""

    name: str
    edited: Edited
    replacement: Replacement
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class UneditedFile:
    """A member that has no new content, so that there can be no output; its findings say why, and one is an error."""

    name: str
    findings: tuple[Finding, ...]


def edit_files(
    contents: Contents,
    files: Iterable[FilePlan],
    images: Mapping[str, Image],
    codes: Mapping[str, DeviceCode],
    directory: Path,
    *,
    layout: Layout,
    trust: Sequence[str] = (),
    check: bool = True,
    on_progress: OnProgress = lambda _: None,
    sandbox: Sandbox | None = None,
    jobs: int = 1,
    room: int = 256 << 20,
) -> Iterator[EditedFile | UneditedFile]:
    """Edit files and yield them in order, as they are asked for; all are tried.

    The static scan judges a member before patchelf reads it.

    Several processes of patchelf run at one time, all started by the caller's thread, so that an interruption (Ctrl-C) ends them.

    :param images: the facts of the members before; `codes`: the device code in them.
    :param directory: for what patchelf works on; must exist as long as the content is read.
    :param layout: where members are installed: findings and `trust` name them so.
    :param trust: globs of members that patchelf gets although the static scan refuses them.
    :param check: compare the original contents with the vendor's RECORD.
    :param on_progress: called with the number of bytes of new content that have been read; on any thread.
    :param sandbox: what patchelf runs in; None: the best kind that works here.
    :param jobs: how many files are edited at one time, in `room` bytes of memory.
    :raises PatchelfError: there is no patchelf that can be used.
    :raises WheelError: a file is not the one that RECORD lists; raised when the new content is read.
    """

    def work() -> Iterator[tuple[int, Steps[tuple[str, Edited | None, list[Finding]]]]]:
        for number, file in enumerate(files):
            name = file.path
            steps = _named(
                name,
                _edit_one(
                    file,
                    images[name],
                    directory / f"{number}.elf",
                    contents.loaded.get(name),
                    partial(contents.archive.read_into, name, spool=contents.spool),
                    codes.get(name),
                    layout=layout,
                    trust=trust,
                    sandbox=sandbox,
                ),
            )
            yield edit_memory(contents, name), steps

    kept = 0
    for name, edited, found in side_by_side(work(), jobs, room):
        if edited is None:
            yield UneditedFile(name, tuple(found))
            continue
        if edited.gaps and name in contents.loaded:
            release_pages(contents.loaded[name].view)
            kept += len(edited.view) - sum(map(len, edited.gaps))
        file = edited
        if kept > contents.spool.kept:
            file, kept = _in_a_file(edited, contents.loaded.get(name), contents.spool), 0
        pieces = _counted(_pieces(contents, name, file, check=check), on_progress)
        spans = cache(partial(_reusable, contents, name, file))
        yield EditedFile(name, file, Replacement(pieces, len(file.view), spans), tuple(found))


def _in_a_file(edited: Edited, loaded: LoadedMember | None, spool: Spool) -> Edited:
    with memoryview(edited.view) as view:
        parts = [*ranges_between(edited.gaps, len(view)), *(loaded.kept_ranges if loaded else ())]
        return replace(edited, view=spool.keep(view, parts))


def _named(
    name: str, steps: Steps[tuple[Edited | None, list[Finding]]]
) -> Steps[tuple[str, Edited | None, list[Finding]]]:
    edited, found = yield from steps
    return name, edited, found


def _edit_one(
    file: FilePlan,
    image: Image,
    path: Path,
    loaded: LoadedMember | None,
    whole: Callable[[], memoryview],
    code: DeviceCode | None,
    *,
    layout: Layout,
    trust: Sequence[str] = (),
    sandbox: Sandbox | None = None,
) -> Steps[tuple[Edited | None, list[Finding]]]:
    """Edit one file, in steps, and compare its device code; without a result where it cannot be edited, or must not be read.

    :param path: for what patchelf works on.
    :param loaded: the file with its gaps, where it has some.
    :param whole: gives its whole content.
    :param code: the device code in it.
    :raises PatchelfError: there is no patchelf that can be used.
    """
    try:
        edited, found = yield from _edited(file, image, path, loaded, whole, layout, trust, sandbox)
    except EditError as error:
        return None, [_failed(file.path, error)]
    if edited is not None and code is not None:
        after = read_device_code(BufferSource(edited.view), file.path)
        found += changed_code(file.path, same_device_code(code, after))
    return edited, found


def _edited(
    file: FilePlan,
    image: Image,
    path: Path,
    loaded: LoadedMember | None,
    whole: Callable[[], memoryview],
    layout: Layout,
    trust: Sequence[str],
    sandbox: Sandbox | None,
) -> Steps[tuple[Edited | None, list[Finding]]]:
    """Edit one file: without its gaps if that can be done, as a whole otherwise; not at all if the static scan refuses it.

    :raises EditError: patchelf fails, or its result does not hold up.
    """
    reason = "none of its large sections can be left out"
    if loaded is not None:
        found = [*screen_member(loaded.view, file.path, image, layout, trust)]
        if has_errors(found):
            return None, found
        try:
            edited = yield from short_edit(
                path, file.edit, image, loaded.view, loaded.gaps, loaded.kept_ranges, sandbox
            )
        except EditError as error:
            reason = "; ".join([error.message, *error.issues])
        else:
            return edited, found
    content = whole()
    try:
        # Also of a file that was scanned above: patchelf reads its gaps now.
        found = [*screen_member(content, file.path, image, layout, trust)]
        if has_errors(found):
            return None, found
        path.write_bytes(content)
        after = yield from whole_edit(path, file.edit, image, content, sandbox)
    finally:
        content.release()
    if image.size >= REPORTED_FROM:
        found.append(finding("RLK510", file.path, f"patchelf was given all of it: {reason}"))
    with path.open("rb") as written:
        return Edited(after, mmap.mmap(written.fileno(), 0, access=mmap.ACCESS_READ)), found


def _failed(name: str, error: EditError) -> Finding:
    return finding("RLK516", name, "; ".join([error.message.removeprefix(f"{name}: "), *error.issues]))


def _reusable(contents: Contents, name: str, edited: Edited) -> tuple[Span, ...]:
    """Return the spans in which the edit has changed nothing: in gaps, and in what lies between them."""
    loaded = contents.loaded.get(name)
    if loaded is None or not edited.gaps:
        return ()
    with memoryview(edited.view) as after:
        return tuple(span for span in contents.spans(name) if _unchanged(span, loaded, after, edited))


def _unchanged(span: Span, loaded: LoadedMember, after: memoryview, edited: Edited) -> bool:
    known = range(max(0, span.start - WINDOW), span.stop)  # a block may refer to the window before it
    return all(
        _same(after, loaded.view, part)
        for rest in ranges_between(edited.gaps, len(loaded.view))
        if (part := range(max(rest.start, known.start), min(rest.stop, known.stop)))
    )


def _same(left: memoryview, right: memoryview, part: range) -> bool:
    for start in part[::_COMPARED]:
        stop = min(start + _COMPARED, part.stop)
        if left[start:stop] != right[start:stop]:
            return False
        release_pages(left)
        release_pages(right)
    return True


def _counted(pieces: Iterable[memoryview], on_progress: OnProgress) -> Iterator[memoryview]:
    for piece in pieces:
        yield piece
        on_progress(piece.nbytes)


def _pieces(contents: Contents, name: str, edited: Edited, *, check: bool) -> Iterator[memoryview]:
    """Yield the edited file: its gaps from the original content, which is read once, the rest from memory."""
    with memoryview(edited.view) as view:
        if not edited.gaps:
            if check and (entry := contents.listed.get(name)) and entry.digest is not None:
                verify_member(contents.archive, entry)
            yield view
            return
        position = 0
        rest = list(ranges_between(edited.gaps, len(view)))
        for chunk in contents.original(name, check=check):
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
                    release_pages(view)
        yield view[position:]
