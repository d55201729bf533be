"""What to say about a GPU: the findings RLK4xx, each a sentence that its owner can act on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from relink.findings.model import Finding, Level, finding
from relink.gpu import (
    Coverage,
    FileCoverage,
    LibraryCoverage,
    Requirement,
    TargetId,
    intersect,
    remedies,
)
from relink.gpu import Level as Extent
from relink.gpu.wanted import Wanted, listed

__all__ = [
    "GpuFacts",
    "Row",
    "changed_code",
    "code_problems",
    "gpu_findings",
    "gpu_json",
    "in_words",
]

_MAX_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that the runtime must be able to do, and the files that ask for it; or for which GPU it is asked."""

    requirement: Requirement
    files: tuple[str, ...]
    gpu: Wanted | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the report's ``isa.requirements[]``."""
        return {**self.requirement.to_json(), "files": list(self.files)}


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What is known of one wheel and the libraries that it reaches. `beside` lie in the prefix and are not reached.

    :ivar uses_hip: the wheel has GPU code or reaches the HIP runtime.
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

    @property
    def restricting(self) -> tuple[Coverage, ...]:
        """Everything that takes an architecture away by lacking it."""
        every: tuple[Coverage, ...] = (*self.files, *self.libraries)
        return tuple(item for item in every if item.restricts)

    def lacking(self, target: TargetId, *states: str) -> list[tuple[Coverage, Extent]]:
        """Return what restricts and has `target` only as far as one of `states`."""
        levels = [(item, item.level(target)) for item in self.restricting]
        return [(item, level) for item, level in levels if level.state in states]

    def runs(self, target: TargetId) -> bool:
        """Whether nothing is missing for `target`."""
        return not self.lacking(target, "none", "partial", "unknown", "conditional")


@dataclass(slots=True)
class _Severity:
    """How bad a gap is: an error, unless the user allows it or another GPU of the machine does without it."""

    facts: GpuFacts
    gpus: Sequence[Wanted]
    spare: bool = field(init=False)

    def __post_init__(self) -> None:
        local = [gpu for gpu in self.gpus if gpu.local]
        self.spare = any(self.facts.runs(gpu.target) for gpu in local)

    def of(self, gpu: Wanted) -> Level:
        return "warning" if self.facts.allow_gap or (gpu.local and self.spare) else "error"


def in_words(item: Coverage) -> str:
    """Return ``librocblas.so.5 (rocBLAS)``, or the file's name where it is no library that relink knows."""
    base = os.path.basename(item.path)
    role = item.role if isinstance(item, LibraryCoverage) else None
    return f"{base} ({role.name})" if role is not None else base


def _some(names: Sequence[str]) -> str:
    if len(names) > _MAX_SHOWN:
        return f"{', '.join(names[:_MAX_SHOWN])} and {len(names) - _MAX_SHOWN} more"
    return listed(names)


def gpu_findings(facts: GpuFacts, gpus: Sequence[Wanted]) -> Iterator[Finding]:
    """Return the findings: on what all cover together, on each GPU, on the runtime."""
    yield from _together(facts)
    severity = _Severity(facts, gpus)
    for gpu in gpus:
        yield from _one_gpu(facts, gpu, severity)
    yield from _runtime(facts, gpus, severity)


def _together(facts: GpuFacts) -> Iterator[Finding]:
    """One line for everybody: the architectures that are left, and which file takes the others away."""
    if not facts.restricting:
        if facts.uses_hip:
            names = [in_words(item) for item in facts.libraries]
            message = "neither the wheel nor a library that it is seen to reach has prebuilt GPU code that restricts it"
            message += f" ({_some(names)})" if names else ""
            yield finding(
                "RLK407", "GPU code", f"{message}: kernels are compiled on first use, or lie elsewhere"
            )
        return
    common = intersect(facts.restricting)
    message = f"runs on {listed(common.targets) or 'no architecture'}"
    if common.conditional:
        message += f"; under a condition on {listed(common.conditional)}"
    groups: dict[tuple[str, ...], list[str]] = {}
    for removal in common.removed:
        by = tuple(os.path.basename(path) for path, _ in removal.by)
        groups.setdefault(by, []).append(removal.processor)
    for by, processors in groups.items():
        message += (
            f"; {_some(list(by))} {'has' if len(by) == 1 else 'have'} no full code for {listed(processors)}"
        )
    yield finding("RLK407", "GPU code", message)


