"""From a wheel's file to its facts: the ELF members, their symbols and device code, and what is to be said of them."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from relink.contents import SHARE, SpanFinder, open_ahead
from relink.elf.hollow import Cut, blank, find_cuts, pages_in
from relink.elf.image import Image, is_elf, machine_name, read_image
from relink.elf.symbols import SymbolTable, read_symbols
from relink.errors import ElfError
from relink.findings.model import Finding, finding
from relink.gpu import DeviceCode, NotedSource, read_device_code
from relink.loader.target import Target
from relink.providers.platform import manylinux_tag, satisfies_tag
from relink.text import some
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import Limits
from relink.wheel.metadata import check_metadata, read_metadata
from relink.wheel.record import RecordKind, check_record, read_record, signatures

__all__ = ["Count", "Held", "OnBytes", "Wheel", "hold", "open_wheel", "read_wheel"]

OnBytes: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Held:
    """A large member between reading and writing.

    :ivar view: its bytes; unless `whole`, zeros at `cuts`, but for `stay`, which readers of device code looked at.
    """

    view: memoryview
    cuts: tuple[Cut, ...]
    stay: tuple[range, ...]
    whole: bool


def hold(
    content: memoryview,
    cuts: tuple[Cut, ...],
    noted: Iterable[range],
    *,
    whole: bool = False,
    after: Future[Any] | None = None,
) -> Held:
    """Give the memory of a member's cuts back, unless it is to be kept `whole`.

    :param content: from :meth:`WheelArchive.read_into`; the result keeps it.
    :param noted: what must stay readable.
    :param after: what needs it until it is done.
    """
    stay = pages_in(cuts, noted)
    memory = content.obj
    if not whole and isinstance(memory, mmap.mmap):
        give_back = partial(blank, memory, cuts, stay)
        if after is None:
            give_back()
        else:
            after.add_done_callback(lambda _: give_back())
    return Held(content, cuts, stay, whole)


def _cuts(content: memoryview, image: Image) -> tuple[Cut, ...]:
    try:
        return find_cuts(content, image)
    except ElfError:  # section headers that lead nowhere: the loader does not care, and patchelf will say so
        return ()


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel as read: the facts of the ELF members that the target's loader can meet, and what was found on the way.

    :ivar codes: the device code in those members.
    :ivar held: what is kept of the large ones.
    """

    archive: WheelArchive
    images: Mapping[str, Image]
    tables: Mapping[str, SymbolTable]
    findings: tuple[Finding, ...]
    codes: Mapping[str, DeviceCode] = field(default_factory=dict)
    held: Mapping[str, Held] = field(default_factory=dict)


@dataclass(slots=True)
class Count:
    """Bytes that are done, told to a listener with how many there are in all; on any thread."""

    total: int
    on_bytes: OnBytes
    done: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, more: int) -> None:
        """Tell of `more` that are done."""
        with self._lock:
            self.done += more
            self.on_bytes(min(self.done, self.total), self.total)  # patchelf makes files a little larger


def open_wheel(
    path: Path,
    stack: ExitStack,
    target: Target | None = None,
    limits: Limits | None = None,
    on_bytes: OnBytes = lambda _done, _total: None,
) -> Wheel:
    """Read a wheel and the ELF members in it, one at a time; `stack` closes the file.

    :param target: members for other machines than its own are left alone; None takes every machine that has a loader.
    :param limits: what it may ask of this machine.
    :param on_bytes: told how many bytes of how many have been read, unpacked.
    :raises WheelError: it is not a wheel that can be trusted.
    """
    return read_wheel(stack.enter_context(open_ahead(path, limits)), target, on_bytes)


