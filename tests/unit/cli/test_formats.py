"""The option that chooses a format, on each command that has it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from relink.cli.formats import OutputFormat
from relink.planning.model import Plan
from relink.planning.model import to_json as plan_json
from relink.report.formats import FORMATS
from relink.report.html import html_page
from relink.report.model import to_json
from tests.support.command import Run
from tests.support.reports import Page, sample_report
from tests.support.wheels import changed
from tests.support.works import OUTPUT, Works
from tests.unit.report.formatted import commands, log

SLOW = pytest.mark.slow(reason="several runs; test_run has the formats of one")


def verdict(path: Path) -> str:
    return Page(path.read_text(encoding="utf-8")).root.one("p", "verdict").text


@SLOW
def test_a_run_and_its_wheel(run: Run, works: Works, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    code, out, err = run(
        works.small(tmp_path / "in"), "--prefix", works.prefix, "-o", "dist", "--report", page
    )
    assert (code, err) == (0, "")
    assert f"report: {page}" in out
    assert verdict(page) == "Loads; checked by ld.so for 1 file."
    root = Page(page.read_text(encoding="utf-8")).root
    names = [
        row.one("th").text for table in root.all("table", "libraries") for row in table.one("tbody").all("tr")
    ]
    assert {"libhip.so.7", "libdeep.so.1"} <= set(names)
    code, out, _ = run("report", tmp_path / "dist" / OUTPUT)
    assert (code, out) == (0, f"{OUTPUT.removesuffix('.whl')}.html\n")
    assert verdict(Path(out.strip())) == "Loads; checked by ld.so for 1 file."


@pytest.mark.few(1, reason="the same of other values")
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
    told = verdict(tmp_path / "relink.html")
    assert told.startswith(
        "The plan of a wheel. 1 of 3 ELF files change. Whether the wheel loads is told by "
    )


@pytest.mark.few(3, reason="the same of other values")
@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "this is not JSON"),
        ("{}", "this is no report of relink"),
        ("[1]", "this is no report of relink"),
        ('{"schema": "relink.reports/1", "reports": []}', "a page shows one"),
        ("3", "this is no report of relink"),
        ("[" * 100_000, "this is not JSON"),
        ('{"schema": "relink.report/1"}', "report: Object missing required field"),
        ('{"schema": "relink.plan/1"}', "Object missing required field"),
        ('{"schema": "relink.gpu/1"}', "this is no report of relink"),
    ],
)
def test_what_is_no_report(run: Run, tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    code, out, err = run("report", "plan.json")
    assert (code, out) == (2, "")
    assert "plan.json" in err
    assert says in err
    assert not (tmp_path / "plan.html").exists()


def damages() -> list[tuple[str, object]]:
    """Each key of a report with a value that it cannot have."""
    document = to_json(sample_report())
    return [
        (key, 1 if isinstance(value, str | dict | list) else "x")
        for key, value in document.items()
        if key not in ("schema", "ok", "verdict")  # nothing reads these two
    ]


@pytest.mark.few(4, reason="the same of other values")
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


def test_the_option_offers_every_format() -> None:
    assert {item.value for item in OutputFormat} == {"text", *FORMATS}


# On the command line


def test_run(run: Run, works: Works, tmp_path: Path) -> None:
    vendor = works.wheel(tmp_path / "in", {"demo/lost.so": works.lost})
    words = (vendor, "--prefix", works.prefix)
    code, out, err = run(*words, "--output-format", "sarif")
    assert (code, err) == (1, "")
    found = log(out)
    assert found["artifacts"][0]["location"]["uri"] == f"in/{vendor.name}"
    assert ("RLK101", "error") in {(item["ruleId"], item["level"]) for item in found["results"]}
    code, out, err = run(*words, "--output-format", "github")
    assert (code, err) == (1, "")
    assert {name for name, _, _ in commands(out)} == {"error", "notice"}
    as_json = run(*words, "--json")
    chosen = run(*words, "--output-format", "json")
    assert json.loads(chosen[1])["findings"] == json.loads(as_json[1])["findings"]
    assert run(*words, "--output-format", "text")[1] == run(*words)[1]


def test_a_wheel_that_cannot_be_read_is_in_the_log(run: Run, works: Works, tmp_path: Path) -> None:
    (tmp_path / "bad-1-py3-none-any.whl").write_bytes(b"no archive")
    words = ("bad-1-py3-none-any.whl", works.small(tmp_path), "--prefix", works.prefix, "--dry-run")
    code, out, err = run(*words, "--output-format", "sarif")
    assert code == 2
    found = log(out)
    assert len(found["artifacts"]) == 1
    invocation = found["invocations"][0]
    assert invocation["executionSuccessful"] is False
    (told,) = invocation["toolExecutionNotifications"]
    assert "bad-1-py3-none-any.whl" in told["message"]["text"]
    assert "bad-1-py3-none-any.whl" in err
    code, out, _ = run(*words, "--output-format", "github")
    assert code == 2
    assert ("error", {"title": "relink"}) in [(name, properties) for name, properties, _ in commands(out)]


@SLOW
def test_inspect_and_verify(run: Run, works: Works, tmp_path: Path) -> None:
    vendor = works.small(tmp_path / "in")
    assert run("inspect", vendor, "--output-format", "github")[0] == 0
    code, out, _ = run("inspect", vendor, "--output-format", "sarif")
    assert code == 0
    assert log(out)["artifacts"][0]["location"]["uri"] == f"in/{vendor.name}"
    assert log(out)["artifacts"][0]["hashes"]["sha-256"]
    code, out, _ = run("verify", vendor, "--output-format", "sarif")
    assert code == 1
    assert [item["ruleId"] for item in log(out)["results"] if item["level"] == "error"]
    code, out, _ = run("verify", vendor, "--output-format", "github")
    assert code == 1
    assert "error" in {name for name, _, _ in commands(out)}


@SLOW
def test_a_difference_that_no_plan_explains(run: Run, works: Works, tmp_path: Path) -> None:
    vendor = works.wheel(tmp_path / "vendor")
    assert run(vendor, "--prefix", works.prefix, "-o", tmp_path)[0] == 0
    relinked = tmp_path / OUTPUT
    prefix = ("--prefix", works.prefix)
    code, out, _ = run("diff", vendor, relinked, *prefix, "--output-format", "sarif")
    assert (code, log(out)["results"]) == (0, [])
    with zipfile.ZipFile(relinked) as archive:
        content = archive.read("demo/plain.so")
    other = changed(relinked, tmp_path / "other", {"demo/plain.so": content + b"\0"})
    code, out, _ = run("diff", vendor, other, "--output-format", "sarif")
    assert (code, log(out)["results"]) == (0, [])  # listed, and not judged
    code, out, _ = run("diff", vendor, other, *prefix, "--output-format", "sarif")
    assert code == 1
    texts = [item["message"]["text"] for item in log(out)["results"] if item["ruleId"] == "RLK621"]
    assert any("demo/plain.so: the content is not " in text for text in texts)
    code, out, _ = run("diff", vendor, other, *prefix, "--output-format", "github")
    assert [name for name, _, _ in commands(out)] == ["error"] * len(texts)


@pytest.mark.parametrize("command", ["run", "inspect", "verify"])
def test_two_formats(run: Run, tmp_path: Path, command: str) -> None:
    code, out, err = run(command, tmp_path / "x.whl", "--json", "--output-format", "sarif")
    assert (code, out) == (2, "")
    assert "--json and --output-format sarif are two formats" in err