def _one_gpu(facts: GpuFacts, gpu: Wanted, severity: _Severity) -> Iterator[Finding]:
    target = gpu.target
    subject = str(target)
    if gpu.physical:
        yield finding("RLK413", subject, f"this GPU is {gpu.physical}; HSA_OVERRIDE_GFX_VERSION is set")
    missing = facts.lacking(target, "none")
    if missing:
        yield finding(
            "RLK401", subject, _missing(facts, gpu, missing), _way_out(facts, gpu), severity.of(gpu)
        )
    for item, level in facts.lacking(target, "partial"):
        message = f"{in_words(item)} has code for {gpu} in {level.count} of its {level.total} bundles"
        yield finding("RLK402", subject, message, _way_out(facts, gpu))
    for item, level in facts.lacking(target, "conditional"):
        yield finding("RLK403", subject, f"{in_words(item)}: {level.note or level}", _way_out(facts, gpu))
    for item, level in facts.lacking(target, "unknown"):
        yield finding("RLK404", subject, f"{in_words(item)}: {level.note or 'cannot be read'}")
    for item, level in facts.lacking(target, "slow"):
        yield finding("RLK408", subject, f"{in_words(item)}: {level.note or 'untuned kernels only'}")
    reached = {id(item) for item in facts.libraries}
    for item in (*facts.libraries, *facts.beside):
        if not item.restricts and item.role is not None and item.role.optional:
            yield from _optional(item, gpu, reached=id(item) in reached)


def _missing(facts: GpuFacts, gpu: Wanted, missing: Sequence[tuple[Coverage, Extent]]) -> str:
    """The sentence that an owner needs: what the wheel has, and which file lacks their architecture."""
    files = [item for item in facts.files if item.restricts]
    has = intersect(files).targets if files else ()
    if has:
        message = f"the wheel has code for {listed(has)}"
    elif files:
        message = "no architecture has code in all files of the wheel"
    else:
        message = "the wheel itself has no prebuilt GPU code"
    own = [(item, level) for item, level in missing if isinstance(item, FileCoverage)]
    theirs = [(item, level) for item, level in missing if not isinstance(item, FileCoverage)]
    if own:
        names = [f"{in_words(item)} (none of {level.total} bundles)" for item, level in own]
        message += f", none for {gpu}: it is missing from {_some(names)}"
    else:
        message += f"; {gpu} is not lacking there" if str(gpu.target) in has else ""
    if theirs:
        names = [in_words(item) for item, _ in theirs]
        verb = "has" if len(names) == 1 else "have"
        message += f"; {'and ' if own else ''}of the ROCm libraries it reaches {_some(names)} {verb} none for {gpu.target}"
    return message


def _way_out(facts: GpuFacts, gpu: Wanted) -> str:
    """The remedies in the order in which they should be tried, in one sentence."""
    releases = [name for name, gpus in facts.releases if gpu.target.processor in gpus]
    found = remedies(gpu.target, facts.restricting, releases=releases, runtime_generic=facts.runtime_generic)
    ways = [remedy.text for remedy in found if remedy.kind != "rebuild"]
    rebuilds = [remedy.text for remedy in found if remedy.kind == "rebuild"]
    if rebuilds:
        ways.append(_rebuild(rebuilds))
    text = "; or ".join(ways) or "Use another GPU"
    more = "" if facts.allow_gap else ". --allow-isa-gap relinks the wheel all the same."
    return text[:1].upper() + text[1:] + more


