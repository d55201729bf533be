"""`--report` and `relink report`: pages of runs, saved reports, plans and wheels, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relink.planning.model.model import Plan
from relink.planning.model.model import to_json as plan_json
from relink.report.html import html_page
from relink.report.model import to_json
from tests.support.command import Run
from tests.support.reports import Page, sample_report
from tests.support.works import OUTPUT, Works


def verdict(path: Path) -> str:
    return Page(path.read_text(encoding="utf-8")).root.one("p", "verdict").text


def test_a_run_and_its_wheel(run: Run, works: Works, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    code, out, err = run(
        works.small(tmp_path / "in"), "--prefix", works.prefix, "-o", "dist", "--report", page
    )
    assert (code, err) == (0, "")
    assert f"report: {page}" in out
    assert verdict(page) == "Loads; checked by ld.so for 1 file."
    root = Page(page.read_text(encoding="utf-8")).root
    names = [text.text for text in root.all("text", "name")]
    assert {"a.so", "libhip.so.7", "libdeep.so.1"} <= set(names)
    code, out, _ = run("report", tmp_path / "dist" / OUTPUT)
    assert (code, out) == (0, f"{OUTPUT.removesuffix('.whl')}.html\n")
    assert verdict(Path(out.strip())) == "Loads; checked by ld.so for 1 file."


@pytest.mark.parametrize("option", ["--dry-run", "--json"])
def test_a_run_with_errors_writes_its_page(run: Run, works: Works, tmp_path: Path, option: str) -> None:
    wheel = works.wheel(tmp_path / "in", {"demo/lost.so": works.lost})
    code, out, _ = run(wheel, "--prefix", works.prefix, "-o", "dist", "--report", "page.html", option)
    assert code == 1
    assert verdict(tmp_path / "page.html") == "Cannot work yet: 1 library is missing."
    assert "libnowhere.so.1" in (tmp_path / "page.html").read_text(encoding="utf-8")
    if option == "--json":
        json.loads(out)  # nothing else on standard output


def test_json_read_again_gives_the_same_page(run: Run, works: Works, tmp_path: Path) -> None:
    words = (
        works.small(tmp_path / "in"),
        "--prefix",
        works.prefix,
        "--dry-run",
        "--json",
        "--report",
        "a.html",
    )
    _, out, _ = run(*words)
    (tmp_path / "plan.json").write_text(out)
    code, out, err = run("report", "plan.json", "-o", "b.html")
    assert (code, out, err) == (0, "b.html\n", "")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_several_wheels_ask_for_a_directory(run: Run, works: Works, tmp_path: Path) -> None:
    wheels = [works.small(tmp_path / name) for name in ("one", "two")]
    code, out, err = run(*wheels, "--prefix", works.prefix, "--dry-run", "--report", "page.html")
    assert (code, out) == (2, "")
    assert "name a directory" in err
    (tmp_path / "pages").mkdir()
    assert run(*wheels[:1], "--prefix", works.prefix, "--dry-run", "--report", "pages")[0] == 0
    assert [path.name for path in (tmp_path / "pages").iterdir()] == [f"{wheels[0].stem}.html"]


def test_a_page_that_cannot_be_written_is_told_before_the_work(
    run: Run, works: Works, tmp_path: Path
) -> None:
    wheel = works.small(tmp_path / "in")
    code, out, err = run(wheel, "--prefix", works.prefix, "-o", "dist", "--report", "nowhere/page.html")
    assert (code, out) == (2, "")
    assert "there is no directory nowhere" in err
    assert not (tmp_path / "dist").exists()


def test_nothing_but_a_page_is_written_over(run: Run, works: Works, tmp_path: Path) -> None:
    wheel = works.small(tmp_path / "in")
    before = wheel.read_bytes()
    code, _, err = run(wheel, "--prefix", works.prefix, "--dry-run", "--report", wheel)
    assert code == 2
    assert "is not called .html" in err
    assert wheel.read_bytes() == before


def test_a_plan(run: Run, tmp_path: Path) -> None:
    report = sample_report()
    plan = Plan(report.wheel, "out.whl", report.target, report.providers, report.files, (), report.loads)
    (tmp_path / "relink.json").write_text(json.dumps(plan_json(plan)))
    assert run("report", "relink.json")[0] == 0
    assert verdict(tmp_path / "relink.html") == "The plan of a wheel. 1 of 3 ELF files change."


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "this is not JSON"),
        ("{}", "this is no report of relink"),
        ("[1]", "this is no report of relink"),
        ('{"schema": "relink.reports/1", "reports": []}', "a page shows one"),
        ("3", "this is no report of relink"),
        ("[" * 100_000, "this is not JSON"),
        ('{"schema": "relink.report/1"}', "report: unknown keys [], missing keys"),
        ('{"schema": "relink.plan/1"}', "missing keys"),
        ('{"schema": "relink.gpu/1"}', "this is no report of relink"),
    ],
)
def test_what_is_no_report(run: Run, tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    code, out, err = run("report", "plan.json")
    assert (code, out) == (2, "")
    assert "plan.json: " in err
    assert says in err
    assert not (tmp_path / "plan.html").exists()


def damages() -> list[tuple[str, object]]:
    """Each key of a report with a value that it cannot have."""
    document = to_json(sample_report())
    return [
        (key, 1 if isinstance(value, str | dict | list) else "x")
        for key, value in document.items()
        if key != "schema"
    ]


@pytest.mark.parametrize(("key", "value"), damages())
def test_a_damaged_report_names_the_place(run: Run, tmp_path: Path, key: str, value: object) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(to_json(sample_report()) | {key: value}))
    code, _, err = run("report", "plan.json")
    assert code == 2
    assert f"report.{key}" in err


def test_no_file_and_a_vendors_wheel(run: Run, works: Works, tmp_path: Path) -> None:
    assert run("report", "absent.json")[0] == 2
    code, _, err = run("report", works.small(tmp_path / "in"))
    assert code == 2
    assert "--report" in err


def test_the_page_is_whole_or_not_there(run: Run, tmp_path: Path) -> None:
    report = sample_report()
    (tmp_path / "plan.json").write_text(json.dumps(to_json(report)))
    assert run("report", "plan.json", "-o", "page.html")[0] == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == html_page(report)
    (tmp_path / "plan.json").write_text(json.dumps(to_json(report) | {"isa": {"files": 1}}))
    assert run("report", "plan.json", "-o", "page.html")[0] == 2
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == html_page(report)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "plan.json"]
