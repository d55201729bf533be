"""The findings on GPU code (RLK401 to RLK413, RLK427): which GPUs lack code, what the runtime cannot load, what to do.

Takes the facts that :mod:`relink.planning.checks.gpu` has collected; reads no file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relink.gpu import (
    Coverage,
    CoverageLevel,
    FileCoverage,
    LibraryCoverage,
    Remedy,
    Requirement,
    TargetId,
    Wanted,
    intersect,
    remedies,
    table,
)
from relink.gpu.coverage import STATES
from relink.planning.checks.device_packages import lies_in_a_package, missing_package
from relink.system.findings.model import Finding, Level, finding
from relink.system.text import grouped, join_some, join_with_and


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that the runtime must be able to do.

    :ivar files: the files that ask for it.
    :ivar gpu: the GPU that it is asked for, where it concerns one only.
    """

    requirement: Requirement
    files: tuple[str, ...]
    gpu: Wanted | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the report's ``isa.requirements[]``."""
        return {**self.requirement.to_json(), "files": list(self.files)}


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What is known of one wheel and the libraries that it reaches.

    :ivar beside: libraries of the prefix that nothing reaches, but that programs may load by themselves.
    :ivar rows: what the runtime must be able to do, compared with what it can do.
    :ivar uses_hip: the wheel has GPU code or reaches the HIP runtime.
    :ivar runtime_generic: the HIP runtime loads code for generic targets; None: unknown.
    :ivar extended: whose patch makes the HIP runtime take related processors' code, or None.
    :ivar allow_gap: missing code is a warning, not an error (``--allow-isa-gap``).
    :ivar releases: (name and version, processors) of other releases of the wheel.
    """

    files: tuple[FileCoverage, ...]
    libraries: tuple[LibraryCoverage, ...] = ()
    beside: tuple[LibraryCoverage, ...] = ()
    rows: tuple[Row, ...] = ()
    uses_hip: bool = True
    runtime_generic: bool | None = None
    releases: tuple[tuple[str, tuple[str, ...]], ...] = ()
    allow_gap: bool = False
    extended: str | None = None

    @property
    def restricting(self) -> tuple[Coverage, ...]:
        """The files and libraries without which a GPU does not run the wheel: each must have code for it."""
        every: tuple[Coverage, ...] = (*self.files, *self.libraries)
        return tuple(coverage for coverage in every if coverage.restricts)

    def lacking(self, target: TargetId, *states: str) -> list[tuple[Coverage, CoverageLevel]]:
        """Return what restricts and has `target` only as far as one of `states`."""
        levels = [(coverage, coverage.level(target)) for coverage in self.restricting]
        return [(coverage, level) for coverage, level in levels if level.state in states]

    def stand_in(self, target: TargetId) -> str | None:
        """Return the processor whose code a patched HIP runtime runs on `target` where its own is missing, or None.

        Compressed bundles are unpacked by comgr, which is not patched.
        """
        other = table().stand_in(target.processor) if self.extended else None
        if other is None:
            return None
        for coverage, _ in self.lacking(target, "none", "partial"):
            file = coverage.file if isinstance(coverage, LibraryCoverage) else coverage
            packed = isinstance(file, FileCoverage) and "ccob" in file.container
            if packed or not coverage.level(TargetId(other)).usable:
                return None
        return other

    def ways(self, target: TargetId) -> Sequence[Remedy]:
        """Return the ways out of a gap, in the order in which they should be tried."""
        releases = [name for name, gpus in self.releases if target.processor in gpus]
        return remedies(target, self.restricting, releases=releases, runtime_generic=self.runtime_generic)

    def runs(self, target: TargetId) -> bool:
        """Whether nothing is missing for `target`."""
        return not self.lacking(target, "none", "partial", "unknown", "conditional")


def _levels(facts: GpuFacts, gpus: Sequence[Wanted]) -> dict[Wanted, Level]:
    """Return for each GPU the level of a finding about missing code.

    Where a GPU of this machine has all code, the others of it are no reason to refuse the wheel.
    """
    another_runs = any(facts.runs(gpu.target) for gpu in gpus if gpu.local)

    def level(gpu: Wanted) -> Level:
        if not gpu.asked:
            return "info" if another_runs else "warning"
        return "warning" if facts.allow_gap or (gpu.local and another_runs) else "error"

    return {gpu: level(gpu) for gpu in gpus}


def display_name(coverage: Coverage) -> str:
    """Return ``librocblas.so.5 (rocBLAS)``, or the file's name where it is no library that relink knows."""
    base = os.path.basename(coverage.path)
    role = coverage.role if isinstance(coverage, LibraryCoverage) else None
    return f"{base} ({role.name})" if role is not None else base


