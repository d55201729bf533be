"""Which GPUs a file or a ROCm library has code for.

A file's bundles are loaded one by one, so a GPU needs code in all of them: full, partial (n of m) or none, never a union.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec

from relink.gpu.amd.bundle import Bundle
from relink.gpu.amd.device_code import DeviceCode
from relink.gpu.amd.kpack import Doubt, Shadow
from relink.gpu.amd.side_files import SideFiles, side_files_of
from relink.gpu.amd.target_id import (
    SPIRV,
    CodeTarget,
    LibraryRole,
    configurations,
    known_processors_first,
    match,
    parse_target_id,
    sort_key,
    table,
)
from relink.gpu.coverage import STATES, Coverage, CoverageLevel, Intersection, TargetId
from relink.system.errors import UsageError
from relink.system.text import pluralize

# A hostile file could give each bundle a set of its own, and each is asked for every processor. Vendors' files have a few.
_MAX_SETS = 64
# With more of them, kernel files are a choice: no GPU needs all.
_MAX_SINGLE_FILES = 4
_GPU_NAME = re.compile(r"gfx[0-9a-f]{3,5}(?![0-9a-z])|gfx[0-9-]+-generic")
# Code targets of distinct sets.
_MAX_COMPARED = 4000


class FileCoverage(msgspec.Struct, frozen=True):
    """Coverage of one file.

    :ivar bundles: number of bundles that a GPU needs; `unreadable` of them could not be read.
    :ivar sets: the distinct sets of code targets, each with the number of bundles that have it.
    :ivar targets: the target ids that every bundle has; `partial` those that only some have, with how many.
    :ivar embedded: number of bundles and bare code objects outside of ``.hip_fatbin``.
    :ivar archives: the search paths of kpack archives, if its code lies in such; `doubts` of those that cannot be read;
        `shadows` are those without which there would be more code.
    :ivar counts: of a directory of kernel files, how many hold code for each target, of `files`. They count as one bundle: a
        program loads the one for its GPU.
    """

    path: str
    container: str
    bundles: int
    sets: tuple[tuple[frozenset[CodeTarget], int], ...]
    targets: tuple[str, ...]
    partial: tuple[tuple[str, int], ...]
    embedded: int = 0
    unreadable: int = 0
    problems: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    shadows: tuple[Shadow, ...] = ()
    files: int = 0
    counts: tuple[tuple[str, int], ...] = ()

    @property
    def amount(self) -> str:
        """What code for a GPU is looked for in: ``95 bundles``."""
        return f"{self.files} kernel files" if self.files else f"{self.bundles} bundles"

    @property
    def restricts(self) -> bool:
        """A file without device code takes nothing away: its kernels are compiled on first use, or lie beside it."""
        return self.bundles > 0

    @property
    def summary(self) -> str:
        """The containers and the number of bundles, or what is there instead."""
        if self.files:
            return self.amount
        if self.bundles:
            return f"{self.container}, {pluralize(self.bundles, 'bundle')}"
        return f"{self.embedded} embedded code objects" if self.embedded else "no GPU code"

    def level(self, agent: TargetId) -> CoverageLevel:
        """Return how far `agent` is covered; a feature it does not name may have either value."""
        if not self.bundles:
            return CoverageLevel(
                "unknown", note="no device code: its kernels are compiled on first use or lie in other files"
            )
        served: dict[TargetId, int] = {}
        via: dict[TargetId, set[str]] = {}
        wanted = len(configurations(agent))
        for codes, count in self.sets:
            found = match(codes, agent)
            for definite, kind in zip(found.served, found.via, strict=True):
                served[definite] = served.get(definite, 0) + count
                via.setdefault(definite, set()).add(kind)
        best = max(served.values(), default=0)
        whole = [definite for definite, count in served.items() if count == self.bundles]
        kinds = {kind for definite in whole or served for kind in via[definite]}
        ways = tuple(kind for kind in ("native", "generic", "spirv") if kind in kinds)
        if len(whole) == wanted:
            state = "jit" if ways == ("spirv",) else "full"
            return CoverageLevel(state, best, self.bundles, via=ways)
        if whole:
            names = tuple(map(str, sorted(whole, key=str)))
            return CoverageLevel(
                "conditional", best, self.bundles, names, ways, note=f"code only for {', '.join(names)}"
            )
        if self.unreadable and best + self.unreadable == self.bundles:
            return CoverageLevel(
                "unknown", best, self.bundles, via=ways, note=f"{self.unreadable} bundles cannot be read"
            )
        if doubt := next((one for one in self.doubts if _concerns(one, agent)), None):
            return CoverageLevel("unknown", best, self.bundles, via=ways, note=doubt.reason)
        return CoverageLevel("partial" if best else "none", best, self.bundles, via=ways)

    def processors(self) -> tuple[str, ...]:
        """The processors that at least one bundle has code for."""
        generics = table().generics
        names = {code.target.processor for codes, _ in self.sets for code in codes}
        members = {member for name in names if name in generics for member in generics[name].members}
        return known_processors_first((names | members) - generics.keys() - {SPIRV})

    def to_json(self) -> dict[str, Any]:
        """Return the report's ``isa.files[]``."""
        return {
            "path": self.path,
            "container": self.container,
            "bundles": self.bundles,
            "targets": dict(self.counts) if self.files else list(self.targets),
            "partial": {name: [count, self.bundles] for name, count in self.partial},
            "embedded": self.embedded,
            "unreadable": self.unreadable,
            "problems": list(self.problems),
            **({"files": self.files} if self.files else {}),
        }


