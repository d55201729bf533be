"""The road from a vendor's wheel to one that runs here: every station is a function of the one before."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from relink.contents import Hashing, SpanFinder, hashed_ahead, open_ahead
from relink.edit import EditedFile, edit_files
from relink.elf.image import Buffer, Image
from relink.elf.patchelf import Edited
from relink.errors import ProviderError, UsageError
from relink.findings.model import Finding, finding, has_errors, select
from relink.gpu.wanted import wanted_gpus
from relink.loader.early import library_names, read_early
from relink.loader.files import Files
from relink.loader.tables import Tables
from relink.loader.target import Target, find_target
from relink.planning import (
    LEVELS,
    Decided,
    Options,
    Planned,
    complete_plan,
    decide_wheel,
    open_providers,
    selected,
    store_paths,
)
from relink.plans.model import Plan, to_json
from relink.providers.nix_store import add_roots
from relink.providers.prefix import Provider, find_library
from relink.reading import Count, OnBytes, Wheel, read_wheel
from relink.report.model import OutputFacts, Report
from relink.report.sbom import bill_of_materials
from relink.text import some
from relink.verification import verify
from relink.wheel.archive import WheelArchive
from relink.wheel.atomic import working_directory
from relink.wheel.limits import NO_LIMITS
from relink.wheel.naming import WheelName, renamed_directory
from relink.wheel.packing import Addition, Packing
from relink.wheel.record import RecordEntry, read_record, verify_members
from relink.wheel.writer import output_path, write_wheel

__all__ = ["PLAN_MEMBER", "SBOM_MEMBER", "STORE_MEMBER", "Clock", "Options", "json_bytes", "relink"]

PLAN_MEMBER = "relink.json"
SBOM_MEMBER = "sboms/relink.cdx.json"
STORE_MEMBER = "relink-store-paths"
_NAMES = 4 << 20  # bytes at a file's beginning, in which a linker mostly puts the names of libraries


@dataclass(frozen=True, slots=True)
class _Making:
    """An output that is being made.

    :ivar directory: beside its final name, for what leads to it.
    :ivar listed: what the vendor's RECORD says of the files, if it is to be held against them.
    :ivar editing: edits the next file; `edited`: those that it was.
    :ivar count: bytes of the output.
    """

    final: Path
    directory: Path
    listed: Mapping[str, RecordEntry]
    editing: Iterator[EditedFile]
    edited: list[EditedFile]
    packing: Packing
    count: Count


def _verify(wheel: Wheel, planned: Planned, edits: Mapping[str, Edited]) -> tuple[Finding, ...]:
    """Ask the loader about the members that change, as they will be.

    They are called by their names in the output: the new version calls the directory X-VERSION.data otherwise.
    """
    archive, situation = wheel.archive, planned.decisions.situation
    names = {name: output_path(archive, planned.output, name) for name in situation.images}
    originals = {new: name for name, new in names.items()}
    cuts = {name: held.cuts for name, held in wheel.held.items()}
    cuts |= {name: edited.cuts for name, edited in edits.items()}

    def contents(member: str) -> Iterator[Buffer]:
        name = originals[member]
        if name not in edits:
            yield from archive.chunks(name)
            return
        with memoryview(edits[name].view) as view:
            yield view

    return verify(
        planned.plan.output,
        contents,
        [names[file.path] for file in planned.plan.files if file.changed],
        replace(situation, images={names[name]: image for name, image in situation.images.items()}),
        {names[name]: found for name, found in cuts.items()},
        planned.decisions.tables,
    ).findings


@dataclass(slots=True)
class Clock:
    """Seconds by stage; tells listeners when one begins, and how many bytes of how many it has done."""

    on_stage: Callable[[str], None] = lambda _: None
    on_bytes: OnBytes = lambda _done, _total: None
    timings: dict[str, float] = field(default_factory=dict)
    _stage: str | None = None
    _since: float = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time spent inside to the stage of that name, and to none that it lies in."""
        outer = self._stage
        self._turn_to(name)
        yield
        self._turn_to(outer)

    def _turn_to(self, stage: str | None) -> None:
        now = time.perf_counter()
        if self._stage is not None:
            self.timings[self._stage] += now - self._since
        self._stage, self._since = stage, now
        if stage is not None:
            self.timings.setdefault(stage, 0.0)
            self.on_stage(stage)


