"""docs/claims.md: every page has a section there, and every test that is named exists. Limits that are printed are the code's."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import fields

from relink.gpu.amd.kpack import STEPS
from relink.indexes.build.simple_api import PAGE_LIMIT
from relink.indexes.build.web import FILE_PACE, PAGE_PACE
from relink.indexes.install.cache import LARGEST
from relink.wheel.limits import WheelLimits
from tests.support.built import ROOT

PAGES = {
    *(path.name for path in ROOT.glob("docs/*.md")),
    *(path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/**/README.md")),
    *("README.md", "SECURITY.md", "CONTRIBUTING.md"),
}
TEXT = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]}


def test_every_page_has_a_section() -> None:
    assert PAGES - {*SECTIONS} == set()
    assert {*SECTIONS} - PAGES == set()


def test_every_claim_says_what_shows_it() -> None:
    for page, section in SECTIONS.items():
        rows = re.findall(r"^\| (.+?) \| (.+) \|$", section, re.MULTILINE)[2:]
        assert rows, page
        for claim, shown in rows:
            assert re.match(r"`tests/|command: `|limit\b", shown), (page, claim, shown)


def test_each_test_that_is_named_is_there() -> None:
    named = defaultdict[str, set[str]](set)
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT):
        named[path].add(name)
    assert len(named) > 100
    gone = [path for path in named if not (ROOT / path).is_file()]
    for path in {*named} - {*gone}:
        there = re.findall(r"^ *def (test_\w+)\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
        gone += [f"{path}::{name}" for name in named[path] - {*there}]
    assert sorted(gone) == [], "docs/claims.md names tests that are gone: name others, or take the claims out"


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    page = (ROOT / "docs/large-wheels.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \| .*\|$", page.partition("## Limits")[2], re.MULTILINE))
    limits = WheelLimits()
    pace = FILE_PACE[0] * FILE_PACE[1] // 1000
    printed = {
        "files of a wheel or a tree": f"{limits.members:,}",
        "a wheel's list of files": f"{limits.directory_size >> 20} MiB",
        "one file, all files": f"{limits.member_size >> 30} GiB, {limits.total_size >> 30} GiB",
        f"unpacked size to size, from {limits.ratio_from >> 20} MiB on": f"{limits.ratio:.0f}",
        "files that loading each ELF file maps": f"{limits.loads:,}",
        "kpack archives": f"{STEPS:,}",
        "page of an index": f"{PAGE_LIMIT >> 20} MiB, 200,000 files, two minutes",
        "wheel from an index": f"the size that its page says, else {LARGEST >> 30} GiB",
    }
    for name, value in printed.items():
        assert [shown for row, shown in rows.items() if row.startswith(name)] == [value], name
    assert PAGE_PACE == 120
    assert f"{pace} kB in each minute" in page
    options = re.findall(r"`(?:--limit )?([\w-]+)=N`", page)
    assert options == [entry.name.replace("_", "-") for entry in fields(limits) if entry.name != "ratio_from"]
