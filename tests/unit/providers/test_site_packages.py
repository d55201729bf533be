"""providers.site_packages: packages of a site-packages, whoever packs them."""

from __future__ import annotations

import pytest

from relink.providers.prefix import InstalledPackage, Provider
from relink.providers.site_packages import leave_out_package, major_minor

HIP, MATH = "/site/_hip/lib/libhip.so.7", "/site/math_libs/libmath.so.3"
PROVIDER = Provider(
    "site-packages",
    "/site",
    ("/site/_hip/lib", "/site/math_libs"),
    {"libhip.so.7": (HIP,), "libmath.so.3": (MATH,)},
    packages=(InstalledPackage("hip", "7.2", "_hip"), InstalledPackage("Math_libs", "2.0", "math_libs")),
)


def test_without_the_package_that_is_being_relinked() -> None:
    left = leave_out_package(PROVIDER, "math-libs")
    assert left.find("libmath.so.3") is None
    assert left.find("libhip.so.7") == HIP
    assert left.directories == ("/site/_hip/lib",)
    assert [item.name for item in left.packages] == ["hip"]
    assert leave_out_package(PROVIDER, "demo") is PROVIDER


@pytest.mark.parametrize(
    ("version", "expected"),
    [("7.2.4", "7.2"), ("10.1", "10.1"), ("7.2.0rc1", "7.2"), ("unknown", "unknown"), ("9" * 5000,) * 2],
)
def test_series(version: str, expected: str) -> None:
    assert major_minor(version) == expected
