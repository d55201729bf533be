"""What a module does when it is imported, found by following its statements with the values that are known; nothing runs.

A test that is known is decided. Of one that is not, both branches are followed, and what they load is conditional. A function
that is called is followed with its arguments. Where a real import would raise, :class:`Raised` does, and a handler takes it as
Python's would. Every module is followed once. Statements, depth, sizes and numbers are bounded, since a source may be made to
have no end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Any, TypeAlias

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import Version

from relink.python.answers import AskedVariables
from relink.python.events import STRICTNESS, Event, EventKind, When
from relink.python.expressions import EXPRESSIONS
from relink.python.modules import Disk, Interpreter, Spec, find_module
from relink.python.objects import MANAGER, attribute_of, make_instance
from relink.python.statements import STATEMENTS
from relink.python.syntax import SOURCE_LIMIT, Nodes, SyntaxNode, UnreadableSourceError, read_body, read_flags
from relink.python.values import (
    LARGEST_VALUE,
    MISSING,
    NO_DIRECTORY,
    SPEC,
    UNKNOWN,
    Bound,
    Class,
    Deferred,
    Frame,
    Function,
    Instance,
    Module,
    Native,
    Opened,
    Raised,
    Signal,
    State,
    are_same,
    bind_arguments,
    bind_method,
    is_key,
    is_kind,
    items,
    plain_attribute,
    public_name,
    put_module,
    raised_after,
)

_CALL_STEPS = 5_000  # statements of one call
_CALLS = 16  # calls inside of each other
_VAIN = 500  # calls of one function with arguments that load nothing; torch calls one 100,000 times
_VAIN_OPENING = 5_000  # of one that imports or opens something itself; triton calls one 379,000 times
_IMPORTS = 250  # imports inside of each other
_SHORT = 6000  # characters of the body of a function that is followed for its value alone
_REFUSALS = {"extension": "ImportError", "library": "OSError", "symbol": "AttributeError"}


Known: TypeAlias = Callable[["Evaluation", list[Any], dict[str, Any]], Any]
"""A function that is known by its name: takes the evaluation, positional and keyword arguments."""


class _SpentError(Exception):
    """More statements than are followed."""


class Evaluation(msgspec.Struct):
    """The modules of one environment that have been followed, and where the walk is.

    :ivar read_statements: returns the statements of a source file; `read_bodies`: those of its functions, by their numbers.
    :ivar variables: the environment variables of the process.
    :ivar known: functions by their names.
    :ivar values: variables of modules that are known better than their sources say.
    :ivar find_soname: returns what the loader's cache has for ``libNAME.so``; None without.
    :ivar follow_extension: does what an extension is found to do.
    :ivar list_mapped: returns the files that the process has mapped so far; None where that is not known.
    :ivar required: distributions whose modules count as there where they are not: those that a wheel requires. None where the
        environment is complete.
    :ivar refused: names of extensions and libraries whose dlopen fails.
    :ivar assumed: the modules that were taken to be there.
    :ivar taken_out: the modules that sources have taken out of sys.modules.
    :ivar flags: those of sys.setdlopenflags; `directory`: the current one, once a source has changed it.
    :ivar read_variables: the environment variables that were read so far.
    :ivar entry_points: those of all distributions, once they have been asked for.
    """

    interpreter: Interpreter
    disk: Disk
    read_statements: Callable[[str], Nodes]
    read_bodies: Callable[[str], list[str]]
    variables: AskedVariables
    known: Mapping[str, Known]
    values: Mapping[str, Any]
    find_soname: Callable[[str], str | None]
    follow_extension: Callable[[Evaluation, Module], None]
    list_mapped: Callable[[], list[str] | None] = lambda: None
    modules: dict[str, Module] = msgspec.field(default_factory=dict)
    required: frozenset[str] | None = None
    refused: frozenset[str] = frozenset()
    assumed: set[str] = msgspec.field(default_factory=set)
    taken_out: set[str] = msgspec.field(default_factory=set)
    flags: int = 2
    directory: str = NO_DIRECTORY
    state: State = msgspec.field(default_factory=lambda: State(Module("", Spec("", "builtin"))))
    read_variables: list[str] = msgspec.field(default_factory=list)
    entry_points: list[Instance] | None = None
    _imports: int = 0
    # What handlers have taken that are followed now.
    handling: list[Raised] = msgspec.field(default_factory=list)

    def record(self, kind: EventKind, name: str, by: str, *, flags: int = 0, caller: str = "") -> None:
        """Note something that the module does that is imported now.

        :raises Raised: it is a dlopen that fails.
        """
        state = self.state
        where = state.frame.module if state.frame else state.module
        event = Event(
            kind,
            name,
            STRICTNESS[state.when],
            flags,
            caller,
            where.name,
            where.spec.file,
            state.line,
            by,
            state.deciding,
        )
        state.module.note(event)
        if name in self.refused and kind in _REFUSALS:
            is_absent = kind == "extension" and name in self.disk.absent
            of_import = "ModuleNotFoundError" if is_absent else "ImportError"
            raised = {"import": of_import, "in_dll": "ValueError"}.get(by, _REFUSALS[kind])
            raise Raised(raised, name, is_certain=True, opening=name)

    @contextmanager
    def at_least(self, when: When, caught: frozenset[str] = frozenset()) -> Iterator[None]:
        """What happens meanwhile is no surer than `when`, and handlers take `caught`."""
        state = self.state
        before = state.when, state.caught
        state.when, state.caught = max(state.when, STRICTNESS.index(when)), state.caught | caught
        try:
            yield
        finally:
            state.when, state.caught = before

    # Imports

    def import_module(self, name: str, by: str = "import") -> Module:
        """Follow the import of a module and of the packages above it; returns the module.

        :raises Raised: there is none, or its import raises.
        """
        parts = name.split(".")
        module = self._import_one(parts[0], None, by)
        for count in range(2, len(parts) + 1):
            module = self._import_one(".".join(parts[:count]), module, by)
        return module

    def _import_one(self, name: str, parent: Module | None, by: str) -> Module:
        module = self.modules.get(name)
        if module is None:
            spec = self.find_spec(name, parent)
            if spec is None and parent is not None and parent.makes_modules:
                spec = Spec(name, "builtin")
            if spec is None and self._is_assumed(name):
                self.assumed.add(name)
                spec = Spec(name, "builtin")
            if spec is None:
                raise Raised("ModuleNotFoundError", f"No module named {name!r}", is_certain=True)
            module = Module(name, spec)
        self.record("module", name, by)
        if name not in self.modules:
            self.follow_module(module)
        if module.failure is not None:
            raise module.failure
        if parent is not None:
            parent.names.setdefault(name.rpartition(".")[2], module)
        return module

    def _is_assumed(self, name: str) -> bool:
        """Whether a module that is not there will be: the distribution is required, or without it no import would end well."""
        top, dot, _ = name.partition(".")
        if self.required is None or dot:
            return dot != "" and top in self.assumed
        return canonicalize_name(top) in self.required or not self.is_caught("ModuleNotFoundError")

    def find_spec(self, name: str, parent: Module | None) -> Spec | None:
        """Return where a module lies; `parent` is the package above it."""
        search, given = self.interpreter.path, self.values["sys.path"]
        if parent is not None:
            search, given = parent.spec.search or (), parent.names.get("__path__")
        # As the sources have changed it, where they have.
        return find_module(name, given if isinstance(given, list) else search, self.interpreter, self.disk)

    def follow_module(self, module: Module) -> Module:
        """Follow a module that was found; what it raises is its `failure`."""
        self.modules[module.name] = module
        spec = module.spec
        package = module.name if spec.search is not None else module.name.rpartition(".")[0]
        module.names |= {
            "__name__": module.name,
            "__file__": spec.file or UNKNOWN,
            "__package__": package,
            "__spec__": Instance(SPEC, {"name": module.name, "parent": package, "origin": spec.file}),
            "__doc__": UNKNOWN,
        }
        if spec.search is not None:
            module.names["__path__"] = list(spec.search)
        before = self.state
        is_guessed = before.is_guessed or STRICTNESS[before.when] == "inferred"
        self.state = State(module, is_guessed=is_guessed)
        self._imports += 1
        try:
            if self._imports > _IMPORTS:
                self.record("unknown", f"more than {_IMPORTS} imports inside of each other", "limit")
            else:
                self._follow(module)
        except Raised as raised:
            module.failure = raised
        except (_SpentError, RecursionError):
            module.is_open = True
            self.record("unknown", "more statements than are followed", "limit")
        finally:
            self._imports -= 1
            self.state = before
        module.is_done = True
        for name, value in self.values.items():
            if name.rpartition(".")[0] == module.name and value is not MISSING:
                module.names[name.rpartition(".")[2]] = value
        return module

    def _follow(self, module: Module) -> None:
        spec = module.spec
        module.is_open = spec.kind not in ("source", "namespace")
        if spec.kind == "source":
            try:
                body = self.read_statements(spec.file)
            except (OSError, ValueError) as error:
                module.is_open = True
                self.record("unknown", f"{spec.file}: {error}", "source")
                return
            self.block(Frame(module, module.names), body)
        elif spec.kind == "extension":
            self.record("extension", spec.file, "import", flags=self.flags)
            self.follow_extension(self, module)
            entry = module.name.partition(" ")[0].rpartition(".")[2]
            self.record("symbol", f"PyInit_{entry} of {spec.file}", "import")
        elif spec.kind == "bytecode":
            self.record("unknown", f"{spec.file}: bytecode without its source", "source")

    def import_from(self, module: Module, name: str) -> Any:
        """Return what ``from MODULE import NAME`` binds: an attribute, or a submodule, which is imported.

        :raises Raised: there is neither.
        """
        full = f"{module.name}.{name}"
        if name in module.names:
            value = module.names[name]
            if isinstance(value, Module):
                self.record("module", value.name, "import")
            return Native(full) if value is UNKNOWN and full in self.known else value
        if module.spec.search is not None and self.find_spec(full, module) is not None:
            return self.import_module(full)
        if (found := self._call_hook(module, name)) is not MISSING:
            return found
        if not module.is_open and full not in self.modules:
            if self.is_certain and module.spec.search is not None and not self._may_have(module, name):
                raise Raised(
                    "ImportError", f"cannot import name {name!r} from {module.name!r}", is_certain=True
                )
            self.raise_where_caught("ImportError")
        return Native(full) if full in self.known else UNKNOWN

    def _may_have(self, module: Module, name: str) -> bool:
        """Whether a package may have a variable in a way that is not seen: its source, which is not followed now, has the name.

        Or it takes all names of others: which ones may rest on a test that is not known (keras).
        """
        if self.state.frame and self.state.frame.module is module:
            return False
        with suppress(OSError, ValueError):
            source = self.disk.read(module.spec.file, SOURCE_LIMIT) if module.spec.file else name.encode()
            return name.encode() in source or b"import *" in source
        return True

    @property
    def is_certain(self) -> bool:
        """Whether sources of packages alone lead here, and no test that is not known decides it."""
        frame = self.state.frame
        is_standard = frame is None or self.interpreter.is_standard(frame.module.spec.file)
        return self.state.is_certain and not is_standard

    def raise_where_caught(self, kind: str) -> None:
        """Raise what a name that is not there raises, if a handler takes that; else it may be bound in a way that is not seen.

        :raises Raised: a handler takes it.
        """
        if self.is_caught(kind):
            raise Raised(kind)

    def is_caught(self, kind: str) -> bool:
        """Whether a handler around the statement takes an exception."""
        return any(is_kind(kind, taken) for taken in self.state.caught)

    # Statements

    def block(self, frame: Frame, body: Sequence[SyntaxNode]) -> Signal:
        """Follow statements until one ends the block."""
        state = self.state
        before, state.frame = state.frame, frame
        try:
            for kind, line, *fields in body:
                state.steps -= 1
                if state.steps < 0:
                    raise _SpentError
                state.line = line
                if frame.may_have_ended:
                    state.when = max(state.when, STRICTNESS.index("conditional"))
                try:
                    signal = STATEMENTS[kind](self, frame, *fields)
                except Raised as raised:
                    if frame.may_have_ended:
                        return "return", UNKNOWN
                    if raised.is_certain or frame.is_function or self.is_caught(raised.kind):
                        raise
                    if frame.lost and state.is_sure:
                        raise raised_after(frame.lost, Native(raised.kind), state) from raised
                    # Most packages can be imported: what seems to raise at the top of a module is told, and passed over.
                    self.record("unknown", f"raise {raised.kind}", "raise")
                    continue
                if signal is not None:
                    return signal
        finally:
            state.frame = before
        return None

    def bind(self, frame: Frame, target: SyntaxNode | None, value: Any) -> None:
        """Assign a value to a target of an assignment."""
        match target:
            case ["Name", _, name]:
                (frame.module.names if name in frame.globals else frame.names)[name] = value
            case ["Tuple" | "List", _, parts]:
                values = items(value)
                is_known = values is not None and len(values) == len(parts)
                for part, one in zip(parts, values if values and is_known else parts, strict=True):
                    self.bind(frame, part, one if is_known else UNKNOWN)
            case ["Starred", _, inner]:
                self.bind(frame, inner, UNKNOWN)
            case ["Attribute", _, node, name]:
                owner = self.value(frame, node)
                if isinstance(owner, Module | Class | Instance):
                    owner.names[name] = value
            case ["Subscript", _, node, index]:
                owner, key = self.value(frame, node), self.value(frame, index)
                if isinstance(owner, dict) and len(owner) < LARGEST_VALUE and is_key(key):
                    owner[key] = value
                elif isinstance(owner, dict):
                    self.open_dictionary(owner)
                elif owner == Native("sys.modules"):
                    put_module(self.modules, frame.module, key, value)
                elif owner == Native("os.environ") and isinstance(key, str):
                    self.variables[key] = value if isinstance(value, str) else ""

    def open_dictionary(self, owner: dict[Any, Any]) -> None:
        """Note that it is not known whether a key is in a dictionary, which may be the variables of a module."""
        if self.state.frame and owner is self.state.frame.module.names:
            self.state.frame.module.is_open = True
        elif "__name__" not in owner:
            owner[UNKNOWN] = UNKNOWN

    def make_function(
        self, frame: Frame, name: str, parameters: SyntaxNode, flags: list[bool], number: int
    ) -> Function:
        """Return a function that is defined here, with the values of its defaults."""
        outer = (frame.names, *frame.outer) if frame.is_function else frame.outer
        defaults = [self.value(frame, one) for one in parameters[4]]
        full = f"{frame.module.name}.{frame.prefix}{name}"
        return Function(full, frame.module, parameters, defaults, flags, number, outer)

    def opens(self, function: Function) -> bool:
        """Whether a function imports or opens something itself."""
        module = function.module
        module.bodies = module.bodies or self.read_bodies(module.spec.file)
        if not function.flags:
            function.flags += read_flags(module.bodies, function.number)
        return function.flags[:1] != [False]

    # Expressions

    def value(self, frame: Frame, node: SyntaxNode | None) -> Any:
        """Return the value of an expression, which is followed for what it calls."""
        if node is None:
            return UNKNOWN
        return node[2] if node[0] == "Constant" else EXPRESSIONS[node[0]](self, frame, *node[2:])

    def values_of(self, frame: Frame, nodes: Sequence[SyntaxNode | None]) -> list[Any] | None:
        """Return the values of expressions, those of a starred one in its place; None where these are not known."""
        found: list[Any] = []
        for node in nodes:
            if node is not None and node[0] == "Starred":
                more = items(self.value(frame, node[2]))
                if more is None:
                    return None
                found += more
            else:
                found.append(self.value(frame, node))
        return found

    def attribute(self, owner: Any, name: str) -> Any:
        """Return an attribute of a value; :data:`MISSING` where it is known that there is none."""
        match owner:
            case Module():
                return owner.names if name == "__dict__" else self._attribute_of_module(owner, name)
            case Instance():
                return attribute_of(self, owner, name)
            case Class() if name == "in_dll":
                return Bound(owner, Native("ctypes.in_dll"))
            case Class():
                return bind_method(owner, owner.find(name), "classmethod")
            case Function() if name == "register":
                return Native("functools.singledispatch.register")
            case Native():
                return self.values.get(f"{owner.name}.{name}", Native(f"{owner.name}.{name}"))
            case str() | list() | dict() | tuple() | set() | PurePosixPath() | Version():
                return plain_attribute(owner, name)
        return Native(f"?.{name}") if name in ("dlopen", "LoadLibrary") else UNKNOWN

    def _attribute_of_module(self, module: Module, name: str) -> Any:
        full = f"{module.name}.{name}"
        if full in self.values:
            return self.values[full]
        found = module.names.get(name, self.modules.get(full))
        if isinstance(found, Module) and found.name == full:
            # It may be there by an import of another process that was followed before.
            self.record("module", full, "attribute")
        if full in self.known and (found is None or found is UNKNOWN):
            return Native(full)
        if found is not None or name in module.names:
            return found
        if isinstance(module.names.get("__getattr__"), Function):
            try:
                return self._call_hook(module, name)
            except Raised as raised:
                if raised.opening:
                    raise
            return MISSING
        return MISSING if module.is_done and not module.is_open else UNKNOWN

    def _call_hook(self, module: Module, name: str) -> Any:
        """Return what a module's ``__getattr__`` gives; :data:`MISSING` without one."""
        if not isinstance(hook := module.names.get("__getattr__"), Function):
            return MISSING
        found = self.call(hook, [name], {})
        module.names.pop(name, None)  # who asks in another process imports it, too
        return found

    def call(self, function: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
        """Follow a call; returns what it returns.

        :raises Raised: it raises.
        """
        if isinstance(function, Bound):
            arguments = [function.owner, *arguments]
            if isinstance(function.method, str):
                if isinstance(function.owner, Instance):
                    return self.look_up(function.owner, function.method)
                kind = "path" if isinstance(function.owner, PurePosixPath) else type(function.owner).__name__
                function = Native(f"{kind}.{function.method}")
            else:
                function = function.method
        names: Sequence[str] = ()
        if isinstance(function, Class):
            start = function.find("__init__")
            # What its bases do, where it does nothing else.
            is_own = isinstance(start, Function) and not self.interpreter.is_standard(start.module.spec.file)
            names = [function.name] if is_own else [*function.lines()]
        elif isinstance(function, Function | Native):
            names = [function.name]
        for name in names:
            if known := self.known.get(public_name(name)):
                return known(self, arguments, named)
        if isinstance(function, Function) and function.kind == "contextmanager":
            return Instance(MANAGER, {"<generator>": Deferred(function, arguments, named)})
        if isinstance(function, Function):
            return self.call_function(function, arguments, named)
        if isinstance(function, Class):
            return make_instance(self, function, arguments, named)
        if isinstance(function, Instance) and isinstance(call := function.names.get("<partial>"), Deferred):
            return self.call(call.function, [*call.arguments, *arguments], {**call.named, **named})
        if isinstance(function, Instance) and isinstance(method := function.cls.find("__call__"), Function):
            return self.call_function(method, [function, *arguments], named)
        return (
            function if isinstance(function, Native) and is_kind(function.name, "BaseException") else UNKNOWN
        )

    def look_up(
        self, owner: Instance, symbol: str, by: str = "dlsym", *, may_be_constant: bool = False
    ) -> Any:
        """Note a dlsym in the library of an object, where it is one.

        :param may_be_constant: for cffi it may be one, unless it is called.
        :raises Raised: it fails.
        """
        opened = owner.names.get("<opened>")
        if may_be_constant and isinstance(opened, Opened) and opened.by == "cffi.dlopen":
            return Bound(owner, symbol)
        if isinstance(opened, Opened):
            self.record("symbol", f"{symbol} of {opened.library}", by)
        return UNKNOWN

    def call_function(
        self,
        function: Function,
        arguments: list[Any],
        named: dict[str, Any],
        take: Callable[[Any], object] | None = None,
    ) -> Any:
        """Follow the body of a function; of the standard library, and of long ones, only one that opens something itself.

        :param take: is called with each value that a generator yields. Without it these are the result.
        """
        state, module = self.state, function.module
        if state.calls >= _CALLS:
            return UNKNOWN
        opens = self.opens(function)
        if self.interpreter.is_standard(module.spec.file) and not opens and module is not state.module:
            return UNKNOWN
        has_arguments = bool(arguments or named)
        if has_arguments and module.vain.get(function.number, 0) >= (_VAIN_OPENING if opens else _VAIN):
            return UNKNOWN
        body = (bodies := module.bodies or [])[function.number]
        if isinstance(body, str):
            try:
                longest = _SHORT if state.calls and not opens else None
                body = read_body(bodies, function.number, longest)
            except UnreadableSourceError as error:
                self.record("unknown", f"{module.spec.file}: {error}", "source")
                return UNKNOWN
            if body is None:
                return UNKNOWN
        given = [*arguments, *named.values()]
        if any(are_same(given, one) for one in function.running):
            return UNKNOWN
        names = bind_arguments(function, arguments, named)
        prefix = function.name.removeprefix(f"{function.module.name}.") + ".<locals>."
        if function.owner is not None and arguments:
            names["super"] = Bound((function.owner, arguments[0]), Native("builtins.super"))
        frame = Frame(function.module, names, function.outer, is_function=True, prefix=prefix)
        yielded: list[Any] = []
        frame.take = take or (lambda value: yielded.append(value if state.is_sure else UNKNOWN))
        outer, before, limit = state.frame, state.steps, min(state.steps, _CALL_STEPS)
        state.steps = limit
        state.calls += 1
        function.running.append(given)
        when, count = state.when, len(state.module.events)
        try:
            signal = self.block(frame, body)
        except _SpentError:
            signal = "return", UNKNOWN
        finally:
            state.calls -= 1
            function.running.pop()
            state.when = when
            state.steps = before - limit + max(state.steps, 0)
        if has_arguments and len(state.module.events) == count:
            module.vain[function.number] = module.vain.get(function.number, 0) + 1
        if function.flags[1]:
            return UNKNOWN if UNKNOWN in yielded or frame.may_have_ended else yielded
        result = signal[1] if signal else UNKNOWN if frame.may_have_ended else None
        if frame.may_have_ended and any(isinstance(one, Module) for one in items(result) or (result,)):
            return UNKNOWN  # which may not be imported
        if outer is not None and frame.lost and (result is None or result is False):
            outer.lost = frame.lost  # which the result tells
        return result
