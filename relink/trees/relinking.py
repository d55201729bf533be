"""`relink DIR`: the files of a tree are planned, edited and verified as a wheel's members are, and exchanged in place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast

from relink.atomic import working_directory
from relink.contents import Contents
from relink.edit import EditedFile, UneditedFile, edit_files
from relink.elf.image import Buffer
from relink.errors import UsageError
from relink.findings.model import Finding, finding, has_errors, select
from relink.gpu.wanted import seen_gpus, wanted_gpus
from relink.laid_out import temporary_place
from relink.loader.target import Target, find_target
from relink.memory import check_room, shares_of, spool_of
from relink.options import Options, trusted
from relink.pipeline import make_report
from relink.planning import PreparedPlan, open_providers, plan_wheel
from relink.plans.model import Plan
from relink.profiles import NO_PROFILE, profile_for
from relink.progress import Clock, OnBytes
from relink.providers.prefix import Provider, soname_stem
from relink.reading import Wheel, read_members
from relink.report.model import OutputFacts, Report
from relink.rereading import reread_files
from relink.resolve.layout import Layout
from relink.sandbox import Sandbox, find_sandbox, sandbox_findings
from relink.trees.archive import TreeArchive
from relink.trees.exchange import commit, current, finish, stage, undo
from relink.trees.journal import held, place_of, read_journal, settle
from relink.trees.managed import keeper_of
from relink.trees.records import Hashes, new_records
from relink.verification import Verification, verify
from relink.wheel.record import default_jobs

__all__ = ["put_back", "relink_tree"]

_HIP = "libamdhip64.so"


def relink_tree(
    directory: Path,
    options: Options,
    *,
    managed: bool = False,
    only: frozenset[str] | None = None,
    on_stage: Callable[[str], None] = lambda _: None,
    on_bytes: OnBytes = lambda _done, _total: None,
) -> Report:
    """Relink the ELF files of a tree in place; :func:`put_back` undoes it.

    What was relinked in place before is done anew, from its originals.

    :param managed: also a tree that another program keeps.
    :param only: names of files, relative to `directory`, if it is not for all of them.
    :raises UsageError: it is no directory with ELF files, another program keeps it, or it cannot be written.
    :raises RelinkError: as for :func:`relink.library.relink`.
    """
    _refuse(directory, options, managed=managed)
    clock = Clock(on_stage, on_bytes)
    with ExitStack() as stack:
        if not options.dry_run:
            stack.enter_context(held(directory))
            finish(directory)
            settle(directory, current(directory))
        place, known = place_of(directory), current(directory).originals
        originals = {path: place / kept for path, kept in known.items()}
        archive = TreeArchive(directory, originals=originals, only=only, limits=options.limits)
        contents = stack.enter_context(Contents(directory, archive=archive, spool=spool_of(options)))
        with clock.stage("target"):
            gpus = wanted_gpus(options.gpus) or (() if options.sysroot else seen_gpus())
            target = find_target(
                python=options.python, interpreter=options.interpreter, sysroot=options.sysroot
            )
            root = os.path.realpath(directory)
            own = archive.provider(root)
            providers = (own, *_providers(options, target, own))
        with clock.stage("read"):
            wheel = read_members(contents, target, clock.on_bytes)
        with clock.stage("plan"):
            # A tree has no version, and the profile of what was installed into it.
            named = replace(options, keep_version=True, profile=options.profile or _profile_of(directory))
            planned = plan_wheel(wheel, target, providers, named, gpus, Layout(root, tree=True))
            planned = replace(planned, plan=_of_tree(planned, directory, archive))
        if options.dry_run or not (planned.plan.ok or options.force):
            return make_report(planned, options, clock)
        return _carried_out(wheel, planned, archive, options, clock, only)


def put_back(directory: Path, only: frozenset[str] | None = None) -> tuple[str, ...]:
    """Undo :func:`relink_tree`: every file that it has exchanged is the very one that was there before.

    :param only: as for :func:`relink_tree`.
    :return: their names; none where a run that was stopped had exchanged nothing, or had put all back already.
    :raises UsageError: nothing was exchanged there, or a file was changed since.
    """
    with held(directory):
        if finish(directory) and not read_journal(directory).files:
            return ()
        return undo(directory, only)


def _refuse(directory: Path, options: Options, *, managed: bool) -> None:
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory; name an unpacked tree, or a wheel")
    if options.stub:
        raise UsageError("--stub adds libraries to a wheel only; relink the wheel, and unpack it")
    keeper = keeper_of(directory)
    if keeper and not managed and not options.dry_run:
        raise UsageError(
            f"{directory}: this tree is kept by {keeper}. Relink a copy; `relink repair DIR --in-place --managed` changes it"
        )


def _providers(options: Options, target: Target, own: Provider) -> tuple[Provider, ...]:
    """Those that were named; else the one ROCm of this machine, if there is one, for a tree that has none itself."""
    if options.prefixes or options.nix_closures:
        return open_providers(options, target)
    if any(soname_stem(name) == _HIP for name in own.libraries):
        return ()
    try:
        return open_providers(options, target)
    except UsageError:
        return ()


def _profile_of(directory: Path) -> str | None:
    """Return the name of the profile of the first distribution in a tree that has one."""
    names = sorted(path.name.partition("-")[0] for path in directory.glob("*.dist-info"))
    found = (profile_for(name) for name in names)
    return next((profile.name for profile in found if profile is not NO_PROFILE), None)


def _of_tree(planned: PreparedPlan, directory: Path, archive: TreeArchive) -> Plan:
    plan = planned.plan
    facts = replace(plan.wheel, path=str(directory), name=archive.name.distribution, version="", tags=())
    return replace(plan, wheel=facts, output=str(directory))


def _carried_out(
    wheel: Wheel,
    planned: PreparedPlan,
    archive: TreeArchive,
    options: Options,
    clock: Clock,
    only: frozenset[str] | None,
) -> Report:
    """Edit, write beside, verify, exchange."""
    directory, plan = archive.path, planned.plan
    check_room(options.max_memory, wheel.contents, [file.path for file in plan.changed])
    sandbox = find_sandbox(options.sandbox)
    with working_directory(Path(temporary_place("/"))) as scratch:
        with clock.stage("edit"):
            edits, failures = _edited(wheel, planned, scratch, options, sandbox)
        if failures:
            return make_report(planned, options, clock, failures=failures)
        with clock.stage("write"):
            hashes = Hashes()
            new: dict[str, Iterable[Buffer]] = {
                name: hashes.of(name, cast("Iterable[Buffer]", edited.replacement.content))
                for name, edited in edits.items()
            }
            new |= new_records(directory, archive.originals, edits.keys(), hashes)
            mine = (path for path in archive.originals if only is None or path in only)
            journal = stage(directory, new, [path for path in mine if path not in new], archive.seen)
        try:
            with clock.stage("verify"):
                findings = [found for edited in edits.values() for found in edited.findings]
                edited_files = {name: edited.edited for name, edited in edits.items()}
                findings += reread_files(plan.files, wheel.images, wheel.tables, edited_files)
                findings += sandbox_findings(sandbox)
                verified = None
                if options.verify:
                    result = _verified(wheel, planned, edits, archive, options, sandbox)
                    findings += result.findings
                    verified = result.confirmed
        except BaseException:
            finish(directory)
            raise
        refused = has_errors(select(findings, (), options.ignore)) and not options.force
        if refused:
            finish(directory)
            return make_report(planned, options, clock, findings=findings)
        with clock.stage("publish"):
            if reason := commit(directory, journal):
                findings.append(
                    finding("RLK540", str(directory), f"its files were exchanged one by one: {reason}")
                )
        written = bool(journal.files or journal.pending)
        output = OutputFacts(plan.output, plan.wheel.sha256) if written else None
        return make_report(planned, options, clock, output, findings, verified=verified)


def _edited(
    wheel: Wheel, planned: PreparedPlan, scratch: Path, options: Options, sandbox: Sandbox
) -> tuple[dict[str, EditedFile], list[Finding]]:
    edits: dict[str, EditedFile] = {}
    failures: list[Finding] = []
    for edited in edit_files(
        wheel.contents,
        planned.plan.changed,
        wheel.images,
        wheel.codes,
        scratch,
        layout=planned.context.layout,
        trust=trusted(options),
        check=False,
        sandbox=sandbox,
        jobs=options.jobs or default_jobs(),
        room=shares_of(options.max_memory).edits,
    ):
        if isinstance(edited, UneditedFile):
            failures += edited.findings
        else:
            edits[edited.name] = edited
    return edits, failures


def _verified(
    wheel: Wheel,
    planned: PreparedPlan,
    edits: Mapping[str, EditedFile],
    archive: TreeArchive,
    options: Options,
    sandbox: Sandbox,
) -> Verification:
    gaps = {name: loaded.gaps for name, loaded in wheel.contents.loaded.items()}
    gaps |= {name: edited.edited.gaps for name, edited in edits.items()}

    def content(name: str) -> Iterator[Buffer]:
        if name not in edits:
            yield from archive.chunks(name)
            return
        with memoryview(edits[name].edited.view) as view:
            yield view

    members = [file.path for file in planned.plan.changed]
    return verify(
        str(archive.path),
        content,
        members,
        planned.context,
        gaps,
        planned.tables,
        sandbox,
        trusted(options),
        archive.links,
    )
