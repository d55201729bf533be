"""The values that are followed through a source: constants of Python, lists and dictionaries of values, and the classes here."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import PurePosixPath
from typing import Any, TypeAlias

import msgspec
from packaging.version import Version

from relink.python.events import STRICTNESS, Event
from relink.python.modules import Spec
from relink.python.syntax import SyntaxNode

LARGEST_VALUE = 10_000
"""Characters or items of a value; what would be larger is not known."""
_FEW = 4
MODULE_STEPS = 200_000
"""Statements that are followed of one module."""


class Unknown:
    """The value that is not known."""


Signal: TypeAlias = tuple[str, Any] | None
"""How a block ended: by ``break``, ``continue`` or ``return`` with a value; None at its end."""
UNKNOWN = Unknown()
MISSING = Unknown()
NO_DIRECTORY = "/dev/null/current directory"  # a path that no file can have
"""What a module has instead of a variable that it has not."""


class Raised(Exception):  # noqa: N818 - what the source that is followed raises is no error of relink
    """What the source that is followed would raise.

    :ivar kind: name of the built-in class that it is, or that its class is derived from.
    :ivar is_certain: there is no such module or file; any other may rest on a value that is not what it is taken for.
    :ivar opening: the dlopen that fails; empty for what has another reason.
    """

    def __init__(self, kind: str, text: str = "", *, is_certain: bool = False, opening: str = "") -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.is_certain = is_certain
        self.opening = opening

    @property
    def value(self) -> Instance:
        """What a handler binds."""
        return Instance(Class(self.kind, {}, [Native(self.kind)]), {"<raised>": self, "args": (self.text,)})


class Module(msgspec.Struct, eq=False):
    """A module and what it does.

    :ivar names: its global variables.
    :ivar is_open: it may have variables that `names` lacks.
    :ivar events: what it does by itself, in order; its imports have the kind ``module``.
    :ivar failure: what its import raises; None where it ends.
    :ivar is_done: it has been followed to its end.
    :ivar imported: by the name of a module in `events` the surest of those events, as a place in `STRICTNESS`.
    :ivar bodies: those of its functions, once one is called; as text until it is called itself.
    :ivar vain: how often a function of it was called with arguments and nothing was loaded, by its number.
    :ivar has_finder: it has put a finder into sys.meta_path (six.moves), or modules whose names are not known into sys.modules
        (BTrees): there may be some below it.
    """

    name: str
    spec: Spec
    names: dict[str, Any] = msgspec.field(default_factory=dict)
    is_open: bool = False
    events: list[Event] = msgspec.field(default_factory=list)
    failure: Raised | None = None
    is_done: bool = False
    imported: dict[str, int] = msgspec.field(default_factory=dict)
    bodies: list[Any] | None = None
    vain: dict[int, int] = msgspec.field(default_factory=dict)
    has_finder: bool = False

    def note(self, event: Event) -> None:
        """Add an event, but for an import that is no surer than one before: a loop may do the same one 100,000 times."""
        if event.kind == "module":
            when = STRICTNESS.index(event.when)
            if self.imported.get(event.name, len(STRICTNESS)) <= when:
                return
            self.imported[event.name] = when
        self.events.append(event)

    def forget(self) -> None:
        """Remove all events."""
        self.events.clear()
        self.imported.clear()

    @property
    def makes_modules(self) -> bool:
        """Whether there may be modules below it that no file has: an extension makes some, and so does a finder."""
        return self.has_finder or self.spec.kind in ("extension", "builtin")


class Function(msgspec.Struct, eq=False):
    """A function of a source.

    :ivar name: with the module and the class.
    :ivar flags: whether it imports or opens something itself, and whether it is a generator; empty until somebody asks.
    :ivar number: that of its body.
    :ivar outer: the variables of the functions around it, the nearest first.
    :ivar kind: ``property``, ``staticmethod`` and other decorators; else ``function``. `owner`: the class that has it.
    :ivar running: the arguments of its calls that are followed now.
    """

    name: str
    module: Module
    parameters: SyntaxNode
    defaults: list[Any]
    flags: list[bool]
    number: int
    outer: tuple[dict[str, Any], ...]
    kind: str = "function"
    owner: Class | None = None
    running: list[list[Any]] = msgspec.field(default_factory=list)


class Class(msgspec.Struct, eq=False):
    """A class of a source."""

    name: str
    names: dict[str, Any]
    bases: list[Any]
    meta: Any = None

    def find(self, name: str) -> Any:
        """Return an attribute of the class or of a base; :data:`UNKNOWN` without."""
        if name in self.names:
            return self.names[name]
        found = (base.find(name) for base in self.bases if isinstance(base, Class))
        return next((value for value in found if value is not UNKNOWN), UNKNOWN)

    def lines(self) -> Iterator[str]:
        """Yield its name and those of its bases."""
        yield self.name
        for base in self.bases:
            if isinstance(base, Class):
                yield from base.lines()
            elif isinstance(base, Native):
                yield base.name


class Instance(msgspec.Struct, eq=False):
    """An object of a class."""

    cls: Class
    names: dict[str, Any] = msgspec.field(default_factory=dict)


class Deferred(msgspec.Struct, frozen=True):
    """A call that waits: of what functools.partial returns, or of a context manager."""

    function: Any
    arguments: list[Any]
    named: dict[str, Any]


class Opened(msgspec.Struct, frozen=True):
    """The library of an object of ctypes or cffi, and what has opened it."""

    library: str
    by: str


class Super(Instance):
    """What super() returns: the bases of a class, for an object or a class."""

    target: Any = None


SPEC = Class("importlib.machinery.ModuleSpec", {}, [])


class Native(msgspec.Struct, frozen=True):
    """A function, class or object that :mod:`relink.python.known` knows by its name, or an exception."""

    name: str


class Bound(msgspec.Struct, frozen=True):
    """A method of an object, or of a value of Python's own."""

    owner: Any
    method: Function | Native | str


