"""What is to change in one ELF file, what its facts are then, and the arguments by which patchelf changes it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from relink.elf.constants import PT_GNU_STACK
from relink.elf.image import Image
from relink.elf.version_edits import VersionEdit
from relink.system.errors import EditError


class ElfEdit(msgspec.Struct, frozen=True):
    """What is to change in one ELF file; what is None or empty stays.

    :ivar search_path: the new RPATH or RUNPATH as one string; the empty string removes the entry.
    :ivar search_kind: ``runpath`` or ``rpath``; goes with a search path that is not empty.
    :ivar replace: pairs of sonames (old, new); the version records that name the old one follow.
    :ivar remove: sonames whose NEEDED entry goes. The version record of such a library must be among `versions`.
    :ivar add: sonames that are added behind the image's own, in this order.
    :ivar versions: what becomes of version records, besides that they follow `replace`. patchelf has no part in it.
    :ivar clear_stack: PT_GNU_STACK, which the file has, asks for an executable stack no longer.
    """

    search_path: str | None = None
    search_kind: str | None = None
    replace: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    interpreter: str | None = None
    versions: tuple[VersionEdit, ...] = ()
    clear_stack: bool = False

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return self != ElfEdit()


def predict_edit(image: Image, edit: ElfEdit) -> Image:
    """Return the facts that `image` will have after `edit`. What the plan simulates and what is re-read must equal this."""
    renamed, removed = dict(edit.replace), frozenset(edit.remove)
    kept = [renamed.get(soname, soname) for soname in image.needed if soname not in removed]
    known = frozenset(kept)
    needed = [*kept, *(soname for soname in dict.fromkeys(edit.add) if soname not in known)]
    facts: dict[str, Any] = {"needed": tuple(needed)}
    if edit.search_path is not None:
        is_rpath = edit.search_kind == "rpath"
        facts["rpath"] = edit.search_path if edit.search_path and is_rpath else None
        facts["runpath"] = edit.search_path if edit.search_path and not is_rpath else None
    if edit.interpreter is not None:
        facts["interpreter"] = edit.interpreter
    if edit.clear_stack:
        facts["segments"] = tuple(
            replace(segment, flags=segment.flags & ~1) if segment.type == PT_GNU_STACK else segment
            for segment in image.segments
        )
    return replace(image, **facts)


def argument_lists(image: Image, edit: ElfEdit) -> list[list[str]]:
    """Return the arguments of each call: one, and one before it where a file has a DT_RPATH and a DT_RUNPATH.

    None where only version records change.
    """
    arguments = []
    for soname in edit.remove:
        arguments += ["--remove-needed", soname]
    for old, new in edit.replace:
        arguments += ["--replace-needed", old, new]
    kept = predict_edit(image, replace(edit, add=())).needed
    for soname in edit.add:
        if soname not in kept:
            arguments += ["--add-needed", soname]
    if edit.interpreter is not None:
        arguments += ["--set-interpreter", edit.interpreter]
    if edit.search_path == "":
        arguments += ["--remove-rpath"]
    elif edit.search_path is not None:
        # Without --force-rpath patchelf turns a DT_RPATH into DT_RUNPATH, and with it the other way round.
        force = ["--force-rpath"] if edit.search_kind == "rpath" else []
        arguments += [*force, "--set-rpath", edit.search_path]
    if edit.clear_stack:
        arguments += ["--clear-execstack"]
    # patchelf changes one of two search path entries and leaves the other, so a call before removes both.
    both = image.rpath is not None and image.runpath is not None
    first = [["--remove-rpath"]] if both and edit.search_path else []
    # Old sections keep their bytes: patchelf 0.19 moves .relr.dyn, and DT_RELR still leads to the old table.
    return [["--no-clobber-old-sections", *call] for call in (*first, arguments) if call]


def refuse_names(image: Image, edit: ElfEdit) -> None:
    """Refuse names that patchelf would not read as names, and version records of what is not NEEDED.

    A hostile wheel or prefix may have such names.

    :raises EditError: there are such names; `issues` has each.
    """
    pairs = [name for pair in edit.replace for name in pair]
    names = [*edit.remove, *pairs, *edit.add, edit.search_path or "", edit.interpreter or ""]
    issues = [f"{name!r}: patchelf would read a file of that name" for name in names if name.startswith("@")]
    issues += ["an empty soname" for name in (*edit.remove, *pairs, *edit.add) if not name]
    needed = predict_edit(image, edit).needed
    issues += [
        f"{version.file_after!r}: a version record is to name it, and it is not NEEDED"
        for version in edit.versions
        if version.file_after not in needed
    ]
    texts = [
        text
        for version in edit.versions
        for text in (version.file, version.version, version.file_after, version.version_after)
    ]
    issues += [
        f"{text!r}: no file has a string of these characters"
        for text in (*names, *texts)
        if not _can_be_in_a_file(text)
    ]
    if issues:
        raise EditError(f"{image.path}: the edit has names that no library can have", issues)


def _can_be_in_a_file(text: str) -> bool:
    """Whether bytes can be read as `text`: a saved plan may have surrogates that stand for none."""
    try:
        return b"\0" not in text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
