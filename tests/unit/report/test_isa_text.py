"""What `relink isa` and `relink doctor` print: on wide and narrow terminals, without colours, in a pipe."""

from __future__ import annotations

import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from relink.checks.machine import Diagnosis, diagnose
from relink.gpu import BufferSource, LibraryCoverage, coverage_of, read_device_code, table
from relink.gpu.survey import Group, Item, Kernels, Survey
from relink.gpu.wanted import wanted_gpus
from relink.report.doctor_text import doctor_text
from relink.report.isa_text import survey_text
from relink.report.lines import show
from tests.unit.gpu.build import entries_of, library, raw
from tests.unit.gpu.test_device import node
from tests.unit.gpu.test_runtime import READER_2, READER_3, lib
from tests.unit.gpu.test_survey import fat


def item(path: str, *sets: tuple[str, ...]) -> Item:
    data = library([raw(entries_of(*targets)) for targets in sets])
    return coverage_of(read_device_code(BufferSource(data), path))


def survey_of(*items: Item, kind: str = "wheel", plain: tuple[str, ...] = ()) -> Survey:
    return Survey("demo.whl", kind, items, (Group("", items),), (), plain, len(items))


def miopen() -> LibraryCoverage:
    cover = coverage_of(read_device_code(BufferSource(library()), "libMIOpen.so.1"))
    return LibraryCoverage("libMIOpen.so.1", cover, (), table().library("libMIOpen.so.1"))


