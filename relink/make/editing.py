"""Carrying out a plan on ELF members: takes a wheel as read and its plan, gives each edited file and its new content.

A member that patchelf must not read, or cannot edit, gives findings instead, and the other members are edited all the same.
patchelf gets a file without its gaps, which is small. The gaps' content is streamed from the input when the output is written.

patchelf may read a member, and the real loader may load one in a dry run, if the static scan (:mod:`relink.loader.scan`) does not
refuse it: for patchelf the member alone is scanned, for the loader its closure.
"""

from __future__ import annotations

import mmap
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from relink.elf.dynamic import Buffer
from relink.elf.gaps import ranges_between
from relink.elf.image import Image
from relink.elf.patchelf import Edited, short_edit, whole_edit
from relink.elf.source import BufferSource
from relink.gpu.removal import replace_ranges
from relink.loader.closure import Closure
from relink.loader.scan import scan
from relink.loader.scan_relocations import Refusal
from relink.loader.search import reject_header
from relink.planning.checks.gpu import find_changed_code
from relink.planning.contents import Contents, LoadedMember, divide_memory, estimate_edit_memory
from relink.planning.model import FilePlan
from relink.planning.options import Options, check_trust
from relink.planning.reading import Wheel
from relink.planning.resolve.context import Layout, ResolveContext
from relink.planning.resolve.strategy import matches_library
from relink.planning.wheel_plan import PreparedPlan
from relink.system.errors import EditError, TargetError
from relink.system.findings.model import Finding, finding, has_errors
from relink.system.programs import Steps, run_side_by_side
from relink.system.progress import OnProgress
from relink.system.safe_open import NOT_REGULAR, map_file
from relink.system.sandbox.start import Sandbox
from relink.system.spool import release_pages
from relink.vendors.registry import read_device_code, vendor_named
from relink.wheel.changes import NewContent
from relink.wheel.deflate.splice import Span
from relink.wheel.deflate.stream import WINDOW
from relink.wheel.record import default_jobs, verify_member

# glibc of 2012: elf/rtld.c, "Don't call ifunc functions in trace mode".
_CALLS_NO_RESOLVER = (2, 15)


class _Files(msgspec.Struct):
    """The files that were scanned.

    :ivar refusals: by identity why a file is refused; empty where it is not.
    :ivar shown: by identity its path for findings, and its soname.
    """

    context: ResolveContext
    refusals: dict[tuple[object, ...], tuple[Refusal, ...]] = msgspec.field(default_factory=dict)
    shown: dict[tuple[object, ...], tuple[str, str]] = msgspec.field(default_factory=dict)

    def scan(self, identity: tuple[object, ...], path: str, soname: str | None) -> tuple[Refusal, ...]:
        """Scan a file once.

        :param path: as the target sees it.
        """
        known = self.refusals.get(identity)
        if known is None:
            try:
                with map_file(self.context.files.host(path)) as buffer:
                    known = scan(buffer)
            except OSError as error:
                known = (Refusal("the file", f"cannot be read ({error.strerror})"),)
            self.refuse(identity, path, soname, known)
        return known

    def refuse(
        self,
        identity: tuple[object, ...],
        path: str,
        soname: str | None,
        refusals: tuple[Refusal, ...],
    ) -> None:
        """Record the reason for which a file is refused, if there is one."""
        self.refusals[identity] = refusals
        self.shown[identity] = _names(self.context.layout, path, soname)


def _names(layout: Layout, path: str, soname: str | None) -> tuple[str, str]:
    """Return a file's path for findings, and its soname."""
    return layout.shown(path).removeprefix(layout.own), soname or posixpath.basename(path)


def _is_trusted(names: tuple[str, str], patterns: Sequence[str]) -> bool:
    path, soname = names
    return any(matches_library(pattern, soname, path) for pattern in patterns)


