"""What an import that nothing satisfies may have been meant to be."""

from __future__ import annotations

import bisect
import difflib

from relink.loader.binding import Unbound
from relink.loader.closure import Closure
from relink.loader.object_graph import needed_by
from relink.loader.tables import Tables

_MAX_CLOSEST = 3
_NEIGHBOURS = 24
_MAX_COMPARED = 256  # characters of a name
_ALIKE = 0.75  # difflib's ratio


class Closest:
    """The exports of one closure that come nearest to what it lacks. Comparing names is slow, so ask only for what is shown.

    :param alphabets: the sorted exports of tables, by their `id`: closures that have libraries in common share it.
    """

    def __init__(
        self, closure: Closure, tables: Tables, alphabets: dict[int, list[str]] | None = None
    ) -> None:
        self._objects = closure.objects
        self._tables = tables
        self._by_name = closure.names
        self._needed = needed_by(closure)
        self._alphabets = {} if alphabets is None else alphabets

    def of(self, lost: Unbound) -> tuple[str, ...]:
        """Return up to three exports, ``name@VERSION in libx.so.1``.

        The same name in other versions comes first, or where it is hidden; else names like it in the library that the
        version record blames, or in those that the object needs.
        """
        return self._same(lost.name) or self._like(lost)

    def _same(self, name: str) -> tuple[str, ...]:
        same = [
            f"{name}@{export.version} in {self._label(index)}"
            if export.version
            else f"{name} without a version in {self._label(index)}"
            for index, loaded in enumerate(self._objects)
            for export in self._tables.of(loaded).exports.get(name, ())
            if not export.undefined
        ]
        same += [
            f"{name} in {self._label(index)}, but {export.visibility} there"
            for index, loaded in enumerate(self._objects)
            for export in self._tables.of(loaded).rejected.get(name, ())
            if export.visibility in ("hidden", "internal")
        ]
        return tuple(dict.fromkeys(same))[:_MAX_CLOSEST]

    def _like(self, lost: Unbound) -> tuple[str, ...]:
        blamed = self._by_name.get(lost.file, ()) if lost.file is not None else ()
        near: list[tuple[float, str, int]] = []
        matcher = difflib.SequenceMatcher(None, "", lost.name[:_MAX_COMPARED])
        for index in blamed or self._needed.get(lost.requester, ()):
            table = self._tables.of(self._objects[index])
            if id(table) not in self._alphabets:
                self._alphabets[id(table)] = sorted(table.exports)
            alphabet = self._alphabets[id(table)]
            position = bisect.bisect(alphabet, lost.name)
            for other in alphabet[max(0, position - _NEIGHBOURS) : position + _NEIGHBOURS]:
                matcher.set_seq1(other[:_MAX_COMPARED])
                # The upper bounds of the ratio first: they cost a tenth of it, and most names are not alike.
                if matcher.real_quick_ratio() >= _ALIKE and matcher.quick_ratio() >= _ALIKE:
                    ratio = matcher.ratio()
                    if ratio >= _ALIKE:
                        near.append((-ratio, other, index))
        return tuple(f"{other} in {self._label(index)}" for _, other, index in sorted(near)[:_MAX_CLOSEST])

    def _label(self, index: int) -> str:
        loaded = self._objects[index]
        return loaded.image.soname or loaded.path.rpartition("/")[2]
