"""Asking the target's loader about members that are laid out on the disk: which dry runs, and what is expected of them.

Takes a context with the images. Gives the layout of a temporary directory, in which the members of the archive are extracted as
installed, with holes in place of their gaps; and the loader's answer about each member, whether it was asked about that member
alone or about several at once (:mod:`relink.loader.dryrun`). Where the loader maps nothing from the directory (noexec), its
refusals say nothing about the members: so the C library is tried first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
import resource
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from relink.elf.constants import PT_LOAD
from relink.elf.dynamic import Buffer
from relink.elf.gaps import Gap
from relink.elf.image import Image
from relink.loader.closure import Closure
from relink.loader.dryrun import (
    JointRun,
    LoaderMap,
    LoaderRefusal,
    Scenario,
    dry_run,
    dry_runs,
    joint_runs,
    refusal,
)
from relink.loader.loading import trace
from relink.loader.search import Environment, why_not_searched
from relink.loader.seen_files import resolve_inside
from relink.loader.tables import Tables
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.layout import Layout
from relink.planning.resolve.strategy import own_libc
from relink.planning.siblings import sibling_paths
from relink.system.atomic import working_directory
from relink.system.errors import TargetError
from relink.system.sandbox.start import Sandbox
from relink.system.system_errors import find_machine_fault

_TEMPORARY = re.compile(r"/\.relink-\d+-[0-9a-f]+\.dir.*")
# What the loader says where it cannot map a file (elf/dl-load.c, elf/dl-map-segments.h).
_NOT_MAPPED = (
    "failed to map segment",
    "cannot map zero-fill pages",
)
# Bytes of the address space; the largest library of ROCm takes 4 GiB.
_MAX_ADDRESS_SPACE = 1 << 36


@dataclass(slots=True)
class ScratchDirectory:
    """The temporary directory, and whether the loader maps anything from there: tried with the target's own C library."""

    context: ResolveContext
    sandbox: Sandbox | None = None
    maps_files: bool | None = None

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
        if self.maps_files is None and refused.path is not None:
            self.maps_files = self._maps_the_c_library()

    def _maps_the_c_library(self) -> bool:
        """Return True if the loader maps a copy of its own C library from here, or there is none to try with."""
        context = self.context
        libc = own_libc(context)
        if libc is None:
            return True
        path = posixpath.join(context.layout.root, "relink-probe", posixpath.basename(libc))
        host = Path(resolve_inside(context.target.sysroot, path))
        host.parent.mkdir(exist_ok=True)
        shutil.copyfile(context.files.host(libc), host)
        refused = refusal(dry_run(context.target, path, sandbox=self.sandbox))
        if refused is None:
            return True
        directory = posixpath.dirname(context.layout.root)
        raise TargetError(
            f"{directory}: the loader may not map files from there, not even its own C library ({refused.reason}); "
            "set TMPDIR to where programs may be run"
        )


@contextmanager
def laid_out(context: ResolveContext) -> Iterator[Layout]:
    """Make a temporary directory, inside of the sysroot, for a wheel's ELF members.

    :raises OSError: the directory cannot be made.
    """
    sysroot = context.target.sysroot
    with working_directory(Path(temporary_place(sysroot))) as directory:
        real = os.path.realpath(directory)
        root = real[len(os.path.realpath(sysroot)) :] if sysroot != "/" else real
        layout = Layout(root, context.layout.site, context.layout.tree, links=context.layout.links)
        for entry, package in layout.links.items():
            link = Path(resolve_inside(sysroot, f"{layout.site_packages}/{entry}"))
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(package)
        yield layout