def relink(
    source: Path | WheelArchive,
    options: Options,
    on_stage: Callable[[str], None] = lambda _: None,
    on_bytes: OnBytes = lambda _done, _total: None,
    target: Target | None = None,
) -> Report:
    """Relink one wheel: read, plan, edit, write, verify.

    Nothing is written on a dry run, nor where a finding is an error, unless `force`. The output appears under its name only
    after the loader has confirmed it.

    :param source: the wheel, which may have been opened already.
    :param on_stage: told the name of each stage when it begins.
    :param on_bytes: told, while files are read and while they are written, how many bytes of how many are done, unpacked.
    :param target: the one of `options`, where it has been found already.
    :raises RelinkError: the input cannot be read, the target or a prefix cannot be used, or patchelf fails.
    """
    clock = Clock(on_stage, on_bytes)
    with ExitStack() as stack:
        archive = stack.enter_context(
            source
            if isinstance(source, WheelArchive)
            else open_ahead(source, options.limits, split=not options.dry_run)
        )
        with clock.stage("target"):
            gpus = wanted_gpus(options.gpus)
            target = target or find_target(
                python=options.python, interpreter=options.interpreter, sysroot=options.sysroot
            )
            providers = open_providers(options, target)
        with clock.stage("read"):
            spans = stack.enter_context(SpanFinder(archive))
            tables = Tables(Files(target.sysroot), {})
            wheel = read_wheel(
                archive,
                target,
                clock.on_bytes,
                None if options.dry_run else spans,
                partial(_read_libraries, archive, providers, tables),
            )
        listed = {entry.path: entry for entry in read_record(archive)[0] if options.verify_record}
        whole = {
            name: (entry.algorithm, held.view)
            for name, held in wheel.held.items()
            if held.whole and (entry := listed.get(name)) and entry.algorithm and entry.digest
        }
        hashing = stack.enter_context(hashed_ahead({} if options.dry_run else whole))
        with clock.stage("plan"):
            decided = decide_wheel(wheel, target, providers, options, tables)
        making = None
        early = selected(decided.findings, decided.situation, options)
        if not options.dry_run and (options.force or not has_errors(early)):
            making = stack.enter_context(_making(wheel, decided, options, clock, listed, hashing, spans))
            with clock.stage("edit"), _told(making.final):
                _edit(making, wheel.archive, decided.output)
        with clock.stage("plan"):
            planned = complete_plan(wheel, decided, options, gpus)
        findings = planned.plan.findings
        output = None
        if making is not None and (options.force or not has_errors(findings)):
            output, more = _write(wheel, planned, options, clock, making)
            known = {found.code for found in findings if found.level == "error"}
            more = tuple(found for found in more if found.code not in known)
            if output is not None:
                more += _rooted(planned.plan, output.path, options)
            chosen = select(more, options.select, options.ignore)
            # Which patterns match nothing has been said of the plan's findings.
            findings = (*findings, *(found for found in chosen if found in more))
        plan = planned.plan
        return Report(
            options.command,
            plan.wheel,
            output,
            plan.target,
            plan.providers,
            plan.files,
            findings,
            isa=planned.gpu.block,
            timings=clock.timings,
            loads=plan.loads,
        )


def _read_libraries(
    archive: WheelArchive,
    providers: Sequence[Provider],
    tables: Tables,
    largest: str,
    images: Iterable[Image],
) -> None:
    """Read libraries of the providers that will most likely be needed, until the largest member has been read."""
    sonames = [soname for image in images for soname in image.needed]
    sonames += library_names(archive.prefix(largest, _NAMES))
    read_early(tables, partial(find_library, providers), sonames, partial(archive.is_reading, largest))


def _rooted(plan: Plan, output: str, options: Options) -> tuple[Finding, ...]:
    """Register the roots that were asked for, or say what is at risk without."""
    paths = store_paths(plan)
    if not paths and options.gc_root:
        return (finding("RLK702", output, "no store path is named, so there was nothing to register"),)
    if not paths:
        return ()
    if options.gc_root is None:
        return (finding("RLK701", output, f"{len(paths)} store paths: {some(list(paths))}"),)
    try:
        links = add_roots(paths, options.gc_root)
    except (ProviderError, OSError) as error:
        return (finding("RLK703", output, str(error)),)
    told = f"{len(links)} in {options.gc_root}, one for each store path that the wheel names directly"
    return (finding("RLK702", output, told),)


@contextmanager
def _making(
    wheel: Wheel,
    decided: Decided,
    options: Options,
    clock: Clock,
    listed: Mapping[str, RecordEntry],
    hashing: Mapping[str, Hashing],
    spans: SpanFinder,
) -> Iterator[_Making]:
    """Make a place for the output beside its final name; where nothing came of it, nothing is left."""
    archive, files = wheel.archive, decided.decisions.files
    final = options.output_directory / decided.output.filename
    sizes = {name: member.size for name, member in archive.members.items()}
    changed = sorted((file for file in files if file.changed), key=lambda file: -sizes[file.path])
    if changed and _is_input(final, archive.path):
        raise UsageError(
            f"{final}: the result would take the input's place; name another directory by --output"
        )
    # What changes goes by twice: it is written, and read back.
    count = Count(sum(sizes.values()) + sum(sizes[file.path] for file in changed), clock.on_bytes)
    with ExitStack() as stack:
        try:
            stack.enter_context(_created(final.parent))
            directory = stack.enter_context(working_directory(final.parent))
        except OSError as error:
            raise UsageError(
                f"{final.parent}: cannot be written to ({error.strerror}); name another by --output"
            ) from error
        packing = stack.enter_context(Packing(LEVELS[options.compress], options.jobs, options.max_memory))
        editing = edit_files(
            archive,
            changed,
            wheel.images,
            wheel.codes,
            wheel.held,
            listed,
            hashing,
            spans,
            directory,
            count.add,
        )
        yield _Making(final, directory, listed, editing, [], packing, count)


