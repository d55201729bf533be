"""plans.reliance: what METADATA says of the packages that a result relies on."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from relink.planning.model.files import Reliance, Stub, check_places, is_plain, metadata_lines
from relink.system.errors import UsageError

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


def test_where_relink_puts_them() -> None:
    check_places([Stub("demo.libs/relink-stubs/libb.so", "libb.so", "w")])


@pytest.mark.parametrize(
    "path",
    [
        "demo/liba.so.1",
        "liba.so.1",
        "demo.libs/liba.so.1",
        "demo.libs/relink-other/liba.so.1",
        "demo/relink-stubs/liba.so.1",
        "demo.libs/relink-stubs/libb.so.1",
        "demo.libs/relink-stubs/../liba.so.1",
        "../demo.libs/relink-stubs/liba.so.1",
        "demo.libs/relink-stubs/x/liba.so.1",
    ],
)
def test_where_it_does_not(path: str) -> None:
    with pytest.raises(UsageError, match="the plan puts a stub outside"):
        check_places([Stub(path, "liba.so.1", "w")])


def test_plain_names() -> None:
    assert is_plain("liba-2_x.so.1+b")
    assert not any(map(is_plain, ["", ".", "..", "a/b", "-a", "a b", "a\n", "$ORIGIN", "a:b", "a" * 300]))
