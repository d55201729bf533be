"""Whether a wheel runs on a GPU: which GPUs lack code, what the runtime cannot load, what to do (RLK401 to RLK413, RLK427).

Takes device code that was read and what a runtime can load; reads no file. RLK427 is about code that a package of its own
brings: ROCm as pip installs it has a package ``rocm-sdk-device-gfx1100`` for each GPU, which puts kpack archives and kernel files
into the directory of ``rocm-sdk-libraries`` (TheRock, docs/packaging/python_packaging.md), and AMD's PyTorch has
``amd-torch-device-gfx1100`` (build_tools/packaging/python/rocm_whl_next_ownership.yaml there); some are for a family of GPUs
(``amd-torch-device-gfx11``). Who splits another wheel chooses the names of the packages (rocm-systems, shared/kpack,
wheel_splitter.py).
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from relink.gpu.amd.device_code import DeviceCode
from relink.gpu.amd.file_coverage import (
    FileCoverage,
    LibraryCoverage,
    are_choice,
    coverage_of,
    file_of,
    intersect,
    isa_block,
    kernels_of,
    matrix,
)
from relink.gpu.amd.kpack import PLACEHOLDER, Shadow
from relink.gpu.amd.runtime import Capability, DeviceCodeNeeds, Requirement, check, needs_of
from relink.gpu.amd.target_id import configurations, sort_key, table
from relink.gpu.coverage import STATES, Coverage, CoverageLevel, GpuPlan, RequestedGpu, TargetId
from relink.system.findings.model import Finding, Level, finding
from relink.system.text import group_pairs, join_some, join_with_and

# A directory with a family in its name (_rocm_sdk_libraries_gfx…) was built with the code of that family inside.
_NEUTRAL = re.compile(r"(?P<site>.*)/_rocm_sdk_libraries(?!_gfx)[^/]*/")
_SPLIT = re.compile(r"(?:.*/site-packages/)?(?P<package>torch|torchvision)/")
_MOST = 3


def lies_in_a_package(library: Coverage, target: TargetId) -> bool:
    """Whether a library that has no code for `target` would have it from a package for that GPU."""
    file = file_of(library)
    archives = file is not None and bool(file.archives) and file.level(target).state == "none"
    return archives or _NEUTRAL.match(library.path) is not None


def missing_package(
    gpu: RequestedGpu, missing: Sequence[tuple[Coverage, CoverageLevel]], level: Level
) -> Finding | None:
    """Return the finding about the libraries of `missing` whose code for a GPU was not installed; None where there is none."""
    libraries = [library for library, _ in missing if lies_in_a_package(library, gpu.target)]
    if not libraries:
        return None
    processor = gpu.target.processor
    names = sorted({os.path.basename(library.path) for library in libraries})
    files = {
        os.path.basename(path).replace(PLACEHOLDER, processor)
        for library in libraries
        if (file := file_of(library)) is not None
        for path in file.archives
    }
    shown = join_some(names, _MOST)
    looked = f": no {join_with_and(sorted(files)[:_MOST])} is there" if files else ""
    message = f"the code of {shown} for {gpu} comes in a package of its own, which is not installed{looked}"
    sites = {match["site"] for library in libraries if (match := _NEUTRAL.match(library.path))}
    split = {match["package"] for library in libraries if (match := _SPLIT.match(library.path))}
    step = None
    families = " or ".join(f"…-device-{family}" for family in table().families_of(processor))
    other = f" Where the index has none for {processor}, that of its family: {families}." if families else ""
    if sites:
        step = f"pip install rocm-sdk-device-{processor}"
        remedy = f"{step}, in the environment of {min(sites)}.{other}"
    elif split:
        step = "pip install " + " ".join(f"amd-{name}-device-{processor}" for name in sorted(split))
        remedy = f"{step}, in the version of the wheel.{other}"
    else:
        remedy = f"Install the package that has the code of {shown} for {processor}: its vendor names one for each GPU."
    return finding("RLK427", str(gpu.target), message, remedy, level, step=step)


class Remedy(msgspec.Struct, frozen=True):
    """One way out.

    :ivar kind: mask, release, generic, override or rebuild.
    :ivar workaround: AMD does not support it; whoever shows it says so.
    """

    kind: str
    text: str
    workaround: bool = False


def remedies(
    agent: TargetId,
    coverages: Iterable[Coverage],
    *,
    releases: Sequence[str] = (),
    runtime_generic: bool | None = None,
) -> tuple[Remedy, ...]:
    """Return the remedies for `agent` in the order they should be tried; none when all of `coverages` have it.

    `releases` are other releases of the wheel that have it (the profile knows them). `runtime_generic` says whether
    the HIP runtime takes generic targets (None: unknown); where it does not, code that is there only as a generic
    target counts as lacking.
    """
    coverages = tuple(coverages)
    levels = [coverage.level(agent) for coverage in coverages]
    generic = next((g.name for g in table().generics.values() if agent.processor in g.members), None)
    unloadable = [runtime_generic is False and "generic" in level.via for level in levels]
    lacking = [
        coverage
        for coverage, level, blocked in zip(coverages, levels, unloadable, strict=True)
        if blocked or level.state in ("none", "partial", "conditional")
    ]
    if not lacking:
        return ()
    found = [Remedy("release", f"use {release}: it has code for {agent.processor}") for release in releases]
    if any(unloadable):
        names = ", ".join(_name(c) for c, blocked in zip(coverages, unloadable, strict=True) if blocked)
        found.append(
            Remedy(
                "generic",
                f"{names}: code for {agent.processor} is there as {generic}, which ROCm 6.4 or newer loads",
            )
        )
    for row in table().workarounds:
        if agent.processor not in row.processors:
            continue
        if all(c.level(TargetId(row.stands_in)).usable for c in coverages if c.restricts):
            text = (
                f"set HSA_OVERRIDE_GFX_VERSION={row.override}, a workaround that AMD does not support: every library of "
                f"the process then takes the GPU for {row.stands_in} (source: {row.source})"
            )
            found.append(Remedy("override", text, workaround=True))
    for coverage in lacking:
        kept = [p for p in coverage.processors() if coverage.level(TargetId(p)).usable]
        targets = ";".join(sorted({*kept, agent.processor}, key=sort_key))
        wider = f" (or {generic} for the whole family)" if generic and runtime_generic else ""
        found.append(Remedy("rebuild", f"rebuild {_name(coverage)} with GPU_TARGETS={targets}{wider}"))
    return tuple(found)


def _name(coverage: Coverage) -> str:
    return coverage.name if isinstance(coverage, LibraryCoverage) else os.path.basename(coverage.path)


class GpuFacts(msgspec.Struct, frozen=True):
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
    rows: tuple[Requirement, ...] = ()
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
            file = file_of(coverage)
            packed = file is not None and "ccob" in file.container
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


def _levels(facts: GpuFacts, gpus: Sequence[RequestedGpu]) -> dict[RequestedGpu, Level]:
    """Return for each GPU the level of a finding about missing code.

    Where a GPU of this machine has all code, the others of it are no reason to refuse the wheel. Of several GPUs that are asked
    for one has to run the wheel, whatever gap is allowed: a ROCm that is built for a family is for whoever has one GPU of it.
    """
    another_runs = any(facts.runs(gpu.target) for gpu in gpus if gpu.local)
    asked = [gpu for gpu in gpus if gpu.asked]
    allow_gap = facts.allow_gap and (len(asked) < 2 or any(facts.runs(gpu.target) for gpu in asked))

    levels: dict[RequestedGpu, Level] = {}
    for gpu in gpus:
        levels[gpu] = "info" if another_runs else "warning"
        if gpu.asked:
            levels[gpu] = "warning" if allow_gap or (gpu.local and another_runs) else "error"
    return levels


def display_name(coverage: Coverage) -> str:
    """Return ``librocblas.so.5 (rocBLAS)``, or the file's name where it is no library that relink knows."""
    base = os.path.basename(coverage.path)
    role = coverage.role if isinstance(coverage, LibraryCoverage) else None
    return f"{base} ({role.name})" if role is not None else base


