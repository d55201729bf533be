"""`relink DIR -o NEWDIR`: files of a tree are planned, edited and verified as a wheel's are, and a copy of the tree has them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

from relink.loader.target import Target
from relink.make.editing import edit_members, new_content
from relink.planning.case import open_providers
from relink.planning.contents import Contents
from relink.planning.memory import check_room, spool_of
from relink.planning.model.files import is_plain
from relink.planning.option_fields import option_table
from relink.planning.options import Options
from relink.planning.reading import Wheel, read_members
from relink.planning.resolve.layout import Layout
from relink.planning.wheel_plan import PreparedPlan
from relink.providers.prefix import Provider, tree_provider
from relink.providers.profiles import NO_PROFILE, profile_for
from relink.report.model import OutputFacts, Report
from relink.report.nix.roots import register_roots
from relink.runs.relink_wheel import check_edits, make_plan, make_report
from relink.runs.tree_copy import TreeCopy, TreeSource, mentions
from relink.system.atomic import publish_directory, working_directory
from relink.system.errors import UsageError
from relink.system.findings.model import has_errors, select
from relink.system.progress import Clock, OnBytes
from relink.system.sandbox.start import find_sandbox, sandbox_findings
from relink.system.system_errors import raise_if_machine_fault
from relink.vendors.registry import vendor_of
from relink.wheel.limits import NO_LIMITS

_OF_WHEELS = ("local_version", "requires", "compress", "verify_record", "sysroot")


def relink_tree(
    directory: Path,
    options: Options,
    *,
    on_stage: Callable[[str], None] = lambda _: None,
    on_bytes: OnBytes = lambda _done, _total: None,
) -> Report:
    """Write a relinked copy of a tree; :func:`relink.library.relink_tree` has the parameters."""
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory; name an unpacked tree, or a wheel")
    source = TreeSource(Path(os.path.realpath(directory)), options.limits)
    new, clock = _place_of_copy(directory, options), Clock(on_stage, on_bytes)
    # The profile is that of the first distribution in the tree that has one.
    names = [path.name.partition("-")[0] for path in sorted(source.path.glob("*.dist-info"))]
    known = next((found.name for name in names if (found := profile_for(name)) is not NO_PROFILE), None)
    # In the site-packages of one package, stubs lie where those of the package's wheel do.
    if len(names) == 1 and is_plain(names[0]):
        source.name = replace(source.name, distribution=names[0])
    # A tree has no version, and no RECORD of all its files.
    options = replace(options, keep_version=True, verify_record=False, profile=options.profile or known)
    with Contents(source.path, source=source, spool=spool_of(options)) as contents:
        own = tree_provider(str(source.path), (*source.members, *source.links))
        find, layout = partial(_providers, own), Layout(own.path, tree=True)
        wheel, planned = make_plan(
            contents, options, clock, read=read_members, find_providers=find, layout=layout
        )
        facts = replace(planned.plan.wheel, path=str(directory), name=source.name.distribution, version="")
        plan = replace(planned.plan, wheel=replace(facts, tags=()), output=str(new or directory))
        planned = replace(planned, plan=plan)
        if new is None or not (plan.ok or options.force):
            return make_report(planned, options, clock)
        try:
            return _written(wheel, planned, source, options, clock)
        except OSError as error:
            raise_if_machine_fault(error, f"{new}: cannot be written")
            raise UsageError(f"{new}: cannot be written ({error.strerror}); name another") from error


def _place_of_copy(directory: Path, options: Options) -> Path | None:
    """Refuse what cannot be done; return where the copy is to be, None in a dry run."""
    given = (name for name in _OF_WHEELS if getattr(options, name) != getattr(Options(), name))
    if words := [option_table(Options)[name].names[0] for name in given]:
        raise UsageError(f"{', '.join(words)}: for wheels; leave that out for a directory")
    if os.path.lexists(directory / "pyvenv.cfg"):
        raise UsageError(
            f"{directory} is a virtual environment, and its scripts name it; make another one, and put the packages into it by "
            "`relink install NAME --python NEW/bin/python`, or change this one by `relink repair NAME --python …`"
        )
    if options.dry_run:
        return None
    new = options.output_place
    parent, wrong = Path(os.path.realpath(new.parent)), None
    if new == Path():
        wrong = f"{directory} is a directory, and its relinked copy has no name"
    elif os.path.lexists(new):
        wrong = f"{new}: is there already"
    elif not parent.is_dir():
        wrong = f"{new.parent}: no such directory"
    elif parent.is_relative_to(os.path.realpath(directory)):
        wrong = f"{new}: is in {directory}, which is never changed"
    if wrong is not None:
        raise UsageError(f"{wrong}; name by --output a directory that does not exist, in one that does")
    return parent / new.name


def _providers(
    own: Provider, options: Options, target: Target, sonames: Collection[str]
) -> tuple[Provider, ...]:
    """The tree itself, then those that were named; else the one place of this machine, for a tree that has no runtime itself."""
    named = options.prefixes or options.nix_closures
    has_runtime = any(map(vendor_of(own.libraries).libraries.is_runtime, own.libraries))
    if has_runtime and not named:
        return (own,)
    try:
        others = open_providers(options, target, sonames)
    except UsageError:
        if named:
            raise
        return (own,)
    # A later prefix serves no runtime, so a tree without any counts as one with the first prefix.
    return (own if has_runtime else replace(own, closure=others[0].named), *others)


def _written(
    wheel: Wheel, planned: PreparedPlan, source: TreeSource, options: Options, clock: Clock
) -> Report:
    """Edit, verify, write beside the new name, look at what was written, and give it the name."""
    plan, new = planned.plan, Path(planned.plan.output)
    report = partial(make_report, planned, options, clock)
    check_room(options.max_memory, wheel.contents, [file.path for file in plan.changed])
    sandbox = None if plan.empty else find_sandbox(options.sandbox)
    with working_directory(new.parent) as scratch, working_directory(new.parent) as staged:
        with clock.stage("edit"):
            edits, failures = edit_members(wheel, planned, options, sandbox, scratch)
        if failures:
            return report(findings=sandbox_findings(sandbox), failures=failures)
        with clock.stage("verify"):
            names = {name: name for name in planned.context.images}
            findings, verified = check_edits(wheel, planned, edits, options, sandbox, names, source.links)
        if has_errors(select(findings, (), options.ignore)) and not options.force:
            return report(findings=findings, verified=verified)
        with clock.stage("write"):
            contents = {
                name: new_content(wheel.contents, edited, check=False).content
                for name, edited in edits.items()
            }
            stubs = {stub.path: stub.content() for stub in plan.stubs}
            findings += TreeCopy(source, staged, contents, stubs).write()
            findings += mentions(staged, new, (str(source.path), os.path.abspath(plan.wheel.path)))
            output = OutputFacts(str(new), TreeSource(staged, NO_LIMITS).sha256())
        with clock.stage("publish"):
            publish_directory(staged, new)
        findings += register_roots(plan, output.path, options.gc_root)
        return report(output, findings, verified=verified)
