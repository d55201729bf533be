"""index.matrix_page: data of strangers stays data. tests/browser opens the page."""

from __future__ import annotations

import base64
import hashlib
import json
import re

from relink.indexes.build.matrix import Cell, matrix_data
from relink.indexes.build.matrix_page import matrix_page
from relink.indexes.build.recipe import IndexTarget
from relink.wheel.naming import parse_wheel_name
from tests.unit.indexes.build.test_matrix import FACTS, record

HOSTILE = "</script><script>alert(1)</script><!--"


def test_a_hostile_text_ends_nothing() -> None:
    facts = record() | {"command": HOSTILE}
    cells = [Cell(parse_wheel_name("demo-1.0-py3-none-any.whl"), "one", "written", facts)]
    data = matrix_data([IndexTarget("one", (HOSTILE,))], {"one": FACTS}, cells, [])
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
