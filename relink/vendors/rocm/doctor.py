"""`relink doctor` for ROCm: whether this machine, with the ROCm on it, can run GPU code."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relink.gpu.amd.device import EFFECTS, HARMLESS, Doctor, doctor
from relink.gpu.amd.file_coverage import LibraryCoverage, intersect
from relink.gpu.amd.findings import display_name, remedies
from relink.gpu.amd.runtime import RUNTIME_WORDS, Capability
from relink.gpu.amd.survey import hip_runtime_of, newest_first
from relink.gpu.coverage import Intersection, TargetId
from relink.providers.prefix import Provider
from relink.system.findings.model import Finding, Level, finding
from relink.system.text import grouped, join_with_and
from relink.vendors.protocol import Diagnosis, TextRow
from relink.vendors.rocm.gpus import host_path, read_libraries, runtime_capability
from relink.vendors.rocm.installation import release_of


@dataclass(frozen=True, slots=True)
class RuntimeGroup:
    """The ROCm libraries of a prefix that belong to one HIP runtime (its soname; "" where none is named).

    :ivar complete: the prefix has that runtime.
    """

    hip: str
    libraries: tuple[LibraryCoverage, ...]
    together: Intersection
    complete: bool = True


@dataclass(frozen=True, slots=True)
class PrefixHealth:
    """One prefix: its release with the evidence for it, what its runtime can load, and what its libraries cover."""

    path: str
    release: str | None
    evidence: str | None
    runtime: Capability
    runtime_groups: tuple[RuntimeGroup, ...]


def diagnose(providers: Sequence[Provider], root: str, environment: Mapping[str, str]) -> Diagnosis:
    """Look at the machine below `root`, the environment and each prefix."""
    return make_diagnosis(doctor(root, environment), tuple(map(_health, providers)))


def make_diagnosis(machine: Doctor, prefixes: Sequence[PrefixHealth]) -> Diagnosis:
    """Judge the facts of the machine and of the prefixes, and put them into JSON data and rows."""
    findings = [*_machine(machine), *_environment(machine)]
    for prefix in prefixes:
        findings += _prefix(prefix, machine)
    return Diagnosis(
        facts=machine.to_json(),
        prefixes=tuple(map(_prefix_json, prefixes)),
        rows=tuple(_machine_rows(machine)),
        prefix_rows=tuple((one.path, _release_text(one), tuple(_prefix_rows(one))) for one in prefixes),
        findings=tuple(findings),
    )


def _health(provider: Provider) -> PrefixHealth:
    """Read the libraries of a prefix, each file once, and group them by the HIP runtime that they need."""
    unique: dict[str, tuple[str, str]] = {}
    for name, paths in provider.libraries.items():
        for path in paths:
            unique.setdefault(os.path.realpath(host_path(path, "/")), (name, path))
    libraries = read_libraries(unique.values())
    by_hip = grouped((hip_runtime_of(library.code.path), library.coverage) for library in libraries)
    # Libraries that name no HIP runtime belong to each group.
    without_hip = by_hip.pop("", [])
    groups = {hip: [*by_hip[hip], *without_hip] for hip in newest_first(by_hip)}
    if not groups and without_hip:
        groups = {"": without_hip}
    release = release_of(provider)
    return PrefixHealth(
        provider.path,
        release.release if release else None,
        release.evidence if release else None,
        runtime_capability([provider]),
        tuple(
            RuntimeGroup(hip, tuple(covering), intersect(covering), not hip or provider.find(hip) is not None)
            for hip, covering in groups.items()
        ),
    )


def _machine(machine: Doctor) -> Iterator[Finding]:
    """Yield RLK421 and RLK422: GPUs, and the device nodes that a process must open to use them."""
    absent = [node.path for node in machine.nodes if not node.exists]
    if not machine.devices.gpus:
        # Without a GPU the kernel makes no device nodes: one cause, one finding.
        reason = "; ".join(machine.devices.problems) or "KFD lists only processors"
        more = f"; {join_with_and(absent)} {'is' if len(absent) == 1 else 'are'} not there" if absent else ""
        yield replace(finding("RLK421", "GPU", f"{reason}{more}"), subjects=("GPU", *absent))
    else:
        yield from (finding("RLK421", "GPU", text, level="warning") for text in machine.devices.problems)
        for path in absent:
            remedy = "Give it to the container: --device /dev/kfd --device /dev/dri."
            yield finding("RLK422", path, "is not there, although the kernel lists a GPU", remedy)
    for node in machine.nodes:
        if node.accessible or not node.exists:
            continue
        if node.group in machine.missing_groups:
            message = f"belongs to the group {node.group}, which this user is not in"
            yield finding("RLK422", node.path, message, f"usermod -aG {node.group} USER, then log in again.")
        else:
            yield finding("RLK422", node.path, "cannot be opened for reading and writing by this user")


def _environment(machine: Doctor) -> Iterator[Finding]:
    """Yield RLK423: variables that change what ROCm loads or which GPUs it sees."""
    for name, value in machine.environment:
        variable = next((key for key in EFFECTS if name == key or name.startswith(f"{key}_")), name)
        effect = EFFECTS.get(variable, "changes what ROCm loads")
        level: Level = "info" if variable in HARMLESS else "warning"
        yield finding("RLK423", name, f"is set to {value!r}: {effect}", level=level)


def _prefix(prefix: PrefixHealth, machine: Doctor) -> Iterator[Finding]:
    """Yield RLK409, RLK424 to RLK426 and RLK508: what a prefix lacks, by itself and for the GPUs of the machine."""
    if prefix.release is None:
        yield finding("RLK508", prefix.path, "nothing in it says which ROCm release it is")
    yield from (finding("RLK424", prefix.path, problem) for problem in prefix.runtime.problems)
    for group in prefix.runtime_groups:
        if not group.complete:
            needing = join_with_and([display_name(library) for library in group.libraries])
            yield finding(
                "RLK424", prefix.path, f"{group.hip} is not in it; needed by {needing}", level="warning"
            )
        yield from _coherence(prefix, group)
    # The first group is that of the newest runtime. Libraries of older runtimes may lack newer GPUs.
    if prefix.runtime_groups:
        for gpu in machine.devices.gpus:
            lacking = [
                library
                for library in prefix.runtime_groups[0].libraries
                if library.restricts and not library.level(gpu.target).usable
            ]
            if lacking:
                message = f"{join_with_and([display_name(library) for library in lacking])}: no full code for {gpu.target}"
                ways = remedies(gpu.target, lacking, runtime_generic=prefix.runtime.generic)
                yield finding("RLK426", prefix.path, message, "; or ".join(way.text for way in ways) or None)
            processor = gpu.target.processor
            if prefix.runtime.agents and processor not in prefix.runtime.agents:
                yield finding("RLK426", prefix.path, f"its HSA runtime does not know {processor}")


def _coherence(prefix: PrefixHealth, group: RuntimeGroup) -> Iterator[Finding]:
    """Report the libraries that lack code for a GPU that others have it for, the smallest groups of libraries first."""
    for library in group.libraries:
        if library.role is not None and library.role.optional:
            lacking = [p for p in group.together.targets if not library.level(TargetId(p)).usable]
            if lacking:
                message = f"{display_name(library)} has no kernels for {join_with_and(lacking)}, which the others have"
                yield finding("RLK409", prefix.path, message, level="info")
    names = {library.path: display_name(library) for library in group.libraries}
    removed = group.together.removed
    groups = grouped((tuple(names[path] for path, _ in one.by), one.processor) for one in removed)
    if not groups:
        return
    common = join_with_and(group.together.targets) or "nothing"
    parts = [
        f"{join_with_and(list(by))} {'has' if len(by) == 1 else 'have'} no full code for {join_with_and(processors)}"
        for by, processors in sorted(groups.items(), key=lambda group: len(group[0]))
    ]
    owner = f"the libraries of {group.hip}" if group.hip else "the libraries"
    yield finding("RLK425", prefix.path, f"{owner} have {common} in common; {'; '.join(parts)}")


def _prefix_json(prefix: PrefixHealth) -> dict[str, Any]:
    """Return a prefix as JSON data (``relink.doctor/1``)."""
    return {
        "path": prefix.path,
        "rocm_version": prefix.release,
        "evidence": prefix.evidence,
        "runtime": prefix.runtime.to_json(),
        "generations": [
            {
                "hip": group.hip,
                "libraries": [library.to_json() for library in group.libraries],
                "common": group.together.to_json(),
            }
            for group in prefix.runtime_groups
        ],
    }


def _machine_rows(machine: Doctor) -> Iterator[TextRow]:
    for gpu in machine.devices.gpus:
        name = ", ".join(gpu.products) or "unknown product"
        really = f"; really {gpu.physical}" if gpu.overridden else ""
        yield f"GPU {gpu.target}, node {gpu.node}: {name}; xnack unknown{really}", ""
    if not machine.devices.gpus:
        yield "no GPU", "red"
    for node in machine.nodes:
        state = "accessible" if node.accessible else "not accessible" if node.exists else "not there"
        group = f" (group {node.group})" if node.group else ""
        yield f"{node.path}: {state}{group}", "" if node.accessible else "red"


def _release_text(prefix: PrefixHealth) -> str:
    return f"ROCm {prefix.release} (by {prefix.evidence})" if prefix.release else "ROCm, release unknown"


def _prefix_rows(prefix: PrefixHealth) -> Iterator[TextRow]:
    facts = prefix.runtime.to_json()
    for key in ("hip", "comgr", "ccob", "code_object", "generic", "spirv", "kpack"):
        value = facts[key]
        shown = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        yield f"{RUNTIME_WORDS[key].replace(',', '')}: {shown}", "magenta" if shown == "unknown" else ""
    agents = prefix.runtime.agents
    shown = f"{len(agents)}, up to {agents[-1]}" if agents else "unknown"
    yield f"GPUs that the HSA runtime knows: {shown}", "" if agents else "magenta"
    for group in prefix.runtime_groups:
        names = ", ".join(dict.fromkeys(library.name for library in group.libraries))
        yield f"with {group.hip or 'no HIP runtime'}: {names}", ""
        yield f"  all cover {join_with_and(group.together.targets) or 'nothing together'}", ""
