"""Attributes of nixpkgs, by soname and by store path."""

from __future__ import annotations

import pytest

from relink.report.nix.attributes import attribute_of_path, attribute_of_soname, extra_attribute

HASH = "0123456789abcdfghijklmnpqrsvwxyz"


def test_of_a_soname() -> None:
    assert attribute_of_soname("libamdhip64.so.7", 7) == "rocmPackages.clr"
    assert attribute_of_soname("libnobody-has-it.so.3", 7) == "extraLibraries.nobody-has-it"


@pytest.mark.parametrize(
    ("soname", "attribute"),
    [
        ("libhipsparselt.so.0", "extraLibraries.hipsparselt"),
        ("lib1.so", "extraLibraries._1"),
        ("a.b;c.so.1", "extraLibraries.a-b-c"),
        ("lib.so", "extraLibraries.library"),
    ],
)
def test_where_nixpkgs_has_none(soname: str, attribute: str) -> None:
    assert extra_attribute(soname) == attribute


def test_of_a_store_path() -> None:
    assert attribute_of_path(f"/nix/store/{HASH}-clr-7.2.4", [], 7) == ("rocmPackages.clr", True)
    gpu = f"/nix/store/{HASH}-rocblas-gfx90a-gfx1100-7.2.4"
    assert attribute_of_path(gpu, [], 7) == ("rocmPackages.rocblas", True)
    suffixed = f"/nix/store/{HASH}-hipblaslt-gfx1030-gfx1100-7.2.3"
    assert attribute_of_path(suffixed, [], 7) == ("rocmPackages.hipblaslt", True)
    benchmark = f"/nix/store/{HASH}-rocblas-7.2.3-benchmark"
    assert attribute_of_path(benchmark, [], 7) == ("rocmPackages.rocblas.benchmark", True)
    for output, attribute in (("lib", "stdenv.cc.cc"), ("libgcc", "stdenv.cc.cc.libgcc")):
        gcc = f"/nix/store/{HASH}-gcc-15.2.0-{output}"
        assert attribute_of_path(gcc, [], 7) == (attribute, True)
    renamed = f"/nix/store/{HASH}-my-hip-7.2.4"
    assert attribute_of_path(renamed, ["libamdhip64.so.7"], 7) == ("rocmPackages.clr", True)
    several = attribute_of_path(renamed, ["libamdhip64.so.7", "librocblas.so.5"], 7)
    assert several == ("pkgs.my-hip", False)
