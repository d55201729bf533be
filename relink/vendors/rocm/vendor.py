"""ROCm as :class:`relink.vendors.protocol.Vendor`: the GPUs of a planned wheel and of this machine, and who has its libraries.

A wheel's own code, that of the ROCm libraries that it reaches, and what the runtime loads are put together here; only libraries
that the plan reaches are read, which costs a fraction of a second. The formats and the rules of matching are in
:mod:`relink.gpu.amd`.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from relink.gpu.amd import device
from relink.gpu.amd.bundle import CCOB_MAGIC, RAW_MAGIC
from relink.gpu.amd.device import EFFECTS, HARMLESS, Doctor, doctor
from relink.gpu.amd.device_code import (
    DeviceCode,
    as_taken,
    read_device_code,
    read_file,
    resolve_kpack,
    same_device_code,
    with_archives,
)
from relink.gpu.amd.file_coverage import LibraryCoverage, intersect, library_coverage_of
from relink.gpu.amd.findings import Library, check_gpus, display_name, remedies
from relink.gpu.amd.runtime import RUNTIME_WORDS, Capability, find_runtime
from relink.gpu.amd.side_files import KERNEL_DIRECTORIES
from relink.gpu.amd.survey import group_by_runtime, read_names, survey
from relink.gpu.amd.target_id import table
from relink.gpu.coverage import GpuPlan, Intersection, TargetId
from relink.loader.seen_files import resolve_inside
from relink.providers.distribution import Distribution
from relink.providers.prefix import NIX_STORE, Provider, soname_stem
from relink.system.findings.model import Finding, Level, finding
from relink.system.safe_open import map_file
from relink.system.text import group_pairs, join_with_and
from relink.vendors.protocol import (
    Diagnosis,
    GpuQuestion,
    Gpus,
    Libraries,
    Packages,
    Places,
    Release,
    TextRow,
    Vendor,
)
from relink.vendors.rocm import facts, places
from relink.vendors.rocm.places import release_of

_HIP = "libamdhip64.so"


def check_wheel(question: GpuQuestion) -> GpuPlan:
    """Check the plan of one wheel."""
    hip = next((soname for soname in question.sonames if soname.startswith(_HIP)), None)
    codes = {name: cast("DeviceCode", code) for name, code in question.codes.items()}
    libraries: tuple[Library, ...] = ()
    runtime = None
    # Where nothing is linked and no place is known, no runtime is meant.
    has_code = any(code.present for code in codes.values())
    if hip or question.libraries or (question.providers and has_code):
        found = runtime_capability(question.providers, hip or _HIP, question.sysroot)
        libraries = read_libraries(question.libraries, question.sysroot, found.hip)
        there = {library.coverage.path for library in libraries}
        codes = {
            name: as_taken(code, found.hip)
            for name, code in codes.items()
            if question.on_disk.get(name, ("", ""))[1] not in there
        }
        if hip or libraries or any(code.present for code in codes.values()):
            runtime = found
    return check_gpus(
        codes,
        libraries,
        runtime,
        question.gpus,
        beside=_unreached(question.providers, libraries, question.sysroot) if libraries else (),
        releases=question.releases,
        allow_gap=question.allow_gap,
        extended=extended_by(question.providers, hip or _HIP) if runtime else None,
    )


def read_libraries(
    libraries: Iterable[tuple[str, str]], sysroot: str = "/", hip: tuple[int, int] | None = None
) -> tuple[Library, ...]:
    """Read `libraries`, as (soname, path), and return those with device code or with a known role (`isa.toml`).

    `hip` is the version of the runtime that loads their kpack archives.
    Libraries reached by dlopen are treated like those reached by NEEDED.
    """
    with_code = []
    for soname, path in libraries:
        code = as_taken(resolve_kpack(read_file(host_path(path, sysroot))), hip)
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


class RuntimeGroup(msgspec.Struct, frozen=True):
    """The ROCm libraries of a prefix that belong to one HIP runtime (its soname; "" where none is named).

    :ivar complete: the prefix has that runtime.
    """

    hip: str
    libraries: tuple[LibraryCoverage, ...]
    together: Intersection
    complete: bool = True


class PrefixHealth(msgspec.Struct, frozen=True):
    """One prefix: its release with the evidence for it, what its runtime can load, and what its libraries cover."""

    path: str
    release: Release | None
    runtime: Capability
    runtime_groups: tuple[RuntimeGroup, ...]
    found_by: str | None = None


def diagnose(providers: Sequence[Provider], root: str, environment: Mapping[str, str]) -> Diagnosis:
    """Look at the machine below `root`, the environment and each prefix."""
    return make_diagnosis(doctor(root, environment), tuple(map(_health, providers)))


def make_diagnosis(machine: Doctor, prefixes: Sequence[PrefixHealth]) -> Diagnosis:
    """Judge the facts of the machine and of the prefixes, and put them into JSON data and rows."""
    findings = [*_machine(machine)]
    for prefix in prefixes:
        findings += _prefix(prefix, machine)
    return Diagnosis(
        facts=machine.to_json(),
        prefixes=tuple(
            {
                "path": prefix.path,
                "found_by": prefix.found_by,
                "rocm_version": prefix.release and prefix.release.release,
                "evidence": prefix.release and prefix.release.evidence,
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
            for prefix in prefixes
        ),
        rows=tuple(_machine_rows(machine)),
        prefix_rows=tuple(
            (
                one.path,
                (
                    f"ROCm {known.release} (by {known.evidence})"
                    if (known := one.release)
                    else "ROCm, release unknown"
                )
                + (f", found by {one.found_by}" if one.found_by else ""),
                tuple(_prefix_rows(one)),
            )
            for one in prefixes
        ),
        findings=tuple(findings),
    )


def _health(provider: Provider) -> PrefixHealth:
    """Read the libraries of a prefix, each file once, and group them by the HIP runtime that they need."""
    unique: dict[str, tuple[str, str]] = {}
    for name, paths in provider.libraries.items():
        for path in paths:
            unique.setdefault(os.path.realpath(host_path(path, "/")), (name, path))
    runtime = runtime_capability([provider])
    libraries = read_libraries(unique.values(), hip=runtime.hip)
    groups = group_by_runtime((read_names(one.code.path)[1], one.coverage) for one in libraries)
    return PrefixHealth(
        provider.path,
        release_of(provider),
        runtime,
        tuple(
            RuntimeGroup(hip, covering, intersect(covering), not hip or provider.find(hip) is not None)
            for hip, covering in groups.items()
            if covering
        ),
        provider.found_by,
    )


def _machine(machine: Doctor) -> Iterator[Finding]:
    """Yield RLK421 to RLK423: GPUs, the device nodes that a process must open to use them, and variables that change either."""
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
    groups = group_pairs((tuple(names[path] for path, _ in by), name) for name, by in removed.items())
    if not groups:
        return
    common = join_with_and(group.together.targets) or "nothing"
    parts = [
        f"{join_with_and(list(by))} {'has' if len(by) == 1 else 'have'} no full code for {join_with_and(processors)}"
        for by, processors in sorted(groups.items(), key=lambda group: len(group[0]))
    ]
    owner = f"the libraries of {group.hip}" if group.hip else "the libraries"
    yield finding("RLK425", prefix.path, f"{owner} have {common} in common; {'; '.join(parts)}")


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


_DEBIAN = re.compile(r"/usr/lib/[a-z0-9_]+-linux-gnu/libamdhip64\.so\.(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
# Builds of Debian's HIP: the first with the patch, and that of 6.4.3, which dropped it.
_DEBIAN_BUILDS = (5, 7), (6, 4, 43484)

# Functions of the patch, as they are in the names of local symbols. The third is misspelt there.
_FUNCTIONS = (
    b"isGfx1030EquivalentProcessor",
    b"isGfx1030CompatibleProcessor",
    b"getCompatiblityScore",
)


def extended_by(providers: Iterable[Provider], runtime: str) -> str | None:
    """Return whose patch makes the HIP runtime take related processors' code, as a phrase, or None for a stock one.

    Gfx1030's code runs on a gfx1031 then, say; stock HIP refuses. Two distributions patch it: nixpkgs since 6.0 (rocm-modules:
    "extend ISA compatibility", tried there by test-isa-compat.nix), Debian up to 6.4.2. The patch ("Improve hipamd compat check",
    hip_code_object.cpp) adds static functions and no exported symbol; its strings are so short that compilers put them into
    instructions. A build that keeps local symbols, as nixpkgs' does (``strip --strip-debug``), shows their names. Debian's has
    none, and its version decides; no directory's name does. It concerns code that HIP itself selects. comgr, which unpacks
    compressed bundles, is not patched.

    :param runtime: the soname of the HIP runtime, or its name without the version.
    """
    names = (runtime, *(f"{runtime}.{major}" for major in (7, 6, 5)))
    for provider in providers:
        path = next((place for name in names if (place := provider.find(name))), None)
        if path is None:
            continue
        with contextlib.suppress(OSError), map_file(os.path.realpath(path)) as library:
            if function := next((name.decode() for name in _FUNCTIONS if library.find(name) >= 0), None):
                return f"the HIP of {provider.path}, which has the patch's function {function}"
        real = posixpath.join(posixpath.dirname(path), os.path.basename(os.path.realpath(path)))
        found = _DEBIAN.search(real)
        build = tuple(map(int, found.groups())) if found else ()
        if _DEBIAN_BUILDS[0] <= build < _DEBIAN_BUILDS[1]:
            return "Debian's HIP before 6.4.3"
        return None
    return None


PREFIXES = {"debian": "/usr", "fedora": "/usr", "arch": "/opt/rocm"}
"""Where the packages of each family of distributions put ROCm's libraries."""


