"""What device code asks of a runtime, compared with what the runtime can do."""

from __future__ import annotations

from relink.elf.source import BufferSource
from relink.gpu.amd.device_code import DeviceCode, read_device_code
from relink.gpu.amd.requirements import DeviceCodeNeeds, check, needs_of
from relink.gpu.amd.runtime import Capability
from relink.gpu.coverage import TargetId
from tests.unit.gpu.amd.build import ccob, entries_of, kpack_archive, library, msgpack, raw


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
    assert check(needs, has)[0].to_json() == {
        "what": "compressed bundles (CCOB)",
        "needed": "version 3",
        "available": "up to 2",
        "verdict": "no",
    }
    assert check(DeviceCodeNeeds(), has) == ()
