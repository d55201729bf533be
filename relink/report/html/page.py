"""The report as one HTML page: no network, no script needed, the same bytes for the same report."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import resources

from relink.planning.model.embedded import map_strings
from relink.report.html.cause_list import counted, findings_section
from relink.report.html.file_list import files_section
from relink.report.html.gpu_code import Isa, gpu_section, isa_of
from relink.report.html.graph import Graph, graph_of
from relink.report.html.libraries import graph_section
from relink.report.html.markup import EMPTY, Html, breakable, joined, shown, tag
from relink.report.html.words import LEVELS, name_of, path_of, region
from relink.report.model import Report
from relink.report.summary import product_of, verdict
from relink.report.text import in_prefix
from relink.system.findings.model import Finding
from relink.system.text import pluralize


def html_page(report: Report, *, plan: bool = False) -> str:
    """Return the page.

    :param plan: the report is what a plan says: nothing is known of an output, nor of GPUs.
    :raises UsageError: the report's ``isa`` object has another shape than ``report.schema.json`` says.
    """
    report = prefixed(report)
    graph = graph_of(report)
    isa = isa_of(report.isa) if report.isa is not None else None
    style, script = _asset("page.css"), _asset("page.js")
    # The page shows names out of a stranger's wheel. Should one get past the escaping, no script of its own would run.
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
            findings_section(report.findings),
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
    yield from _planned(report) if plan else _verdict(report)
    yield tag("dl", *_counts(report, graph, isa), class_="counts")
    if report.providers and in_prefix(report, report.providers[0].path) != report.providers[0].path:
        words = (name_of("$PREFIX"), " stands for ", name_of(report.providers[0].path), ".")
        yield tag("p", *words, class_="prefix")


def _planned(report: Report) -> Iterator[Html]:
    """What a plan says: the edits. Nothing is known of an output, and no command of whoever wrote the plan is offered."""
    changed = sum(file.changed for file in report.files)
    what = (
        f"{changed} of {pluralize(len(report.files), 'ELF file')} change." if changed else "No file changes."
    )
    yield tag("p", tag("strong", "The plan of a wheel."), f" {what}", class_="verdict plain")


def _verdict(report: Report) -> Iterator[Html]:
    """What came of it, and what to type next, as the text of the run ends with it."""
    found = verdict(report)
    yield tag("p", tag("strong", breakable(found.text)), class_=f"verdict {found.level}")
    if found.step is None:
        return
    # The button copies what is shown, so a command that is cut or has characters spelled out is not offered.
    commands = [command for command in found.commands if shown(command) == command]
    if commands != [found.step]:
        yield tag("p", tag("b", "Next: "), breakable(found.step), class_="step")
    for number, command in enumerate(commands):
        name = f"command-{number}"
        button = tag("button", "Copy", type="button", class_="copy", data_copy=name, hidden=True)
        yield tag("p", tag("code", breakable(command), id=name), " ", button, class_="command")
    if commands:
        yield tag("output", id="copied", class_="unseen")


def _counts(report: Report, graph: Graph, isa: Isa | None) -> Iterator[Html]:
    changed = sum(file.changed for file in report.files)
    needed = {edge.end for edge in graph.edges if edge.change != "dropped"}
    origins = Counter(graph.nodes[number].origin for number in needed)
    missing, assumed = origins["missing"], origins["assumed"]
    entries = counted(report.findings)
    counts: list[tuple[str, str, str]] = [
        (str(entries[level]), title, level) for level, (title, _) in LEVELS.items()
    ]
    counts += [
        (f"{changed} of {len(report.files)}", "ELF files change", ""),
        (
            str(sum(node.path is not None for node in graph.nodes if node.file is None)),
            "libraries loaded",
            "",
        ),
    ]
    if missing or not assumed:
        counts.append((str(missing), "found nowhere", "error"))
    if assumed:
        counts.append((str(assumed), "assumed to be there", "warning"))
    if isa is not None and isa.common.targets:
        counts.append((str(len(isa.common.targets)), "GPU architectures", ""))
    for number, title, level in counts:
        word = title.lower() if level else title
        yield tag("div", tag("dt", word), tag("dd", number), class_=level if number != "0" else None)


def _navigation(report: Report) -> Html:
    places: list[tuple[str, str, int | None]] = [
        ("findings", "Findings", sum(counted(report.findings).values())),
        ("dependencies", "Dependencies", None),
        ("gpu", "GPU code", None),
        ("files", "Files", len(report.files)),
        ("facts", "Facts", None),
    ]
    numbers = {
        place: tag("span", f" {many}", class_="number") for place, _, many in places if many is not None
    }
    items = [tag("li", tag("a", text, numbers.get(place), href=f"#{place}")) for place, text, _ in places]
    return tag("nav", tag("ul", *items), aria_label="Sections")


def _facts(report: Report) -> Html:
    wheel, target = report.wheel, report.target
    rows: list[tuple[str, Html]] = [
        ("Wheel", path_of(wheel.path)),
        ("its sha256", name_of(wheel.sha256)),
        ("its tags", joined([name_of(item) for item in wheel.tags], ", ")),
    ]
    if report.output is not None:
        rows += [("Output", path_of(report.output.path)), ("its sha256", name_of(report.output.sha256))]
    product = product_of(report)
    for provider in report.providers:
        release = (
            f"{product} {provider.rocm_version}" if provider.rocm_version else f"{product}, release unknown"
        )
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
        # Rounded as in the JSON, so that the page made from a saved report is the same.
        spent = ", ".join(f"{stage} {round(seconds, 4):.2f} s" for stage, seconds in report.timings.items())
        rows.append(("Time", joined([spent])))
    body = [tag("tr", tag("th", word, scope="row"), tag("td", value)) for word, value in rows]
    table = region("This run", tag("tbody", *body), class_="facts")
    return tag("section", tag("h2", "Facts", id="facts"), table, aria_labelledby="facts")


def prefixed(report: Report) -> Report:
    """Return the report with ``$PREFIX`` in its files, loads, GPU code and findings; remedies and steps keep the path.

    The command, the target and the providers keep their paths, too.
    """
    short = partial(in_prefix, report)
    plan = dataclasses.replace(
        report.plan,
        files=map_strings(report.files, short),
        loads=map_strings(report.loads, short),
        findings=tuple(_finding(finding, short) for finding in report.findings),
    )
    return dataclasses.replace(report, plan=plan, isa=map_strings(report.isa, short))


def _finding(finding: Finding, short: Callable[[str], str]) -> Finding:
    shown: Finding = map_strings(finding, short)
    return dataclasses.replace(shown, remedy=finding.remedy, step=finding.step)
