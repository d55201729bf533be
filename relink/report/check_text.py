"""What `relink check` has found, and prints: the answer, a line for each package with something to say, and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from itertools import takewhile

import msgspec

from relink.report.lines import Line
from relink.report.summary import INSTALLS, Verdict, find_export, join_packages
from relink.report.text import VERDICT_STYLE, findings_text, verdict_text
from relink.system.findings.model import Finding, Level
from relink.system.text import join_truncated, pluralize


class Imported(msgspec.Struct, frozen=True):
    """What came of the import of a distribution, where that was tried.

    :ivar error: how it ended; None where all was imported. `predicted` is what was expected.
    :ivar missed: files that it has mapped and that were not predicted; `invented`, the other way round.
    """

    error: str | None = None
    predicted: str | None = None
    missed: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()

    def differences(self) -> Iterator[str]:
        """Yield where the prediction was wrong."""
        if (self.error is None) != (self.predicted is None):
            yield f"predicted: {self.predicted or 'it is imported'}; {self.error or 'it was imported'}"
        for what, paths in (("mapped, not predicted", self.missed), ("predicted, not mapped", self.invented)):
            if paths:
                yield f"{what}: {join_truncated(paths)}"


class Checked(msgspec.Struct, frozen=True):
    """One distribution with native code.

    :ivar text: what is to be said of it in one sentence.
    :ivar relinked: whether relink has written it.
    :ivar runtimes: the paths of the vendor's runtime that loading it maps.
    :ivar needs: a file of it has a library of the vendor's as NEEDED.
    :ivar mendable: not all of these are found, and it is the vendor's wheel: repair may help.
    :ivar parts: how each ELF file gets into a process, by file.
    :ivar drivers: libraries of a driver that are opened and that this machine has not.
    :ivar events: what its import opens, a line each, where that is asked for.
    :ivar imported: what came of its import, where that is asked for.
    """

    name: str
    version: str
    level: Level
    text: str
    relinked: bool = False
    runtimes: tuple[str, ...] = ()
    needs: bool = False
    mendable: bool = False
    findings: tuple[Finding, ...] = ()
    parts: Mapping[str, str] = msgspec.field(default_factory=dict)
    drivers: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    imported: Imported | None = None


NOT_FOLLOWED = "its import cannot be followed to the end"
"""What the text of a distribution begins with of which not all that it opens is known."""
DOCTOR = ("relink doctor",)
"""The commands where the machine is to be looked at."""


class Proposal(msgspec.Struct, frozen=True):
    """What mends one distribution, by the plan of its repair.

    :ivar step: what to type or to do; None where `relink repair` needs nothing beside.
    :ivar commands: of that what can be typed as it is.
    :ivar nowhere: that the machine has no place with the vendor's libraries, and where one was looked for.
    """

    name: str
    step: str | None = None
    commands: tuple[str, ...] = ()
    nowhere: str | None = None


class EnvironmentCheck(msgspec.Struct, frozen=True):
    """What was found about an environment.

    :ivar distributions: those with native code, by name.
    :ivar findings: about several distributions together.
    :ivar read: files that were read.
    :ivar proposals: for those that a repair may help.
    :ivar repair: the words of the command that mends all of them, where that is asked for.
    """

    prefix: str
    distributions: tuple[Checked, ...]
    findings: tuple[Finding, ...] = ()
    read: int = 0
    proposals: tuple[Proposal, ...] = ()
    repair: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is an error."""
        levels = [checked.level for checked in self.distributions] + [found.level for found in self.findings]
        return "error" not in levels

    @property
    def mendable(self) -> tuple[str, ...]:
        """The names of the distributions that `relink repair` may help."""
        return tuple(checked.name for checked in self.distributions if checked.mendable)


# Their values are names of libraries; those of other options may fit a package that does not need them.
_OF_ONE_LIBRARY = {"--stub", "--forward"}


def environment_verdict(check: EnvironmentCheck) -> Verdict:
    """Return the sentence about an environment as a whole, and what to type next."""
    from relink.vendors.registry import list_products  # noqa: PLC0415 - slow to load

    wrong = [one.name for one in check.distributions if one.level == "error"]
    number = pluralize(len(check.distributions), "package with native code", "packages with native code")
    errors = [found for found in check.findings if found.level == "error"]
    # What may be for a GPU, as far as it was looked at.
    codes = ("RLK128", "RLK132", "RLK4", "RLK538")
    unsure = any(found.code == "RLK554" for found in check.findings) or any(
        one.needs
        or one.runtimes
        or one.text.startswith(NOT_FOLLOWED)
        or any(found.code.startswith(codes) for found in one.findings)
        for one in check.distributions
    )
    warned = any(one.level == "warning" for one in check.distributions) or bool(check.findings)
    level: Level = "error" if wrong or errors else "warning" if warned else "info"
    none = "" if unsure else f", and none of them needs {list_products()}"
    text = f"Works: {number} in {check.prefix}{none}."
    if wrong:
        verb = "does" if len(wrong) == 1 else "do"
        text = f"{join_truncated(wrong)} {verb} not work; {number} in {check.prefix}."
    elif errors and all(found.code == "RLK554" for found in errors):
        subjects = join_truncated([found.subject for found in errors])
        text = f"{subjects} cannot be checked; {number} in {check.prefix}."
    elif errors:
        text = f"Does not work together: {number} in {check.prefix}."
    if nowhere := next((one.nowhere for one in check.proposals if one.nowhere), None):
        text = f"{text} There is {nowhere}."
    return Verdict(level, text, *_next_step(check))


