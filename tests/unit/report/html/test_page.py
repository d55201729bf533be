"""The page of a report: its parts, the policy that keeps everything else out, and that no name gets out of its place."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from relink.gpu.amd.file_coverage import FileCoverage, matrix
from relink.gpu.amd.target_id import CodeTarget
from relink.gpu.coverage import TargetId
from relink.library import relink
from relink.planning.model import FilePlan, InterpreterChange, Load, ProviderFacts, RpathChange, to_data
from relink.report.html import html_page
from relink.report.html.markup import Html, breakable, escape_text, fold_items, joined, tag
from relink.report.html.page import (
    Node,
    findings_section,
    graph_of,
    prefixed,
    rule_phrase,
    visible_causes,
)
from relink.report.model import Report, from_json, to_json
from relink.report.summary import verdict
from relink.system.bounded_json import read_typed
from relink.system.errors import UsageError
from relink.system.findings.model import Finding, finding
from tests.support.amount import amount
from tests.support.plans import replanned
from tests.support.reports import Element, Page, isa_block, sample_report
from tests.support.works import Works

SLOW = pytest.mark.slow(reason="processes, or generated names")

ROOT_FILE_LIST = "$WHEEL/demo/a.so"


def asked(report: Report) -> dict[tuple[str, str], tuple[str | None, str]]:
    return {(Path(load.requester).name, load.soname): (load.resolved, load.origin) for load in report.loads}


def test_loads_follow_the_libraries_of_the_prefix(works: Works, tmp_path: Path) -> None:
    report = relink(
        works.small(tmp_path), dataclasses.replace(works.options(tmp_path / "dist"), dry_run=True)
    )
    found = asked(report)
    for edge, library in (
        (("a.so", "libhip.so.7"), "libhip.so.7"),
        (("libhip.so.7", "libdeep.so.1"), "libdeep.so.1"),
    ):
        path, origin = found[edge]
        assert (Path(path or "").name, origin) == (library, "provider")
    assert len(set(report.loads)) == len(report.loads)
    assert {load.requester for load in report.loads if load.requester.startswith("$WHEEL")} == {
        ROOT_FILE_LIST
    }


def test_loads_say_what_nothing_serves(works: Works, tmp_path: Path) -> None:
    wheel = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    report = relink(wheel, dataclasses.replace(works.options(tmp_path / "dist"), dry_run=True))
    assert asked(report)["lost.so", "libnowhere.so.1"] == (None, "missing")
    allowed = dataclasses.replace(
        works.options(tmp_path / "dist"), dry_run=True, allow_missing=("libnowhere*",)
    )
    assert asked(relink(wheel, allowed))["lost.so", "libnowhere.so.1"] == (None, "assumed")


def covering(path: str, *targets: str) -> FileCoverage:
    codes = frozenset(CodeTarget(TargetId(target)) for target in targets)
    return FileCoverage(path, "raw", 1 if targets else 0, ((codes, 1),) if targets else (), targets, ())


def test_matrix() -> None:
    files = [covering("b.so", "gfx1100", "gfx908"), covering("none.so"), covering("a.so", "gfx1030")]
    assert matrix(files, [TargetId("gfx1031")]) == {
        "b.so": {"gfx908": "full", "gfx1030": "none", "gfx1031": "none", "gfx1100": "full"},
        "a.so": {"gfx908": "none", "gfx1030": "full", "gfx1031": "none", "gfx1100": "none"},
    }


def test_reading_passes_over_new_keys_only_if_told_to() -> None:
    load = Load("a", "b", None, None, "missing")
    data = {**to_data(load), "new": 1}
    assert read_typed(Load, data, "load", strict=False) == load
    with pytest.raises(UsageError, match="new"):
        read_typed(Load, data, "load")


def entries(*findings: Finding) -> list[Element]:
    return Page(findings_section(findings)).root.all("li", "cause")


def test_the_worst_first_and_of_these_what_can_be_done_at_once() -> None:
    idle = finding("RLK131", "a.so", "m", "Nothing.")
    decide = finding("RLK101", "liba.so.1", "m1")
    install = finding("RLK101", "libb.so.1", "m2", step="apt install libb1")
    note = finding("RLK407", "GPU code", "m")
    found = visible_causes([note, idle, decide, install])
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
    root = Page(html_page(report)).root
    counts = {part.one("dt").text: part.one("dd").text for part in root.one("dl").children}
    assert (counts["errors"], counts["warnings"], counts["notes"]) == ("1", "0", "1")


PAGE = html_page(sample_report())
ROOT = Page(PAGE).root
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style><style>*{display:none}</style>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<!-- ",
    "]]>",
    "&lt;b&gt; &amp;amp; &#x3c;",
    "javascript:alert(1)",
    "\u202egnp.os\u2066\u200b\ufeff",
    "a\nb\r\tc\x00\x1b[31m\x7f\x85\u2028",
    "\udcff\U000e0041\U0010ffff",
    "ж" * 5000,
    "{{7*7}}${7*7}%s{0}",
    "https://example.org/x.js",
)

KNOWN = (  # elements that the page may have
    "html head meta title style body header nav main section footer script a p h1 h2 h3 bdi strong b span code wbr ul li dl div "
    "dt dd label input output button details summary table thead tbody tr th td i"
)


def section(root: Element, name: str) -> Element:
    (found,) = [part for part in root.all("section") if part.attributes.get("aria-labelledby") == name]
    return found


def rows(table: Element) -> list[list[str]]:
    return [[cell.text.strip() for cell in row.children] for row in table.all("tr")]


# Its parts


def test_the_verdict_and_the_counts() -> None:
    assert ROOT.one("p", "verdict").text == "Cannot work yet: 1 library is missing."
    counts = {part.one("dt").text: part.one("dd").text for part in ROOT.one("dl").children}
    assert counts == {
        "errors": "1",
        "warnings": "1",
        "notes": "1",
        "ELF files change": "1 of 3",
        "libraries loaded": "4",
        "found nowhere": "1",
        "assumed to be there": "1",
        "GPU architectures": "1",
    }


@pytest.mark.parametrize("output", [False, True])
@pytest.mark.parametrize("errors", [False, True])
def test_the_verdict_and_the_next_step_are_those_of_the_text(errors: bool, output: bool) -> None:
    report = sample_report(output=output)
    if not errors:
        report = replanned(report, findings=report.findings[:2])
    header = Page(html_page(report)).root.one("header")
    expected = verdict(report)
    assert header.one("p", "verdict").text == expected.text
    assert expected.level in header.one("p", "verdict").classes()
    assert expected.step is not None
    assert expected.step in header.text


def test_a_plan_offers_no_command_of_whoever_wrote_it() -> None:
    report = sample_report(output=True)
    header = Page(html_page(report, plan=True)).root.one("header")
    assert header.one("p", "verdict").text == (
        "The plan of a wheel. 1 of 3 ELF files change. Whether the wheel loads is told by relink verify WHEEL, "
        "on a machine that has its loader."
    )
    assert not header.all("button")


def commands(report: Report) -> list[str]:
    return [part.one("code").text for part in Page(html_page(report)).root.all("p", "command")]


def test_what_is_copied_is_a_whole_command() -> None:
    report = replanned(sample_report(), findings=(), command=("relink", "a b.whl", "--dry-run"))
    assert commands(report) == ["relink 'a b.whl'"]
    assert commands(replanned(sample_report(output=True), findings=())) == [
        "pip install dist/demo-1.0+rocm7.whl"
    ]
    known = Finding("RLK101", "error", "liba.so.1", "m", "r", step="apt install liba1")
    assert commands(replanned(report, findings=(known,))) == [
        "apt install liba1",
        "relink 'a b.whl' --dry-run",
    ]


@pytest.mark.parametrize("word", ["w\n.whl", "w\u202e.whl", "w" * 3000])
def test_a_command_that_cannot_be_shown_as_it_is_is_not_offered(word: str) -> None:
    assert not commands(replanned(sample_report(), findings=(), command=("relink", word, "--dry-run")))


def test_findings_worst_first_with_all_that_is_known() -> None:
    found = section(ROOT, "findings")
    groups = found.all(class_="findings")
    assert [group.classes()[1] for group in groups] == ["error", "warning", "info"]
    (error,) = groups[0].all("li")
    for text in (
        "RLK101",
        "liblost.so.1",
        "needed by root.so; the prefix has nothing of that name",
        "Add the prefix.",
    ):
        assert text in error.text


def test_who_loads_whom() -> None:
    (part,) = section(ROOT, "dependencies").all("details", "more")
    assert "open" not in part.attributes, "it is asked for"
    assert part.one("summary").text == "Who loads whom: 6 libraries"
    found = {row[0]: row for row in rows(part.one("table"))[1:]}
    assert found["libkept.so.1"][1:] == ["provider", "/p/lib by RUNPATH", "root.so, libadded.so.3"]
    assert found["liblost.so.1"][1:] == ["missing", "nowhere", "root.so"]
    assert [*found][:2] == ["liblost.so.1", "liblater.so.1"], "what is missing is first"
    assert [*found][-1] == "C library"


def test_the_matrix_marks_the_gpu_and_says_each_level_in_words() -> None:
    found = section(ROOT, "gpu")
    table = found.one("table", "matrix")
    head, *body = table.all("tr")
    assert [cell.one("span", "upright").text for cell in head.children[1:]] == [
        "gfx90a",
        "gfx1030",
        "gfx1031",
        "gfx1100",
    ]
    assert "wanted" in head.children[3].classes()
    assert head.children[3].one("span", "unseen").text == " in this machine"
    levels = [[cell.one("span", "unseen").text for cell in row.children[1:]] for row in body]
    assert levels == [
        ["only as gfx90a:xnack+", "full", "none", "partial (2 of 3)"],
        ["slow", "jit", "unknown", "full"],
        ["under a condition", "yes", "no", "no"],
        ["yes", "yes", "yes", "no"],
        ["no", "yes", "no", "no"],
    ]
    signs = [cell.children[0].text for cell in body[0].children[1:]]
    assert signs == ["cond", "●", "-", "2/3"]
    assert all("wanted" in row.children[3].classes() for row in body)
    assert "gfx1031 is not covered" in found.text
    assert "rebuild it" in found.text
    assert "up to 5" in found.text


def test_before_and_after_of_each_file() -> None:
    first, own, variant = section(ROOT, "files").all("details", "file")
    interpreter, needed = first.all("table")
    assert rows(interpreter)[1] == ["~replaced", "/nowhere/ld.so", "/lib64/ld.so"]
    assert [item.text for item in first.one("ul", "changes").all("li")] == [
        "+added /p/lib",
        "-dropped /opt/rocm/0",
        "-dropped (empty: the current directory)",
    ]
    path, entries = first.all("details", "kept")
    assert path.text == "1 entry unchanged$ORIGIN"
    assert entries.one("summary").text == "3 entries unchanged"
    assert [item.text for item in entries.all("li")] == [
        "libkept.so.1 provider /p/lib by RUNPATH",
        "own.so wheel $WHEEL/pkg by RUNPATH",
        "libc.so.6 platform /lib by RUNPATH",
    ]
    changes = [row[:3] for row in rows(needed)[1:]]
    assert ["~replaced", "libold.so.1", "libnew.so.2"] in changes
    assert ["-dropped", "libdropped.so.1", ""] in changes
    assert ["+added", "", "libadded.so.3"] in changes
    assert "4 of 4 imported symbols are exported" in needed.text
    assert ("open" in first.attributes, "open" in own.attributes) == (True, False)
    assert "not served" in variant.text


def test_many_entries_that_go_are_told_apart() -> None:
    report = sample_report(gone=80)
    first = section(Page(html_page(report)).root, "files").all("details", "file")[0]
    (more,) = [part for part in first.all("details") if part.one("summary").text == "80 entries dropped"]
    assert len(more.all("li")) == 80


def test_a_search_path_that_stays() -> None:
    report = sample_report()
    file = replace(report.files[1], rpath=RpathChange("$ORIGIN", "$ORIGIN", "runpath", "runpath"))
    root = Page(html_page(replanned(report, files=(file,)))).root
    assert "Search path: RUNPATH of 1 entry, unchanged" in root.text


def gpu_part(**changes: object) -> Element:
    return section(Page(html_page(replace(sample_report(), isa={**isa_block(), **changes}))).root, "gpu")


def test_the_legend_explains_the_signs_that_are_there() -> None:
    found = gpu_part(matrix={"pkg/root.so": {"gfx1030": "full", "gfx90a": "slow"}}, common={}, gpus=[])
    assert [item.text for item in found.one("ul", "legend").children] == [
        "● code for it in every bundle",
        "slow untuned kernels",
    ]


def test_what_is_not_known_of_the_runtime_is_one_row() -> None:
    found = gpu_part(runtime={"rocm": "7.2.4", "hip": "unknown", "spirv": "unknown", "kpack": False})
    assert rows(found.one("table", "facts")) == [
        ["ROCm", "7.2.4"],
        ["kpack archives", "no"],
        ["not known", "HIP runtime; SPIR-V code"],
    ]


@pytest.mark.parametrize(
    ("verdict", "mark"),
    [("ok", "verdict-ok"), ("no", "verdict-no"), ("unknown", "verdict-unknown"), ("x", None)],
)
def test_only_a_no_of_the_runtime_looks_like_an_error(verdict: str, mark: str | None) -> None:
    row = {"what": "w", "needed": "2", "available": "1", "verdict": verdict, "files": []}
    cell = gpu_part(requirements=[row]).one("table", "requirements").all("td")[2]
    assert (cell.text, cell.attributes.get("class")) == (verdict, mark)


def test_a_search_path_that_only_goes_is_not_called_one_that_comes() -> None:
    change = RpathChange("/gone", None, "rpath", None)
    file = replace(sample_report().files[0], rpath=change, strategy="runpath")
    (entry,) = section(Page(html_page(replanned(sample_report(), files=(file,)))).root, "files").all(
        "summary"
    )[:1]
    assert "no search path is needed" in entry.text
    assert "RUNPATH of the directories" not in entry.text


def test_a_plan_says_that_it_knows_nothing_of_gpus() -> None:
    root = Page(html_page(replace(sample_report(), isa=None), plan=True)).root
    assert "a plan does not say which GPUs" in section(root, "gpu").text


def test_an_empty_report() -> None:
    report = replanned(sample_report(), files=(), loads=(), findings=(), isa=None)
    root = Page(html_page(report)).root
    assert "Nothing was found" in root.text


def test_facts() -> None:
    found = dict(row[:2] for row in rows(section(ROOT, "facts").one("table")))
    assert found["Provider (prefix)"] == "/p: ROCm 7.2.4 by .info/version"
    assert found["Loader"] == "/lib64/ld.so, glibc 2.36"
    assert found["System root"] == "/sys"
    assert found["Time"] == "read 0.25 s"


def test_isa_of_another_shape_is_refused_with_the_place() -> None:
    block: dict[str, Any] = isa_block()
    block["matrix"] = {"a.so": ["full"]}
    with pytest.raises(UsageError, match=r"report\.isa\.matrix"):
        html_page(replace(sample_report(), isa=block))


# What keeps everything else out


def test_the_policy_allows_these_two_texts_and_nothing_else() -> None:
    meta = next(part for part in ROOT.all("meta") if "http-equiv" in part.attributes)
    policy = dict(rule.split(" ", 1) for rule in (meta.attributes["content"] or "").split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    for directive, name in (("style-src", "style"), ("script-src", "script")):
        digest = hashlib.sha256(ROOT.one(name).text.encode()).digest()
        assert policy[directive] == f"'sha256-{base64.b64encode(digest).decode()}'"
    assert set(policy) == {"default-src", "base-uri", "form-action", "style-src", "script-src"}


def no_way_out(root: Element) -> None:
    """No element, attribute or address that the page does not make itself."""
    ids = [part.attributes["id"] for part in root.all() if "id" in part.attributes]
    assert len(ids) == len(set(ids))
    assert {part.name for part in root.all()} <= {*KNOWN.split()}
    for part in root.all():
        assert not {name for name in part.attributes if name.startswith("on")} | (
            {"src", "style"} & set(part.attributes)
        )
        if (target := part.attributes.get("href")) is not None:
            assert target[0] == "#"
            assert target[1:] in ids


def test_no_way_out() -> None:
    no_way_out(ROOT)
    for text in ("http:", "https:", "url(", "@import"):
        assert text not in PAGE


def test_every_frame_that_scrolls_is_reached_by_keyboard_and_has_a_name() -> None:
    frames = ROOT.all(class_="scroll")
    assert len(frames) > 5
    assert {frame.attributes["tabindex"] for frame in frames} == {"0"}
    names = [frame.attributes["aria-label"] for frame in frames]
    assert len(names) == len(set(names))


# Names


def text_of(root: Element) -> str:
    return "".join(part.text for part in root.all("body"))


@pytest.mark.few(4, reason="the same of other values")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name: str) -> None:
    page = html_page(sample_report(lambda text: f"{text}{name}"))
    root = Page(page).root
    no_way_out(root)
    if not set(name) & {"/", ":"}:  # those make directories and entries of what was one name
        usual = Page(html_page(sample_report(lambda text: f"{text}{'y' * len(name)}"))).root
        elements = [[part.name for part in each.all() if part.name != "wbr"] for each in (root, usual)]
        assert elements[0] == elements[1]
    assert root.one("script").text == ROOT.one("script").text
    assert root.one("style").text == ROOT.one("style").text
    assert escape_text(f"libnew.so.2{name}") in text_of(root)
    page.encode()


names = st.text(max_size=40) | st.sampled_from(HOSTILE)


@SLOW
@given(names, names)
@settings(max_examples=amount(60), deadline=None)
def test_any_name_stays_text(first: str, second: str) -> None:
    page = html_page(sample_report(lambda text: f"{first}{text}{second}"))
    root = Page(page).root
    no_way_out(root)
    assert root.one("script").text == ROOT.one("script").text
    assert escape_text(f"{first}libadded.so.3{second}") in text_of(root)
    unseen = {unicodedata.category(character) for character in page.replace("\n", "")}
    assert not unseen & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(st.text())
def test_escaping_loses_nothing(text: str) -> None:
    assert Page(tag("p", text)).root.text == Page(breakable(text)).root.text == escape_text(text)
    assert Page(tag("p", title=text)).root.one("p").attributes["title"] == escape_text(text)


def test_shown() -> None:
    assert escape_text("a\u202eb\nc\xa0\udcff") == "a\\u202eb\\nc\\xa0\\udcff"
    assert escape_text("naïve ж 漢") == "naïve ж 漢"
    long = escape_text("x" * 5000)
    assert len(long) < 2100
    assert "3000 characters" in long


def test_markup() -> None:
    assert (
        tag("p", "<", Html("<b>"), None, class_="x", hidden=True, title=None)
        == '<p class="x" hidden>&lt;<b></p>'
    )
    assert joined(["<", Html("<br>")], " & ") == "&lt; &amp; <br>"


# One page a report


@SLOW
def test_the_page_does_not_depend_on_the_process() -> None:
    code = (
        "import sys; from relink.report.html import html_page; from tests.support.reports import sample_report;"
        "sys.stdout.write(html_page(sample_report()))"
    )
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": os.getcwd()},
        )
        assert run.stdout == PAGE


def test_a_report_read_back_gives_the_same_page() -> None:
    # 0.055 in JSON, which is 0.06 for a reader.
    report = replace(sample_report(output=True), timings={"read": 0.054996})
    assert html_page(from_json(json.loads(json.dumps(to_json(report))))) == html_page(report)


def test_keys_of_a_newer_relink_are_passed_over() -> None:
    document = to_json(sample_report())
    document["new"] = document["files"][0]["new"] = document["isa"]["new"] = {"x": 1}
    assert html_page(from_json(document)) == PAGE
    del document["loads"], document["isa"]["matrix"], document["isa"]["requirements"]
    no_way_out(Page(html_page(from_json(document))).root)


def test_the_page_is_small() -> None:
    assert len(PAGE.encode()) < 80_000
    assert not re.search(r"</(script|style)", ROOT.one("script").text + ROOT.one("style").text)


PREFIX = "/srv/rocm-7.2"


def report() -> Report:
    base = sample_report()
    file = replace(
        base.files[0], rpath=RpathChange(f"/data{PREFIX}/lib", f"{PREFIX}/lib:$ORIGIN", "rpath", "rpath")
    )
    return replanned(
        base,
        command=("relink", "w.whl", "--prefix", PREFIX),
        providers=(ProviderFacts("prefix", PREFIX, "7.2", None),),
        files=(file, *base.files[1:]),
        loads=(Load("$WHEEL/pkg/root.so", "liba.so.1", f"{PREFIX}/lib/liba.so.1", None, "provider"),),
        isa={**(base.isa or {}), "matrix": {f"{PREFIX}/lib/liba.so.1": {"gfx1030": "full"}}},
        findings=(
            Finding(
                "RLK101",
                "error",
                f"{PREFIX}/lib/liba.so.1",
                f"not in {PREFIX}",
                f"Look into {PREFIX}.",
                step=f"--interpreter {PREFIX}/ld.so",
            ),
        ),
    )


def test_what_is_shown_is_shortened() -> None:
    short = prefixed(report())
    assert short.loads[0].resolved == "$PREFIX/lib/liba.so.1"
    assert short.files[0].rpath.after == "$PREFIX/lib:$ORIGIN"
    assert (short.isa or {})["matrix"] == {"$PREFIX/lib/liba.so.1": {"gfx1030": "full"}}
    (found,) = short.findings
    assert (found.subject, found.subjects, found.message) == (
        "$PREFIX/lib/liba.so.1",
        ("$PREFIX/lib/liba.so.1",),
        "not in $PREFIX",
    )


def test_what_is_typed_keeps_the_path() -> None:
    short = prefixed(report())
    (found,) = short.findings
    assert (found.remedy, found.step) == (f"Look into {PREFIX}.", f"--interpreter {PREFIX}/ld.so")
    assert short.command[-1] == short.providers[0].path == PREFIX


def test_a_longer_path_that_ends_like_it_stays() -> None:
    assert prefixed(report()).files[0].rpath.before == f"/data{PREFIX}/lib"


def test_the_page_says_what_it_stands_for() -> None:
    legend = Page(html_page(report())).root.one("p", "prefix")
    assert legend.text == f"$PREFIX stands for {PREFIX}."
    assert not Page(html_page(sample_report())).root.all("p", "prefix"), "/p is shorter than its name"


# The graph: what stands as one node, and who needs it


REPORT = sample_report()
MEMBER = "$WHEEL/pkg/root.so"


def named(report: Report, name: str) -> Node:
    (node,) = [node for node in graph_of(report) if node.name == name]
    return node


def needing(report: Report, name: str) -> list[str]:
    return [node.name for node in named(report, name).needed_by]


def test_nodes_and_what_is_said_of_them() -> None:
    assert {node.name: node.origin for node in graph_of(REPORT)} == {
        "root.so": "wheel",
        "own.so": "wheel",
        "variant.so": "wheel",
        "libkept.so.1": "provider",
        "libnew.so.2": "provider",
        "libadded.so.3": "provider",
        "liblost.so.1": "missing",
        "liblater.so.1": "assumed",
        "C library": "platform",
    }


def test_who_needs_what() -> None:
    for name in ("libnew.so.2", "liblost.so.1", "libadded.so.3"):
        assert "root.so" in needing(REPORT, name)
    assert "libkept.so.1" in needing(REPORT, "C library")


def test_the_c_library_is_one_node_that_does_not_need_itself() -> None:
    assert named(REPORT, "C library").parts == ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"]
    assert "C library" not in needing(REPORT, "C library")


def test_one_file_by_two_paths_is_one_node() -> None:
    more = Load("/p/lib/libadded.so.3", "libnew.so.2", "/p/lib/../lib/libnew.so.2", "RPATH", "provider")
    assert needing(replanned(REPORT, loads=(*REPORT.loads, more)), "libnew.so.2") == [
        "root.so",
        "libadded.so.3",
    ]


def test_a_rule_that_says_more_than_already_loaded() -> None:
    loads = (
        Load(MEMBER, "libx.so.1", "/p/libx.so.1", "already loaded", "provider"),
        Load("$WHEEL/pkg/own.so", "libx.so.1", "/p/libx.so.1", "RUNPATH entry /p", "provider"),
    )
    assert named(replanned(REPORT, loads=loads), "libx.so.1").found_by == "RUNPATH entry /p"


def test_a_report_without_loads_shows_what_the_files_need() -> None:
    report = replanned(REPORT, loads=())
    assert needing(report, "libadded.so.3") == ["root.so"]
    assert "libdropped.so.1" not in {node.name for node in graph_of(report)}


def test_a_member_that_is_installed_elsewhere_is_found_again() -> None:
    file = replace(REPORT.files[0], path="demo-1.0.data/purelib/pkg/root.so")
    assert named(replanned(REPORT, files=(file, *REPORT.files[1:])), "root.so").is_member


def wheel_report(*paths: str) -> Report:
    """Files that each need liba.so.1."""
    unchanged = (RpathChange(None, None, None, None), InterpreterChange(None, None))
    return replanned(
        REPORT,
        files=tuple(FilePlan(path, "nothing", (), *unchanged) for path in paths),
        loads=tuple(
            Load(f"$WHEEL/{path}", "liba.so.1", "/p/lib/liba.so.1", None, "provider") for path in paths
        ),
    )


def test_links_lead_to_the_file_of_a_member_and_to_the_row_of_a_library() -> None:
    nodes = graph_of(wheel_report("a.so", "b.so"))
    assert [node.anchor for node in nodes] == ["file-0", "file-1", "library-2"]


def test_members_that_are_called_alike_have_their_paths() -> None:
    assert needing(wheel_report("pkg/x/same.so", "pkg/y/same.so", "pkg/other.so"), "liba.so.1") == [
        "pkg/x/same.so",
        "pkg/y/same.so",
        "other.so",
    ]


@pytest.mark.parametrize(
    ("found_by", "phrase"),
    [
        ("RUNPATH entry /p/lib of $WHEEL/a.so", "by RUNPATH"),
        ("RPATH entry $ORIGIN of $WHEEL/pkg/other.so", "by RPATH of other.so"),
        ("LD_LIBRARY_PATH entry /p/lib", "by LD_LIBRARY_PATH"),
        ("default directory /lib", "by default directory"),
        ("ld.so.cache", "by ld.so.cache"),
        ("already loaded", "already loaded"),
    ],
)
def test_the_rule_in_a_few_words(found_by: str, phrase: str) -> None:
    assert rule_phrase(found_by, ["$WHEEL/a.so"]) == phrase


@pytest.mark.parametrize(("count", "seen", "closed"), [(5, 5, 0), (6, 6, 0), (7, 5, 2)])
def test_a_list_shows_its_first_items(count: int, seen: int, closed: int) -> None:
    root = Page("".join(fold_items([tag("li", str(number)) for number in range(count)], "files"))).root
    rest = root.all("details")
    assert sum(len(part.all("li")) for part in root.children if part.name == "ul") == seen
    assert sum(len(part.all("li")) for part in rest) == closed
    assert [part.one("summary").text for part in rest] == ["2 more files"] * (closed > 0)


@pytest.mark.slow(reason="16,000 edges take a second")
def test_a_large_report_gets_its_table() -> None:
    names = [f"/p/lib{number}.so" for number in range(8000)]
    chain = [
        Load(before, name.rsplit("/", 1)[1], name, None, "provider")
        for before, name in zip([MEMBER, *names], names, strict=False)
    ]
    fan = [Load(MEMBER, name.rsplit("/", 1)[1], name, None, "provider") for name in names]
    page = html_page(replanned(REPORT, loads=(*chain, *fan)))
    assert page.count('class="origin provider"') >= len(names)