def screen_member(
    content: Buffer, member: str, image: Image, layout: Layout, trust: Sequence[str] = ()
) -> Iterator[Finding]:
    """Scan a member before patchelf reads the file; yield RLK605 where patchelf must not, RLK606 where the user trusts the file.

    :param content: the bytes that patchelf would get; gaps in it read as zeros.
    :param trust: as for :func:`screen_members`.
    """
    refusals = scan(content)
    if refusals:
        names = _names(layout, layout.path_of(member), image.soname)
        reasons = "; ".join(map(str, refusals))
        if _is_trusted(names, trust):
            yield finding("RLK606", names[0], reasons)
        else:
            yield finding(
                "RLK605", names[0], f"{reasons}. Nothing is written, as patchelf would have to edit it"
            )


def screen_members(
    context: ResolveContext, closures: Mapping[str, Closure | None], trust: Sequence[str] = ()
) -> tuple[list[str], list[Finding]]:
    """Scan all members and everything else in the closures; remove refused members from the loader's view.

    All members are scanned, also those that no other one needs, since all are where the loader searches; refused ones are
    deleted from there. There is no dry run of a member with a refused file in its closure.

    :return: the members whose dry run is safe, in their order, and findings about refused files.

    :param context: the members are on the disk as `layout` says.
    :param closures: by member what its dry run maps; None where the program cannot be loaded, which verification reports.
    :param trust: globs of files that are accepted although they are refused: by soname, soname without version, or path.
    :raises TargetError: the target's loader calls IFUNC resolvers in a dry run.
    """
    if context.target.version < _CALLS_NO_RESOLVER:
        raise TargetError(
            f"{context.target.interpreter}: glibc {context.target.glibc} runs code of libraries in a dry run; 2.15 is needed"
        )
    files = _Files(context)
    places = {image.path: context.layout.path_of(name) for name, image in context.images.items()}
    for image in context.images.values():
        files.scan(("member", image.path), places[image.path], image.soname)
    safe: list[str] = []
    members_with: dict[tuple[object, ...], list[str]] = {}
    for member, closure in closures.items():
        refused = [] if closure is None else [*_refused(context, files, closure)]
        trusted = [identity for identity in refused if _is_trusted(files.shown[identity], trust)]
        if len(trusted) == len(refused):
            safe.append(member)
        for identity in refused:
            if identity not in trusted:
                members_with.setdefault(identity, []).append(member)
    findings = []
    matched = set()
    for identity, refusals in files.refusals.items():
        if not refusals:
            continue
        path, soname = files.shown[identity]
        matched |= {pattern for pattern in trust if matches_library(pattern, soname, path)}
        reasons = "; ".join(map(str, refusals))
        if _is_trusted(files.shown[identity], trust):
            findings.append(finding("RLK606", path, reasons))
            continue
        if identity[0] == "member":
            with suppress(FileNotFoundError):
                Path(context.files.host(places[str(identity[1])])).unlink()
        others = [member for member in members_with.get(identity, ()) if member != path]
        if others:
            reasons += f". Not asked about either, since they need it: {', '.join(others)}"
        findings.append(finding("RLK605", path, reasons))
    unused = (pattern for pattern in trust if pattern not in matched)
    findings += [
        finding("RLK109", pattern, "--trust: no file of that name was refused") for pattern in unused
    ]
    return safe, findings


def _refused(context: ResolveContext, files: _Files, closure: Closure) -> Iterator[tuple[object, ...]]:
    """Yield the files that must not be mapped, of all that the loader would map."""
    for loaded in closure.objects:
        if loaded.identity[0] != "loader":
            # The program has no identity of its own in a link map.
            identity = loaded.identity
            if identity[0] == "program":
                identity = context.files.open(loaded.path).identity or ("program", loaded.path)
            if files.scan(identity, loaded.path, loaded.image.soname):
                yield identity
    if closure.fatal is not None:
        yield from _unread(context, files, closure)