def _removal() -> Any:
    """Return the module that knows how code is taken out."""
    from relink.gpu.amd import removal  # noqa: PLC0415 - for --only-gpu, and wheels made with it, alone

    return removal


def where_to_get(soname: str, distribution: Distribution | None, providers: Iterable[Provider]) -> str | None:
    """Return which package of the target's distribution brings a library, or None where it is no part of ROCm that is known.

    Where the distribution, or what it calls the package, is not known, the sentence names the component and no command.

    :param distribution: the target's.
    :param providers: where one of them is in a Nix store, the sentence names the attribute of nixpkgs.
    """
    component = facts.who_has(soname)
    if component is None:
        return None
    nix = any(provider.kind == NIX_STORE for provider in providers)
    part = f"{soname} is part of {component.name}"
    if nix or (distribution is not None and distribution.family == "nixos"):
        known = component.attribute is not None and soname in component.of(None)
        return f"{part}: {component.attribute} in nixpkgs." if known else f"{part}."
    command = _command(soname, distribution, providers)
    if distribution is None or command is None:
        return f"{part}."
    same = "" if distribution.family == "debian" else ", if its release has this version"
    return f"{part}; on {distribution.name}: {command}{same}."


def install(soname: str, distribution: Distribution | None, providers: Iterable[Provider]) -> str | None:
    """Return the command of the target's distribution that installs a library of that soname or of the same ABI, or None.

    Only Debian's packages are named by the soname; elsewhere the release that is installed may have another.
    """
    return (
        _command(soname, distribution, providers)
        if distribution and distribution.family == "debian"
        else None
    )


