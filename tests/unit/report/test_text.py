"""What people and programs are shown, of reports made by hand."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relink.elf.source import BufferSource
from relink.gpu.amd.device import Devices, Doctor, Gpu, NodeAccess
from relink.gpu.amd.device_code import read_device_code
from relink.gpu.amd.file_coverage import FileCoverage, LibraryCoverage, coverage_of, intersect, kernels_of
from relink.gpu.amd.runtime import Capability
from relink.gpu.amd.target_id import table
from relink.gpu.coverage import Coverage, Group, Survey, TargetId
from relink.loader.dryrun import LoaderMap
from relink.make.added_members import make_bill_of_materials
from relink.planning.checks.machine import MachineCheck
from relink.planning.model import (
    FilePlan,
    InterpreterChange,
    NeededDecision,
    Plan,
    ProviderFacts,
    RpathChange,
    TargetFacts,
    WheelFacts,
    embed_plan,
)
from relink.report import inspection, text
from relink.report.inspection import ElfFacts, Inspection
from relink.report.lines import Line, Part, branch, show
from relink.report.model import OutputFacts, Report, to_json
from relink.report.summary import Verdict
from relink.report.text import doctor_text, survey_text
from relink.system.findings.model import RULES, Finding, finding
from relink.system.shipped_files import load_schema
from relink.vendors.protocol import Release
from relink.vendors.registry import requested_gpus
from relink.vendors.rocm.vendor import PrefixHealth, make_diagnosis
from tests.support.plans import replanned
from tests.unit.gpu.amd.build import entries_of, library, raw
from tests.unit.gpu.amd.covering import beside, tensile

SCHEMA = load_schema("report")
WHEEL = WheelFacts("demo-1.0-py3-none-any.whl", "a" * 64, "demo", "1.0", ("py3-none-any",))
TARGET = TargetFacts("/lib64/ld.so", "2.36", ("/lib",), "/usr/bin/python3")


def needed(
    soname: str, action: Any = "keep", after: str | None = None, origin: Any = "provider"
) -> NeededDecision:
    return NeededDecision(soname, action, after or soname, f"/p/{soname}", "RUNPATH /p", origin, ("because",))


FILE = FilePlan(
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
SAME = FilePlan(
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
    return Report(("relink", "x.whl"), replace(PLAN, findings=findings), output, timings={"read": 0.12345678})


def lines(parts: Iterable[Line]) -> list[str]:
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
    more = replace(
        finding("RLK101", "liba.so", "m"), subjects=("liba.so", "libb.so"), cause="libc.so is gone"
    )
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
        optional = {
            "$": {"reports", "failures", "opened", "stubs", "way_out", "other_ways_out"},
            "$.stubs": {"needed", "search_path", "search_kind", "shim_of"},
            "$.findings": {"subjects", "cause", "brief", "step", "choices", "without"},
            "$.providers": {"found_by", "link_to", "has_none", "digest"},
            "$.files": {"versions", "clear_stack"},
            "$.stubs.functions": {"text"},
        }.get(path, set())
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
    document = make_bill_of_materials(PLAN, "1.0+rocm7")
    assert [item["name"] for item in document["components"]] == ["libkeep.so.1"]
    assert document["dependencies"] == [
        {"ref": "pkg:pypi/demo@1.0%2Brocm7", "dependsOn": ["/p/libkeep.so.1"]}
    ]
    assert make_bill_of_materials(PLAN, "1.0+rocm7") == document


def test_serial_numbers_depend_on_content_alone() -> None:
    def serial(plan: Plan) -> str:
        return str(make_bill_of_materials(plan, "1.0+rocm7")["serialNumber"])

    elsewhere = replace(PLAN, target=replace(TARGET, python="/elsewhere/python"))
    assert serial(embed_plan(PLAN)) == serial(embed_plan(elsewhere))
    assert serial(PLAN) != serial(replace(PLAN, wheel=replace(WHEEL, sha256="c" * 64)))


def test_one_library_under_two_sonames_is_one_component() -> None:
    twice = replace(FILE, closure=(("libkeep.so.1", "/p/x.so"), ("libalias.so.1", "/p/x.so")))
    document = make_bill_of_materials(replace(PLAN, files=(twice,)), "1.0")
    references = [item["bom-ref"] for item in document["components"]]
    assert references == ["/p/x.so"]
    assert document["dependencies"][0]["dependsOn"] == ["/p/x.so"]


# Text


def test_what_changes_is_told_with_its_evidence() -> None:
    told = lines(text.plan_text(report()))
    edits = "RUNPATH /p, interpreter /new/ld.so, libold.so.1 → libnew.so.2, libdrop.so.1 dropped"
    assert told[0] == f"demo/a.so  {edits}, 2 libraries added (NEEDED)"
    assert told[1] == "    before: RPATH /opt/rocm/lib"
    assert "    substitute libold.so.1 → libnew.so.2  provider: /p/libold.so.1  [RUNPATH /p]" in told
    assert told.count("      because") == 6
    assert told[-1] == "demo/b.so  unchanged"
    unserved = replanned(report(), files=(replace(SAME, served=False),))
    assert lines(text.plan_text(unserved)) == ["demo/b.so  not served, left as it is"]


def test_a_path_of_80_entries_is_shortened() -> None:
    long = ":".join(f"$ORIGIN/{number}" for number in range(80))
    changed = replace(
        FILE, needed=(), rpath=RpathChange(long, None, "runpath", None), interpreter=SAME.interpreter
    )
    told = lines(text.plan_text(replanned(report(), files=(changed,))))
    assert told == [
        "demo/a.so  no search path",
        "    before: RUNPATH $ORIGIN/0:$ORIGIN/1:$ORIGIN/2:… (80 entries)",
    ]


def test_the_header_says_what_the_prefix_is_called_below() -> None:
    plan = replace(PLAN, providers=(ProviderFacts("prefix", "/opt/rocm-7.2.4", "7.2.4", ".info/version"),))
    made = Report((), plan, None)
    summed = Verdict("info", "Loads.")
    assert lines(text.header_text(made, summed)) == [
        "demo 1.0: Loads.",
        "with ROCm 7.2.4 in /opt/rocm-7.2.4 ($PREFIX), for glibc 2.36",
    ]
    assert text.header_text(made, summed, verbose=True)[1].plain.endswith(", for glibc 2.36 (/lib64/ld.so)")
    link = ProviderFacts("prefix", "/opt/rocm", "7.2.4", link_to="/opt/rocm-7.2.4")
    more = replace(plan, providers=(link, ProviderFacts("prefix", "/mine", None, has_none=True)))
    assert lines(text.header_text(Report((), more, None), summed))[1:] == [
        "with ROCm 7.2.4 in /opt/rocm ($PREFIX, a link to /opt/rocm-7.2.4) and /mine, for glibc 2.36"
    ]
    shown = text.shorten_prefix(made, "/opt/rocm-7.2.4/lib:/opt/rocm-7.2.4.1/lib:/opt/rocm-7.2.4")
    assert shown == "$PREFIX/lib:/opt/rocm-7.2.4.1/lib:$PREFIX"
    assert text.shorten_prefix(made, "/data/opt/rocm-7.2.4/lib") == "/data/opt/rocm-7.2.4/lib"


def test_files_that_change_alike_are_one_line() -> None:
    def changed(name: str, after: str) -> FilePlan:
        path = RpathChange(f"/build/{name}", after, "rpath", "runpath")
        return FilePlan(f"demo/{name}.so", "runpath", (), path, InterpreterChange(None, None))

    files = (FILE, SAME, *(changed(name, "/p") for name in "cdef"), changed("g", "/q"))
    assert lines(text.change_text(replanned(report(), files=files))) == [
        "  a.so: RUNPATH /p, interpreter /new/ld.so, libold.so.1 → libnew.so.2, libdrop.so.1 dropped, 2 libraries added (NEEDED)",
        "  4 files: RUNPATH /p",
        "  g.so: RUNPATH /q",
    ]
    many = tuple(changed(name, f"/{name}") for name in "abcdefg")
    told = lines(text.change_text(replanned(report(), files=many)))
    assert told[3:] == ["  d.so: RUNPATH /d", "  3 more files in other ways; -v shows each"]


def test_errors_come_last_and_a_shared_remedy_once() -> None:
    found = [
        finding("RLK101", "libone.so.1", "gone"),
        finding("RLK202", "a.so", "empty"),
        finding("RLK606", "a.so", "trusted"),
        finding("RLK101", "libtwo.so.1", "gone too"),
        finding("RLK201", "a.so", "vendor"),
    ]
    told = lines(text.findings_text(found, verbose=False))
    assert told[0] == "warning RLK606 a.so: trusted"
    assert told[2:4] == ["error RLK101 libone.so.1: gone", "error RLK101 libtwo.so.1: gone too"]
    assert told[4].startswith("    → Install the package that has the library")
    assert len(told) == 5
    every = lines(text.findings_text(found, verbose=True))
    assert every[:2] == ["info RLK201 a.so: vendor", "info RLK202 a.so: empty"]


def test_a_cause_is_told_once_and_each_finding_on_request() -> None:
    cause = "3 libraries need up to G_2; the target has G_1"
    found = [
        replace(
            finding("RLK301", "/p/liba.so", "needs G_2", "Aim.", step="--interpreter /p/ld.so"), cause=cause
        ),
        replace(finding("RLK302", "/p/liba.so", "imports f@G_2"), cause=cause),
        replace(
            finding("RLK301", "/p/libb.so", "needs G_2", "Aim.", step="--interpreter /p/ld.so"), cause=cause
        ),
        finding("RLK120", "libc.so", "m", "Long.", step="--preload libc.so", profile="rocm", brief="b"),
        *(finding("RLK606", f"/p/{name}.so", "m", "Do.") for name in "defg"),
    ]
    told = lines(text.findings_text(found, verbose=False, shown=lambda part: part.replace("/p", "$PREFIX")))
    assert told == [
        "warning RLK120 libc.so: b [profile rocm]",
        "    → Pass --preload libc.so",
        "warning RLK606 $PREFIX/d.so, $PREFIX/e.so, $PREFIX/f.so and 1 more: m",
        "    → Do.",
        f"error RLK301 {cause}",
        "    → Pass --interpreter /p/ld.so",
    ]
    assert len([line for line in lines(text.findings_text(found, verbose=True)) if " RLK" in line]) == len(
        found
    )


def test_the_wheel_needs_no_second_name() -> None:
    found = [
        finding("RLK520", WHEEL.path, "is tagged cp312: m", "Do.", level="warning", brief="is tagged cp312")
    ]
    told = lines(text.findings_text(found, verbose=False, shown=text.text_shortener(report(*found))))
    assert told == ["warning RLK520 the wheel: is tagged cp312", "    → Do."]


def test_an_option_that_the_verdict_has_is_not_told_twice() -> None:
    found = [
        finding("RLK301", "a", "m", "Aim.", step="--interpreter /p/ld.so"),
        finding("RLK116", "b", "m", "Do."),
    ]
    again = "relink w.whl --interpreter /p/ld.so"
    assert lines(text.findings_text(found, verbose=False, said=again)) == [
        "error RLK116 b: m",
        "    → Do.",
        "error RLK301 a: m",
    ]


def test_options_that_the_verdict_has_not_are_told_one_by_one() -> None:
    """Of four that are opened in vain one has no option, so no command is tried, and none of them goes without its arrow."""
    names = ("liba.so", "libb.so", "libc.so")
    found = [finding("RLK132", name, f"opened {name}", step=f"--forward {name}") for name in names]
    last = finding("RLK132", "libd.so", "opened libd.so", "Install it.")
    told = lines(text.findings_text([*found, last], verbose=False, said="relink rules RLK132"))
    assert [line for line in told if "→" in line][:3] == [f"    → Pass --forward {name}" for name in names]


def test_more_than_two_of_a_code_have_one_remedy() -> None:
    found = [finding("RLK101", f"lib{name}.so", "gone", f"Get {name}.") for name in "abc"]
    told = lines(text.findings_text(found, verbose=False))
    assert len(told) == 4
    assert told[3].endswith("What to do about each: -v")
    assert len(lines(text.findings_text(found[:2], verbose=False))) == 4


def test_what_is_repaired_is_one_line() -> None:
    found = [
        finding("RLK202", "a.so", "m"),
        finding("RLK202", "b.so", "m"),
        finding("RLK504", "w.whl", "m"),
        finding("RLK201", "a.so", "m"),
    ]
    assert lines(text.repaired_text(found)) == [
        "info repaired: empty search path entries, an untrue platform tag"
    ]
    assert not text.repaired_text(found[3:])


def test_verification() -> None:
    problems = (
        "undefined symbol: z\t($WHEEL/a.so)",
        "undefined symbol: PyList_New\t($WHEEL/a.so)",
        "undefined symbol: _Py_Dealloc\t($WHEEL/a.so)",
        "undefined symbol: Python, version P_1\t($WHEEL/a.so)",
    )
    maps = {"a.so": LoaderMap((("libx.so", "/x/libx.so"),), ("liby.so",), problems)}
    found = [finding("RLK602", "w", "no"), finding("RLK101", "liby.so", "m", "Get it.")]
    told = lines(text.verification_text("my w.whl", maps, found))
    assert told == [
        "my w: Does not load: not verified (w); 1 library is missing.",
        "a.so: 1 library found, 1 not found",
        "  libx.so => /x/libx.so",
        "  liby.so => not found",
        "  ld.so: undefined symbol: z ($WHEEL/a.so)",
        "  ld.so: undefined symbol: Python, version P_1 ($WHEEL/a.so)",
        "  2 symbols left to the Python that imports it",
        "error RLK101 liby.so: m",
        "    → Get it.",
        "error RLK602 w: no",
        f"    → {RULES['RLK602'].fix}",
        "Does not load: not verified (w); 1 library is missing.",
        "Next: relink my w.whl for a prefix that has liby.so (--prefix DIR)",
    ]
    assert lines(text.verification_text("w", {"a.so": LoaderMap((), (), ())}, []))[-1] == (
        "Loads; checked by ld.so for 1 file."
    )
    nothing = "No ELF file for this loader: nothing to check."
    assert lines(text.verification_text("w", {}, [])) == [f"w: {nothing}", nothing]


def test_verify_tells_a_cause_once() -> None:
    """A wheel for another Python: each of its files imports what this one has not."""
    findings = [
        replace(finding("RLK302", f"{name}.so", "imports f"), cause="Python lacks f") for name in "abcde"
    ]
    alone = replace(finding("RLK101", "liby.so", "m; looked in /x"), brief="m")
    told = lines(text.verification_text("w", {"a.so": LoaderMap((), (), ())}, [*findings, alone]))
    assert [line for line in told if line.startswith("error")] == [
        "error RLK101 liby.so: m; looked in /x",
        "error RLK302 a.so, b.so, c.so and 2 more: Python lacks f",
    ]


def shown(*parts: Part, terminal: bool = False, width: int = 40) -> str:
    console = Console(
        file=io.StringIO(),
        force_terminal=terminal,
        width=width,
        color_system="standard" if terminal else None,
        no_color=False,
    )
    with console.capture() as captured:
        show(console, *parts)
    return captured.get()


def test_lines_wrap_on_a_terminal_only() -> None:
    line = "word " * 30
    assert shown(Line(line), "end") == line.rstrip() + "\nend\n"
    assert max(map(len, shown(Line(line), terminal=True).splitlines())) <= 40
    assert shown() == ""


def test_the_next_command_is_one_line_on_a_terminal_too() -> None:
    """What is copied from a terminal can be pasted: rich puts no line feed into it."""
    step = "Next: relink 'my wheel.whl' --prefix /opt/rocm-7.2.4 --interpreter /opt/rocm-7.2.4/lib/ld.so"
    assert shown(Line(step), terminal=True).splitlines() == [step]


def test_nothing_is_taken_for_markup() -> None:
    assert shown("[bold]lib[/bold] :smile:") == "[bold]lib[/bold] :smile:\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_name_does_not_steer_the_terminal(terminal: bool) -> None:
    name = "lib\x1b[2J\rx.so\nnext\u202e"
    spelled = "lib\\x1b[2J\\x0dx.so\\nnext\\u202e"
    tree = branch(name)
    tree.add(name)
    out = shown(name, Line(name), Line.assemble(name, (name, "")), tree, terminal=terminal, width=200)
    assert out.splitlines() == [spelled, spelled, spelled * 2, spelled, f"└── {spelled}"]


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


def test_lines_fold_between_words_on_a_terminal_only() -> None:
    path = "/a/path/that/is/longer/than/the/terminal/is/wide.so"
    line = Line(f"    → it is in {path}, and in two or three other places")
    told = shown(line, terminal=True, width=30).splitlines()
    assert told == [
        "    → it is in",
        f"      {path},",
        "      and in two or three",
        "      other places",
    ]
    assert shown(line, width=30) == line.plain + "\n"


def test_styles_survive_a_fold() -> None:
    line = Line.assemble(("error ", "red"), ("one two three four", "bold"))
    told = shown(line, terminal=True, width=12)
    assert told.count("\x1b[1m") == 3
    assert re.sub(r"\x1b\[[0-9;]*m", "", told).split() == ["error", "one", "two", "three", "four"]


GFX1030, GFX1031 = TargetId("gfx1030"), TargetId("gfx1031")


def machine(*gpus: Gpu, nodes: tuple[NodeAccess, ...] = ()) -> Doctor:
    return Doctor(Devices(gpus, present=True), nodes, (), ())


def checked(found: Doctor, *prefixes: PrefixHealth, findings: tuple[Finding, ...] = ()) -> MachineCheck:
    return MachineCheck((make_diagnosis(found, prefixes),), findings)


def machine_shown(found: MachineCheck) -> list[str]:
    return [line.plain for line in doctor_text(found)]


def test_gpus_and_what_they_pass_for() -> None:
    plain = Gpu(1, GFX1030, GFX1030, ("RX 6800", "RX 6900"))
    other = Gpu(2, GFX1030, GFX1031)
    text = machine_shown(checked(machine(plain, other)))
    assert text[:3] == [
        "This machine",
        "  GPU gfx1030, node 1: RX 6800, RX 6900; xnack unknown",
        "  GPU gfx1030, node 2: unknown product; xnack unknown; really gfx1031",
    ]
    assert "  no GPU" not in text
    assert "  no GPU" in machine_shown(checked(machine()))


def test_the_state_of_each_node() -> None:
    nodes = (
        NodeAccess("/dev/kfd", exists=True, accessible=True, group="render"),
        NodeAccess("/dev/dri/renderD128", exists=True, accessible=False),
        NodeAccess("/dev/dri/renderD129", exists=False, accessible=False),
    )
    lines = doctor_text(checked(machine(nodes=nodes)))
    found = {line.plain: line for line in lines}
    assert [*found][2:5] == [
        "  /dev/kfd: accessible (group render)",
        "  /dev/dri/renderD128: not accessible",
        "  /dev/dri/renderD129: not there",
    ]


def test_a_prefix_of_which_nothing_is_known_and_one_of_which_all_is() -> None:
    unknown = PrefixHealth("/opt/a", None, Capability(), ())
    runtime = Capability(
        hip=(7, 2), comgr_api=(3, 1), ccob=3, generic=True, kpack=False, agents=("gfx90a", "gfx1100")
    )
    known = PrefixHealth("/opt/b", Release("7.2.4", ".info/version", "rocm7.2.4"), runtime, ())
    text = machine_shown(checked(machine(), unknown, known))
    first, second = (
        text.index("/opt/a  ROCm, release unknown"),
        text.index("/opt/b  ROCm 7.2.4 (by .info/version)"),
    )
    assert first < second
    assert [line.partition(": ")[2] for line in text[first + 1 : second - 1]] == ["unknown"] * 8
    assert "  HIP runtime: 7.2" in text[second:]
    assert "  generic targets: yes" in text[second:]
    assert "  kpack archives: no" in text[second:]
    assert "  compressed bundles up to version: 3" in text[second:]
    assert "  GPUs that the HSA runtime knows: 2, up to gfx1100" in text[second:]


def test_findings_come_last_with_their_remedies() -> None:
    lost = finding("RLK424", "/opt/a", "libamd_comgr was not found", "Install it.")
    text = machine_shown(checked(machine(), PrefixHealth("/opt/a", None, Capability(), ()), findings=(lost,)))
    below = "\n".join(text[text.index("/opt/a  ROCm, release unknown") :])
    assert "RLK424" in below
    assert "Install it." in below


def file_of(path: str, *sets: tuple[str, ...]) -> Coverage:
    data = library([raw(entries_of(*targets)) for targets in sets])
    return coverage_of(read_device_code(BufferSource(data), path))


def survey_of(*items: Coverage, kind: str = "wheel", plain: tuple[str, ...] = ()) -> Survey:
    return survey_with([group("", *items)], *items, path="demo.whl", kind=kind, plain=plain)


def group(name: str, *items: Coverage) -> Group:
    return Group(name, items, intersect(items))


def survey_with(
    groups: Sequence[Group],
    *items: Coverage,
    path: str = "d",
    kind: str = "wheel",
    plain: tuple[str, ...] = (),
) -> Survey:
    kernels = tuple(item for item in items if isinstance(item, FileCoverage) and item.files)
    example = TargetId("gfx1100")
    return Survey("rocm", path, kind, items, tuple(groups), example, kernels, (), plain, len(items))


def miopen() -> LibraryCoverage:
    cover = coverage_of(read_device_code(BufferSource(library()), "libMIOpen.so.1"))
    return LibraryCoverage("libMIOpen.so.1", cover, (), table().library("libMIOpen.so.1"))


MIXED = survey_of(
    file_of("pkg/a.so", ("gfx1030", "gfx1100"), ("gfx1030",)),
    file_of("pkg/b.so", ("gfx1030", "gfx90a:xnack+")),
    miopen(),
)


def printed(found: Survey, *gpus: str) -> str:
    console = Console(file=io.StringIO(), width=20, highlight=False)
    show(console, *survey_text(found, requested_gpus(gpus)))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_one_line_a_file() -> None:
    text = printed(MIXED, "gfx1031")
    lines = text.splitlines()
    assert lines[0] == "demo.whl: wheel, 3 files with GPU code read"
    assert "pkg/a.so: raw, 2 bundles: full gfx1030; partial (1 of 2) gfx1100" in lines
    assert "libMIOpen.so.1: no GPU code: MIOpen compiles its kernels on first use" in lines
    assert "\x1b" not in text
    b = "only as gfx90a:sramecc+:xnack+, gfx90a:sramecc-:xnack+ gfx90a; full gfx1030"
    assert f"pkg/b.so: raw, 1 bundle: {b}" in lines
    assert lines[-1] == ("gfx1031 (RX 6700, RX 6700 XT, RX 6750 XT): missing: a.so (none), b.so (none)")


def test_some_variants_only() -> None:
    first, second = file_of("pkg/one.so", ("gfx1030",)), file_of("pkg/two.so", ("gfx1030", "gfx1100"))
    found = survey_with([group("pkg/one.so", first), group("pkg/two.so", second)], first, second)
    text = printed(found, "gfx1100", "gfx1030")
    assert "): covered with two.so only" in text
    assert text.endswith("): covered\n")
    assert "with one.so covered: gfx1030\n" in text


def test_nothing_to_show() -> None:
    text = printed(survey_of(plain=("a.so", "b.so")), "gfx1030")
    assert "no library with GPU code; 2 ELF files without any" in text
    assert "not restricted: no prebuilt code" in " ".join(text.split())


def test_an_optional_library_that_has_kernels_for_a_gpu_covers_it() -> None:
    side = replace(tensile(("gfx1100", "tuned")), kind="hipblaslt")
    text = printed(survey_of(beside("libhipblaslt.so.1", side)), "gfx1100", "gfx942")
    assert "full gfx1100" in text
    assert "): covered" in text
    assert "): not restricted: no prebuilt code" in " ".join(text.split())


def test_kernel_files_and_problems() -> None:
    kernels = kernels_of("k", [read_device_code(BufferSource(raw(entries_of("gfx1030"))), "k/x.co")] * 7)
    found = replace(survey_with([group("")], kernels), problems=("k: odd",))
    text = printed(found, "gfx1030", "gfx1100")
    assert "k: 7 kernel files: full gfx1030" in text
    assert "): missing: no kernel file is for it" in text
    assert "warning: k: odd" in text