def check_text(check: EnvironmentCheck, *, place: str | None = None, verbose: bool) -> list[Line]:
    """Return the lines about an environment: the answer first, and last where there is something between.

    :param place: the prefix that a repair takes where its command names none, and by what it is found.
    """
    summed = environment_verdict(check)
    answer, *following = verdict_text(summed)
    lines = list(_distributions(check, verbose=verbose))
    told = [Line(f"with {place}:")] if place and check.proposals else []
    return [answer, *lines, *([answer] if lines else []), *told, *following]


def _distributions(check: EnvironmentCheck, *, verbose: bool) -> Iterator[Line]:
    for one in check.distributions:
        wrong = [*one.imported.differences()] if one.imported else []
        if verbose or one.level != "info" or one.events or wrong:
            yield Line.assemble(
                (f"  {one.name} {one.version}: ", "bold"), (one.text, VERDICT_STYLE[one.level])
            )
        yield from (Line(f"    {event}") for event in one.events)
        yield from (Line(f"    {difference}") for difference in wrong)
        if verbose:
            yield from findings_text(one.findings, verbose=True)
    if tried := [one.imported for one in check.distributions if one.imported]:
        right = sum(not any(one.differences()) for one in tried)
        yield Line(f"  {pluralize(len(tried), 'package')} imported, {right} of them as predicted")
    yield from findings_text(check.findings, verbose=verbose)


def _next_step(check: EnvironmentCheck) -> tuple[str | None, tuple[str, ...]]:
    """Return what to type or to do next, and what of it can be typed as it is: one command where that mends all."""
    errors = [found for found in check.findings if found.level == "error"]
    errors += [found for one in check.distributions for found in one.findings if found.level == "error"]
    # A build for another vendor is replaced; nothing of this machine mends it.
    if (check.ok and not check.proposals) or (errors and all(found.code == "RLK551" for found in errors)):
        return None, ()
    if check.proposals and all(one.step is None for one in check.proposals):
        command = shlex.join(check.repair)
        return command, (command,)
    exports = [typed for one in check.proposals for typed in one.commands if typed.startswith("export ")]
    if exports:  # what else is wrong is told once the GPU counts as the other one
        return f"{exports[0]}, then the same command", (exports[0],)
    if len(check.proposals) > 1 and (joint := _join_repairs(check)):
        return joint
    steps: dict[str, None] = {}
    commands: dict[str, None] = {}
    for one in check.proposals:
        step, typed = one.step, one.commands
        if step is None:
            step = shlex.join(one.name if word == "--all" else word for word in check.repair)
            typed = (step,)
        elif not typed:
            step = f"{one.name}: {step}"
        steps[step] = None
        commands |= dict.fromkeys(typed)
    missing = [found for found in errors if found.code == "RLK101"]
    installs = () if steps else tuple(filter(INSTALLS.fullmatch, join_packages(missing)))
    if installs:
        return f"{'; '.join(installs)}, then the same command", installs
    if not steps and (export := find_export(errors)):
        return f"{export}, then the same command", (export,)
    if not steps:
        return DOCTOR[0], DOCTOR
    return "; ".join(steps), tuple(commands)


def _join_repairs(check: EnvironmentCheck) -> tuple[str, tuple[str, ...]] | None:
    """Return what the system is to install, and one repair of all distributions; None where that may not be the same.

    Options are joined that name a library each: they change nothing of a distribution that does not miss the library.
    """
    installs: dict[str, None] = {}
    options: dict[tuple[str, str], None] = {}
    for one in check.proposals:
        alone = [one.name if word == "--all" else word for word in check.repair]
        # What is installed comes before the repair; behind it, in place of it.
        installs |= dict.fromkeys(takewhile(INSTALLS.fullmatch, one.commands))
        for command in one.commands:
            typed = shlex.split(command)
            added = typed[len(alone) :]
            if INSTALLS.fullmatch(command):
                continue
            if typed[: len(alone)] == alone and len(added) % 2 == 0 and {*added[::2]} <= _OF_ONE_LIBRARY:
                options |= dict.fromkeys(zip(added[::2], added[1::2], strict=True))
            else:
                return None
    others = [f"{one.name}: {one.step}" for one in check.proposals if one.step and not one.commands]
    if len(others) == len(check.proposals):
        return None
    commands = (*installs, shlex.join([*check.repair, *(word for pair in options for word in pair)]))
    return "; ".join([*commands, *others]), commands
