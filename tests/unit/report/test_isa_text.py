"""What `relink isa` prints: a line for each file, and whether a GPU is covered."""

from __future__ import annotations

import io
from collections.abc import Sequence

from msgspec.structs import replace
from rich.console import Console

from relink.elf.source import BufferSource
from relink.gpu.amd.device_code import read_device_code
from relink.gpu.amd.file_coverage import FileCoverage, LibraryCoverage, coverage_of, intersect, kernels_of
from relink.gpu.amd.target_id import table
from relink.gpu.coverage import Coverage, Group, Survey, TargetId
from relink.report.isa_text import survey_text
from relink.report.lines import show
from relink.vendors.registry import requested_gpus
from tests.unit.gpu.amd.build import entries_of, library, raw
from tests.unit.gpu.amd.covering import beside, tensile


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
