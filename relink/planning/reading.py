"""Reads a wheel: the facts, symbols and device code of its ELF members, and the findings about the wheel itself.

Follows "Binary distribution format" of the PyPA specifications for RECORD, metadata and tags. Lines of RECORD about the wheel's
own ``*.dist-info`` may be stale: tools write METADATA and WHEEL anew, or rename the directory for another version, and forget
RECORD; pip installs such a wheel. The package's own files have to be what RECORD lists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from relink.elf.constants import PT_DYNAMIC
from relink.elf.gaps import Gap, find_gaps
from relink.elf.image import DLOPEN, Image, is_elf, library_names, machine_name, read_image
from relink.elf.source import BufferSource, NotedSource
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import SymbolTable
from relink.gpu.coverage import FileCode, RequestedGpu
from relink.gpu.removal import CodeRemoval
from relink.loader.target import Target
from relink.planning.contents import Contents
from relink.planning.model import RemovedCode
from relink.providers.distribution import find_manylinux_tag, satisfies_tag
from relink.python.facts_cache import FactsCache
from relink.python.modules import identify_code
from relink.system.errors import ElfError, MemberError
from relink.system.findings.model import Finding, finding
from relink.system.progress import Count, OnBytes
from relink.system.text import join_truncated, pluralize
from relink.vendors.registry import (
    has_runtime,
    list_kernel_suffixes,
    list_other_files,
    read_device_code,
    remove_other_code,
    vendor_named,
    vendors_of,
)
from relink.wheel.archive import WheelArchive
from relink.wheel.directory import name_defect
from relink.wheel.metadata import check_metadata, read_metadata
from relink.wheel.record import (
    RecordEntry,
    RecordIssue,
    RecordKind,
    check_record,
    find_signatures,
    is_metadata,
)
from relink.wheel.schemes import find_members_past_schemes
from relink.wheel.source import MemberSource, read_prefix
from relink.wheel.zipformat import Member

# Bytes. The names of libraries in larger files that import no dlopen are not looked for: it takes long, and they find little.
_SMALL = 4 << 20
# What as_stale looks at: issues about a line or a file, not about a hash.
_OF_A_FILE = frozenset({RecordKind.ABSENT, RecordKind.NOT_LISTED, RecordKind.MALFORMED})


class Wheel(msgspec.Struct, frozen=True):
    """The facts of a wheel's ELF members that the target's loader can meet, and the findings about the wheel.

    :ivar codes: the device code in those members.
    :ivar kernels: that of members that hold nothing else: files of GPU kernels.
    :ivar opens: the library names in the data of those that import dlopen.
    :ivar removals: what takes the code for other GPUs out of members, where that was asked for; `other_kernels`: the members
        that are for other GPUs alone, and for which.
    :ivar left_out: the names of members that are left out (:mod:`relink.planning.site`) → their sonames.
    """

    contents: Contents
    images: Mapping[str, Image]
    tables: Mapping[str, SymbolTable]
    codes: Mapping[str, FileCode]
    findings: tuple[Finding, ...]
    opens: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    left_out: Mapping[str, str] = msgspec.field(default_factory=dict)
    kernels: Mapping[str, FileCode] = msgspec.field(default_factory=dict)
    removals: Mapping[str, CodeRemoval] = msgspec.field(default_factory=dict)
    other_kernels: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def remaining(self) -> dict[str, FileCode]:
        """The device code that is left in each member."""
        left = {**self.codes} | {name: removal.code for name, removal in self.removals.items()}
        return {name: code for name, code in left.items() if name not in self.other_kernels}

    @property
    def source(self) -> MemberSource:
        """Where the members come from."""
        return self.contents.source

    @property
    def archive(self) -> WheelArchive:
        """The wheel's file."""
        return self.contents.archive

    @property
    def needed(self) -> set[str]:
        """The sonames that the members need."""
        return {soname for image in self.images.values() for soname in image.needed}

    @property
    def sought(self) -> set[str]:
        """The sonames that a prefix is looked for: those that no member has; none where a member is a vendor's runtime."""
        own = {image.soname for image in self.images.values() if image.soname}
        return set() if has_runtime(own) else self.needed - own


class SymbolFiles(msgspec.Struct, frozen=True):
    """The symbols of files on disk, which are read where somebody asks for them.

    :ivar directory: where the members are.
    :ivar read: returns the symbols of the file at a path, whose content may be given.
    :ivar cache: what is remembered of files.
    """

    directory: str
    read: Callable[[str, memoryview | None], SymbolTable]
    cache: FactsCache

    def use_of(self, member: Member, content: memoryview, image: Image) -> _SymbolUse:
        """Return what a member's symbols are used for, as it is remembered, or by reading them."""
        path, kind = f"{self.directory}/{member.name}", f"symbols:{_code_edition()}"

        def read() -> Mapping[str, Any]:
            return {
                kind: msgspec.to_builtins(_find_use(self.read(path, content), content, image, member.size))
            }

        return msgspec.convert(self.cache.facts(kind, path, read), _SymbolUse)


