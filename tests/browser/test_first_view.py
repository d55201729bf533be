"""What a reader meets first, in a real browser: the answer, a command to copy, a graph, and little to scroll past."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.planning.model import (
    FilePlan,
    InterpreterChange,
    Load,
    NeededDecision,
    ProviderFacts,
    RpathChange,
)
from relink.report.html import html_page
from relink.report.model import Report
from relink.system.findings.model import Finding, finding
from tests.browser.conftest import Open, take_pictures
from tests.browser.test_page import sample
from tests.support.plans import replanned
from tests.support.reports import sample_report

PREFIX = "/opt/vendor/rocm-7.2.4"
MODULES = 61
LIBRARIES = [f"librocm{number}.so.7" for number in range(30)]
OWN = [f"pkg/libown{number}.so.2" for number in range(9)]
COMMAND = "relink 'big wheel.whl' --prefix /opt/vendor/rocm-7.2.4"


# Words of a pattern that are on two lines, outside of names of files and of the drawings.
BROKEN = """pattern => {
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const parent = node.parentElement;
    if (parent.closest("code, svg, script, style, .unseen") || !parent.checkVisibility()) continue;
    for (const match of node.data.matchAll(new RegExp(pattern, "g"))) {
      const range = document.createRange();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      if (new Set([...range.getClientRects()].map(part => part.top)).size > 1) found.push(match[0]);
    }
  }
  return found;
}"""


def need(soname: str, owner: str, action: str = "keep") -> NeededDecision:
    rule = f"RPATH entry {PREFIX}/lib of $WHEEL/{owner}"
    return NeededDecision(soname, action, soname, f"{PREFIX}/lib/{soname}", rule, "provider")  # type: ignore[arg-type]


def large_file(path: str, number: int) -> FilePlan:
    before = ":".join(
        ["$ORIGIN", f"$ORIGIN/{'../' * 6}_solib_local/_U_S_Sdeep_Sname_{number}", "/opt/rocm-6.0.0/lib"]
    )
    after = f"{before.rpartition(':')[0]}:{PREFIX}/lib"
    needed = (*(need(name, path) for name in LIBRARIES[:10]), need(LIBRARIES[11], path, "add"))
    return FilePlan(
        path, "rpath", needed, RpathChange(before, after, "runpath", "rpath"), InterpreterChange(None, None)
    )


def large_report() -> Report:
    """Seventy files, as tensorflow's wheel has them: 61 modules with the same needs, and libraries of its own that differ."""
    modules = [f"pkg/deep/directory/of/modules/_module_{number}.so" for number in range(MODULES)]
    files = [*modules, *OWN]
    loads = [
        Load(
            f"$WHEEL/{path}",
            name,
            f"{PREFIX}/lib/{name}",
            f"RPATH entry {PREFIX}/lib of $WHEEL/{path}",
            "provider",
        )
        for number, path in enumerate(files)
        for name in (
            (*LIBRARIES[:10], LIBRARIES[11]) if number < MODULES else LIBRARIES[: number - MODULES + 1]
        )
    ]
    loads += [
        Load(f"{PREFIX}/lib/{a}", b, f"{PREFIX}/lib/{b}", "already loaded", "provider")
        for number, a in enumerate(LIBRARIES)
        for b in LIBRARIES[number + 5 : number + 8]
    ]
    notes = [
        finding(code, path, f"because of {path}: {'reason ' * 40}", "Nothing.")
        for code in ("RLK204", "RLK206", "RLK303", "RLK201")
        for path in files
    ]
    lost: list[Finding] = [
        replace(
            finding("RLK301", f"{PREFIX}/lib/{name}", f"needs GLIBC_2.43 of {name}", level="warning"),
            cause="the prefix needs a newer glibc",
        )
        for name in LIBRARIES
    ]
    return replanned(
        sample_report(),
        command=("relink", "big wheel.whl", "--prefix", PREFIX, "--dry-run"),
        providers=(ProviderFacts("prefix", PREFIX, "7.2.4", "share/version"),),
        files=tuple(large_file(path, number) for number, path in enumerate(files)),
        loads=tuple(loads),
        findings=(*notes, *lost),
    )


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "report.html"
    path.write_text(html_page(large_report()), encoding="utf-8")
    return path


def test_the_answer_comes_first(opened: Open, large: Path) -> None:
    with opened(large) as page:
        verdict = page.locator(".verdict")
        assert (verdict.text_content() or "").startswith("Would load: 70 of 70 ELF files would change.")
        order = [".verdict", ".command", ".counts", "#findings", "#libraries", "#files"]
        tops = [
            page.locator(name).first.evaluate("part => part.getBoundingClientRect().top") for name in order
        ]
        assert tops == sorted(tops)
        assert tops[2] < 400, "without scrolling"


