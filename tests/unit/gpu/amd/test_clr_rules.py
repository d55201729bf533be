"""CLR's rules, which comgr does not decide: which code of a bundle HIP takes, and what older releases of HIP load.

Each table names the file and the release that it follows: ``rocm-systems`` is its projects/clr at commit 02ba0621, a tag or a
branch is one of ROCm/clr.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.elf.source import BufferSource
from relink.gpu.amd.device_code import read_device_code
from relink.gpu.amd.runtime import capability_of, check, needs_of
from relink.gpu.amd.target_id import CodeTarget, match, parse_target_id, table
from relink.gpu.coverage import TargetId
from tests.unit.gpu.amd.build import ccob, entries_of, library, raw
from tests.unit.gpu.amd.test_runtime import READER_2, READER_3, lib

# hipamd/src/hip_fatbin.cpp, TargetGenericMap; rocm-systems.
GENERIC = {
    "gfx9-generic": ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"),
    "gfx9-4-generic": ("gfx942", "gfx950"),
    "gfx10-1-generic": ("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
    "gfx10-3-generic": ("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    "gfx11-generic": ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    "gfx12-generic": ("gfx1200", "gfx1201"),
}
# A later one has gfx1250 → gfx12-5-generic (rocm-systems#9741).
LATER = {"gfx12-5-generic": ("gfx1250",)}


def test_the_generic_target_of_each_processor() -> None:
    ours = {name: tuple(one.members) for name, one in table().generics.items() if one.members}
    assert {name: set(members) for name, members in ours.items()} == {
        name: set(members) for name, members in (GENERIC | LATER).items()
    }


@pytest.mark.parametrize(
    ("held", "agent", "way"),
    [
        # hipamd/src/hip_fatbin.cpp, ExtractFatBinaryUsingCOMGR: native, then generic, then SPIR-V; rocm-systems.
        (("gfx1100", "gfx11-generic", "amdgcnspirv"), "gfx1100", "native"),
        (("gfx11-generic", "amdgcnspirv"), "gfx1100", "generic"),
        (("amdgcnspirv",), "gfx1100", "spirv"),
        (("gfx1101", "amdgcnspirv"), "gfx1100", "spirv"),
        (("gfx1101",), "gfx1100", None),
        # TargetToGeneric: the features of the GPU are those that the generic code must agree with.
        (("gfx9-4-generic:xnack-",), "gfx942:sramecc+:xnack-", "generic"),
        (("gfx9-4-generic:xnack+",), "gfx942:sramecc+:xnack-", None),
        (("gfx942:xnack+", "gfx9-4-generic"), "gfx942:sramecc+:xnack-", "generic"),
        (("gfx9-generic",), "gfx90a:sramecc+:xnack-", None),
    ],
)
def test_which_code_is_taken(held: tuple[str, ...], agent: str, way: str | None) -> None:
    codes = [CodeTarget(parse_target_id(one), 1 if "generic" in one else None) for one in held]
    assert match(codes, parse_target_id(agent)).via == ((way,) if way else ())


RAW, GENERIC_CODE = raw(entries_of("gfx1100")), raw(entries_of("gfx11-generic"))
SPIRV = raw({"hipv4-spirv64-amd-amdhsa--amdgcnspirv": b"\x03\x02\x23\x07" * 20})
BUNDLES, OBJECTS = "compressed bundles (CCOB)", "code objects"


@pytest.mark.parametrize(
    ("hip", "comgr", "knows", "data", "what", "verdict"),
    [
        # hip_fatbin.cpp of rocm-5.6.0, 6.0.0 and 6.1.2: the magic of compressed bundles is not known.
        ("5.6.31061", "amd_comgr_2.8", (READER_2,), ccob(RAW, 2), BUNDLES, "no"),
        ("6.1.40093", "amd_comgr_2.8", (READER_2,), ccob(RAW, 2), BUNDLES, "no"),
        # rocm-6.2.0: "which need comgr 2.8+"; what comgr reads is comgr's.
        ("6.2.41133", "amd_comgr_2.6", (READER_2,), ccob(RAW, 2), BUNDLES, "no"),
        ("6.2.41133", "amd_comgr_2.8", (READER_2,), ccob(RAW, 2), BUNDLES, "ok"),
        ("6.2.41133", "amd_comgr_2.8", (READER_2,), ccob(RAW, 3), BUNDLES, "no"),
        ("7.1.52802", "amd_comgr_2.8", (READER_2, READER_3), ccob(RAW, 3), BUNDLES, "ok"),
        # release/rocm-rel-6.3.0.1: amd_hsa_elf.hpp ends at V5, and nothing has a word of generic targets or SPIR-V.
        ("6.3.42133", "amd_comgr_2.8", (), RAW, OBJECTS, "no"),
        ("6.3.42133", "amd_comgr_2.8", (), GENERIC_CODE, "generic targets", "no"),
        ("6.3.42133", "amd_comgr_2.8", ("amdgcnspirv",), SPIRV, "SPIR-V code", "no"),
        # Debian's 6.4.3, by its bytes.
        ("6.4.43484", "amd_comgr_2.8", ("gfx11-generic",), GENERIC_CODE, "generic targets", "ok"),
        ("6.4.43484", "amd_comgr_2.8", ("gfx11-generic",), RAW, OBJECTS, "ok"),
    ],
)
def test_what_a_release_loads(
    tmp_path: Path, hip: str, comgr: str, knows: tuple[str, ...], data: bytes, what: str, verdict: str
) -> None:
    own = [one for one in knows if one == "gfx11-generic"]
    runtime = capability_of(
        hip=str(lib(tmp_path / f"libamdhip64.so.{hip}", *own)),
        comgr=str(lib(tmp_path / "libamd_comgr.so.2", *knows, versions=comgr)),
        hsa=str(lib(tmp_path / "libhsa-runtime64.so.1", *own)),
    )
    code = read_device_code(BufferSource(library([data])), "x")
    verdicts = {row.what: row.verdict for row in check(needs_of([code], [TargetId("gfx1100")]), runtime)}
    assert verdicts[what] == verdict
