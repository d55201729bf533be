"""checks.python_calls: libraries that Python code loads by a bare soname."""

from __future__ import annotations

from pathlib import Path

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
