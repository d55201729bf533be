"""Damaged and made-up inputs of every kind that relink reads, and what must hold whatever is in them.

Run in a process of its own by tests/support/forking.py, with the words WORKS SCRATCH KIND FIRST COUNT. That process has a
cap on its memory, an alarm for each input, and a hook that sees every file it opens for writing. WORKS is the directory of
:func:`tests.support.works.build_works`.
"""

from __future__ import annotations

import faulthandler
import hashlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console

from relink import library
from relink.elf.image import read_image, read_sections
from relink.elf.source import BufferSource
from relink.elf.symbol_reader import read_symbols
from relink.gpu.amd.device_code import read_device_code
from relink.gpu.amd.file_coverage import coverage_of
from relink.gpu.amd.survey import survey
from relink.loader.scan import MOST_REFUSALS, scan
from relink.loader.target import find_target, parse_cache
from relink.planning.model import from_json, read_plan, to_json
from relink.providers.profiles import read_profile
from relink.report import inspection, text
from relink.report.diff_text import to_json as diff_json
from relink.report.diff_text import to_text
from relink.report.lines import show
from relink.report.model import to_json as report_json
from relink.report.summary import verdict
from relink.runs import questions as queries
from relink.runs import relink_wheel as pipeline
from relink.runs.comparison import Reference, compare_wheels
from relink.system.errors import RelinkError
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import Changes, WriteOptions
from relink.wheel.naming import parse_wheel_name
from relink.wheel.naming import relinked_name as renamed
from relink.wheel.record import check_record, read_record
from relink.wheel.writer import write_wheel
from tests.fuzz import inputs
from tests.fuzz.inputs import Scene
from tests.fuzz.locks import check_lock, make_lock
from tests.fuzz.trees import check_toml, check_tree, make_toml, make_tree
from tests.fuzz.watch import remember, watched
from tests.support.memory import peak
from tests.support.wheels import make_wheel
from tests.support.works import OUTPUT, TAG, Works
from tests.unit.wheel.build import DIST_INFO, FILENAME, METADATA, WHEEL
from tests.unit.wheel.build import make_wheel as made_wheel

MEMORY_CAP: Final = 3 << 30
"""Address space in bytes, all of Python and its threads included."""
RESIDENT_CAP: Final = 256 << 20
"""Bytes that the process may have held at once, its modules included; the inputs are of some kilobytes."""
SECONDS: Final = 10
"""Of processor time for one input, and three times as many by the clock: the machine may have other work."""


class Hang(BaseException):
    """One input took too long; no RelinkError, so that nothing swallows it."""


Make = Callable[[Scene, random.Random], bytes]
Check = Callable[[Scene, bytes], None]


# Wheels


def relinked(scene: Scene, path: Path) -> None:
    """Drive a wheel over the whole road. What is accepted must mean the same to Python's zipfile."""
    # patchelf is a process of its own, so only some inputs get that far.
    write = hashlib.sha256(path.read_bytes()).digest()[0] < 16
    with output(scene) as out:
        options = scene.works.options(out, dry_run=not write, verify=False, force=write)
        report = library.relink(path, options)
        report_json(report)
        console = Console(file=io.StringIO())
        show(console, *text.plan_text(report), *text.verdict_text(verdict(report)))
        show(console, *text.header_text(report, verdict(report)), *text.change_text(report))
        for verbose in (True, False):
            show(console, *text.findings_text(report.findings, verbose=verbose))
        same_for_zipfile(path)
        if report.output is not None:
            # A wheel in which nothing changes is handed on as it is.
            good(Path(report.output.path), complete=any(file.changed for file in report.files))


def rewritten(scene: Scene, path: Path) -> None:
    """Drive a wheel over the end of the road: under another name, which METADATA, WHEEL and RECORD follow."""
    with output(scene) as out, WheelArchive(path) as archive:
        out.mkdir()
        name = renamed(archive.name, local="x", platform="linux_x86_64")
        good(write_wheel(archive, out, Changes(name), WriteOptions(jobs=1)).path, complete=True)