class LibraryCoverage(msgspec.Struct, frozen=True):
    """Coverage of one ROCm library: its own device code, the kernel files beside it, and what it does without."""

    path: str
    file: FileCoverage
    side: tuple[SideFiles, ...] = ()
    role: LibraryRole | None = None

    @property
    def name(self) -> str:
        """``rocBLAS``, or the file's name where relink does not know the library."""
        return self.role.name if self.role else os.path.basename(self.path)

    @property
    def restricts(self) -> bool:
        """Whether an architecture missing here is missing from the whole."""
        if self.role is None:
            return self.file.restricts
        kernels = self.file.restricts or (self.role.side is not None and self.role.missing != "jit")
        return kernels and not self.role.optional

    @property
    def summary(self) -> str:
        """That of the file, and the kernel files beside it."""
        words = [self.file.summary, *(f"{side.files} {side.kind} files" for side in self.side)]
        return ", ".join([*words, "optional"] if self.role is not None and self.role.optional else words)

    @property
    def problems(self) -> tuple[str, ...]:
        """Those of the file."""
        return self.file.problems

    def level(self, agent: TargetId) -> CoverageLevel:
        """Return the worse of its own code and of its side files."""
        own = self.file.level(agent)
        beside = self._beside(agent)
        if not self.file.restricts:
            if beside is not None:
                return beside
            if self.role is not None and self.role.missing == "jit":
                return CoverageLevel("jit", note=f"{self.name} compiles its kernels on first use")
            return own
        if beside is None or STATES.index(own.state) <= STATES.index(beside.state):
            return own
        return beside

    def _beside(self, agent: TargetId) -> CoverageLevel | None:
        """What the side files say; None where the library has no use for any."""
        if self.role is None or self.role.side is None:
            return None
        states = [side.state(agent) for side in self.side]
        if not states:
            if self.role.missing == "jit":
                return None
            return CoverageLevel("none", note=f"{self.name} has no kernel files beside it")
        state = max(states, key=("absent", "partly", "jit", "fallback", "tuned").index)
        if state == "absent":
            lacking = f"{self.name} has no kernel files for {agent.processor}"
            return CoverageLevel(
                "none", note=f"{lacking}: it aborts" if self.role.missing == "abort" else lacking
            )
        if state == "partly":
            return CoverageLevel(
                "conditional", configurations=("some settings of its features",), note=f"{self.name}: xnack"
            )
        if state == "fallback":
            return CoverageLevel("slow", note=f"{self.name} has only untuned kernels for {agent.processor}")
        return CoverageLevel("full" if state == "tuned" else "jit")

    def processors(self) -> tuple[str, ...]:
        """The processors that its code or its kernel files name."""
        kernels = [s for s in self.side if s.kind != "miopen"]
        names = {name for side in kernels for name in side.processors()}
        return tuple(sorted({*self.file.processors(), *names}, key=sort_key))

    def to_json(self) -> dict[str, Any]:
        """Return the report's ``isa.libraries[]``."""
        return {
            **self.file.to_json(),
            "name": self.name,
            "optional": bool(self.role and self.role.optional),
            "side_files": [
                {"directory": s.directory, "version": s.version, "files": s.files} for s in self.side
            ],
            "levels": {name: str(self.level(TargetId(name))) for name in self.processors()},
        }


