"""The stages of relinking a wheel, in order; each uses the results of those before it.

Target and providers, read the wheel, plan; a dry run or a refusal ends here; edit, write, verify, publish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relink.elf.image import Buffer
from relink.gpu import Wanted, seen_gpus, wanted_gpus
from relink.loader.target import Target, find_target
from relink.make.added_members import added_members, read_plan
from relink.make.editing import EditedFile, UneditedFile, edit_files
from relink.make.output import Staging
from relink.make.second_readers import reread_files
from relink.make.verification import Verification, verify
from relink.planning.checks.tags import tag_findings
from relink.planning.contents import Contents
from relink.planning.memory import check_room, shares_of
from relink.planning.model.model import Plan
from relink.planning.options import Options, deciding, trusted
from relink.planning.proposals import find_way_out, with_sound_options
from relink.planning.reading import Wheel, read_wheel
from relink.planning.resolve.layout import Layout
from relink.planning.wheel_plan import PreparedPlan, is_python_named, open_providers, plan_wheel
from relink.providers.prefix import Provider
from relink.report.model import OutputFacts, Report
from relink.report.nix.roots import register_roots
from relink.runs.relinked_input import check_current, is_relinked
from relink.system.findings.model import Finding, finding, has_errors, select
from relink.system.progress import Clock, Count, OnBytes, OnProgress
from relink.system.sandbox import Sandbox, find_sandbox, sandbox_findings
from relink.system.spool import release_pages
from relink.wheel.changes import Replacement
from relink.wheel.record import default_jobs
from relink.wheel.writer import output_path

__all__ = ["carry_out", "check_edits", "edit_members", "make_plan", "make_report", "run"]


def run(
    contents: Contents,
    options: Options,
    on_stage: Callable[[str], None] = lambda _: None,
    on_bytes: OnBytes = lambda _done, _total: None,
) -> Report:
    """Relink an open wheel; :func:`relink.library.relink` has the parameters."""
    clock = Clock(on_stage, on_bytes)
    wheel, planned = make_plan(contents, options, clock)
    if options.dry_run or is_relinked(contents.archive) or not (planned.plan.ok or options.force):
        return make_report(planned, options, clock)
    return carry_out(wheel, planned, options, clock)


def make_plan(
    contents: Contents,
    options: Options,
    clock: Clock,
    *,
    read: Callable[[Contents, Target, OnBytes], Wheel] = read_wheel,
    find_providers: Callable[[Options, Target], Sequence[Provider]] = open_providers,
    layout: Layout | None = None,
) -> tuple[Wheel, PreparedPlan]:
    """Find target and providers, read the wheel, and make the plan; after a refusal look for the options that lead out of it.

    The plan of a relinked wheel is empty, and RLK542 is in it.

    :param layout: where the members are, if nobody installs them.
    :raises UsageError: the wheel was relinked for something else.
    """
    recorded, said = read_plan(contents.archive), deciding(options)
    with clock.stage("target"):
        # A root directory of another machine says nothing of the GPUs that it will have.
        gpus = wanted_gpus(options.gpus) or (() if options.sysroot else seen_gpus())
        target = find_target(python=options.python, interpreter=options.interpreter, sysroot=options.sysroot)
        providers = find_providers(options, target)
    with clock.stage("read"):
        wheel = read(contents, target, clock.on_bytes)

    def plan_again(more: Options) -> PreparedPlan:
        other = find_target(python=more.python, interpreter=more.interpreter, sysroot=more.sysroot)
        places = providers if other == target else find_providers(more, other)
        return _planned(wheel, other, places, more, gpus, layout)

    with clock.stage("plan"):
        if recorded is not None:
            # Its stubs are members as others are.
            planned = _planned(wheel, target, providers, replace(options, stub=()), gpus, layout)
            plan = replace(planned.plan, options=said)
            check_current(contents.archive, recorded, plan)
            return wheel, replace(
                planned, plan=replace(plan, findings=_done(plan, planned.context.vendor.product))
            )
        planned = _planned(wheel, target, providers, options, gpus, layout)
        if options.fix:
            planned, options = with_sound_options(planned, options, plan_again)
            planned = replace(planned, plan=replace(planned.plan, options=said))
        if not (planned.plan.ok or options.force):
            planned = replace(planned, way_out=find_way_out(planned, options, plan_again))
        return wheel, planned


def _done(plan: Plan, product: str) -> tuple[Finding, ...]:
    """The findings of a relinked wheel's own files: that nothing is written takes the place of RLK507."""
    findings = (found for found in plan.findings if found.code != "RLK507")
    return (*findings, finding("RLK542", plan.wheel.path, f"already relinked for this {product}"))


