"""Proof: the dry run of the real loader (:mod:`relink.loader.dryrun`) must map what the simulation predicts.

Takes the contents that were written, the members to ask about, and the context that the plan was made in. The members are
extracted as installed into a temporary directory, with holes in place of their gaps. Gives the loader's map of each member,
whether it was asked about that member alone or about several at once (:mod:`relink.loader.joint`), and findings RLK105, RLK116,
RLK301, RLK601 and RLK602 where an answer differs or cannot be had. Where the loader maps nothing from the directory (noexec),
its refusals say nothing about the members: so the C library is tried first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
import resource
import shutil
import struct
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from relink.elf.constants import PT_LOAD, PT_TLS
from relink.elf.dynamic import Buffer
from relink.elf.gaps import Gap
from relink.elf.image import Image
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import SymbolTable
from relink.loader.binding import Bindings, Explained, Unbound, bind
from relink.loader.closure import Closure
from relink.loader.dryrun import (
    WARNING,
    JointRun,
    LoaderMap,
    LoaderRefusal,
    Scenario,
    dry_run,
    dry_runs,
    joint_runs,
    refusal,
)
from relink.loader.loading import RootRefusedError, trace
from relink.loader.search import Environment, token_in, why_not_searched
from relink.loader.seen_files import Files, resolve_inside
from relink.loader.tables import Tables
from relink.make.editing import screen_members
from relink.planning.resolve.context import Layout, ResolveContext
from relink.planning.resolve.strategy import find_own_libc
from relink.planning.siblings import list_sibling_paths
from relink.system.atomic import working_directory
from relink.system.errors import TargetError, find_machine_fault, raise_if_machine_fault
from relink.system.findings.model import Finding, finding
from relink.system.safe_open import map_file
from relink.system.sandbox.start import Sandbox
from relink.system.text import join_truncated

# elf/dl-lookup.c: the version record's own library has no such symbol; and no object has one.
_UNDEFINED = re.compile(
    r"(?:undefined symbol: (?P<name>[^,\s]+)(?:, version (?P<version>\S+))?"
    r"|symbol (?P<other>\S+),? version (?P<its>\S+) not defined in file \S+ with link time reference)"
    r"\s*\((?P<path>.+)\)"
)
_VERSION = re.compile(
    r"(?:^|: )(?P<supplier>[^:]+): version `(?P<version>.+?)' not found \(required by (?P<requester>.+)\)$"
)


class Verification(msgspec.Struct, frozen=True):
    """The loader's map of each member that was asked about (members' paths as ``$WHEEL/…``), and the findings."""

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
            layout = stack.enter_context(lay_out(context))
            for name in context.images:
                pieces, gaps = contents(name)
                extract_member(pieces, context, layout, name, gaps)
            # The symbolic links of a tree: relative ones, in directories that have a member, or that lead to such.
            for name, text in (links or {}).items():
                path = Path(resolve_inside(context.target.sysroot, layout.path_of(name)))
                if not text.startswith("/"):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with contextlib.suppress(FileExistsError):
                        path.symlink_to(text)
            planned = {layout.path_of(name): image for name, image in context.images.items()}
            seen = context.seen
            context = replace(
                context,
                layout=layout,
                seen=Tables(Files(context.target.sysroot, planned, budget=context.files.budget)),
            )
            symbols = _symbols(context, seen)
            tables = seen.over(context.files, symbols)
            findings += _never_opened(context, members)
            never = {outcome.subject for outcome in findings}
            scenarios = {
                member: choose_scenario(context, member) for member in members if member not in never
            }
            simulated = {
                member: simulate_scenario(context, scenario) for member, scenario in scenarios.items()
            }
            closures = {
                name: outcome if isinstance(outcome, Closure) else None for name, outcome in simulated.items()
            }
            safe, refusals = screen_members(context, closures, trust)
            findings += refusals
            scenarios = {member: scenarios[member] for member in safe}
            loader_answers = stack.enter_context(ask_loader(context, scenarios, simulated, tables, sandbox))
            scratch = ScratchDirectory(context, sandbox)
            # The simulation goes on while the first loaders run.
            expected = {member: _expected(context, simulated[member]) for member in safe}
            bindings = {
                member: bind(outcome, tables)
                for member, outcome in expected.items()
                if isinstance(outcome, Closure)
            }
            for member, answer in zip(safe, loader_answers, strict=True):
                # Nobody can look at the temporary directory when the finding is read.
                maps[member] = replace(
                    answer,
                    objects=tuple((layout.shown(name), layout.shown(path)) for name, path in answer.objects),
                    problems=tuple(map(layout.shown, answer.problems)),
                )
                findings += _compared(
                    context, member, expected[member], bindings.get(member), answer, scratch
                )
    except (TargetError, OSError) as error:
        raise_if_machine_fault(error, f"{wheel}: the loader could not be asked")
        findings.append(finding("RLK602", wheel, explain_layout_error(error)))
    return Verification(maps, tuple(dict.fromkeys(findings)))


def _expected(context: ResolveContext, simulated: Closure | TargetError) -> Closure | RootRefusedError:
    """Return the closure, or the error that the loader does not load the member.

    :raises TargetError: the loader does not load another file than a member.
    """
    if isinstance(simulated, RootRefusedError):
        identity = context.files.open(simulated.path).identity
        if identity is not None and identity[0] == "member":
            return simulated
    if isinstance(simulated, TargetError):
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
    refused = refusal(answer)
    if refused is not None:
        if isinstance(expected, Closure):
            # The loader names a file that serves a NEEDED by that soname only.
            paths = {loaded.name: loaded.path for loaded in expected.objects}
            refused = replace(refused, path=paths.get(refused.path or "", refused.path))
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


def _load_error(context: ResolveContext, member: str, refused: LoaderRefusal) -> str:
    """Return which file the loader does not load, why, and its size in the address space where that is unusual."""
    own = context.layout.path_of(member)
    size = _address_space(context.files.open(refused.path or own).image)
    taken = f" (its segments take {size} bytes of the address space)" if size > _MAX_ADDRESS_SPACE else ""
    what = "it" if refused.path in (None, own) else f"{refused.path}, which it needs"
    return f"the loader does not load {what}: {refused.reason}{taken}"


def _never_opened(context: ResolveContext, members: Iterable[str]) -> Iterator[Finding]:
    """Yield RLK116 for members that no dlopen(3), and so no import, can open: the temporary directory would hide that."""
    installed = Layout(site=context.layout.site)
    for member in members:
        if not context.images[member].is_executable and (token := token_in(installed.path_of(member))):
            message = f"the loader does not load it: its path has {token}, which dlopen replaces"
            yield finding("RLK116", member, message)


def _compare_objects(
    context: ResolveContext, member: str, closure: Closure, answer: LoaderMap
) -> Iterator[Finding]:
    """Compare the objects that the loader maps, in order, and the libraries that are not found."""
    expected, expected_missing = list_mapped(closure)
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


def _symbols(context: ResolveContext, seen: Tables) -> dict[str, SymbolTable]:
    """Return the symbols of the members, by the path of the image in the simulation.

    :param seen: has the symbols of members that were planned: an edit is refused that changes these
        (:func:`relink.elf.edit_checks.check_edit`), so they are not read again.
    """
    tables = {}
    for name, image in context.images.items():
        planned = seen.members.get(image.path)
        if planned is None:
            with map_file(context.files.host(context.layout.path_of(name))) as buffer:
                planned = read_symbols(buffer)
        tables[image.path] = planned
    return tables


def _compare_symbols(
    context: ResolveContext, member: str, bindings: Bindings, answer: LoaderMap
) -> Iterator[Finding]:
    """Compare the symbols that the loader does not bind with the predicted ones."""
    if answer.died or answer.missing:
        # A loader that dies reports no symbols; where a library is missing, it reports all symbols of that library.
        return
    outside = [symbol for symbol in bindings.explained if symbol.target is None]
    unbound: list[Unbound | Explained] = [*bindings.unbound, *outside]
    predicted_unbound = {(symbol.path, symbol.name, symbol.version) for symbol in unbound}
    loader_unbound = {
        (match["path"], match["name"] or match["other"], match["version"] or match["its"])
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
    """Yield the errors of the loader, but for libraries that are not found."""
    shown = context.layout.shown
    if answer.died:
        yield finding("RLK105", member, f"the loader dies: {shown('; '.join(answer.problems))}")
    for line in answer.problems:
        if match := _VERSION.search(line):
            message = f"the loader finds no version {match['version']} in {shown(match['supplier'])}"
            yield finding("RLK301", shown(match["requester"]), message)
        elif not (answer.died or _UNDEFINED.fullmatch(line) or WARNING.search(line)):
            yield finding("RLK116", member, f"the loader does not load it: {shown(line)}")


_TEMPORARY = re.compile(r"/\.relink-\d+-[0-9a-f]+\.dir.*")
# What the loader says where it cannot map a file (elf/dl-load.c, elf/dl-map-segments.h).
_NOT_MAPPED = ("failed to map segment", "cannot map zero-fill pages")
# Bytes of the address space; the largest library of ROCm takes 4 GiB.
_MAX_ADDRESS_SPACE = 1 << 36


class ScratchDirectory(msgspec.Struct):
    """The temporary directory, and whether the loader maps anything from there: tried with the target's own C library."""

    context: ResolveContext
    sandbox: Sandbox | None = None
    tried: bool = False

    def check(self, refused: LoaderRefusal) -> None:
        """Return if the file itself is the reason of the refusal, and raise if the machine is.

        :raises MachineError: the machine has too little memory, or a similar limit was reached.
        :raises TargetError: the loader maps nothing from the temporary directory.
        """
        context = self.context
        subject = f"{context.target.interpreter}: the loader could not be asked"
        size = _address_space(context.files.open(refused.path).image) if refused.path else 0
        trouble = find_machine_fault(refused.reason, subject)
        limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
        if trouble is None and refused.reason.startswith(_NOT_MAPPED) and limited:
            trouble = find_machine_fault(
                os.strerror(errno.ENOMEM), f"{subject} about a file of {size} bytes in memory"
            )
        if trouble is not None and size <= _MAX_ADDRESS_SPACE:
            raise trouble
        libc = None if self.tried or refused.path is None else find_own_libc(context)
        if libc is None:
            return
        path = posixpath.join(context.layout.root, "relink-probe", posixpath.basename(libc))
        host = Path(resolve_inside(context.target.sysroot, path))
        host.parent.mkdir(exist_ok=True)
        shutil.copyfile(context.files.host(libc), host)
        if answer := refusal(dry_run(context.target, path, sandbox=self.sandbox)):
            directory = posixpath.dirname(context.layout.root)
            raise TargetError(
                f"{directory}: the loader may not map files from there, not even its own C library ({answer.reason}); "
                "set TMPDIR to where programs may be run"
            )
        self.tried = True


