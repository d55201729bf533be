"""The matrix of an index in a real browser: 10,000 cells, a phone's width, search by a card's name, axe."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.indexes.build.recipe import IndexTarget
from relink.indexes.build.site import matrix_data, matrix_page
from tests.browser.conftest import Open, take_pictures
from tests.browser.test_page import loaded_after, overflow, violations
from tests.unit.indexes.build.test_site import FACTS, record

GPUS = ("RX 6750 XT", "gfx1100", "gfx942", "gfx1030")
TARGETS = ("full7", "small", "full6")
ROWS = 840  # by 12 columns: more than 10,000 cells


@pytest.fixture(scope="session")
def matrix_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    facts = record(
        "warning", {"gfx1031": "full", "gfx1100": "slow", "gfx942": "none", "gfx1030": "jit"}, "RLK401"
    )
    facts["file"] = {"filename": "demo-1.0+rocm7.2.4.1-x.whl", "sha256": "ab"}
    refused = record("error", None, "RLK101")
    cells = [
        (
            {
                "filename": f"package_{row % 40}-1.{row}-cp312-cp312-linux_x86_64.whl",
                "target": target,
                "status": "written" if row % 7 else "refused",
            },
            facts if row % 7 else refused,
        )
        for row in range(ROWS)
        for target in TARGETS
    ]
    change = {"project": "package-1", "version": "1.1", "wheel": "package_1-1.1-cp312-cp312-linux_x86_64.whl", "target": "full7",
              "before": None, "after": "written", "text": ""}  # fmt: skip
    targets = [IndexTarget(name, ("/opt/rocm",), gpus=GPUS) for name in TARGETS]
    data = matrix_data(targets, dict.fromkeys(TARGETS, FACTS), cells, [change | {"time": 86400.0}])
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
        for part in ("RLK401", "fingerprint", "new → written", "rocm7.2.4 in /opt/rocm"):
            assert part in text
        index = f"{matrix_file.parent.as_uri()}/full7/simple/"
        assert f"pip install --extra-index-url '{index}' 'package-1==1.0+rocm7.2.4.1'" in text
        page.keyboard.press("Escape")
        page.select_option("#only", "4")
        page.fill("#search", "nothing of this name")
        assert page.locator("#found").inner_text().startswith("0 of")


def test_what_is_seen_of_a_cell(opened: Open, matrix_file: Path) -> None:
    """What is not published looks different from what lacks the card, and the release of the libraries is in the heads."""
    with opened(matrix_file) as page:
        assert page.locator("thead th[scope=colgroup]").all_inner_texts() == [
            f"{name}: rocm7.2.4" for name in TARGETS
        ]
        page.fill("#search", "package-1 1.1")
        cells = page.locator("tbody tr").first.locator("button")
        assert cells.all_inner_texts()[:4] == ["works", "in part", "lacks card", "compiles"]
        page.fill("#search", "package-0 1.0")
        assert page.locator("tbody tr").first.locator("button").first.inner_text() == "not published"
        colours = {
            page.locator(f"td button.{name}").first.evaluate("cell => getComputedStyle(cell).backgroundColor")
            for name in ("refused",)
        }
        page.fill("#search", "")
        colours |= {
            page.locator(f"td button.{name}").first.evaluate("cell => getComputedStyle(cell).backgroundColor")
            for name in ("lacks", "works", "part")
        }
        assert len(colours) == 4


def test_a_card_by_its_product_name(opened: Open, matrix_file: Path) -> None:
    with opened(matrix_file) as page:
        page.fill("#search", "7900 xtx")
        assert page.locator("thead tr:nth-child(2) th").all_inner_texts() == ["gfx1100"] * len(TARGETS)
        page.fill("#search", "RX 9070 XT")
        assert (
            page.locator("#found").inner_text()
            == "RX 9070 XT is gfx1201, and this index does not report on that."
        )


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
