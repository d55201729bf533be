"""The report as one HTML page: no network, no script needed, the same bytes for the same report."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib import resources

from relink.findings.model import RULES, Finding
from relink.report.html.files import files_section
from relink.report.html.gpu import Isa, gpu_section, isa_of
from relink.report.html.graph import Graph, graph_of
from relink.report.html.libraries import graph_section
from relink.report.html.markup import EMPTY, Html, breakable, joined, tag
from relink.report.html.words import LEVELS, name_of, path_of, region
from relink.report.model import Report
from relink.text import pluralize

__all__ = ["html_page"]


def html_page(report: Report, *, plan: bool = False) -> str:
    """Return the page.

    :param plan: the report is what a plan says: nothing is known of an output, nor of GPUs.
    :raises UsageError: the report's ``isa`` object has another shape than ``report.schema.json`` says.
    """
    graph = graph_of(report)
    isa = isa_of(report.isa) if report.isa is not None else None
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content=f"relink {report.relink}"),
        tag("title", f"{report.wheel.name} {report.wheel.version}: relink report"),
        tag("style", style),
    )
    body = tag(
        "body",
        tag("a", "Skip to the findings", href="#findings", class_="skip"),
        tag("header", *_header(report, graph, isa, plan=plan)),
        _navigation(report),
        tag(
            "main",
            _findings(report.findings),
            graph_section(graph, report.target.glibc),
            gpu_section(isa),
            files_section(report.files),
            _facts(report),
        ),
        tag(
            "footer", tag("p", f"Written by relink {report.relink}. The page needs no network and no script.")
        ),
        tag("script", script),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


@cache
def _asset(name: str) -> Html:
    return Html((resources.files(__package__) / name).read_text(encoding="utf-8"))


def _digest(text: str) -> str:
    """Return the source expression of Content Security Policy Level 3, section 2.3.1, that allows this inline text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _header(report: Report, graph: Graph, isa: Isa | None, *, plan: bool) -> Iterator[Html]:
    wheel = report.wheel
    yield tag("p", "relink plan" if plan else "relink report", class_="kicker")
    yield tag("h1", tag("bdi", wheel.name), " ", tag("bdi", wheel.version, class_="version"))
    kind, word, rest = _verdict(report, plan=plan)
    yield tag("p", tag("strong", word), f" {rest}", class_=f"verdict {kind}")
    changed = sum(file.changed for file in report.files)
    outside = [node for node in graph.nodes if node.file is None]
    needed = {edge.end for edge in graph.edges if edge.change != "dropped"}
    missing = sum(number in needed and node.origin == "missing" for number, node in enumerate(graph.nodes))
    counts: list[tuple[str, str, str]] = [
        (str(sum(found.level == level for found in report.findings)), title, level)
        for level, (title, _) in LEVELS.items()
    ]
    counts.append((f"{changed} of {len(report.files)}", "ELF files change", ""))
    counts.append((str(sum(node.path is not None for node in outside)), "libraries loaded", ""))
    counts.append((str(missing), "found nowhere", "error"))
    if isa is not None and isa.common.targets:
        counts.append((str(len(isa.common.targets)), "GPU architectures", ""))
    items = [
        tag(
            "div",
            tag("dt", title.lower() if level else title),
            tag("dd", number),
            class_=level if number != "0" else None,
        )
        for number, title, level in counts
    ]
    yield tag("dl", *items, class_="counts")


def _verdict(report: Report, *, plan: bool) -> tuple[str, str, str]:
    """(kind, first words, the rest) of what came of it."""
    changed = sum(file.changed for file in report.files)
    errors = sum(found.level == "error" for found in report.findings)
    what = f"{changed} of {pluralize(len(report.files), 'ELF file')}"
    if report.output is not None:
        if errors:
            return (
                "warning",
                "Written although there are errors.",
                f"{what} changed; {pluralize(errors, 'error')}.",
            )
        return "good", "Relinked.", f"{what} changed." if changed else "Every file loads as it is."
    if plan:
        return "plain", "The plan of a wheel.", f"{what} change." if changed else "No file changes."
    if errors:
        return "error", "Nothing was written.", f"{pluralize(errors, 'error')}; {what} would change."
    return "plain", "A dry run.", f"{what} would change." if changed else "No file would change."