@contextmanager
def lay_out(context: ResolveContext) -> Iterator[Layout]:
    """Make a temporary directory, inside of the sysroot, for a wheel's ELF members.

    :raises OSError: the directory cannot be made.
    """
    sysroot = context.target.sysroot
    with working_directory(Path(choose_temporary_directory(sysroot))) as directory:
        real = os.path.realpath(directory)
        root = real[len(os.path.realpath(sysroot)) :] if sysroot != "/" else real
        given = context.layout
        layout = Layout(root, given.site, given.tree, links=given.links, stands_for=given.root)
        for entry, package in layout.links.items():
            link = Path(resolve_inside(sysroot, f"{layout.site_packages}/{entry}"))
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(package)
        yield layout


def extract_member(
    chunks: Iterable[Buffer],
    context: ResolveContext,
    layout: Layout,
    member: str,
    gaps: Sequence[Gap],
) -> None:
    """Write a file with holes in place of its gaps."""
    path = Path(resolve_inside(context.target.sysroot, layout.path_of(member)))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        end = 0
        for chunk in chunks:
            start, end = end, end + len(chunk)
            at = start
            for gap in gaps:
                if start < gap.stop and gap.start < end:
                    file.write(memoryview(chunk)[at - start : max(at, gap.start) - start])
                    at = min(end, gap.stop)
                    file.seek(at)
            # No gap reaches the end of a file, so the last write gives the file its size.
            file.write(memoryview(chunk)[at - start :])
    if any(part.type == PT_TLS and not part.align for part in context.images[member].segments):
        _align_tls(path)
    path.chmod(0o755 if context.images[member].interpreter else 0o644)