def _unread(context: ResolveContext, files: _Files, closure: Closure) -> Iterator[tuple[object, ...]]:
    """Yield the files that relink cannot read but the loader may accept: their NEEDED is unknown."""
    # The loader has given up at the last edge, over one of the files that it tried there.
    for tried in closure.edges[-1].tried if closure.edges else ():
        opened = context.files.open(tried.path)
        if opened.image is not None or opened.identity is None:
            continue
        if opened.problem == NOT_REGULAR and not context.files.is_directory(tried.path):
            reason = f"is {NOT_REGULAR}: the loader opens it, and may wait without end"
        elif opened.head is not None and reject_header(opened.head, context.target.header) is None:
            reason = f"cannot be read ({opened.problem}), and the loader may take it all the same"
        else:
            continue
        files.refuse(opened.identity, opened.path, None, (Refusal("the file", reason),))
        yield opened.identity


# Bytes; that patchelf has read all of a smaller file is not worth a finding.
REPORTED_FROM = 64 << 20
_COMPARED = 8 << 20

_Screening: TypeAlias = Callable[[Buffer, str, Image], Iterable[Finding]]


def edit_members(
    wheel: Wheel,
    planned: PreparedPlan,
    options: Options,
    sandbox: Sandbox | None,
    directory: Path,
    add: Callable[[str, NewContent], object] = lambda _name, _new: None,
    on_progress: OnProgress = lambda _: None,
) -> tuple[dict[str, Edited], list[Finding]]:
    """Edit the members that change, the largest first; returns them by name, and why some could not be edited. All are tried.

    The static scan judges a member before patchelf reads it. Several processes of patchelf run at one time, all started by the
    caller's thread, so that an interruption (Ctrl-C) ends them.

    :param sandbox: what patchelf runs in; None: the best kind that works here.
    :param directory: for what patchelf works on; must exist as long as new content is read.
    :param add: gets each member's new content, in the order in which the members were edited.
    :param on_progress: called with the number of bytes of new content that have been read; on any thread.
    :raises PatchelfError: there is no patchelf that can be used.
    :raises WheelError: a member is not the one that RECORD lists; raised when its new content is read.
    """
    contents = wheel.contents
    sizes = {file.path: contents.source.members[file.path].size for file in planned.plan.changed}
    files = sorted(planned.plan.changed, key=lambda file: sizes[file.path], reverse=True)
    screening = partial(screen_member, layout=planned.context.layout, trust=check_trust(options))

    def work() -> Iterator[tuple[int, Steps[Edited | list[Finding]]]]:
        for number, file in enumerate(files):
            steps = _edit_one(wheel, file, directory / f"{number}.elf", screening, sandbox)
            yield estimate_edit_memory(contents, file.path), steps

    changing = {file.path for file in files}
    for name in sorted(wheel.removals.keys() - changing - {*planned.plan.removed}):
        original = (memoryview(chunk) for chunk in contents.original(name, check=options.verify_record))
        pieces = _counted(replace_ranges(original, wheel.removals[name].ranges, name), on_progress)
        size = contents.source.members[name].size
        add(name, NewContent(pieces, size, partial(contents.spans, name)))
    edits: dict[str, Edited] = {}
    failures: list[Finding] = []
    kept = 0
    for edited in run_side_by_side(
        work(), options.jobs or default_jobs(), divide_memory(options.max_memory).edits
    ):
        if isinstance(edited, list):
            failures += edited
            continue
        name = edited.image.path
        if edited.gaps and name in contents.loaded:
            release_pages(contents.loaded[name].view)
            kept += len(edited.view) - sum(map(len, edited.gaps))
        spooled = kept > contents.spool.kept
        kept = 0 if spooled else kept
        edits[name] = edited
        if spooled:
            loaded = contents.loaded.get(name)
            with memoryview(edited.view) as view:
                parts = [*ranges_between(edited.gaps, len(view)), *(loaded.kept_ranges if loaded else ())]
                edits[name] = replace(edited, view=contents.spool.copy_to_file(view, parts))
        pieces = _pieces(contents, edits[name], check=options.verify_record)
        # Ranges that get other bytes after the edit, which was checked.
        ranges = wheel.removals[name].ranges if name in wheel.removals else ()
        pieces = _counted(replace_ranges(pieces, ranges, name), on_progress)
        spans = cache(partial(_reusable, contents, edits[name]))
        add(name, NewContent(pieces, len(edits[name].view), spans))
    return edits, failures