class Matched(tuple[str | None, ...]):
    """What re.search returns: the whole, and the groups."""

    __slots__ = ()


class Pattern(str):
    """What re.compile returns."""

    __slots__ = ()


class Frame(msgspec.Struct):
    """The variables of a block: its own, those of functions around it, and which are the module's.

    :ivar may_have_ended: a test that is not known decides whether the function has returned.
    :ivar lost: the failure of a dlopen that a handler of the block took, after which the block goes on.
    :ivar take: what takes the values that it yields.
    """

    module: Module
    names: dict[str, Any]
    outer: tuple[dict[str, Any], ...] = ()
    is_function: bool = False
    prefix: str = ""
    may_have_ended: bool = False
    lost: Raised | None = None
    take: Callable[[Any], object] | None = None
    globals: set[str] = msgspec.field(default_factory=set)


class State(msgspec.Struct):
    """Where the walk through one module is.

    :ivar when: how sure it is that the statement is reached, as an index of ``STRICTNESS``.
    :ivar deciding: the environment variables that the tests around it read.
    :ivar caught: the exceptions that handlers around it take.
    :ivar steps: statements that may still be followed.
    :ivar has_sought: it was asked for a library that is not there.
    :ivar is_guessed: the module may be imported at another time, as a name in an extension leads to it.
    """

    module: Module
    when: int = 0
    is_guessed: bool = False
    has_sought: bool = False
    deciding: tuple[str, ...] = ()
    caught: frozenset[str] = frozenset()
    steps: int = MODULE_STEPS
    calls: int = 0
    line: int = 0
    frame: Frame | None = None

    @property
    def is_sure(self) -> bool:
        """Whether no test that is not known decides if the statement is reached."""
        return self.when < STRICTNESS.index("conditional")

    @property
    def is_certain(self) -> bool:
        """Whether a source alone leads here, and no test that is not known decides it."""
        return self.is_sure and not self.is_guessed


PLAIN = str | int | tuple | list | set | None | PurePosixPath | Version  # type: ignore[type-arg]
"""The kinds of values that are compared."""
# Modules of the standard library that define in some releases what another one has, and copies of `packaging`; the name there.
_PRIVATE = {
    "genericpath": "posixpath",
    "pathlib._local": "pathlib",
    "importlib._bootstrap": "importlib.util",
    "importlib._bootstrap_external": "importlib.util",
    "_frozen_importlib_external": "importlib.util",
    "importlib.resources._common": "importlib.resources",
    "importlib.resources._legacy": "importlib.resources",
    "importlib.resources._functional": "importlib.resources",
    "pandas.util.version": "packaging.version",
    "sklearn.externals._packaging.version": "packaging.version",
}
_OF_PATH = ("parent", "parents", "parts", "name", "stem", "suffix", "suffixes")
_OF_VERSION = ("major", "minor", "micro", "base_version", "public", "local", "release")
_OF_VERSION_INFO = ("major", "minor", "micro", "releaselevel", "serial")
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "BitOr": operator.or_,
    "BitAnd": operator.and_,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
}


