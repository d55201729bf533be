"""Picks: the ways in which packages choose one of their libraries by the GPU that torch is built for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from relink.python.events import Event
from relink.python.facts_cache import FactsCache
from relink.python.picks import Pick, read_pick
from relink.python.process import PythonProcesses
from tests.support.python_processes import python_of, write_files

HIP = "__version__ = '2.10.0+rocm7.14.0'\ncuda = None\nhip: str = '7.14.60850'\n"
CUDA = "__version__ = '2.10.0+cu128'\ncuda = '12.8'\nhip = None\n"

BITSANDBYTES_0_49 = """
import ctypes as ct, dataclasses
from pathlib import Path
import torch
HERE = Path(__file__).parent
@dataclasses.dataclass(frozen=True)
class Specs:
    capability: tuple[int, int]
    text: str
def version_tuple():
    version = torch.version.cuda or torch.version.hip
    return tuple(map(int, version.split(".")[:2])) if version else None
def specs():
    if not torch.cuda.is_available():
        return None
    each = sorted(torch.cuda.get_device_capability(torch.cuda.device(i)) for i in range(torch.cuda.device_count()))
    major, minor = version_tuple()
    return Specs(capability=each[-1], text=f"{major * 10 + minor}")
def library():
    found, path = specs(), HERE / "libown_cpu.so"
    if found:
        path = HERE / f"libown_{'rocm' if torch.version.hip else 'cuda'}{found.text}.so"
        if not path.exists():
            raise RuntimeError("no such binary")
    return ct.cdll.LoadLibrary(str(path))
try:
    lib = library()
except Exception:
    lib = None
"""
BY_GLOB = """
import ctypes, re, torch
from pathlib import Path
HERE = Path(__file__).parent
def split(text):
    return int(text[:1]), int(text[1:])
def find(prefix):
    found = {}
    for one in HERE.glob(f"libown_{prefix}*.so"):
        if match := re.search(rf"{prefix}(\\d+)", one.name):
            found[split(match.group(1))] = one
    return found
def best():
    there, wanted = find("rocm" if torch.version.hip else "cuda"), tuple(map(int, torch.version.hip.split(".")[:2]))
    if wanted in there:
        return there[wanted]
    lower = [one for one in there if one[0] == wanted[0] and one < wanted]
    return there[max(lower)]
ctypes.CDLL(str(best()))
"""
BY_MODULE = """
import importlib, torch
def load():
    major, minor = torch.version.hip.split(".")[:2]
    return importlib.import_module(f"own._C_rocm{int(major)}{int(minor):02d}")
load()
"""
BY_TRY = """
import torch
if torch.version.hip:
    try:
        from . import _hip_C as native
    except ImportError:
        native = None
else:
    from . import _cuda_C as native
"""
LATER = """
import functools, os, ctypes, torch
@functools.lru_cache(maxsize=None)
def library(kind=None):
    name = "rocm" if "rocm" in torch.__version__ else "cuda"
    return ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), f"libown_{name}.so"))
"""
BY_LIST = """
import os, torch
HERE = os.path.dirname(__file__)
for release in ("715", "714", "72"):
    place = os.path.join(HERE, f"libown_rocm{release}.so")
    if os.path.isfile(place):
        torch.ops.load_library(place)
        break
"""
BY_COMPILED = """
import ctypes, os, re, torch
HERE, RELEASE = os.path.dirname(__file__), re.compile(r"^libown_rocm(\\d+)\\.so$")
names = [name for name in sorted(os.listdir(HERE)) if RELEASE.match(name)]
ctypes.CDLL(os.path.join(HERE, names[-1]))
"""

BY_DICTIONARY = """
import ctypes, re, torch
from pathlib import Path
HERE = Path(__file__).parent
THERE = {tuple(map(int, re.search(r"rocm(\\d)(\\d+)", one.name).groups())): one for one in HERE.glob("libown_rocm*.so")}
ctypes.CDLL(str(THERE[tuple(int(part) for part in torch.version.hip.split(".")[:2])]))
"""
BY_LABEL = """
import ctypes, torch
from pathlib import Path
from packaging.version import Version
class Loader:
    ROOT = Path(__file__).parent
    @property
    def name(self):
        release = Version(Version(torch.__version__).local.removeprefix("rocm"))
        return f"libown_rocm{release.major}{release.minor}.so"
    def load(self):
        path = self.ROOT / self.name
        if not path.is_file():
            raise OSError(path)
        return ctypes.CDLL(str(path))
