"""Which kpack archive serves a GPU: relink and AMD's loader agree on generated sets of archives.

``$KPACK_SOURCE`` names checkouts of the loader (``shared/kpack`` of rocm-systems, or rocm-kpack), separated by ``:``; g++ makes
a library of each, with the options of ``$KPACK_CXXFLAGS`` (MessagePack for C++ and zstd are needed). Whether one takes the first
archive alone is seen by asking it. Compared were, in November 2026, rocm-kpack e3483286 (the first archive alone) and the same
with the search of rocm-systems 1ddbe7e9 (on to the next): ``RELINK_KPACK_SETS=20000``.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from relink.gpu.amd.device_code import DeviceCode, as_taken, resolve_kpack
from relink.gpu.amd.kpack import KpackReference
from relink.gpu.amd.target_id import configurations, match, table
from relink.gpu.coverage import TargetId
from tests.unit.gpu.amd.build import kpack_archive, msgpack

pytestmark = pytest.mark.real

SOURCES = [one for one in os.environ.get("KPACK_SOURCE", "").split(":") if one]
PATHS = (
    "../.kpack/t_@GFXARCH@.kpack",
    "../.kpack/all.kpack",
    "../.kpack/u_@GFXARCH@.kpack",
    "../.kpack/@GFXARCH@/t.kpack",
)
AGENTS = [
    agent for name in ("gfx90a", "gfx942", "gfx1010", "gfx1030") for agent in configurations(TargetId(name))
]
KERNELS = range(3)
PROCESSORS = ("gfx90a", "gfx90a", "gfx942", "gfx1010", "gfx1030", "gfx9-4-generic", "gfx10-3-generic")


class Loader:
    """AMD's loader, built from a checkout."""

    def __init__(self, source: str, directory: Path) -> None:
        top = next(Path(source).glob("**/runtime/src/loader.cpp")).parents[1]
        library = directory / "kpack.so"
        flags = os.environ.get("KPACK_CXXFLAGS", "").split()
        words = [
            "g++",
            "-std=c++17",
            "-O1",
            "-shared",
            "-fPIC",
            "-DMSGPACK_NO_BOOST",
            f"-I{top}/include",
            f"-I{top}/src",
        ]
        files = map(str, (top / "src").glob("*.cpp"))
        subprocess.run([*words, *flags, *files, "-o", library, "-l:libzstd.so.1"], check=True)
        self.library = ctypes.CDLL(str(library))

    def served(self, reference: KpackReference, path: Path, agents: list[TargetId]) -> list[list[bool]]:
        """Return for each agent which kernels it gets."""
        cache = ctypes.c_void_p()
        assert self.library.kpack_cache_create(ctypes.byref(cache)) == 0
        metadata = msgpack(
            {"kernel_name": reference.kernel_name, "kpack_search_paths": [*reference.search_paths]}
        )
        # The loader unpacks from 64 KiB of memory.
        held = ctypes.create_string_buffer(metadata, 65536)
        answers = []
        for agent in agents:
            asked = [agent, *(TargetId(one, agent.features) for one in _generic_of(agent.processor))]
            names = (ctypes.c_char_p * len(asked))(*(f"amdgcn-amd-amdhsa--{one}".encode() for one in asked))
            code, size = ctypes.c_void_p(), ctypes.c_size_t()
            row = []
            for kernel in reference.wrappers:
                one = (held, os.fsencode(path), ctypes.c_uint32(kernel), names, ctypes.c_size_t(len(asked)))
                found = (
                    self.library.kpack_load_code_object(cache, *one, ctypes.byref(code), ctypes.byref(size))
                    == 0
                )
                if found:
                    self.library.kpack_free_code_object(code)
                row.append(found)
            answers.append(row)
        self.library.kpack_cache_destroy(cache)
        return answers


def _generic_of(processor: str) -> list[str]:
    """The second name that CLR asks for (hip_fatbin.cpp, TargetToGeneric)."""
    return [name for name, one in table().generics.items() if processor in one.members]


def _target(chance: random.Random, processor: str) -> str:
    parts = [name + chance.choice("+-") for name in ("sramecc", "xnack") if chance.random() < 0.4]
    if chance.random() < 0.05:
        parts.reverse()
    return ":".join((processor, *parts))


def write_set(chance: random.Random, top: Path) -> KpackReference:
    """Write archives below `top`, and return what a library in lib/ says of them."""
    paths = chance.sample(PATHS, chance.randint(1, 3))
    for _ in range(chance.randint(1, 6)):
        processor = chance.choice(PROCESSORS)
        others = [processor] * 4 + [chance.choice(PROCESSORS)]
        near = [_target(chance, chance.choice(others)) for _ in range(chance.randint(1, 3))]
        name = chance.choice(near) if chance.random() < 0.8 else _target(chance, chance.choice(PROCESSORS))
        name = name.replace(":", "%3A") if chance.random() < 0.05 else name
        path = top / "lib" / chance.choice(PATHS).replace("@GFXARCH@", name)
        held = {f"k#{kernel}": chance.sample(near, chance.randint(0, len(near))) for kernel in KERNELS}
        listed = [one for one in near if chance.random() < 0.95]
        path.parent.mkdir(parents=True, exist_ok=True)
        blobs = [{"offset": 16, "size": 10}] * 3
        path.write_bytes(kpack_archive(held, listed, blobs=blobs))
    return KpackReference("k", tuple(paths), tuple(KERNELS))


def differences(loader: Loader, top: Path, seed: int, count: int) -> list[str]:
    """Return what relink and the loader say differently of `count` sets of archives."""
    chance, library = random.Random(seed), top / "lib/a.so"
    overlay = {"t_gfx90a.kpack": ["gfx90a"], "t_gfx90a:xnack-.kpack": []}
    (top / ".kpack").mkdir(parents=True)
    (top / "lib").mkdir()
    for name, held in overlay.items():
        data = kpack_archive({"k#0": held}, [name[2:-6]], blobs=[{"offset": 16, "size": 10}])
        (top / ".kpack" / name).write_bytes(data)
    reference = KpackReference("k", PATHS[:1], (0,))
    ((through,),) = loader.served(
        reference, library, [TargetId("gfx90a", (("sramecc", True), ("xnack", False)))]
    )
    hip = None if through else (7, 14)
    found = []
    for number in range(count):
        shutil.rmtree(top / ".kpack")
        (top / ".kpack").mkdir()
        reference = write_set(chance, top)
        code = as_taken(resolve_kpack(DeviceCode(str(library), "elf", kpack=reference)), hip)
        theirs = loader.served(reference, library, AGENTS)
        ours = [[bool(match(one.targets, agent).served) for one in code.bundles] for agent in AGENTS]
        if ours != theirs:
            found.append(f"set {number} of seed {seed}, HIP {hip}: {ours} is not {theirs}")
    return found


@pytest.mark.skipif(not SOURCES, reason="KPACK_SOURCE names no checkout of AMD's loader")
@pytest.mark.parametrize("source", SOURCES)
def test_archives_serve_the_targets_that_amds_loader_says(source: str, tmp_path: Path) -> None:
    loader = Loader(source, tmp_path)
    assert differences(loader, tmp_path / "sets", 1, int(os.environ.get("RELINK_KPACK_SETS", "300"))) == []
