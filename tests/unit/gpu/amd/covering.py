"""Coverage of files and libraries made of bundles, for the tests of coverage, intersections and remedies."""

from __future__ import annotations

from relink.elf.source import BufferSource
from relink.gpu.amd.device_code import read_device_code
from relink.gpu.amd.file_coverage import FileCoverage, LibraryCoverage, coverage_of
from relink.gpu.amd.side_files import SideFiles
from relink.gpu.amd.target_id import parse_target_id, table
from tests.unit.gpu.amd.build import ccob, entries_of, library, raw

MIXED = [
    raw(entries_of("gfx90a:xnack+", "gfx90a:xnack-", "gfx1030")),
    ccob(raw(entries_of("gfx1030", "gfx11-generic", "gfx9-4-generic:xnack-"))),
    ccob(raw(entries_of("gfx1100")), 2),
]


def cover(*bundles: bytes, path: str = "libx.so") -> FileCoverage:
    return coverage_of(read_device_code(BufferSource(library(list(bundles))), path))


def beside(path: str, side: SideFiles | None, *bundles: bytes) -> LibraryCoverage:
    role = table().library(path)
    return LibraryCoverage(path, cover(*bundles, path=path), (side,) if side else (), role)


def state(coverage: FileCoverage | LibraryCoverage, agent: str) -> str:
    return str(coverage.level(parse_target_id(agent)))


def tensile(*rows: tuple[str, str]) -> SideFiles:
    """rocBLAS's index, and kernels of the kinds that each row names, for the target of the row."""
    targets = {parse_target_id(name): {*kinds.split(), "index"} for name, kinds in rows}
    return SideFiles("rocblas", "/p/lib/rocblas/library", "", targets, 10)
