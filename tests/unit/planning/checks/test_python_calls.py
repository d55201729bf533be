"""checks.python_calls: libraries that Python code loads by a bare soname."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.planning.checks.python_calls import python_call_findings
from relink.providers.prefix import Provider
from relink.vendors.rocm import vendor as rocm
from relink.wheel.archive import WheelArchive
from tests.support.wheels import make_wheel

PROVIDER = Provider(
    "site-packages",
    "/site",
    ("/site/_rocm_sdk_core/lib",),
    {name: (f"/site/_rocm_sdk_core/lib/{name}",) for name in ("libamdhip64.so.7", "libMIOpen.so.1")},
)
MODULE = """
import ctypes
from ctypes import CDLL, cdll
hip = ctypes.CDLL("libamdhip64.so", mode=ctypes.RTLD_GLOBAL)
miopen = CDLL(
    'libMIOpen.so.1')
cdll.LoadLibrary("libm.so.6")            # another library
CDLL("/opt/rocm/lib/libamdhip64.so.7")   # by a path
CDLL(name)
print("libamdhip64.so.7")                # no call
"""


def test_the_two_lines_that_help(tmp_path: Path) -> None:
    files: dict[str, bytes | Path] = {"demo/__init__.py": MODULE.encode(), "demo/other.py": b"print(1)"}
    files["demo/bad.py"] = b"\xff CDLL('libm.so')"
    with WheelArchive(make_wheel(tmp_path, files)) as archive:
        (found,) = python_call_findings(archive, PROVIDER, rocm)
    assert (found.code, found.subject) == ("RLK538", "demo/__init__.py")
    assert found.message == (
        "loads libamdhip64.so, libMIOpen.so.1 by name, which no search path of the wheel leads to"
    )
    assert 'preload_shortnames=["amdhip64", "miopen"]' in found.remedy


@pytest.mark.parametrize(
    ("there", "remedy", "step"),
    [
        (
            ["libamdhip64.so", "libMIOpen.so.1"],
            "export LD_LIBRARY_PATH='/opt/my rocm/lib', before Python starts.",
            "export LD_LIBRARY_PATH='/opt/my rocm/lib'",
        ),
        (
            ["libamdhip64.so.7", "libMIOpen.so.1"],
            (
                "/opt/my rocm has libamdhip64.so.7 and no libamdhip64.so: make a link of that name in a directory that "
                "LD_LIBRARY_PATH names before Python starts."
            ),
            None,
        ),
    ],
)
def test_what_to_set_for_a_prefix(there: list[str], remedy: str, step: str | None, tmp_path: Path) -> None:
    lib = "/opt/my rocm/lib"
    prefix = Provider("prefix", "/opt/my rocm", (lib,), {name: (f"{lib}/{name}",) for name in there})
    with WheelArchive(make_wheel(tmp_path, {"demo/__init__.py": MODULE.encode()})) as archive:
        (found,) = python_call_findings(archive, prefix, rocm)
        assert (found.remedy, found.step) == (remedy, step)
        assert list(python_call_findings(archive, prefix, rocm, lambda _: True)) == []
        (other,) = python_call_findings(archive, prefix, rocm, lambda soname: "hip" in soname)
        assert other.message.startswith("loads libMIOpen.so.1 by name")
