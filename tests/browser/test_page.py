"""The report in a real browser: accessible, within its width, by keyboard, without script, and quick."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from relink import cli
from relink.report.html import html_page
from relink.report.model import Report
from relink.system.findings.model import finding
from tests.browser.conftest import Open, take_pictures
from tests.real.conftest import fetch_prefix, fetch_wheel
from tests.support.plans import replanned
from tests.support.reports import isa_block, sample_report

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTHS = (360, 768, 1440)
HOSTILE = (
    "<script>document.title='stolen'</script>",
    '"><img src=x onerror="document.title=\'stolen\'">',
    "</script><script>document.title='stolen'</script>",
    "x" * 3000,
    "\u202efdp.exe\u2066\n\t\x00\x1b[2J",
)


def sample() -> Report:
    """One with a matrix that is wider than a phone."""
    report = sample_report(gone=20, output=True)
    report = replanned(
        report,
        findings=(
            *report.findings,
            *(
                finding("RLK101", f"lib{number}.so", f"m{number}", step="apt install x")
                for number in range(1, 8)
            ),
        ),
    )
    block = isa_block()
    block["matrix"] = {"pkg/root.so": {f"gfx{1000 + number}": "full" for number in range(30)}}
    return replace(report, isa=block)


@pytest.fixture(scope="session")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "report.html"
    path.write_text(html_page(sample()), encoding="utf-8")
    return path


def overflow(page: Page) -> int:
    """How many pixels the page is wider than the window."""
    found: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return found


def until(page: Page, condition: str, *, seconds: float = 10.0) -> None:
    """Wait for it to hold. `Page.wait_for_function` polls by eval, which the page's own policy forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"{condition} did not come true"
        page.wait_for_timeout(20)


