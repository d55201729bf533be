"""The statements of a source: what each does in an import, as a function of the walk, the frame and the fields of its node."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from relink.python.expressions import TURNS, match_pattern
from relink.python.objects import decorate, make_class, run_within
from relink.python.syntax import Nodes, SyntaxNode
from relink.python.values import (
    UNKNOWN,
    Class,
    Frame,
    Instance,
    Module,
    Native,
    Raised,
    Signal,
    absolute_name,
    exception_kind,
    is_kind,
    is_same,
    items,
    raised_after,
    truth,
)

# Names in annotations only, as in relink.python.expressions.
if TYPE_CHECKING:
    from relink.python.evaluation import Evaluation

# Turns of ``while``, which has no number of its own: candidates for a name are few, and a parser of texts has no end here.
_TURNS_OF_WHILE = 10
_GUARDING = frozenset({"ImportError", "ModuleNotFoundError", "OSError", "Exception", "BaseException"})


def _expr(evaluation: Evaluation, frame: Frame, value: SyntaxNode) -> Signal:
    evaluation.value(frame, value)
    return None


def _assign(evaluation: Evaluation, frame: Frame, targets: Nodes, value: SyntaxNode) -> Signal:
    found = evaluation.value(frame, value)
    for target in targets:
        evaluation.bind(frame, target, found)
    return None


def _annassign(evaluation: Evaluation, frame: Frame, target: SyntaxNode, value: SyntaxNode | None) -> Signal:
    if target[0] == "Name" and not frame.is_function:
        frame.names.setdefault("__annotations__", {})[target[2]] = UNKNOWN
    return _assign(evaluation, frame, [target], value) if value else None


def _augassign(
    evaluation: Evaluation, frame: Frame, target: SyntaxNode, operator: str, value: SyntaxNode
) -> Signal:
    return _assign(evaluation, frame, [target], ["BinOp", 0, operator, target, value])


def _if(evaluation: Evaluation, frame: Frame, test: SyntaxNode, body: Nodes, orelse: Nodes) -> Signal:
    count, before = len(evaluation.read_variables), evaluation.state.deciding
    decided = truth(evaluation.value(frame, test))
    evaluation.state.deciding += tuple(dict.fromkeys(evaluation.read_variables[count:]))
    try:
        if decided is None:
            return _follow_either(evaluation, frame, body, orelse)
        return evaluation.block(frame, body if decided else orelse)
    finally:
        evaluation.state.deciding = before


def _match(evaluation: Evaluation, frame: Frame, subject: SyntaxNode, cases: Nodes) -> Signal:
    value = evaluation.value(frame, subject)
    for number, (_, _, pattern, guard, body) in enumerate(cases):
        matches = match_pattern(evaluation, frame, pattern, value)
        if matches and guard is not None:
            matches = truth(evaluation.value(frame, guard))
        if matches:
            return evaluation.block(frame, body)
        if matches is None:
            return _follow_either(evaluation, frame, *(case[-1] for case in cases[number:]), [])
    return None


def _assert(evaluation: Evaluation, frame: Frame, test: SyntaxNode) -> Signal:
    if truth(evaluation.value(frame, test)) is False:
        raise raised_after(frame.lost, Native("AssertionError"), evaluation.state)
    return None


def _follow_either(evaluation: Evaluation, frame: Frame, *branches: Nodes) -> Signal:
    """Follow all branches; the variables afterwards are those of the branches that do not end the block."""
    names, before = frame.names, dict(frame.names)
    after: list[dict[str, Any]] = []
    signals: list[Signal] = []
    opening = ""
    for branch in branches:
        names.clear()
        names.update(before)
        try:
            with evaluation.at_least("conditional"):
                signals.append(evaluation.block(frame, branch))
            if signals[-1] is None:
                after.append(dict(names))
        except Raised as raised:
            opening = raised.opening or opening
    if opening and not evaluation.is_caught("OSError"):
        evaluation.record("unknown", f"whether {posixpath.basename(opening)} is opened", "test")
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


def _try(
    evaluation: Evaluation, frame: Frame, body: Nodes, handlers: Nodes, orelse: Nodes, final: Nodes
) -> Signal:
    taken = [(_taken_by(evaluation, frame, kind), name, block) for _, _, kind, name, block in handlers]
    # A handler that raises again in the end is no guard.
    guards = any(_GUARDING & kinds for kinds, _, block in taken if not (block and block[-1][0] == "Raise"))
    try:
        with evaluation.at_least(
            "guarded" if guards else "certain", frozenset().union(*(kinds for kinds, _, _ in taken))
        ):
            signal = evaluation.block(frame, body)
        failed = None
    except Raised as raised:
        signal, failed = None, raised
    try:
        signal = signal or (
            _handle(evaluation, frame, taken, failed) if failed else evaluation.block(frame, orelse)
        )
    except Raised:
        # A return in it ends the raise.
        if signal := evaluation.block(frame, final):
            return signal
        raise
    return evaluation.block(frame, final) or signal


def _handle(
    evaluation: Evaluation, frame: Frame, handlers: list[tuple[set[str], str | None, Nodes]], raised: Raised
) -> Signal:
    for kinds, name, block in handlers:
        if any(is_kind(raised.kind, kind) for kind in kinds):
            if name:
                frame.names[name] = raised.value
            evaluation.handling.append(raised)
            if raised.opening and evaluation.state.is_sure:
                frame.lost = raised
            try:
                return evaluation.block(frame, block)
            except Raised as following:
                # Where the dlopen had not failed, the handler had not been there.
                following.opening = raised.opening or following.opening
                raise
            finally:
                evaluation.handling.pop()
    raise raised


def _taken_by(evaluation: Evaluation, frame: Frame, node: SyntaxNode | None) -> set[str]:
    """Return the names of the exceptions that a handler takes."""
    value = Native("BaseException") if node is None else evaluation.value(frame, node)
    each = value if isinstance(value, tuple) else (value,)
    return {exception_kind(one) for one in each if isinstance(one, Native | Class)}


def _raise(evaluation: Evaluation, frame: Frame, node: SyntaxNode | None) -> Signal:
    value = None if node is None else evaluation.value(frame, node)
    if isinstance(value, Instance) and isinstance(value.names.get("<raised>"), Raised):
        raise value.names["<raised>"]
    if not evaluation.handling:
        raise raised_after(frame.lost, value, evaluation.state)
    handled = evaluation.handling[-1]
    if node is None:
        raise handled
    kind = exception_kind(value)
    raise Raised(kind, handled.text, is_certain=handled.is_certain, opening=handled.opening)


def _with(evaluation: Evaluation, frame: Frame, managers: Nodes, body: Nodes) -> Signal:
    if not managers:
        return evaluation.block(frame, body)
    (_, _, node, target), *rest = managers

    def run_inside(value: Any) -> Signal:
        evaluation.bind(frame, target, value)
        return _with(evaluation, frame, rest, body)

    return run_within(evaluation, evaluation.value(frame, node), run_inside)


def _for(
    evaluation: Evaluation, frame: Frame, target: SyntaxNode, over: SyntaxNode, body: Nodes, orelse: Nodes
) -> Signal:
    values = items(evaluation.value(frame, over))
    if values is None or len(values) > TURNS:
        evaluation.bind(frame, target, UNKNOWN)
        return _follow_either(evaluation, frame, body, [])
    for value in values:
        evaluation.bind(frame, target, value)
        signal = evaluation.block(frame, body)
        if signal is not None and signal[0] != "continue":
            return signal if signal[0] == "return" else None
    return evaluation.block(frame, orelse)


def _while(evaluation: Evaluation, frame: Frame, test: SyntaxNode, body: Nodes, orelse: Nodes) -> Signal:
    for _ in range(_TURNS_OF_WHILE):
        decided = truth(evaluation.value(frame, test))
        if decided is False:
            return evaluation.block(frame, orelse)
        signal = evaluation.block(frame, body) if decided else _follow_either(evaluation, frame, body, [])
        if decided is None or (signal is not None and signal[0] != "continue"):
            return signal if signal is not None and signal[0] == "return" else None
    return None


def _functiondef(
    evaluation: Evaluation,
    frame: Frame,
    name: str,
    parameters: SyntaxNode,
    flags: list[bool],
    number: int,
    decorators: Nodes,
) -> Signal:
    if any(one[0] == "Attribute" and one[-1] in ("setter", "deleter") for one in decorators):
        return None  # the property stays what it is for who asks for it
    frame.names[name] = made = evaluation.make_function(frame, name, parameters, flags, number)
    frame.names[name] = decorate(evaluation, frame, made, decorators)
    return None


def _classdef(
    evaluation: Evaluation,
    frame: Frame,
    name: str,
    bases: Nodes,
    keywords: Nodes,
    body: Nodes,
    decorators: Nodes,
) -> Signal:
    outer = (frame.names, *frame.outer) if frame.is_function else frame.outer
    inside = Frame(frame.module, {}, outer, prefix=f"{frame.prefix}{name}.")
    found = [one for one in evaluation.values_of(frame, bases) or () if one != Native("builtins.object")]
    named = {key: evaluation.value(frame, one) for _, _, key, one in keywords if key}
    evaluation.block(inside, body)
    made: Any = Class(f"{frame.module.name}.{frame.prefix}{name}", inside.names, found)
    make_class(evaluation, made, named)
    for one in reversed(decorators):
        decorated = evaluation.call(evaluation.value(frame, one), [made], {})
        made = made if decorated is UNKNOWN else decorated
    frame.names[name] = made
    return None


def _import(evaluation: Evaluation, frame: Frame, names: Nodes) -> Signal:
    for _, _, name, alias in names:
        module = evaluation.import_module(name)
        top = name.partition(".")[0]
        frame.names[alias or top] = module if alias else evaluation.modules[top]
    return None


def _importfrom(evaluation: Evaluation, frame: Frame, level: int, name: str | None, names: Nodes) -> Signal:
    module = evaluation.import_module(absolute_name(evaluation.state.frame, level, name or ""))
    for _, _, wanted, alias in names:
        if wanted == "*":
            _import_star(evaluation, frame, module)
        else:
            frame.names[alias or wanted] = evaluation.import_from(module, wanted)
    return None


def _import_star(evaluation: Evaluation, frame: Frame, module: Module) -> None:
    public = items(module.names.get("__all__"))
    for name in public or ():
        if isinstance(name, str) and isinstance(module.names.get(name, module), Module):
            with suppress(Raised):
                frame.names[name] = evaluation.import_from(module, name)
    for name, value in list(module.names.items()):
        if name in public if public is not None else not name.startswith("_"):
            frame.names[name] = value
    frame.module.is_open |= module.is_open


def _return(evaluation: Evaluation, frame: Frame, node: SyntaxNode | None) -> Signal:
    return "return", None if node is None else evaluation.value(frame, node)


def _global(_evaluation: Evaluation, frame: Frame, names: list[str]) -> Signal:
    frame.globals.update(names)
    return None


def _compile(evaluation: Evaluation, frame: Frame) -> Signal:
    """A source with a name of a character: Python's compiler imports unicodedata, unless the bytecode is there."""
    directory, name = posixpath.split(frame.module.spec.file)
    major, minor = evaluation.interpreter.version
    compiled = f"{directory}/__pycache__/{name.removesuffix('.py')}.cpython-{major}{minor}.pyc"
    is_source = name.endswith(".py") and frame.module.spec.kind == "source"
    if is_source and not evaluation.disk.exists(compiled) and evaluation.find_spec("unicodedata", None):
        evaluation.import_module("unicodedata", "compile")
    return None


_KINDS = (
    "Expr Assign AnnAssign AugAssign Assert If Match Try With For While FunctionDef ClassDef Import ImportFrom Return Raise"
    " Global Compile"
)
STATEMENTS: dict[str, Callable[..., Signal]] = {
    name: globals()[f"_{name.lower()}"] for name in _KINDS.split()
}
STATEMENTS |= {"Break": lambda *_: ("break", None), "Continue": lambda *_: ("continue", None)}