def gpu_findings(facts: GpuFacts, gpus: Sequence[RequestedGpu]) -> Iterator[Finding]:
    """Return the findings: on what all cover together, on each GPU, on the runtime."""
    yield from _together(facts)
    if not gpus:
        shadows = (
            (shadow, one) for one in facts.restricting if (file := file_of(one)) for shadow in file.shadows
        )
        yield from (_hidden(shadow, library) for shadow, library in shadows)
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
    groups = group_pairs(
        (tuple(os.path.basename(path) for path, _ in lacking), processor)
        for processor, lacking in common.removed.items()
    )
    for by, processors in groups.items():
        verb = "has" if len(by) == 1 else "have"
        message += f"; {join_some(list(by))} {verb} no full code for {join_with_and(processors)}"
    yield finding("RLK407", "GPU code", message)


def _one_gpu(facts: GpuFacts, gpu: RequestedGpu, levels: Mapping[RequestedGpu, Level]) -> Iterator[Finding]:
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
        override = next(
            (f"={row.override}" for row in table().workarounds if row.stands_in == other), f" for {other}"
        )
        remedy = (
            f"AMD does not support it: try the wheel's own tests on this GPU. A runtime without the patch needs code of its own, "
            f"or HSA_OVERRIDE_GFX_VERSION{override}."
        )
        yield finding("RLK401", subject, message, remedy, "warning" if gpu.asked else "info")
    elif missing:
        way_out = _masking(facts, gpu, tuple(levels))
        way_out = f"Set {way_out}." if way_out else _way_out(facts, gpu)
        yield finding("RLK401", subject, _missing(facts, gpu, missing), way_out, levels[gpu])
    hidden = [
        (shadow, library)
        for library in facts.restricting
        if (file := file_of(library))
        for shadow in file.shadows
        if set(shadow.agents) & set(configurations(target))
    ]
    yield from (_hidden(shadow, library, gpu) for shadow, library in hidden)
    without = {id(library) for _, library in hidden}
    for library, level in (row for row in facts.lacking(target, "partial") if id(row[0]) not in without):
        message = f"{display_name(library)} has code for {gpu} in {level.count} of its {level.total} bundles"
        yield finding("RLK402", subject, message, _way_out(facts, gpu))
    for library, level in (row for row in facts.lacking(target, "conditional") if id(row[0]) not in without):
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


