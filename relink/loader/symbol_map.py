"""Where the symbols of a closure's objects lead: many symbols of one object that lead to one other object, kept together.

A process has hundreds of thousands of bindings, and most callers ask which objects are bound to which, or for a few symbols. So
the symbols stay the indices that the look-ups gave, and become a dictionary only when a caller asks for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from relink.elf.symbols import Import

__all__ = ["Symbol", "SymbolMap"]

Symbol: TypeAlias = tuple[int, str, str | None]
"""An import: (index of the object in the closure's `objects`, name, version)."""


class SymbolMap(Mapping[Symbol, int]):
    """A mapping from symbols of objects to the indices of the objects that they bind to."""

    def __init__(self) -> None:
        self._groups: list[tuple[int, int, Sequence[Import], Sequence[int]]] = []
        self._lists: list[tuple[int, int, Sequence[tuple[str, str | None]]]] = []
        self._single: dict[Symbol, int] = {}
        self._all: dict[Symbol, int] | None = None

    def add(self, symbol: Symbol, target: int) -> None:
        """Add one symbol."""
        self._single[symbol] = target
        self._all = None

    def add_imports(
        self, requester: int, imports: Sequence[Import], places: Sequence[int], target: int
    ) -> None:
        """Add the imports of an object at these indices, which all bind to one object."""
        self._groups.append((requester, target, imports, places))
        self._all = None

    def add_symbols(self, requester: int, symbols: Sequence[tuple[str, str | None]], target: int) -> None:
        """Add symbols of an object, names with versions, which all lead to one object."""
        self._lists.append((requester, target, symbols))
        self._all = None

    def groups(self) -> Iterator[tuple[int, int, Iterable[tuple[str, str | None]]]]:
        """Yield (requester, target, names with versions); a pair of objects may come more than once."""
        for requester, target, imports, places in self._groups:
            yield requester, target, ((imports[place].name, imports[place].version) for place in places)
        yield from self._lists
        for (requester, name, version), target in self._single.items():
            yield requester, target, ((name, version),)

    def _dictionary(self) -> dict[Symbol, int]:
        if self._all is None:
            self._all = {
                (requester, name, version): target
                for requester, target, names in self.groups()
                for name, version in names
            }
        return self._all

    def __getitem__(self, symbol: Symbol) -> int:
        """Return the index of the object that a symbol binds to."""
        return self._dictionary()[symbol]

    def __iter__(self) -> Iterator[Symbol]:
        """Iterate over the symbols."""
        return iter(self._dictionary())

    def __len__(self) -> int:
        """Return how many symbols there are."""
        return len(self._dictionary())
