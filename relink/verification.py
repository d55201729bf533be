"""Proof: what the real loader says of what was written (:mod:`relink.loader.dryrun`) must be what the simulation predicts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from relink.elf.gaps import Gap
from relink.elf.image import Buffer
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import SymbolTable
from relink.errors import TargetError
from relink.files import map_file
from relink.findings.model import Finding, finding
from relink.laid_out import Place, extract, laid_out, room, why_not_laid_out
from relink.loader.binding import Bindings, Tables, bind
from relink.loader.closure import Closure
from relink.loader.dryrun import LoaderMap, LoaderRefusal, dry_runs, refusal
from relink.loader.files import Files
from relink.loader.loading import RootRefusedError, trace
from relink.loader.search import Environment
from relink.resolve.layout import Layout
from relink.resolve.strategy import ResolveContext, own_libc
from relink.sandbox import Sandbox
from relink.screening import screen
from relink.system_errors import raise_trouble
from relink.text import join_truncated

__all__ = ["Verification", "verify"]

_UNDEFINED = re.compile(
    r"undefined symbol: (?P<name>[^,\s]+)(?:, version (?P<version>\S+))?\s*\((?P<path>.+)\)"
)
_VERSION = re.compile(
    r"(?:^|: )(?P<supplier>[^:]+): version `(?P<version>.+?)' not found \(required by (?P<requester>.+)\)$"
)


@dataclass(frozen=True, slots=True)
class Verification:
    """What the loader said of each member that was asked about (members' paths as ``$WHEEL/…``), and what is wrong with it."""

    maps: Mapping[str, LoaderMap]
    findings: tuple[Finding, ...]


def predicted(closure: Closure) -> tuple[tuple[str, str], ...]:
    """Return what the loader should print for a closure: the scope without the program and the loader."""
    objects = [closure.objects[index] for index in closure.scope]
    return tuple((item.name, item.path) for item in objects[1:] if item.identity[0] != "loader")


def verify(
    wheel: str,
    contents: Callable[[str], Iterable[Buffer]],
    members: Collection[str],
    context: ResolveContext,
    gaps: Mapping[str, Sequence[Gap]] | None = None,
    known: Tables | None = None,
    sandbox: Sandbox | None = None,
    trust: Sequence[str] = (),
) -> Verification:
    """Lay the wheel's ELF members out as in site-packages and compare the loader's dry run with the simulation.

    The simulation sees the members as `context` says that they are, the loader what `contents` gives: a file that is not what
    was planned shows as a difference.

    A member that the loader does not load is that member's finding, and the others are asked. That the loader cannot be asked is
    one about the wheel.

    :param wheel: what it is called.
    :param contents: gives a member's content in pieces, by its name.
    :param members: the ELF members to ask about; `context` has all ELF members.
    :param gaps: by member, what the loader does not look at in a dry run (:func:`relink.elf.gaps.find_gaps`): it is read and
        checked, but takes no room on the disk.
    :param known: symbols of libraries outside of the wheel that have been read.
    :param sandbox: what the loader runs in; None: the best kind that works here.
    :param trust: globs of files that the loader gets although the static scan refuses them.
    :raises MachineError: this machine has run out of something, so the answers would say nothing about the wheel.
    """
    findings: list[Finding] = []
    maps: dict[str, LoaderMap] = {}
    if not members:
        return Verification(maps, ())
    try:
        with ExitStack() as stack:
            layout = stack.enter_context(laid_out(context))
            for name in context.images:
                extract(contents(name), context, layout, name, (gaps or {}).get(name, ()))
            planned = {layout.path_of(name): image for name, image in context.images.items()}
            context = replace(context, layout=layout, files=Files(context.target.sysroot, planned))
            symbols = _symbols(context)
            tables = known.over(context.files, symbols) if known else Tables(context.files, symbols)
            scenarios = {member: _scenario(context, member) for member in members}
            screened = screen(context, scenarios, trust)
            findings += screened.findings
            asked = [scenarios[member] for member in screened.members]
            answers = stack.enter_context(dry_runs(context.target, asked, sandbox))
            place = Place(context, sandbox)
            for member, scenario in zip(screened.members, asked, strict=True):
                expected = _expected(context, scenario)
                bindings = bind(expected, tables) if isinstance(expected, Closure) else None
                found = next(answers)
                maps[member] = _shown(found, layout)
                findings += _judge(context, member, expected, bindings, found, place)
    except (TargetError, OSError) as error:
        if isinstance(error, OSError):
            raise_trouble(error, f"{wheel}: the loader could not be asked")
        findings.append(finding("RLK602", wheel, why_not_laid_out(error)))
    return Verification(maps, tuple(dict.fromkeys(findings)))


def _expected(context: ResolveContext, scenario: tuple[str, list[str]]) -> Closure | RootRefusedError:
    """What the simulation says of a dry run: the closure, or that the loader does not load the member.

    :raises TargetError: it is not the member that it does not load.
    """
    program, preloads = scenario
    try:
        return trace(Environment(context.target, context.files), program, preloads)
    except RootRefusedError as error:
        found = context.files.open(error.path)
        if found.identity is None or found.identity[0] != "member":
            raise
        return error


def _judge(
    context: ResolveContext,
    member: str,
    expected: Closure | RootRefusedError,
    bindings: Bindings | None,
    found: LoaderMap,
    place: Place,
) -> Iterator[Finding]:
    refused = _with_path(refusal(found), expected)
    if refused is not None:
        place.check(refused)
    if isinstance(expected, RootRefusedError):
        if refused is not None:
            yield finding("RLK116", member, f"the loader does not load it: {expected.reason}")
        else:
            text = f"predicted: cannot be loaded ({expected.reason}). The loader loads it"
            yield finding("RLK601", member, context.layout.shown(text))
    elif refused is not None and expected.fatal is None:
        yield finding("RLK116", member, context.layout.shown(_why(context, member, refused)))
    elif bindings is not None:
        yield from _compare(context, member, expected, found)
        yield from _compare_symbols(context, member, bindings, found)
        yield from _complaints(context, member, found)


def _with_path(refused: LoaderRefusal | None, expected: Closure | RootRefusedError) -> LoaderRefusal | None:
    """What serves a NEEDED the loader calls by that name when it cannot map it; give it its path."""
    if refused is None or not isinstance(expected, Closure):
        return refused
    paths = {item.name: item.path for item in expected.objects}
    return replace(refused, path=paths.get(refused.path or "", refused.path))


def _why(context: ResolveContext, member: str, refused: LoaderRefusal) -> str:
    """Say what the loader would not load, and how much room it asks for."""
    if refused.path in (None, context.layout.path_of(member)):
        return f"the loader does not load it: {refused.reason}{room(context, context.layout.path_of(member))}"
    path = str(refused.path)
    return f"the loader does not load {path}, which it needs: {refused.reason}{room(context, path)}"


def _scenario(context: ResolveContext, member: str) -> tuple[str, list[str]]:
    """(program, preloads) of the dry run that shows what loading `member` maps."""
    path = context.layout.path_of(member)
    if context.images[member].is_executable:
        return path, []
    if context.target.python is not None and _can_be_preloaded(path):
        return context.target.python, [path]
    libc = own_libc(context)
    return path, [libc] if libc and _can_be_preloaded(libc) else []


def _can_be_preloaded(path: str) -> bool:
    """LD_PRELOAD is a list with spaces and colons between the paths; nothing quotes them (ld.so(8))."""
    return not {" ", ":"} & {*path}


def _shown(found: LoaderMap, layout: Layout) -> LoaderMap:
    """The map without the temporary directory, which is gone when it is read."""
    return replace(
        found,
        objects=tuple((layout.shown(name), layout.shown(path)) for name, path in found.objects),
        problems=tuple(layout.shown(line) for line in found.problems),
    )


def _compare(context: ResolveContext, member: str, closure: Closure, found: LoaderMap) -> Iterator[Finding]:
    # Of a program that needs nothing the loader prints nothing, not even what is preloaded (elf/rtld.c).
    expected = predicted(closure) if closure.objects[0].image.needed else ()
    expected_missing = tuple(edge.soname for edge in closure.missing)
    if closure.fatal is not None and found.died:
        return
    same = (expected, expected_missing) == (found.objects, found.missing)
    if same and closure.fatal is None and not found.died:
        return
    wanted = _lines(expected, expected_missing, [closure.fatal] if closure.fatal else [])
    real = _lines(found.objects, found.missing, found.problems if found.died else [])
    odd = [line for line in wanted if line not in real] + [line for line in real if line not in wanted]
    what = f"they differ in {'; '.join(odd)}" if odd else "the order differs"
    message = f"{what}. Predicted: {'; '.join(wanted)}. The loader: {'; '.join(real)}"
    others = [line for line in found.problems if line not in real and "undefined symbol" not in line]
    message += f". It says: {'; '.join(others)}" if others else ""
    yield finding("RLK601", member, context.layout.shown(message))


def _symbols(context: ResolveContext) -> dict[str, SymbolTable]:
    """The symbols of the members as they lie on the disk, by what the simulation knows them as."""
    tables = {}
    for name, image in context.images.items():
        with map_file(context.files.host(context.layout.path_of(name))) as buffer:
            tables[image.path] = read_symbols(buffer)
    return tables


def _compare_symbols(
    context: ResolveContext, member: str, bindings: Bindings, found: LoaderMap
) -> Iterator[Finding]:
    """Compare the symbols that the loader leaves open with those that binding predicts."""
    if found.died or found.missing:
        return  # it says nothing of symbols then, or too much
    outside = [item for item in bindings.explained if item.target is None]
    predicted_open = {(item.path, item.name, item.version) for item in bindings.unbound}
    predicted_open |= {(item.path, item.name, item.version) for item in outside}
    real_open = {
        (match["path"], match["name"], match["version"])
        for line in found.problems
        if (match := _UNDEFINED.fullmatch(line))
    }
    if predicted_open == real_open:
        return
    only_here = [_symbol(*item) for item in sorted(predicted_open - real_open, key=str)]
    only_there = [_symbol(*item) for item in sorted(real_open - predicted_open, key=str)]
    ours, theirs = (join_truncated(names) or "none" for names in (only_here, only_there))
    message = f"open symbols differ. Predicted only: {ours}. The loader only: {theirs}"
    yield finding("RLK601", member, context.layout.shown(message))


def _symbol(path: str, name: str, version: str | None) -> str:
    return f"{name}{'@' + version if version else ''} of {path}"


def _lines(objects: Iterable[tuple[str, str]], missing: Iterable[str], problems: Iterable[str]) -> list[str]:
    return [
        *(f"{name} => {path}" for name, path in objects),
        *(f"{name} => not found" for name in missing),
        *problems,
    ]


def _complaints(context: ResolveContext, member: str, found: LoaderMap) -> Iterator[Finding]:
    """What the loader refuses to go on with, besides libraries that it does not find."""
    shown = context.layout.shown
    if found.died:
        yield finding("RLK105", member, f"the loader dies: {shown('; '.join(found.problems))}")
    for line in found.problems:
        if match := _VERSION.search(line):
            message = f"the loader finds no version {match['version']} in {shown(match['supplier'])}"
            yield finding("RLK301", shown(match["requester"]), message)
