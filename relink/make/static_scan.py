"""Which members patchelf may read, and the real loader may load in a dry run: those that the static scan does not refuse.

The scan is :mod:`relink.loader.scan`: of one member for patchelf, of a member's closure for the loader.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from relink.elf.dynamic import Buffer
from relink.elf.image import Image
from relink.loader.closure import Closure
from relink.loader.scan import scan
from relink.loader.scan_relocations import Refusal
from relink.loader.search import reject_header
from relink.planning.resolve.context import Layout, ResolveContext
from relink.planning.resolve.strategy import matches_library
from relink.system.errors import TargetError
from relink.system.findings.model import Finding, finding
from relink.system.safe_open import NOT_REGULAR, map_file

# glibc of 2012: elf/rtld.c, "Don't call ifunc functions in trace mode".
_CALLS_NO_RESOLVER = (2, 15)


class _Files(msgspec.Struct):
    """The files that were scanned.

    :ivar refusals: by identity why a file is refused; empty where it is not.
    :ivar shown: by identity its path for findings, and its soname.
    """

    context: ResolveContext
    refusals: dict[tuple[object, ...], tuple[Refusal, ...]] = msgspec.field(default_factory=dict)
    shown: dict[tuple[object, ...], tuple[str, str]] = msgspec.field(default_factory=dict)

    def scan(self, identity: tuple[object, ...], path: str, soname: str | None) -> tuple[Refusal, ...]:
        """Scan a file once.

        :param path: as the target sees it.
        """
        known = self.refusals.get(identity)
        if known is None:
            try:
                with map_file(self.context.files.host(path)) as buffer:
                    known = scan(buffer)
            except OSError as error:
                known = (Refusal("the file", f"cannot be read ({error.strerror})"),)
            self.refuse(identity, path, soname, known)
        return known

    def refuse(
        self,
        identity: tuple[object, ...],
        path: str,
        soname: str | None,
        refusals: tuple[Refusal, ...],
    ) -> None:
        """Record the reason for which a file is refused, if there is one."""
        self.refusals[identity] = refusals
        self.shown[identity] = _names(self.context.layout, path, soname)


def _names(layout: Layout, path: str, soname: str | None) -> tuple[str, str]:
    """Return a file's path for findings, and its soname."""
    return layout.shown(path).removeprefix(layout.own), soname or posixpath.basename(path)


def _is_trusted(names: tuple[str, str], patterns: Sequence[str]) -> bool:
    path, soname = names
    return any(matches_library(pattern, soname, path) for pattern in patterns)


def screen_member(
    content: Buffer, member: str, image: Image, layout: Layout, trust: Sequence[str] = ()
) -> Iterator[Finding]:
    """Scan a member before patchelf reads the file; yield RLK605 where patchelf must not, RLK606 where the user trusts the file.

    :param content: the bytes that patchelf would get; gaps in it read as zeros.
    :param trust: as for :func:`screen_members`.
    """
    refusals = scan(content)
    if refusals:
        names = _names(layout, layout.path_of(member), image.soname)
        reasons = "; ".join(map(str, refusals))
        if _is_trusted(names, trust):
            yield finding("RLK606", names[0], reasons)
        else:
            yield finding(
                "RLK605", names[0], f"{reasons}. Nothing is written, as patchelf would have to edit it"
            )


def screen_members(
    context: ResolveContext, closures: Mapping[str, Closure | None], trust: Sequence[str] = ()
) -> tuple[list[str], list[Finding]]:
    """Scan all members and everything else in the closures; remove refused members from the loader's view.

    All members are scanned, also those that no other one needs, since all are where the loader searches; refused ones are
    deleted from there. There is no dry run of a member with a refused file in its closure.

    :return: the members whose dry run is safe, in their order, and findings about refused files.

    :param context: the members are on the disk as `layout` says.
    :param closures: by member what its dry run maps; None where the program cannot be loaded, which verification reports.
    :param trust: globs of files that are accepted although they are refused: by soname, soname without version, or path.
    :raises TargetError: the target's loader calls IFUNC resolvers in a dry run.
    """
    if context.target.version < _CALLS_NO_RESOLVER:
        raise TargetError(
            f"{context.target.interpreter}: glibc {context.target.glibc} runs code of libraries in a dry run; 2.15 is needed"
        )
    files = _Files(context)
    places = {image.path: context.layout.path_of(name) for name, image in context.images.items()}
    for image in context.images.values():
        files.scan(("member", image.path), places[image.path], image.soname)
    safe: list[str] = []
    members_with: dict[tuple[object, ...], list[str]] = {}
    for member, closure in closures.items():
        refused = [] if closure is None else [*_refused(context, files, closure)]
        trusted = [identity for identity in refused if _is_trusted(files.shown[identity], trust)]
        if len(trusted) == len(refused):
            safe.append(member)
        for identity in refused:
            if identity not in trusted:
                members_with.setdefault(identity, []).append(member)
    findings = []
    matched = set()
    for identity, refusals in files.refusals.items():
        if not refusals:
            continue
        path, soname = files.shown[identity]
        matched |= {pattern for pattern in trust if matches_library(pattern, soname, path)}
        reasons = "; ".join(map(str, refusals))
        if _is_trusted(files.shown[identity], trust):
            findings.append(finding("RLK606", path, reasons))
            continue
        if identity[0] == "member":
            with suppress(FileNotFoundError):
                Path(context.files.host(places[str(identity[1])])).unlink()
        others = [member for member in members_with.get(identity, ()) if member != path]
        if others:
            reasons += f". Not asked about either, since they need it: {', '.join(others)}"
        findings.append(finding("RLK605", path, reasons))
    unused = (pattern for pattern in trust if pattern not in matched)
    findings += [
        finding("RLK109", pattern, "--trust: no file of that name was refused") for pattern in unused
    ]
    return safe, findings


def _refused(context: ResolveContext, files: _Files, closure: Closure) -> Iterator[tuple[object, ...]]:
    """Yield the files that must not be mapped, of all that the loader would map."""
    for loaded in closure.objects:
        if loaded.identity[0] != "loader":
            # The program has no identity of its own in a link map.
            identity = loaded.identity
            if identity[0] == "program":
                identity = context.files.open(loaded.path).identity or ("program", loaded.path)
            if files.scan(identity, loaded.path, loaded.image.soname):
                yield identity
    if closure.fatal is not None:
        yield from _unread(context, files, closure)


def _unread(context: ResolveContext, files: _Files, closure: Closure) -> Iterator[tuple[object, ...]]:
    """Yield the files that relink cannot read but the loader may accept: their NEEDED is unknown."""
    # The loader has given up at the last edge, over one of the files that it tried there.
    for tried in closure.edges[-1].tried if closure.edges else ():
        opened = context.files.open(tried.path)
        if opened.image is not None or opened.identity is None:
            continue
        if opened.problem == NOT_REGULAR and not context.files.is_directory(tried.path):
            reason = f"is {NOT_REGULAR}: the loader opens it, and may wait without end"
        elif opened.head is not None and reject_header(opened.head, context.target.header) is None:
            reason = f"cannot be read ({opened.problem}), and the loader may take it all the same"
        else:
            continue
        files.refuse(opened.identity, opened.path, None, (Refusal("the file", reason),))
        yield opened.identity
