"""A fault in one member of tensorflow-rocm is found by verification, whichever of its 70 members has it.

Most of them are asked about together (relink/loader/dryrun.py). RELINK_REAL_FAULTS=N tries every N-th member; all without it.
"""

from __future__ import annotations

import mmap
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.elf.constants import DT_NEEDED
from relink.elf.dynamic import Buffer
from relink.elf.edit import read_records
from relink.elf.image import Image, file_offset
from relink.elf.symbols import elf_hash
from relink.library import relink
from relink.loader.loading import trace
from relink.loader.search import Environment
from relink.loader.target import find_target
from relink.make.verification import verify
from relink.planning.case import Case, build_context
from relink.planning.options import Options
from relink.planning.reading import Wheel
from relink.planning.resolve.context import ResolveContext
from tests.real.conftest import fetch_wheel
from tests.support.works import open_wheel

PT_DYNAMIC = 2


@dataclass(frozen=True)
class Relinked:
    """The relinked wheel, unpacked.

    :ivar alike: by member those that need the same libraries, itself among them.
    """

    wheel: Wheel
    directory: Path
    context: ResolveContext
    alike: Mapping[str, list[str]]
    closures: Mapping[str, frozenset[str]]


@pytest.fixture(scope="module")
def relinked(full_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relinked]:
    vendor = fetch_wheel("tensorflow-rocm==2.14.0.600", "tensorflow_rocm-2.14.0.600-cp311-*.whl", "3.11")
    directory = tmp_path_factory.mktemp("faults")
    interpreter = str(full_prefix / "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    options = Options(
        prefixes=(str(full_prefix),),
        interpreter=interpreter,
        output_directory=directory,
        allow_missing=("librccl*",),
    )
    report = relink(vendor, options)
    assert report.output is not None
    with zipfile.ZipFile(report.output.path) as archive, ExitStack() as stack:
        target = find_target(interpreter=interpreter)
        wheel = open_wheel(Path(report.output.path), stack, target)
        for name in wheel.images:
            archive.extract(name, directory / "un")
        context = build_context(Case(wheel, target, (), options, "verify"))
        paths = {context.layout.path_of(name): name for name in wheel.images}
        environment = Environment(target, context.members.files)
        needs = {}
        members = {}
        for path, name in paths.items():
            closure = trace(environment, path)
            needs[name] = frozenset(item.path for item in closure.objects if item.path != path)
            # A member may be reached by a path with .. in it.
            found = (
                context.files.canonical(item.path) for item in closure.objects if item.path.startswith("/")
            )
            members[name] = frozenset(name for path in found if path in paths)
        alike = {name: [other for other in needs if needs[other] == needs[name]] for name in needs}
        yield Relinked(wheel, directory / "un", context, alike, members)


def without_a_needed(content: Buffer, image: Image) -> list[tuple[int, bytes]]:
    """Return the change, as (offset, bytes), that drops the first NEEDED: the entries behind it move up."""
    dynamic = next(segment for segment in image.segments if segment.type == PT_DYNAMIC)
    start = file_offset(image.segments, dynamic.address)
    assert start is not None
    entries = bytes(content[start : start + dynamic.file_size])
    at = next(
        at for at in range(0, len(entries), 16) if struct.unpack_from("<q", entries, at)[0] == DT_NEEDED
    )
    return [(start + at, entries[at + 16 :] + bytes(16))]


def with_another_version(content: Buffer, image: Image) -> list[tuple[int, bytes]]:
    """Return the change that renames the first strong version required: to its name without the first letter."""
    for record in read_records(content):
        for item in record.versions:
            if not item.flags:
                name = item.name[1:]
                change = bytearray(content[item.at : item.at + 16])
                struct.pack_into("<I", change, 0, elf_hash(name))
                struct.pack_into("<I", change, 8, item.name_at + 1)
                return [(item.at, bytes(change))]
    raise AssertionError(f"{image.path} requires no version")


@pytest.mark.parametrize("plant", [without_a_needed, with_another_version])
def test_a_fault_in_any_member(relinked: Relinked, plant: object) -> None:
    members = [*relinked.wheel.images][:: int(os.environ.get("RELINK_REAL_FAULTS", "1"))]
    missed = [name for name in members if not _is_caught(relinked, name, plant)]
    print(f"{plant.__name__}: {len(members) - len(missed)} of {len(members)} caught")  # type: ignore[attr-defined]  # noqa: T201
    assert not missed


def test_nothing_is_found_without_a_fault(relinked: Relinked) -> None:
    most = max(relinked.alike.values(), key=len)
    assert len(most) > 2
    assert not _errors(relinked, most[0], lambda _content, _image: [])


def _is_caught(relinked: Relinked, faulty: str, plant: object) -> bool:
    return any(faulty in subject or faulty in text for subject, text in _errors(relinked, faulty, plant))


def _errors(relinked: Relinked, faulty: str, plant: object) -> list[tuple[str, str]]:
    """Verify the members that are asked about together with a faulty one; return subjects and messages of errors."""
    asked = relinked.alike[faulty]
    wanted = frozenset(asked).union(*(relinked.closures[name] for name in asked))
    context = replace(
        relinked.context,
        images={name: image for name, image in relinked.context.images.items() if name in wanted},
    )

    def contents(name: str) -> Iterator[Buffer]:
        with (
            (relinked.directory / name).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
        ):
            at = 0
            for start, data in sorted(plant(view, context.images[name])) if name == faulty else ():  # type: ignore[operator]
                yield view[at:start]
                yield data
                at = start + len(data)
            for piece in range(at, len(view), 1 << 24):
                yield view[piece : piece + (1 << 24)]

    loaded = relinked.wheel.contents.loaded
    result = verify(
        "tensorflow",
        lambda name: (contents(name), loaded[name].gaps if name in loaded else ()),
        asked,
        context,
    )
    return [(item.subject, item.message) for item in result.findings if item.level == "error"]
