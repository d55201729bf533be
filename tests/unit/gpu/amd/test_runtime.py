"""What a runtime can load, from libraries made by a compiler with the marks that real ones have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relink.elf.source import BufferSource
from relink.gpu.amd.device_code import DeviceCode, read_device_code
from relink.gpu.amd.runtime import (
    Capability,
    DeviceCodeNeeds,
    Requirement,
    capability_of,
    check,
    find_runtime,
    needs_of,
)
from relink.gpu.coverage import TargetId
from tests.support.cc import shared
from tests.unit.gpu.amd.build import ccob, code_object, entries_of, kpack_archive, library, msgpack, raw

READER_2 = "Compressed bundle header size too small"
READER_3 = "COMPRESSED_BUNDLE_FORMAT_VERSION"


def lib(
    path: Path,
    *texts: str,
    versions: str = "",
    data: bytes = b"",
    soname: str | None = None,
    needed: tuple[Path, ...] = (),
) -> Path:
    """Compile a library that holds `texts`, the `versions` (a comma-separated list) and `data` in .data."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = versions.split(",") if versions else []
    script = path.parent / f"{path.name}.map"
    script.write_text("".join(f"{name} {{ global: f{i}; }};\n" for i, name in enumerate(names)))
    body = [f"void f{i}(void) {{}}" for i in range(len(names))]
    body += [f'const char text{i}[] = "{text}";' for i, text in enumerate(texts)]
    if data:
        body.append(f"unsigned char code[] __attribute__((aligned(16))) = {{{','.join(map(str, data))}}};")
    flags = [f"-Wl,--version-script={script}"] if names else []
    return shared(path, "\n".join(body), soname=soname, flags=flags, needed=needed)


@pytest.mark.parametrize("place", ["lib", "lib/x86_64-linux-gnu"])
def test_a_library_without_a_real_name_has_the_version_of_hips_header(tmp_path: Path, place: str) -> None:
    hip = lib(tmp_path / place / "libamdhip64.so.7", versions="hip_7.2")
    assert capability_of(hip=str(hip), comgr=None, hsa=None).hip == (7, 2)
    header = tmp_path / "include/hip/hip_version.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define HIP_VERSION_MAJOR 7\n#define HIP_VERSION_MINOR 15\n")
    assert capability_of(hip=str(hip), comgr=None, hsa=None).hip == (7, 2)  # torn
    header.write_text(header.read_text() + "#define HIP_VERSION_PATCH 26333\n")
    found = capability_of(hip=str(hip), comgr=None, hsa=None)
    assert (found.hip, found.hip_build) == ((7, 15), "7.15.26333")


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    where = tmp_path / "lib"
    hip = lib(
        where / "libamdhip64.so.7.2.53211",
        "gfx11-generic",
        "amdgcnspirv",
        "libamd_comgr.so.3",
        versions="hip_4.2,hip_7.2",
        soname="libamdhip64.so.7",
    )
    (where / "libamdhip64.so.7").symlink_to(hip.name)
    lib(
        where / "libamdhip64.so.6.4.43484", "libamd_comgr.so.3", versions="hip_6.4", soname="libamdhip64.so.6"
    )
    (where / "libamdhip64.so.6").symlink_to("libamdhip64.so.6.4.43484")
    lib(
        where / "libamd_comgr.so.3",
        READER_2,
        READER_3,
        "amdgcnspirv",
        "oclc_isa_version_90a.bc",
        "oclc_isa_version_9_4_generic.bc",
        "oclc_isa_version_1030.bc",
        versions="amd_comgr_2.8,amd_comgr3.1",
    )
    traps = b"".join(code_object(name) for name in ("gfx1030", "gfx90a:xnack+", "gfx1100"))
    lib(where / "libhsa-runtime64.so.1", "gfx11-generic", data=traps)
    (tmp_path / ".info").mkdir()
    (tmp_path / ".info/version").write_text("7.2.4-12345\n")
    return tmp_path


def test_a_whole_runtime(prefix: Path) -> None:
    found = find_runtime([prefix / "absent", prefix / "lib"], hip="libamdhip64.so.7")
    assert found.problems == ()
    assert (found.hip, found.hip_build) == ((7, 2), "7.2.53211")
    assert (found.comgr_api, found.ccob, found.code_object) == ((3, 1), 3, 6)
    assert (found.generic, found.spirv, found.kpack) == (True, True, False)
    assert found.agents == ("gfx90a", "gfx1030", "gfx1100")
    assert found.jit == ("gfx90a", "gfx9-4-generic", "gfx1030")
    assert json.loads(json.dumps(found.to_json()))["ccob"] == 3