def _align_tls(path: Path) -> None:
    """Write 1 for a TLS alignment of 0, which means the same (gABI): the loader divides by it at the start of a program.

    When dlopen does so is computed (:mod:`relink.loader.process`).
    """
    with path.open("r+b") as file:
        head = file.read(64)
        start, size, count = (*struct.unpack_from("<Q", head, 32), *struct.unpack_from("<HH", head, 54))
        for at in range(start, start + size * count, size):
            file.seek(at)
            row = file.read(56)
            if len(row) == 56 and row[:4] == PT_TLS.to_bytes(4, "little") and not any(row[48:]):
                file.seek(at + 48)
                file.write((1).to_bytes(8, "little"))


def choose_temporary_directory(sysroot: str) -> str:
    """Return the first temporary directory that is not mounted noexec, or the first: the loader maps nothing from the others.

    Not one with a line feed in its path: the loader's answer has a line for each library.
    """
    # S108 is about names that others can foresee; working_directory makes a new directory for its maker alone.
    usual = ("/tmp", "/var/tmp")  # noqa: S108
    if sysroot == "/":
        known = [path for path in (tempfile.gettempdir(), *usual) if "\n" not in os.path.realpath(path)]
    else:
        known = [resolve_inside(sysroot, path) for path in (*usual, "/")]
    known = [path for path in known if os.path.isdir(path) and os.access(path, os.W_OK)] or known[:1]
    return next((path for path in known if not os.statvfs(path).f_flag & os.ST_NOEXEC), known[0])


