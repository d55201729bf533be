"""Which GPUs a planned wheel runs on: its own code, that of the ROCm libraries that it reaches, and what the runtime loads.

Only libraries that the plan reaches are read, which costs a fraction of a second. The formats and the rules of matching are in
:mod:`relink.gpu.amd`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

from relink.gpu.amd.archives import resolve_kpack
from relink.gpu.amd.device_code import DeviceCode, read_file
from relink.gpu.amd.file_coverage import library_coverage_of
from relink.gpu.amd.findings import Library, check_gpus
from relink.gpu.amd.isa_table import table
from relink.gpu.amd.runtime import Capability, find_runtime
from relink.gpu.coverage import GpuPlan
from relink.loader.seen_files import resolve_inside
from relink.providers.prefix import Provider
from relink.vendors.protocol import GpuQuestion
from relink.vendors.rocm.installation import extended_by, release_of

_HIP = "libamdhip64.so"


def check_wheel(question: GpuQuestion) -> GpuPlan:
    """Check the plan of one wheel."""
    libraries = read_libraries(question.libraries, question.sysroot)
    there = {library.coverage.path for library in libraries}
    codes = {
        name: cast("DeviceCode", code)
        for name, code in question.codes.items()
        if question.on_disk.get(name, ("", ""))[1] not in there
    }
    hip = next((soname for soname in question.sonames if soname.startswith(_HIP)), None)
    if not any(code.present for code in codes.values()) and not libraries and not hip:
        return check_gpus(codes, (), None, question.gpus, allow_gap=question.allow_gap)
    return check_gpus(
        codes,
        libraries,
        runtime_capability(question.providers, hip or _HIP, question.sysroot),
        question.gpus,
        beside=_unreached(question.providers, libraries, question.sysroot) if libraries else (),
        releases=question.releases,
        allow_gap=question.allow_gap,
        extended=extended_by(question.providers, hip or _HIP),
    )


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