def coverage_of(code: DeviceCode) -> FileCoverage:
    """Return the coverage of one file. Bundles for the host only do not count; bare code objects in data neither."""
    bundles: Sequence[Bundle] = [b for b in code.bundles if _for_gpu(b)]
    if not bundles:
        bundles = [b for b in code.embedded if b.container != "code-object" and _for_gpu(b)]
    sets: dict[frozenset[CodeTarget], int] = {}
    counts: dict[TargetId, int] = {}
    unreadable = compared = 0
    too_many = False
    for bundle in bundles:
        codes = frozenset(bundle.targets)
        # What no archive has is not there.
        unread = not bundle.entries and bundle.container != "kpack"
        many = len(sets) >= _MAX_SETS or compared + len(codes) > _MAX_COMPARED
        if unread or (codes not in sets and many):
            unreadable += 1
            too_many |= not unread
            continue
        compared += 0 if codes in sets else len(codes)
        sets[codes] = sets.get(codes, 0) + 1
    for codes, count in sets.items():
        for target in {code.target for code in codes}:
            counts[target] = counts.get(target, 0) + count
    ordered = sorted(counts, key=sort_key)
    problems = code.problems
    if too_many:
        problems = (*problems, "its bundles differ more than relink compares: some count as not read")
    total = len(bundles)
    if code.kpack is not None and not any(bundle.container == "kpack" for bundle in code.bundles):
        # Its archives were not read: what they hold is unknown.
        total += (missing := max(1, len(code.kpack.wrappers)))
        unreadable += missing
    return FileCoverage(
        path=code.path,
        container=code.container,
        bundles=total,
        sets=tuple(sets.items()),
        targets=tuple(str(t) for t in ordered if counts[t] == total),
        partial=tuple((str(t), counts[t]) for t in ordered if counts[t] < total),
        embedded=len(code.embedded),
        unreadable=unreadable,
        problems=problems,
        archives=code.kpack.search_paths if code.kpack is not None else (),
        doubts=code.doubts,
        shadows=code.shadows,
    )


def file_of(coverage: Coverage) -> FileCoverage | None:
    """Return what a file or a library has in its own file; None for another vendor's."""
    if isinstance(coverage, LibraryCoverage):
        return coverage.file
    return coverage if isinstance(coverage, FileCoverage) else None


def are_choice(codes: Sequence[DeviceCode], top: str = "") -> bool:
    """Whether a program loads one of kernel files, and not each: they are many, archives, or named for GPUs below `top`."""
    return len(codes) > _MAX_SINGLE_FILES or any(
        code.form == "kpack-archive" or _GPU_NAME.search(code.path.removeprefix(top)) for code in codes
    )


