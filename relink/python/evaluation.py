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
from msgspec.structs import replace
from packaging.utils import canonicalize_name
from packaging.version import Version

from relink.python.answers import AskedVariables
from relink.python.events import STRICTNESS, Event, EventKind, When
from relink.python.expressions import EXPRESSIONS, TURNS, enter_context
from relink.python.modules import Disk, Interpreter, Spec, find_module
from relink.python.syntax import Nodes, SyntaxNode, UnreadableSourceError, read_body
from relink.python.values import (
    LARGEST_VALUE,
    MISSING,
    SPEC,
    UNKNOWN,
    Bound,
    Class,
    Frame,
    Function,
    Instance,
    Module,
    Native,
    Raised,
    State,
    absolute_name,
    bind_arguments,
    bind_method,
    exception_kind,
    is_key,
    is_kind,
    is_same,
    items,
    plain_attribute,
    public_name,
    put_module,
    raised_after,
    truth,
)

Signal: TypeAlias = tuple[str, Any] | None
"""How a block ended: by ``break``, ``continue`` or ``return`` with a value; None at its end."""

_CALL_STEPS = 5_000  # statements of one call
_CALLS = 16  # calls inside of each other
_VAIN = 500  # calls of one function with arguments that load nothing; torch calls one 100,000 times
_IMPORTS = 250  # imports inside of each other
_SHORT = 6000  # characters of the body of a function that is followed for its value alone
_GUARDING = frozenset({"ImportError", "ModuleNotFoundError", "OSError", "Exception", "BaseException"})


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
    :ivar required: distributions whose modules count as there where they are not: those that a wheel requires. None where the
        environment is complete.
    :ivar refused: names of extensions and libraries whose dlopen fails.
    :ivar assumed: the modules that were taken to be there.
    :ivar taken_out: the modules that sources have taken out of sys.modules.
    :ivar flags: those of sys.setdlopenflags.
    :ivar read_variables: the environment variables that were read so far.
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
    modules: dict[str, Module] = msgspec.field(default_factory=dict)
    required: frozenset[str] | None = None
    refused: frozenset[str] = frozenset()
    assumed: set[str] = msgspec.field(default_factory=set)
    taken_out: set[str] = msgspec.field(default_factory=set)
    flags: int = 2
    state: State = msgspec.field(default_factory=lambda: State(Module("", Spec("", "builtin"))))
    read_variables: list[str] = msgspec.field(default_factory=list)
    _imports: int = 0
    # What handlers have taken that are followed now, with the variable of each.
    _handling: list[tuple[Raised, str | None]] = msgspec.field(default_factory=list)

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
        if name in self.refused and kind in ("extension", "library"):
            raised = "ImportError" if kind == "extension" else "OSError"
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
        return canonicalize_name(top) in self.required or not self._is_caught("ModuleNotFoundError")

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
        before, self.state = self.state, State(module)
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
            self.raise_where_caught("ImportError")
        return Native(full) if full in self.known else UNKNOWN

    def raise_where_caught(self, kind: str) -> None:
        """Raise what a name that is not there raises, if a handler takes that; else it may be bound in a way that is not seen.

        :raises Raised: a handler takes it.
        """
        if self._is_caught(kind):
            raise Raised(kind)

    def _is_caught(self, kind: str) -> bool:
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
                    signal = _STATEMENTS[kind](self, frame, *fields)
                except Raised as raised:
                    if frame.may_have_ended:
                        return "return", UNKNOWN
                    if raised.is_certain or frame.is_function or self._is_caught(raised.kind):
                        raise
                    # Most packages can be imported: what seems to raise at the top of a module is told, and passed over.
                    self.record("unknown", f"raise {raised.kind}", "raise")
                    continue
                if signal is not None:
                    return signal
        finally:
            state.frame = before
        return None

    def _expr(self, frame: Frame, value: SyntaxNode) -> Signal:
        self.value(frame, value)
        return None

    def _assign(self, frame: Frame, targets: Nodes, value: SyntaxNode) -> Signal:
        found = self.value(frame, value)
        for target in targets:
            self.bind(frame, target, found)
        return None

    def _annassign(self, frame: Frame, target: SyntaxNode, value: SyntaxNode | None) -> Signal:
        if target[0] == "Name" and not frame.is_function:
            frame.names.setdefault("__annotations__", {})[target[2]] = UNKNOWN
        return self._assign(frame, [target], value) if value else None

    def _augassign(self, frame: Frame, target: SyntaxNode, operator: str, value: SyntaxNode) -> Signal:
        return self._assign(frame, [target], ["BinOp", 0, operator, target, value])

    def bind(self, frame: Frame, target: SyntaxNode | None, value: Any) -> None:
        """Assign a value to a target of an assignment."""
        match target:
            case ["Name", _, name]:
                (frame.module.names if name in frame.globals else frame.names)[name] = value
            case ["Tuple" | "List", _, parts]:
                known = isinstance(value, list | tuple) and len(value) == len(parts)
                for number, part in enumerate(parts):
                    self.bind(frame, part, value[number] if known else UNKNOWN)
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
                elif isinstance(owner, dict) and "__name__" not in owner:
                    owner[UNKNOWN] = UNKNOWN  # Whether a key is in it is not known.
                elif owner == Native("sys.modules"):
                    put_module(self.modules, frame.module, key, value)
                elif owner == Native("os.environ") and isinstance(key, str):
                    self.variables[key] = value if isinstance(value, str) else ""

    def _if(self, frame: Frame, test: SyntaxNode, body: Nodes, orelse: Nodes) -> Signal:
        count, before = len(self.read_variables), self.state.deciding
        decided = truth(self.value(frame, test))
        self.state.deciding += tuple(dict.fromkeys(self.read_variables[count:]))
        try:
            if decided is None:
                return self._follow_either(frame, body, orelse)
            return self.block(frame, body if decided else orelse)
        finally:
            self.state.deciding = before

    def _match(self, frame: Frame, cases: Nodes) -> Signal:
        return self._follow_either(frame, *(body for _, _, body in cases), [])

    def _follow_either(self, frame: Frame, *branches: Nodes) -> Signal:
        """Follow all branches; the variables afterwards are those of the branches that do not end the block."""
        names, before = frame.names, dict(frame.names)
        after: list[dict[str, Any]] = []
        signals: list[Signal] = []
        for branch in branches:
            names.clear()
            names.update(before)
            with suppress(Raised), self.at_least("conditional"):
                signals.append(self.block(frame, branch))
                if signals[-1] is None:
                    after.append(dict(names))
        names.clear()
        names.update(after[0] if after else before)
        for other in after[1:]:
            for key, value in other.items():
                names[key] = value if key not in names or is_same(names[key], value) else UNKNOWN
        ended = any(signal is not None and signal[0] == "return" for signal in signals)
        frame.may_have_ended |= bool(after) and ended and frame.is_function
        if after or not signals:
            return None
        return signals[0] if len(signals) == 1 else ("return", UNKNOWN)

    def _try(self, frame: Frame, body: Nodes, handlers: Nodes, orelse: Nodes, final: Nodes) -> Signal:
        taken = [(self._taken_by(frame, kind), name, block) for _, _, kind, name, block in handlers]
        # A handler that raises again in the end is no guard.
        guards = any(
            _GUARDING & kinds for kinds, _, block in taken if not (block and block[-1][0] == "Raise")
        )
        try:
            with self.at_least(
                "guarded" if guards else "certain", frozenset().union(*(kinds for kinds, _, _ in taken))
            ):
                signal = self.block(frame, body)
        except Raised as raised:
            signal = self._handle(frame, taken, raised)
        else:
            signal = signal or self.block(frame, orelse)
        return self.block(frame, final) or signal

    def _handle(
        self, frame: Frame, handlers: list[tuple[set[str], str | None, Nodes]], raised: Raised
    ) -> Signal:
        for kinds, name, block in handlers:
            if any(is_kind(raised.kind, kind) for kind in kinds):
                if name:
                    frame.names[name] = UNKNOWN
                self._handling.append((raised, name))
                if raised.opening and self.state.is_sure:
                    frame.lost = raised
                try:
                    return self.block(frame, block)
                except Raised as following:
                    # Where the dlopen had not failed, the handler had not been there.
                    following.opening = raised.opening or following.opening
                    raise
                finally:
                    self._handling.pop()
        raise raised

    def _taken_by(self, frame: Frame, node: SyntaxNode | None) -> set[str]:
        """Return the names of the exceptions that a handler takes."""
        value = Native("BaseException") if node is None else self.value(frame, node)
        each = value if isinstance(value, tuple) else (value,)
        return {exception_kind(one) for one in each if isinstance(one, Native | Class)}

    def _raise(self, frame: Frame, node: SyntaxNode | None) -> Signal:
        if not self._handling:
            lost = frame.lost if self.state.is_sure else None
            raise raised_after(lost, self.value(frame, node))
        handled = self._handling[-1][0]
        named = [one for one, name in self._handling if node and node[0] == "Name" and name == node[2]]
        if node is None or named:
            raise named[-1] if named else handled
        raise Raised(exception_kind(self.value(frame, node)), handled.text, is_certain=handled.is_certain)

    def _with(self, frame: Frame, managers: Nodes, body: Nodes) -> Signal:
        caught: set[str] = set()
        for _, _, node, target in managers:
            value = self.value(frame, node)
            if isinstance(value, tuple) and value[:1] == ("suppress",):
                caught.update(value[1:])
            self.bind(frame, target, enter_context(self, value))
        try:
            with self.at_least("guarded" if caught else "certain", frozenset(caught)):
                return self.block(frame, body)
        except Raised as raised:
            if not any(is_kind(raised.kind, kind) for kind in caught):
                raise
        return None

    def _for(self, frame: Frame, target: SyntaxNode, over: SyntaxNode, body: Nodes, orelse: Nodes) -> Signal:
        values = items(self.value(frame, over))
        if values is None or len(values) > TURNS:
            self.bind(frame, target, UNKNOWN)
            return self._follow_either(frame, body, [])
        for value in values:
            self.bind(frame, target, value)
            signal = self.block(frame, body)
            if signal is not None and signal[0] != "continue":
                return signal if signal[0] == "return" else None
        return self.block(frame, orelse)

    def _while(self, frame: Frame, test: SyntaxNode, body: Nodes) -> Signal:
        decided = truth(self.value(frame, test))
        signal = self.block(frame, body) if decided else None
        if decided is None:
            signal = self._follow_either(frame, body, [])
        return signal if signal is not None and signal[0] == "return" else None

    def _functiondef(
        self, frame: Frame, name: str, parameters: SyntaxNode, opens: bool, number: int, decorators: Nodes
    ) -> Signal:
        kinds = [one[2] for one in decorators if one[2] in ("property", "staticmethod", "classmethod")]
        self.values_of(frame, [one for one in decorators if one[0] == "Call"])
        made = self.make_function(frame, name, parameters, opens, number)
        frame.names[name] = replace(made, kind=kinds[0]) if kinds else made
        return None

    def make_function(
        self, frame: Frame, name: str, parameters: SyntaxNode, opens: bool, number: int
    ) -> Function:
        """Return a function that is defined here, with the values of its defaults."""
        outer = (frame.names, *frame.outer) if frame.is_function else frame.outer
        defaults = [self.value(frame, one) for one in parameters[4]]
        full = f"{frame.module.name}.{frame.prefix}{name}"
        return Function(full, frame.module, parameters, defaults, opens, number, outer)

    def _classdef(self, frame: Frame, name: str, bases: Nodes, body: Nodes, decorators: Nodes) -> Signal:
        outer = (frame.names, *frame.outer) if frame.is_function else frame.outer
        inside = Frame(frame.module, {}, outer, prefix=f"{frame.prefix}{name}.")
        found = [one for one in self.values_of(frame, bases) or () if one != Native("builtins.object")]
        self.block(inside, body)
        made: Any = Class(f"{frame.module.name}.{frame.prefix}{name}", inside.names, found)
        for one in reversed(decorators):
            decorated = self.call(self.value(frame, one), [made], {})
            made = made if decorated is UNKNOWN else decorated
        frame.names[name] = made
        return None

    def _import(self, frame: Frame, names: Nodes) -> Signal:
        for _, _, name, alias in names:
            module = self.import_module(name)
            top = name.partition(".")[0]
            frame.names[alias or top] = module if alias else self.modules[top]
        return None

    def _importfrom(self, frame: Frame, level: int, name: str | None, names: Nodes) -> Signal:
        module = self.import_module(absolute_name(self.state.frame, level, name or ""))
        for _, _, wanted, alias in names:
            if wanted == "*":
                self._import_star(frame, module)
            else:
                frame.names[alias or wanted] = self.import_from(module, wanted)
        return None

    def _import_star(self, frame: Frame, module: Module) -> None:
        public = items(module.names.get("__all__"))
        for name in public or ():
            if isinstance(name, str) and isinstance(module.names.get(name, module), Module):
                with suppress(Raised):
                    frame.names[name] = self.import_from(module, name)
        for name, value in list(module.names.items()):
            if name in public if public is not None else not name.startswith("_"):
                frame.names[name] = value
        frame.module.is_open |= module.is_open

    def _return(self, frame: Frame, node: SyntaxNode | None) -> Signal:
        return "return", None if node is None else self.value(frame, node)

    def _global(self, frame: Frame, names: list[str]) -> Signal:
        frame.globals.update(names)
        return None

    # Expressions

    def value(self, frame: Frame, node: SyntaxNode | None) -> Any:
        """Return the value of an expression, which is followed for what it calls."""
        return UNKNOWN if node is None else EXPRESSIONS[node[0]](self, frame, *node[2:])

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
                found = owner.names[name] if name in owner.names else owner.cls.find(name)
                if (
                    found is UNKNOWN
                    and name not in owner.names
                    and isinstance(hook := owner.cls.find("__getattr__"), Function)
                ):
                    # The attribute may be there: what the hook raises may never happen.
                    with suppress(Raised):
                        return self.call(hook, [owner, name], {})
                    return UNKNOWN
                if isinstance(found, Function) and found.kind == "property":
                    return self.call(found, [owner], {})
                return bind_method(owner, found, "function", "classmethod")
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
            with suppress(Raised):
                return self._call_hook(module, name)
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
                kind = "path" if isinstance(function.owner, PurePosixPath) else type(function.owner).__name__
                function = Native(f"{kind}.{function.method}")
            else:
                function = function.method
        names: Sequence[str] = ()
        if isinstance(function, Class):
            names = [*function.lines()]
        elif isinstance(function, Function | Native):
            names = [function.name]
        for name in names:
            if known := self.known.get(public_name(name)):
                return known(self, arguments, named)
        if isinstance(function, Function):
            return self._call_function(function, arguments, named)
        if isinstance(function, Class):
            instance = Instance(function)
            if isinstance(start := function.find("__init__"), Function):
                self._call_function(start, [instance, *arguments], named)
            else:  # a dataclass, or a named tuple
                names = [*function.names.get("__annotations__", ())]
                instance.names |= {**dict(zip(names, arguments, strict=False)), **named}
            return instance
        return (
            function if isinstance(function, Native) and is_kind(function.name, "BaseException") else UNKNOWN
        )

    def _call_function(self, function: Function, arguments: list[Any], named: dict[str, Any]) -> Any:
        """Follow the body of a function; of the standard library, and of long ones, only one that opens something itself."""
        state = self.state
        if state.calls >= _CALLS or (
            self.interpreter.is_standard(function.module.spec.file)
            and not function.opens
            and function.module is not state.module
        ):
            return UNKNOWN
        module = function.module
        has_arguments = bool(arguments or named) and not function.opens
        if has_arguments and module.vain.get(function.number, 0) >= _VAIN:
            return UNKNOWN
        if module.bodies is None:
            module.bodies = self.read_bodies(module.spec.file)
        body = module.bodies[function.number]
        if isinstance(body, str):
            try:
                longest = _SHORT if state.calls and not function.opens else None
                body = read_body(module.bodies, function.number, longest)
            except UnreadableSourceError as error:
                self.record("unknown", f"{module.spec.file}: {error}", "source")
                return UNKNOWN
            if body is None:
                return UNKNOWN
        names = bind_arguments(function, arguments, named)
        prefix = function.name.removeprefix(f"{function.module.name}.") + ".<locals>."
        frame = Frame(function.module, names, function.outer, is_function=True, prefix=prefix)
        before, limit = state.steps, min(state.steps, _CALL_STEPS)
        state.steps = limit
        state.calls += 1
        when, count = state.when, len(state.module.events)
        try:
            signal = self.block(frame, body)
        except _SpentError:
            signal = "return", UNKNOWN
        finally:
            state.calls -= 1
            state.when = when
            state.steps = before - limit + max(state.steps, 0)
        if has_arguments and len(state.module.events) == count:
            module.vain[function.number] = module.vain.get(function.number, 0) + 1
        return signal[1] if signal else UNKNOWN if frame.may_have_ended else None


_KINDS = "Expr Assign AnnAssign AugAssign If Match Try With For While FunctionDef ClassDef Import ImportFrom Return Raise Global"
_STATEMENTS: dict[str, Callable[..., Signal]] = {
    name: getattr(Evaluation, f"_{name.lower()}") for name in _KINDS.split()
}
_STATEMENTS |= {"Break": lambda *_: ("break", None), "Continue": lambda *_: ("continue", None)}