def _masking(facts: GpuFacts, gpu: RequestedGpu, gpus: Sequence[RequestedGpu]) -> str:
    """Return how a GPU of this machine is left out where another of it runs the wheel; empty where none does."""
    running = [one for one in gpus if gpu.local and one.local and facts.runs(one.target)]
    if not running or facts.runs(gpu.target):
        return ""
    numbers = ",".join(str(number) for one in running for number in one.numbers)
    first = ", which HIP takes first" if 0 in gpu.numbers else ""
    return (
        f"HIP_VISIBLE_DEVICES={numbers} ({join_with_and([str(one.target) for one in running])}), which leaves out "
        f"{gpu.target}{first}"
    )


def _hidden(shadow: Shadow, library: Coverage, gpu: RequestedGpu | None = None) -> Finding:
    """Return the finding about an archive that the runtime's loader takes although another has what it lacks."""
    hip = ".".join(map(str, table().falls_through))
    whom = f"for {gpu}" if gpu else f"for {join_with_and([str(agent) for agent in shadow.agents])}"
    message = (
        f"this runtime takes it first {whom}, and alone: {shadow}, which {os.path.basename(library.path)} needs "
        f"(hipErrorInvalidImage); HIP {hip} (ROCm 10.1) and newer go on to the next archive"
    )
    option = f"--leave-out {shlex.quote('*/' + posixpath.basename(shadow.path))}"
    remedy = (
        f"{option}, for the wheel that has it, leaves it out; where it is installed, remove the file; "
        f"or use ROCm 10.1 or newer."
    )
    subject = shadow.path.rpartition("/site-packages/")[2]
    step = option if gpu and gpu.asked else None
    return finding("RLK428", subject, message, remedy, None if gpu else "warning", step=step)


def _missing(facts: GpuFacts, gpu: RequestedGpu, missing: Sequence[tuple[Coverage, CoverageLevel]]) -> str:
    """Say which architectures the wheel has code for, and which files have none for this GPU."""
    files = [coverage for coverage in facts.files if coverage.restricts]
    has = intersect(files).targets if files else ()
    if has:
        message = f"the wheel has code for {join_with_and(has)}"
    elif files:
        message = "no architecture has code in all files of the wheel"
    else:
        message = "the wheel itself has no prebuilt GPU code"
    own = [coverage for coverage, _ in missing if isinstance(coverage, FileCoverage)]
    # One that is reached at two places is named once.
    reached = (coverage for coverage, _ in missing if not isinstance(coverage, FileCoverage))
    theirs = [*dict.fromkeys(map(display_name, reached))]
    if own:
        names = [f"{display_name(coverage)} (none of {coverage.amount})" for coverage in own]
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


