"""What an earlier run did to a wheel's own members, forgotten: so another provider starts from what the vendor wrote.

Takes the plan that a relinked wheel carries. Gives its members' images with the vendor's search paths and without the NEEDED that
were added, and turns what is decided about these into an edit of the files as they are. What the earlier run replaced or dropped
stays: the version records went with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from relink.elf.image import Image
from relink.elf.patchelf import ElfEdit, result_of
from relink.plans.files import FilePlan, Resolution, link_facts
from relink.plans.model import Plan

__all__ = ["edit_of_today", "vendor_images", "vendor_platform"]


def vendor_images(images: Mapping[str, Image], earlier: Plan | None) -> dict[str, Image]:
    """Return the members' images without what an earlier run added to them; those that it did not write stay as they are."""
    found = dict(images)
    for file in earlier.files if earlier is not None else ():
        image = images.get(file.path)
        if image is None or not file.changed:
            continue
        after = link_facts(image)
        if (after.search_path, after.search_kind) != (file.rpath.after or None, file.rpath.kind_after):
            continue  # somebody changed the file afterwards
        if not set(file.edit.add) <= set(image.needed):
            continue
        needed = tuple(soname for soname in image.needed if soname not in file.edit.add)
        path, kind = file.rpath.before, file.rpath.kind_before
        found[file.path] = replace(
            image,
            needed=needed,
            rpath=path if kind == "rpath" else None,
            runpath=path if kind == "runpath" else None,
        )
    return found


def edit_of_today(file: FilePlan, base: Image, actual: Image) -> FilePlan:
    """Turn the plan of a file as the vendor wrote it into one of the file as it is.

    :param base: what the plan was decided from, as :func:`vendor_images` gives it; `actual`: the file.
    """
    if base == actual:
        return file
    wanted = result_of(base, file.edit)
    path, kind = wanted.search_path, wanted.search_kind
    differs = (path or None, kind if path else None) != (
        actual.search_path or None,
        actual.search_kind if actual.search_path else None,
    )
    forgotten = tuple(
        soname for soname in actual.needed if soname not in base.needed and soname not in wanted.needed
    )
    edit = replace(
        file.edit,
        search_path=(path or "") if differs else None,
        search_kind=kind if differs and path else None,
        remove=(*file.edit.remove, *forgotten),
        add=tuple(soname for soname in file.edit.add if soname not in actual.needed),
    )
    facts = link_facts(actual)
    known = dict(zip((*file.before.needed, *file.edit.add), file.resolutions, strict=True))
    gone = Resolution(None, None, "missing", ("added by an earlier run, which this one forgets",))
    resolutions = tuple(known.get(soname, gone) for soname in (*facts.needed, *edit.add))
    return replace(file, edit=edit or ElfEdit(), before=facts, resolutions=resolutions)


def vendor_platform(earlier: Plan) -> str:
    """Return the platform tags of the vendor's wheel, with points between them."""
    return ".".join(dict.fromkeys(tag.split("-")[2] for tag in earlier.wheel.tags))