def _address_space(image: Image | None) -> int:
    """Bytes of the address space that the loader reserves for an image (glibc elf/dl-map-segments.h, _dl_map_segment)."""
    loads = [segment for segment in image.segments if segment.type == PT_LOAD] if image else []
    if not loads:
        return 0
    end = max(segment.address + segment.memory_size for segment in loads)
    return end - min(segment.address for segment in loads) + max(segment.align for segment in loads)


def explain_layout_error(error: TargetError | OSError) -> str:
    """Return the message without the name of the temporary directory, which nobody can look at later."""
    if isinstance(error, TargetError):
        return error.message
    where = _TEMPORARY.sub("", str(error.filename or "temporary directory"))
    return f"{where}: the members cannot be laid out ({error.strerror}); set TMPDIR to where there is room for them"


def list_mapped(closure: Closure) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return the objects that the loader should print (the scope without program and loader), and the missing libraries."""
    # Of a program that needs nothing the loader prints nothing, not even what is preloaded (elf/rtld.c).
    scope = closure.scope[1:] if closure.objects[0].image.needed else ()
    objects = (closure.objects[index] for index in scope)
    names = tuple((loaded.name, loaded.path) for loaded in objects if loaded.identity[0] != "loader")
    return names, tuple(edge.soname for edge in closure.missing)


def choose_scenario(context: ResolveContext, member: str) -> Scenario:
    """Return program and preloads of the dry run that loads `member`."""
    path = context.layout.path_of(member)
    if context.images[member].is_executable:
        return path, []
    if context.target.python is not None and _can_be_preloaded(path):
        return context.target.python, [*filter(_can_be_preloaded, list_sibling_paths(context.siblings)), path]
    libc = find_own_libc(context)
    return path, [libc] if libc and _can_be_preloaded(libc) else []


def _can_be_preloaded(path: str) -> bool:
    """LD_PRELOAD is a list with spaces and colons between the paths, and $LIB is replaced in it; nothing is quoted (ld.so(8))."""
    return " " not in path and why_not_searched(path) is None


def simulate_scenario(context: ResolveContext, scenario: Scenario) -> Closure | TargetError:
    """Simulate a dry run; return its closure, or the error that a file cannot be loaded."""
    program, preloads = scenario
    try:
        return trace(Environment(context.target, context.files), program, preloads)
    except TargetError as error:
        return error


@contextmanager
def ask_loader(
    context: ResolveContext,
    scenarios: Mapping[str, Scenario],
    simulated: Mapping[str, Closure | TargetError],
    tables: Tables,
    sandbox: Sandbox | None,
) -> Iterator[Iterator[LoaderMap]]:
    """Ask the loader about members; yield its map of each, in their order.

    Members that need the same libraries are asked about each for what it maps, and together for their symbols
    (:mod:`relink.loader.dryrun`), unless what they map together is not what the simulation says.
    """
    paths = {context.layout.path_of(member): member for member in scenarios}
    together = {
        path: (scenarios[member], closure)
        for path, member in paths.items()
        if not context.images[member].is_executable
        and _can_be_preloaded(path)
        and isinstance(closure := simulated[member], Closure)
    }
    environment = Environment(context.target, context.files)
    runs = joint_runs(environment, tables, together)
    grouped = {paths[root] for run in runs for root in run.roots}
    single = [scenario for member, scenario in scenarios.items() if member not in grouped]
    joined: dict[str, tuple[JointRun, LoaderMap]] = {}
    with ExitStack() as stack:

        def ask(asked: Sequence[Scenario], *, symbols: bool = True) -> Iterator[LoaderMap]:
            if not asked:
                return iter(())
            return stack.enter_context(
                dry_runs(context.target, asked, sandbox, symbols=symbols, budget=context.files.budget)
            )

        first = ask([*((run.program, run.preloads) for run in runs), *single])

        def take_answers() -> Iterator[LoaderMap]:
            # Not strict: the answers about single members follow in `first`, and are taken below.
            for run, answer in zip(runs, first, strict=False):
                if not answer.died and list_mapped(run.closure) == (answer.objects, answer.missing):
                    joined.update({paths[root]: (run, answer) for root in run.roots})
            mapped = ask([scenarios[member] for member in scenarios if member in joined], symbols=False)
            again = ask([scenarios[member] for member in scenarios if member in grouped - joined.keys()])
            for member in scenarios:
                if member in joined:
                    run, answer = joined[member]
                    yield run.of(context.layout.path_of(member), next(mapped), answer)
                else:
                    yield next(again if member in grouped else first)

        yield take_answers()
