"""Making grafts: files of a second provider are edited as members are, and streamed into the output with their licences.

Takes drafts and their plans. Gives each graft's new content. A file is mapped, and patchelf gets a copy without its gaps, so
memory does not grow with the file. Its digest is compared with the plan's while it is copied.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from relink.checks.licences import LICENCE_LIMIT
from relink.contents import LoadedMember, slices_of
from relink.edit import EditedFile, UneditedFile, edit_one, pieces_of
from relink.elf.gaps import find_gaps
from relink.elf.patchelf import Edited
from relink.errors import ElfError, UsageError
from relink.files import map_file, read_bytes
from relink.findings.model import has_errors
from relink.gpu import DeviceCode
from relink.plans.model import Graft, Plan
from relink.progress import OnProgress
from relink.resolve.grafts import GraftDraft
from relink.resolve.strategy import ResolveContext
from relink.sandbox import Sandbox
from relink.screening import screen_member
from relink.steps import finished
from relink.system_errors import raise_trouble
from relink.wheel.changes import Addition, Replacement

__all__ = ["graft_files", "licence_members"]


def graft_files(
    drafts: Sequence[GraftDraft],
    plans: Sequence[Graft],
    context: ResolveContext,
    codes: Mapping[str, DeviceCode],
    directory: Path,
    stack: ExitStack,
    *,
    trust: Sequence[str] = (),
    on_progress: OnProgress = lambda _: None,
    sandbox: Sandbox | None = None,
) -> Iterator[EditedFile | UneditedFile]:
    """Edit the grafts, one each time that the next is asked for.

    :param directory: for what patchelf works on; must exist as long as the content is read.
    :param stack: closes the files that are copied; must be open as long as the content is read.
    :param trust: as for :func:`relink.edit.edit_files`.
    :raises UsageError: a file is not the one that was planned with; raised when the new content is read.
    """
    files = {plan.path: plan.file for plan in plans}
    for number, draft in enumerate(drafts):
        file, image = files[draft.path], draft.image
        try:
            buffer = stack.enter_context(map_file(context.files.host(draft.source)))
        except OSError as error:
            raise_trouble(error, draft.source)
            raise UsageError(f"{draft.source} cannot be read ({error.strerror})") from error
        view = memoryview(buffer)
        stack.callback(view.release)
        try:
            gaps = find_gaps(view, image)
        except ElfError:  # section headers that lead nowhere: the loader does not read them
            gaps = ()
        if file.changed:
            loaded = LoadedMember(view, gaps, (), True) if gaps else None
            place = directory / f"graft-{number}.elf"
            steps = edit_one(
                file,
                image,
                place,
                loaded,
                lambda view=view: view[:],  # type: ignore[misc]
                codes.get(draft.path),
                layout=context.layout,
                trust=trust,
                sandbox=sandbox,
            )
            edited, found = finished(steps)
        else:
            found = [*screen_member(view, draft.path, image, context.layout, trust)]
            edited = None if has_errors(found) else Edited(image, view, gaps)
        if edited is None:
            yield UneditedFile(draft.path, tuple(found))
            continue
        pieces = _copied(edited, view, draft, on_progress)
        yield EditedFile(draft.path, edited, Replacement(pieces, len(edited.view)), tuple(found))


def _copied(
    edited: Edited, view: memoryview, draft: GraftDraft, on_progress: OnProgress
) -> Iterator[memoryview]:
    """Yield the new content.

    :raises UsageError: the file has another content than it was planned with.
    """
    digest: Any = hashlib.sha256()

    def original() -> Iterator[memoryview]:
        for chunk in _released(view):
            digest.update(chunk)
            yield chunk

    if not edited.gaps:
        for chunk in original():
            del chunk
    for piece in pieces_of(edited, original()):
        yield piece
        on_progress(piece.nbytes)
    if digest.hexdigest() != draft.sha256:
        raise UsageError(f"{draft.source} has changed since it was planned with; relink again")


def _released(view: memoryview) -> Iterator[memoryview]:
    return slices_of(view) if isinstance(view.obj, mmap.mmap) else iter([view])


def licence_members(plan: Plan, dist_info: str, context: ResolveContext) -> dict[str, Addition]:
    """Return the licence texts of the grafts that are copied, by path in the output.

    :raises UsageError: a text is not the one that was planned with.
    """
    members = {}
    for graft in plan.grafts:
        licence = graft.licence
        member = licence.member(graft.soname)
        if graft.path in plan.kept or member is None or licence.file is None:
            continue
        try:
            content = read_bytes(context.files.host(licence.file), LICENCE_LIMIT)
        except OSError as error:
            raise_trouble(error, licence.file)
            raise UsageError(f"{licence.file} cannot be read ({error.strerror})") from error
        if hashlib.sha256(content).hexdigest() != licence.sha256:
            raise UsageError(f"{licence.file} has changed since it was planned with; relink again")
        members[f"{dist_info}/{member}"] = Addition(content)
    return members
