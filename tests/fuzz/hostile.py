"""Damaged and made-up inputs of every kind that relink reads, and what must hold whatever is in them.

Run as a program in a process of its own: ``python -m tests.fuzz.hostile WORKS SCRATCH KIND FIRST COUNT``. That process has a
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
import struct
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from relink import pipeline
from relink.elf.image import read_image, read_sections
from relink.elf.symbols import read_symbols
from relink.errors import RelinkError
from relink.isa import BufferSource, coverage_of, read_device_code
from relink.loader.cache import parse_cache
from relink.loader.target import Target, find_target
from relink.plan.model import from_json, to_json
from relink.profiles import profile_directory, read_profile
from relink.report import inspection, text
from relink.report.model import to_json as report_json
from relink.wheel.archive import WheelArchive
from relink.wheel.naming import parse_wheel_name
from relink.wheel.record import check_record, read_record
from tests.support.elf_builder import Export, Import, Library, build
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works
from tests.unit.isa.build import ccob, code_object, entries_of, kpack_archive, library, raw
from tests.unit.wheel.build import DIST_INFO, FILENAME, METADATA, WHEEL, Entry, RawZip, good_entries

MEMORY_CAP: Final = 3 << 30
"""Address space in bytes, all of Python and its threads included."""
SECONDS: Final = 10
NUMBERS: Final = (
    0, 1, 2, 3, 7, 8, 15, 16, 24, 127, 255, 4095, 4096, 65534, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1,
    1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip


class Hang(BaseException):
    """One input took too long; no RelinkError, so that nothing swallows it."""


@dataclass(frozen=True)
class Scene:
    """What every input of a kind is checked in: the good parts around the damaged one."""

    works: Works
    scratch: Path
    target: Target

    def seeds(self, *names: str) -> list[bytes]:
        return [getattr(self.works, name).read_bytes() for name in names]


Make = Callable[[Scene, random.Random], bytes]
Check = Callable[[Scene, bytes], None]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, repeat, exchange and overwrite a few places, most of them where the structure is."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        if not changed:
            changed += b"\0"
        near = min(len(changed), 512)
        place = rng.choice(
            (rng.randrange(len(changed)), rng.randrange(near), len(changed) - 1 - rng.randrange(near))
        )
        length = rng.choice((1, 1, 2, 4, 8, 8, 24, 64))
        match rng.randrange(8):
            case 0:
                changed[place] ^= 1 << rng.randrange(8)
            case 1:
                changed[place] = rng.randrange(256)
            case 2 | 3 | 4:
                form = rng.choice(("<H", "<I", "<Q", "<Q"))
                size = struct.calcsize(form)
                place -= place % size
                changed[place : place + size] = struct.pack(form, rng.choice(NUMBERS) & ((1 << 8 * size) - 1))
            case 5:
                del changed[place : place + length if rng.random() < 0.7 else len(changed)]
            case 6:
                changed[place:place] = changed[place : place + length] or rng.randbytes(length)
            case _:
                other = rng.randrange(len(changed))
                changed[place : place + length] = changed[other : other + length]
    return bytes(changed)


def edited_text(data: bytes, rng: random.Random) -> bytes:
    """Damage made for text: lines moved, words from the format itself put anywhere."""
    words = (
        b",", b'"', b"\n", b"\r", b"\r\n", b"\0", b"=", b"sha256=", b"md5=", b"../", b"/", b"\xff", b"\xc3\xa9", b":",
        b"Version: 2\n", b"Name: x\n", b"Tag: py3-none-any\n", b" ", b"9" * 30, b"-1", b"1e9", b"null", b"[]", b"{}",
        b"[" * 50, b'"\\ud800"', b"NaN", b"true", b"\xe2\x80\xae", b"\x1b[2J", b"[[releases]]\n", b"a.b.c=1\n",
    )  # fmt: skip
    lines = data.splitlines(keepends=True) or [b""]
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                lines[at] = b""
            case 1:
                lines.insert(at, rng.choice(lines))
            case 2:
                other = rng.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                cut = rng.randrange(len(lines[at]) + 1)
                after = cut + rng.choice((0, 0, 1, 5))
                lines[at] = lines[at][:cut] + rng.choice(words) + lines[at][after:]
    return b"".join(lines) if rng.random() < 0.8 else damaged(b"".join(lines), rng)


# Wheels


def relinked(scene: Scene, path: Path) -> None:
    """Drive a wheel over the whole road. What is accepted must mean the same to Python's zipfile."""
    out = scene.scratch / "out"
    # patchelf is a process of its own, so only some inputs get that far.
    write = hashlib.sha256(path.read_bytes()).digest()[0] < 16
    options = scene.works.options(out, dry_run=not write, verify=False, force=write)
    try:
        report = pipeline.relink(path, options)
        report_json(report)
        console = Console(file=io.StringIO())
        text.show(console, *text.plan_text(report, verbose=True), text.summary_text(report))
        text.show(console, *text.findings_text(report.findings, verbose=True))
        same_for_zipfile(path)
        if report.output is not None:
            same_for_zipfile(Path(report.output.path))
        # A wheel in which nothing changes is handed on as it is.
        if report.output is not None and any(file.changed for file in report.files):
            with WheelArchive(report.output.path) as archive:
                entries, malformed = read_record(archive)
                assert not malformed
                assert not check_record(entries, archive.members, archive.dist_info)
    except RelinkError:
        if out.exists() and os.listdir(out):
            raise AssertionError("refused, and yet something was written") from None
        raise
    finally:
        shutil.rmtree(out, ignore_errors=True)