def test_a_button_copies_the_command(opened: Open, large: Path) -> None:
    with opened(large, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.get_by_role("button", name="Copy").press("Enter")
        page.get_by_role("button", name="Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == COMMAND
        assert page.locator("#copied").text_content() == "Copied", "said to a screen reader"
        page.get_by_role("button", name="Copy", exact=True).wait_for()


def test_without_a_clipboard_the_command_is_selected(opened: Open, large: Path) -> None:
    with opened(large) as page:
        page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        page.get_by_role("button", name="Copy").click()
        page.get_by_role("button", name="Copied").wait_for()
        assert page.evaluate("getSelection().toString()") == COMMAND


def test_no_word_is_broken_on_a_phone(opened: Open, tmp_path: Path) -> None:
    page_file = tmp_path / "page.html"
    page_file.write_text(html_page(sample()), encoding="utf-8")
    with opened(page_file, width=390) as page:
        page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
        assert page.locator(".requirements tbody tr").first.is_visible()
        assert page.evaluate(BROKEN, "[A-Za-z]{2,20}") == []
        assert page.locator("nav li:visible").count() == 5
        assert page.locator("nav ul").evaluate("part => part.scrollWidth - part.clientWidth") <= 0


def test_an_option_stays_on_one_line(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "options.html"
    advice = finding(
        "RLK101", "libx.so", "m", " ".join(["say --allow-missing libx.so, or"] * 40), level="error"
    )
    path.write_text(html_page(replanned(sample_report(), findings=(advice,))), encoding="utf-8")
    for width in (390, 1440):
        with opened(path, width=width) as page:
            assert page.evaluate(BROKEN, "--[a-z-]+") == []


def test_the_subjects_of_a_cause_are_folded(opened: Open, large: Path) -> None:
    with opened(large) as page:
        assert page.locator(".warning .cause").count() == 1
        last = page.get_by_text(f"needs GLIBC_2.43 of {LIBRARIES[10]}")
        assert last.is_hidden()
        page.locator(".warning .cause summary", has_text="30 single findings").click()
        assert last.is_visible()


def test_what_is_unchanged_is_shown_when_asked_for(opened: Open, large: Path) -> None:
    with opened(large) as page:
        row = page.locator(f"#libraries th:has-text('{LIBRARIES[20]}')")
        assert row.is_hidden()
        page.locator("#libraries > summary", has_text="Who loads whom").click()
        assert row.is_visible()
        page.locator("#file-0 > summary").click()
        kept = page.locator("#file-0 .kept li", has_text=LIBRARIES[0])
        assert kept.is_hidden()
        page.locator("#file-0 .kept > summary", has_text="10 entries unchanged").click()
        assert kept.is_visible()


def test_files_beyond_five_are_closed_and_a_link_opens_them(opened: Open, large: Path) -> None:
    with opened(large) as page:
        assert page.locator(".file:visible").count() == 5
        page.evaluate("location.hash = 'file-40'")
        page.wait_for_selector("#file-40[open]")
        assert page.locator("#file-40").is_visible()
        assert page.locator(".file:visible").count() == 70


def test_paths_are_short_and_the_page_says_how(opened: Open, large: Path) -> None:
    with opened(large) as page:
        page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
        assert page.locator(".prefix").text_content() == f"$PREFIX stands for {PREFIX}."
        cells = page.locator(".libraries td:nth-child(3)").all_text_contents()
        assert cells
        assert {cell.removesuffix(" by RPATH").removesuffix(" already loaded") for cell in cells} == {
            "$PREFIX/lib"
        }
        assert PREFIX not in "".join(page.locator("#libraries, .file, .findings").all_text_contents())


def test_a_page_of_seventy_files_is_small_and_short(opened: Open, large: Path) -> None:
    assert large.stat().st_size < 300_000
    height = "document.documentElement.scrollHeight"
    with opened(large, width=1440) as page:
        assert page.evaluate(height) < 6000
    with opened(large, width=390) as page:
        assert page.evaluate(height) < 9000


# To look at: nothing is compared


def test_pictures_of_the_pages(opened: Open, large: Path, tmp_path: Path) -> None:
    sample = tmp_path / "sample.html"
    sample.write_text(html_page(sample_report()), encoding="utf-8")
    for path, name in ((large, "large"), (sample, "sample")):
        pictures = take_pictures(opened, path, name)
        assert len(pictures) == 4
        assert all(picture.stat().st_size > 20_000 for picture in pictures)