MIXED = survey_of(
    item("pkg/a.so", ("gfx1030", "gfx1100"), ("gfx1030",)),
    item("pkg/b.so", ("gfx1030", "gfx90a:xnack+")),
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
        *(item(f"pkg/{n}.so", ("gfx1030", *names)) for n, names in enumerate(
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
        item("pkg/a.so", ("gfx1030",)), item("pkg/b.so", ("gfx1030",)), item("pkg/c.so", ("gfx906",))
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
    first, second = item("pkg/one.so", ("gfx1030",)), item("pkg/two.so", ("gfx1030", "gfx1100"))
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


@pytest.fixture
def rocm(tmp_path: Path) -> Path:
    where = tmp_path / "rocm" / "lib"
    lib(where / "libamdhip64.so.7", "gfx11-generic", "libamd_comgr.so.3", versions="hip_7.2")
    lib(where / "libamd_comgr.so.3", READER_2, READER_3, versions="amd_comgr_2.8")
    lib(where / "libhsa-runtime64.so.1", "gfx11-generic")
    fat(where / "librocsolver.so.0", raw(entries_of("gfx1030", "gfx1100")), "libamdhip64.so.7")
    fat(where / "librocsparse.so.1", raw(entries_of("gfx1030")), "libamdhip64.so.7")
    return tmp_path / "rocm"


def codes(found: Diagnosis) -> set[tuple[str, str, str]]:
    return {(item.code, item.level, Path(item.subject).name) for item in found.findings}


def machine(root: Path, *versions: int) -> Path:
    for number, version in enumerate(versions, 1):
        node(root, number, gfx_target_version=version, drm_render_minor=127 + number)
    for path in ("dev/kfd", "dev/dri/renderD128"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return root


def test_a_machine_in_order(tmp_path: Path, rocm: Path) -> None:
    found = diagnose([str(rocm)], str(machine(tmp_path / "root", 100300)), {})
    assert codes(found) == {("RLK425", "warning", "rocm"), ("RLK508", "warning", "rocm")}
    text = "\n".join(line.plain for line in doctor_text(found))
    assert "GPU gfx1030, node 1: RX 6800" in text
    assert "dev/kfd: accessible" in text
    assert "HIP runtime: 7.2" in text
    assert "compressed bundles up to version: 3" in text
    assert "kpack archives: no" in text
    assert "with libamdhip64.so.7: rocSOLVER, rocSPARSE" in text
    assert "all cover gfx1030" in text


def test_incoherence_names_the_library(tmp_path: Path, rocm: Path) -> None:
    found = diagnose([str(rocm)], str(machine(tmp_path / "root", 100300)), {})
    (coherence,) = (item for item in found.findings if item.code == "RLK425")
    assert coherence.level == "warning"
    assert "in common; librocsparse.so.1 (rocSPARSE) has no full code for gfx1100" in coherence.message
    assert not [item for item in found.findings if item.level == "error"]


def test_a_gpu_that_the_prefix_does_not_cover(tmp_path: Path, rocm: Path) -> None:
    found = diagnose([str(rocm)], str(machine(tmp_path / "root", 110000)), {})
    (gap,) = (item for item in found.findings if item.code == "RLK426")
    assert gap.level == "error"
    assert "librocsparse.so.1 (rocSPARSE): no full code for gfx1100" in gap.message
    assert "rocSPARSE with GPU_TARGETS=gfx1030;gfx1100" in gap.remedy


def test_no_gpu_no_nodes_no_rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.checks.machine.find_places", lambda *_: ())
    found = diagnose([], str(tmp_path), {})
    assert {code for code, level, _ in codes(found) if level == "error"} == {"RLK421", "RLK424"}
    (none,) = (item for item in found.findings if item.code == "RLK421")
    nodes = ("GPU", f"{tmp_path}/dev/kfd", f"{tmp_path}/dev/dri/renderD*")
    assert none.subjects == nodes
    assert "group" not in none.remedy
    text = "\n".join(line.plain for line in doctor_text(found))
    assert "no GPU" in text
    assert "renderD*: not there" in text


def test_a_gpu_without_its_nodes(tmp_path: Path, rocm: Path) -> None:
    """As in a container that was not given them: no group opens a node that is not there."""
    root = machine(tmp_path / "root", 100300)
    shutil.rmtree(root / "dev")
    found = diagnose([str(rocm)], str(root), {})
    lost = [item for item in found.findings if item.code == "RLK422"]
    assert lost
    for item in lost:
        assert item.message == "is not there, although the kernel lists a GPU"
        assert "--device /dev/kfd" in item.remedy
        assert "group" not in item.remedy
    assert "RLK421" not in {item.code for item in found.findings}


def test_an_incomplete_runtime(tmp_path: Path, rocm: Path) -> None:
    (rocm / "lib" / "libamd_comgr.so.3").unlink()
    found = diagnose([str(rocm)], str(machine(tmp_path / "root", 100300)), {})
    (lost,) = (item for item in found.findings if item.code == "RLK424")
    assert (lost.level, "libamd_comgr was not found" in lost.message) == ("error", True)
    text = "\n".join(line.plain for line in doctor_text(found))
    assert "compressed bundles up to version: unknown" in text


def test_a_library_of_another_runtime_than_the_prefix_has(tmp_path: Path, rocm: Path) -> None:
    fat(rocm / "lib" / "librocblas.so.4", raw(entries_of("gfx1030")), "libamdhip64.so.6")
    found = diagnose([str(rocm)], str(machine(tmp_path / "root", 100300)), {})
    (lost,) = (item for item in found.findings if item.code == "RLK424")
    assert lost.level == "warning"
    assert lost.message == "libamdhip64.so.6 is not in it; needed by librocblas.so.4 (rocBLAS)"
    assert found.prefixes[0].runtime.hip == (7, 2)


def test_hazards_of_the_environment(tmp_path: Path, rocm: Path) -> None:
    environment = {
        "HIP_USE_RUNTIME_UNBUNDLER": "1",
        "LD_LIBRARY_PATH": "/x",
        "HSA_OVERRIDE_GFX_VERSION_1": "10.3.0",
        "HIP_VISIBLE_DEVICES": "0",
    }
    found = diagnose([str(rocm)], str(machine(tmp_path / "root", 100301)), environment)
    hazards = {item.subject: (item.level, item.message) for item in found.findings if item.code == "RLK423"}
    assert set(hazards) == set(environment)
    assert hazards["HIP_USE_RUNTIME_UNBUNDLER"][0] == "warning"
    assert "fails on compressed bundles" in hazards["HIP_USE_RUNTIME_UNBUNDLER"][1]
    assert hazards["HIP_VISIBLE_DEVICES"][0] == "info"
    text = "\n".join(line.plain for line in doctor_text(found))
    assert "GPU gfx1030, node 1: RX 6700, RX 6700 XT, RX 6750 XT; xnack unknown; really gfx1031" in text


def test_the_group_that_is_missing(tmp_path: Path, rocm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine(tmp_path / "root", 100300)
    (root / "dev/kfd").chmod(0o660)
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("os.getgroups", list)
    monkeypatch.setattr("os.getegid", lambda: 54321)
    found = diagnose([str(rocm)], str(root), {})
    lost = {Path(item.subject).name: item for item in found.findings if item.code == "RLK422"}
    assert "belongs to the group" in lost["kfd"].message
    assert lost["kfd"].remedy.startswith("usermod -aG ")
