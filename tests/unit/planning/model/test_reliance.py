"""plans.reliance: what METADATA says of the packages that a result relies on."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from relink.planning.model.reliance import Reliance, metadata_lines

CORE = Reliance("rocm-sdk-core", "7.2.4", ("_rocm_sdk_core/lib",))


def test_an_extra_and_a_requirement() -> None:
    assert metadata_lines([CORE], "rocm") == (
        "Provides-Extra: rocm",
        'Requires-Dist: rocm-sdk-core==7.2.*; extra == "rocm"',
    )
    assert metadata_lines([CORE], None) == ("Requires-Dist: rocm-sdk-core==7.2.*",)
    assert metadata_lines([], None) == ()
    several = [CORE, Reliance("rocm-sdk-libraries", "7.2.4", ("x",))]
    bundle = {"rocm-sdk-core": "rocm[libraries]", "rocm-sdk-libraries": "rocm[libraries]"}
    assert metadata_lines(several, None, bundle) == ("Requires-Dist: rocm[libraries]==7.2.*",)


@pytest.mark.parametrize(
    ("made_with", "fits", "too_far"),
    [
        ("7.2.4", ["7.2.0", "7.2.4", "7.2.9"], ["7.3.0", "7.1.9"]),
        (
            "7.10.0a20251120",
            ["7.10.0a20251120", "7.10.0", "7.10.1"],
            ["7.10.0a20251119", "7.11.0a1", "7.11.0"],
        ),
        ("7.2.4+vendor.1", ["7.2.4+vendor.2", "7.2.0"], ["7.3"]),
    ],
)
def test_which_versions_a_result_takes(made_with: str, fits: list[str], too_far: list[str]) -> None:
    (line,) = metadata_lines([Reliance("rocm-sdk-core", made_with)], None)
    wanted = Requirement(line.removeprefix("Requires-Dist: ")).specifier
    assert [wanted.contains(item) for item in fits] == [True] * len(fits)
    assert not any(wanted.contains(item) for item in too_far)


@pytest.mark.parametrize("version", ["unknown", "9" * 5000])
def test_a_version_that_is_none(version: str) -> None:
    assert metadata_lines([Reliance("x", version)], None) == ("Requires-Dist: x",)
