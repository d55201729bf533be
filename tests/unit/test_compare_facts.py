"""scripts/compare-facts: what AMD's sources have and the tables lack, and which facts are older than a year."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "compare-facts"
ENTRIES = """
LibraryEntry("amdhip64", "core", "libamdhip64.so*", "amdhip64*.dll")
LibraryEntry("rocm_sysdeps_liblzma", "core", "librocm_sysdeps_liblzma.so.*", "")
LibraryEntry("rocnew", "core", "librocnew*.so*", "", optional=True)
"""
TARGETS = """
therock_add_amdgpu_target(gfx1100 "Navi 31" FAMILY dgpu-all gfx110X-all)
therock_add_amdgpu_target(gfx1999 "Unheard of" FAMILY gfx199X-all
  EXCLUDE_TARGET_PROJECTS
    hipBLASLt
)
"""


def compare(*arguments: object) -> tuple[int, list[str]]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not run.stderr, run.stderr
    return run.returncode, run.stdout.splitlines()


def test_what_the_sources_have_and_no_table_does(tmp_path: Path) -> None:
    files = {
        "build_tools/packaging/python/templates/rocm/src/rocm_sdk/_dist_info.py": ENTRIES,
        "cmake/therock_amdgpu_targets.cmake": TARGETS,
        "external-builds/pytorch/build_prod_wheels.py": 'LINUX_LIBRARY_PRELOADS = ["amdhip64", "tomorrow"]\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert compare("--therock", tmp_path, "--today", "2025-08") == (
        1,
        [
            "rocm.toml: no component has librocnew.so (rocnew of pip's ROCm)",
            "pip's ROCm has no library tomorrow, which torch maps first",
            "isa.toml: no processor gfx1999 (families: gfx199X-all)",
        ],
    )


def test_facts_that_are_older_than_a_year_are_told() -> None:
    assert compare("--today", "2026-08") == (0, [])
    later = compare("--today", "2027-10")[1]
    assert "isa.toml: rocr was checked in 2025-08" in later
    assert "rocm.toml: system_copy was checked in 2026-08" in later
    assert not any("hip" in line for line in later)


def test_no_fact_is_older_than_a_year_today() -> None:
    """Time alone fails no test: what is old is the reason why it is skipped, which pytest prints."""
    old = compare("--today", dt.date.today().strftime("%Y-%m"))[1]  # noqa: DTZ011
    if old:
        pytest.skip("older than a year: " + "; ".join(old))
