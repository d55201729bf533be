"""`$PREFIX` stands for the provider's path where a page shows it, and never where it is to be typed."""

from __future__ import annotations

from dataclasses import replace

from relink.planning.model.model import Load, ProviderFacts, RpathChange
from relink.report.html import html_page
from relink.report.html.prefixed import prefixed
from relink.report.model import Report
from relink.system.findings.model import Finding
from tests.support.plans import replanned
from tests.support.reports import Page, sample_report

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