def extract(
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
    path.chmod(0o755 if context.images[member].interpreter else 0o644)


def link_beside(context: ResolveContext, layout: Layout, links: Mapping[str, str]) -> None:
    """Make the symbolic links of a tree: relative ones, in directories that have a member, or that lead to such."""
    for name, text in links.items():
        path = Path(resolve_inside(context.target.sysroot, layout.path_of(name)))
        if not text.startswith("/"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.symlink_to(text)


def temporary_place(sysroot: str) -> str:
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


def address_space_text(context: ResolveContext, path: str) -> str:
    """Return how much of the address space a file takes, as a text, if that is more than any library needs."""
    size = _address_space(context.files.open(path).image)
    return f" (its segments take {size} bytes of the address space)" if size > _MAX_ADDRESS_SPACE else ""


def _address_space(image: Image | None) -> int:
    """Bytes of the address space that the loader reserves for an image (glibc elf/dl-map-segments.h, _dl_map_segment)."""
    loads = [segment for segment in image.segments if segment.type == PT_LOAD] if image else []
    if not loads:
        return 0
    end = max(segment.address + segment.memory_size for segment in loads)
    return end - min(segment.address for segment in loads) + max(segment.align for segment in loads)


def why_not_laid_out(error: TargetError | OSError) -> str:
    """Return the message without the name of the temporary directory, which is removed before anybody reads it."""
    if isinstance(error, TargetError):
        return error.message
    where = _TEMPORARY.sub("", str(error.filename or "temporary directory"))
    return f"{where}: the members cannot be laid out ({error.strerror}); set TMPDIR to where there is room for them"


def mapped_by(closure: Closure) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return the objects that the loader should print (the scope without program and loader), and the missing libraries."""
    # Of a program that needs nothing the loader prints nothing, not even what is preloaded (elf/rtld.c).
    scope = closure.scope[1:] if closure.objects[0].image.needed else ()
    objects = (closure.objects[index] for index in scope)
    names = tuple((loaded.name, loaded.path) for loaded in objects if loaded.identity[0] != "loader")
    return names, tuple(edge.soname for edge in closure.missing)


def scenario_of(context: ResolveContext, member: str) -> Scenario:
    """Return program and preloads of the dry run that shows what loading `member` maps."""
    path = context.layout.path_of(member)
    if context.images[member].is_executable:
        return path, []
    if context.target.python is not None and _can_be_preloaded(path):
        return context.target.python, [*filter(_can_be_preloaded, sibling_paths(context.siblings)), path]
    libc = own_libc(context)
    return path, [libc] if libc and _can_be_preloaded(libc) else []


def _can_be_preloaded(path: str) -> bool:
    """LD_PRELOAD is a list with spaces and colons between the paths, and $LIB is replaced in it; nothing is quoted (ld.so(8))."""
    return " " not in path and why_not_searched(path) is None


def simulated_run(context: ResolveContext, scenario: Scenario) -> Closure | TargetError:
    """Simulate a dry run: what it maps, or the error that something cannot be loaded."""
    program, preloads = scenario
    try:
        return trace(Environment(context.target, context.files), program, preloads)
    except TargetError as error:
        return error


@contextmanager
def answers(
    context: ResolveContext,
    scenarios: Mapping[str, Scenario],
    simulated: Mapping[str, Closure | TargetError],
    tables: Tables,
    sandbox: Sandbox | None,
) -> Iterator[Iterator[LoaderMap]]:
    """Ask the loader about members; yields what it says of each, in their order.

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
            return stack.enter_context(dry_runs(context.target, asked, sandbox, symbols=symbols))

        first = ask([*((run.program, run.preloads) for run in runs), *single])

        def said() -> Iterator[LoaderMap]:
            # Not strict: the answers about single members follow in `first`, and are taken below.
            for run, answer in zip(runs, first, strict=False):
                if not answer.died and mapped_by(run.closure) == (answer.objects, answer.missing):
                    joined.update({paths[root]: (run, answer) for root in run.roots})
            mapped = ask([scenarios[member] for member in scenarios if member in joined], symbols=False)
            again = ask([scenarios[member] for member in scenarios if member in grouped - joined.keys()])
            for member in scenarios:
                if member in joined:
                    run, answer = joined[member]
                    yield run.of(context.layout.path_of(member), next(mapped), answer)
                else:
                    yield next(again if member in grouped else first)

        yield said()