def _way_out(facts: GpuFacts, gpu: RequestedGpu) -> str:
    """The remedies in the order in which they should be tried, in one sentence."""
    possible = facts.ways(gpu.target)
    ways = [remedy.text for remedy in possible if remedy.kind != "rebuild"]
    # ``rebuild NAME with GPU_TARGETS=…`` of several files; those with the same targets become one.
    texts = (way.text.removeprefix("rebuild ") for way in possible if way.kind == "rebuild")
    names = group_pairs((how, name) for name, _, how in (text.partition(" with ") for text in texts))
    rebuilds = [
        f"rebuild {join_with_and([*dict.fromkeys(group)])} with {how}" for how, group in names.items()
    ]
    ways += [" and ".join(rebuilds)] if rebuilds else []
    text = "; or ".join(ways) or "Use another GPU"
    more = "" if facts.allow_gap or not gpu.asked else ". --allow-isa-gap relinks the wheel all the same."
    return text[:1].upper() + text[1:] + more


def _optional(library: LibraryCoverage, gpu: RequestedGpu, *, reached: bool) -> Iterator[Finding]:
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


def _runtime(
    facts: GpuFacts, gpus: Sequence[RequestedGpu], levels: Mapping[RequestedGpu, Level]
) -> Iterator[Finding]:
    by_target = {gpu.target: level for gpu, level in levels.items()}
    for need in facts.rows:
        # The rows are those of all GPUs, also where one is judged alone.
        if need.gpu is not None and need.gpu.target not in by_target:
            continue
        subject = str(need.gpu.target) if need.gpu else need.what
        by = join_some([os.path.basename(path) for path in need.files]) or "this GPU"
        wants = need.what if need.needed == "yes" else f"{need.needed} of {need.what}"
        verb = "need" if len(need.files) > 1 else "needs"
        message = f"{by} {verb} {wants}, this prefix's runtime has: {need.available}"
        if need.verdict == "no":
            chosen: Level = "warning" if facts.allow_gap else "error"
            if need.what == "kpack archives":
                message = (
                    f"the kernels of {by} lie in kpack archives, and this prefix's HIP does not read those (it is not "
                    "linked to librocm_kpack): it loads and has no kernels, so the first one that is launched fails"
                )
                # No option covers this: without the archives there is not one kernel, for no GPU.
                chosen = "error"
            elif need.gpu is not None:
                chosen = by_target[need.gpu.target]
            elif not any(gpu.asked for gpu in gpus) and need.needed == "yes":
                # No GPU was named, and there may be native code for the one that the wheel will meet.
                chosen = "warning"
            yield finding("RLK405", subject, message, level=chosen)
        elif need.verdict == "unknown":
            yield finding(
                "RLK406", subject, message, level="warning" if any(gpu.asked for gpu in gpus) else "info"
            )


def gpu_state(facts: GpuFacts, gpu: RequestedGpu) -> str:
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


def gpu_json(facts: GpuFacts, gpu: RequestedGpu, gpus: Sequence[RequestedGpu] = ()) -> dict[str, Any]:
    """Return the report's ``isa.gpus[]``: how far each file and library covers the GPU, and the ways out of a gap."""
    every: tuple[Coverage, ...] = (*facts.files, *facts.libraries, *facts.beside)
    masks = [Remedy("mask", text)] if (text := _masking(facts, gpu, gpus)) else []
    return {
        "target": str(gpu.target),
        "name": gpu.name,
        "products": list(gpu.products),
        "local": gpu.local,
        "covered": facts.runs(gpu.target),
        "state": gpu_state(facts, gpu),
        "levels": {coverage.path: str(coverage.level(gpu.target)) for coverage in every},
        "remedies": [asdict(way) for way in (*masks, *facts.ways(gpu.target))],
    }


class Library(msgspec.Struct, frozen=True):
    """A ROCm library on disk.

    :ivar coverage: the GPUs that its code and its kernel files are for.
    :ivar code: the device code itself.
    """

    coverage: LibraryCoverage
    code: DeviceCode