def gpu_findings(facts: GpuFacts, gpus: Sequence[Wanted]) -> Iterator[Finding]:
    """Return the findings: on what all cover together, on each GPU, on the runtime."""
    yield from _together(facts)
    levels = _levels(facts, gpus)
    for gpu in gpus:
        for reported in _one_gpu(facts, gpu, levels):
            unasked = reported.level != "info" and not gpu.asked
            yield replace(reported, level=levels[gpu]) if unasked else reported
    yield from _runtime(facts, gpus, levels)


def _together(facts: GpuFacts) -> Iterator[Finding]:
    """Report the architectures that all files have in common, and which file lacks which of the others."""
    if not facts.restricting:
        if facts.uses_hip:
            names = [display_name(library) for library in facts.libraries]
            message = "neither the wheel nor a library that it is seen to reach has prebuilt GPU code that restricts it"
            message += f" ({join_some(names)})" if names else ""
            yield finding(
                "RLK407", "GPU code", f"{message}: kernels are compiled on first use, or lie elsewhere"
            )
        return
    common = intersect(facts.restricting)
    message = f"runs on {join_with_and(common.targets) or 'no architecture'}"
    if common.conditional:
        message += f"; under a condition on {join_with_and(common.conditional)}"
    groups = grouped(
        (tuple(os.path.basename(path) for path, _ in removal.by), removal.processor)
        for removal in common.removed
    )
    for by, processors in groups.items():
        verb = "has" if len(by) == 1 else "have"
        message += f"; {join_some(list(by))} {verb} no full code for {join_with_and(processors)}"
    yield finding("RLK407", "GPU code", message)


def _one_gpu(facts: GpuFacts, gpu: Wanted, levels: Mapping[Wanted, Level]) -> Iterator[Finding]:
    target = gpu.target
    subject = str(target)
    if gpu.physical:
        yield finding("RLK413", subject, f"this GPU is {gpu.physical}; HSA_OVERRIDE_GFX_VERSION is set")
    missing = facts.lacking(target, "none")
    other = facts.stand_in(target)
    if not other and (package := missing_package(gpu, missing, levels[gpu])):
        yield package
        missing = [(library, level) for library, level in missing if not lies_in_a_package(library, target)]
    if missing and other:
        message = (
            f"{_missing(facts, gpu, missing)}; {facts.extended} takes the code for {other} there by a patch"
        )
        remedy = (
            f"AMD does not support it: try the wheel's own tests on this GPU. A runtime without the patch needs code of its own, "
            f"or HSA_OVERRIDE_GFX_VERSION for {other}."
        )
        yield finding("RLK401", subject, message, remedy, "warning" if gpu.asked else "info")
    elif missing:
        yield finding("RLK401", subject, _missing(facts, gpu, missing), _way_out(facts, gpu), levels[gpu])
    for library, level in facts.lacking(target, "partial"):
        message = f"{display_name(library)} has code for {gpu} in {level.count} of its {level.total} bundles"
        yield finding("RLK402", subject, message, _way_out(facts, gpu))
    for library, level in facts.lacking(target, "conditional"):
        yield finding(
            "RLK403", subject, f"{display_name(library)}: {level.note or level}", _way_out(facts, gpu)
        )
    for library, level in facts.lacking(target, "unknown"):
        yield finding("RLK404", subject, f"{display_name(library)}: {level.note or 'cannot be read'}")
    for library, level in facts.lacking(target, "slow"):
        yield finding("RLK408", subject, f"{display_name(library)}: {level.note or 'untuned kernels only'}")
    reached = {id(library) for library in facts.libraries}
    for library in (*facts.libraries, *facts.beside):
        if not library.restricts and library.role is not None and library.role.optional:
            yield from _optional(library, gpu, reached=id(library) in reached)


