"""Whether the result of a plan runs on a GPU: the wheel's device code, that of the ROCm libraries it reaches, and the runtime.

Takes device code, file plans and providers. Gives :class:`GpuPlan`: the report's ``isa`` object and findings. Only libraries that
the plan reaches are read, which costs a fraction of a second. The formats and the rules of matching are in :mod:`relink.gpu`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packaging.utils import canonicalize_name

from relink.gpu import (
    Capability,
    Coverage,
    DeviceCode,
    DeviceCodeNeeds,
    LibraryCoverage,
    Requirement,
    TargetId,
    Wanted,
    check,
    coverage_of,
    find_runtime,
    isa_block,
    library_coverage_of,
    matrix,
    needs_of,
    read_file,
    resolve_kpack,
    table,
)
from relink.loader.seen_files import resolve_inside
from relink.planning.checks.gpu_findings import GpuFacts, Row, code_problems, gpu_findings, gpu_json
from relink.planning.model.files import FilePlan
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.decide import PlanDraft
from relink.providers.prefix import Provider
from relink.system.findings.model import Finding
from relink.vendors.registry import extended_by, release_of

_HIP = "libamdhip64.so"


@dataclass(frozen=True, slots=True)
class Library:
    """A ROCm library on disk.

    :ivar coverage: the GPUs that its code and its kernel files are for.
    :ivar code: the device code itself.
    """

    coverage: LibraryCoverage
    code: DeviceCode


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """The report's ``isa`` object and the findings behind it."""

    block: dict[str, Any]
    findings: tuple[Finding, ...] = ()


def reached_libraries(
    files: Iterable[FilePlan], providers: Sequence[Provider]
) -> tuple[tuple[str, str], ...]:
    """Return (soname, path) of the providers' libraries in the closures of `files`, each path once, in load order."""
    sonames: dict[str, str] = {}
    for soname, path in (pair for file in files if file.served for pair in file.closure):
        sonames.setdefault(posixpath.normpath(path), soname)
    held = (path for path in sonames if any(provider.holds(path) for provider in providers))
    return tuple((sonames[path], path) for path in held)


def dlopened_libraries(draft: PlanDraft) -> tuple[tuple[str, str], ...]:
    """Return (soname, path) of the providers' libraries that are dlopened in the closures, as far as their callers are known."""
    context = draft.context
    sonames: dict[str, str] = {}
    for closure in (draft.closures[file.path] for file in draft.files if file.served):
        scope = set(closure.scope)
        for index, loaded in enumerate(closure.objects):
            if index not in scope and context.is_held(loaded.path):
                path = posixpath.normpath(context.layout.real(loaded.path))
                sonames.setdefault(path, loaded.image.soname or loaded.name)
    return tuple((soname, path) for path, soname in sonames.items())


def read_libraries(libraries: Iterable[tuple[str, str]], sysroot: str = "/") -> tuple[Library, ...]:
    """Read `libraries`, as (soname, path), and return those with device code or with a known role (`isa.toml`).

    Libraries reached by dlopen are treated like those reached by NEEDED.
    """
    with_code = []
    for soname, path in libraries:
        code = resolve_kpack(read_file(host_path(path, sysroot)))
        coverage = library_coverage_of(code, soname)
        if coverage.role is not None or coverage.file.bundles or code.kpack is not None:
            with_code.append(Library(coverage, code))
    return tuple(with_code)


def host_path(path: str, sysroot: str) -> str:
    """Return where this process finds a path of the target's; the file's own name is kept."""
    if sysroot in ("", "/"):
        return path
    return posixpath.join(resolve_inside(sysroot, posixpath.dirname(path)), posixpath.basename(path))


def runtime_capability(providers: Sequence[Provider], hip: str = _HIP, sysroot: str = "/") -> Capability:
    """Return what the HIP runtime of the first provider that has it can do; `hip` is the soname that the wheel needs."""
    serving = [provider for provider in providers if provider.find(hip)] or list(providers)
    if not serving:
        return find_runtime([])
    directories = [directory for provider in serving for directory in provider.directories]
    # comgr and the HSA runtime in the same directory were built with this HIP runtime.
    if path := serving[0].find(hip):
        directories.insert(0, posixpath.dirname(path))
    host_directories = dict.fromkeys(host_path(directory, sysroot) for directory in directories)
    capability = find_runtime(host_directories, hip=hip)
    release = release_of(serving[0], sysroot)
    return replace(capability, rocm=release.release) if release else capability


def plan_gpus(
    context: ResolveContext,
    codes: Mapping[str, DeviceCode],
    files: Sequence[FilePlan],
    gpus: Sequence[Wanted] = (),
    *,
    dlopened: Sequence[tuple[str, str]] = (),
    release: tuple[str, str] = ("", ""),
    allow_gap: bool = False,
) -> GpuPlan:
    """Check the plan of one wheel.

    :param codes: the device code of the wheel's ELF members; those of variants that are not served do not count.
    :param dlopened: (soname, path) of libraries that are reached by dlopen.
    :param release: the wheel's distribution and public version; the profile may know others that help.
    """
    providers, sysroot = context.providers, context.target.sysroot
    # Files of kernels and kpack archives lie beside the libraries of a tree; those of a wheel are members, not files.
    on_disk = context.layout.on_disk(context.images)
    served = {file.path: codes[file.path] for file in files if file.served and file.path in codes}
    own = [on_disk[member] for member in served if member in on_disk]
    reached = dict.fromkeys((*reached_libraries(files, providers), *dlopened, *own))
    libraries = read_libraries(reached, sysroot)
    there = {library.coverage.path for library in libraries}
    served = {name: code for name, code in served.items() if on_disk.get(name, ("", ""))[1] not in there}
    hip = _hip_soname(files)
    if not any(code.bundles or code.kpack for code in served.values()) and not libraries and not hip:
        return check_gpus(served, (), None, gpus, allow_gap=allow_gap)
    releases = tuple(
        (f"{row.distribution} {row.version}", row.gpus)
        for row in context.profile.releases
        if row.distribution == canonicalize_name(release[0]) and row.version != release[1]
    )
    return check_gpus(
        served,
        libraries,
        runtime_capability(providers, hip or _HIP, sysroot),
        gpus,
        beside=_unreached(providers, libraries, sysroot) if libraries else (),
        releases=releases,
        allow_gap=allow_gap,
        extended=extended_by(providers, hip or _HIP),
    )