Loader().load()
"""


def pick(site: Path, source: str, version: str | None, *libraries: str) -> Pick | None:
    files: dict[str, str | bytes] = {"own/__init__.py": source, **{f"own/{name}": "" for name in libraries}}
    write_files(
        site, files if version is None else {**files, "torch/__init__.py": "", "torch/version.py": version}
    )
    processes = PythonProcesses(python_of(site), cache=FactsCache(None), variables={})
    return read_pick(processes, ["own"], ["hip", "cuda"])


def names(events: Sequence[Event], site: Path) -> list[str]:
    return [event.name.removeprefix(f"{site}/own/") for event in events]


@pytest.mark.parametrize(
    ("source", "version", "libraries", "opened", "sought"),
    [
        (BITSANDBYTES_0_49, HIP, ["libown_rocm72.so"], [], ["libown_rocm84.so"]),
        (BITSANDBYTES_0_49, HIP.replace("7.14.", "7.2."), ["libown_rocm72.so"], ["libown_rocm72.so"], []),
        (BITSANDBYTES_0_49, CUDA, ["libown_cuda128.so"], ["libown_cuda128.so"], []),
        (BITSANDBYTES_0_49, "hip = None\n", ["libown_cpu.so"], ["libown_cpu.so"], []),
        (BY_GLOB, HIP, ["libown_rocm72.so", "libown_rocm714.so"], ["libown_rocm714.so"], []),
        (BY_GLOB, HIP, ["libown_rocm72.so", "libown_rocm71.so"], ["libown_rocm72.so"], []),
        (BY_MODULE, HIP, ["_C_rocm702.abi3.so"], [], ["_C_rocm714"]),
        (BY_MODULE, HIP.replace("7.14.", "7.2."), ["_C_rocm702.abi3.so"], ["_C_rocm702.abi3.so"], []),
        (BY_TRY, HIP, ["_cuda_C.abi3.so"], [], ["_hip_C"]),
        (BY_TRY, CUDA, ["_cuda_C.abi3.so"], ["_cuda_C.abi3.so"], []),
        (LATER, HIP, ["libown_cuda.so"], [], ["libown_rocm.so"]),
        (LATER, CUDA, ["libown_cuda.so"], ["libown_cuda.so"], []),
        (
            BY_LIST,
            HIP,
            ["libown_rocm72.so"],
            ["libown_rocm72.so"],
            ["libown_rocm715.so", "libown_rocm714.so"],
        ),
        (BY_DICTIONARY, HIP, ["libown_rocm714.so", "libown_rocm72.so"], ["libown_rocm714.so"], []),
        (BY_LABEL, HIP, ["libown_rocm72.so"], [], ["libown_rocm714.so"]),
        (BY_LABEL, HIP, ["libown_rocm714.so"], ["libown_rocm714.so"], []),
        (BY_COMPILED, HIP, ["libown_rocm71.so", "libown_rocm72.so"], ["libown_rocm72.so"], []),
    ],
)
def test_what_is_picked(
    tmp_path: Path, source: str, version: str, libraries: list[str], opened: list[str], sought: list[str]
) -> None:
    site = tmp_path / "site"
    found = pick(site, source, version, *libraries)
    assert found is not None
    assert names(found.opened, site) == opened
    assert names(found.sought, site) == sought
    assert all(event.when in ("certain", "guarded") for event in (*found.opened, *found.sought))


def test_without_torch_nothing_is_said(tmp_path: Path) -> None:
    assert pick(tmp_path, BITSANDBYTES_0_49, None, "libown_cpu.so") is None


def test_a_version_that_is_no_source(tmp_path: Path) -> None:
    write_files(tmp_path, {"torch/__init__.py": "", "torch/version.so": "", "own/__init__.py": ""})
    processes = PythonProcesses(python_of(tmp_path), cache=FactsCache(None), variables={})
    assert read_pick(processes, ["own"], ["hip"]) is None


def test_other_packages_are_not_followed(tmp_path: Path) -> None:
    """They count as there, and what they open is not the package's."""
    write_files(tmp_path, {"other.py": "import ctypes\nctypes.CDLL('libother.so')\n"})
    found = pick(tmp_path, "import other, numpy\n" + LATER, CUDA, "libown_cuda.so")
    assert found is not None
    assert names(found.opened, tmp_path) == ["libown_cuda.so"]