@contextmanager
def output(scene: Scene) -> Iterator[Path]:
    """Give a directory for the result, which must be empty if the input is refused."""
    out = scene.scratch / "out"
    try:
        yield out
    except RelinkError:
        if out.exists() and os.listdir(out):
            raise AssertionError("refused, and yet something was written") from None
        raise
    finally:
        shutil.rmtree(out, ignore_errors=True)


def good(path: Path, *, complete: bool) -> None:
    same_for_zipfile(path)
    if complete:
        with WheelArchive(path) as archive:
            entries, malformed = read_record(archive)
            assert not malformed
            assert not check_record(entries, archive.members, archive.dist_info)


def same_for_zipfile(path: Path) -> None:
    with WheelArchive(path) as archive, zipfile.ZipFile(path) as other:
        assert [*archive.members] == [item.orig_filename for item in other.infolist()]
        for name in archive.members:
            try:
                mine = archive.read(name)
            except RelinkError:
                with pytest.raises(RelinkError):
                    archive.read_into(name)
                continue
            assert mine == other.read(name), name
            assert mine == archive.read_into(name), name


def check_wheel(scene: Scene, data: bytes) -> None:
    name = FILENAME if b"demo_pkg" in data else f"demo-1.0-{TAG}.whl"
    path = scene.scratch / name
    path.write_bytes(data)
    relinked(scene, path)


def around(member: str, *, info: bool = False) -> Check:
    """Put an input into an otherwise good wheel, as `member`."""

    def check(scene: Scene, data: bytes) -> None:
        if info:
            # With a library one in eight: it takes ten times as long, and this is not about it.
            content = {"demo_pkg/a.so": scene.works.library.read_bytes()} if len(data) % 8 == 0 else {}
            path = made_wheel(scene.scratch, {"demo_pkg/a.py": b"", **content, f"{DIST_INFO}/{member}": data})
            rewritten(scene, path)
        else:
            path = scene.works.wheel(scene.scratch / "w", {"demo/__init__.py": b"", member: data})
        inspection.to_json(queries.inspect(path))
        relinked(scene, path)

    return check


def check_name(_: Scene, data: bytes) -> None:
    name = data.decode("utf-8", "surrogateescape")
    parsed = parse_wheel_name(name)
    assert parsed.filename == name
    assert "/" not in name
    assert "\0" not in name
    assert 0 < len(parsed.expanded_tags) <= 100


# ELF files


def check_elf(_: Scene, data: bytes) -> None:
    errors = []
    for read in (lambda: read_image(data, "x"), lambda: read_sections(data, "x"), lambda: read_symbols(data)):
        try:
            read()
        except RelinkError as error:
            errors.append(error)
    coverage_of(read_device_code(BufferSource(data), "x", scan_limit=1 << 16))
    if errors:
        raise errors[0]


def check_scan(_: Scene, data: bytes) -> None:
    refusals = scan(data)
    assert len(refusals) <= MOST_REFUSALS
    assert all(item.where and item.reason and str(item).isprintable() for item in refusals)


def check_prefix(scene: Scene, data: bytes) -> None:
    """The input is a library of the prefix."""
    prefix = scene.scratch / "rocm"
    (prefix / "lib").mkdir(parents=True)
    (prefix / "lib" / "libhip.so.7").write_bytes(data)
    (prefix / "lib" / "libdeep.so.1").symlink_to(scene.works.prefix / "lib" / "libdeep.so.1")
    options = replace(scene.works.options(scene.scratch / "out", dry_run=True), prefixes=(str(prefix),))
    report_json(library.relink(scene.works.small(scene.scratch / "w"), options))


def check_bundle(scene: Scene, data: bytes) -> None:
    code = read_device_code(BufferSource(data), "x", scan_limit=1 << 16)
    json.dumps(coverage_of(code).to_json())
    assert len(code.problems) <= 100
    # As `relink isa` meets it: a library, or a file of kernels, in a directory and in a wheel.
    name = "libx.so" if data[:4] == b"\x7fELF" and len(data) % 2 else "x.hsaco"
    (scene.scratch / "lib").mkdir()
    (scene.scratch / "lib" / name).write_bytes(data)
    json.dumps(survey(scene.scratch, scan_limit=1 << 16).to_json())
    if len(data) % 4 == 0:
        json.dumps(survey(scene.works.wheel(scene.scratch, {f"demo/{name}": data})).to_json())