@contextmanager
def _created(directory: Path) -> Iterator[None]:
    """Make a directory, and remove it, and those above that had to be made, if it is empty in the end."""
    missing = [place for place in (directory, *directory.parents) if not place.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            for place in missing:
                place.rmdir()


@contextmanager
def _told(final: Path) -> Iterator[None]:
    """Say in a sentence that the output cannot be written, and why."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{final}: cannot be written ({error.strerror}); name another directory by --output"
        ) from error


def _edit(making: _Making, archive: WheelArchive, output: WheelName) -> bool:
    """Edit the next file, and deflate it from then on, if there is one and a thread for it."""
    edited = next(making.editing, None)
    if edited is not None:
        making.edited.append(edited)
        making.packing.begin(output_path(archive, output, edited.name), edited.replacement)
    return edited is not None


def _write(
    wheel: Wheel, planned: Planned, options: Options, clock: Clock, making: _Making
) -> tuple[OutputFacts | None, tuple[Finding, ...]]:
    """Write the output beside its final name, verify it there, and give it the name."""
    final = making.final
    with _told(final):
        sha256, findings = _write_to(wheel, planned, options, clock, making)
        if has_errors(select(findings, (), options.ignore)) and not options.force:
            return None, findings
        if not _is_input(final, wheel.archive.path):
            os.replace(making.directory / final.name, final)
    return OutputFacts(str(final), sha256), findings


def _is_input(final: Path, wheel: Path) -> bool:
    try:
        return os.path.samefile(final, wheel)
    except OSError:  # there is nothing of that name yet
        return False


def _write_to(
    wheel: Wheel, planned: Planned, options: Options, clock: Clock, making: _Making
) -> tuple[str, tuple[Finding, ...]]:
    """Write the wheel, and ask the loader meanwhile; return its SHA-256, and what that and the edits have shown.

    A plan that changes nothing gives the input itself.
    """
    archive, plan = wheel.archive, planned.plan
    written = making.directory / plan.output
    if plan.empty:
        with clock.stage("write"):
            verify_members(
                archive,
                [entry for entry in making.listed.values() if entry.path in archive.members and entry.digest],
                options.jobs,
            )
            shutil.copyfile(archive.path, written)
        return archive.sha256(), ()
    with clock.stage("edit"):
        while _edit(making, archive, planned.output):
            pass
    edited = {file.name: file for file in making.edited}
    findings = [found for file in plan.files if file.changed for found in edited[file.path].findings]

    def verification() -> None:
        if options.verify:
            with clock.stage("verify"):
                findings.extend(_verify(wheel, planned, {name: file.edited for name, file in edited.items()}))

    with clock.stage("write"):
        name = planned.output
        dist_info = renamed_directory(archive.dist_info, name)
        result = write_wheel(
            archive,
            written.parent,
            name=name,
            replacements={file.path: edited[file.path].replacement for file in plan.files if file.changed},
            additions={
                f"{dist_info}/{PLAN_MEMBER}": Addition(json_bytes(to_json(plan))),
                f"{dist_info}/{SBOM_MEMBER}": Addition(
                    json_bytes(bill_of_materials(plan, str(name.version)))
                ),
                **_store_member(dist_info, plan),
            },
            removals=_old_store_member(archive, plan),
            epoch=options.epoch,
            level=LEVELS[options.compress],
            verify=options.verify_record,
            jobs=options.jobs,
            max_memory=options.max_memory,
            packing=making.packing,
            told=making.count.add,
            meanwhile=verification,
        )
        with WheelArchive(
            written, limits=NO_LIMITS
        ):  # what was written can be trusted as much as what was read
            pass
    return result.sha256, tuple(findings)


def _store_member(dist_info: str, plan: Plan) -> dict[str, Addition]:
    """The store paths, one a line, in a member that is not compressed: Nix finds references by searching a file's bytes."""
    paths = store_paths(plan)
    text = "".join(f"{path}\n" for path in paths)
    return {f"{dist_info}/{STORE_MEMBER}": Addition(text.encode(), stored=True)} if paths else {}


def _old_store_member(archive: WheelArchive, plan: Plan) -> frozenset[str]:
    """That of a wheel that was relinked before, which would keep paths that are not used any more."""
    name = f"{archive.dist_info}/{STORE_MEMBER}"
    return frozenset({name}) if name in archive.members and not store_paths(plan) else frozenset()


def json_bytes(data: dict[str, Any]) -> bytes:
    """Return JSON data as it is written into the wheel."""
    return json.dumps(data, indent=1).encode() + b"\n"
