"""Edits by patchelf, done at once; relink does them in steps, several at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from relink.elf.dynamic import Buffer
from relink.elf.edit import ElfEdit
from relink.elf.gaps import Gap
from relink.elf.image import Image
from relink.elf.patchelf import Edited, short_edit, whole_edit
from relink.system.programs import finish_steps
from relink.system.sandbox.start import Sandbox


def apply_edit(
    path: Path, edit: ElfEdit, before: Image, original: Buffer, sandbox: Sandbox | None = None
) -> Image:
    """Edit a file as a whole (:func:`relink.elf.patchelf.whole_edit`)."""
    return finish_steps(whole_edit(path, edit, before, original, sandbox))


def edit_without_gaps(
    path: Path,
    edit: ElfEdit,
    before: Image,
    original: Buffer,
    gaps: Sequence[Gap],
    keep: Iterable[range] = (),
) -> Edited:
    """Edit a file without its gaps (:func:`relink.elf.patchelf.short_edit`)."""
    return finish_steps(short_edit(path, edit, before, original, gaps, keep))
