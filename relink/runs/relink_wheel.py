"""The stages of relinking a wheel, in order; each uses the results of those before it.

Target, read the wheel, providers, plan; a dry run or a refusal ends here; edit, write, verify, publish. A plan that was made
before, perhaps in another process, is carried out likewise, and refused if its inputs have changed since. A wheel that relink
wrote is no input: the vendor's wheel is, which the plan in the wheel names. Whoever made the wheel wrote that plan; it is read
for one sentence, and nothing of it is carried out.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec.structs import replace
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from relink.elf.dynamic import Buffer
from relink.elf.edit import edit_symbols, predict_edit
from relink.elf.gaps import Gap
from relink.elf.patchelf import Edited
from relink.gpu.coverage import RequestedGpu
from relink.loader.target import Target, find_target
from relink.make.added_members import make_added_members
from relink.make.editing import edit_members
from relink.make.output import Staging, reread_files
from relink.make.store_roots import register_roots
from relink.make.verification import verify
from relink.planning.assess import assess
from relink.planning.case import Case, choose_target, open_providers
from relink.planning.contents import Contents, check_room, make_spool
from relink.planning.model import ANY_PYTHON, Plan, list_changes, read_plan
from relink.planning.options import Options, check_trust
from relink.planning.reading import Wheel, read_wheel
from relink.planning.resolve.context import Layout
from relink.planning.site import requires_other_code
from relink.planning.wheel_plan import FindPlaces, PreparedPlan, list_removed_code, plan_wheel
from relink.providers.prefix import SITE_PACKAGES
from relink.report.model import OutputFacts, Report
from relink.report.summary import why_untried
from relink.system.errors import NoPlaceError, SeveralPlacesError, TargetError, UsageError, WheelError
from relink.system.findings.model import Finding, finding, has_errors, select_findings
from relink.system.progress import Clock, Count, OnBytes
from relink.system.sandbox.start import Sandbox, find_sandbox, sandbox_findings
from relink.system.spool import release_pages
from relink.vendors.registry import find_local_gpus, open_site, requested_gpus
from relink.wheel.naming import WheelName, parse_wheel_name
from relink.wheel.source import MemberSource
from relink.wheel.writer import output_path


def run(
    contents: Contents,
    options: Options,
    on_stage: Callable[[str], None] = lambda _: None,
    on_bytes: OnBytes = lambda _done, _total: None,
) -> Report:
    """Relink an open wheel; :func:`relink.library.relink` has the parameters."""
    clock = Clock(on_stage, on_bytes)
    wheel, planned = make_plan(contents, options, clock)
    if options.dry_run or not (planned.plan.ok or options.force):
        return make_report(planned, options, clock)
    return carry_out(wheel, planned, options, clock)


def make_plan(
    contents: Contents,
    options: Options,
    clock: Clock,
    *,
    read: Callable[[Contents, Target, OnBytes, Sequence[RequestedGpu], bool], Wheel] = read_wheel,
    find_providers: FindPlaces = open_providers,
    layout: Layout | None = None,
) -> tuple[Wheel, PreparedPlan]:
    """Find the target, read the wheel, find providers, and make the plan; after a refusal search for the way out.

    :param layout: where the members are, if nobody installs them.
    :raises UsageError: relink wrote the wheel.
    """
    refuse_relinked(contents.source)
    with clock.stage("target"):
        # A root directory of another machine says nothing of the GPUs that it will have.
        gpus = tuple(options.requested_gpus or (() if options.sysroot else find_local_gpus()))
        target = choose_target(options)
    with clock.stage("read"):
        wheel = read(contents, target, clock.on_bytes, options.kept_gpus, options.drop_jit)
    shrinks = bool(wheel.removals or wheel.other_kernels)
    shrinks |= layout is None and requires_other_code(contents.source, options.kept_gpus)
    if options.kept_gpus and not shrinks:
        # Many wheels may be relinked with the same settings: one that has no such code is relinked all the same.
        options = dataclasses.replace(options, only_gpus=(), drop_jit=False)
        none = finding("RLK430", contents.source.path.name, "--only-gpu found no code that can be taken out")
        wheel = replace(wheel, findings=(*wheel.findings, none))
    # A stub is linked without a place, too.
    alone = shrinks and not options.stub
    with clock.stage("plan"):
        several = nowhere = None
        try:
            providers = find_providers(options, target, wheel.sought)
        except SeveralPlacesError as error:
            if len(error.places) != 1 or not options.command:
                raise
            # The one that fits best is not taken. It is planned with, as the command that names it is printed.
            several, options = error, dataclasses.replace(options, prefixes=error.places)
            providers = find_providers(options, target, wheel.sought)
        except NoPlaceError as error:
            # That a GPU has no code in the wheel comes first: no place changes that.
            nowhere = None if alone else error
            if nowhere and not gpus:
                raise
            providers = ()
        if nowhere or (alone and not providers):
            # There is nothing to link against: the code goes out, and how files are linked is not looked at.
            wheel = replace(wheel, images={})
        case = Case(wheel, target, providers, options, "tree" if layout else "run", gpus, layout)
        planned = plan_wheel(case, find_providers)
        if nowhere and (planned.plan.ok or options.force):
            raise nowhere
        if several is not None:
            way = planned.ways_out[0] if planned.ways_out else ()
            if not (planned.plan.ok or way) or "--prefix" in way:
                raise several
            command = shlex.join([*options.command, "--prefix", *several.places, *way])
            why = why_untried(command)
            issue = f"Next{f' (not tried: {why})' if why else ''}: {command}"
            raise UsageError(several.message, [*several.issues, issue])
        return wheel, planned


def carry_out(wheel: Wheel, planned: PreparedPlan, options: Options, clock: Clock) -> Report:
    """Edit, write, verify and publish by a plan."""
    contents, plan = wheel.contents, planned.plan
    check_room(options.max_memory, contents, [file.path for file in plan.changed])
    sandbox = find_sandbox(options.sandbox)
    sizes = {name: member.size for name, member in contents.archive.members.items()}
    # A changed member is counted twice: it is written, and read back.
    new = {*(file.path for file in plan.changed), *(one.path for one in plan.removed_code)}
    count = Count(sum(sizes.values()) + sum(sizes[path] for path in new), clock.on_bytes)
    with Staging(contents, planned.output, options, count.add) as staging:
        with clock.stage("edit"):
            edits, failures = edit_members(
                wheel, planned, options, sandbox, staging.directory, staging.add, staging.on_progress
            )
        # A member that failed has no content to write, so neither --ignore nor --force helps.
        if failures:
            return make_report(planned, options, clock, findings=sandbox_findings(sandbox), failures=failures)
        with clock.stage("write"):
            if plan.empty:
                staging.copy()
            else:
                requires = {change.before: change.after for change in plan.requirements}
                added = make_added_members(plan, contents.archive, planned.output)
                staging.write(added, plan.metadata, requires, plan.removed)
        with clock.stage("verify"):
            names = {
                name: output_path(wheel.archive, planned.output, name) for name in planned.context.images
            }
            findings, verified = check_edits(wheel, planned, edits, options, sandbox, names)
        with clock.stage("publish"):
            findings += staging.finish()
            refused = has_errors(select_findings(findings, (), options.ignore)) and not options.force
            sha256 = staging.publish(withhold=refused)
            output = None
            if not refused:
                size, before = (path.stat().st_size for path in (staging.final, contents.source.path))
                output = OutputFacts(str(staging.final), sha256, size, before)
                findings += register_roots(plan, output.path, options.gc_root)
    return make_report(planned, options, clock, output, findings, verified=verified)


def apply(plan: Plan, wheel: Path, options: Options) -> Report:
    """Edit, write, verify and publish by `plan`; nothing is decided.

    :param wheel: the input.
    :param options: what of them concerns writing and verifying.
    :raises UsageError: a finding of the plan is an error, or the wheel or a library that it rests on has changed.
    :raises RelinkError: as for :func:`relink.library.relink`.
    """
    if not (plan.ok or options.force):
        raise UsageError("a finding of the plan is an error; see its findings, and make another plan")
    clock = Clock()
    with Contents(
        wheel, options.limits, reuse=True, spool=make_spool(options), jobs=options.jobs
    ) as contents:
        with clock.stage("target"):
            facts, root = plan.target, plan.target.sysroot
            try:
                target = find_target(
                    # A plan in a wheel names no Python, so this Python is used.
                    python=sys.executable if facts.python == ANY_PYTHON else facts.python,
                    interpreter=facts.interpreter,
                    sysroot=root if root != "/" else None,
                )
            except TargetError as error:
                raise UsageError(
                    f"the plan was made for a loader that is not here ({error.message}); apply it there, or make another plan "
                    "here"
                ) from error
        with clock.stage("read"):
            changes = [*list_changes(plan.basis, plan.target.sysroot)]
            refuse_relinked(contents.source)
            if contents.archive.sha256() != plan.wheel.sha256:
                changes.insert(0, f"{wheel} is not the wheel that the plan was made from")
            if changes:
                raise UsageError("the plan does not hold any more; make it again", changes)
            gpus = requested_gpus(plan.only_gpus)
            wheel_read = read_wheel(contents, target, only_gpus=gpus, drop_jit="--drop-jit" in plan.options)
            if list_removed_code(wheel_read) != plan.removed_code:
                raise UsageError("the plan takes other GPU code out than this relink would; make it again")
            kept = {name: image for name, image in wheel_read.images.items() if name not in plan.removed}
            wheel_read = replace(wheel_read, images=kept)
        with clock.stage("plan"):
            edits = {file.path: file.edit for file in plan.files}
            if unknown := sorted(edits.keys() - kept.keys()):
                raise UsageError("the plan names files that the wheel does not have", unknown)
            planned = replace(
                wheel_read,
                images=kept | {name: predict_edit(kept[name], edit) for name, edit in edits.items()},
                tables={
                    **wheel_read.tables,
                    **{
                        name: edit_symbols(wheel_read.tables[name], dict(edit.replace), edit.versions)
                        for name, edit in edits.items()
                    },
                },
            )
            site = next(iter(plan.sites), None)
            # The site-packages with the packages that the result relies on.
            places = [one.path for one in plan.providers if one.kind == SITE_PACKAGES and plan.relies_on]
            case = Case(
                planned,
                target,
                tuple(filter(None, (open_site(path, target) for path in places))),
                options,
                "apply",
                site=site,
                plan=plan,
            )
            assessed = assess(case)
            known = {(reported.code, reported.subject) for reported in plan.findings}
            more = (one for one in assessed.findings if (one.code, one.subject) not in known)
            plan = replace(plan, findings=(*plan.findings, *more))
        prepared = PreparedPlan(plan, assessed.context, None)
        if not (plan.ok or options.force):
            return make_report(prepared, options, clock)
        return carry_out(wheel_read, prepared, options, clock)


def check_edits(
    wheel: Wheel,
    planned: PreparedPlan,
    edits: Mapping[str, Edited],
    options: Options,
    sandbox: Sandbox | None,
    names: Mapping[str, str],
    links: Mapping[str, str] | None = None,
) -> tuple[list[Finding], int | None]:
    """Read the edited members again, and ask the loader about them; return the findings, and how many members have no error.

    :param names: of the members in the output: a new version renames the directory X-VERSION.data.
    :param links: the symbolic links beside the members, with their texts.
    """
    findings = [
        *(about for edited in edits.values() for about in edited.findings),
        *reread_files(planned.plan.files, wheel.images, edits),
        *sandbox_findings(sandbox),
    ]
    if not options.verify or sandbox is None:
        return findings, None
    context, served = planned.context, [file.path for file in planned.plan.files if file.served]
    result = verify(
        planned.plan.output,
        _content_reader(wheel, planned, edits, names),
        # The loader is asked about what stays as it is, too, and about a forwarder: what it leads to has to load.
        [names[path] for path in (*served, *(stub.path for stub in planned.plan.stubs if stub.needed))],
        replace(context, images={names[name]: image for name, image in context.images.items()}),
        sandbox,
        check_trust(options),
        links,
    )
    return [*findings, *result.findings], result.confirmed


def _content_reader(
    wheel: Wheel, planned: PreparedPlan, edits: Mapping[str, Edited], names: Mapping[str, str]
) -> Callable[[str], tuple[Iterator[Buffer], Sequence[Gap]]]:
    """Return a function that gives the content and the gaps of a member of the output."""
    originals = {new: name for name, new in names.items()}
    stubs = {stub.path: stub for stub in planned.plan.stubs}

    def content(name: str) -> Iterator[Buffer]:
        if name in stubs:
            yield stubs[name].content()
        elif name not in edits:
            yield from wheel.source.chunks(name)
        else:
            with memoryview(edits[name].view) as view:
                yield view
                release_pages(view)

    def written(member: str) -> tuple[Iterator[Buffer], Sequence[Gap]]:
        name = originals[member]
        gapped = edits.get(name) or wheel.contents.loaded.get(name)
        return content(name), gapped.gaps if gapped else ()

    return written


def make_report(
    planned: PreparedPlan,
    options: Options,
    clock: Clock,
    output: OutputFacts | None = None,
    findings: Sequence[Finding] = (),
    failures: Sequence[Finding] = (),
    verified: int | None = None,
) -> Report:
    """Make the report of a plan and its execution; an error that the plan has about the same subject is not repeated.

    :param failures: why there is no output; in the report whatever the user ignores.
    """
    plan = planned.plan
    known = {(finding.code, finding.subject) for finding in plan.findings if finding.level == "error"}
    more = tuple(
        dict.fromkeys(finding for finding in findings if (finding.code, finding.subject) not in known)
    )
    # select() also gives a finding for each pattern that matches nothing. Those are among the plan's findings already.
    chosen = [finding for finding in select_findings(more, options.select, options.ignore) if finding in more]
    return Report(
        tuple(options.command),
        replace(plan, findings=(*plan.findings, *failures, *chosen)),
        output,
        isa=planned.isa,
        timings=clock.timings,
        verified=verified,
        way_out=planned.ways_out[0] if planned.ways_out else (),
        other_ways_out=planned.ways_out[1:],
    )


_SHA256: Final = re.compile(r"[0-9a-f]{64}")
# Characters of what the plan says, in a sentence.
_SHOWN: Final = 300
# Bytes of a file's name on Linux.
_NAME_MAX: Final = 255


def refuse_relinked(source: MemberSource) -> None:
    """Refuse a wheel that relink wrote, and name the vendor's wheel that it was made from.

    :raises UsageError: relink wrote the wheel.
    """
    if (plan := read_plan(source)) is not None:
        raise relinked_error(plan, source.path.name, source.name.distribution, str(source.name.version))


def vendors_wheel(plan: Plan, distribution: str, version: str) -> WheelName | None:
    """Return the name of the vendor's wheel that a package was made from; None where the plan in the package cannot be true."""
    with suppress(WheelError, InvalidVersion):
        vendor = parse_wheel_name(PurePosixPath(plan.wheel.path).name[:_NAME_MAX])
        # Another distribution or version is not what this package can have been made of, and is not to be fetched.
        same = (vendor.canonical, vendor.version.public) == (
            canonicalize_name(distribution),
            Version(version).public,
        )
        if same and _SHA256.fullmatch(plan.wheel.sha256):
            return vendor
    return None


def relinked_error(plan: Plan, shown: str, distribution: str, version: str) -> UsageError:
    """Return the error about a package that relink wrote, with the vendor's wheel to take instead.

    :param plan: the one in the package.
    :param distribution: the name of the package, and its version.
    """
    sha256 = plan.wheel.sha256
    if (vendor := vendors_wheel(plan, distribution, version)) is not None:
        return UsageError(
            f"{shown} was relinked from {vendor.filename} (SHA-256 {sha256}); relink that one, which "
            f"`{vendor.fetching}` fetches where an index has it",
            step=vendor.fetching,
        )
    filename = PurePosixPath(plan.wheel.path).name[:_NAME_MAX]
    return UsageError(
        f"{shown} was relinked, but not from {filename!r} (SHA-256 {sha256[:_SHOWN]!r}), as the plan in it says; relink the "
        "vendor's wheel"
    )
