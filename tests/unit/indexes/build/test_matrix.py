"""index.matrix: colours, and data in which a text stands once."""

from __future__ import annotations

from typing import Any

import pytest

from relink.indexes.build.fingerprint import TargetState
from relink.indexes.build.matrix import Cell, colour_of, matrix_data
from relink.indexes.build.recipe import IndexTarget

STATE = TargetState({}, "", "", "", "x86_64", "/", ("/opt/rocm",))


def record(
    level: str = "info", gpus: dict[str, tuple[bool, str]] | None = None, *codes: str
) -> dict[str, Any]:
    causes = [
        {"code": code, "level": "warning", "subjects": ["x"], "more": 2, "message": "m", "remedy": "r."}
        for code in codes
    ]
    covered = {name: {"covered": facts[0], "level": facts[1]} for name, facts in (gpus or {}).items()}
    return {
        "verdict": {"level": level, "text": "t"},
        "causes": causes,
        "gpus": covered,
        "command": "c",
        "rocm": [["/x", "7.2"]],
    }


GPUS = {"gfx1": (True, "full"), "gfx2": (True, "slow"), "gfx3": (False, "none")}


@pytest.mark.parametrize(
    ("status", "facts", "gpu", "expected"),
    [
        ("written", record(), None, "green"),
        ("original", record("warning"), None, "amber"),
        ("refused", record("error"), None, "red"),
        ("failed", {"error": "x"}, "gfx1", "red"),
        ("written", record("warning", GPUS, "RLK401"), "gfx1", "green"),  # the warning is about another GPU
        ("written", record("warning", GPUS, "RLK401", "RLK130"), "gfx1", "amber"),
        ("written", record("warning", GPUS), "gfx2", "amber"),
        ("written", record("warning", GPUS), "gfx3", "red"),
        ("written", record(), "gfx9", "green"),
    ],
)
def test_colours(status: str, facts: dict[str, Any], gpu: str | None, expected: str) -> None:
    assert colour_of(status, facts, gpu) == expected


def test_data() -> None:
    targets = [IndexTarget("one", ("/x",), gpus=("RX 6750 XT", "gfx1100")), IndexTarget("two", ("/y",))]
    cells = [
        Cell(
            "demo",
            "1.0",
            "py3-none",
            "demo-1.0-py3-none-any.whl",
            name,
            "written",
            record("info", None, "RLK130"),
        )
        for name in ("one", "two")
    ]
    data = matrix_data(targets, {"one": STATE, "two": STATE}, cells, [(1.0, {"after": "written"})])
    one, two = data["targets"]
    assert [gpu["id"] for gpu in one["gpus"]] == ["gfx1031", "gfx1100"]
    assert one["gpus"][0]["name"] == "RX 6750 XT"
    assert (two["gpus"], two["prefixes"]) == ([], ["/opt/rocm"])
    (row,) = data["rows"]
    assert [len(row["cells"][name]["colours"]) for name in ("one", "two")] == [2, 1]
    assert row["cells"]["one"]["causes"] == row["cells"]["two"]["causes"]
    assert data["texts"][row["cells"]["one"]["causes"][0]] == "RLK130 warning: m (x and 2 more). r."
    assert data["changes"] == [{"time": 1.0, "after": "written"}]
