"""What people and programs are shown, of reports made by hand."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from typing import Any

import jsonschema
import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relink.findings.model import Finding, finding
from relink.loader.dryrun import LoaderMap
from relink.plans.model import (
    InterpreterChange,
    NeededDecision,
    Plan,
    ProviderFacts,
    RpathChange,
    TargetFacts,
    WheelFacts,
)
from relink.report import inspection, text
from relink.report.inspection import ElfFacts, Inspection
from relink.report.lines import Grid, Line, Part, branch, show
from relink.report.model import OutputFacts, Report, report_of, to_json
from relink.report.sbom import bill_of_materials
from tests.support.plans import planned_as, recorded

SCHEMA = json.loads((resources.files("relink.report") / "report.schema.json").read_text())
WHEEL = WheelFacts("demo-1.0-py3-none-any.whl", "a" * 64, "demo", "1.0", ("py3-none-any",))
TARGET = TargetFacts("/lib64/ld.so", "2.36", ("/lib",), "/usr/bin/python3")


def needed(
    soname: str, action: Any = "keep", after: str | None = None, origin: Any = "provider"
) -> NeededDecision:
    return NeededDecision(soname, action, after or soname, f"/p/{soname}", "RUNPATH /p", origin, ("because",))


FILE = recorded(
    "demo/a.so",
    "flatten",
    (
        needed("libkeep.so.1"),
        needed("libold.so.1", "substitute", "libnew.so.2"),
        needed("libdrop.so.1", "drop"),
        needed("libone.so.1", "add"),
        needed("libtwo.so.1", "add"),
        needed("libnone.so.1", origin="missing"),
    ),
    RpathChange("/opt/rocm/lib", "/p", "rpath", "runpath"),
    InterpreterChange("/old/ld.so", "/new/ld.so"),
    (
        ("libkeep.so.1", "/p/libkeep.so.1"),
        ("libown.so", "$WHEEL/demo/libown.so"),
        ("prog", "$PREFIX/bin/prog"),
    ),
)
SAME = recorded(
    "demo/b.so", "nothing", (), RpathChange(None, None, None, None), InterpreterChange(None, None)
)
PLAN = Plan(
    WHEEL,
    "demo-1.0+rocm7.whl",
    TARGET,
    (ProviderFacts("prefix", "/p", "7.2.4", ".info/version"),),
    (FILE, SAME),
)


def report(*findings: Finding, output: OutputFacts | None = None) -> Report:
    return report_of(PLAN, ("relink", "x.whl"), output, findings, {"read": 0.12345678})


def lines(parts: list[Line]) -> list[str]:
    return [part.plain for part in parts]


# JSON


def test_a_report_fits_the_schema() -> None:
    document = to_json(
        report(finding("RLK101", "libnone.so.1", "not there"), output=OutputFacts("x", "b" * 64))
    )
    validator = jsonschema.Draft202012Validator(SCHEMA)
    validator.check_schema(SCHEMA)
    validator.validate(json.loads(json.dumps(document)))
    assert document["timings"] == {"read": 0.1235}
    assert [file["changed"] for file in document["files"]] == [True, False]


def test_more_subjects_and_a_cause_are_in_the_report() -> None:
    more = finding("RLK101", "liba.so", "m", subjects=("liba.so", "libb.so"), cause="libc.so is gone")
    document = to_json(report(finding("RLK101", "libnone.so.1", "m"), more))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert not document["findings"][0].keys() & {"subjects", "cause"}
    assert document["findings"][1]["subjects"] == ["liba.so", "libb.so"]
    assert document["findings"][1]["cause"] == "libc.so is gone"


def _objects(schema: dict[str, Any], path: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    if "properties" in schema:
        yield path, schema
    for key, item in schema.get("properties", {}).items():
        yield from _objects(item, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _objects(schema[key], path)
    for item in schema.get("anyOf", []):
        yield from _objects(item, path)


def test_the_schema_asks_for_every_key_and_allows_no_other() -> None:
    for path, schema in _objects(SCHEMA):
        if path.startswith("$.isa"):
            continue
        assert schema["additionalProperties"] is False, path
        optional = {"$.findings": {"subjects", "cause"}, "$.providers": {"found_by"}}.get(path, set())
        assert sorted(schema["required"]) == sorted(schema["properties"].keys() - optional), path


@pytest.mark.parametrize("key", sorted(SCHEMA["required"]))
def test_nothing_may_be_left_out(key: str) -> None:
    document = to_json(report())
    del document[key]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(document)


def test_ok() -> None:
    assert report().ok
    assert report(finding("RLK202", "a", "b")).ok
    assert not report(finding("RLK101", "a", "b")).ok


# Provenance


def test_bill_of_materials() -> None:
    document = bill_of_materials(PLAN, "1.0+rocm7")
    assert [item["name"] for item in document["components"]] == ["libkeep.so.1"]
    assert document["dependencies"] == [
        {"ref": "pkg:pypi/demo@1.0%2Brocm7", "dependsOn": ["/p/libkeep.so.1"]}
    ]
    assert bill_of_materials(PLAN, "1.0+rocm7") == document


def test_serial_numbers_depend_on_content_alone() -> None:
    def serial(plan: Plan) -> str:
        return str(bill_of_materials(plan, "1.0+rocm7")["serialNumber"])

    assert serial(PLAN) == serial(replace(PLAN, target=replace(TARGET, python="/elsewhere/python")))
    assert serial(PLAN) != serial(replace(PLAN, wheel=replace(WHEEL, sha256="c" * 64)))


def test_one_library_under_two_sonames_is_one_component() -> None:
    twice = replace(FILE, closure=(("libkeep.so.1", "/p/x.so"), ("libalias.so.1", "/p/x.so")))
    document = bill_of_materials(replace(PLAN, files=(twice,)), "1.0")
    references = [item["bom-ref"] for item in document["components"]]
    assert references == ["/p/x.so"]
    assert document["dependencies"][0]["dependsOn"] == ["/p/x.so"]


# Text


def test_what_changes_is_told() -> None:
    assert lines(text.plan_text(report(), verbose=False)) == [
        "demo/a.so  2 NEEDED added, 1 NEEDED replaced, 1 NEEDED dropped, 1 missing, 3 objects in its closure",
        "  - RPATH /opt/rocm/lib",
        "  + RUNPATH /p",
        "  - interpreter /old/ld.so",
        "  + interpreter /new/ld.so",
        "  ~ NEEDED libold.so.1 → libnew.so.2",
        "  - NEEDED libdrop.so.1",
        "  + NEEDED libone.so.1 libtwo.so.1",
    ]


def test_more_is_told_on_request() -> None:
    told = lines(text.plan_text(report(), verbose=True))
    assert "    substitute libold.so.1 → libnew.so.2  provider: /p/libold.so.1  [RUNPATH /p]" in told
    assert told.count("      because") == 6
    assert told[-1] == "demo/b.so  unchanged"
    unserved = replace(report(), files=(replace(SAME, served=False),))
    assert lines(text.plan_text(unserved, verbose=True)) == ["demo/b.so  not served, left as it is"]


def test_a_path_of_80_entries_is_shortened() -> None:
    long = ":".join(f"$ORIGIN/{number}" for number in range(80))
    changed = planned_as(
        FILE, needed=(), rpath=RpathChange(long, None, "runpath", None), interpreter=SAME.interpreter
    )
    told = lines(text.plan_text(replace(report(), files=(changed,)), verbose=False))
    assert told[1:] == ["  - RUNPATH $ORIGIN/0:$ORIGIN/1:$ORIGIN/2:… (80 entries)"]


def test_errors_come_last_and_a_shared_remedy_once() -> None:
    found = [
        finding("RLK101", "libone.so.1", "gone"),
        finding("RLK202", "a.so", "empty"),
        finding("RLK101", "libtwo.so.1", "gone too"),
        finding("RLK201", "a.so", "vendor"),
    ]
    told = lines(text.findings_text(found, verbose=False))
    assert told[:3] == [
        "warning RLK202 a.so: empty",
        "error RLK101 libone.so.1: gone",
        "error RLK101 libtwo.so.1: gone too",
    ]
    assert told[3].startswith("    → Add the prefix that has the library")
    assert len(told) == 4
    assert lines(text.findings_text(found, verbose=True))[0] == "info RLK201 a.so: vendor"


@pytest.mark.parametrize(
    ("made", "summary"),
    [
        (
            report(output=OutputFacts("out/x.whl", "b" * 64)),
            "out/x.whl  (1 of 2 ELF files changed; no findings)",
        ),
        (report(), "1 of 2 ELF files would change; no findings"),
        (
            report(finding("RLK101", "a", "b"), finding("RLK101", "c", "d"), finding("RLK202", "a", "b")),
            "nothing written: 2 errors, 1 warning",
        ),
    ],
)
def test_summary(made: Report, summary: str) -> None:
    assert text.summary_text(made).plain == summary


def test_verification() -> None:
    maps = {"a.so": LoaderMap((("libx.so", "/x/libx.so"),), ("liby.so",), ("undefined symbol: z",))}
    told = lines(text.verification_text(maps, [finding("RLK602", "w", "no")]))
    assert told[:4] == [
        "a.so: 1 objects, 1 not found",
        "  libx.so => /x/libx.so",
        "  liby.so => not found",
        "  ld.so: undefined symbol: z",
    ]
    assert told[4] == "error RLK602 w: no"


def shown(*parts: Part, terminal: bool = False, width: int = 40) -> str:
    console = Console(
        file=io.StringIO(), force_terminal=terminal, width=width, color_system="standard", no_color=False
    )
    with console.capture() as captured:
        show(console, *parts)
    return captured.get()


def test_lines_wrap_on_a_terminal_only() -> None:
    line = "word " * 30
    table = Grid(show_header=False)
    table.add_row("x" * 100, "y")
    assert shown(Line(line), "end") == line.rstrip() + "\nend\n"
    assert "x" * 100 in shown(table)
    assert max(map(len, shown(Line(line), terminal=True).splitlines())) <= 40
    assert shown() == ""


def test_nothing_is_taken_for_markup() -> None:
    table = Grid()
    table.add_column("[red]head")
    table.add_row("[bold]lib[/bold] :smile:")
    assert shown("[bold]lib[/bold] :smile:") == "[bold]lib[/bold] :smile:\n"
    assert shown(table) == "[red]head\n[bold]lib[/bold] :smile:\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_name_does_not_steer_the_terminal(terminal: bool) -> None:
    name = "lib\x1b[2J\rx.so\nnext\u202e"
    spelled = "lib\\x1b[2J\\x0dx.so\\nnext\\u202e"
    table = Grid(show_header=False)
    table.add_row(name)
    tree = branch(name)
    tree.add(name)
    out = shown(name, Line(name), Line.assemble(name, (name, "")), table, tree, terminal=terminal, width=200)
    assert out.splitlines() == [spelled, spelled, spelled * 2, spelled, spelled, f"└── {spelled}"]


@pytest.mark.parametrize("part", [Text("x"), Table("x"), b"x", None])
def test_what_is_not_escaped_is_not_printed(part: Any) -> None:
    with pytest.raises(TypeError, match="is not escaped"):
        shown(part)


def _inspection(**facts: Any) -> Inspection:
    usual: dict[str, Any] = {
        "path": "a.so",
        "size": 1000,
        "machine": "x86_64",
        "soname": None,
        "needed": ("lib[red]x[/red].so", "lib\x1b[2J.so"),
        "search_kind": "rpath",
        "search_path": "/p:",
        "interpreter": None,
        "versions": (("libx.so", ("V1", "V2")),),
        "imports": 1,
        "exports": 2,
    }
    file = ElfFacts(**(usual | facts))
    return Inspection("w.whl", "a" * 64, "w", "1", ("t",), 3, 10, 200_000_000, (file,), ())


@pytest.mark.parametrize("terminal", [True, False])
def test_inspection_shows_names_as_they_are(terminal: bool) -> None:
    out = shown(*inspection.to_text(_inspection()), terminal=terminal, width=100)
    assert "lib[red]x[/red].so" in out
    assert "lib\\x1b[2J.so" in out
    assert "\x1b[2J" not in out
    assert "200.0 MB unpacked" in out
    assert "(empty: current directory)" in out
    assert "V1, V2 of libx.so" in out


def test_inspection_of_what_needs_nothing() -> None:
    out = shown(*inspection.to_text(_inspection(needed=(), search_path=None, search_kind=None)))
    assert "needs         nothing\n" in out
    assert "RPATH" not in out
