"""The documentation site: built strictly, every rule a page, every link leads somewhere, and nothing comes from elsewhere.

What is written in the pages exists: options, commands, and tests that run the blocks of commands.
"""

from __future__ import annotations

import html
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from relink.system.findings.model import RULES
from tests.support.built import ROOT


def _load() -> ModuleType:
    specification = importlib.util.spec_from_file_location("make_site", ROOT / "scripts/make_site.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["make_site"] = module
    specification.loader.exec_module(module)
    return module


make_site = _load()


def test_every_page_is_in_the_navigation() -> None:
    named = {f"{name}.md" for names in make_site.NAVIGATION.values() for name in names}
    pages = {page for page in make_site.PAGES.values() if not re.match("examples/(?!all)", page)}
    assert pages - named == {"index.md"}
    assert named <= set(make_site.PAGES.values())


KNOWN = {"": {"--version"}, "run": {"--prefix", "--help"}, "index build": {"--jobs"}, "demo": set[str]()}


def test_nothing_is_wrong_with_the_pages() -> None:
    assert list(make_site.check_sources()) == []


def test_two_pages_of_one_address() -> None:
    pages = [("README.md", "index.md"), ("docs/a.md", "a.md"), ("docs/A.md", "A.md"), ("docs/b.md", "b.md")]
    assert list(make_site.same_addresses(pages)) == ["docs/a.md and docs/A.md are one page of the site: A.md"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pass `--prefix DIR`, or --help", []),
        ("pass `--prefixes DIR`", ["x.md:1: relink has no option --prefixes"]),
        ("two\nlines: --no-such, --prefix", ["x.md:2: relink has no option --no-such"]),
        ("`patchelf --set-rpath` of another program", []),
        ("```sh\npip wheel --no-deps x\n```", []),
        (
            "```sh\nrelink W \\\n    --prefix / --jobs=2\n```",
            ["x.md:2: relink run has no option --jobs"],
        ),
        ("    relink index build R --prefix P", ["x.md:1: relink index build has no option --prefix"]),
        (
            "`relink --version` and `venv/bin/relink W --version`",
            ["x.md:1: relink run has no option --version"],
        ),
        ("```sh\nrelink W --prefix P | grep --count x # --y\n```", []),
        ("```sh\nx\n#     relink W --jobs\n```", ["x.md:3: relink run has no option --jobs"]),
        ("    relink demo --whatever 'it has", []),
    ],
)
def test_options_and_commands_exist(text: str, wrong: list[str]) -> None:
    assert list(make_site.wrong_options("x.md", text, KNOWN)) == wrong


def test_every_command_is_known() -> None:
    known = make_site.options_by_command()
    assert {"", "run", "check", "index build", "profile check"} <= set(known)
    assert "--version" in known[""]
    assert {"-o", "--output", "--help"} <= known["run"]


def test_a_block_that_no_test_runs_says_why() -> None:
    text = "```sh\na\n```\n<!-- not run: why -->\n```sh\nb\n```\n- c\n\n  ```bash\n  d\n  ```\n```toml\n```\n"
    assert [line.split(": ")[0] for line in make_site.blocks_not_run("x.md", text)] == ["x.md:1", "x.md:10"]
    assert list(make_site.blocks_not_run("README.md", text)) == []


def test_what_is_wrong_with_a_page_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.md").write_text("# x\n\n`--no-such`\n")
    monkeypatch.setattr(make_site, "ROOT", tmp_path)
    monkeypatch.setattr(make_site, "PAGES", {"x.md": "index.md"})
    monkeypatch.setattr(make_site, "RUN_BY", {"y.md": "tests/gone.py"})
    with pytest.raises(make_site.SiteError) as caught:
        make_site.make(tmp_path / "site")
    assert str(caught.value).splitlines() == [
        "x.md:3: relink has no option --no-such",
        "tests/gone.py: no such test",
    ]
    assert not (tmp_path / "site").exists()


def test_pages_and_files_are_staged_with_links_that_hold(tmp_path: Path) -> None:
    make_site.stage(tmp_path)
    assert {path.stem for path in (tmp_path / "rules").glob("RLK*.md")} == set(RULES)
    for page in tmp_path.rglob("*.md"):
        for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).is_file(), (page, link)
    text = (tmp_path / "ci.md").read_text(encoding="utf-8")
    assert "(rules/RLK621.md)" in text
    assert "(files/relink/schemas/report.schema.json)" in text
    assert "```mermaid" not in (tmp_path / "architecture.md").read_text(encoding="utf-8")


def test_a_link_to_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/x.md").write_text("# x\n\n[a](gone.md)\n\n```text\n[b](gone.md)\n```\n")
    monkeypatch.setattr(make_site, "ROOT", tmp_path)
    monkeypatch.setattr(make_site, "PAGES", {"docs/x.md": "index.md", "examples": "rules/index.md"})
    (tmp_path / "out/examples").mkdir(parents=True)
    with pytest.raises(make_site.SiteError) as caught:
        make_site.stage(tmp_path / "out")
    assert str(caught.value) == "docs/x.md:3: gone.md leads to nothing"


def test_finished_pages_are_checked(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">1</a><a href="b.html#there">2</a><a href="c.html">3</a><a href="#no">4</a>'
        '<a href="https://example.org/">5</a><script src="https://example.org/x.js"></script><img src="x.png">'
    )
    (tmp_path / "b.html").write_text('<h1 id="here">b</h1>')
    assert list(make_site.check_links(tmp_path)) == [
        "a.html: b.html#there leads to no place of that page",
        "a.html: c.html leads to nothing",
        "a.html: #no leads to no place of that page",
        "a.html: loads https://example.org/x.js from elsewhere",
        "a.html: x.png leads to nothing",
    ]


@pytest.mark.slow(reason="Sphinx renders every page: ten seconds")
def test_the_site(tmp_path: Path) -> None:
    make_site.make(tmp_path / "site")
    for code, rule in RULES.items():
        text = (tmp_path / "site/rules" / f"{code}.html").read_text(encoding="utf-8")
        assert f"<title>{code}: " in text
        assert html.escape(max(rule.fix.split("`")[::2], key=len).strip(), quote=False) in text
    start = (tmp_path / "site/index.html").read_text(encoding="utf-8")
    for name in (
        "start",
        "distributions",
        "cli",
        "rules/index",
        "settings",
        "nix",
        "api",
        "architecture",
    ):
        assert f'href="{name}.html"' in start


@pytest.mark.slow(reason="Sphinx starts")
def test_a_warning_of_sphinx_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.md").write_text("# x\n\n[a](#nowhere)\n")
    with pytest.raises(make_site.SiteError, match=r"index\.md:3: WARNING: .*'nowhere'"):
        make_site.render(source, tmp_path / "site")