@cache
def _code_edition() -> str:
    """Return a name for how this relink reads symbols."""
    return blake2b("".join(identify_code("elf")).encode(), digest_size=8).hexdigest()


class _MemberTables(Mapping[str, SymbolTable]):
    """The symbols of members that are files on disk, each read where somebody asks for it."""

    def __init__(self, names: Collection[str], files: SymbolFiles) -> None:
        self._names, self._files = names, files

    def __getitem__(self, name: str) -> SymbolTable:
        if name not in self._names:
            raise KeyError(name)
        return self._files.read(f"{self._files.directory}/{name}", None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _SymbolUse(msgspec.Struct, frozen=True):
    """What is made of a member's symbols in reading it.

    :ivar opens: it imports dlopen. `names`: the library names in its data, where these are looked for.
    :ivar problems: why its bindings cannot be computed.
    """

    opens: bool
    names: tuple[str, ...]
    problems: tuple[str, ...]


def _find_use(table: SymbolTable, content: memoryview, image: Image, size: int) -> _SymbolUse:
    opens = any(imported.name in DLOPEN for imported in table.imports)
    names = library_names(content, image) if opens or size <= _SMALL else ()
    return _SymbolUse(opens, names, tuple(text for text in table.problems if text not in table.unread))


def read_wheel(
    contents: Contents,
    target: Target | None = None,
    on_bytes: OnBytes = lambda _done, _total: None,
    only_gpus: Sequence[RequestedGpu] = (),
    drop_jit: bool = False,
    removed: Sequence[RemovedCode] = (),
) -> Wheel:
    """Read the ELF members of a wheel, one at a time, then RECORD, METADATA and tags.

    :param target: members for other machines than its own are left alone; None takes every machine that has a loader.
    :param on_bytes: called with the bytes that have been read, unpacked, and how many there are.
    :param only_gpus: code for others is to be taken out; none: it stays. `drop_jit`: so is what is compiled on first use.
    :param removed: what was taken out before, by the plan in the wheel; RLK411 tells where what it left is other code.
    :raises WheelError: it is not a wheel that can be trusted.
    """
    wheel = read_members(contents, target, on_bytes, only_gpus, drop_jit, removed=removed)
    tags = _tag_findings(contents.archive, wheel.images, wheel.tables)
    return replace(wheel, findings=(*wheel.findings, *_record_findings(contents), *tags))


def read_members(
    contents: Contents,
    target: Target | None = None,
    on_bytes: OnBytes = lambda _done, _total: None,
    only_gpus: Sequence[RequestedGpu] = (),
    drop_jit: bool = False,
    beside: Collection[str] = (),
    removed: Sequence[RemovedCode] = (),
    symbols: SymbolFiles | None = None,
) -> Wheel:
    """Read the ELF members of any source, one at a time, and files of GPU kernels; parameters as for :func:`read_wheel`.

    :param beside: files that are no members, and may be for other GPUs.
    :param symbols: the members are files on disk, whose symbols are read where somebody asks for them.
    :raises WheelError: a member is not what the source says.
    """
    source = contents.source
    images: dict[str, Image] = {}
    tables: dict[str, SymbolTable] = {}
    codes: dict[str, FileCode] = {}
    opens: dict[str, tuple[str, ...]] = {}
    named: dict[str, tuple[str, ...]] = {}
    findings: list[Finding] = []
    members = []
    kernels: dict[str, FileCode] = {}
    removals: dict[str, CodeRemoval] = {}
    bundles, suffixes = [], list_kernel_suffixes()
    for name in filter(source.may_be_elf, source.members):
        if name.endswith(".so.debug"):
            continue  # of a file without its data: headers that lead out of it
        try:
            if is_elf(read_prefix(source, name, 4)):
                members.append(source.members[name])
            elif name.endswith(suffixes):
                bundles.append(name)
        except MemberError as error:
            findings.append(finding("RLK506", name, error.message))
    # The largest comes last: a thread reads the member ahead meanwhile.
    members.sort(key=lambda member: member.size)
    count = Count(sum(member.size for member in members), on_bytes)
    for member in members:
        name, content = member.name, memoryview(b"")
        try:
            content = contents.read(name, count.add)
            image = read_image(content, name)
            other = target is not None and (image.header.machine, image.header.elf_class) != (
                target.header.machine,
                target.header.elf_class,
            )
            if other and (code := read_device_code(BufferSource(content), name)) and code.present:
                kernels[name] = code
                continue
            if other or not image.dynamic or image.is_static_program:
                machine = machine_name(image.header.machine)
                why = "without a dynamic section" if not image.dynamic else "of a statically linked program"
                why = f"for {machine}, not this target" if other else why
                findings.append(finding("RLK505", name, f"left as it is: an ELF file {why}"))
                continue
            images[name] = image
            if symbols is None:
                tables[name] = read_symbols(content)
                use = _find_use(tables[name], content, image, member.size)
            else:
                use = symbols.use_of(member, content, image)
            (opens if use.opens else named)[name] = use.names
            # The bindings of a file cannot be computed without its symbols.
            if use.problems:
                text = f"damaged symbol tables ({join_truncated(use.problems)})"
                findings.append(finding("RLK506", name, text))
            noted = NotedSource(content)
            if (code := read_device_code(noted, name)) is not None:
                codes[name] = code
                removal = remove_other_code(BufferSource(content), code, only_gpus, drop_jit)
                if removal.ranges:
                    removals[name] = removal
                if left := {one.offset: one.kept for one in removed if one.path == name and one.kept}:
                    changed = vendor_named(code.vendor).gpus.find_changed_entries
                    wrong = changed(BufferSource(content), code, left)
                    remedy = "Relink the vendor's wheel again: somebody has changed this one."
                    findings += [finding("RLK411", name, join_truncated(wrong), remedy)] if wrong else []
            if contents.keeps and (gaps := _gaps(content, image)):
                contents.retain(
                    name,
                    content,
                    gaps,
                    noted.noted,
                    edited=_dynamic(image),
                    replaced=removals[name].ranges if name in removals else (),
                )
        except (ElfError, MemberError) as error:
            findings.append(finding("RLK506", name, error.message.removeprefix(f"{name}: ")))
        finally:
            if name not in contents.loaded:
                contents.discard(name, content)
    # Where a library has code, nobody knows which program needs files of kernels.
    for name in bundles if not any(code.present for code in codes.values()) else ():
        try:
            content = contents.read(name, count.add)
            if (code := read_device_code(BufferSource(content), name)) and code.present:
                kernels[name] = code
            contents.discard(name, content)
        except MemberError as error:
            findings.append(finding("RLK506", name, error.message.removeprefix(f"{name}: ")))
    opens = _opened_for_siblings(images, opens, named.values())
    # Back to the order of the archive, which the plan lists the files in.
    images = {name: images[name] for name in source.members if name in images}
    others = list_other_files([*source.members, *beside], kernels, only_gpus) if only_gpus else {}
    read = tables if symbols is None else _MemberTables(images, symbols)
    return Wheel(contents, images, read, codes, tuple(findings), opens, {}, kernels, removals, others)


def _opened_for_siblings(
    images: Mapping[str, Image], opens: Mapping[str, tuple[str, ...]], named: Iterable[tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Return what the members that import dlopen open, with the vendors' libraries that others name, in a wheel that needs none.

    In such a wheel (hip-python) one extension module has the names, and one beside it calls dlopen: the loader looks where the
    caller does.

    :param opens: what the members that import dlopen name; `named`: what each of the others does.
    """
    needed = {soname for image in images.values() for soname in image.needed}
    names = [soname for several in named for soname in several if vendors_of([soname])]
    if not names or vendors_of(needed):
        return dict(opens)
    return {member: tuple(dict.fromkeys((*own, *names))) for member, own in opens.items()}


def _dynamic(image: Image) -> range:
    """Return the range of the dynamic array, which every edit changes."""
    dynamic = (segment for segment in image.segments if segment.type == PT_DYNAMIC)
    return next((range(one.offset, one.offset + one.file_size) for one in dynamic), range(0))


def _gaps(content: memoryview, image: Image) -> tuple[Gap, ...]:
    # Of section headers that lead nowhere: the loader does not read them, and patchelf reports them.
    with suppress(ElfError):
        return find_gaps(content, image)
    return ()


def _issue_text(issue: RecordIssue) -> str:
    """Format an issue of RECORD; an unreadable line is named by its number."""
    return (
        issue.message
        if issue.kind is RecordKind.MALFORMED or issue.message.startswith("line ")
        else f"{issue.path} {issue.message}"
    )


def _record_findings(contents: Contents) -> Iterator[Finding]:
    archive = contents.archive
    name = f"{archive.dist_info}/RECORD"
    entries, malformed = contents.record
    issues = [
        *mark_stale(
            [*malformed, *check_record(entries, archive.members, archive.dist_info)], archive.dist_info
        ),
        *find_stale_lines(archive, entries),
    ]
    if unhashed := [issue.path for issue in issues if issue.kind is RecordKind.NO_HASH]:
        yield finding(
            "RLK501",
            name,
            f"{len(unhashed)} of {len(archive.members)} files have no hash, {unhashed[0]} for one",
        )
    if hexadecimal := [issue for issue in issues if issue.kind is RecordKind.HEX_HASH]:
        text = f"{pluralize(len(hexadecimal), 'file')}, {_issue_text(hexadecimal[0])}"
        yield finding("RLK502", name, text, level="warning")
    if stale := [_issue_text(issue) for issue in issues if issue.kind is RecordKind.STALE]:
        verb = "is" if len(stale) == 1 else "are"
        text = f"{pluralize(len(stale), 'line')} about *.dist-info {verb} stale: {join_truncated(stale)}"
        remedy = "Nothing: a RECORD that relink writes lists the files as they are, and pip installs the wheel as it is."
        yield finding("RLK502", name, text, remedy, level="warning")
    for issue in issues:
        if issue.kind not in (RecordKind.NO_HASH, RecordKind.HEX_HASH, RecordKind.STALE):
            yield finding("RLK502", name, _issue_text(issue), level=issue.level)
    metadata = f"{archive.dist_info}/METADATA"
    for issue_text in check_metadata(read_metadata(archive.read(metadata)), archive.name):
        yield finding("RLK509", metadata, issue_text)
    if past := find_members_past_schemes(archive.members, archive.data_dir):
        number = f"{len(past)} members" if len(past) > 1 else "it"
        yield finding(
            "RLK515",
            past[0],
            f"the scheme data puts {number} into the site-packages of one version of Python",
        )
    signed = find_signatures(archive.dist_info, archive.members)
    yield from (finding("RLK503", signature, "left out of the output") for signature in signed)


def mark_stale(issues: Iterable[RecordIssue], dist_info: str) -> list[RecordIssue]:
    """Return the issues, with those about files of the distribution's ``*.dist-info``, whatever its version, as stale lines.

    So are lines of another distribution's ``*.dist-info`` that is not in the wheel: a tool renamed the distribution.
    A path that is no plain one leads elsewhere: an installer that removes the distribution follows it.

    :param dist_info: the directory that the wheel has.
    """
    distribution = _distribution(dist_info)
    return [
        replace(issue, kind=RecordKind.STALE)
        if issue.kind in _OF_A_FILE
        and (of := _distribution(issue.path.partition("/")[0])) is not None
        and (of == distribution or issue.kind is RecordKind.ABSENT)
        and name_defect(issue.path) is None
        else issue
        for issue in issues
    ]


def _distribution(directory: str) -> str | None:
    """Return the normalized name of the distribution that a ``NAME-VERSION.dist-info`` is of; None for another directory."""
    name, hyphen, _ = directory.removesuffix(".dist-info").rpartition("-")
    return canonicalize_name(name) if hyphen and directory.endswith(".dist-info") else None


def find_stale_lines(archive: WheelArchive, entries: Iterable[RecordEntry]) -> list[RecordIssue]:
    """Return the files of ``*.dist-info`` whose hash is not the one in RECORD, where their size is.

    The package's own files are compared by :func:`relink.wheel.record.check_digest`.

    :raises WheelError: the archive's CRC or size of such a file is wrong.
    """
    unhashed = {f"{archive.dist_info}/RECORD", *find_signatures(archive.dist_info, archive.members)}
    issues = []
    for entry in entries:
        member = archive.members.get(entry.path)
        if member is None or entry.digest is None or entry.algorithm is None or entry.path in unhashed:
            continue
        if is_metadata(archive, entry.path) and entry.size in (None, member.size):
            digest = hashlib.new(entry.algorithm, usedforsecurity=False)
            for chunk in archive.chunks(entry.path):
                digest.update(chunk)
            if digest.digest() != entry.digest:
                issues.append(RecordIssue(RecordKind.STALE, entry.path, "is not the file that RECORD lists"))
    return issues


def list_required_versions(tables: Iterable[SymbolTable]) -> frozenset[str]:
    """Return the symbol versions that files require (``GLIBC_2.34``), of all libraries."""
    return frozenset(
        version.name
        for table in tables
        for need in table.verneeds
        for version in need.versions
        if not version.weak
    )


def _tag_findings(
    archive: WheelArchive, images: Mapping[str, Image], tables: Mapping[str, SymbolTable]
) -> Iterator[Finding]:
    machine = next((image.header.machine for image in images.values()), None)
    if machine is None:
        return
    oldest = find_manylinux_tag(list_required_versions(tables.values()), machine)
    for claimed in archive.name.platform.split("."):
        if not satisfies_tag(claimed, oldest, machine):
            yield finding(
                "RLK504", archive.path.name, f"tagged {claimed}; its symbol versions ask for {oldest}"
            )
