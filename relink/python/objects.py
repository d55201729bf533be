"""What decorators, classes and ``with`` do in an import: functions that Python calls where the source has no call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from relink.python.syntax import Nodes
from relink.python.values import (
    UNKNOWN,
    Class,
    Deferred,
    Frame,
    Function,
    Instance,
    Native,
    Raised,
    Signal,
    Super,
    bind_method,
    is_kind,
    truth,
)

# Names in annotations only, as in relink.python.expressions.
if TYPE_CHECKING:
    from relink.python.evaluation import Evaluation

_KINDS = ("property", "cached_property", "staticmethod", "classmethod", "contextmanager")
MANAGER = Class("contextlib._GeneratorContextManager of a function", {}, [])
_OF_CDLL = ("_handle", "_name", "_FuncPtr", "_func_flags_", "_func_restype_")
# Functions and classes that a decorator or a hook is followed for in vain: scipy's parse the text of each.
_MADE_IN_VAIN = 20
_FACTORIES = ("default_factory", "factory")  # of dataclasses and of attrs


def decorate(evaluation: Evaluation, frame: Frame, made: Function, decorators: Nodes) -> Any:
    """Return what the decorators of a function make of it; where that is not known, the function."""
    found: Any = made
    for node in reversed(decorators):
        last = (node[2] if node[0] == "Call" else node)[-1]
        if last in _KINDS and isinstance(found, Function):
            found = replace(found, kind=last)
            continue
        decorator = evaluation.value(frame, node)
        if not (_is_in_vain(decorator) or evaluation.interpreter.is_standard(frame.module.spec.file)):
            result = evaluation.call(decorator, [found], {})
            found = found if result is UNKNOWN else result
    return found


def _is_in_vain(function: Any) -> bool:
    """Whether a function that is called for each function or class of a kind has loaded nothing for many of them."""
    is_function = isinstance(function, Function) and function.flags[:1] == [False]
    return is_function and function.module.vain.get(function.number, 0) >= _MADE_IN_VAIN


def make_class(evaluation: Evaluation, made: Class, keywords: dict[str, Any]) -> None:
    """Do what the creation of a class does: the hooks of its metaclass and of its bases are called."""
    for value in made.names.values():
        if isinstance(value, Function) and value.owner is None:
            value.owner = made
    bases = [base for base in made.bases if isinstance(base, Class)]
    made.meta = keywords.pop("metaclass", next((base.meta for base in bases if base.meta), None))
    if any(line.startswith("enum.") for line in made.lines()):
        for key, value in made.names.items():
            if key[0] != "_" and not isinstance(value, Function | Instance):
                made.names[key] = Instance(made, {"name": key, "value": value, "_value_": value})
        made.names["__members__"] = {key: one for key, one in made.names.items() if isinstance(one, Instance)}
    if isinstance(made.meta, Class):
        given = [made.name.rpartition(".")[2], tuple(made.bases), made.names]
        for name, first in (("__new__", made.meta), ("__init__", made)):
            if isinstance(hook := made.meta.find(name), Function) and not _is_in_vain(hook):
                evaluation.call(hook, [first, *given], keywords)
    hooks = (base.find("__init_subclass__") for base in bases)
    first_hook = next((hook for hook in hooks if hook is not UNKNOWN), None)
    if isinstance(first_hook, Function) and not _is_in_vain(first_hook):
        evaluation.call(first_hook, [made], keywords)


def make_instance(
    evaluation: Evaluation, cls: Class, arguments: list[Any], named: dict[str, Any]
) -> Instance:
    """Follow the call of a class."""
    new, start = cls.find("__new__"), cls.find("__init__")
    instance = evaluation.call(new, [cls, *arguments], named) if isinstance(new, Function) else None
    if not isinstance(instance, Instance):
        instance = Instance(cls)
    if isinstance(start, Function):
        evaluation.call(start, [instance, *arguments], named)
        return instance
    # A dataclass, or a named tuple.
    fields = cls.find("__annotations__")
    fields = [*fields] if isinstance(fields, dict) else []
    instance.names |= {**dict(zip(fields, arguments, strict=False)), **named}
    for name in fields:
        default = cls.find(name)
        if name not in instance.names and isinstance(default, Instance):
            factory = next((default.names[one] for one in _FACTORIES if one in default.names), None)
            instance.names[name] = evaluation.call(factory, [], {})
    if isinstance(after := cls.find("__post_init__"), Function):
        evaluation.call(after, [instance], {})
    return instance


def attribute_of(evaluation: Evaluation, owner: Instance, name: str) -> Any:
    """Return an attribute of an object: what its class has is asked for as Python does."""
    target = owner.target if isinstance(owner, Super) else owner
    if name == "__dict__":
        return owner.names
    if name in owner.names:
        return owner.names[name]
    found = owner.cls.find(name)
    if name == "__new__":
        return Native("builtins.object.__new__") if found is UNKNOWN else found
    if isinstance(found, Function) and found.kind in ("property", "cached_property"):
        value = evaluation.call(found, [target], {})
        if found.kind == "cached_property" and isinstance(target, Instance):
            target.names[name] = value
        return value
    if isinstance(found, Instance) and isinstance(get := found.cls.find("__get__"), Function):
        return evaluation.call(get, [found, target, owner.cls], {})
    if found is UNKNOWN and "<opened>" in owner.names and name[:2] != "__" and name not in _OF_CDLL:
        return evaluation.look_up(owner, name, may_be_constant=True)
    if found is UNKNOWN and isinstance(hook := owner.cls.find("__getattr__"), Function):
        # The attribute may be there: what the hook raises may never happen, but for a dlopen that fails.
        try:
            return evaluation.call(hook, [owner, name], {})
        except Raised as raised:
            if raised.opening:
                raise
        return UNKNOWN
    return bind_method(target, found, "function", "classmethod", "contextmanager")


def run_within(evaluation: Evaluation, manager: Any, inside: Callable[[Any], Signal]) -> Signal:
    """Follow the body of a ``with``: `inside` is called with what the manager gives."""
    taken = manager[1:] if isinstance(manager, tuple) and manager[:1] == ("suppress",) else ()
    if not isinstance(manager, Instance):
        with evaluation.at_least("guarded" if taken else "certain", frozenset(taken)):
            try:
                return inside(manager)
            except Raised as raised:
                if not any(is_kind(raised.kind, kind) for kind in taken):
                    raise
                return None
    if isinstance(call := manager.names.get("<generator>"), Deferred):
        signals: list[Signal] = []
        # The body is where the function yields: what the body raises is raised there.
        take: Callable[[Any], object] = lambda value: signals.append(inside(value))  # noqa: E731 - typed
        evaluation.call_function(call.function, call.arguments, call.named, take)
        return signals[0] if signals else None
    value, leave = manager, manager.cls.find("__exit__")
    if isinstance(enter := manager.cls.find("__enter__"), Function):
        found = evaluation.call(enter, [manager], {})
        is_standard = evaluation.interpreter.is_standard(enter.module.spec.file)
        value = manager if found is UNKNOWN and is_standard else found
    if not isinstance(leave, Function) or evaluation.interpreter.is_standard(leave.module.spec.file):
        return inside(value)
    try:
        signal = inside(value)
    except Raised as raised:
        if truth(evaluation.call(leave, [manager, Native(raised.kind), raised.value, UNKNOWN], {})) is True:
            return None
        raise
    evaluation.call(leave, [manager, None, None, None], {})
    return signal


def make_super(_evaluation: Evaluation, arguments: list[Any], _named: dict[str, Any]) -> Any:
    """super(), whose first argument is the class and the object of the method around it, or with both as arguments."""
    match arguments:
        case [*_, Class(bases=bases), target] | [(Class(bases=bases), target)]:
            return Super(Class("builtins.super", {}, bases), {}, target)
    return UNKNOWN
