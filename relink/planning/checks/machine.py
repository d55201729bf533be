"""`relink doctor`: whether this machine, with the ROCm on it, can run GPU code.

Takes the facts that :mod:`relink.gpu.amd.device` collects, and the libraries of each prefix. Gives :class:`Diagnosis`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relink.gpu import (
    Capability,
    Doctor,
    Intersection,
    LibraryCoverage,
    TargetId,
    doctor,
    hip_runtime_of,
    intersect,
    newest_first,
    remedies,
)
from relink.loader.target import find_target
from relink.planning.checks.gpu import host_path, read_libraries, runtime_capability
from relink.planning.checks.gpu_findings import display_name
from relink.planning.model.model import plain
from relink.providers.prefix import Provider, open_prefix
from relink.system.findings.model import Finding, Level, finding
from relink.system.text import grouped, join_with_and
from relink.vendors.registry import VENDORS, find_places, prefix_of_libraries, products, release_of

_HARMLESS = {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HSA_XNACK"}
_EFFECTS = {
    "HSA_OVERRIDE_GFX_VERSION": "GPUs pass for another architecture, for every library of a process",
    "HIP_USE_RUNTIME_UNBUNDLER": "HIP unbundles by itself, which fails on compressed bundles: unset it",
    "LD_LIBRARY_PATH": "comes before the RUNPATH of every wheel: libraries may be taken from there",
    "ROCBLAS_TENSILE_LIBPATH": "rocBLAS takes its kernels from there and aborts if they are of another version",
    "HIPBLASLT_TENSILE_LIBPATH": "hipBLASLt takes its kernels from there",
    "ROCM_KPACK_PATH": "kpack archives are taken from there",
    "ROCM_KPACK_PATH_PREFIX": "kpack archives are looked for there first",
    "ROCM_KPACK_DISABLE": "code in kpack archives is not loaded",
    "HIP_VISIBLE_DEVICES": "HIP sees only these devices",
    "ROCR_VISIBLE_DEVICES": "the HSA runtime sees only these devices",
    "HSA_XNACK": "xnack is forced on or off",
}


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


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The machine, the prefixes and the findings of `relink doctor`."""

    machine: Doctor
    prefixes: tuple[PrefixHealth, ...]
    findings: tuple[Finding, ...]


def diagnose(
    prefixes: Sequence[str] = (), root: str = "/", environment: Mapping[str, str] | None = None
) -> Diagnosis:
    """Look at the machine below `root`, the environment (this process's unless given) and each prefix.

    Without `prefixes` every ROCm of this machine is looked at: $ROCM_PATH, or what lies in /opt, ld.so.cache and /usr. That there
    is none is a finding.

    :raises ProviderError: a prefix that was named cannot be used.
    """
    environment = os.environ if environment is None else environment
    machine = doctor(root, environment)
    target = find_target()
    named = [prefix_of_libraries(path, target) for path in prefixes]
    named = named or [installation.path for installation in find_places(target, environment)]
    health = tuple(_health(open_prefix(path, target)) for path in named)
    findings = [*_machine(machine), *_environment(machine)]
    if not health:
        variables = ", ".join(f"no ${vendor.variable}" for vendor in VENDORS)
        message = f"no {products()} was found: no --prefix, {variables}, none in /opt, ld.so.cache and /usr"
        findings.append(finding("RLK424", products(), message))
    for prefix in health:
        findings += _prefix(prefix, machine)
    return Diagnosis(machine, health, tuple(findings))


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
        variable = next((key for key in _EFFECTS if name == key or name.startswith(f"{key}_")), name)
        effect = _EFFECTS.get(variable, "changes what ROCm loads")
        level: Level = "info" if variable in _HARMLESS else "warning"
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
    # Newest first; libraries of older runtimes may lack newer GPUs.
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


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the diagnosis as JSON data (``relink.doctor/1``)."""
    return {
        "schema": "relink.doctor/1",
        **diagnosis.machine.to_json(),
        "prefixes": [
            {
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
            for prefix in diagnosis.prefixes
        ],
        "findings": plain(diagnosis.findings),
    }