def _planned(
    wheel: Wheel,
    target: Target,
    providers: Sequence[Provider],
    options: Options,
    gpus: Sequence[Wanted],
    layout: Layout | None,
) -> PreparedPlan:
    archive = wheel.archive
    if layout is None:  # who installs it compares the tags
        tags = tag_findings(archive.name, archive.path.name, target, named=is_python_named(options))
        wheel = replace(wheel, findings=(*wheel.findings, *tags))
    return plan_wheel(wheel, target, providers, options, gpus, layout)


def carry_out(wheel: Wheel, planned: PreparedPlan, options: Options, clock: Clock) -> Report:
    """Edit, write, verify and publish what was planned."""
    contents, plan = wheel.contents, planned.plan
    check_room(options.max_memory, contents, [file.path for file in plan.changed])
    sandbox = None if plan.empty else find_sandbox(options.sandbox)
    sizes = {name: member.size for name, member in contents.archive.members.items()}
    # A changed member is counted twice: it is written, and read back.
    new = [sizes[file.path] for file in plan.changed]
    count = Count(sum(sizes.values()) + sum(new), clock.on_bytes)
    with Staging(contents, planned.output, options, count.add) as staging:
        with clock.stage("edit"):
            edits, failures = edit_members(
                wheel, planned, options, sandbox, staging.directory, staging.add, staging.on_progress
            )
        if failures:  # there is no content to write, whatever the user ignores or forces
            return make_report(planned, options, clock, findings=sandbox_findings(sandbox), failures=failures)
        with clock.stage("write"):
            if plan.empty:
                staging.copy()
            else:
                staging.write(added_members(plan, contents.archive, planned.output), plan.metadata)
        with clock.stage("verify"):
            names = {
                name: output_path(wheel.archive, planned.output, name) for name in planned.context.images
            }
            findings, verified = check_edits(wheel, planned, edits, options, sandbox, names)
        with clock.stage("publish"):
            findings += staging.finish()
            refused = has_errors(select(findings, (), options.ignore)) and not options.force
            sha256 = staging.publish(withhold=refused)
            output = None if refused else OutputFacts(str(staging.final), sha256)
            if output is not None:
                findings += register_roots(plan, output.path, options.gc_root)
    return make_report(planned, options, clock, output, findings, verified=verified)


def edit_members(
    wheel: Wheel,
    planned: PreparedPlan,
    options: Options,
    sandbox: Sandbox | None,
    directory: Path,
    add: Callable[[str, Replacement], object] = lambda _name, _replacement: None,
    on_progress: OnProgress = lambda _: None,
) -> tuple[dict[str, EditedFile], list[Finding]]:
    """Edit the members that change; returns them by name, and why some could not be edited.

    :param directory: as for :func:`relink.make.editing.edit_files`, and `on_progress`, too.
    :param add: gets each member's new content, in the order in which they were read.
    """
    members = wheel.archive.members
    edits: dict[str, EditedFile] = {}
    failures: list[Finding] = []
    for edited in edit_files(
        wheel.contents,
        sorted(planned.plan.changed, key=lambda file: members[file.path].size, reverse=True),
        wheel.images,
        wheel.codes,
        directory,
        layout=planned.context.layout,
        trust=trusted(options),
        check=options.verify_record,
        on_progress=on_progress,
        sandbox=sandbox,
        jobs=options.jobs or default_jobs(),
        room=shares_of(options.max_memory).edits,
    ):
        if isinstance(edited, UneditedFile):
            failures += edited.findings
        else:
            add(edited.name, edited.replacement)
            edits[edited.name] = edited
    return edits, failures