def _edit_one(
    wheel: Wheel, file: FilePlan, path: Path, screening: _Screening, sandbox: Sandbox | None
) -> Steps[Edited | list[Finding]]:
    """Edit one file, in steps, and compare its device code; only findings where the file cannot be edited or must not be read.

    :param path: for what patchelf works on.
    :raises PatchelfError: there is no patchelf that can be used.
    """
    try:
        edited = yield from _edited(wheel, file, path, screening, sandbox)
    except EditError as error:
        reason = error.message.removeprefix(f"{file.path}: ")
        return [finding("RLK516", file.path, "; ".join([reason, *error.issues]))]
    code = wheel.codes.get(file.path)
    if isinstance(edited, list) or code is None:
        return edited
    after = read_device_code(BufferSource(edited.view), file.path)
    changes = vendor_named(code.vendor).gpus.compare_code(code, after)
    changed = find_changed_code(file.path, changes)
    return replace(edited, findings=(*edited.findings, *changed))


def _edited(
    wheel: Wheel, file: FilePlan, path: Path, screening: _Screening, sandbox: Sandbox | None
) -> Steps[Edited | list[Finding]]:
    """Edit one file: without its gaps if possible, else as a whole; not at all if the static scan refuses the file.

    :raises EditError: patchelf fails, or its result does not hold up.
    """
    contents, name, image = wheel.contents, file.path, wheel.images[file.path]
    loaded = contents.loaded.get(name)
    reason = "none of its large sections can be left out"
    if loaded is not None:
        findings = [*screening(loaded.view, name, image)]
        if has_errors(findings):
            return findings
        try:
            edited = yield from short_edit(
                path, file.edit, image, loaded.view, loaded.gaps, loaded.kept_ranges, sandbox
            )
        except EditError as error:
            reason = "; ".join([error.message, *error.issues])
        else:
            return replace(edited, findings=tuple(findings))
    content = contents.source.read_into(name, spool=contents.spool)
    try:
        # Again for a file that was scanned above: patchelf reads its gaps now.
        findings = [*screening(content, name, image)]
        if has_errors(findings):
            return findings
        path.write_bytes(content)
        after = yield from whole_edit(path, file.edit, image, content, sandbox)
    finally:
        content.release()
    if image.size >= REPORTED_FROM:
        findings.append(finding("RLK510", name, f"patchelf was given all of it: {reason}"))
    with path.open("rb") as written:
        view = mmap.mmap(written.fileno(), 0, access=mmap.ACCESS_READ)
    return Edited(after, view, findings=tuple(findings))


def _reusable(contents: Contents, edited: Edited) -> tuple[Span, ...]:
    """Return the spans that the edit has not changed: gaps, and the bytes between them."""
    name = edited.image.path
    loaded = contents.loaded.get(name)
    if loaded is None or not edited.gaps:
        return ()
    with memoryview(edited.view) as after:
        return tuple(span for span in contents.spans(name) if _unchanged(span, loaded, after, edited))


def _unchanged(span: Span, loaded: LoadedMember, after: memoryview, edited: Edited) -> bool:
    # A block may refer to the window before it, so the window must be unchanged, too.
    known = range(max(0, span.start - WINDOW), span.stop)
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


def _pieces(contents: Contents, edited: Edited, *, check: bool) -> Iterator[memoryview]:
    """Yield the edited file: its gaps from the original content, which is read once, the rest from memory."""
    name = edited.image.path
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
