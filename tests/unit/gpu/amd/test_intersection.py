"""What several files and libraries cover together, and who takes an architecture away."""

from __future__ import annotations

import json

from relink.gpu.amd.intersection import intersect, isa_block
from relink.gpu.coverage import TargetId
from tests.unit.gpu.amd.build import entries_of, raw
from tests.unit.gpu.amd.covering import MIXED, beside, cover, tensile


def test_intersection_names_who_takes_an_architecture_away() -> None:
    first = cover(raw(entries_of("gfx1030", "gfx1100")), path="a.so")
    second = cover(raw(entries_of("gfx1100", "gfx942:xnack-")), path="b.so")
    nothing = cover(path="c.so")
    found = intersect([first, second, nothing], [TargetId("gfx1201")])
    assert found.targets == ("gfx1100",)
    by = {r.processor: [(path, str(level)) for path, level in r.by] for r in found.removed}
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
