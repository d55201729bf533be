#!/usr/bin/env python3
"""Build the documentation site, strictly: `make site`. Any warning of Sphinx, and any link that leads nowhere, is an error.

README.md, docs/, the examples' READMEs and a page for each rule are put together in a directory and rendered from there. In a
checkout the same files are read as they are, so their links lead from file to file; here they are made to lead from page to page,
and files that are no pages are copied beside them. Nothing is fetched, and no page loads anything from elsewhere.

    scripts/make_site.py [DIRECTORY]        the site; default: .cache/site
"""

from __future__ import annotations

import html.parser
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from relink.system.findings.model import RULES, Rule

ROOT = Path(__file__).resolve().parents[1]
CONFIGURATION = ROOT / "docs/site"
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples/all.md",
    **{f"docs/{path.name}": path.name for path in sorted((ROOT / "docs").glob("*.md"))},
    **{
        f"examples/{path.parent.name}/README.md": f"examples/{path.parent.name}.md"
        for path in sorted((ROOT / "examples").glob("*/README.md"))
    },
    "docs/rules.md": "rules/index.md",
}
"""File of the checkout → page of the site. rules/index.md is made here; docs/rules.md has all rules in one page."""
if len({*PAGES.values()}) < len(PAGES):
    raise SystemExit("two files of the checkout have one page of the site")
NAVIGATION = {
    "Use": [
        "start",
        "distributions",
        "install",
        "index-building",
        "loader",
        "missing",
        "cli",
        "rules/index",
        "settings",
        "ci",
        "profiles",
        "nix",
        "statement",
        "large-wheels",
    ],
    "Library": ["api", "examples/all"],
    "Design": [
        "how",
        "architecture",
        "packages",
        "scan",
        "sandbox",
        "compared",
        "benchmarks",
        "security",
        "contributing",
        "changelog",
    ],
}
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"^ *```")
_RULE = re.compile(r"\bRLK\d{3}\b")


class SiteError(Exception):
    """What is wrong with the site; one line for each."""


