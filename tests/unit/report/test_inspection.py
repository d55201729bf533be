"""The facts of the ELF members of a wheel; report/test_text.py has how they are printed."""

from __future__ import annotations

import pytest

from relink.elf.image import read_image
from relink.elf.symbol_reader import read_symbols
from relink.report.inspection import ElfFacts, Inspection, elf_facts, to_json, to_text
from relink.system.findings.model import finding
from tests.support.elf_builder import Export, Import, Library, build


def test_the_facts_are_those_of_the_file() -> None:
    library = Library(
        "liba.so.1",
        ("libb.so", "libc.so.6"),
        runpath="$ORIGIN:/opt",
        exports=(Export("f", "V_1"), Export("f", "V_2"), Export("g")),
        imports=(Import("x", "W_1", "libb.so"), Import("y", "W_2", "libb.so"), Import("z")),
    )
    data = build(library)
    assert elf_facts(read_image(data, "demo/a.so"), read_symbols(data)) == ElfFacts(
        "demo/a.so",
        len(data),
        "x86_64",
        "liba.so.1",
        ("libb.so", "libc.so.6"),
        "runpath",
        "$ORIGIN:/opt",
        None,
        (("libb.so", ("W_1", "W_2")),),
        3,
        3,  # one symbol in two versions is two exports
    )


@pytest.mark.parametrize(
    ("size", "shown"), [(99_999, "100.0 kB"), (100_000, "0.1 MB"), (1_234_567, "1.2 MB")]
)
def test_sizes(size: int, shown: str) -> None:
    found = Inspection("w.whl", "a" * 64, "w", "1", ("t", "u"), 3, size, 10, (), ())
    lines = [line.plain for line in to_text(found)]
    assert lines == ["w 1", f"3 files, {shown}, 0.0 kB unpacked; tags t, u"]


def test_findings_are_in_text_and_json() -> None:
    damaged = finding("RLK301", "demo/a.so", "is cut off")
    found = Inspection("w.whl", "a" * 64, "w", "1", ("t",), 3, 10, 10, (), (damaged,))
    last = to_text(found)[-1]
    assert last.plain == f"{damaged.level} RLK301 demo/a.so: is cut off"
    data = to_json(found)
    assert data["schema"] == "relink.inspection/1"
    assert data["findings"][0]["code"] == "RLK301"
