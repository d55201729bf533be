"""What the real loader may be asked: the static scan (:mod:`relink.loader.scan`) over the closure of each member."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from relink.errors import TargetError
from relink.files import NOT_REGULAR, map_file
from relink.findings.model import Finding, finding
from relink.loader.accept import reject_header
from relink.loader.closure import Closure, LoadedObject
from relink.loader.loading import trace
from relink.loader.scan import Refusal, scan
from relink.loader.search import Environment
from relink.resolve.strategy import ResolveContext, matches_library

__all__ = ["Scenario", "Screened", "screen"]

Scenario = tuple[str, Sequence[str]]
"""A program and what is preloaded, as paths of the target."""

_CALLS_NO_RESOLVER = (2, 15)  # glibc of 2012: elf/rtld.c, "Don't call ifunc functions in trace mode"


@dataclass(frozen=True, slots=True)
class Screened:
    """The members that the loader may be asked about, in their order, and what was found wrong with files."""

    members: tuple[str, ...]
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class _Files:
    """What has been scanned: by identity what is wrong with a file, and which file that is."""

    context: ResolveContext
    refusals: dict[tuple[object, ...], tuple[Refusal, ...]] = field(default_factory=dict)
    shown: dict[tuple[object, ...], tuple[str, str]] = field(default_factory=dict)

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
        """Note what is wrong with a file."""
        self.refusals[identity] = refusals
        self.shown[identity] = (
            self.context.layout.shown(path).removeprefix("$WHEEL/"),
            soname or posixpath.basename(path),
        )

    def is_trusted(self, identity: tuple[object, ...], patterns: Sequence[str]) -> bool:
        path, soname = self.shown[identity]
        return any(matches_library(pattern, soname, path) for pattern in patterns)


def screen(context: ResolveContext, scenarios: Mapping[str, Scenario], trust: Sequence[str] = ()) -> Screened:
    """Scan all members and everything else in the closures; what is refused is taken away from the loader.

    All members are scanned, whether or not one of them needs the other, since all lie where the loader finds them; those that are
    refused are removed from there. A member in whose closure a refused file is cannot be asked about.

    :param context: the members lie on the disk as `layout` says.
    :param scenarios: by member what the loader would be asked.
    :param trust: globs of files that are let through all the same: by soname, soname without version, or path.
    :raises TargetError: the target's loader calls IFUNC resolvers in a dry run.
    """
    if _version(context.target.glibc) < _CALLS_NO_RESOLVER:
        raise TargetError(
            f"{context.target.interpreter}: glibc {context.target.glibc} runs code of libraries in a dry run; 2.15 is needed"
        )
    files = _Files(context)
    places = {image.path: context.layout.path_of(name) for name, image in context.images.items()}
    for image in context.images.values():
        files.scan(("member", image.path), places[image.path], image.soname)
    asked: list[str] = []
    victims: dict[tuple[object, ...], list[str]] = {}
    for member, scenario in scenarios.items():
        bad = [*_refused(context, files, scenario)]
        let = [identity for identity in bad if files.is_trusted(identity, trust)]
        if len(let) == len(bad):
            asked.append(member)
        for identity in bad:
            if identity not in let:
                victims.setdefault(identity, []).append(member)
    findings = []
    matched = set()
    for identity, refusals in files.refusals.items():
        if not refusals:
            continue
        path, soname = files.shown[identity]
        matched |= {pattern for pattern in trust if matches_library(pattern, soname, path)}
        reasons = "; ".join(map(str, refusals))
        if files.is_trusted(identity, trust):
            findings.append(finding("RLK606", path, reasons))
            continue
        if identity[0] == "member":
            with suppress(FileNotFoundError):
                Path(context.files.host(places[str(identity[1])])).unlink()
        others = [member for member in victims.get(identity, ()) if member != path]
        if others:
            reasons += f". Not asked about either, since they need it: {', '.join(others)}"
        findings.append(finding("RLK605", path, reasons))
    unused = (pattern for pattern in trust if pattern not in matched)
    findings += [
        finding("RLK109", pattern, "--trust: no file of that name was refused") for pattern in unused
    ]
    return Screened(tuple(asked), tuple(findings))


def _refused(context: ResolveContext, files: _Files, scenario: Scenario) -> Iterator[tuple[object, ...]]:
    """Yield the files that must not be mapped, of all that the loader would map."""
    program, preloads = scenario
    try:
        closure = trace(Environment(context.target, context.files), program, [*preloads])
    except TargetError:
        return  # it is not loaded at all, which verification says
    for item in closure.objects:
        if item.identity[0] != "loader":
            identity = _identity(context, item)
            if files.scan(identity, item.path, item.image.soname):
                yield identity
    if closure.fatal is not None:
        yield from _unread(context, files, closure)


def _identity(context: ResolveContext, item: LoadedObject) -> tuple[object, ...]:
    """A program has no identity in a process; here it is its file's."""
    if item.identity[0] != "program":
        return item.identity
    return context.files.open(item.path).identity or ("program", item.path)


def _unread(context: ResolveContext, files: _Files, closure: Closure) -> Iterator[tuple[object, ...]]:
    """Yield the files that relink cannot read although the loader may take them: what these need is not known."""
    for tried in closure.edges[-1].tried if closure.edges else ():
        found = context.files.open(tried.path)
        if found.image is not None or found.identity is None:
            continue
        if found.problem == NOT_REGULAR and not context.files.is_directory(tried.path):
            reason = f"is {NOT_REGULAR}: the loader opens it, and may wait without end"
            files.refuse(found.identity, found.path, None, (Refusal("the file", reason),))
            yield found.identity
        if found.head is None:
            continue
        if reject_header(found.head, context.target.header) is None:
            reason = f"cannot be read ({found.problem}), and the loader may take it all the same"
            files.refuse(found.identity, found.path, None, (Refusal("the file", reason),))
            yield found.identity


def _version(glibc: str) -> tuple[int, ...]:
    return tuple(int(part) for part in glibc.split(".") if part.isdigit())
