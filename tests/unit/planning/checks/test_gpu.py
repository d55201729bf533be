"""GPU checks of a plan: built bundles and libraries, a made-up runtime, a recorded KFD tree."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.elf.source import BufferSource
from relink.gpu.amd.device_code import DeviceCode, read_device_code
from relink.gpu.amd.findings import Library, check_gpus
from relink.gpu.amd.runtime import Capability
from relink.gpu.coverage import GpuPlan, RequestedGpu, TargetId
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import find_target
from relink.planning.checks.gpu import find_changed_code, list_reached_libraries, plan_gpus
from relink.planning.model import FilePlan, InterpreterChange, NeededDecision, RpathChange
from relink.planning.resolve.context import ResolveContext
from relink.providers.prefix import Provider
from relink.providers.profiles import NO_PROFILE, PackageRelease, Profile, profile_for, read_profile
from relink.system.errors import UsageError
from relink.system.findings.model import Finding
from relink.system.text import join_with_and
from relink.vendors.registry import requested_gpus
from relink.vendors.rocm.vendor import read_libraries, rocm, runtime_capability
from tests.unit.gpu.amd.build import ccob, entries_of, library, raw
from tests.unit.gpu.amd.test_device import node
from tests.unit.gpu.amd.test_runtime import READER_2, READER_3, lib

RUNTIME = Capability(
    hip=(7, 2),
    comgr_api=(3, 1),
    ccob=3,
    code_object=6,
    generic=True,
    spirv=True,
    kpack=False,
    agents=("gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1031", "gfx1100"),
    jit=("gfx90a", "gfx1030", "gfx1031", "gfx1100"),
)
MEMBER = "pkg/libwheel.so"


def code(*bundles: bytes, path: str = MEMBER) -> DeviceCode:
    return read_device_code(BufferSource(library(list(bundles))), path)


def wheel(*targets: str) -> dict[str, DeviceCode]:
    return {MEMBER: code(raw(entries_of(*targets)))}


def gpus(*names: str) -> tuple[RequestedGpu, ...]:
    return requested_gpus(names)


def rocblas(directory: Path, tuned: Sequence[str], fallback: Sequence[str] = ()) -> Library:
    """A librocblas.so.5 with kernel files beside it."""
    kernels = directory / "rocblas" / "library"
    kernels.mkdir(parents=True)
    for name in (*tuned, *fallback):
        (kernels / f"TensileLibrary_lazy_{name}.dat").touch()
        (kernels / f"Kernels.so-000-{name}.hsaco").touch()
    for name in tuned:
        (kernels / f"TensileLibrary_Type_SS_Contraction_{name}.co").touch()
    path = directory / "librocblas.so.5"
    path.write_bytes(library([raw(entries_of(*tuned, *fallback))]))
    (found,) = read_libraries([("librocblas.so.5", str(path))])
    return found


def hipblaslt(directory: Path, *targets: str) -> Library:
    kernels = directory / "hipblaslt" / "library"
    kernels.mkdir(parents=True)
    for name in targets:
        (kernels / f"TensileLibrary_lazy_{name}.dat").touch()
        (kernels / f"TensileLibrary_SS_{name}.co").touch()
    path = directory / "libhipblaslt.so.1"
    path.write_bytes(library())
    (found,) = read_libraries([("libhipblaslt.so.1", str(path))])
    return found


def only(plan: GpuPlan, code: str) -> Finding:
    (found,) = (item for item in plan.findings if item.code == code)
    return found


def codes(plan: GpuPlan) -> list[str]:
    return [item.code for item in plan.findings]


def test_a_covered_gpu_has_nothing_but_the_info() -> None:
    plan = check_gpus(wheel("gfx1030", "gfx1100"), (), RUNTIME, gpus("gfx1030"))
    assert codes(plan) == ["RLK407"]
    assert only(plan, "RLK407").level == "info"
    assert only(plan, "RLK407").message == "runs on gfx1030 and gfx1100"
    (gpu,) = plan.block["gpus"]
    assert gpu["covered"] is True
    assert gpu["levels"] == {MEMBER: "full"}


def test_the_sentence_for_the_owner_of_an_rx_6750_xt(tmp_path: Path) -> None:
    blas = rocblas(tmp_path, ["gfx1030", "gfx1100"])
    plan = check_gpus(wheel("gfx1030", "gfx1100"), [blas], RUNTIME, gpus("RX 6750 XT"))
    found = only(plan, "RLK401")
    assert (found.level, found.subject) == ("error", "gfx1031")
    assert found.message == (
        "the wheel has code for gfx1030 and gfx1100, none for gfx1031 (RX 6750 XT): it is missing from libwheel.so "
        "(none of 1 bundles); and of the ROCm libraries it reaches librocblas.so.5 (rocBLAS) has none for gfx1031"
    )
    override, rebuild = found.remedy.index("HSA_OVERRIDE_GFX_VERSION=10.3.0"), found.remedy.index("ebuild")
    assert override < rebuild
    assert "a workaround that AMD does not support" in found.remedy
    assert (
        "rebuild libwheel.so and rocBLAS with GPU_TARGETS=gfx1030;gfx1031;gfx1100 (or gfx10-3-generic"
        in found.remedy
    )
    assert "--allow-isa-gap" in found.remedy
    (gpu,) = plan.block["gpus"]
    assert gpu["covered"] is False
    assert [way["kind"] for way in gpu["remedies"]] == ["override", "rebuild", "rebuild"]


def test_a_hip_that_takes_related_code_by_a_patch(tmp_path: Path) -> None:
    """A warning with the reason; not where the code is compressed, nor on a GPU that the patch does not name."""
    blas = rocblas(tmp_path, ["gfx1030", "gfx1100"])
    covered = [blas], RUNTIME, gpus("RX 6750 XT")
    found = only(check_gpus(wheel("gfx1030", "gfx1100"), *covered, extended="nixpkgs' HIP"), "RLK401")
    assert found.level == "warning"
    assert found.message.endswith("; nixpkgs' HIP takes the code for gfx1030 there by a patch")
    assert "AMD does not support it" in found.remedy
    without = only(check_gpus(wheel("gfx1100"), *covered, extended="nixpkgs' HIP"), "RLK401")
    assert without.level == "error"
    other = check_gpus(wheel("gfx1100"), (), RUNTIME, gpus("gfx1101"), extended="nixpkgs' HIP")
    assert only(other, "RLK401").level == "error"
    packed = {
        name: replace(code, bundles=tuple(dataclasses.replace(b, container="ccob-v3") for b in code.bundles))
        for name, code in wheel("gfx1030").items()
    }
    assert (
        only(check_gpus(packed, (), RUNTIME, gpus("gfx1031"), extended="nixpkgs' HIP"), "RLK401").level
        == "error"
    )


def test_another_release_comes_first() -> None:
    releases = [("demo 1.0", ("gfx1031",)), ("demo 2.0", ("gfx1100",))]
    plan = check_gpus(wheel("gfx1030"), (), RUNTIME, gpus("gfx1031"), releases=releases)
    remedy = only(plan, "RLK401").remedy
    assert remedy.startswith("Use demo 1.0: it has code for gfx1031; or set HSA_OVERRIDE")
    assert "demo 2.0" not in remedy


def test_code_that_a_compiler_makes_and_no_runtime_takes() -> None:
    found = only(check_gpus(wheel("gfx11-generic"), (), RUNTIME, gpus("gfx1154")), "RLK401")
    assert found.message.endswith(
        "; LLVM compiles gfx11-generic for gfx1154, and no released runtime maps it"
    )


def test_a_gap_that_is_allowed_is_a_warning() -> None:
    plan = check_gpus(wheel("gfx1030"), (), RUNTIME, gpus("gfx1100"), allow_gap=True)
    assert only(plan, "RLK401").level == "warning"
    assert "--allow-isa-gap" not in only(plan, "RLK401").remedy


@pytest.mark.parametrize(
    ("asked", "levels"),
    [
        (("gfx1030", "gfx1100"), {"gfx1100": "warning"}),
        (("gfx900", "gfx906"), {"gfx900": "error", "gfx906": "error"}),
    ],
)
def test_of_several_gpus_one_has_to_run_the_wheel(asked: tuple[str, ...], levels: dict[str, str]) -> None:
    """Whatever gap is allowed: a ROCm that is built for a family is for whoever has one GPU of it."""
    plan = check_gpus(wheel("gfx1030"), (), RUNTIME, gpus(*asked), allow_gap=True)
    assert {found.subject: found.level for found in plan.findings if found.code == "RLK401"} == levels


def test_a_library_that_takes_away_what_the_wheel_has(tmp_path: Path) -> None:
    blas = rocblas(tmp_path, ["gfx1030"])
    plan = check_gpus(wheel("gfx1030", "gfx1100"), [blas], RUNTIME, gpus("gfx1100"))
    found = only(plan, "RLK401")
    assert found.message.startswith("the wheel has code for gfx1030 and gfx1100; gfx1100")
    assert "of the ROCm libraries it reaches librocblas.so.5 (rocBLAS) has none for gfx1100" in found.message
    assert "libwheel.so" not in found.message
    info = only(check_gpus(wheel("gfx1030", "gfx1100"), [blas], RUNTIME), "RLK407")
    assert info.message == "runs on gfx1030; librocblas.so.5 has no full code for gfx1100"


def test_partial_coverage_is_a_warning_with_the_numbers() -> None:
    mixed = {MEMBER: code(raw(entries_of("gfx1030", "gfx1100")), raw(entries_of("gfx1030")))}
    plan = check_gpus(mixed, (), RUNTIME, gpus("gfx1100"))
    assert codes(plan) == ["RLK407", "RLK402"]
    assert only(plan, "RLK402").level == "warning"
    assert "in 1 of its 2 bundles" in only(plan, "RLK402").message


def test_code_for_one_setting_of_xnack() -> None:
    plan = check_gpus(wheel("gfx90a:xnack+"), (), RUNTIME, gpus("gfx90a:sramecc+"))
    assert "xnack+" in only(plan, "RLK403").message
    assert "under a condition on gfx90a" in only(plan, "RLK407").message


def test_what_cannot_be_read_is_unknown_and_not_covered() -> None:
    broken = {MEMBER: code(raw(entries_of("gfx1030")), b"CCOB\x09\x00\x01\x00" + bytes(4096))}
    plan = check_gpus(broken, (), RUNTIME, gpus("gfx1030"))
    assert only(plan, "RLK404").level == "warning"
    assert "RLK410" in codes(plan)
    assert plan.block["gpus"][0]["covered"] is False


def test_slow_kernels(tmp_path: Path) -> None:
    blas = rocblas(tmp_path, ["gfx1030"], ["gfx1100"])
    plan = check_gpus(wheel("gfx1100"), [blas], RUNTIME, gpus("gfx1100"))
    assert only(plan, "RLK408").level == "warning"
    assert "rocBLAS has only untuned kernels for gfx1100" in only(plan, "RLK408").message
    assert "RLK401" not in codes(plan)
    assert plan.block["gpus"][0]["covered"] is True


@pytest.mark.parametrize("reached", [True, False])
def test_hipblaslt_without_kernels_is_a_warning(tmp_path: Path, reached: bool) -> None:
    lt = hipblaslt(tmp_path, "gfx90a")
    libraries, beside = ([lt], []) if reached else ([], [lt])
    plan = check_gpus(wheel("gfx90a", "gfx942"), libraries, RUNTIME, gpus("gfx942"), beside=beside)
    found = only(plan, "RLK409")
    assert found.level == "warning"
    assert "this prefix's hipBLASLt has no kernels for gfx942 (MI300A, MI300X, MI325X)" in found.message
    assert "it has those for gfx90a" in found.message
    assert ("names it" in found.message) is not reached
    assert "RLK401" not in codes(plan)
    covered = check_gpus(wheel("gfx90a", "gfx942"), libraries, RUNTIME, gpus("gfx90a"), beside=beside)
    assert "RLK409" not in codes(covered)


def test_an_optional_library_with_untuned_kernels_is_no_gap(tmp_path: Path) -> None:
    lt = hipblaslt(tmp_path, "gfx90a")
    kernels = tmp_path / "hipblaslt" / "library"
    for name in ("TensileLibrary_lazy_gfx942.dat", "TensileLibrary_SS_fallback_gfx942.hsaco"):
        (kernels / name).touch()
    (again,) = read_libraries([("libhipblaslt.so.1", lt.coverage.path)])
    assert again.coverage.level(TargetId("gfx942")).state == "slow"
    plan = check_gpus(wheel("gfx942"), [again], RUNTIME, gpus("gfx942"))
    assert "RLK409" not in codes(plan)


V3 = {MEMBER: code(ccob(raw(entries_of("gfx1030"))))}
GENERIC = wheel("gfx10-3-generic")


@pytest.mark.parametrize(
    ("held", "runtime", "named", "level"),
    [
        (V3, replace(RUNTIME, ccob=2), (), "error"),
        (V3, replace(RUNTIME, ccob=2), ("gfx1030",), "error"),
        (V3, replace(RUNTIME, code_object=5), (), "error"),
        (GENERIC, replace(RUNTIME, generic=False), ("gfx1030",), "error"),
        (GENERIC, replace(RUNTIME, generic=False), (), "warning"),
        (wheel("gfx1030"), replace(RUNTIME, agents=("gfx1100",)), ("gfx1030",), "error"),
    ],
)
def test_what_the_runtime_cannot_load(
    held: dict[str, DeviceCode], runtime: Capability, named: tuple[str, ...], level: str
) -> None:
    plan = check_gpus(held, (), runtime, gpus(*named))
    assert only(plan, "RLK405").level == level
    assert {row["verdict"] for row in plan.block["requirements"]} >= {"no"}
    allowed = check_gpus(held, (), runtime, gpus(*named), allow_gap=True)
    assert only(allowed, "RLK405").level == "warning"


def test_the_message_names_file_need_and_what_there_is() -> None:
    plan = check_gpus(V3, (), replace(RUNTIME, ccob=2), ())
    assert only(plan, "RLK405").message == (
        "libwheel.so needs version 3 of compressed bundles (CCOB), this prefix's runtime has: up to 2"
    )


def test_the_file_with_the_strongest_demand_is_named() -> None:
    bundle = raw(entries_of("gfx1030"))
    held = {f"pkg/v{n}.so": code(ccob(bundle, n), path=f"pkg/v{n}.so") for n in (2, 3)}
    plan = check_gpus(held, (), replace(RUNTIME, ccob=1))
    assert only(plan, "RLK405").message.startswith("v3.so needs version 3 of compressed bundles (CCOB), ")
    row = next(row for row in plan.block["requirements"] if "CCOB" in row["what"])
    assert (row["files"], row["needed"]) == (["pkg/v3.so"], "version 3")


@pytest.mark.parametrize(("named", "level"), [((), "info"), (("gfx1030",), "warning")])
def test_unknown_is_never_ok(named: tuple[str, ...], level: str) -> None:
    plan = check_gpus(V3, (), Capability(), gpus(*named))
    unknown = [item for item in plan.findings if item.code == "RLK406"]
    assert {item.level for item in unknown} == {level}
    assert any("CCOB" in item.message and "unknown" in item.message for item in unknown)
    assert "RLK405" not in codes(plan)
    assert {row["verdict"] for row in plan.block["requirements"]} == {"unknown"}


def test_a_library_of_the_prefix_can_be_too_new_for_its_runtime(tmp_path: Path) -> None:
    path = tmp_path / "librocsolver.so.0"
    path.write_bytes(library([ccob(raw(entries_of("gfx1030")))]))
    libraries = read_libraries([("librocsolver.so.0", str(path))])
    plan = check_gpus(wheel("gfx1030"), libraries, replace(RUNTIME, ccob=2))
    assert "librocsolver.so.0 needs version 3" in only(plan, "RLK405").message


def test_kernels_compiled_on_first_use_need_comgr(tmp_path: Path) -> None:
    path = tmp_path / "libMIOpen.so.1"
    path.write_bytes(library())
    libraries = read_libraries([("libMIOpen.so.1", str(path))])
    plan = check_gpus({MEMBER: code()}, libraries, RUNTIME, gpus("gfx906"))
    assert "gfx906 in comgr" in only(plan, "RLK405").message
    assert "RLK405" not in codes(check_gpus({MEMBER: code()}, libraries, RUNTIME, gpus("gfx1031")))
    info = only(check_gpus({MEMBER: code()}, libraries, RUNTIME), "RLK407").message
    assert "compiled on first use" in info
    assert "libMIOpen.so.1 (MIOpen)" in info


def test_a_wheel_without_anything_for_gpus_says_nothing() -> None:
    assert codes(check_gpus({MEMBER: code()}, (), None)) == []


def test_auto_takes_the_gpus_of_the_machine(tmp_path: Path) -> None:
    node(tmp_path, 1, gfx_target_version=100301)
    node(tmp_path, 2, gfx_target_version=100306)
    node(tmp_path, 3, gfx_target_version=100301)
    found = requested_gpus(["auto"], str(tmp_path), {})
    assert [str(gpu.target) for gpu in found] == ["gfx1031", "gfx1036"]
    assert all(gpu.local for gpu in found)
    assert str(found[0]) == "gfx1031 (RX 6700, RX 6700 XT, RX 6750 XT)"


def test_one_covered_gpu_of_the_machine_makes_the_others_a_warning(tmp_path: Path) -> None:
    node(tmp_path, 1, gfx_target_version=100300)
    node(tmp_path, 2, gfx_target_version=110000)
    local = requested_gpus(["auto"], str(tmp_path), {})
    plan = check_gpus(wheel("gfx1030"), (), RUNTIME, local)
    assert (only(plan, "RLK401").subject, only(plan, "RLK401").level) == ("gfx1100", "warning")
    both = check_gpus(wheel("gfx1030"), (), RUNTIME, [*local, *gpus("gfx906")])
    assert {item.subject: item.level for item in both.findings if item.code == "RLK401"} == {
        "gfx1100": "warning",
        "gfx906": "error",
    }
    named = check_gpus(wheel("gfx1030"), (), RUNTIME, gpus("gfx1030", "gfx1100"))
    assert only(named, "RLK401").level == "error"


def test_auto_with_an_override(tmp_path: Path) -> None:
    node(tmp_path, 1, gfx_target_version=100301)
    (gpu,) = requested_gpus(["auto"], str(tmp_path), {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"})
    assert str(gpu) == "gfx1030 (gfx1031 by HSA_OVERRIDE_GFX_VERSION)"
    plan = check_gpus(wheel("gfx1030"), (), RUNTIME, [gpu])
    assert only(plan, "RLK413").level == "warning"
    assert "RLK401" not in codes(plan)


def test_auto_without_a_gpu_and_a_name_that_means_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="auto finds no GPU: no KFD topology"):
        requested_gpus(["auto"], str(tmp_path), {})
    with pytest.raises(UsageError, match="Voodoo"):
        requested_gpus(["Voodoo 2"])


def test_names_and_target_ids_are_one_gpu() -> None:
    found = requested_gpus(["gfx1031", "RX 6750 XT", "GFX90A:xnack-"])
    assert [str(gpu.target) for gpu in found] == ["gfx1031", "gfx90a:xnack-"]


def needed(soname: str) -> NeededDecision:
    return NeededDecision(soname, "keep", soname, None, None, "provider")


def file_plan(path: str, closure: Sequence[tuple[str, str]], *sonames: str, served: bool = True) -> FilePlan:
    return FilePlan(
        path,
        "nothing",
        tuple(needed(name) for name in sonames),
        RpathChange(None, None, None, None),
        InterpreterChange(None, None),
        tuple(closure),
        served,
    )


@pytest.fixture
def provider(tmp_path: Path) -> Provider:
    """A prefix with a runtime, rocBLAS, hipBLASLt and a library without device code."""
    where = tmp_path / "rocm" / "lib"
    where.mkdir(parents=True)
    lib(where / "libamdhip64.so.6", "libamd_comgr.so.3", versions="hip_6.4")
    lib(where / "libamdhip64.so.7", "gfx11-generic", "libamd_comgr.so.3", versions="hip_7.2")
    lib(where / "libamd_comgr.so.3", READER_2, READER_3, versions="amd_comgr_2.8")
    lib(where / "libhsa-runtime64.so.1", "gfx11-generic")
    rocblas(where, ["gfx1030"])
    hipblaslt(where, "gfx90a")
    names = [path.name for path in where.iterdir() if ".so" in path.name and path.suffix != ".map"]
    libraries = {name: (str(where / name),) for name in sorted(names)}
    header = tmp_path / "rocm" / "include" / "rocm_version.h"
    header.parent.mkdir()
    numbers = zip(("MAJOR", "MINOR", "PATCH"), (7, 2, 4), strict=True)
    header.write_text("".join(f"#define ROCM_VERSION_{part} {number}\n" for part, number in numbers))
    return Provider("prefix", str(tmp_path / "rocm"), (str(where),), libraries)


def context_of(provider: Provider, profile: Profile = NO_PROFILE) -> ResolveContext:
    return ResolveContext(find_target(), Tables(Files()), (provider,), {}, profile=profile, vendor=rocm)


def closure_of(provider: Provider, *names: str) -> list[tuple[str, str]]:
    return [(name, provider.libraries[name][0]) for name in names]


def test_only_what_the_served_files_reach_is_read(provider: Provider) -> None:
    directory = provider.directories[0]
    files = [
        file_plan("a.so", [*closure_of(provider, "librocblas.so.5"), ("libc.so.6", "/lib/libc.so.6")]),
        file_plan("b.so", [("librocblas.so.5", f"{directory}/../lib/librocblas.so.5")]),
        file_plan("c.so", closure_of(provider, "libhipblaslt.so.1"), served=False),
    ]
    assert list_reached_libraries(files, [provider]) == (("librocblas.so.5", f"{directory}/librocblas.so.5"),)


def test_the_whole_check_of_a_plan(provider: Provider) -> None:
    reached = closure_of(provider, "libamdhip64.so.7", "librocblas.so.5", "libamd_comgr.so.3")
    files = [
        file_plan(MEMBER, reached, "libamdhip64.so.7"),
        file_plan("pkg/variant.so", reached, served=False),
    ]
    held = {**V3, "pkg/variant.so": code(raw(entries_of("gfx906")))}
    plan = plan_gpus(context_of(provider), held, files, gpus("gfx1030"))
    assert codes(plan) == ["RLK407", "RLK409", "RLK406"]
    assert only(plan, "RLK407").message == "runs on gfx1030"
    assert [item["path"] for item in plan.block["files"]] == [MEMBER]
    assert [item["name"] for item in plan.block["libraries"]] == ["rocBLAS"]
    assert plan.block["runtime"]["hip"] == "7.2"
    assert plan.block["runtime"]["rocm"] == "7.2.4"
    assert plan.block["runtime"]["ccob"] == 3


def test_a_library_that_comes_by_dlopen_counts(provider: Provider) -> None:
    files = [file_plan(MEMBER, closure_of(provider, "libamdhip64.so.7"), "libamdhip64.so.7")]
    opened = closure_of(provider, "librocblas.so.5")
    held = wheel("gfx1030", "gfx1100")
    assert "RLK401" in codes(plan_gpus(context_of(provider), held, files, gpus("gfx1100"), dlopened=opened))
    assert "RLK401" not in codes(plan_gpus(context_of(provider), held, files, gpus("gfx1100")))


def test_the_runtime_is_the_one_that_the_wheel_needs(provider: Provider) -> None:
    assert runtime_capability([provider], "libamdhip64.so.6").hip == (6, 4)
    assert runtime_capability([provider], "libamdhip64.so.7").hip == (7, 2)
    files = [file_plan(MEMBER, closure_of(provider, "libamdhip64.so.7"), "libamdhip64.so.6")]
    assert plan_gpus(context_of(provider), V3, files).block["runtime"]["hip"] == "6.4"


def test_releases_of_the_profile(provider: Provider) -> None:
    profile = Profile(
        "demo",
        ("demo",),
        releases=tuple(PackageRelease("demo", v, ("gfx1100",), "read") for v in ("1.0", "2.0")),
    )
    files = [file_plan(MEMBER, [])]
    context = context_of(provider, profile)
    plan = plan_gpus(context, V3, files, gpus("gfx1100"), release=("Demo", "2.0"))
    remedy = only(plan, "RLK401").remedy
    assert remedy.startswith("Use demo 1.0: it has code for gfx1100")
    assert "demo 2.0" not in remedy


RELEASE = 'distribution = "Demo_X"\nversion = "1.0"\ngpus = ["gfx1031"]\nsource = "read"\n'


def test_releases_are_read_from_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "demo.toml"
    path.write_text(f'schema = "relink.profile/1"\n[[releases]]\n{RELEASE}')
    assert read_profile(path).releases == (PackageRelease("demo-x", "1.0", ("gfx1031",), "read"),)
    shipped = profile_for("onnxruntime_rocm").releases
    assert {release.version for release in shipped} >= {"1.22.2.post3"}


@pytest.mark.parametrize(
    "rows",
    [
        "releases = 3",
        "releases = [3]",
        f"[[releases]]\n{RELEASE}more = 1",
        f"[[releases]]\n{RELEASE.replace('source', 'origin')}",
        "[[releases]]\n" + RELEASE.replace('"gfx1031"', ""),
        "[[releases]]\n" + RELEASE.replace('"gfx1031"', "3"),
    ],
)
def test_releases_that_are_not_right_are_named(tmp_path: Path, rows: str) -> None:
    path = tmp_path / "demo.toml"
    path.write_text(f'schema = "relink.profile/1"\n{rows}\n')
    with pytest.raises(UsageError, match=r"demo\.toml:\d: releases"):
        read_profile(path)


def test_device_code_that_an_edit_changed() -> None:
    (found,) = find_changed_code("a.so", ["bundle 0 moved from 0x1000 to 0x2000"])
    assert (found.code, found.level) == ("RLK411", "error")
    assert list(find_changed_code("a.so", [])) == []


def test_lists_in_words() -> None:
    assert [join_with_and(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert TargetId("gfx1031") in {gpu.target for gpu in gpus("rx 6700 xt")}


def test_a_gpu_that_was_only_seen_is_no_error(tmp_path: Path) -> None:
    blas = rocblas(tmp_path, ["gfx1030", "gfx1100"])
    seen = [replace(gpu, local=True, asked=False) for gpu in gpus("RX 6750 XT")]
    plan = check_gpus(wheel("gfx1030", "gfx1100"), [blas], RUNTIME, seen)
    found = only(plan, "RLK401")
    assert found.level == "warning"
    assert "--allow-isa-gap" not in found.remedy
    assert not [item for item in plan.findings if item.level == "error"]


def test_one_covered_gpu_of_several_that_were_seen_suffices() -> None:
    seen = [replace(gpu, local=True, asked=False) for gpu in gpus("gfx1030", "gfx1031")]
    plan = check_gpus(wheel("gfx1030"), (), RUNTIME, seen)
    assert [item.level for item in plan.findings if item.code == "RLK401"] == ["info"]
    assert [gpu["covered"] for gpu in plan.block["gpus"]] == [True, False]


def test_an_igpu_beside_a_card_that_runs_is_left_out() -> None:
    auto = [replace(gpu, local=True, numbers=(n,)) for n, gpu in enumerate(gpus("gfx1036", "gfx1100"))]
    plan = check_gpus(wheel("gfx1100"), (), RUNTIME, auto)
    found = only(plan, "RLK401")
    way = "HIP_VISIBLE_DEVICES=1 (gfx1100), which leaves out gfx1036, which HIP takes first"
    assert (found.level, found.remedy) == ("warning", f"Set {way}.")
    assert [
        [one["text"] for one in gpu["remedies"] if one["kind"] == "mask"] for gpu in plan.block["gpus"]
    ] == [
        [way],
        [],
    ]
    alone = only(check_gpus(wheel("gfx1100"), (), RUNTIME, auto[:1]), "RLK401")
    assert "HIP_VISIBLE_DEVICES" not in alone.remedy


@pytest.mark.parametrize(
    ("name", "expected"),
    [("gfx90a", "full"), ("gfx942", "full"), ("gfx1030", "slow"), ("gfx1031", "none"), ("gfx1100", "none")],
)
def test_the_state_of_a_gpu_is_what_relink_says_of_it(tmp_path: Path, name: str, expected: str) -> None:
    """None is what --gpu refuses, whatever --allow-isa-gap says; a hipBLASLt that no code reaches does not count."""
    own = wheel("gfx90a", "gfx942", "gfx1030")
    blas = rocblas(tmp_path, ["gfx90a", "gfx942", "gfx1100"], ["gfx1030"])
    beside = [hipblaslt(tmp_path / "beside", "gfx942")]
    plan = check_gpus(own, [blas], RUNTIME, gpus(name), beside=beside, allow_gap=True)
    strict = check_gpus(own, [blas], RUNTIME, gpus(name), beside=beside)
    assert not any(found.level == "error" for found in plan.findings)
    assert plan.block["gpus"][0]["state"] == strict.block["gpus"][0]["state"] == expected
    assert (expected == "none") == any(found.level == "error" for found in strict.findings)


def test_what_is_compiled_on_first_use() -> None:
    assert check_gpus({}, (), RUNTIME, gpus("gfx1031")).block["gpus"][0]["state"] == "jit"
    assert check_gpus({}, (), None, gpus("gfx1031")).block["gpus"][0]["state"] == "full"