def _missing(facts: GpuFacts, gpu: Wanted, missing: Sequence[tuple[Coverage, CoverageLevel]]) -> str:
    """Say which architectures the wheel has code for, and which files have none for this GPU."""
    files = [coverage for coverage in facts.files if coverage.restricts]
    has = intersect(files).targets if files else ()
    if has:
        message = f"the wheel has code for {join_with_and(has)}"
    elif files:
        message = "no architecture has code in all files of the wheel"
    else:
        message = "the wheel itself has no prebuilt GPU code"
    own = [(coverage, level) for coverage, level in missing if isinstance(coverage, FileCoverage)]
    theirs = [display_name(coverage) for coverage, _ in missing if not isinstance(coverage, FileCoverage)]
    if own:
        names = [f"{display_name(coverage)} (none of {level.total} bundles)" for coverage, level in own]
        message += f", none for {gpu}: it is missing from {join_some(names)}"
    else:
        message += f"; {gpu} is not lacking there" if str(gpu.target) in has else ""
    if theirs:
        verb = "has" if len(theirs) == 1 else "have"
        joint = "; and " if own else "; "
        message += f"{joint}of the ROCm libraries it reaches {join_some(theirs)} {verb} none for {gpu.target}"
    if unmapped := next(
        (g.name for g in table().generics.values() if gpu.target.processor in g.unmapped), None
    ):
        message += f"; LLVM compiles {unmapped} for {gpu.target.processor}, and no released runtime maps it"
    return message


def _way_out(facts: GpuFacts, gpu: Wanted) -> str:
    """The remedies in the order in which they should be tried, in one sentence."""
    possible = facts.ways(gpu.target)
    ways = [remedy.text for remedy in possible if remedy.kind != "rebuild"]
    # ``rebuild NAME with GPU_TARGETS=…`` of several files; those with the same targets become one.
    texts = (way.text.removeprefix("rebuild ") for way in possible if way.kind == "rebuild")
    names = grouped((how, name) for name, _, how in (text.partition(" with ") for text in texts))
    rebuilds = [f"rebuild {join_with_and(group)} with {how}" for how, group in names.items()]
    ways += [" and ".join(rebuilds)] if rebuilds else []
    text = "; or ".join(ways) or "Use another GPU"
    more = "" if facts.allow_gap or not gpu.asked else ". --allow-isa-gap relinks the wheel all the same."
    return text[:1].upper() + text[1:] + more


def _optional(library: LibraryCoverage, gpu: Wanted, *, reached: bool) -> Iterator[Finding]:
    """Report a library whose callers can do without it: a warning, since the wheel still runs."""
    level = library.level(gpu.target)
    if level.usable:
        return
    lack = "no kernels" if level.state == "none" else f"not all kernels ({level})"
    has = [name for name in library.processors() if library.level(TargetId(name)).usable]
    message = f"this prefix's {library.name} has {lack} for {gpu}; it has those for {join_with_and(has) or 'no GPU at all'}"
    ending = "no library that the plan reaches names it, so this concerns programs that load it themselves"
    if reached:
        ending = "its callers take a slower way or fail, as they choose"
    wanted = "GPU_TARGETS=" + ";".join([*has, gpu.target.processor])
    remedy = f"Use a ROCm whose {library.name} has it, or rebuild {library.name} with {wanted}."
    yield finding("RLK409", str(gpu.target), f"{message}; {ending}", remedy)