def plain_attribute(owner: Any, name: str) -> Any:
    """Return an attribute of a value of Python's own, or its method."""
    if isinstance(owner, tuple) and name in _OF_VERSION_INFO and len(owner) == len(_OF_VERSION_INFO):
        return owner[_OF_VERSION_INFO.index(name)]
    if isinstance(owner, Version):
        return getattr(owner, name) if name in _OF_VERSION else UNKNOWN
    if isinstance(owner, PurePosixPath) and name in _OF_PATH:
        found = getattr(owner, name)
        return found if isinstance(found, str | PurePosixPath) else [*found]
    return Bound(owner, name)


def truth(value: Any) -> bool | None:
    """Return whether a value counts as true; None where that is not known."""
    if isinstance(value, Instance) and "<raised>" in value.names:
        return True
    if isinstance(value, Instance):
        return None if value.cls.bases or {"__bool__", "__len__"} & value.cls.names.keys() else True
    is_open = isinstance(value, dict) and value.keys() == {UNKNOWN}
    return None if is_open or isinstance(value, Unknown | Bound) else bool(value)


def are_same(values: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether the arguments of two calls of a function are the same objects, or nothing is known of both; so in short lists."""
    if len(values) != len(others):
        return False
    for one, other in zip(values, others, strict=True):
        are_short = all(isinstance(each, list | tuple) and len(each) < _FEW for each in (one, other))
        if one is not other and not (are_short and are_same(one, other)):
            return False
    return True


def items(value: Any) -> list[Any] | None:
    """Return the items of what is iterated over; None where they, or an order of theirs, are not known."""
    if isinstance(value, Instance):
        value = value.names.get("__iter__")
    elif isinstance(value, Class):  # of enum
        value = [
            one for one in value.names.values() if isinstance(one, Instance) and one.cls is value
        ] or None
    if not isinstance(value, list | tuple | dict | set) or len(value) > LARGEST_VALUE:
        return None
    if isinstance(value, set):  # texts alone have an order that no hash seed changes
        return sorted(value) if all(isinstance(one, str) for one in value) else None
    return [one for one in value if one is not UNKNOWN] if isinstance(value, dict) else list(value)


def put_module(modules: dict[str, Module], by: Module, key: Any, value: Any) -> None:
    """Follow ``sys.modules[KEY] = VALUE`` of a module; where the key is not known, what is below that may be there."""
    if not isinstance(key, str):
        by.has_finder = True
    elif isinstance(value, Module):
        modules[key] = value
    elif value is not None:
        made = Module(key, Spec(key, "builtin"), is_open=True, is_done=True)
        modules.setdefault(key, made)


def is_known(value: Any) -> bool:
    """Whether a value is one of Python's own, and all of it is known."""
    if isinstance(value, list | tuple | set):
        return all(isinstance(one, PLAIN) for one in value)
    return UNKNOWN not in value if isinstance(value, dict) else isinstance(value, PLAIN)


def bounded(value: Any) -> Any:
    """Return a value, or :data:`UNKNOWN` where it is larger than those that are followed."""
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else UNKNOWN
    return UNKNOWN if isinstance(value, str | list | tuple | set) and len(value) > LARGEST_VALUE else value


def binary(name: str, left: Any, right: Any) -> Any:
    """Return the value of a binary operation."""
    if name == "Div" and isinstance(left, PurePosixPath) and isinstance(right, str | PurePosixPath):
        return left / right
    if name == "Mod" and isinstance(left, str):
        given = right if isinstance(right, tuple) else (right,)
        # Only ``%s`` and ``%d`` without widths, which could be of any size.
        if left.count("%") == left.count("%s") + left.count("%d") == len(given) and is_known(given):
            with suppress(TypeError):
                return bounded(left % given)
    elif name == "Mult" and isinstance(left, bool) and isinstance(right, str | list | tuple):
        return right if left else right[:0]
    elif name == "Mult" and isinstance(left, int) and isinstance(right, int):
        return bounded(left * right)
    elif name in ("Pow", "LShift") and isinstance(left, int) and isinstance(right, int) and 0 <= right < 64:
        return bounded(left**right if name == "Pow" else left << right)
    elif name in _BINARY and isinstance(left, str | int | list | tuple | set):
        with suppress(TypeError, ZeroDivisionError):
            return bounded(_BINARY[name](left, right))
    return UNKNOWN


def compare(name: str, left: Any, right: Any) -> Any:
    """Return the value of one comparison."""
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return UNKNOWN
    if name in ("Is", "IsNot"):
        return (left is right or (isinstance(left, int | str) and left == right)) == (name == "Is")
    if not is_known(left) or not is_known(right):
        return UNKNOWN
    with suppress(TypeError):
        return (left in right) == (name == "In") if name in ("In", "NotIn") else _COMPARE[name](left, right)
    return UNKNOWN


def is_key(value: Any) -> bool:
    """Whether a value may be a key of a dictionary that is followed."""
    parts = value if isinstance(value, tuple) else (value,)
    return all(isinstance(part, str | int | None) for part in parts)


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are one, or equal constants."""
    return one is other or (isinstance(one, str | int | None) and type(one) is type(other) and one == other)


@cache
def is_kind(raised: str, taken: str) -> bool:
    """Whether a handler for the exception `taken` takes `raised`."""
    one, other = getattr(builtins, raised, Exception), getattr(builtins, taken, None)
    return isinstance(one, type) and isinstance(other, type) and issubclass(one, other)


def exception_kind(value: Any) -> str:
    """Return the name of the built-in exception that a value, or its class, is derived from."""
    cls = value.cls if isinstance(value, Instance) else value
    names = cls.lines() if isinstance(cls, Class) else (cls.name,) if isinstance(cls, Native) else ()
    return next((name for name in names if hasattr(builtins, name)), "Exception")


def raised_after(lost: Raised | None, value: Any, state: State) -> Raised:
    """Return what ``raise VALUE`` raises: what follows the failure of a dlopen in a function is because of that.

    :param lost: that failure.
    """
    kind = exception_kind(value)
    if lost is None or not state.is_sure:
        is_certain = state.has_sought or any(is_kind(kind, one) for one in ("ImportError", "OSError"))
        return Raised(kind, is_certain=is_certain and state.is_certain)
    return Raised(lost.kind if value is UNKNOWN else kind, lost.text, is_certain=True, opening=lost.opening)


def absolute_name(frame: Frame | None, level: int, name: str) -> str:
    """Return the whole name of what a relative import names (importlib._bootstrap._resolve_name).

    :raises Raised: it leads out of the package.
    """
    if not level or frame is None:
        return name
    package = frame.module.names.get("__package__")
    parts = package.split(".") if isinstance(package, str) and package else []
    if level > len(parts):
        raise Raised("ImportError", "attempted relative import beyond top-level package", is_certain=True)
    return ".".join([*parts[: len(parts) - level + 1], *([name] if name else [])])


def bind_arguments(function: Function, given: list[Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return the variables of a function at the start of a call; a parameter without an argument is not known."""
    _, _, first, second, _, more, more_defaults, rest, keywords = function.parameters
    positional = [*first, *second]
    names: dict[str, Any] = dict.fromkeys([*positional, *more], UNKNOWN)
    names.update(zip(positional[len(positional) - len(function.defaults) :], function.defaults, strict=False))
    for name, value in zip(more, more_defaults, strict=False):
        if value and value[0] == "Constant":
            names[name] = value[2]
    names.update(zip(positional, given, strict=False))
    left = {name: value for name, value in named.items() if name not in names}
    names |= {name: value for name, value in named.items() if name in names}
    if rest:
        names[rest] = tuple(given[len(positional) :])
    if keywords:
        names[keywords] = left
    return names


def bind_method(owner: Any, found: Any, *kinds: str) -> Any:
    """Return an attribute of an object or class: a function of one of these kinds as its method."""
    return Bound(owner, found) if isinstance(found, Function) and found.kind in kinds else found


@cache
def public_name(name: str) -> str:
    """Return the name of a function or class of the standard library by which the known ones are listed."""
    module, _, last = name.rpartition(".")
    return f"{_PRIVATE.get(module, module)}.{last}"
