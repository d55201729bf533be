"""The words for what a Python process loads: events in their order, and the parts that files of a distribution have."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

When: TypeAlias = Literal["certain", "guarded", "inferred", "conditional", "later"]
"""How sure an event is.

``certain``: the import does it, and nothing catches its failure. ``guarded``: inside a ``try`` whose handler takes the failure.
``inferred``: made in C; a name in an extension says so. ``conditional``: below a test that sources do not decide. ``later``: in a
function that the import does not call, or in a module that it does not import.
"""

STRICTNESS: tuple[When, ...] = ("certain", "guarded", "inferred", "conditional", "later")
"""The strictest first."""

EventKind: TypeAlias = Literal["extension", "library", "symbol", "module", "unknown"]
"""``extension`` and ``library`` are a dlopen each, ``symbol`` a dlsym, ``module`` begins one in Python, ``unknown`` is unread."""


class Event(msgspec.Struct, frozen=True):
    """One thing that an import does.

    :ivar name: of an extension its path; of a library what dlopen is given, a path or a soname; of a module its name; of what
        could not be read the expression or the reason; of a dlsym ``SYMBOL of LIBRARY``.
    :ivar flags: those of dlopen (RTLD_NOW, RTLD_GLOBAL of bits/dlfcn.h); 0 where there is no dlopen.
    :ivar caller: path of the object that calls dlopen; empty for the program.
    :ivar module: the module whose code does it; empty for the interpreter itself.
    :ivar file: its source file.
    :ivar by: ``import``, ``ctypes.CDLL``, ``cffi.dlopen``; how the code asks for it.
    :ivar variables: the environment variables that decide whether it happens.
    """

    kind: EventKind
    name: str
    when: When
    flags: int = 0
    caller: str = ""
    module: str = ""
    file: str = ""
    line: int = 0
    by: str = "import"
    variables: tuple[str, ...] = ()


class ImportEvents(msgspec.Struct, frozen=True):
    """What ``import NAME`` does.

    :ivar events: in order; each dlopen once, where it happens first, with the strictest of its `when`.
    :ivar failure: what ends the import, as Python says it; None where nothing does.
    :ivar opening: the refused dlopen that `failure` comes from.
    :ivar assumed: modules that are not there and were taken to be, by this import or by an earlier one.
    """

    name: str
    events: tuple[Event, ...]
    failure: str | None = None
    opening: str = ""
    assumed: frozenset[str] = frozenset()
