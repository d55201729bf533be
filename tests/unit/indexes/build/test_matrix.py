"""index.matrix: colours, and data in which a text stands once."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import pytest

from relink.indexes.build.matrix import CELL_STATES, matrix_data, matrix_page, state_of
from relink.indexes.build.recipe import IndexTarget

FACTS = {"prefixes": ["/opt/rocm"], "release": "rocm7.2.4", "fingerprint": "ab" * 32, "machine": "x86_64"}


def record(level: str = "info", gpus: dict[str, str] | None = None, *codes: str) -> dict[str, Any]:
    causes = [f"{code} warning: m (x and 2 more). r." for code in codes]
    return {"verdict": {"level": level, "text": "t"}, "causes": causes, "gpus": gpus or {}, "command": "c"}


GPUS = {"gfx1": "full", "gfx2": "slow", "gfx3": "none", "gfx4": "jit", "gfx5": "conditional"}


@pytest.mark.parametrize(
    ("status", "facts", "gpu", "expected"),
    [
        ("written", record(), None, "works"),
        ("original", record("warning"), None, "works"),
        ("refused", record("error"), None, "refused"),
        ("refused", record("error", GPUS), "gfx1", "refused"),
        ("failed", {"error": "x"}, "gfx1", "failed"),
        ("written", record("warning", GPUS, "RLK401"), "gfx1", "works"),  # the warning is about another GPU
        ("written", record("warning", GPUS), "gfx2", "part"),
        ("written", record("warning", GPUS), "gfx3", "lacks"),
        ("written", record("warning", GPUS), "gfx4", "compiles"),
        ("written", record("warning", GPUS), "gfx5", "part"),
        ("written", record(), "gfx9", "works"),
    ],
)
def test_states(status: str, facts: dict[str, Any], gpu: str | None, expected: str) -> None:
    assert state_of(status, facts, gpu) == expected
    assert expected in CELL_STATES


def test_data() -> None:
    targets = [IndexTarget("one", ("/x",), gpus=("RX 6750 XT", "gfx1100")), IndexTarget("two", ("/y",))]
    cells = [
        (
            {"filename": "demo-1.0-py3-none-any.whl", "target": name, "status": "written"},
            record("info", None, "RLK130"),
        )
        for name in ("one", "two")
    ]
    data = matrix_data(targets, {"one": FACTS, "two": FACTS}, cells, [{"time": 1.0, "after": "written"}])
    one, two = data["targets"]
    assert [gpu["id"] for gpu in one["gpus"]] == ["gfx1031", "gfx1100"]
    assert one["gpus"][0]["name"] == "RX 6750 XT"
    assert (two["gpus"], two["prefixes"], two["release"]) == ([], ["/opt/rocm"], "rocm7.2.4")
    assert "RX 7900 XTX" in data["products"]["gfx1100"]
    (row,) = data["rows"]
    assert [len(row["cells"][name]["states"]) for name in ("one", "two")] == [2, 1]
    assert row["cells"]["one"]["causes"] == row["cells"]["two"]["causes"]
    assert data["texts"][row["cells"]["one"]["causes"][0]] == "RLK130 warning: m (x and 2 more). r."
    assert data["changes"] == [{"time": 1.0, "after": "written"}]


HOSTILE = "</script><script>alert(1)</script><!--"


def test_a_hostile_text_ends_nothing() -> None:
    facts = record() | {"command": HOSTILE}
    cell = {"filename": "demo-1.0-py3-none-any.whl", "target": "one", "status": "written"}
    data = matrix_data([IndexTarget("one", (HOSTILE,))], {"one": FACTS}, [(cell, facts)], [])
    page = matrix_page(data)
    assert HOSTILE not in page
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(text) == {**data, "up": ""}
    assert page.count("<script") == 2


def test_nothing_else_runs() -> None:
    page = matrix_page(matrix_data([IndexTarget("one", ("/x",))], {"one": FACTS}, [], []))
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page
    assert "http://" not in page.replace("http-equiv", "")
    assert "https://" not in page
