"""What ``import relink`` offers. Each function imports what it needs when it is called: importing relink costs nothing.

What stays stable: these names, their parameters, the fields of :class:`Options`, and the fields of what is returned. Fields and
parameters with defaults may be added. Everything else in the package may change in any release.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from relink.planning.options import Options
from relink.system.errors import UsageError
from relink.system.progress import OnBytes

if TYPE_CHECKING:
    from relink.planning.model import Plan
    from relink.report.diff_text import WheelDiff
    from relink.report.inspection import Inspection
    from relink.report.model import Report
    from relink.report.tree import DependencyTree
    from relink.runs.questions import VerifiedWheel

__all__ = ["apply", "diff", "explain", "inspect", "plan", "relink", "relink_tree", "verify"]


def relink(
    wheel: Path | str,
    options: Options | None = None,
    *,
    beside: Sequence[Path | str] = (),
    on_stage: Callable[[str], None] = lambda _: None,
    on_bytes: OnBytes = lambda _done, _total: None,
) -> Report:
    """Relink one wheel: read, plan, edit, write, verify, publish.

    Nothing is written on a dry run, nor where a finding is an error, unless `options.force`. The output appears under its name
    only after the loader has confirmed it.

    :param beside: other wheels that will be installed with it: the GPU code that they have for its files counts as there.
    :param on_stage: called with the name of each stage when it begins.
    :param on_bytes: called, while files are read and while they are written, with the bytes that are done and those that
        there are in all, unpacked.
    :raises RelinkError: the input cannot be read, the target, a prefix or patchelf cannot be used, or there is no sandbox
        although `options` requires one.
    """
    from relink.planning.contents import Contents, make_spool

    options = options or Options()
    # Opened first: the largest member is read while the rest of relink is imported.
    with Contents(
        Path(wheel),
        options.limits,
        reuse=not options.dry_run,
        spool=make_spool(options),
        jobs=options.jobs,
    ) as contents:
        contents.beside = tuple(Path(path) for path in beside)
        from relink.runs import relink_wheel as pipeline

        return pipeline.run(contents, options, on_stage, on_bytes)


def relink_tree(
    directory: Path | str,
    options: Options | None = None,
    *,
    on_stage: Callable[[str], None] = lambda _: None,
    on_bytes: OnBytes = lambda _done, _total: None,
) -> Report:
    """Write a relinked copy of an unpacked tree: read, plan, edit, verify, copy, publish. The tree itself is never written to.

    The copy is `options.output_directory`, which must not exist and appears under its name whole. Nothing is written on a dry
    run, nor where a finding is an error, unless `options.force`. Other parameters as for :func:`relink`.

    :raises RelinkError: the tree cannot be read or the copy not be written, or as for :func:`relink`.
    """
    from relink.runs.relink_tree import relink_tree as relink_copy

    return relink_copy(Path(directory), options or Options(), on_stage=on_stage, on_bytes=on_bytes)


def plan(wheel: Path | str, options: Options | None = None) -> Plan:
    """Decide what becomes of a wheel, and write nothing.

    The plan remembers the wheel and a digest of each library that it rests on, so that :func:`apply` can refuse it when one of
    them has changed. `Plan.save` and `Plan.load` keep it in a file.

    :raises RelinkError: the input cannot be read, or the target or a prefix cannot be used.
    """
    from relink.planning.contents import Contents

    options = options or Options()
    with Contents(Path(wheel), options.limits) as contents:
        from relink.planning.model import record_basis
        from relink.runs import relink_wheel as pipeline
        from relink.system.progress import Clock

        made = pipeline.make_plan(contents, options, Clock())[1].plan
        return replace(made, basis=record_basis(str(wheel), made.files, made.target.sysroot))


def apply(
    plan: Plan,
    *,
    wheel: Path | str | None = None,
    output_directory: Path | str | None = None,
    options: Options | None = None,
) -> Report:
    """Carry out a plan: edit, write, verify, publish. Nothing is decided anew.

    :param wheel: the input; by default where it was when the plan was made.
    :param output_directory: by default that of `options`, which is the current directory.
    :param options: what of them concerns writing and verifying.
    :raises UsageError: a finding of the plan is an error, or the wheel or a library that it rests on has changed.
    :raises RelinkError: the output cannot be written, or patchelf cannot be used.
    """
    from relink.runs import relink_wheel as pipeline

    options = options or Options()
    if output_directory is not None:
        options = dataclasses.replace(options, output_directory=Path(output_directory))
    if wheel is None and plan.basis is None:
        raise UsageError("this plan does not say where its wheel is; pass the wheel's path")
    return pipeline.apply(plan, Path(wheel or (plan.basis.wheel if plan.basis else "")), options)


def inspect(wheel: Path | str, options: Options | None = None) -> Inspection:
    """Say what a wheel is, before anything is decided.

    :raises WheelError: it is not a wheel that can be trusted.
    """
    from relink.runs import questions as queries

    return queries.inspect(Path(wheel), options.limits if options else None)


def explain(wheel: Path | str, options: Options | None = None) -> tuple[DependencyTree, ...]:
    """Return what loading each ELF member of a wheel maps once it is relinked.

    :raises RelinkError: the wheel cannot be read, or there is no such target or prefix.
    """
    from relink.runs import questions as queries

    return queries.explain(Path(wheel), options or Options()).trees


def verify(wheel: Path | str, options: Options | None = None) -> VerifiedWheel:
    """Ask the real loader what it makes of every ELF member of a wheel as it is.

    :raises RelinkError: the wheel cannot be read, or there is no such target.
    """
    from relink.runs import questions as queries

    return queries.verify_wheel(Path(wheel), options or Options())


def diff(
    old: Path | str, new: Path | str, options: Options | None = None, *, plan: Plan | None = None
) -> WheelDiff:
    """Compare two wheels; and, with prefixes in `options` or a plan, the new one with what relink makes of the old one today.

    Nothing that the new wheel says of itself is believed. Without prefixes and plan nothing is judged.

    :param options: those that the new wheel was made with, as far as they are yours to say.
    :param plan: carried out instead of making one; the options then concern writing and verifying.
    :raises UsageError: prefixes and a plan are both given, or the plan does not hold for the old wheel.
    :raises RelinkError: one of them cannot be read, or as for :func:`relink`.
    """
    from relink.runs.comparison import compare_wheels, make_again

    options = options or Options()
    before, after, prefixes = Path(old), Path(new), (*options.prefixes, *options.nix_closures)
    if plan is not None and prefixes:
        raise UsageError("a plan and prefixes are two things to compare with; name one of them")
    if plan is None and not prefixes:
        return compare_wheels(before, after, options.limits)

    def make(chosen: Options) -> Report:
        return relink(before, chosen) if plan is None else apply(plan, wheel=before, options=chosen)

    source = f"made anew for {', '.join(prefixes)}" if plan is None else "the one that was given"
    with make_again(before, after, options, make, source) as reference:
        return compare_wheels(before, after, options.limits, reference)
