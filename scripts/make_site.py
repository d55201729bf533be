#!/usr/bin/env python3
"""Build the documentation site, strictly: `make site`. These are errors: any warning of Sphinx, two pages of one address, a link
that leads nowhere, an option or a command that relink does not have, and a block of commands that no test runs.

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
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import typer

from relink.cli import app
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
NAVIGATION = {
    "Use": [
        "start",
        "symptoms",
        "distributions",
        "hpc",
        "wsl",
        "programs",
        "install",
        "missing",
        "rules/index",
        "settings",
        "cli",
    ],
    "More ways to use it": [
        "ci",
        "nix",
        "index-building",
        "api",
        "examples/all",
        "large-wheels",
    ],
    "What it does, and what it promises": ["how", "sandbox", "security", "changelog"],
    "For those who change relink": [
        "contributing",
        "architecture",
        "packages",
        "producers",
        "scan",
        "benchmarks",
        "imports",
        "situations",
    ],
}
"""The menu, in the order in which a user needs the pages."""
RUN_BY = {
    "README.md": "tests/unit/test_readme.py",
    "docs/start.md": "tests/unit/test_readme.py",
    "docs/cli.md": "tests/unit/cli/test_helping.py",
    "docs/hpc.md": "tests/unit/test_fixed_hosts.py",
    "docs/wsl.md": "tests/unit/test_fixed_hosts.py",
    "docs/programs.md": "tests/unit/test_fixed_hosts.py",
    "examples/jax-debian-rocm/README.md": "tests/examples/test_printed.py",
    "examples/python-api/README.md": "tests/examples/test_printed.py",
    "examples/programs/README.md": "tests/examples/test_printed.py",
    "examples/ci/README.md": "tests/examples/test_printed.py",
}
"""File of the checkout → the test that runs its blocks of commands. Elsewhere a comment says why a block is not run."""
OTHERS_OPTIONS = {
    "auditwheel": {"--exclude"},
    "clang": {"--device"},
    "cosign": {"--bundle"},
    "dask": {"--memory-limit", "--resources"},
    "examples": {"--show", "--work"},
    "ld.so": {"--list"},
    "mypy": {"--strict"},
    "nix-store": {"--add-root", "--realise"},
    "patchelf": {"--remove-needed", "--replace-needed", "--set-rpath", "--shrink-rpath"},
    "pip": {"--extra-index-url", "--group", "--index-url", "--target"},
    "pipx": {"--preinstall"},
    "the benchmarks": {"--record"},
    "ruff": {"--check"},
    "uv": {"--with"},
}
"""Program → its options that the pages name outside of blocks of commands."""
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"^ *```")
_RULE = re.compile(r"\bRLK\d{3}\b")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_BLOCK = re.compile(r"^ *```(?:console|sh|bash)$")
_RELINK = re.compile(r"(?:^ *(?:# +)?|(?<!`)`)(?:[\w./-]+/)?relink ((?:[^`\\\n]|\\\n)+)", re.MULTILINE)


class SiteError(Exception):
    """What is wrong with the site; one line for each."""


def same_addresses(pages: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield which files of the checkout would be written to one page of the site; letter case does not tell pages apart."""
    sources: dict[str, str] = {}
    for source, page in pages:
        other = sources.setdefault(page.casefold(), source)
        if other != source:
            yield f"{other} and {source} are one page of the site: {page}"


def options_by_command() -> dict[str, set[str]]:
    """Return the options of each command (``index build``); those of the program itself are under ''."""
    found: dict[str, set[str]] = {}
    left: list[tuple[str, Any]] = [("", typer.main.get_command(app))]
    while left:
        name, command = left.pop()
        found[name] = {
            "--help",
            *(word for one in command.params for word in (*one.opts, *one.secondary_opts)),
        }
        left += [(f"{name} {word}".strip(), one) for word, one in getattr(command, "commands", {}).items()]
    return found


def wrong_options(source: str, text: str, known: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield which options and commands of relink a page names that do not exist; other programs' blocks are not looked at."""
    everywhere = set().union(*known.values(), *OTHERS_OPTIONS.values())
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced = fenced != bool(_FENCE.match(line))
        if not fenced and not line.startswith("    "):
            yield from (
                f"{source}:{number}: relink has no option {option}"
                for option in sorted({*_OPTION.findall(line)} - everywhere)
            )
    for found in _RELINK.finditer(text):
        number = text.count("\n", 0, found.start(1)) + 1
        command, words = _command(found[1].replace("\\\n", " "), known)
        if command != "demo":  # its options are those of examples/demo/demo.py
            name = f"relink {command}".strip()
            yield from (
                f"{source}:{number}: {name} has no option {word}"
                for word in sorted({*words} - known[command])
            )


def _command(line: str, known: Mapping[str, set[str]]) -> tuple[str, list[str]]:
    """Return the command of a line that is typed behind ``relink``, and its options."""
    line = re.split(r"\s[|;&#]|;\s", f" {line}", maxsplit=1)[0]
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    options = [found[0] for word in words if (found := re.match(r"--[a-z][a-z0-9-]*", word))]
    if words[:1] == options[:1] and {*options} <= known[""]:
        return "", options
    names = [name for name in (" ".join(words[:2]), " ".join(words[:1])) if name in known and name]
    return (names[0] if names else "run"), options


def blocks_not_run(source: str, text: str) -> Iterator[str]:
    """Yield the blocks of commands of a page that no test runs and that do not say why."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if _BLOCK.match(line) and source not in RUN_BY and "<!-- not run: " not in lines[number - 2]:
            yield f"{source}:{number}: no test runs this block; say why: <!-- not run: REASON -->"


def check_sources() -> Iterator[str]:
    """Yield what is wrong with the pages as they are written."""
    yield from same_addresses(PAGES.items())
    known = options_by_command()
    for source in PAGES:
        text = (ROOT / source).read_text(encoding="utf-8")
        if source != "CHANGELOG.md":  # tells of options that are gone, too
            yield from wrong_options(source, text, known)
        yield from blocks_not_run(source, text)
    yield from (f"{test}: no such test" for test in {*RUN_BY.values()} if not (ROOT / test).is_file())


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
    lines += [f"`…` shortens paths, and `$WHEEL` is site-packages. {told}", ""]
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
    if wrong := list(check_sources()):
        raise SiteError("\n".join(wrong))
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
