"""Proof: the dry run of the real loader (:mod:`relink.loader.dryrun`) must map what the simulation predicts.

Takes the contents that were written, the members to ask about, and the context that the plan was made in. Gives the loader's map
of each member, and findings RLK105, RLK116, RLK301, RLK601 and RLK602 where an answer differs or cannot be had.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from relink.elf.dynamic import Buffer
from relink.elf.gaps import Gap
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import SymbolTable
from relink.loader.binding import Bindings, bind
from relink.loader.closure import Closure
from relink.loader.dryrun import LoaderMap, LoaderRefusal, refusal
from relink.loader.loading import RootRefusedError
from relink.loader.search import token_in
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.make.dry_runs import (
    ScratchDirectory,
    address_space_text,
    answers,
    extract,
    laid_out,
    link_beside,
    mapped_by,
    scenario_of,
    simulated_run,
    why_not_laid_out,
)
from relink.make.static_scan import screen
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.layout import Layout
from relink.system.errors import TargetError
from relink.system.findings.model import Finding, finding
from relink.system.safe_open import map_file
from relink.system.sandbox.start import Sandbox
from relink.system.system_errors import raise_if_machine_fault
from relink.system.text import join_truncated

_UNDEFINED = re.compile(
    r"undefined symbol: (?P<name>[^,\s]+)(?:, version (?P<version>\S+))?\s*\((?P<path>.+)\)"
)
_VERSION = re.compile(
    r"(?:^|: )(?P<supplier>[^:]+): version `(?P<version>.+?)' not found \(required by (?P<requester>.+)\)$"
)


@dataclass(frozen=True, slots=True)
class Verification:
    """What the loader printed for each member that was asked about (members' paths as ``$WHEEL/…``), and the findings."""

    maps: Mapping[str, LoaderMap]
    findings: tuple[Finding, ...]

    @property
    def confirmed(self) -> int:
        """How many members the loader confirmed: those without an error."""
        wrong = {finding.subject for finding in self.findings if finding.level == "error"}
        return sum(member not in wrong for member in self.maps)


def verify(
    wheel: str,
    contents: Callable[[str], tuple[Iterable[Buffer], Sequence[Gap]]],
    members: Collection[str],
    context: ResolveContext,
    known: Tables | None = None,
    sandbox: Sandbox | None = None,
    trust: Sequence[str] = (),
    links: Mapping[str, str] | None = None,
) -> Verification:
    """Lay the wheel's ELF members out as in site-packages and compare the loader's dry run with the simulation.

    The simulation sees the members as `context` says that they are, the loader what `contents` gives: a file that is not what
    was planned shows as a difference.

    A member that the loader does not load is that member's finding, and the others are asked. That the loader cannot be asked is
    one about the wheel.

    :param wheel: its name, for findings and errors.
    :param contents: gives by a member's name its content in pieces, and what the loader does not look at in a dry run
        (:func:`relink.elf.gaps.find_gaps`): that is read and checked, but not written to the disk.
    :param members: the ELF members to ask about; `context` has all ELF members.
    :param known: symbols of libraries outside of the wheel that have been read.
    :param sandbox: what the loader runs in; None: the best kind that works here.
    :param trust: globs of files that the loader gets although the static scan refuses them.
    :param links: symbolic links beside the members, by name, with their texts.
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
                pieces, gaps = contents(name)
                extract(pieces, context, layout, name, gaps)
            link_beside(context, layout, links or {})
            planned = {layout.path_of(name): image for name, image in context.images.items()}
            context = replace(context, layout=layout, files=Files(context.target.sysroot, planned))
            symbols = _symbols(context, known)
            tables = known.over(context.files, symbols) if known else Tables(context.files, symbols)
            findings += _never_opened(context, members)
            never = {outcome.subject for outcome in findings}
            scenarios = {member: scenario_of(context, member) for member in members if member not in never}
            simulated = {member: simulated_run(context, scenario) for member, scenario in scenarios.items()}
            closures = {
                name: outcome if isinstance(outcome, Closure) else None for name, outcome in simulated.items()
            }
            safe, refusals = screen(context, closures, trust)
            findings += refusals
            scenarios = {member: scenarios[member] for member in safe}
            said = stack.enter_context(answers(context, scenarios, simulated, tables, sandbox))
            scratch = ScratchDirectory(context, sandbox)
            # The simulation goes on while the first loaders run.
            expected = {member: _expected(context, simulated[member]) for member in safe}
            bindings = {
                member: bind(outcome, tables)
                for member, outcome in expected.items()
                if isinstance(outcome, Closure)
            }
            for member, answer in zip(safe, said, strict=True):
                maps[member] = _without_scratch_path(answer, layout)
                findings += _compared(
                    context, member, expected[member], bindings.get(member), answer, scratch
                )
    except (TargetError, OSError) as error:
        raise_if_machine_fault(error, f"{wheel}: the loader could not be asked")
        findings.append(finding("RLK602", wheel, why_not_laid_out(error)))
    return Verification(maps, tuple(dict.fromkeys(findings)))


def _expected(context: ResolveContext, simulated: Closure | TargetError) -> Closure | RootRefusedError:
    """Return the closure, or the error that the loader does not load the member.

    :raises TargetError: the loader does not load another file than a member.
    """
    if isinstance(simulated, TargetError):
        if not isinstance(simulated, RootRefusedError):
            raise simulated
        opened = context.files.open(simulated.path)
        if opened.identity is None or opened.identity[0] != "member":
            raise simulated
    return simulated


def _compared(
    context: ResolveContext,
    member: str,
    expected: Closure | RootRefusedError,
    bindings: Bindings | None,
    answer: LoaderMap,
    scratch: ScratchDirectory,
) -> Iterator[Finding]:
    """Yield how the loader's answer about one member differs from the simulation."""
    refused = _with_path(refusal(answer), expected)
    if refused is not None:
        scratch.check(refused)
    if isinstance(expected, RootRefusedError):
        if refused is not None:
            yield finding("RLK116", member, f"the loader does not load it: {expected.reason}")
        else:
            text = f"predicted: cannot be loaded ({expected.reason}). The loader loads it"
            yield finding("RLK601", member, context.layout.shown(text))
    elif refused is not None and expected.fatal is None:
        yield finding("RLK116", member, context.layout.shown(_load_error(context, member, refused)))
    elif bindings is not None:
        yield from _compare_objects(context, member, expected, answer)
        yield from _compare_symbols(context, member, bindings, answer)
        yield from _loader_errors(context, member, answer)


def _with_path(refused: LoaderRefusal | None, expected: Closure | RootRefusedError) -> LoaderRefusal | None:
    """Return the refusal with the path of its file: the loader names a file that serves a NEEDED by that soname only."""
    if refused is None or not isinstance(expected, Closure):
        return refused
    paths = {loaded.name: loaded.path for loaded in expected.objects}
    return replace(refused, path=paths.get(refused.path or "", refused.path))


def _load_error(context: ResolveContext, member: str, refused: LoaderRefusal) -> str:
    """Return which file the loader does not load, why, and its size in the address space where that is unusual."""
    own = context.layout.path_of(member)
    size = address_space_text(context, refused.path or own)
    if refused.path in (None, own):
        return f"the loader does not load it: {refused.reason}{size}"
    return f"the loader does not load {refused.path}, which it needs: {refused.reason}{size}"


def _never_opened(context: ResolveContext, members: Iterable[str]) -> Iterator[Finding]:
    """Members that no dlopen(3) gets, so that no import does: the temporary directory would hide it."""
    installed = Layout(site=context.layout.site)
    for member in members:
        if not context.images[member].is_executable and (token := token_in(installed.path_of(member))):
            message = f"the loader does not load it: its path has {token}, which dlopen replaces"
            yield finding("RLK116", member, message)


def _without_scratch_path(answer: LoaderMap, layout: Layout) -> LoaderMap:
    """Return the map without the temporary directory, which is removed before anybody reads the finding."""
    return replace(
        answer,
        objects=tuple((layout.shown(name), layout.shown(path)) for name, path in answer.objects),
        problems=tuple(layout.shown(line) for line in answer.problems),
    )


def _compare_objects(
    context: ResolveContext, member: str, closure: Closure, answer: LoaderMap
) -> Iterator[Finding]:
    """Compare the objects that the loader maps, in their order, and the libraries that it does not find."""
    expected, expected_missing = mapped_by(closure)
    if closure.fatal is not None and answer.died:
        return
    same = (expected, expected_missing) == (answer.objects, answer.missing)
    if same and closure.fatal is None and not answer.died:
        return
    predicted_lines = _lines(expected, expected_missing, [closure.fatal] if closure.fatal else [])
    loader_lines = _lines(answer.objects, answer.missing, answer.problems if answer.died else [])
    differing = [line for line in predicted_lines if line not in loader_lines] + [
        line for line in loader_lines if line not in predicted_lines
    ]
    what = f"they differ in {'; '.join(differing)}" if differing else "the order differs"
    message = f"{what}. Predicted: {'; '.join(predicted_lines)}. The loader: {'; '.join(loader_lines)}"
    others = [line for line in answer.problems if line not in loader_lines and "undefined symbol" not in line]
    message += f". It says: {'; '.join(others)}" if others else ""
    yield finding("RLK601", member, context.layout.shown(message))


def _symbols(context: ResolveContext, known: Tables | None) -> dict[str, SymbolTable]:
    """Return the symbols of the members as they are on the disk, by the path of the image in the simulation.

    :param known: has the symbols that were planned; a file with the same tables has these.
    """
    tables = {}
    for name, image in context.images.items():
        with map_file(context.files.host(context.layout.path_of(name))) as buffer:
            table = read_symbols(buffer)
        planned = known.member(image.path) if known else None
        # What was looked up for an equal table need not be looked up again.
        tables[image.path] = planned if planned is not None and planned == table else table
    return tables


def _compare_symbols(
    context: ResolveContext, member: str, bindings: Bindings, answer: LoaderMap
) -> Iterator[Finding]:
    """Compare the symbols that the loader does not bind with the predicted ones."""
    if answer.died or answer.missing:
        # A loader that dies reports no symbols; where a library is missing, it reports all symbols of that library.
        return
    outside = [symbol for symbol in bindings.explained if symbol.target is None]
    predicted_unbound = {(symbol.path, symbol.name, symbol.version) for symbol in bindings.unbound}
    predicted_unbound |= {(symbol.path, symbol.name, symbol.version) for symbol in outside}
    loader_unbound = {
        (match["path"], match["name"], match["version"])
        for line in answer.problems
        if (match := _UNDEFINED.fullmatch(line))
    }
    if predicted_unbound == loader_unbound:
        return
    predicted_only = [_symbol(*symbol) for symbol in sorted(predicted_unbound - loader_unbound, key=str)]
    loader_only = [_symbol(*symbol) for symbol in sorted(loader_unbound - predicted_unbound, key=str)]
    predicted_text, loader_text = (join_truncated(names) or "none" for names in (predicted_only, loader_only))
    message = f"open symbols differ. Predicted only: {predicted_text}. The loader only: {loader_text}"
    yield finding("RLK601", member, context.layout.shown(message))


def _symbol(path: str, name: str, version: str | None) -> str:
    return f"{name}{'@' + version if version else ''} of {path}"


def _lines(objects: Iterable[tuple[str, str]], missing: Iterable[str], problems: Iterable[str]) -> list[str]:
    """Return the lines that the loader prints for a map."""
    return [
        *(f"{name} => {path}" for name, path in objects),
        *(f"{name} => not found" for name in missing),
        *problems,
    ]


def _loader_errors(context: ResolveContext, member: str, answer: LoaderMap) -> Iterator[Finding]:
    """Yield the errors of the loader beside libraries that it does not find."""
    shown = context.layout.shown
    if answer.died:
        yield finding("RLK105", member, f"the loader dies: {shown('; '.join(answer.problems))}")
    for line in answer.problems:
        if match := _VERSION.search(line):
            message = f"the loader finds no version {match['version']} in {shown(match['supplier'])}"
            yield finding("RLK301", shown(match["requester"]), message)