def _command(soname: str, distribution: Distribution | None, providers: Iterable[Provider]) -> str | None:
    """Return the command that installs the package of a library where the providers would have it then."""
    component, providers = facts.who_has(soname), tuple(providers)
    if component is None or distribution is None or any(provider.kind == NIX_STORE for provider in providers):
        return None
    # A package puts nothing into another prefix than the system's.
    prefix = PREFIXES.get(distribution.family or "")
    if prefix is None or (providers and all(provider.path != prefix for provider in providers)):
        return None
    own = [release for provider in providers if (release := places.release_of(provider))]
    # Debian names the package by the soname: that of the same ABI under another number serves as well.
    equal = [name for name in component.debian if facts.same_abi(soname, name)]
    packages = (component.package(name, distribution.family) for name in dict.fromkeys([soname, *equal]))
    wanted = own[0].release if own else None
    others = [name for each in facts.rocm_facts().components for name in each.debian.values()]
    commands = (distribution.command(package, wanted, others) for package in packages if package)
    return next(filter(None, commands), None)


rocm = Vendor(
    name=facts.ROCM,
    product="ROCm",
    libraries=Libraries(
        runtime="libamdhip64.so",
        runtime_libraries=("libamdhip64.so", "libamd_comgr.so", "libhsa-runtime64.so"),
        runtime_name="HIP runtime",
        is_own=facts.is_own,
        has=facts.has,
        is_runtime=facts.is_runtime,
        # The driver of AMD's GPUs is a module of the kernel (amdgpu), and each library is ROCm's or the system's.
        is_driver=lambda _: False,
        driver_file="/dev/kfd",
        of_host=lambda soname: facts.rocm_facts().of_host.get(soname_stem(soname)),
        needs_host=lambda root: device.is_wsl(root),  # noqa: PLW0108 (looked up when it is asked)
        same_abi=facts.same_abi,
        copy_of=lambda soname: facts.rocm_facts().copies.get(soname),  # noqa: PLW0108 (read when it is asked)
        optional=lambda soname: facts.rocm_facts().stubs.get(soname_stem(soname)),
        text_of=lambda name: facts.rocm_facts().texts.get(name),  # noqa: PLW0108 (the same)
        whose=facts.whose,
        dlopens_of=facts.dlopens_of,
        components=lambda: facts.rocm_facts().components,
        package_set="rocmPackages",
        package_support="rocmSupport",
        torch_variable="hip",
        words=("rocm", "hip"),
        where_to_get=where_to_get,
        install=install,
        release_of=places.release_of,
    ),
    places=Places(
        variable="ROCM_PATH",
        named=places.find_named,
        find=places.find_places,
        choose=places.choose_place,
        find_beside=places.find_places_beside,
        prefix_of_libraries=places.prefix_of_libraries,
    ),
    packages=Packages(
        version_label=facts.VERSION_LABEL,
        is_package=places.is_package,
        is_distribution=places.is_distribution,
        bundles=places.bundles,
        device_note=places.device_note,
        narrow=places.narrow,
        find_site=places.find_site,
        open_site=places.open_site,
        packages_of=places.packages_of,
        site_findings=places.site_findings,
        preload_lines=places.preload_lines,
    ),
    gpus=Gpus(
        examples=("gfx1031", "RX 6750 XT"),
        read_code=read_device_code,
        kernel_suffixes=(".co", ".hsaco"),
        signatures=(CCOB_MAGIC, RAW_MAGIC[:4], b"\x7fELF"),
        compare_code=same_device_code,
        remove_code=lambda *of: _removal().remove_other_code(*of),
        find_changed_entries=lambda *of: _removal().find_changed_entries(*of),
        list_other_files=lambda *of: _removal().list_other_files(*of),
        add_archives=with_archives,
        parse=device.parse_gpu,
        find_local=device.find_local,
        products=lambda: {name: one.products for name, one in table().processors.items()},
        check=check_wheel,
        survey=survey,
        diagnose=diagnose,
        kernel_directories=KERNEL_DIRECTORIES,
        variables=("ROCM_*", "HIP_*", "HSA_*"),
        runtime_words=RUNTIME_WORDS,
    ),
)
"""ROCm, as the registry lists it."""