def stage(directory: Path) -> None:
    """Write all pages as Sphinx reads them, and the files that they link to, into an empty directory.

    :raises SiteError: a link leads to nothing.
    """
    wrong: list[str] = []
    for source, page in PAGES.items():
        text = _rules_index() if page == "rules/index.md" else _page(source, page, directory, wrong)
        _write(directory / page, text)
    for rule in RULES.values():
        _write(directory / f"rules/{rule.code}.md", _rule_page(rule))
    with (directory / "index.md").open("a", encoding="utf-8") as index:
        for caption, names in NAVIGATION.items():
            index.write(
                "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *names, "```", ""])
            )
    with (directory / "examples/all.md").open("a", encoding="utf-8") as index:
        names = sorted(
            page for page in PAGES.values() if page.startswith("examples/") and page != "examples/all.md"
        )
        index.write(
            "\n".join(
                ["", "```{toctree}", ":hidden:", "", *(posixpath.basename(name) for name in names), "```", ""]
            )
        )
    if wrong:
        raise SiteError("\n".join(wrong))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _page(source: str, page: str, directory: Path, wrong: list[str]) -> str:
    """Return a file with its links as the site has them; text in fences stays as it is."""
    lines = []
    fenced = False
    for number, line in enumerate((ROOT / source).read_text(encoding="utf-8").splitlines(), 1):
        place = f"{source}:{number}"
        if _FENCE.match(line):
            fenced = not fenced
            lines.append(line.replace("```mermaid", "```text"))
        elif fenced:
            lines.append(line)
        else:
            lines.append(
                _LINK.sub(lambda link, at=place: _led(link, at, source, page, directory, wrong), line)
            )
    return "\n".join(lines) + "\n"


def _led(link: re.Match[str], place: str, source: str, page: str, directory: Path, wrong: list[str]) -> str:
    """Return where a link of a file leads on the site; a file that is no page is copied there."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
    fragment = link[2] or ""
    if (ROOT / path).is_dir():
        path = f"{path}/README.md"
    if path == "docs/rules.md" and fragment:
        to, fragment = f"rules/{fragment[1:].upper()}.md", ""
    elif path in PAGES:
        to = PAGES[path]
    elif (ROOT / path).is_file():
        to = f"files/{path}"
        target = directory / to
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
    else:
        wrong.append(f"{place}: {link[0]} leads to nothing")
        return link[0]
    return posixpath.relpath(to, posixpath.dirname(page) or ".") + fragment


def _rules_index() -> str:
    lines = [
        "# Findings",
        "",
        "`relink rules CODE` prints what a page here says.",
        "",
        "| code | level | |",
        "| --- | --- | --- |",
    ]
    lines += [f"| [{rule.code}]({rule.code}.md) | {rule.level} | {rule.title} |" for rule in RULES.values()]
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", "", *RULES, "```", ""])


def _rule_page(rule: Rule) -> str:
    others = [
        code
        for code in dict.fromkeys(_RULE.findall(rule.meaning + rule.fix))
        if code != rule.code and code in RULES
    ]
    lines = [
        f"# {rule.code}: {rule.title}",
        "",
        f"Level: **{rule.level}**, unless the case says otherwise.",
        "",
    ]
    lines += ["## What it means", "", rule.meaning, "", "## What to do", "", rule.fix, ""]
    lines += ["## For example", "", "```text", rule.example, "```", ""]
    told = f"`relink rules {rule.code}` prints this page, `--ignore {rule.code}` leaves such findings out."
    lines += [f"`…` stands for directories that say nothing, and `$WHEEL` for site-packages. {told}", ""]
    if others:
        lines += ["See also: " + ", ".join(f"[{code}]({code}.md)" for code in others) + ".", ""]
    return "\n".join(lines)


def render(source: Path, site: Path) -> None:
    """Run Sphinx, with every warning as an error.

    :raises SiteError: it warns.
    """
    shutil.copytree(CONFIGURATION, source, dirs_exist_ok=True)
    words = ["-b", "html", "-n", "-W", "--keep-going", "-E", "-q", "-j", "auto", str(source), str(site)]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words], capture_output=True, text=True, check=False
    )
    if done.returncode or done.stderr:
        raise SiteError(done.stderr.replace(f"{source}/", ""))


class _Page(html.parser.HTMLParser):
    """The places that a page leads to and that it has; `loads` are those that a browser fetches by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value is not None}
        self.places.update(found[name] for name in ("id", "name") if name in found)
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") not in ("index", "search", "next", "prev", "canonical"):
            self.loads.append(found.get("href", ""))
        if "src" in found:
            self.loads.append(found["src"])


def check_links(site: Path) -> Iterator[str]:
    """Yield what is wrong with the finished pages: links and anchors that lead nowhere, and what is loaded from elsewhere."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for link in (*page.links, *page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    yield f"{name}: loads {link} from elsewhere"
                continue
            to = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            to = to / "index.html" if to.is_dir() else to
            if not to.is_file():
                yield f"{name}: {link} leads to nothing"
            elif parts.fragment and to in pages and unquote(parts.fragment) not in pages[to].places:
                yield f"{name}: {link} leads to no place of that page"


def make(site: Path) -> None:
    """Build the site into a directory, which is emptied before.

    :raises SiteError: something is wrong; says everything that is.
    """
    shutil.rmtree(site, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="relink-site-") as temporary:
        stage(Path(temporary))
        render(Path(temporary), site)
    if wrong := list(check_links(site)):
        raise SiteError("\n".join(wrong))


def main() -> None:
    """Build the site, and say where it is."""
    site = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".cache/site"
    try:
        make(site)
    except SiteError as error:
        sys.exit(f"the site has errors:\n{error}")
    print(f"{site}/index.html: {len(list(site.rglob('*.html')))} pages")


if __name__ == "__main__":
    main()