def _hip_soname(files: Sequence[FilePlan]) -> str | None:
    """Return the soname of the HIP runtime that the wheel's files need themselves, or else reach."""
    served = [file for file in files if file.served]
    own = [n.soname_after or n.soname for file in served for n in file.needed if n.action != "drop"]
    every = (*own, *(soname for file in served for soname, _ in file.closure))
    return next((soname for soname in every if soname.startswith(_HIP)), None)


def _unreached(
    providers: Sequence[Provider], reached: Sequence[Library], sysroot: str
) -> tuple[Library, ...]:
    """Return the optional libraries of the providers that nothing reaches as far as relink sees (hipBLASLt, aotriton)."""
    reached_roles = {library.coverage.role for library in reached}
    by_role: dict[object, tuple[str, str]] = {}
    for provider in providers:
        for name, paths in provider.libraries.items():
            # Names with a version only: the others are links for compilers to the same files.
            role = table().library(name)
            if role is not None and role.optional and role not in reached_roles and ".so." in name:
                by_role.setdefault(role, (name, paths[0]))
    return read_libraries(by_role.values(), sysroot)


def check_gpus(
    codes: Mapping[str, DeviceCode],
    libraries: Sequence[Library],
    runtime: Capability | None,
    gpus: Sequence[Wanted] = (),
    *,
    beside: Sequence[Library] = (),
    releases: Sequence[tuple[str, tuple[str, ...]]] = (),
    allow_gap: bool = False,
    extended: str | None = None,
) -> GpuPlan:
    """Compare device code with `gpus` and with what `runtime` can load; None says that nothing needs one.

    :param codes: of the wheel, by member.
    :param beside: libraries of the prefix that are not reached, but that programs load by themselves.
    :param releases: (name and version, processors) of other releases of the wheel.
    :param extended: whose patch makes the runtime take related processors' code.
    """
    files = tuple(coverage_of(code) for code in codes.values())
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
    findings = [*code_problems((*files, *covering)), *gpu_findings(facts, gpus)]
    block = isa_block(
        files,
        covering,
        runtime.to_json() if runtime is not None else None,
        [gpu_json(facts, gpu) for gpu in gpus],
    )
    block["matrix"] = matrix((*files, *covering), [gpu.target for gpu in gpus])
    block["requirements"] = [row.to_json() for row in requirements]
    return GpuPlan(block, tuple(findings))


def _requirements(
    codes: Mapping[str, DeviceCode],
    libraries: Sequence[Library],
    runtime: Capability,
    gpus: Sequence[Wanted],
) -> tuple[Row, ...]:
    """Return one row a capability, with the files that require it and the strongest of their requirements; then one a GPU."""
    targets = [gpu.target for gpu in gpus]
    codes_by_path = {**codes, **{library.coverage.path: library.code for library in libraries}}
    rows: dict[str, Row] = {}
    for path, code in codes_by_path.items():
        for requirement in check(replace(needs_of([code], targets), gpus=()), runtime):
            row = rows.get(requirement.what)
            if row is None or _rank(requirement) > _rank(row.requirement):
                rows[requirement.what] = Row(requirement, (path,))
            elif _rank(requirement) == _rank(row.requirement):
                rows[requirement.what] = replace(row, files=(*row.files, path))
    for gpu in gpus:
        (processor,) = check(DeviceCodeNeeds(gpus=(gpu.target.processor,)), runtime)
        rows[processor.what] = Row(processor, (), gpu)
        if compiling := _compiling(codes, libraries, gpu.target):
            what = f"{gpu.target.processor} in comgr, which compiles kernels on first use"
            known = ("yes", "ok") if gpu.target.processor in runtime.jit else ("no", "no")
            shown, verdict = known if runtime.jit else ("unknown", "unknown")
            rows[what] = Row(Requirement(what, "yes", shown, verdict), compiling, gpu)
    return tuple(rows.values())


def _rank(requirement: Requirement) -> tuple[int, str]:
    """Return a key that is highest for a requirement that is not met, and among equals for the highest need."""
    return (("ok", "unknown", "no").index(requirement.verdict), requirement.needed)


def _compiling(
    codes: Mapping[str, DeviceCode], libraries: Sequence[Library], target: TargetId
) -> tuple[str, ...]:
    """Return the files whose kernels for `target` are compiled on first use."""
    # MIOpen and MIGraphX compile all their kernels, rocFFT only what its cache lacks.
    every: list[Coverage] = [
        *(coverage_of(code) for code in codes.values() if code.bundles),
        *(one.coverage for one in libraries if (role := one.coverage.role) and role.missing == "jit"),
    ]
    return tuple(coverage.path for coverage in every if coverage.level(target).state == "jit")