def violations(page: Page) -> list[tuple[str, str]]:
    """What axe-core finds wrong, everything being open: (rule, first element)."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed")
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    found: dict[str, Any] = axe.Axe().run(page).response
    return [(item["id"], item["nodes"][0]["html"]) for item in found["violations"]]


def loaded_after(page: Page) -> float:
    """Seconds from the start of navigation to the end of the load event."""
    milliseconds: float = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    return milliseconds / 1000


# A page with everything on it


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_accessible_and_within_its_width(opened: Open, page_file: Path, width: int, dark: bool) -> None:
    # The page's own policy would keep axe-core out.
    with opened(page_file, width=width, dark=dark, bypass_csp=True) as page:
        assert overflow(page) == 0
        assert violations(page) == []
        assert overflow(page) == 0


def test_dark_is_dark(opened: Open, page_file: Path) -> None:
    colours = []
    for dark in (False, True):
        with opened(page_file, dark=dark) as page:
            colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours[0] != colours[1]


def test_everything_is_there_without_script(opened: Open, page_file: Path) -> None:
    text = "[...document.querySelectorAll('main p, main li, main td, main th, main text')].map(part => part.textContent)"
    with opened(page_file) as page:
        expected = page.evaluate(text)
    with opened(page_file, java_script_enabled=False) as page:
        # Without script nothing can be evaluated either: what the parser made of the file is asked for.
        parts = page.locator("main p, main li, main td, main th, main text")
        assert parts.all_text_contents() == expected
        assert page.locator("#filter-findings").is_hidden()
        page.locator(".findings.info > summary").click()
        assert page.get_by_text("runs on gfx1030").is_visible()
        assert page.locator("#command-0").is_visible()
        assert page.locator(".copy").is_hidden()


@pytest.mark.parametrize("width", [360, 1440])
def test_keyboard_reaches_every_control_and_frame(opened: Open, page_file: Path, width: int) -> None:
    with opened(page_file, width=width) as page:
        page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
        wanted = page.evaluate(
            "[...document.querySelectorAll('a, button, input, summary, [tabindex]')].filter(part => part.checkVisibility())"
            ".map((part, n) => part.dataset.n = String(n))"
        )
        assert len(wanted) > 20
        met = []
        for _ in range(len(wanted) + 1):
            page.keyboard.press("Tab")
            met.append(page.evaluate("document.activeElement.dataset.n ?? 'body'"))
        assert set(wanted) <= set(met)


def test_filtering_findings(opened: Open, page_file: Path) -> None:
    with opened(page_file) as page:
        page.locator("#filter-findings").fill("rlk407 GFX1030")
        assert page.locator(".cause:visible").count() == 1
        assert page.locator(".filter output").text_content() == "1 of 10"
        page.locator("#filter-findings").fill("lib7.so")
        assert page.get_by_text("m7", exact=True).is_visible(), "it was among those that are closed"
        page.locator("#filter-findings").fill("")
        assert page.locator(".findings.error .cause:visible").count() == 8


def test_a_link_into_a_closed_file_opens_it(opened: Open, page_file: Path) -> None:
    with opened(page_file) as page:
        assert page.locator("#file-1").get_attribute("open") is None
        page.evaluate("location.hash = 'file-1'")
        page.wait_for_selector("#file-1[open]")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(opened: Open, tmp_path: Path, name: str) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(html_page(sample_report(lambda text: f"{text}{name}")), encoding="utf-8")
    with opened(path, width=360) as page:
        assert page.title() != "stolen"
        assert page.evaluate("document.scripts.length + document.images.length") == 1
        assert overflow(page) == 0


def test_the_policy_stops_what_gets_in_all_the_same(opened: Open, page_file: Path, tmp_path: Path) -> None:
    content = page_file.read_text(encoding="utf-8")
    path = tmp_path / "broken.html"
    path.write_text(
        content.replace("<main>", "<main><script>document.title='stolen'</script>"), encoding="utf-8"
    )
    with pytest.raises(AssertionError, match="Content Security Policy"), opened(path) as page:
        assert page.title() != "stolen"


def test_printing_shows_what_is_closed(opened: Open, page_file: Path) -> None:
    with opened(page_file) as page:
        assert not page.evaluate("document.querySelector('.findings.info .cause').checkVisibility()")
        page.emulate_media(media="print")
        assert page.locator("nav").is_hidden()
        assert page.evaluate("document.querySelector('.findings.info .cause').checkVisibility()")


# The reports of real wheels


def reported(
    tmp_path_factory: pytest.TempPathFactory, wheel: Path, prefix: Path, *words: str
) -> tuple[int, Path]:
    """Relink a real wheel on a dry run; (exit code, its page)."""
    path = tmp_path_factory.mktemp("real") / "report.html"
    (loader,) = prefix.glob("lib/*/ld-linux-x86-64.so.2")
    arguments: Sequence[str | os.PathLike[str]] = (
        wheel,
        "--prefix",
        prefix,
        "--interpreter",
        loader,
        "--report",
        path,
    )
    with pytest.raises(SystemExit) as end:
        cli.main([*map(str, arguments), "--dry-run", "--gpu", "gfx1031", *words])
    return int(end.value.code or 0), path


def real_page(opened: Open, path: Path, name: str) -> None:
    take_pictures(opened, path, name)
    assert path.stat().st_size < 300_000
    for width, dark in ((360, True), (768, False), (1440, False)):
        with opened(path, width=width, dark=dark, bypass_csp=True) as page:
            assert loaded_after(page) < 2
            assert overflow(page) == 0
            if width == 1440:
                assert page.evaluate("document.documentElement.scrollHeight") < 6000
                assert violations(page) == []


@pytest.mark.real
def test_migraphx_on_the_small_prefix(opened: Open, tmp_path_factory: pytest.TempPathFactory) -> None:
    wheel = fetch_wheel("onnxruntime-migraphx==1.27.1", "onnxruntime_migraphx-1.27.1-cp312-*.whl")
    code, path = reported(tmp_path_factory, wheel, fetch_prefix("small"))
    assert code in (0, 1)
    real_page(opened, path, "onnxruntime-migraphx")


@pytest.mark.real
def test_onnxruntime_rocm(opened: Open, tmp_path_factory: pytest.TempPathFactory) -> None:
    wheel = fetch_wheel("onnxruntime-rocm==1.22.2.post3", "onnxruntime_rocm-1.22.2.post3-cp312-*.whl")
    code, path = reported(tmp_path_factory, wheel, fetch_prefix("full"))
    assert code == 1, "it has no code for gfx1031"
    real_page(opened, path, "onnxruntime-rocm")


@pytest.mark.real
def test_jax_pjrt_with_its_80_search_path_entries(
    opened: Open, tmp_path_factory: pytest.TempPathFactory
) -> None:
    wheel = fetch_wheel("jax-rocm7-pjrt==0.12.0", "jax_rocm7_pjrt-0.12.0-*.whl")
    code, path = reported(tmp_path_factory, wheel, fetch_prefix("full"))
    assert code == 1, "libraries are missing"
    real_page(opened, path, "jax-rocm7-pjrt")
    with opened(path) as page:
        assert page.get_by_text("79 entries dropped").first.is_visible()
        assert page.locator("#libraries .origin.missing").count() == 6


@pytest.mark.real
def test_jax_plugin(opened: Open, tmp_path_factory: pytest.TempPathFactory) -> None:
    wheel = fetch_wheel("jax-rocm7-plugin==0.12.0", "jax_rocm7_plugin-0.12.0-cp312-*.whl", python="3.12")
    _, path = reported(tmp_path_factory, wheel, fetch_prefix("full"))
    real_page(opened, path, "jax-rocm7-plugin")


@pytest.mark.real
def test_tensorflow_with_its_70_files(opened: Open, tmp_path_factory: pytest.TempPathFactory) -> None:
    wheel = fetch_wheel(
        "tensorflow-rocm==2.14.0.600", "tensorflow_rocm-2.14.0.600-cp311-*.whl", python="3.11"
    )
    code, path = reported(tmp_path_factory, wheel, fetch_prefix("full"), "--allow-missing", "librccl.so.1")
    assert code == 1, "it has no code for gfx1031"
    real_page(opened, path, "tensorflow-rocm")


@pytest.mark.real
def test_cupy_with_its_60_modules(opened: Open, tmp_path_factory: pytest.TempPathFactory) -> None:
    wheel = fetch_wheel("cupy-rocm-5-0==13.3.0", "cupy_rocm_5_0-13.3.0-cp312-*.whl")
    code, path = reported(tmp_path_factory, wheel, fetch_prefix("full"))
    assert code == 1, "libraries are missing"
    real_page(opened, path, "cupy-rocm")
