"""What `relink isa` prints: on wide and narrow terminals, without colours, in a pipe."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from relink.gpu import BufferSource, LibraryCoverage, coverage_of, read_device_code, table
from relink.gpu.amd.survey import Group, Item, Kernels, Survey
from relink.gpu.amd.wanted import wanted_gpus
from relink.report.isa_text import survey_text
from relink.report.lines import show
from tests.unit.gpu.amd.build import entries_of, library, raw


def file_of(path: str, *sets: tuple[str, ...]) -> Item:
    data = library([raw(entries_of(*targets)) for targets in sets])
    return coverage_of(read_device_code(BufferSource(data), path))


def survey_of(*items: Item, kind: str = "wheel", plain: tuple[str, ...] = ()) -> Survey:
    return Survey("demo.whl", kind, items, (Group("", items),), (), plain, len(items))


def miopen() -> LibraryCoverage:
    cover = coverage_of(read_device_code(BufferSource(library()), "libMIOpen.so.1"))
    return LibraryCoverage("libMIOpen.so.1", cover, (), table().library("libMIOpen.so.1"))


MIXED = survey_of(
    file_of("pkg/a.so", ("gfx1030", "gfx1100"), ("gfx1030",)),
    file_of("pkg/b.so", ("gfx1030", "gfx90a:xnack+")),
    miopen(),
)


def printed(found: Survey, *gpus: str, width: int = 100, terminal: bool = True, colours: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=terminal, no_color=not colours, highlight=False,
        color_system="standard" if terminal and colours else None,
    )  # fmt: skip
    show(console, *survey_text(found, wanted_gpus(gpus), console))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def rows(text: str) -> dict[str, list[str]]:
    cells = [line.replace(">", " ").split() for line in text.splitlines()]
    return {
        line[0]: line[1:]
        for line in cells
        if len(line) > 1 and line[0].startswith("gfx") and line[1][0] != "("
    }


def test_signs_can_be_read_without_colours() -> None:
    text = printed(MIXED)
    assert "\x1b[3" not in text
    found = rows(text)
    assert found["gfx90a"][:3] == ["-", "cond", "jit"]
    assert found["gfx1030"][:3] == ["yes", "yes", "jit"]
    assert found["gfx1100"][:3] == ["1/2", "-", "jit"]
    assert "RX 6900 XT" in text
    assert "cond: for one setting" in text.replace("\n", " ")
    assert "all together cover: gfx1030" in text


def test_colours() -> None:
    text = printed(MIXED, colours=True)
    assert "\x1b[32myes" in text
    assert "\x1b[33m1/2" in text
    assert "\x1b[31m-" in text


def test_a_narrow_terminal_gets_several_tables() -> None:
    many = survey_of(
        *(file_of(f"pkg/{n}.so", ("gfx1030", *names)) for n, names in enumerate(
            [("gfx1100",), ("gfx90a",), ("gfx906",), ("gfx942",), ("gfx1101",)]
        ))
    )  # fmt: skip
    narrow = printed(many, width=40)
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 40
    assert narrow.count("architecture") == 3
    assert printed(many, width=100).count("architecture") == 1
    assert "RX 6900 XT" not in narrow
    for text in (narrow, printed(many, width=1)):
        assert all(str(number) in text for number in range(1, 6))


def test_files_that_cover_the_same_share_a_column() -> None:
    same = survey_of(
        file_of("pkg/a.so", ("gfx1030",)), file_of("pkg/b.so", ("gfx1030",)), file_of("pkg/c.so", ("gfx906",))
    )
    assert rows(printed(same))["gfx1030"][:2] == ["yes", "-"]
    assert "  1  pkg/a.so" in printed(same)
    assert "     pkg/b.so" in printed(same)
    assert "  2  pkg/c.so" in printed(same)


def test_a_gpu_that_was_asked_for_is_marked_and_judged() -> None:
    text = printed(MIXED, "RX 6750 XT", "gfx1030")
    assert "> gfx1031" in text
    assert rows(text)["gfx1031"][:3] == ["-", "-", "jit"]
    assert "gfx1031 (RX 6750 XT): missing: a.so (none), b.so (none)" in text.replace("\n", " ")
    assert "): covered" in text


def test_a_pipe_gets_one_line_a_file() -> None:
    text = printed(MIXED, "gfx1031", terminal=False, width=20)
    lines = text.splitlines()
    assert lines[0] == "demo.whl: wheel, 3 files with GPU code read"
    assert "pkg/a.so: raw, 2 bundles: full gfx1030; partial (1 of 2) gfx1100" in lines
    assert "libMIOpen.so.1: no GPU code: MIOpen compiles its kernels on first use" in lines
    assert "\x1b" not in text
    assert lines[-1].startswith("gfx1031 (")


def test_some_variants_only() -> None:
    first, second = file_of("pkg/one.so", ("gfx1030",)), file_of("pkg/two.so", ("gfx1030", "gfx1100"))
    found = Survey(
        "d", "wheel", (first, second), (Group("pkg/one.so", (first,)), Group("pkg/two.so", (second,)))
    )
    text = printed(found, "gfx1100", "gfx1030", terminal=False)
    assert "): covered with two.so only" in text
    assert text.endswith("): covered\n")
    assert "with one.so covered: gfx1030\n" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_to_show(terminal: bool) -> None:
    text = printed(survey_of(plain=("a.so", "b.so")), "gfx1030", terminal=terminal)
    assert "no library with GPU code; 2 ELF files without any" in text
    assert "not restricted: no prebuilt code" in " ".join(text.split())
    assert "architecture" not in text


def test_kernel_files_and_problems() -> None:
    codes = read_device_code(BufferSource(library([raw(entries_of("gfx1030"))])), "x").bundles[0].targets
    kernels = Kernels("k", 7, ((codes[0], 7),))
    found = replace(survey_of(kernels), problems=("k: odd",))
    text = printed(found, "gfx1030", "gfx1100", terminal=False)
    assert "k: 7 kernel files: full gfx1030" in text
    assert "): missing: no kernel file is for it" in text
    assert "warning: k: odd" in text
