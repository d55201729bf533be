"""What an import that nothing satisfies may have been meant to be."""

from __future__ import annotations

import bisect
import difflib

from relink.loader.scopes import Process

__all__ = ["closest"]

_MAX_CLOSEST = 3  # suggestions for one symbol
_NEIGHBOURS = 24  # names on either side in the alphabet that are compared
_MAX_COMPARED = 256  # characters of a name
_ALIKE = 0.75  # difflib's ratio


def closest(
    process: Process, requester: int, name: str, file: str | None, alphabets: dict[int, list[str]]
) -> tuple[str, ...]:
    """Return up to three exports that `name` may have been meant to be, ``name@VERSION in libx.so.1``.

    :param file: the soname that the version record of the import blames.
    :param alphabets: sorted export names by object, filled here and used again.
    """
    objects = process.closure.objects
    same = [
        f"{name}@{export.version} in {_label(process, index)}"
        if export.version
        else f"{name} without a version in {_label(process, index)}"
        for index in range(len(objects))
        for export in process.table(index).exports.get(name, ())
        if not export.undefined
    ]
    same += [
        f"{name} in {_label(process, index)}, but {export.visibility} there"
        for index in range(len(objects))
        for export in process.table(index).rejected.get(name, ())
        if export.visibility in ("hidden", "internal")
    ]
    if same:
        return tuple(dict.fromkeys(same))[:_MAX_CLOSEST]
    blamed = process.answering.get(file, ()) if file is not None else ()
    near: list[tuple[float, str, int]] = []
    matcher = difflib.SequenceMatcher(None, "", name[:_MAX_COMPARED])
    for index in blamed or process.needed.get(requester, ()):
        if index not in alphabets:
            alphabets[index] = sorted(process.table(index).exports)
        alphabet = alphabets[index]
        place = bisect.bisect(alphabet, name)
        for other in alphabet[max(0, place - _NEIGHBOURS) : place + _NEIGHBOURS]:
            matcher.set_seq1(other[:_MAX_COMPARED])
            # The upper bounds first: they cost a tenth, and most names are not alike.
            if matcher.real_quick_ratio() >= _ALIKE and matcher.quick_ratio() >= _ALIKE:
                ratio = matcher.ratio()
                if ratio >= _ALIKE:
                    near.append((-ratio, other, index))
    return tuple(f"{other} in {_label(process, index)}" for _, other, index in sorted(near)[:_MAX_CLOSEST])


def _label(process: Process, index: int) -> str:
    item = process.closure.objects[index]
    return item.image.soname or item.path.rpartition("/")[2]
