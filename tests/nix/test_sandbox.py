"""relink's sandbox in a build of Nix, confined by Nix and not: whatever works there is taken, and no build fails for it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relink.system.sandbox import find_sandbox
from tests.nix.conftest import Nix

ROOT = Path(__file__).parents[2]
ASK = """
import json, os
from relink.system.sandbox import find_sandbox, sandbox_findings
found = find_sandbox()
levels = [item.level for item in sandbox_findings(found)]
with open(os.environ["out"], "w") as file:
    json.dump([found.kind, levels, os.environ["NIX_BUILD_TOP"]], file)
"""


@contextmanager
def confined(*more: Path) -> Iterator[list[str]]:
    """The options that have Nix confine its builds, with the machine's programs and `more` inside; a skip where it cannot."""
    places = {"/usr", "/bin", "/lib", "/lib64", sys.base_prefix, *map(str, more)}
    paths = " ".join(sorted(place for place in places if os.path.exists(place)))
    settings = {"sandbox": "true", "sandbox-fallback": "false", "sandbox-paths": paths}
    try:
        yield [word for name, value in settings.items() for word in ("--option", name, value)]
    except AssertionError as error:
        if "sandbox" in str(error) or "namespace" in str(error):
            pytest.skip(f"Nix cannot confine a build here: {str(error)[-200:]}")
        raise


def asked(nix: Nix, name: str, *options: str) -> tuple[str, list[str], str]:
    """(kind, levels of findings, directory) of a sandbox in a build."""
    script = nix.root / f"{name}.py"
    script.write_text(ASK)
    expression = (
        f'derivation {{ name = "{name}"; system = builtins.currentSystem; builder = "/bin/sh"; script = {script};'
        f' PYTHONPATH = "{ROOT}"; PATH = "{os.environ["PATH"]}";'
        f' args = [ "-c" "exec {os.path.realpath(sys.executable)} $script" ]; }}'
    )
    kind, levels, top = json.loads(nix.build(expression, *options).read_text())
    return kind, levels, top


def test_in_a_build_that_is_not_confined(nix: Nix) -> None:
    kind, levels, _ = asked(nix, "open")
    assert kind == find_sandbox().kind
    assert "warning" not in levels


def test_in_a_build_that_is_confined(nix: Nix) -> None:
    with confined(ROOT) as options:
        kind, levels, top = asked(nix, "confined", *options)
    assert top == "/build"
    assert (levels == []) == (kind in ("bubblewrap", "namespaces", "landlock"))
    assert "warning" not in levels
