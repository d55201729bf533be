"""GPU device code: which GPUs the code in files, wheels and prefixes runs on, and what it needs to be loaded.

Everything here only reads. No content of a file raises an error: what is damaged is described in `problems` of the results.
"""

from relink.elf.source import BufferSource, ByteSource, FileSource, NotedSource
from relink.gpu.amd.archives import resolve_kpack, with_archives
from relink.gpu.amd.bundle import Bundle, BundleEntry
from relink.gpu.amd.code_object import CodeObject, parse_code_object
from relink.gpu.amd.device import Devices, Doctor, Gpu, NodeAccess, doctor, find_gpus
from relink.gpu.amd.device_code import DeviceCode, read_device_code, read_file, same_device_code
from relink.gpu.amd.file_coverage import (
    FileCoverage,
    LibraryCoverage,
    coverage_of,
    library_coverage,
    library_coverage_of,
)
from relink.gpu.amd.intersection import Intersection, Removal, intersect, isa_block, matrix
from relink.gpu.amd.isa_table import LibraryRole, table
from relink.gpu.amd.kpack import PLACEHOLDER
from relink.gpu.amd.remedy import Remedy, remedies
from relink.gpu.amd.requirements import DeviceCodeNeeds, Requirement, check, needs_of
from relink.gpu.amd.runtime import Capability, capability_of, find_runtime
from relink.gpu.amd.side_files import SideFiles, SideTarget, find_side_files, side_files_of
from relink.gpu.amd.survey import Group, Item, Kernels, Survey, hip_runtime_of, newest_first, survey
from relink.gpu.amd.target_id import (
    SPIRV,
    BundleId,
    Match,
    TargetId,
    match,
    parse_bundle_id,
    parse_target_id,
    processor_for,
)
from relink.gpu.amd.wanted import Wanted, seen_gpus, wanted_gpus
from relink.gpu.coverage import Coverage, CoverageLevel

__all__ = [
    "PLACEHOLDER",
    "SPIRV",
    "BufferSource",
    "Bundle",
    "BundleEntry",
    "BundleId",
    "ByteSource",
    "Capability",
    "CodeObject",
    "Coverage",
    "CoverageLevel",
    "DeviceCode",
    "DeviceCodeNeeds",
    "Devices",
    "Doctor",
    "FileCoverage",
    "FileSource",
    "Gpu",
    "Group",
    "Intersection",
    "Item",
    "Kernels",
    "LibraryCoverage",
    "LibraryRole",
    "Match",
    "NodeAccess",
    "NotedSource",
    "Remedy",
    "Removal",
    "Requirement",
    "SideFiles",
    "SideTarget",
    "Survey",
    "TargetId",
    "Wanted",
    "capability_of",
    "check",
    "coverage_of",
    "doctor",
    "find_gpus",
    "find_runtime",
    "find_side_files",
    "hip_runtime_of",
    "intersect",
    "isa_block",
    "library_coverage",
    "library_coverage_of",
    "match",
    "matrix",
    "needs_of",
    "newest_first",
    "parse_bundle_id",
    "parse_code_object",
    "parse_target_id",
    "processor_for",
    "read_device_code",
    "read_file",
    "remedies",
    "resolve_kpack",
    "same_device_code",
    "seen_gpus",
    "side_files_of",
    "survey",
    "table",
    "wanted_gpus",
    "with_archives",
]  # fmt: skip