def _runtime(facts: GpuFacts, gpus: Sequence[Wanted], levels: Mapping[Wanted, Level]) -> Iterator[Finding]:
    for row in facts.rows:
        need = row.requirement
        subject = str(row.gpu.target) if row.gpu else need.what
        by = join_some([os.path.basename(path) for path in row.files]) or "this GPU"
        wants = "it" if need.needed == "yes" else need.needed
        message = f"{need.what}: {by} needs {wants}, this prefix's runtime has: {need.available}"
        if need.verdict == "no":
            if need.what == "kpack archives":
                message = (
                    f"the kernels of {by} lie in kpack archives, and this prefix's HIP does not read those (it is not "
                    "linked to librocm_kpack): it loads and has no kernels, so the first one that is launched fails"
                )
            chosen: Level = "warning" if facts.allow_gap else "error"
            if need.what == "kpack archives":
                # No gap of some GPU: there is not one kernel.
                chosen = "error"
            elif row.gpu is not None:
                chosen = levels[row.gpu]
            elif not any(gpu.asked for gpu in gpus) and need.needed == "yes":
                # Native code may be there for the GPU that it will meet.
                chosen = "warning"
            yield finding("RLK405", subject, message, level=chosen)
        elif need.verdict == "unknown":
            yield finding(
                "RLK406", subject, message, level="warning" if any(gpu.asked for gpu in gpus) else "info"
            )


def code_problems(coverages: Iterable[Coverage]) -> Iterator[Finding]:
    """Report what is wrong with device code: one finding for each file, with its first problem."""
    for coverage in coverages:
        file = coverage.file if isinstance(coverage, LibraryCoverage) else coverage
        if isinstance(file, FileCoverage) and file.problems:
            more = f" (and {len(file.problems) - 1} more)" if len(file.problems) > 1 else ""
            yield finding("RLK410", file.path, f"{file.problems[0]}{more}")


def changed_code(member: str, changes: Sequence[str]) -> Iterator[Finding]:
    """The finding for an edited file whose device code is not what it was."""
    if changes:
        yield finding(
            "RLK411",
            member,
            f"its GPU code is not what it was before the edit: {join_some(list(changes))}",
        )


def gpu_state(facts: GpuFacts, gpu: Wanted) -> str:
    """Return what becomes of the wheel on one GPU, of the words of :data:`relink.gpu.coverage.STATES`.

    ``none`` is what ``--gpu`` refuses the wheel for, and ``jit`` also where nothing in it is compiled before. What no code
    reaches does not count.
    """
    asked = (replace(gpu, asked=True, local=False),)
    if any(reported.level == "error" for reported in gpu_findings(replace(facts, allow_gap=False), asked)):
        return "none"
    states = {coverage.level(gpu.target).state for coverage in facts.restricting}
    if not facts.restricting and facts.uses_hip:
        return "jit"
    return min(states - {"none"}, key=STATES.index, default="full")


def gpu_json(facts: GpuFacts, gpu: Wanted) -> dict[str, Any]:
    """Return the report's ``isa.gpus[]``: how far each file and library covers the GPU, and the ways out of a gap."""
    every: tuple[Coverage, ...] = (*facts.files, *facts.libraries, *facts.beside)
    return {
        "target": str(gpu.target),
        "name": gpu.name,
        "products": list(gpu.products),
        "local": gpu.local,
        "covered": facts.runs(gpu.target),
        "state": gpu_state(facts, gpu),
        "levels": {coverage.path: str(coverage.level(gpu.target)) for coverage in every},
        "remedies": [way.to_json() for way in facts.ways(gpu.target)],
    }
