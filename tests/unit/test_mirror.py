"""tests/unit mirrors relink/: `relink/a/b.py` has `tests/unit/a/test_b.py`. The list of exceptions only becomes shorter."""

from __future__ import annotations

import ast
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE, UNIT = ROOT / "relink", ROOT / "tests" / "unit"

ELSEWHERE = {
    # The process, and what a command is made of: run whole, by the tests of the commands
    "__init__": "unit/test_library",
    "__main__": "unit/cli/test_relinking",
    "cli/application": "unit/cli/test_relinking",
    # Fetched, installed and repaired in real environments, by the commands
    "cli/installing": "unit/indexes/install/test_installing",
    # Data and types without code of their own
    "gpu/coverage": "unit/gpu/amd/test_file_coverage",
    "vendors/protocol": "unit/vendors/test_registry",
    # One test module for a subject that has several modules
    "report/html/gpu_code": "unit/report/html/test_page",
    "planning/resolve/import_findings": "unit/planning/resolve/test_proof",
    "system/sandbox/inside": "unit/system/sandbox/test_attacks",
    # With Nix: tests/nix has these
}
"""Where a module without a test module of its name is tested, below tests/. With tests of its own, its line goes."""

ACROSS = {
    "indexes/build/test_cluster": "the engine of indexes/build/engine.py that needs Dask, with real workers",
    "test_nix_hook": "the hook for Nix in bash alone; tests/nix builds with it",
    "test_compare_facts": "what AMD's sources have and the tables of ROCm and GPUs lack: a script",
    "test_todays_rocm": "the stand-ins of today's ROCm and torch: what they are made of",
    "cli/test_directories": "`relink DIR` as a command",
    "gpu/amd/test_clr_rules": "what HIP takes of a bundle, and what older ones load: target ids and runtimes together",
    "gpu/amd/test_hostile": "damaged device code through every reader",
    "report/nix/test_example": "what `relink nix` writes for a wheel, held to examples/nix/package.nix",
    "planning/resolve/test_search_kind": "--search-path: the plan, LD_LIBRARY_PATH and the real loader together",
    "hostile/test_elf_files": "damaged ELF files through the command line",
    "hostile/test_output": "names that steer a terminal, through every command",
    "hostile/test_prefixes": "hostile prefixes through the command line",
    "hostile/test_resources": "files made to take all time or memory, through the command line",
    "hostile/test_streams": "hostile deflate streams through a run",
    "hostile/test_wheels": "hostile archives through the command line",
    "indexes/install/test_dependencies": "what a wheel depends on, in real environments",
    "indexes/install/test_printed_commands": "the commands that a message prints, pasted and run",
    "loader/test_elf_builder": "what the tests build ELF files with, against the real loader",
    "make/test_sbom": "the bill of materials of an output",
    "providers/profiles/test_assumed": "what a profile changes in planning and reports",
    "providers/profiles/test_recorded": "plans of recorded wheels of vendors",
    "runs/test_relinked_input": "a wheel that relink wrote, through the commands that read or refuse it",
    "system/sandbox/test_attacks": "what each kind of sandbox refuses, tried from inside",
    "test_acceptance": "installers and checkers take the output",
    "test_action": "the GitHub Action",
    "test_api_docs": "docs/api.md",
    "test_bench_check": "benchmarks/check.py",
    "test_canaries": "no code of a wheel runs",
    "test_rocm_sdk": "the stand-in for ROCm as pip installs it",
    "test_demo_standin": "the demo's stand-in for a GPU library",
    "test_fixed_hosts": "hosts whose ROCm nobody may change: reports rebuilt, one command each",
    "test_json_documents": "the JSON that commands print, its schema, and the jq of docs/ci.md",
    "test_faults": "disks, memory and patchelf that fail during a run",
    "test_lock": "requirements/*.txt",
    "test_mirror": "this test",
    "test_module_names": "names of modules and what they contain",
    "test_odd_names": "characters that mean something to the loader, in names",
    "test_packaging": "relink's own wheel",
    "test_planted": "files that others planted where relink looks",
    "test_pre_commit_hooks": "the hooks for pre-commit",
    "test_private_names": "tests use public names",
    "test_project": "pyproject.toml, CHANGELOG.md and versions",
    "test_rare_findings": "findings that few wheels have, each from a run",
    "test_readme": "README.md",
    "test_refused_members": "members that the loader refuses, from the scan to the report",
    "test_reproducible": "the same bytes from the same input",
    "test_rules": "every finding has a page and a test",
    "test_site": "the documentation site",
    "test_support": "tests/support",
    "test_unedited": "a run that edits nothing",
    "test_vendor_neutral": "packages that name no vendor",
    "test_workflows": "the workflows of continuous integration",
}
"""Test modules of no one module, and their subject."""


def has_code(path: Path) -> bool:
    """Whether there is more in a module than a docstring, imports and ``__all__``."""
    return any(
        not isinstance(node, ast.Import | ast.ImportFrom | ast.Assign)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
    )


def modules() -> dict[str, str]:
    """Each module of relink/, and the test module that its name asks for; a package's own code is tested by its name."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).with_suffix("")
        if path.name != "__init__.py":
            found[str(name)] = str(name.parent / f"test_{name.name.strip('_')}")
        elif has_code(path):
            found[str(name)] = str(name.parent / f"test_{name.parent.name or 'relink'}")
    return found


MODULES = modules()
TESTS = {str(path.relative_to(UNIT).with_suffix("")) for path in UNIT.rglob("test_*.py")}


def test_the_modules_are_found() -> None:
    assert MODULES["elf/image"] == "elf/test_image"
    assert MODULES["__init__"] == "test_relink"
    assert "elf/__init__" not in MODULES
    assert len(MODULES) > 150


def test_every_module_has_a_test_module_of_its_name() -> None:
    missing = sorted(name for name, test in MODULES.items() if test not in TESTS and name not in ELSEWHERE)
    assert missing == [], (
        "write the test module; only where another tests it as its subject, name that in ELSEWHERE"
    )


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_exception_is_one(name: str) -> None:
    """The module is there, has no test module of its name, and is tested where the list says."""
    assert name in MODULES
    assert MODULES[name] not in TESTS, "it has tests of its own; take it out of ELSEWHERE"
    assert (ROOT / "tests" / f"{ELSEWHERE[name]}.py").is_file()


def test_no_more_exceptions() -> None:
    assert len(ELSEWHERE) <= 44, "a new module comes with a test module of its name"


def test_every_test_module_has_a_subject() -> None:
    mirrors = set(MODULES.values())
    assert sorted(TESTS - mirrors - set(ACROSS)) == []
    assert sorted(set(ACROSS) & mirrors) == []
    assert sorted(set(ACROSS) - TESTS) == []


def test_no_test_is_passed_over(pytestconfig: pytest.Config) -> None:
    """By default pytest does not look into directories that are called `build`."""
    passed_over = pytestconfig.getini("norecursedirs")
    directories = {
        part for path in (ROOT / "tests").rglob("test_*.py") for part in path.parent.relative_to(ROOT).parts
    }
    assert [name for name in directories if any(fnmatch(name, pattern) for pattern in passed_over)] == []