def same_for_zipfile(path: Path) -> None:
    with WheelArchive(path) as archive, zipfile.ZipFile(path) as other:
        assert [*archive.members] == [item.orig_filename for item in other.infolist()]
        for name in archive.members:
            try:
                mine = archive.read(name)
            except RelinkError:
                continue
            assert mine == other.read(name), name


def make_bytes(scene: Scene, rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return damaged(scene.works.small(scene.scratch / "seed").read_bytes(), rng)
    return damaged(RawZip(good_entries(), zip64=rng.random() < 0.5).build(), rng)


def make_fields(__: Scene, rng: random.Random) -> bytes:
    """A ZIP file whose fields lie, one or two of them."""
    entries = good_entries({"demo_pkg/a.py": b"a = 1\n" * 9, "demo_pkg/b.so": b"\x7fELF" * 9})
    archive = RawZip(entries, zip64=rng.random() < 0.3)
    numbers = ("crc", "compressed_size", "size", "offset", "disk", "flags", "method", "attributes", "made_by")
    names = (b"/etc/x", b"../x", b"C:x", b"a\\b", b"a\0b", b"", b"/", b"demo_pkg/A.py", b"x/../../y", b"\xff.py", b"a/",
             b"demo_pkg", b"other-1.0.dist-info/RECORD", b"CON", b"x" * 70000, b"demo_pkg/a.py", b"\xc3\xa9")  # fmt: skip
    for _ in range(rng.choice((1, 1, 2, 3))):
        entry = rng.choice(entries)
        number = min(rng.choice(NUMBERS), 0xFFFFFFFF)
        match rng.randrange(9):
            case 0 | 1:
                name = rng.choice(numbers)
                mask = (
                    0xFFFFFFFF
                    if name in ("crc", "compressed_size", "size", "offset", "attributes")
                    else 0xFFFF
                )
                setattr(entry, name, number & mask)
            case 2 | 3:
                name = rng.choice(("crc", "compressed_size", "size", "flags", "method"))
                mask = 0xFFFF if name in ("flags", "method") else 0xFFFFFFFF
                setattr(entry, f"local_{name}", number & mask)
            case 4:
                entry.name = rng.choice(names)[:65535]
            case 5:
                entry.local_name = rng.choice(names)[:65535]
            case 6:
                kind = rng.choice((1, 0x7075, 0x9999))
                body = rng.randbytes(rng.choice((0, 4, 8, 16, 28)))
                setattr(
                    entry, rng.choice(("extra", "local_extra")), struct.pack("<HH", kind, len(body)) + body
                )
            case 7:
                setattr(
                    entry, rng.choice(("descriptor", "padding")), rng.randbytes(rng.choice((12, 16, 20, 24)))
                )
                entry.flags |= rng.choice((0, 8))
            case _:
                name = rng.choice(("prepended", "before_end", "trailing", "comment", "count", "directory_size",
                                   "directory_offset", "disk", "zip64_count", "zip64_offset"))  # fmt: skip
                value: object = rng.randbytes(5)
                if name in ("count", "disk"):
                    value = number & 0xFFFF
                elif name not in ("prepended", "before_end", "trailing", "comment"):
                    value = number
                setattr(archive, name, value)
    if rng.random() < 0.1:
        entries.append(Entry(rng.choice(names)[:60000], b"x", method=rng.choice((0, 8, 12, 14, 99))))
    return archive.build()


def check_wheel(scene: Scene, data: bytes) -> None:
    name = FILENAME if b"demo_pkg" in data else f"demo-1.0-{TAG}.whl"
    path = scene.scratch / name
    path.write_bytes(data)
    relinked(scene, path)


def around(member: str, info: bool = False) -> Check:
    """Put an input into an otherwise good wheel, as `member`."""

    def check(scene: Scene, data: bytes) -> None:
        if info:
            from tests.unit.wheel.build import make_wheel as other_wheel  # noqa: PLC0415

            files = {"demo_pkg/a.so": scene.works.library.read_bytes(), f"{DIST_INFO}/{member}": data}
            path = other_wheel(scene.scratch, files)
        else:
            path = scene.works.wheel(scene.scratch / "w", {"demo/__init__.py": b"", member: data})
        inspection.to_json(inspect(path))
        relinked(scene, path)

    return check


def inspect(path: Path) -> inspection.Inspection:
    from relink import queries  # noqa: PLC0415

    return queries.inspect(path)


def make_record(scene: Scene, rng: random.Random) -> bytes:
    data = scene.works.library.read_bytes()
    entries = {entry.name.decode(): entry.data for entry in good_entries({"demo_pkg/a.so": data})}
    return edited_text(entries[f"{DIST_INFO}/RECORD"], rng)


def make_name(_: Scene, rng: random.Random) -> bytes:
    return edited_text(FILENAME.encode(), rng)


def check_name(_: Scene, data: bytes) -> None:
    name = data.decode("utf-8", "surrogateescape")
    parsed = parse_wheel_name(name)
    assert parsed.filename == name
    assert "/" not in name
    assert "\0" not in name
    assert parsed.expanded_tags


# ELF files


def make_elf(scene: Scene, rng: random.Random) -> bytes:
    built = build(
        Library(
            "libx.so",
            ("libhip.so.7", "libb.so"),
            rpath="$ORIGIN",
            exports=(Export("f", "V1"), Export("g")),
            imports=(Import("h", "V2", "libhip.so.7"),),
            hash=rng.choice(("both", "gnu", "sysv")),
        )
    )
    return damaged(rng.choice([built, *scene.seeds("library", "lost", "program")]), rng)


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


def check_prefix(scene: Scene, data: bytes) -> None:
    """The input is a library of the prefix."""
    prefix = scene.scratch / "rocm"
    (prefix / "lib").mkdir(parents=True)
    (prefix / "lib" / "libhip.so.7").write_bytes(data)
    (prefix / "lib" / "libdeep.so.1").symlink_to(scene.works.prefix / "lib" / "libdeep.so.1")
    options = replace(scene.works.options(scene.scratch / "out", dry_run=True), prefixes=(str(prefix),))
    report_json(pipeline.relink(scene.works.small(scene.scratch / "w"), options))


def make_prefix(scene: Scene, rng: random.Random) -> bytes:
    if rng.random() < 0.1:
        return edited_text(
            b"/* GNU ld script */\nGROUP ( /usr/lib/libhip.so.7 AS_NEEDED ( libx.so ) )\n", rng
        )
    return damaged((scene.works.prefix / "lib" / "libhip.so.7").read_bytes(), rng)


def make_bundle(_: Scene, rng: random.Random) -> bytes:
    seeds = (
        lambda: raw(entries_of("gfx1100", "gfx90a:xnack-")),
        lambda: ccob(
            raw(entries_of("gfx1100", "gfx1030")), rng.choice((1, 2, 3)), rng.choice(("zstd", "zlib"))
        ),
        lambda: library(
            [raw(entries_of("gfx1100")), ccob(raw(entries_of("gfx1030")))],
            relocation=rng.choice(("rela", "rela-in-place", "relr", "none")),
            sections=rng.random() < 0.7,
        ),
        lambda: library(kpack=b"\x82\xabkernel_name\xa1x\xb2kpack_search_paths\x91\xa1y", kpack_wrappers=3),
        lambda: kpack_archive({"a#0": ["gfx1100"]}),
        code_object,
    )
    return damaged(rng.choice(seeds)(), rng)


def check_bundle(_: Scene, data: bytes) -> None:
    code = read_device_code(BufferSource(data), "x", scan_limit=1 << 16)
    json.dumps(coverage_of(code).to_json())
    assert len(code.problems) <= 100


# Data


def make_plan(scene: Scene, rng: random.Random) -> bytes:
    return edited_text((scene.scratch.parent / "plan.json").read_bytes(), rng)


def check_plan(scene: Scene, data: bytes) -> None:
    path = make_wheel(
        scene.scratch / "w",
        {"demo/a.so": scene.works.library, "demo-1.0.dist-info/relink.json": data},
        tag=TAG,
    )
    with WheelArchive(path) as archive:
        from relink.queries import read_plan  # noqa: PLC0415

        plan = read_plan(archive)
    assert plan is not None
    json.dumps(to_json(plan))
    assert from_json(json.dumps(to_json(plan))) == plan
    assert plan.empty in (True, False)


def make_profile(_: Scene, rng: random.Random) -> bytes:
    paths = sorted(profile_directory().glob("packages/*.toml"))
    return edited_text(rng.choice(paths).read_bytes(), rng)


def check_profile(scene: Scene, data: bytes) -> None:
    path = scene.scratch / "profile.toml"
    path.write_bytes(data)
    read_profile(path)


def make_cache(scene: Scene, rng: random.Random) -> bytes:
    return damaged((scene.scratch.parent / "ld.so.cache").read_bytes(), rng)


def check_cache(_: Scene, data: bytes) -> None:
    parse_cache(data)


@dataclass(frozen=True)
class Kind:
    """One way into relink: how an input is made, what must hold for it, and its share of all inputs."""

    make: Make
    check: Check
    share: float


KINDS: Final[dict[str, Kind]] = {
    "wheel": Kind(make_bytes, check_wheel, 0.16),
    "zip-fields": Kind(make_fields, check_wheel, 0.2),
    "member": Kind(make_elf, around("demo/a.so"), 0.12),
    "prefix": Kind(make_prefix, check_prefix, 0.06),
    "record": Kind(make_record, around("RECORD", info=True), 0.06),
    "metadata": Kind(lambda _, rng: edited_text(METADATA, rng), around("METADATA", info=True), 0.05),
    "wheel-info": Kind(lambda _, rng: edited_text(WHEEL, rng), around("WHEEL", info=True), 0.05),
    "elf": Kind(make_elf, check_elf, 0.1),
    "bundle": Kind(make_bundle, check_bundle, 0.1),
    "plan": Kind(make_plan, check_plan, 0.04),
    "profile": Kind(make_profile, check_profile, 0.02),
    "name": Kind(make_name, check_name, 0.02),
    "cache": Kind(make_cache, check_cache, 0.02),
}


def scene_of(works: Path, scratch: Path) -> Scene:
    """Open the works that another process built; what the inputs of all kinds are made from lies in `scratch`."""
    members = works / "members"
    built = Works(
        works, works / "rocm", *(members / name for name in ("a.so", "plain.so", "lost.so", "prog"))
    )
    target = find_target()
    scratch.mkdir(parents=True, exist_ok=True)
    report = pipeline.relink(built.small(scratch / "plan"), built.options(scratch / "plan" / "out"))
    assert report.output is not None
    with WheelArchive(report.output.path) as archive:
        (scratch / "plan.json").write_bytes(archive.read(f"{archive.dist_info}/relink.json"))
    shutil.rmtree(scratch / "plan")
    cache = Path("/etc/ld.so.cache")
    (scratch / "ld.so.cache").write_bytes(
        cache.read_bytes()[: 1 << 16] if cache.exists() else b"glibc-ld.so.cache1.1"
    )
    return Scene(built, scratch / "here", target)


_WRITES = frozenset({"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.chmod",
                     "os.chown", "os.truncate", "os.utime"})  # fmt: skip


@contextmanager
def watched(allowed: Path) -> Iterator[list[str]]:
    """Collect every path outside of `allowed` that is opened for writing, made, renamed or removed in this process."""
    outside: list[str] = []
    inside = os.path.realpath(allowed)
    active = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not active or (event != "open" and event not in _WRITES):
            return
        if event == "open":
            flags = arguments[2]
            if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
                return
        paths = {"os.rename": arguments[:2], "os.link": arguments[1:2], "os.symlink": arguments[1:2]}
        for path in paths.get(event, arguments[:1]):
            if not isinstance(path, str | bytes | os.PathLike):
                continue
            absolute = os.path.abspath(os.fsdecode(path))
            # rmtree works with names relative to a directory that is open.
            relative = event in _WRITES and not os.path.isabs(os.fsdecode(path))
            if absolute != os.devnull and not relative and f"{absolute}/".find(f"{inside}/") != 0:
                outside.append(f"{event} {absolute}")

    sys.addaudithook(hook)
    try:
        yield outside
    finally:
        active = False


def _alarm(*_: object) -> None:
    raise Hang(f"more than {SECONDS} s")


def attempt(scene: Scene, kind: Kind, data: bytes, outside: list[str]) -> bool:
    """Check one input; says whether it was accepted.

    :raises Exception: anything but a RelinkError, which is the proper answer.
    """
    shutil.rmtree(scene.scratch, ignore_errors=True)
    scene.scratch.mkdir()
    # Another alarm for what no Python code interrupts.
    faulthandler.dump_traceback_later(3 * SECONDS, exit=True)
    signal.signal(signal.SIGALRM, _alarm)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        kind.check(scene, data)
    except RelinkError:
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        assert not outside, f"outside of the temporary directory: {outside}"
    return True


def run(scene: Scene, name: str, first: int, count: int) -> int:
    """Check `count` inputs; prints what fails, keeps it in ``found/`` and returns how many did."""
    kind = KINDS[name]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_CAP, MEMORY_CAP))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Asking Python's loader anew for each input would take most of the time.
    pipeline.find_target = lambda **_: scene.target  # type: ignore[attr-defined]
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
    counted = {"kind": name, "ran": number + 1 - first, "accepted": accepted, "failed": failed}
    sys.stdout.write(f"{json.dumps(counted)}\n")
    return failed


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    faulthandler.enable()
    works_directory, scratch_directory, kind_name, start, how_many = sys.argv[1:]
    tempfile.tempdir = scratch_directory
    sys.exit(
        1
        if run(scene_of(Path(works_directory), Path(scratch_directory)), kind_name, int(start), int(how_many))
        else 0
    )
