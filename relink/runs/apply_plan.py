"""Carrying out a plan that was made before, perhaps in another process. It is refused if its inputs have changed since."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from relink.elf.patchelf import result_of
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import Target, find_target
from relink.planning.contents import Contents
from relink.planning.memory import spool_of
from relink.planning.model.basis import changes_since
from relink.planning.model.embedded import ANY_PYTHON
from relink.planning.model.model import Plan
from relink.planning.options import Options
from relink.planning.reading import read_wheel
from relink.planning.resolve.stubs import with_stubs
from relink.planning.wheel_plan import PreparedPlan, context_of
from relink.providers.prefix import Provider
from relink.providers.site_packages import SITE_PACKAGES
from relink.report.model import Report
from relink.runs.relink_wheel import carry_out
from relink.system.errors import TargetError, UsageError
from relink.system.progress import Clock
from relink.vendors.registry import open_site

__all__ = ["apply"]


def _target_of(plan: Plan) -> Target:
    """Return the target that a plan was made for; the plan in a wheel names no Python, so it is this one then.

    :raises UsageError: it is not on this machine.
    """
    facts = plan.target
    try:
        return find_target(
            python=sys.executable if facts.python == ANY_PYTHON else facts.python,
            interpreter=facts.interpreter,
            sysroot=facts.sysroot if facts.sysroot != "/" else None,
        )
    except TargetError as error:
        raise UsageError(
            f"the plan was made for a loader that is not here ({error.message}); apply it there, or make another plan here"
        ) from error


def _beside(plan: Plan, target: Target) -> tuple[Provider, ...]:
    """Open the site-packages that have what the result finds beside it."""
    sites = [item.path for item in plan.providers if item.kind == SITE_PACKAGES and plan.relies_on]
    return tuple(filter(None, (open_site(path, target) for path in sites)))


def apply(plan: Plan, wheel: Path, options: Options) -> Report:
    """Edit, write, verify and publish what `plan` says; nothing is decided.

    :param wheel: the input.
    :param options: what of them concerns writing and verifying.
    :raises UsageError: a finding of the plan is an error, or the wheel or a library that it rests on has changed.
    :raises RelinkError: as for :func:`relink.library.relink`.
    """
    if not (plan.ok or options.force):
        raise UsageError("a finding of the plan is an error; see its findings, and make another plan")
    clock = Clock()
    with Contents(wheel, options.limits, reuse=True, spool=spool_of(options)) as contents:
        with clock.stage("target"):
            target = _target_of(plan)
        with clock.stage("read"):
            changes = changes_since(plan.basis, plan.target.sysroot)
            if contents.archive.sha256() != plan.wheel.sha256:
                changes.insert(0, f"{wheel} is not the wheel that the plan was made from")
            if changes:
                raise UsageError("the plan does not hold any more; make it again", changes)
            read = read_wheel(contents, target)
            site = next(iter(plan.sites), None)
            context = context_of(read, target, _beside(plan, target), options, site=site)
            edits = {file.path: file.edit for file in plan.files}
            if unknown := sorted(edits.keys() - read.images.keys()):
                raise UsageError("the plan names files that the wheel does not have", unknown)
            images = {
                name: result_of(image, edits[name]) if name in edits else image
                for name, image in read.images.items()
            }
            context, symbols = with_stubs(replace(context, images=images), read.tables, plan.stubs)
        prepared = PreparedPlan(plan, context, Tables(Files(target.sysroot), symbols), None)
        return carry_out(read, prepared, options, clock)