def check_edits(
    wheel: Wheel,
    planned: PreparedPlan,
    edits: Mapping[str, EditedFile],
    options: Options,
    sandbox: Sandbox | None,
    names: Mapping[str, str],
    links: Mapping[str, str] | None = None,
) -> tuple[list[Finding], int | None]:
    """Read the edited members again, and ask the loader about them; returns the findings, and of how many it was sure.

    :param names: of the members in the output: a new version renames the directory X-VERSION.data.
    :param links: the symbolic links beside the members, with their texts.
    """
    findings = [found for edited in edits.values() for found in edited.findings]
    edited_files = {name: file.edited for name, file in edits.items()}
    findings += reread_files(planned.plan.files, wheel.images, wheel.tables, edited_files)
    findings += sandbox_findings(sandbox)
    if not options.verify or sandbox is None:
        return findings, None
    result = _verified(wheel, planned, edits, options, sandbox, names, links)
    return [*findings, *result.findings], result.confirmed


def _verified(
    wheel: Wheel,
    planned: PreparedPlan,
    edits: Mapping[str, EditedFile],
    options: Options,
    sandbox: Sandbox,
    names: Mapping[str, str],
    links: Mapping[str, str] | None,
) -> Verification:
    archive, context = wheel.archive, planned.context
    originals = {new: name for name, new in names.items()}
    stubs = {stub.path: stub for stub in planned.plan.stubs}
    gaps = {name: loaded.gaps for name, loaded in wheel.contents.loaded.items()}
    gaps |= {name: file.edited.gaps for name, file in edits.items()}

    def content(member: str) -> Iterator[Buffer]:
        name = originals[member]
        if name in stubs:
            yield stubs[name].content()
            return
        if name not in edits:
            yield from archive.chunks(name)
            return
        with memoryview(edits[name].edited.view) as view:
            yield view
            release_pages(view)

    return verify(
        planned.plan.output,
        content,
        [names[file.path] for file in planned.plan.changed],
        replace(context, images={names[name]: image for name, image in context.images.items()}),
        {names[name]: found for name, found in gaps.items()},
        planned.tables,
        sandbox,
        trusted(options),
        links,
    )


def make_report(
    planned: PreparedPlan,
    options: Options,
    clock: Clock,
    output: OutputFacts | None = None,
    findings: Sequence[Finding] = (),
    failures: Sequence[Finding] = (),
    verified: int | None = None,
) -> Report:
    """Make the report of the plan and of carrying it out; an error that the plan has of the same subject is not repeated.

    :param failures: why there is no output; in the report whatever the user ignores.
    """
    plan = planned.plan
    known = {(found.code, found.subject) for found in plan.findings if found.level == "error"}
    more = tuple(dict.fromkeys(found for found in findings if (found.code, found.subject) not in known))
    # Which patterns match nothing is among the plan's findings.
    chosen = [found for found in select(more, options.select, options.ignore) if found in more]
    return Report(
        tuple(options.command),
        plan.wheel,
        output,
        plan.target,
        plan.providers,
        plan.files,
        (*plan.findings, *failures, *chosen),
        isa=planned.isa,
        timings=clock.timings,
        loads=plan.loads,
        verified=verified,
        stubs=plan.stubs,
        relies_on=plan.relies_on,
        relocatable=plan.relocatable,
        way_out=planned.way_out,
    )
