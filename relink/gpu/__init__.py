"""GPU device code: which GPUs the code in files, wheels and prefixes runs on, and what it needs to be loaded.

Everything here only reads. No content of a file raises an error: what is damaged is described in `problems` of the results.
"""

from relink.elf.source import BufferSource, ByteSource, FileSource, NotedSource
from relink.gpu.amd.archives import resolve_kpack, with_archives
from relink.gpu.amd.device import Doctor, doctor
from relink.gpu.amd.device_code import DeviceCode, read_device_code, read_file, same_device_code
from relink.gpu.amd.file_coverage import FileCoverage, LibraryCoverage, coverage_of, library_coverage_of
from relink.gpu.amd.intersection import Intersection, intersect, isa_block, matrix
from relink.gpu.amd.isa_table import table
from relink.gpu.amd.kpack import PLACEHOLDER
from relink.gpu.amd.remedy import Remedy, remedies
from relink.gpu.amd.requirements import DeviceCodeNeeds, Requirement, check, needs_of
from relink.gpu.amd.runtime import Capability, find_runtime
from relink.gpu.amd.survey import Group, Item, Kernels, Survey, hip_runtime_of, newest_first, survey
from relink.gpu.amd.target_id import SPIRV, Match, match, parse_target_id
from relink.gpu.amd.wanted import Wanted, seen_gpus, wanted_gpus
from relink.gpu.coverage import Coverage, CoverageLevel, TargetId

__all__ = [
    "PLACEHOLDER",
    "SPIRV",
    "BufferSource",
    "ByteSource",
    "Capability",
    "Coverage",
    "CoverageLevel",
    "DeviceCode",
    "DeviceCodeNeeds",
    "Doctor",
    "FileCoverage",
    "FileSource",
    "Group",
    "Intersection",
    "Item",
    "Kernels",
    "LibraryCoverage",
    "Match",
    "NotedSource",
    "Remedy",
    "Requirement",
    "Survey",
    "TargetId",
    "Wanted",
    "check",
    "coverage_of",
    "doctor",
    "find_runtime",
    "hip_runtime_of",
    "intersect",
    "isa_block",
    "library_coverage_of",
    "match",
    "matrix",
    "needs_of",
    "newest_first",
    "parse_target_id",
    "read_device_code",
    "read_file",
    "remedies",
    "resolve_kpack",
    "same_device_code",
    "seen_gpus",
    "survey",
    "table",
    "wanted_gpus",
    "with_archives",
]  # fmt: skip
