"""Asking the target's loader about members that are laid out on the disk: which dry runs, and what is expected of them.

Takes a context whose layout is on the disk. Gives the loader's answer about each member, whether it was asked about that member
alone or about several at once (:mod:`relink.loader.joint`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from relink.loader.closure import Closure
from relink.loader.dryrun import LoaderMap, dry_runs
from relink.loader.joint import JointRun, Scenario, joint_runs
from relink.loader.loading import trace
from relink.loader.search import Environment, why_not_searched
from relink.loader.tables import Tables
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.unserved_edges import own_libc
from relink.planning.siblings import sibling_paths
from relink.system.errors import TargetError
from relink.system.sandbox import Sandbox

__all__ = ["answers", "mapped_by", "predicted", "scenario_of", "simulated_run"]


def predicted(closure: Closure) -> tuple[tuple[str, str], ...]:
    """Return what the loader should print for a closure: the scope without the program and the loader."""
    objects = [closure.objects[index] for index in closure.scope]
    return tuple((item.name, item.path) for item in objects[1:] if item.identity[0] != "loader")


def mapped_by(closure: Closure) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return the objects and the missing libraries that the loader should print."""
    # Of a program that needs nothing the loader prints nothing, not even what is preloaded (elf/rtld.c).
    objects = predicted(closure) if closure.objects[0].image.needed else ()
    return objects, tuple(edge.soname for edge in closure.missing)


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
    (:mod:`relink.loader.joint`), unless what they map together is not what the simulation says.
    """
    paths = {context.layout.path_of(member): member for member in scenarios}
    together = {
        path: (scenarios[member], found)
        for path, member in paths.items()
        if not context.images[member].is_executable
        and _can_be_preloaded(path)
        and isinstance(found := simulated[member], Closure)
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