# Data


def check_plan(scene: Scene, data: bytes) -> None:
    path = make_wheel(
        scene.scratch / "w",
        {"demo/a.so": scene.works.library, "demo-1.0.dist-info/relink.json": data},
        tag=TAG,
    )
    with WheelArchive(path) as archive:
        plan = read_plan(archive)
    assert plan is not None
    json.dumps(to_json(plan))
    assert from_json(json.dumps(to_json(plan))) == plan
    assert plan.empty in (True, False)


def check_profile(scene: Scene, data: bytes) -> None:
    path = scene.scratch / "profile.toml"
    path.write_bytes(data)
    read_profile(path)


def check_cache(_: Scene, data: bytes) -> None:
    parse_cache(data)


def check_diff(scene: Scene, data: bytes) -> None:
    """The input is a relinked wheel after somebody else had it: what passes must be what relink wrote."""
    old, right = scene.pair
    path = scene.scratch / OUTPUT
    path.write_bytes(data)
    assert compare_wheels(old, path).verdict != "unexplained"
    found = compare_wheels(old, path, reference=Reference(right, "made before"))
    console = Console(file=io.StringIO())
    show(console, *to_text(found, verbose=True))
    json.dumps(diff_json(found))
    if found.ok:
        with WheelArchive(path) as archive, zipfile.ZipFile(right) as other:
            assert [*archive.members] == other.namelist()
            assert all(archive.read(name) == other.read(name) for name in archive.members)


def check_relinked(scene: Scene, data: bytes) -> None:
    """The input is a relinked wheel after somebody else had it: relinking it again writes nothing, whatever its plan says."""
    path = scene.scratch / OUTPUT
    path.write_bytes(data)
    with WheelArchive(path) as archive:
        again = read_plan(archive) is not None
    with output(scene) as out:
        report = library.relink(path, scene.works.options(out, verify=False, verify_record=False))
        assert not again or (report.output is None and not out.exists())


@dataclass(frozen=True)
class Kind:
    """One way into relink: how an input is made, what must hold for it, and its share of all inputs."""

    make: Make
    check: Check
    share: float


KINDS: Final[dict[str, Kind]] = {
    "wheel": Kind(inputs.make_bytes, check_wheel, 0.1),
    "zip-fields": Kind(inputs.make_fields, check_wheel, 0.2),
    "member": Kind(inputs.make_member, around("demo/a.so"), 0.13),
    "prefix": Kind(inputs.make_prefix, check_prefix, 0.05),
    "record": Kind(inputs.make_record, around("RECORD", info=True), 0.06),
    "metadata": Kind(lambda _, rng: inputs.edited_text(METADATA, rng), around("METADATA", info=True), 0.05),
    "wheel-info": Kind(lambda _, rng: inputs.edited_text(WHEEL, rng), around("WHEEL", info=True), 0.05),
    "scan": Kind(inputs.make_structured_elf, check_scan, 0.04),
    "elf": Kind(inputs.make_elf, check_elf, 0.1),
    "bundle": Kind(inputs.make_bundle, check_bundle, 0.08),
    "plan": Kind(inputs.make_plan, check_plan, 0.04),
    "profile": Kind(inputs.make_profile, check_profile, 0.02),
    "name": Kind(inputs.make_name, check_name, 0.02),
    "cache": Kind(inputs.make_cache, check_cache, 0.02),
    "diff": Kind(inputs.make_pair, check_diff, 0.02),
    "relinked": Kind(inputs.make_pair, check_relinked, 0.02),
}

ALONE: Final[dict[str, Kind]] = {
    "tree": Kind(make_tree, check_tree, 0.1),
    "toml": Kind(make_toml, check_toml, 1),
    "lock": Kind(make_lock, check_lock, 0.5),
}
"""Kinds with a count of their own, since their inputs take much more or less time: a share of as many as all others together."""