def _navigation(report: Report) -> Html:
    places = [
        ("findings", f"Findings {len(report.findings)}"),
        ("dependencies", "Dependencies"),
        ("gpu", "GPU code"),
        ("files", f"Files {len(report.files)}"),
        ("facts", "Facts"),
    ]
    items = [tag("li", tag("a", text, href=f"#{place}")) for place, text in places]
    return tag("nav", tag("ul", *items), aria_label="Sections")


def _findings(findings: tuple[Finding, ...]) -> Html:
    parts: list[Html] = []
    for level, (title, sign) in LEVELS.items():
        group = [found for found in findings if found.level == level]
        if not group:
            continue
        head = tag(
            "h3",
            tag("span", sign, class_="badge", aria_hidden="true"),
            title,
            tag("span", str(len(group)), class_="number"),
        )
        items = tag("ul", *(_finding(found) for found in group))
        if level == "info":
            parts.append(tag("details", tag("summary", head), items, class_=f"findings {level}"))
        else:
            parts.append(tag("div", head, items, class_=f"findings {level}"))
    if not parts:
        parts.append(tag("p", "Nothing was found that is worth telling."))
    else:
        parts.insert(0, _filter("filter-findings", "Filter findings"))
    return tag("section", tag("h2", "Findings", id="findings"), *parts, aria_labelledby="findings")


def _finding(found: Finding) -> Html:
    rule = RULES.get(found.code)
    idle = found.remedy.startswith("Nothing")
    return tag(
        "li",
        tag(
            "p",
            tag("span", found.code, class_="code"),
            tag("span", rule.title, class_="muted") if rule else None,
            tag("span", f", by the profile {found.profile}", class_="muted") if found.profile else None,
        ),
        tag("p", name_of(found.subject), class_="subject"),
        tag("p", breakable(found.message)),
        tag("p", tag("b", "Next: "), breakable(found.remedy), class_="muted remedy" if idle else "remedy")
        if found.remedy
        else None,
    )


def _filter(name: str, text: str) -> Html:
    field = tag("input", type="search", id=name, autocomplete="off", spellcheck="false")
    return tag("p", tag("label", f"{text} ", field), tag("output", for_=name), class_="filter", hidden=True)


def _facts(report: Report) -> Html:
    wheel, target = report.wheel, report.target
    rows: list[tuple[str, Html]] = [
        ("Wheel", path_of(wheel.path)),
        ("its sha256", name_of(wheel.sha256)),
        ("its tags", joined([name_of(item) for item in wheel.tags], ", ")),
    ]
    if report.output is not None:
        rows += [("Output", path_of(report.output.path)), ("its sha256", name_of(report.output.sha256))]
    for provider in report.providers:
        release = f"ROCm {provider.rocm_version}" if provider.rocm_version else "ROCm, release unknown"
        evidence = joined([" by ", name_of(provider.evidence)]) if provider.evidence else EMPTY
        rows.append(
            (f"Provider ({provider.kind})", joined([path_of(provider.path), f": {release}", evidence]))
        )
    rows += [
        ("Loader", joined([path_of(target.interpreter), f", glibc {target.glibc}"])),
        ("its directories", joined([name_of(item) for item in target.directories], ", ")),
        ("Python", path_of(target.python) if target.python else Html("none: the loader alone")),
    ]
    if target.sysroot != "/":
        rows.append(("System root", path_of(target.sysroot)))
    if report.command:
        rows.append(("Command", name_of(" ".join(report.command))))
    if report.timings:
        # Rounded as in JSON before, so that the page made from that is the same.
        spent = ", ".join(f"{stage} {round(seconds, 4):.2f} s" for stage, seconds in report.timings.items())
        rows.append(("Time", joined([spent])))
    body = [tag("tr", tag("th", word, scope="row"), tag("td", value)) for word, value in rows]
    table = region("This run", tag("tbody", *body), class_="facts")
    return tag("section", tag("h2", "Facts", id="facts"), table, aria_labelledby="facts")
