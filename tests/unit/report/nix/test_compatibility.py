"""nix/isa.json, by which Nix decides on coverage; tests/nix compares the decisions."""

from __future__ import annotations

import json
from pathlib import Path

from relink.gpu import table
from relink.report.nix.compatibility import compatibility_json

ROOT = Path(__file__).parents[4]


def test_the_table_in_nix_is_that_of_isa_toml() -> None:
    assert (ROOT / "nix" / "isa.json").read_text() == compatibility_json(), (
        "run: python -c 'from relink.report.nix.compatibility import compatibility_json as c; "
        'print(c(), end="")\' > nix/isa.json'
    )


def test_members_of_a_generic_target_and_features() -> None:
    data = json.loads(compatibility_json())
    assert data["processors"].keys() == table().processors.keys()
    assert data["processors"]["gfx90a"] == ["sramecc", "xnack"]
    assert data["processors"]["gfx1030"] == []
    assert data["generics"]["gfx10-3-generic"]["gfx1030"] == 1
    members = {name for found in data["generics"].values() for name in found}
    assert members <= data["processors"].keys()
    assert (data["extended"]["gfx1031"], data["extended"].get("gfx1101")) == ("gfx1030", None)