def _rebuild(texts: Sequence[str]) -> str:
    """Join ``rebuild NAME with GPU_TARGETS=…`` of several files; those with the same targets become one."""
    names: dict[str, list[str]] = {}
    for text in texts:
        name, _, how = text.removeprefix("rebuild ").partition(" with ")
        names.setdefault(how, []).append(name)
    return " and ".join(f"rebuild {listed(group)} with {how}" for how, group in names.items())


def _optional(item: LibraryCoverage, gpu: Wanted, *, reached: bool) -> Iterator[Finding]:
    """A library without which its callers find another way: worth a warning, takes nothing away."""
    level = item.level(gpu.target)
    if level.usable:
        return
    lack = "no kernels" if level.state == "none" else f"not all kernels ({level})"
    has = [name for name in item.processors() if item.level(TargetId(name)).usable]
    message = (
        f"this prefix's {item.name} has {lack} for {gpu}; it has those for {listed(has) or 'no GPU at all'}"
    )
    if reached:
        message += "; its callers take a slower way or fail, as they choose"
    else:
        message += (
            "; no library that the plan reaches names it, so this concerns programs that load it themselves"
        )
    wanted = "GPU_TARGETS=" + ";".join([*has, gpu.target.processor])
    remedy = f"Use a ROCm whose {item.name} has it, or rebuild {item.name} with {wanted}."
    yield finding("RLK409", str(gpu.target), message, remedy)


def _runtime(facts: GpuFacts, gpus: Sequence[Wanted], severity: _Severity) -> Iterator[Finding]:
    for row in facts.rows:
        need = row.requirement
        subject = str(row.gpu.target) if row.gpu else need.what
        by = _some([os.path.basename(path) for path in row.files]) or "this GPU"
        wants = "it" if need.needed == "yes" else need.needed
        message = f"{need.what}: {by} needs {wants}, this prefix's runtime has: {need.available}"
        if need.verdict == "no":
            chosen: Level = "warning" if facts.allow_gap else "error"
            if row.gpu is not None:
                chosen = severity.of(row.gpu)
            elif not gpus and need.needed == "yes" and "kpack" not in need.what:
                chosen = "warning"  # native code may be there for the GPU that it will meet
            yield finding("RLK405", subject, message, level=chosen)
        elif need.verdict == "unknown":
            yield finding("RLK406", subject, message, level="warning" if gpus else "info")


def code_problems(items: Iterable[Coverage]) -> Iterator[Finding]:
    """What is odd about device code, one finding a file."""
    for item in items:
        file = item.file if isinstance(item, LibraryCoverage) else item
        if isinstance(file, FileCoverage) and file.problems:
            more = f" (and {len(file.problems) - 1} more)" if len(file.problems) > 1 else ""
            yield finding("RLK410", file.path, f"{file.problems[0]}{more}")


def changed_code(member: str, changes: Sequence[str]) -> Iterator[Finding]:
    """The finding for an edited file whose device code is not what it was."""
    if changes:
        yield finding(
            "RLK411", member, f"its GPU code is not what it was before the edit: {_some(list(changes))}"
        )


def gpu_json(facts: GpuFacts, gpu: Wanted) -> dict[str, Any]:
    """Return the report's ``isa.gpus[]``: how far each file and library covers the GPU, and the ways out of a gap."""
    every: tuple[Coverage, ...] = (*facts.files, *facts.libraries, *facts.beside)
    releases = [name for name, gpus in facts.releases if gpu.target.processor in gpus]
    ways = remedies(gpu.target, facts.restricting, releases=releases, runtime_generic=facts.runtime_generic)
    return {
        "target": str(gpu.target),
        "name": gpu.name,
        "products": list(gpu.products),
        "local": gpu.local,
        "covered": facts.runs(gpu.target),
        "levels": {item.path: str(item.level(gpu.target)) for item in every},
        "remedies": [way.to_json() for way in ways],
    }
