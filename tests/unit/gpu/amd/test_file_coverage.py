"""Coverage of files, wheels and libraries."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from relink.gpu.amd.file_coverage import intersect, isa_block, matrix
from relink.gpu.amd.side_files import SideFiles
from relink.gpu.coverage import TargetId
from tests.unit.gpu.amd.build import HOST, code_object, entries_of, hip, raw
from tests.unit.gpu.amd.covering import MIXED, beside, cover, state, tensile


def test_bundles_are_intersected_and_never_united() -> None:
    found = cover(*MIXED)
    assert found.targets == ()
    assert dict(found.partial) == {
        "gfx1030": 2, "gfx1100": 1, "gfx90a:xnack+": 1, "gfx90a:xnack-": 1, "gfx11-generic": 1, "gfx9-4-generic:xnack-": 1,
    }  # fmt: skip
    assert state(found, "gfx1030") == "partial (2 of 3)"
    assert state(found, "gfx1100") == "partial (2 of 3)"  # generic in one, native in another
    assert state(found, "gfx1101") == "partial (1 of 3)"
    assert state(found, "gfx906") == "none"
    assert found.level(TargetId("gfx1030")).usable is False
    assert found.container == "raw + ccob-v3 + ccob-v2"


def test_native_in_one_bundle_and_generic_in_another_is_full() -> None:
    found = cover(raw(entries_of("gfx1100")), raw(entries_of("gfx11-generic")))
    level = found.level(TargetId("gfx1100"))
    assert (level.state, level.via) == ("full", ("native", "generic"))
    assert found.level(TargetId("gfx1101")).state == "partial"
    assert "gfx1151" in found.processors()


def test_a_gpu_with_xnack_unknown_needs_both() -> None:
    both = cover(raw(entries_of("gfx90a:xnack+", "gfx90a:xnack-")), raw(entries_of("gfx90a")))
    assert state(both, "gfx90a") == "full"
    one = cover(raw(entries_of("gfx90a:xnack-")), raw(entries_of("gfx90a")))
    level = one.level(TargetId("gfx90a"))
    assert level.state == "conditional"
    assert level.configurations == ("gfx90a:sramecc+:xnack-", "gfx90a:sramecc-:xnack-")
    assert state(one, "gfx90a:xnack-") == "full"
    assert state(one, "gfx90a:sramecc+:xnack-") == "full"
    assert state(one, "gfx90a:xnack+") == "partial (1 of 2)"
    crossed = cover(raw(entries_of("gfx90a:xnack-")), raw(entries_of("gfx90a:xnack+")))
    assert state(crossed, "gfx90a") == "partial (1 of 2)"  # no setting has all


def test_spirv_is_compiled_on_first_use() -> None:
    found = cover(raw({"hip-spirv64-amd-amdhsa--amdgcnspirv": b"\x03\x02\x23\x07" * 20}))
    assert state(found, "gfx1999") == "jit"
    assert found.processors() == ()


def test_spirv_beside_native_code_is_not_compiled_on_first_use() -> None:
    """Only where SPIR-V is all that there is for a GPU does its first use wait for the compiler."""
    spirv = raw({"hip-spirv64-amd-amdhsa--amdgcnspirv": b"\x03\x02\x23\x07" * 20})
    found = cover(raw(entries_of("gfx1030")), spirv)
    level = found.level(TargetId("gfx1030"))
    assert (level.state, level.via) == ("full", ("native", "spirv"))
    alone = cover(spirv, spirv).level(TargetId("gfx1030"))
    assert (alone.state, alone.via) == ("jit", ("spirv",))


def test_no_device_code_restricts_nothing_and_claims_nothing() -> None:
    found = cover()
    assert (found.restricts, found.level(TargetId("gfx1030")).state) == (False, "unknown")
    assert "no device code" in found.level(TargetId("gfx1030")).note
    assert intersect([found]).targets == ()


def test_a_bundle_for_the_host_only_is_not_missed_but_an_empty_entry_is() -> None:
    found = cover(raw(entries_of("gfx1100")), raw({}))
    assert (found.bundles, found.targets) == (1, ("gfx1100",))
    found = cover(raw(entries_of("gfx1100")), raw({hip("gfx1100"): b""}))
    assert state(found, "gfx1100") == "partial (1 of 2)"


def test_what_cannot_be_read_is_unknown_and_not_missing_and_not_there() -> None:
    broken = b"CCOB\x09\0\x01\0" + bytes(100)
    found = cover(raw(entries_of("gfx1100")), broken)
    assert (found.bundles, found.unreadable) == (2, 1)
    assert state(found, "gfx1100") == "unknown"
    assert state(found, "gfx1030") == "none"
    assert found.targets == ()
    assert intersect([found]).targets == ()


def test_rocblas_is_as_good_as_the_worse_of_code_and_kernels() -> None:
    found = beside(
        "librocblas.so.5",
        tensile(("gfx1030", "tuned fallback"), ("gfx1010", "fallback"), ("gfx1201", "tuned fallback")),
        raw(entries_of("gfx1030", "gfx1010", "gfx1100")),
    )
    assert [state(found, n) for n in ("gfx1030", "gfx1010", "gfx1100", "gfx1201")] == [
        "full",
        "slow",
        "none",
        "none",
    ]
    assert intersect([found]).targets == ("gfx1010", "gfx1030")
    assert (
        beside("librocblas.so.5", None, raw(entries_of("gfx1030"))).level(TargetId("gfx1030")).state == "none"
    )


def test_rocblas_without_code_of_its_own_still_needs_its_kernels() -> None:
    found = beside("librocblas.so.5", tensile(("gfx1030", "tuned fallback")))
    assert found.restricts
    assert [state(found, name) for name in ("gfx1030", "gfx1031")] == ["full", "none"]


def test_libraries_that_compile_take_nothing_away() -> None:
    for name in ("libMIOpen.so.1", "libmigraphx_gpu.so.2014000"):
        found = beside(name, None)
        assert (found.restricts, state(found, "gfx1201")) == (False, "jit")
    fft = beside("librocfft.so.0", None, raw(entries_of("gfx1030")))
    assert (fft.restricts, state(fft, "gfx1030"), state(fft, "gfx1100")) == (True, "full", "none")


def test_hipblaslt_is_optional_but_says_what_it_lacks() -> None:
    side = SideFiles("hipblaslt", "/p", "", {TargetId("gfx1100"): {"tuned", "index"}}, 5)
    found = beside("libhipblaslt.so.1", side)
    assert not found.restricts
    assert state(found, "gfx1100") == "full"
    lacking = found.level(TargetId("gfx942"))
    assert (lacking.state, lacking.note) == ("none", "hipBLASLt has no kernel files for gfx942")


def test_a_library_that_relink_does_not_know_counts_by_its_code() -> None:
    found = beside("libmine.so", None, raw(entries_of("gfx1030")))
    assert (found.name, found.restricts, state(found, "gfx1100")) == ("libmine.so", True, "none")
    assert beside("libmine.so", None).restricts is False


@pytest.mark.slow(reason="80,000 entries, for six seconds")
def test_a_file_made_to_cost_time_costs_little() -> None:
    rows = [
        raw({hip(f"gfx{number}{i:03x}0", "hip"): b"x" for i in range(2000)}, align=1) for number in range(40)
    ]
    started = time.process_time()
    found = cover(*rows)
    result = intersect([found])
    assert found.unreadable > 0
    assert any("differ more" in p for p in found.problems)
    assert (len(found.processors()), result.targets) == (256, ())
    assert time.process_time() - started < 20


def test_openmp_code_is_not_for_hip() -> None:
    rows = {HOST: b"", hip("gfx1100", "openmp"): code_object(), hip("gfx1030"): code_object("gfx1030")}
    assert cover(raw(rows, host=False)).targets == ("gfx1030",)


def test_library_paths_keep_their_directories(tmp_path: Path) -> None:
    path = str(tmp_path / "librocblas.so.5")
    assert beside(path, None).name.endswith(
        "librocblas.so.5"
    )  # a role is looked up by the soname, not by the path


def test_kpack_hang_sets_of_targets_are_bounded() -> None:
    """Each distinct set of targets is asked for every processor: a file has few, and the rest counts as not read."""
    found = cover(*(raw({hip(f"gfx{number:x}"): code_object()}) for number in range(0x10000, 0x10000 + 100)))
    assert found.bundles == 100
    assert len(found.sets) == 64
    assert found.unreadable == 36
    assert any("differ more than relink compares" in text for text in found.problems)
    assert state(found, "gfx1100") == "none"


def test_kpack_hang_processors_of_all_files_are_bounded() -> None:
    files = [
        cover(
            raw({hip(f"gfx{number:x}"): code_object() for number in range(start, start + 200)}),
            path=str(start),
        )
        for start in range(0x10000, 0x10000 + 1000, 200)
    ]
    named = intersect([*files, cover(raw(entries_of("gfx1100")), path="known")])
    assert len(named.removed) == 256
    assert "gfx1100" in named.removed
    assert len(matrix(files)["65536"]) == 256


def test_intersection_names_who_takes_an_architecture_away() -> None:
    first = cover(raw(entries_of("gfx1030", "gfx1100")), path="a.so")
    second = cover(raw(entries_of("gfx1100", "gfx942:xnack-")), path="b.so")
    nothing = cover(path="c.so")
    found = intersect([first, second, nothing], [TargetId("gfx1201")])
    assert found.targets == ("gfx1100",)
    by = {name: [(path, str(level)) for path, level in by] for name, by in found.removed.items()}
    assert by == {
        "gfx1030": [("b.so", "none")],
        "gfx942": [("a.so", "none")],
        "gfx1201": [("a.so", "none"), ("b.so", "none")],
    }
    assert intersect([second]).conditional == ("gfx942",)


def test_the_report_has_the_shape_of_the_design() -> None:
    files = [cover(*MIXED, path="a.so"), cover(path="b.so")]
    libraries = [
        beside("librocblas.so.5", tensile(("gfx1030", "tuned fallback")), raw(entries_of("gfx1030")))
    ]
    block = isa_block(files, libraries, {"hip": "7.2"}, [{"node": 1}])
    assert json.loads(json.dumps(block)) == block
    assert set(block) >= {"files", "targets", "libraries", "runtime", "gpus"}
    assert set(block["files"][0]) >= {"path", "container", "bundles", "targets", "partial"}
    assert block["files"][0]["partial"]["gfx1030"] == [2, 3]
    assert block["libraries"][0]["levels"] == {"gfx1030": "full"}
    assert block["common"]["removed"]["gfx1030"] == {"a.so": "partial (2 of 3)"}
