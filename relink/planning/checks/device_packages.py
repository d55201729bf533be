"""GPU code that is installed by a package of its own (RLK427): kpack archives and kernel files beside a library.

ROCm as pip installs it has a package ``rocm-sdk-device-gfx1100`` for each GPU, which puts them into the directory of
``rocm-sdk-libraries`` (TheRock, docs/packaging/python_packaging.md), and AMD's PyTorch has ``amd-torch-device-gfx1100``
(build_tools/packaging/python/rocm_whl_next_ownership.yaml there); some are for a family of GPUs (``amd-torch-device-gfx11``). Who
splits another wheel chooses the names of the packages (rocm-systems, shared/kpack, wheel_splitter.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from relink.gpu import (
    PLACEHOLDER,
    Coverage,
    CoverageLevel,
    FileCoverage,
    LibraryCoverage,
    TargetId,
    Wanted,
    table,
)
from relink.system.findings.model import Finding, Level, finding
from relink.system.text import join_some, join_with_and

# A directory with a family in its name (_rocm_sdk_libraries_gfx…) was built with the code of that family inside.
_NEUTRAL = re.compile(r"(?P<site>.*)/_rocm_sdk_libraries(?!_gfx)[^/]*/")
_SPLIT = re.compile(r"(?:.*/site-packages/)?(?P<package>torch|torchvision)/")
_MOST = 3


def lies_in_a_package(library: Coverage, target: TargetId) -> bool:
    """Whether a library that has no code for `target` would have it from a package for that GPU."""
    file = _file(library)
    archives = file is not None and bool(file.archives) and file.level(target).state == "none"
    return archives or _NEUTRAL.match(library.path) is not None


def missing_package(
    gpu: Wanted, missing: Sequence[tuple[Coverage, CoverageLevel]], level: Level
) -> Finding | None:
    """Return the finding about the libraries of `missing` whose code for a GPU was not installed; None where there is none."""
    libraries = [library for library, _ in missing if lies_in_a_package(library, gpu.target)]
    if not libraries:
        return None
    processor = gpu.target.processor
    names = sorted({os.path.basename(library.path) for library in libraries})
    files = {
        os.path.basename(path).replace(PLACEHOLDER, processor)
        for library in libraries
        if (file := _file(library)) is not None
        for path in file.archives
    }
    shown = join_some(names, _MOST)
    looked = f": no {join_with_and(sorted(files)[:_MOST])} is there" if files else ""
    message = f"the code of {shown} for {gpu} comes in a package of its own, which is not installed{looked}"
    sites = {match["site"] for library in libraries if (match := _NEUTRAL.match(library.path))}
    split = {match["package"] for library in libraries if (match := _SPLIT.match(library.path))}
    step = None
    families = " or ".join(f"…-device-{family}" for family in table().families_of(processor))
    other = f" Where the index has none for {processor}, that of its family: {families}." if families else ""
    if sites:
        step = f"pip install rocm-sdk-device-{processor}"
        remedy = f"{step}, in the environment of {min(sites)}.{other}"
    elif split:
        step = "pip install " + " ".join(f"amd-{name}-device-{processor}" for name in sorted(split))
        remedy = f"{step}, in the version of the wheel.{other}"
    else:
        remedy = f"Install the package that has the code of {shown} for {processor}: its vendor names one for each GPU."
    return finding("RLK427", str(gpu.target), message, remedy, level, step=step)


def _file(coverage: Coverage) -> FileCoverage | None:
    if isinstance(coverage, LibraryCoverage):
        return coverage.file
    return coverage if isinstance(coverage, FileCoverage) else None