def test_the_soname_picks_the_runtime_and_the_newest_is_taken_without(prefix: Path) -> None:
    old = find_runtime([prefix / "lib"], hip="libamdhip64.so.6")
    assert (old.hip, old.generic, old.spirv) == ((6, 4), False, False)
    assert find_runtime([prefix / "lib"]).hip == (7, 2)
    assert find_runtime([prefix / "lib"], hip="libamdhip64.so.9").hip is None


def test_what_is_absent_is_unknown_and_never_ok(tmp_path: Path) -> None:
    found = find_runtime([tmp_path])
    assert len(found.problems) == 3
    assert (found.hip, found.ccob, found.code_object, found.generic, found.kpack) == (None,) * 5
    block = found.to_json()
    assert {
        block[key]
        for key in (
            "hip",
            "rocm",
            "comgr",
            "ccob",
            "code_object",
            "generic",
            "spirv",
            "kpack",
            "agents",
            "jit",
        )
    } == {"unknown"}
    needs = DeviceCodeNeeds(ccob=3, code_object=6, generic=True, spirv=True, kpack=True, gpus=("gfx1030",))
    assert {row.verdict for row in check(needs, found)} == {"unknown"}


@pytest.mark.parametrize(
    ("texts", "versions", "hip", "ccob"),
    [
        ((READER_2, READER_3), "amd_comgr_2.8", "7.2.1", 3),
        ((READER_2, "exceeds version 2"), "amd_comgr_2.8", "7.2.1", 3),
        ((READER_2,), "amd_comgr_2.8", "7.2.1", 2),
        ((), "amd_comgr_2.8", "7.2.1", None),
        ((READER_2, READER_3), "amd_comgr_2.4", "7.2.1", 0),
        ((READER_2, READER_3), "amd_comgr_2.8", "6.1.9", 0),
        ((READER_2,), "", "7.2.1", None),
    ],
)
def test_readers_of_compressed_bundles(
    tmp_path: Path, texts: tuple[str, ...], versions: str, hip: str, ccob: int | None
) -> None:
    first = lib(tmp_path / f"libamdhip64.so.{hip}", "x")
    comgr = lib(tmp_path / "libamd_comgr.so.3", *texts, versions=versions)
    assert capability_of(hip=str(first), comgr=str(comgr), hsa=None).ccob == ccob


@pytest.mark.parametrize(
    ("clang", "llvm", "ccob"),
    [
        ((READER_2, READER_3), (), 3),
        ((READER_2,), ("exceeds version 2 unsigned 32-bit",), 2),
        ((), ("exceeds version 2 unsigned 32-bit",), 3),
    ],
)
def test_the_reader_may_be_in_a_library_that_comgr_needs(
    tmp_path: Path, clang: tuple[str, ...], llvm: tuple[str, ...], ccob: int
) -> None:
    needed = (lib(tmp_path / "libLLVM.so.23", "x", *llvm), lib(tmp_path / "libclang-cpp.so.23", "x", *clang))
    comgr = lib(tmp_path / "libamd_comgr.so.3", "x", versions="amd_comgr_2.8", needed=needed)
    hip = lib(tmp_path / "libamdhip64.so.7.9.0", "x")
    assert capability_of(hip=str(hip), comgr=str(comgr), hsa=None).ccob == ccob


@pytest.mark.parametrize(("version", "expected"), [("5.7.1", None), ("6.2.0", 5), ("6.4.0", 6)])
def test_code_objects_by_the_version_of_hip(tmp_path: Path, version: str, expected: int | None) -> None:
    hip = lib(tmp_path / f"libamdhip64.so.{version}", "x")
    assert capability_of(hip=str(hip), comgr=None, hsa=None).code_object == expected


def test_the_version_definitions_serve_where_the_name_does_not(tmp_path: Path) -> None:
    hip = lib(tmp_path / "libamdhip64.so", versions="hip_4.2,hip_6.10,hip_6.9")
    found = capability_of(hip=str(hip), comgr=None, hsa=None)
    assert (found.hip, found.to_json()["hip"]) == ((6, 10), "6.10")


