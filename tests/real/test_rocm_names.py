"""The table of whose symbols are, against the exports of a real ROCm."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.providers.prefix import soname_stem
from relink.vendors.rocm.facts import owner_of, owners, source_name
from tests.support.symbol_names import exports_of


@pytest.mark.parametrize("size", ["small_prefix", "full_prefix"])
def test_what_a_library_exports_is_its_components(size: str, request: pytest.FixtureRequest) -> None:
    prefix: Path = request.getfixturevalue(size)
    libraries = exports_of([prefix / "lib" / "x86_64-linux-gnu"])
    by_name = {owner.component: owner for owner in owners()}
    seen = 0
    for component, found in libraries.items():
        row = by_name[component]
        for soname, names in found.items():
            assert soname_stem(soname) in row.libraries
            for name in names - row.others:
                owner = owner_of(name)
                assert owner in (row, None), f"{name} of {soname}"
                assert owner is row or not row.complete, f"{name} of {soname}"
                assert source_name(name)
                seen += owner is row
    assert seen > 700
