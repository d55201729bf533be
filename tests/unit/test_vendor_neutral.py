"""The packages that link, plan, make and report name no vendor: another vendor's wheels need no change in them.

Identifiers and strings count; comments and docstrings may name ROCm as an example.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.built import ROOT

PACKAGES = (
    "elf", "indexes", "loader", "make", "planning", "providers", "report", "runs", "system", "wheel",
)  # fmt: skip
MODULES = [
    *(path.relative_to(ROOT / "relink").as_posix() for path in (ROOT / "relink" / "gpu").glob("*.py")),
    "vendors/protocol.py",
    "vendors/registry.py",
]
_WORDS = re.compile(r"rocm(?!ask)|(?<!s)hip|amd|gfx|hsa|nvidia|cuda|cublas", re.IGNORECASE)

EXCEPTIONS = {
    ("relink/elf/constants.py", "EM_AMDGPU"): "ELF's own name of a machine number (224)",
    ("relink/elf/image.py", "amdgpu"): "the printed name of that machine",
    ("relink/planning/model.py", "rocm_version"): "a key of the report's JSON; keys are never renamed",
}


PRODUCT = "relink's own name on PyPI"
KEY = "a key of JSON that is printed or written; keys are never renamed"
LIST = "the list of vendors"
EXCEPTIONS |= {
    (
        "relink/indexes/build/engine.py",
        "--scheduler needs Dask: pip install 'rocm-relink[cluster]'",
    ): PRODUCT,
    (
        "relink/indexes/build/running.py",
        "Work on a Dask cluster: tcp://HOST:8786. Needs rocm-relink[cluster].",
    ): PRODUCT,
    ("relink/indexes/build/web.py", "rocm-relink/"): PRODUCT,
    (
        "relink/indexes/build/web.py",
        "an index is read by pycurl: pip install 'rocm-relink[index]'",
    ): PRODUCT,
    ("relink/make/added_members.py", "rocm-relink"): PRODUCT,
    ("relink/report/html/page.py", "rocm_version"): KEY,
    ("relink/report/text.py", "rocm_version"): KEY,
    ("relink/runs/relink_tree.py", "EM_AMDGPU"): "ELF's own name of a machine number (224)",
    ("relink/runs/relink_tree.py", "_AMDGPU"): "that number",
    ("relink/vendors/registry.py", "cuda"): LIST,
    ("relink/vendors/registry.py", "relink.vendors.cuda"): LIST,
    ("relink/vendors/registry.py", "rocm"): LIST,
    ("relink/vendors/registry.py", "relink.vendors.rocm.vendor"): LIST,
}

OF_ONE_VENDOR = {
    "planning/options.py": "the help of options, by the example of ROCm",
}
"""Modules of these packages that name a vendor. The list only becomes shorter."""


def _docstrings(tree: ast.AST) -> set[ast.expr]:
    """Return every string that stands alone: docstrings, also those of attributes."""
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def _texts(node: ast.AST) -> Iterator[str | bytes | None]:
    """Return the identifiers and strings of one node."""
    match node:
        case ast.Constant(value=str() | bytes() as value):
            yield value
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=other):
            yield from (name, other)
        case ast.ImportFrom(module=name):
            yield name
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names
        case ast.MatchAs(name=name) | ast.MatchStar(name=name) | ast.MatchMapping(rest=name):
            yield name
        case ast.ExceptHandler(name=name):
            yield name
        case ast.MatchClass(kwd_attrs=names):
            yield from names


def vendor_words(source: str) -> list[str]:
    """Return the identifiers and strings of a module that name the vendor, in the order of the tree."""
    tree = ast.parse(source)
    skipped = _docstrings(tree)
    texts = (text for node in ast.walk(tree) if node not in skipped for text in _texts(node) if text)
    shown = (text.decode("latin-1") if isinstance(text, bytes) else text for text in texts)
    return [text for text in shown if _WORDS.search(text)]


@pytest.mark.parametrize(
    "source",
    [
        "gfx = 1",
        "a.hip_path",
        "def f(rocm): ...",
        "f(amd=1)",
        "class Hsa: ...",
        "from relink.vendors.rocm import a",
        "import relink.vendors.rocm as other",
        "x = 'libamdhip64.so'",
        "x = b'HIPF'",
        "f'{x} of ROCm'",
        "x = 'nvidia-'",
        "OF_CUDA = 1",
    ],
)
def test_a_word_is_seen(source: str) -> None:
    assert vendor_words(source)


def test_a_docstring_and_a_comment_may_name_a_vendor() -> None:
    source = '"""ROCm."""  # gfx90a\n\ndef ship():\n    """Hip."""\n\nclass A:\n    b = 1\n    """AMD."""\n'
    assert vendor_words(source) == []


def test_core_packages_name_no_vendor() -> None:
    modules = [path for package in PACKAGES for path in (ROOT / "relink" / package).rglob("*.py")]
    modules += [ROOT / "relink" / name for name in MODULES]
    assert len(modules) > len(PACKAGES)
    apart = {ROOT / "relink" / name for name in OF_ONE_VENDOR}
    idle = [path for path in apart if path not in modules or not vendor_words(path.read_text("utf-8"))]
    assert idle == [], "a module that names no vendor any more"
    found = {
        (path.relative_to(ROOT).as_posix(), text)
        for path in modules
        if path not in apart
        for text in vendor_words(Path(path).read_text(encoding="utf-8"))
    }
    for (path, text), reason in sorted(EXCEPTIONS.items()):
        print(f"{path}: {text}: {reason}")  # noqa: T201 - pytest -s or -rP shows which exceptions there are
    assert sorted(found - EXCEPTIONS.keys()) == []
    assert sorted(EXCEPTIONS.keys() - found) == [], "an exception that nothing needs any more"