def test_constants_are_looked_for_in_what_is_read_only_and_everywhere_without_sections(
    tmp_path: Path,
) -> None:
    path = lib(tmp_path / "libamdhip64.so.6", "gfx11-generic", data=b"amdgcnspirv")
    hsa = lib(tmp_path / "libhsa-runtime64.so.1", "gfx11-generic")
    found = capability_of(hip=str(path), comgr=None, hsa=str(hsa))
    assert (found.generic, found.spirv) == (True, False)  # what is written to is no constant
    for file in (path, hsa):
        data = bytearray(file.read_bytes())
        data[40:48] = bytes(8)  # e_shoff
        data[58:64] = bytes(6)  # e_shentsize, e_shnum, e_shstrndx
        file.write_bytes(data)
    comgr = lib(tmp_path / "libamd_comgr.so.3", "amdgcnspirv")
    found = capability_of(hip=str(path), comgr=str(comgr), hsa=str(hsa))
    assert (found.generic, found.spirv) == (True, True)


def test_hip_reads_kpack_if_it_is_linked_to_the_reader(tmp_path: Path) -> None:
    """Text and magic are in a HIP that was built without it, too (ROCM_KPACK_ENABLED): it fails at the first kernel."""
    text = lib(tmp_path / "without/libamdhip64.so.7", "HIPK", "kpack: archive not found")
    assert capability_of(hip=str(text), comgr=None, hsa=None).kpack is False
    reader = lib(tmp_path / "librocm_kpack.so.0")
    linked = lib(tmp_path / "with/libamdhip64.so.7", needed=(reader,))
    assert capability_of(hip=str(linked), comgr=None, hsa=None).kpack is True
    assert capability_of(hip=None, comgr=None, hsa=None).kpack is None


def test_libraries_that_are_none_are_problems(tmp_path: Path) -> None:
    (tmp_path / "libamdhip64.so.7").write_text("text")
    found = capability_of(hip=str(tmp_path / "libamdhip64.so.7"), comgr=str(tmp_path / "gone"), hsa=None)
    assert any("no 64-bit ELF" in p for p in found.problems)
    assert any("cannot be read" in p for p in found.problems)


def read(*bundles: bytes, **more: object) -> DeviceCode:
    return read_device_code(BufferSource(library(list(bundles), **more)), "x")  # type: ignore[arg-type]


def test_needs_of_a_file() -> None:
    code = read(ccob(raw(entries_of("gfx1100", "gfx11-generic")), 2), raw(entries_of("gfx1100")))
    assert needs_of([code]) == DeviceCodeNeeds(ccob=2, code_object=6, generic=True)
    assert needs_of([code], [TargetId("gfx1100")]).generic is False  # it has native code
    assert needs_of([read(raw(entries_of("gfx11-generic")))], [TargetId("gfx1100")]).generic is True
    spirv = raw({"hip-spirv64-amd-amdhsa--amdgcnspirv": b"\x03\x02\x23\x07" * 20})
    assert needs_of([read(spirv)]).spirv
    assert needs_of(
        [read(kpack=msgpack({"kernel_name": "x", "kpack_search_paths": []}), kpack_wrappers=1)]
    ).kpack
    assert (
        needs_of([read_device_code(BufferSource(kpack_archive({"x#0": ["gfx1100"]})), "x")])
        == DeviceCodeNeeds()
    )
    assert needs_of([]) == DeviceCodeNeeds()


def test_a_wheel_in_v3_and_a_comgr_that_reads_v2() -> None:
    has = Capability(
        hip=(6, 4), ccob=2, code_object=5, generic=False, spirv=True, kpack=False, agents=("gfx1100",)
    )
    needs = DeviceCodeNeeds(
        ccob=3, code_object=6, generic=True, spirv=True, kpack=True, gpus=("gfx1100", "gfx1201")
    )
    verdicts = {row.what: row.verdict for row in check(needs, has)}
    assert verdicts == {
        "compressed bundles (CCOB)": "no",
        "code objects": "no",
        "generic targets": "no",
        "SPIR-V code": "ok",
        "kpack archives": "no",
        "gfx1100 in the HSA runtime": "ok",
        "gfx1201 in the HSA runtime": "no",
    }
    assert check(needs, has)[0] == Requirement("compressed bundles (CCOB)", "version 3", "up to 2", "no")
    assert check(DeviceCodeNeeds(), has) == ()
