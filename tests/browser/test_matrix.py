"""The matrix of an index in a real browser: 10,000 cells, a phone's width, search by a card's name, axe."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.indexes.build.matrix import Cell, matrix_data
from relink.indexes.build.matrix_page import matrix_page
from relink.indexes.build.recipe import IndexTarget
from tests.browser.conftest import Open, take_pictures
from tests.browser.test_page import loaded_after, overflow, violations
from tests.unit.indexes.build.test_matrix import STATE, record

GPUS = ("RX 6750 XT", "gfx1100", "gfx942", "gfx1030")
TARGETS = ("full7", "small", "full6")
ROWS = 840  # by 12 columns: more than 10,000 cells


@pytest.fixture(scope="session")
def matrix_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    facts = record(
        "warning", {"gfx1031": (True, "full"), "gfx1100": (True, "slow"), "gfx942": (False, "none")}, "RLK401"
    )
    refused = record("error", None, "RLK101")
    cells = [
        Cell(
            f"package-{row % 40}",
            f"1.{row}",
            "cp312-cp312",
            f"package_{row % 40}-1.{row}-py3-none-any.whl",
            target,
            "written" if row % 7 else "refused",
            facts if row % 7 else refused,
        )
        for row in range(ROWS)
        for target in TARGETS
    ]
    change = {"project": "package-1", "version": "1.1", "wheel": "package_1-1.1-py3-none-any.whl", "target": "full7",
              "before": None, "after": "written", "text": ""}  # fmt: skip
    targets = [IndexTarget(name, ("/opt/rocm",), gpus=GPUS) for name in TARGETS]
    data = matrix_data(targets, dict.fromkeys(TARGETS, STATE), cells, [(86400.0, change)])
    path = tmp_path_factory.mktemp("matrix") / "index.html"
    path.write_text(matrix_page(data), encoding="utf-8")
    return path


def test_ten_thousand_cells_are_fluent(opened: Open, matrix_file: Path) -> None:
    with opened(matrix_file) as page:
        assert loaded_after(page) < 10
        assert page.locator("thead tr:nth-child(2) th").count() == len(GPUS) * len(TARGETS)
        drawn = page.locator("tbody tr").count()
        assert 0 < drawn < ROWS
        seconds = page.evaluate(
            "() => { const box = document.getElementById('search'); const start = performance.now();"
            "box.value = 'rx 6750 xt'; box.dispatchEvent(new Event('input')); document.body.offsetHeight;"
            "return (performance.now() - start) / 1000; }"
        )
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime / 1000")
        print(f"loaded {loaded_after(page):.2f} s, first paint {paint:.2f} s, search {seconds:.3f} s")  # noqa: T201
        assert seconds < 2
        assert page.locator("thead tr:nth-child(2) th").count() == len(TARGETS)
        assert "RX 6750 XT" in page.locator("thead tr:nth-child(2) th").first.inner_text()
        page.evaluate("document.getElementById('frame').scrollTop = 1e9")
        page.wait_for_timeout(300)
        assert page.locator("tbody tr").count() > drawn


def test_search_and_details(opened: Open, matrix_file: Path) -> None:
    with opened(matrix_file) as page:
        page.fill("#search", "package-1 6750")
        rows = page.locator("tbody tr")
        assert "package-1" in rows.first.inner_text()
        page.fill("#search", "package-1 1.1")
        page.locator("td button").first.click()
        text = page.locator("dialog").inner_text()
        for part in (
            ("RLK401", "pip install --index-url", "fingerprint", "new → written")
            if "Install" in text
            else ("RLK401",)
        ):
            assert part in text
        page.keyboard.press("Escape")
        page.select_option("#only", "r")
        page.fill("#search", "nothing of this name")
        assert page.locator("#found").inner_text().startswith("0 of")


def test_on_a_phone(opened: Open, matrix_file: Path) -> None:
    with opened(matrix_file, width=390) as page:
        assert overflow(page) <= 0
    take_pictures(opened, matrix_file, "matrix")


@pytest.mark.parametrize("dark", [False, True])
def test_axe(opened: Open, matrix_file: Path, dark: bool) -> None:
    with opened(matrix_file, dark=dark) as page:
        assert violations(page) == []
        page.locator("td button").first.click()
        assert violations(page) == []
