"""What to do about an architecture that a file or library lacks."""

from __future__ import annotations

from relink.gpu.amd.remedy import remedies
from relink.gpu.coverage import TargetId
from tests.unit.gpu.amd.build import entries_of, raw
from tests.unit.gpu.amd.covering import beside, cover, tensile


def test_remedies_for_the_owner_of_an_rx_6750_xt() -> None:
    wheel = cover(raw(entries_of("gfx1030", "gfx1100")), path="providers.so")
    blas = beside("librocblas.so.5", tensile(("gfx1030", "tuned fallback")), raw(entries_of("gfx1030")))
    found = remedies(
        TargetId("gfx1031"), [wheel, blas], releases=["onnxruntime-rocm 1.21"], runtime_generic=True
    )
    assert [r.kind for r in found] == ["release", "override", "rebuild", "rebuild"]
    assert "1.21" in found[0].text
    assert "HSA_OVERRIDE_GFX_VERSION=10.3.0" in found[1].text
    assert found[1].workaround
    assert "workaround" in found[1].text
    assert found[2].text == (
        "rebuild providers.so with GPU_TARGETS=gfx1030;gfx1031;gfx1100 (or gfx10-3-generic for the whole family)"
    )
    assert found[3].text.startswith("rebuild rocBLAS with GPU_TARGETS=gfx1030;gfx1031")


def test_the_override_must_hold_for_every_library() -> None:
    wheel = cover(raw(entries_of("gfx1030")))
    blas = beside("librocblas.so.5", tensile(("gfx1100", "tuned fallback")), raw(entries_of("gfx1100")))
    assert "override" not in [r.kind for r in remedies(TargetId("gfx1031"), [wheel, blas])]
    assert "override" in [r.kind for r in remedies(TargetId("gfx1031"), [wheel])]
    assert [r.kind for r in remedies(TargetId("gfx906"), [wheel])] == ["rebuild"]


def test_generic_code_comes_before_the_override_where_the_runtime_is_too_old() -> None:
    wheel = cover(raw(entries_of("gfx1030", "gfx10-3-generic")))
    assert remedies(TargetId("gfx1031"), [wheel], runtime_generic=True) == ()
    old = remedies(TargetId("gfx1031"), [wheel], runtime_generic=False)
    assert [r.kind for r in old] == ["generic", "override", "rebuild"]
    assert [r.to_json()["workaround"] for r in old] == [False, True, False]
