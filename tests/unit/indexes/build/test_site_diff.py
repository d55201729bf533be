"""index.site_diff: what became better and worse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relink.indexes.build.matrix import Cell, matrix_data
from relink.indexes.build.recipe import IndexTarget
from relink.indexes.build.site_diff import SiteChange, site_diff
from relink.system.errors import UsageError
from tests.support.command import Run
from tests.unit.indexes.build.test_matrix import STATE, record


def site(place: Path, **statuses: str) -> Path:
    cells = [
        Cell(name, "1.0", "x", f"{name}.whl", "one", status, record()) for name, status in statuses.items()
    ]
    place.mkdir()
    data: Any = matrix_data([IndexTarget("one", ("/x",))], {"one": STATE}, cells, [])
    (place / "matrix.json").write_text(json.dumps(data))
    return place


def test_changes(tmp_path: Path) -> None:
    old = site(tmp_path / "old", a="written", b="written", c="refused", d="refused", e="written")
    new = site(tmp_path / "new", a="written", b="refused", c="written", f="original")
    assert site_diff(old, new) == (
        SiteChange("b.whl", "one", None, "works", "not published", worse=True),
        SiteChange("c.whl", "one", None, "not published", "works", worse=False),
        SiteChange("d.whl", "one", None, "not published", None, worse=False),
        SiteChange("e.whl", "one", None, "works", None, worse=True),
        SiteChange("f.whl", "one", None, None, "works", worse=False),
    )


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"schema": ' + "[" * 900 + "]" * 900 + "}", '{"schema": 1e400}']
)
def test_json_recursion(run: Run, tmp_path: Path, text: str) -> None:
    good = site(tmp_path / "good")
    (tmp_path / "matrix.json").write_text(text)
    code, out, err = run("index", "diff", good, tmp_path)
    assert (code, out) == (2, "")
    assert f"{tmp_path}: is no site that this relink reads" in err


def test_gpus_of_several_kinds(tmp_path: Path) -> None:
    good = site(tmp_path / "good", a="written")
    data = json.loads((good / "matrix.json").read_text())
    data["targets"][0]["gpus"] = [{"id": 1}, {"id": "gfx1030"}]
    data["rows"][0]["cells"]["one"]["states"] = [0, 3]
    (tmp_path / "matrix.json").write_text(json.dumps(data))
    assert [change.gpu for change in site_diff(good, tmp_path)] == [None, "1", "gfx1030"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "relink.indexes.build-matrix/2"}'])
def test_what_is_no_site(tmp_path: Path, text: str) -> None:
    good = site(tmp_path / "good")
    (tmp_path / "matrix.json").write_text(text)
    with pytest.raises(UsageError, match="is no site"):
        site_diff(good, tmp_path)
