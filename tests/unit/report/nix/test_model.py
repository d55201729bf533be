"""The plan that nix/resolve.nix reads."""

from __future__ import annotations

import json

from relink.report.nix.model import plan_json
from tests.unit.report.nix.packages import PLAIN


def test_the_plan_is_json_without_what_package_nix_has() -> None:
    data = json.loads(plan_json(PLAIN))
    assert data["schema"] == "relink.nix/1"
    assert not data.keys() & {"about", "gpus", "dependencies", "imports", "findings", "siblings"}


def test_what_nix_reads_of_a_plan() -> None:
    data = json.loads(plan_json(PLAIN))
    assert data["libraries"] == {"rocmPackages.clr": ["libamdhip64.so.7"]}
    (file,) = data["files"]
    assert (file["base"], file["path"]) == ("site-packages", "demo/a.so")
    assert file["search_path"] == {
        "kind": "runpath",
        "entries": [
            {"text": "$ORIGIN", "attribute": None, "directory": "lib"},
            {"text": None, "attribute": "rocmPackages.clr", "directory": "lib"},
        ],
    }
    assert file["replace"] == [{"old": "libx.so.1", "new": "libx.so.7"}]