def scene_of(works: Path, scratch: Path) -> Scene:
    """Open the works that another process built; what the inputs of all kinds are made from lies in `scratch`."""
    members = works / "members"
    built = Works(
        works, works / "rocm", *(members / name for name in ("a.so", "plain.so", "lost.so", "prog"))
    )
    target = find_target()
    scratch.mkdir(parents=True, exist_ok=True)
    vendor = built.small(scratch / "plan")
    report = library.relink(vendor, built.options(scratch / "plan" / "out", verify=False))
    assert report.output is not None
    with WheelArchive(report.output.path) as archive:
        (scratch / "plan.json").write_bytes(archive.read(f"{archive.dist_info}/relink.json"))
    cache = Path("/etc/ld.so.cache")
    (scratch / "ld.so.cache").write_bytes(
        cache.read_bytes()[: 1 << 16] if cache.exists() else b"glibc-ld.so.cache1.1"
    )
    return Scene(built, scratch / "here", target, (vendor, Path(report.output.path)))


def _alarm(*_: object) -> None:
    raise Hang(f"more than {SECONDS} s")


_TIMERS = ((signal.ITIMER_PROF, signal.SIGPROF, 1), (signal.ITIMER_REAL, signal.SIGALRM, 3))


def attempt(scene: Scene, kind: Kind, data: bytes, outside: list[str]) -> bool:
    """Check one input; says whether it was accepted.

    :raises Exception: anything but a RelinkError, which is the proper answer.
    """
    shutil.rmtree(scene.scratch, ignore_errors=True)
    scene.scratch.mkdir()
    # Another alarm for what no Python code interrupts.
    faulthandler.dump_traceback_later(6 * SECONDS, exit=True)
    for timer, number, times in _TIMERS:
        signal.signal(number, _alarm)
        signal.setitimer(timer, times * SECONDS)
    try:
        kind.check(scene, data)
    except RelinkError:
        return False
    finally:
        for timer, _, _ in _TIMERS:
            signal.setitimer(timer, 0)
        faulthandler.cancel_dump_traceback_later()
        assert not outside, f"outside of the temporary directory: {outside}"
    return True


def run(scene: Scene, name: str, first: int, count: int) -> int:
    """Check `count` inputs; prints what fails, keeps it in ``found/`` and returns how many did."""
    kind = (KINDS | ALONE)[name]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_CAP, MEMORY_CAP))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Asking Python's loader anew for each input would take most of the time.
    pipeline.find_target = lambda **_: scene.target  # type: ignore[attr-defined]
    with remember(scene.scratch):
        return _run(scene, kind, name, first, count)


def _run(scene: Scene, kind: Kind, name: str, first: int, count: int) -> int:
    accepted = failed = 0
    with watched(scene.scratch.parent) as outside:
        for number in range(first, first + count):
            scene.scratch.mkdir(exist_ok=True)
            data = kind.make(scene, random.Random(f"{name} {number}"))
            (scene.scratch.parent / "last").write_bytes(data)
            try:
                accepted += attempt(scene, kind, data, outside)
            except BaseException:  # noqa: BLE001 - a hang is none of Exception, and the next input is to be tried all the same
                failed += 1
                outside.clear()
                found = scene.scratch.parent / "found"
                found.mkdir(exist_ok=True)
                (found / f"{name}-{number}").write_bytes(data)
                sys.stdout.write(f"{name} {number}:\n{traceback.format_exc()}\n")
                if failed >= 10:
                    break
    held = peak()
    if held > RESIDENT_CAP:
        failed += 1
        sys.stdout.write(f"{name}: {held >> 20} MiB were held at once\n")
    counted = {
        "kind": name,
        "ran": number + 1 - first,
        "accepted": accepted,
        "failed": failed,
        "mib": held >> 20,
    }
    sys.stdout.write(f"{json.dumps(counted)}\n")
    return failed


def main() -> None:
    """``hostile WORKS SCRATCH KIND FIRST COUNT``; ends with 1 where an input failed."""
    faulthandler.enable()
    works_directory, scratch_directory, kind_name, start, how_many = sys.argv[1:]
    tempfile.tempdir = scratch_directory
    sys.exit(
        1
        if run(scene_of(Path(works_directory), Path(scratch_directory)), kind_name, int(start), int(how_many))
        else 0
    )
