"""The plan that a difference is compared with: one that the user saved, or one that is made again from the old wheel.

The plan inside of the new wheel is the maker's own statement: it explains the difference as the maker wants it explained.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from relink.bounded_json import JSON_LIMIT
from relink.errors import UsageError
from relink.files import read_text
from relink.loader.target import find_target
from relink.options import Options
from relink.planning import open_providers, plan_wheel
from relink.plans.embedded import embedded
from relink.plans.model import FilePlan, Plan, from_json
from relink.provenance import read_plan
from relink.reading import open_wheel
from relink.report.saved import read_saved
from relink.wheel.archive import WheelArchive

__all__ = ["Reference", "disagreements", "plan_again", "plan_of_file", "same_wheel"]


@dataclass(frozen=True, slots=True)
class Reference:
    """A plan that does not come from the new wheel, in the form that a wheel carries, and where it comes from, for the verdict.

    :ivar plan: its `output` is empty where that is not known (a dry run's report): the new wheel's name is then not judged.
    """

    plan: Plan
    source: str


def plan_of_file(path: Path) -> Reference:
    """Read a plan: a ``relink.json``, what ``relink WHEEL --json`` printed (of a dry run, too), or a relinked wheel to trust.

    :raises RelinkError: it is none of these.
    """
    if path.suffix == ".whl":
        with WheelArchive(path) as archive:
            inside = read_plan(archive)
        if inside is None:
            raise UsageError(f"{path}: relink has not made this wheel, so there is no plan in it")
        return Reference(inside, str(path))
    try:
        text = read_text(path, JSON_LIMIT, errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    report, is_plan = read_saved(text, str(path))
    if is_plan:
        return Reference(embedded(from_json(text, strict=False)), str(path))
    output = PurePosixPath(report.output.path).name if report.output else ""
    plan = Plan(
        report.wheel,
        output,
        report.target,
        report.providers,
        report.files,
        report.findings,
        report.loads,
        stubs=report.stubs,
        relies_on=report.relies_on,
        relocatable=report.relocatable,
    )
    return Reference(embedded(plan), str(path))


def plan_again(old: Path, options: Options) -> Reference:
    """Make the plan for the old wheel again, with the user's own target and providers; the new wheel is not read.

    :raises RelinkError: the wheel cannot be read, or there is no such target or prefix.
    """
    with ExitStack() as stack:
        target = find_target(python=options.python, interpreter=options.interpreter, sysroot=options.sysroot)
        providers = open_providers(options, target)
        wheel = open_wheel(old, stack, target, options.limits)
        plan = plan_wheel(wheel, target, providers, options).plan
    return Reference(
        embedded(plan), "made anew for " + ", ".join(provider.path for provider in plan.providers)
    )


def same_wheel(reference: Reference, before: WheelArchive) -> None:
    """Check that the plan is for the old wheel.

    :raises UsageError: it is for another.
    """
    made_for = reference.plan.wheel.sha256
    if made_for != before.sha256():
        raise UsageError(
            f"{reference.source}: the plan was made for another wheel ({reference.plan.wheel.path}, {made_for}); "
            f"{before.path.name} has {before.sha256()}"
        )


def disagreements(inside: Plan, plan: Plan) -> Iterator[str]:
    """Say what the plan inside of the new wheel says otherwise than `plan`, of all that changes what is loaded.

    Evidence and findings are not compared: they explain, and another release of relink words them otherwise.
    """
    if plan.output and inside.output != plan.output:
        yield f"output {inside.output!r} instead of {plan.output!r}"
    for what, a, b in (
        ("interpreter of the target", inside.target.interpreter, plan.target.interpreter),
        ("root of the target", inside.target.sysroot, plan.target.sysroot),
        ("providers", _providers(inside), _providers(plan)),
    ):
        if a != b:
            yield f"{what} {a!r} instead of {b!r}"
    files = {file.path: file for file in plan.files}
    for file in inside.files:
        other = files.pop(file.path, None)
        if other is None:
            yield f"{file.path}: the plan to compare with does not have it"
        else:
            yield from (f"{file.path}: {text}" for text in _file(file, other))
    yield from (f"{path}: is not in it" for path in files)
    for what, mine, theirs in (("stubs", inside.stubs, plan.stubs),):
        if mine != theirs:
            yield f"other {what}"


def _providers(plan: Plan) -> list[str]:
    return [f"{provider.kind} {provider.path}" for provider in plan.providers]


def _file(inside: FilePlan, plan: FilePlan) -> Iterator[str]:
    if inside.edit != plan.edit:
        yield f"another edit: {inside.edit} instead of {plan.edit}"
    if inside.closure != plan.closure:
        yield "another closure"
