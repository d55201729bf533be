"""Findings by cause on the page: what can be done first, subjects folded, notes one entry for each code."""

from __future__ import annotations

from dataclasses import replace

from relink.report.html import html_page
from relink.report.html.cause_list import counted, findings_section, told
from relink.system.findings.model import Finding, finding
from tests.support.plans import replanned
from tests.support.reports import Element, Page, sample_report


def entries(*findings: Finding) -> list[Element]:
    return Page(findings_section(findings)).root.all("li", "cause")


def test_the_worst_first_and_of_these_what_can_be_done_at_once() -> None:
    idle = finding("RLK131", "a.so", "m", "Nothing.")
    decide = finding("RLK101", "liba.so.1", "m1")
    install = finding("RLK101", "libb.so.1", "m2", step="apt install libb1")
    note = finding("RLK407", "GPU code", "m")
    found = told([note, idle, decide, install])
    assert [cause.subjects[0] for cause in found] == ["libb.so.1", "liba.so.1", "a.so", "GPU code"]


def test_one_cause_is_one_entry_with_its_subjects_folded() -> None:
    lost = [
        replace(
            finding("RLK301", f"lib{name}.so", f"needs GLIBC_2.4{name}", step="--interpreter /p/ld.so"),
            cause="the prefix needs a newer glibc",
        )
        for name in "0123"
    ]
    (entry,) = entries(*lost)
    assert "the prefix needs a newer glibc" in entry.text
    assert entry.one("p", "remedy").text == "Next: Pass --interpreter /p/ld.so"
    (folded,) = entry.all("details")
    assert "open" not in folded.attributes
    assert folded.one("summary").text == "4 single findings"
    assert [item.text.partition(": ")[0] for item in folded.all("li")] == [
        "lib0.so",
        "lib1.so",
        "lib2.so",
        "lib3.so",
    ]


def test_the_same_of_many_members() -> None:
    (entry,) = entries(
        *(
            finding("RLK131", f"{number}.so", "exports a symbol of libz", "Check it.", "warning")
            for number in range(6)
        )
    )
    (folded,) = entry.all("details")
    assert folded.one("summary").text == "0.so, 1.so, 2.so and 3 more"
    assert [item.text for item in folded.all("li")] == ["3.so", "4.so", "5.so"]


def test_notes_are_closed_and_one_entry_for_each_code() -> None:
    notes = [finding("RLK206", f"{number}.so", f"because of {number}", "Nothing.") for number in range(30)]
    root = Page(findings_section(notes)).root
    assert root.one("details", "info").one("span", "number").text == "1"
    (entry,) = root.all("li", "cause")
    assert entry.one("summary").text == "30 single findings"
    items = [item.text for item in entry.all("li")]
    assert (items[0], items[-1]) == ("0.so: because of 0", "10 more are in the report as JSON")
    assert len(items) == 21


def test_more_than_five_are_closed_and_can_be_filtered() -> None:
    many = [finding("RLK101", f"lib{number}.so", f"m{number}") for number in range(8)]
    root = Page(findings_section(many)).root
    group = root.one("div", "error")
    assert group.one("h3").one("span", "number").text == "8"
    assert [part.one("summary").text for part in group.children if part.name == "details"] == [
        "3 more errors"
    ]
    assert root.all("p", "filter")
    assert not Page(findings_section(many[:2])).root.all("p", "filter")


def test_the_page_counts_what_it_shows() -> None:
    notes = [finding("RLK206", f"{number}.so", f"m{number}", "Nothing.") for number in range(3)]
    report = replanned(sample_report(), findings=(*notes, finding("RLK101", "liba.so.1", "m")))
    assert counted(report.findings) == {"error": 1, "info": 1}
    root = Page(html_page(report)).root
    counts = {part.one("dt").text: part.one("dd").text for part in root.one("dl").children}
    assert (counts["errors"], counts["warnings"], counts["notes"]) == ("1", "0", "1")
    assert root.one("nav").all("a")[0].text == "Findings 2"