def check_gpus(
    codes: Mapping[str, DeviceCode],
    libraries: Sequence[Library],
    runtime: Capability | None,
    gpus: Sequence[RequestedGpu] = (),
    *,
    beside: Sequence[Library] = (),
    releases: Sequence[tuple[str, tuple[str, ...]]] = (),
    allow_gap: bool = False,
    extended: str | None = None,
) -> GpuPlan:
    """Compare device code with `gpus` and with what `runtime` can load.

    :param codes: of the wheel, by member; that of kernel files is all that counts where no library has any.
    :param runtime: None where nothing needs one.
    :param beside: libraries of the prefix that are not reached, but that programs load by themselves.
    :param releases: (name and version, processors) of other releases of the wheel.
    :param extended: whose patch makes the runtime take related processors' code.
    """
    files = tuple(coverage_of(code) for code in codes.values() if code.form == "elf")
    kernels = [code for code in codes.values() if code.form != "elf"]
    if not any(file.restricts for file in files):
        # What kernel files cover: together where they are a choice, else each.
        if are_choice(kernels):
            top = posixpath.commonpath([f"/{posixpath.dirname(code.path)}" for code in kernels]).strip("/")
            files = (*files, kernels_of(top or "the wheel", kernels))
        else:
            files = (*files, *map(coverage_of, kernels))
    covering = tuple(library.coverage for library in libraries)
    requirements = () if runtime is None else _requirements(codes, libraries, runtime, gpus)
    facts = GpuFacts(
        files=files,
        libraries=covering,
        beside=tuple(library.coverage for library in beside),
        rows=requirements,
        uses_hip=runtime is not None,
        runtime_generic=runtime.generic if runtime is not None else None,
        releases=tuple(releases),
        allow_gap=allow_gap,
        extended=extended,
    )
    # Of each file the first problem of its device code.
    every: tuple[Coverage, ...] = (*files, *covering)
    problems = [(one.path, [*one.problems]) for one in every if one.problems]
    findings = [
        *(
            finding("RLK410", path, f"{first} (and {len(more)} more)" if more else first)
            for path, (first, *more) in problems
        ),
        *gpu_findings(facts, gpus),
    ]
    block = isa_block(
        files,
        covering,
        runtime.to_json() if runtime is not None else None,
        [gpu_json(facts, gpu, gpus) for gpu in gpus],
    )
    block["matrix"] = matrix((*files, *covering), [gpu.target for gpu in gpus])
    told = ("what", "needed", "available", "verdict")
    block["requirements"] = [
        {**{name: getattr(row, name) for name in told}, "files": list(row.files)} for row in requirements
    ]
    return GpuPlan(block, tuple(findings))


def _requirements(
    codes: Mapping[str, DeviceCode],
    libraries: Sequence[Library],
    runtime: Capability,
    gpus: Sequence[RequestedGpu],
) -> tuple[Requirement, ...]:
    """Return one row a capability, with the files that require it and the strongest of their requirements; then one a GPU."""
    targets = [gpu.target for gpu in gpus]
    codes_by_path = {**codes, **{library.coverage.path: library.code for library in libraries}}
    rows: dict[str, Requirement] = {}
    for path, code in codes_by_path.items():
        for requirement in check(replace(needs_of([code], targets), gpus=()), runtime):
            row = rows.get(requirement.what)
            if row is None or _rank(requirement) > _rank(row):
                rows[requirement.what] = replace(requirement, files=(path,))
            elif _rank(requirement) == _rank(row):
                rows[requirement.what] = replace(row, files=(*row.files, path))
    # MIOpen and MIGraphX compile all their kernels on first use, rocFFT only what its cache lacks.
    every: list[Coverage] = [
        *(coverage_of(code) for code in codes.values() if code.bundles and gpus),
        *(one.coverage for one in libraries if (role := one.coverage.role) and role.missing == "jit"),
    ]
    for gpu in gpus:
        (processor,) = check(DeviceCodeNeeds(gpus=(gpu.target.processor,)), runtime)
        rows[processor.what] = replace(processor, gpu=gpu)
        if compiling := tuple(one.path for one in every if one.level(gpu.target).state == "jit"):
            what = f"{gpu.target.processor} in comgr, which compiles kernels on first use"
            known = ("yes", "ok") if gpu.target.processor in runtime.jit else ("no", "no")
            shown, verdict = known if runtime.jit else ("unknown", "unknown")
            rows[what] = Requirement(what, "yes", shown, verdict, compiling, gpu)
    return tuple(rows.values())


def _rank(requirement: Requirement) -> tuple[int, str]:
    """Return a key that is highest for a requirement that is not met, and among equals for the highest need."""
    return (("ok", "unknown", "no").index(requirement.verdict), requirement.needed)