def kernels_of(path: str, codes: Sequence[DeviceCode]) -> FileCoverage:
    """Return the coverage of kernel files (.co, .hsaco, .kpack): each is for one architecture, so together they are a choice."""
    problems = [f"{os.path.basename(code.path)}: {text}" for code in codes for text in code.problems[:1]]
    held = ({target for bundle in code.bundles for target in bundle.targets} for code in codes)
    counts = Counter(chain.from_iterable(held))
    ordered = sorted(counts.items(), key=lambda item: sort_key(item[0].target))
    if len(ordered) > _MAX_COMPARED:
        problems.insert(0, f"{len(ordered)} targets: only the first {_MAX_COMPARED} are compared")
        ordered = ordered[:_MAX_COMPARED]
    by_name = Counter[str]()
    for code_target, count in ordered:
        by_name[str(code_target.target)] += count
    return FileCoverage(
        path=path,
        container="files",
        bundles=1,
        sets=((frozenset(code for code, _ in ordered), 1),),
        targets=tuple(by_name),
        partial=(),
        problems=tuple(problems[:20]),
        files=len(codes),
        counts=tuple(by_name.items()),
    )


def _concerns(doubt: Doubt, agent: TargetId) -> bool:
    """Whether an archive that cannot be read may be for `agent`."""
    try:
        named = parse_target_id(doubt.target) if doubt.target is not None else agent
    except UsageError:
        # The loader never puts such a text into the path.
        return False
    return bool(match((CodeTarget(named),), agent).served)


def _for_gpu(bundle: Bundle) -> bool:
    """Whether a bundle is meant for GPUs: one with host entries alone is not, one that could not be read may be."""
    return not bundle.entries or any(not entry.text.startswith("host") for entry in bundle.entries)


def library_coverage_of(code: DeviceCode, soname: str | None = None) -> LibraryCoverage:
    """Return the coverage of a ROCm library whose device code was read; `code.path` must be its path on disk."""
    role = table().library(soname or os.path.basename(code.path))
    return LibraryCoverage(code.path, coverage_of(code), side_files_of(code.path, soname), role)


def intersect(coverages: Iterable[Coverage], agents: Iterable[TargetId] = ()) -> Intersection:
    """Return what all of `coverages` cover, asked for every processor that one of them names, and for `agents`."""
    restricting = [c for c in coverages if c.restricts]
    names = {name for c in restricting for name in c.processors()}
    asked = {name: TargetId(name) for name in known_processors_first(names - {SPIRV})}
    asked |= {str(agent): agent for agent in agents}
    targets, conditional, removed = [], [], {}
    for name in sorted(asked, key=sort_key):
        levels = [(c.path, c.level(asked[name])) for c in restricting]
        lacking = [
            (path, level) for path, level in levels if not level.usable and level.state != "conditional"
        ]
        if lacking:
            removed[name] = lacking
        elif any(level.state == "conditional" for _, level in levels):
            conditional.append(name)
        elif levels:
            targets.append(name)
    return Intersection(tuple(targets), tuple(conditional), removed)


def matrix(coverages: Iterable[Coverage], agents: Iterable[TargetId] = ()) -> dict[str, dict[str, str]]:
    """Return path → architecture → how far it is covered, for every architecture that any file names, and for `agents`.

    Files that say nothing about any architecture are left out.
    """
    coverages = tuple(coverages)
    names = (name for item in coverages for name in item.processors())
    asked = {name: TargetId(name) for name in known_processors_first(names)}
    asked |= {str(agent): agent for agent in agents}
    rows = {
        item.path: {name: str(item.level(asked[name])) for name in sorted(asked, key=sort_key)}
        for item in coverages
    }
    return {path: row for path, row in rows.items() if set(row.values()) - {"unknown"}}


def isa_block(
    files: Iterable[FileCoverage],
    libraries: Iterable[LibraryCoverage] = (),
    runtime: dict[str, Any] | None = None,
    gpus: Iterable[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return the report's ``isa`` object; `targets` is the intersection over the files that hold device code."""
    files, libraries = tuple(files), tuple(libraries)
    return {
        "files": [{**file.to_json(), "targets": list(file.targets)} for file in files],
        "targets": list(intersect(files).targets),
        "libraries": [library.to_json() for library in libraries],
        "common": intersect((*files, *libraries)).to_json(),
        "runtime": runtime or {},
        "gpus": list(gpus),
    }