def read_wheel(
    archive: WheelArchive,
    target: Target | None = None,
    on_bytes: OnBytes = lambda _done, _total: None,
    spans: SpanFinder | None = None,
    meanwhile: Callable[[str, Iterable[Image]], object] = lambda _name, _images: None,
) -> Wheel:
    """The same for a wheel that is open.

    :param spans: told what is held, and begun with for what is not held whole.
    :param meanwhile: called with the name of the largest member and what has been read, if there is nothing to do but to wait.
    """
    images: dict[str, Image] = {}
    tables: dict[str, SymbolTable] = {}
    codes: dict[str, DeviceCode] = {}
    held: dict[str, Held] = {}
    findings: list[Finding] = []
    members = [
        member
        for name, member in archive.members.items()
        if not member.is_directory and is_elf(archive.prefix(name, 4))
    ]
    # The largest comes last and stays in memory, whole: that is what reading it took, and no more.
    members.sort(key=lambda member: member.size)
    count = Count(sum(member.size for member in members), on_bytes)
    waiting: list[tuple[int, Future[Any]]] = []  # for members whose memory goes back then
    for member in members:
        name = member.name
        if archive.is_reading(name):
            meanwhile(name, images.values())
        content = archive.read_into(name, count.add, split=spans is not None)
        try:
            image = read_image(content, name)
            other = target is not None and (image.header.machine, image.header.elf_class) != (
                target.header.machine,
                target.header.elf_class,
            )
            if other or not image.dynamic:
                machine = machine_name(image.header.machine)
                why = f"for {machine}, not this target" if other else "without a dynamic section"
                findings.append(finding("RLK505", name, f"left as it is: an ELF file {why}"))
                continue
            images[name] = image
            tables[name] = read_symbols(content)
            # Without its symbols nothing could be said about what it binds to.
            if problems := tables[name].problems:
                findings.append(finding("RLK506", name, f"damaged symbol tables ({some(problems)})"))
            source = NotedSource(content)
            codes[name] = read_device_code(source, name)
            if cuts := _cuts(content, image):
                whole, looking = member is members[-1], None
                if spans:
                    spans.note(name, content, cuts)
                    looking = None if whole else spans.begin(name)
                held[name] = hold(content, cuts, source.noted, whole=whole, after=looking)
                waiting = [(size, one) for size, one in waiting if not one.done()]
                if looking:
                    waiting.append((member.size, looking))
                if sum(size for size, _ in waiting) > members[-1].size // SHARE:
                    wait(one for _, one in waiting)
        except ElfError as error:
            findings.append(finding("RLK506", name, error.message.removeprefix(f"{name}: ")))
        finally:
            if name not in held:
                content.release()
    images = {name: images[name] for name in archive.members if name in images}
    return Wheel(
        archive,
        images,
        tables,
        (*findings, *_record_findings(archive), *_tag_findings(archive, images, tables)),
        codes,
        held,
    )


def _record_findings(archive: WheelArchive) -> Iterator[Finding]:
    name = f"{archive.dist_info}/RECORD"
    entries, malformed = read_record(archive)
    issues = [*malformed, *check_record(entries, archive.members, archive.dist_info)]
    unhashed = [issue.path for issue in issues if issue.kind is RecordKind.NO_HASH]
    if unhashed:
        yield finding(
            "RLK501",
            name,
            f"{len(unhashed)} of {len(archive.members)} files have no hash, {unhashed[0]} for one",
        )
    for issue in issues:
        if issue.kind is not RecordKind.NO_HASH:
            thing = f"{issue.path} " if issue.kind is not RecordKind.MALFORMED else ""
            yield finding("RLK502", name, f"{thing}{issue.message}", level=issue.level)
    for issue_text in check_metadata(
        read_metadata(archive.read(f"{archive.dist_info}/METADATA")), archive.name
    ):
        yield finding("RLK509", f"{archive.dist_info}/METADATA", issue_text)
    for signature in signatures(archive.dist_info, archive.members):
        yield finding("RLK503", signature, "left out of the output")


def _tag_findings(
    archive: WheelArchive, images: Mapping[str, Image], tables: Mapping[str, SymbolTable]
) -> Iterator[Finding]:
    versions = {
        version.name
        for table in tables.values()
        for need in table.verneeds
        for version in need.versions
        if not version.weak
    }
    machine = next((image.header.machine for image in images.values()), None)
    if machine is None:
        return
    found = manylinux_tag(versions, machine)
    for claimed in archive.name.platform.split("."):
        if not satisfies_tag(claimed, found, machine):
            yield finding(
                "RLK504", archive.path.name, f"tagged {claimed}; its symbol versions ask for {found}"
            )
