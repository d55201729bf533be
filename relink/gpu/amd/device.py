"""The GPUs of this machine, from the kernel's KFD topology, without any ROCm tool; and what ``relink doctor`` asks.

Rules: libhsakmt topology.c and hsakmttypes.h, LLVM AMDGPUArchByKFD.cpp, rocm_agent_enumerator.
All functions take the root of the file system, so that a recorded tree can be read.
"""

from __future__ import annotations

import grp
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from relink.gpu.amd.target_id import processor_for, table
from relink.gpu.coverage import RequestedGpu, TargetId
from relink.system.errors import UsageError
from relink.system.safe_open import read_start
from relink.system.text import group_pairs

_OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
_TOPOLOGY = ("sys/class/kfd/kfd/topology/nodes", "sys/devices/virtual/kfd/kfd/topology/nodes")
# What Docker, and Podman, put into a container.
_CONTAINER = (".dockerenv", "run/.containerenv")
# HSA_CAP_SRAM_EDCSUPPORTED of Linux' kfd_sysfs.h.
_SRAM_EDC = 1 << 26
HARMLESS = {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HSA_XNACK"}
"""Variables that choose among GPUs and change no code."""
EFFECTS = {
    _OVERRIDE: "GPUs pass for another architecture, for every library of a process",
    "HIP_USE_RUNTIME_UNBUNDLER": "HIP unbundles by itself, which fails on compressed bundles: unset it",
    "LD_LIBRARY_PATH": "comes before the RUNPATH of every wheel: libraries may be taken from there",
    "ROCBLAS_TENSILE_LIBPATH": "rocBLAS takes its kernels from there and aborts if they are of another version",
    "HIPBLASLT_TENSILE_LIBPATH": "hipBLASLt takes its kernels from there",
    "ROCM_KPACK_PATH": "kpack archives are taken from there",
    "ROCM_KPACK_PATH_PREFIX": "kpack archives are looked for there first",
    "ROCM_KPACK_DISABLE": "code in kpack archives is not loaded",
    "HIP_VISIBLE_DEVICES": "HIP sees only these devices",
    "ROCR_VISIBLE_DEVICES": "the HSA runtime sees only these devices",
    "HSA_XNACK": "xnack is forced on or off",
}
"""Variable → what it changes; numbered ones of the first begin with its name."""


class Gpu(msgspec.Struct, frozen=True):
    """One GPU node.

    :ivar node: its number in KFD's topology, CPU nodes counted.
    :ivar target: processor and sramecc; xnack is not in sysfs and stays unnamed.
    :ivar physical: what the hardware is, where HSA_OVERRIDE_GFX_VERSION makes it pass for another.
    """

    node: int
    target: TargetId
    physical: TargetId
    products: tuple[str, ...] = ()

    @property
    def overridden(self) -> bool:
        """Whether an override is in force."""
        return self.target.processor != self.physical.processor

    def to_json(self) -> dict[str, Any]:
        """Return the report's ``isa.gpus[]``."""
        return {
            "node": self.node,
            "target": str(self.target),
            "physical": str(self.physical),
            "products": list(self.products),
            "xnack": "unknown" if self.target.feature("xnack") is None else self.target.feature("xnack"),
        }


class Devices(msgspec.Struct, frozen=True):
    """`present` is False without a KFD topology: no amdgpu driver, or a container that does not show it."""

    gpus: tuple[Gpu, ...]
    present: bool
    problems: tuple[str, ...] = ()


class NodeAccess(msgspec.Struct, frozen=True):
    """A device node: there, accessible for reading and writing, and the group that would give access."""

    path: str
    exists: bool
    accessible: bool
    group: str = ""
    member: bool = False


class Doctor(msgspec.Struct, frozen=True):
    """Facts about the machine and the environment; nothing is judged here.

    :ivar missing_groups: groups that this user lacks and that would open a node he cannot open now.
    :ivar environment: the variables that change what ROCm loads, with their values.
    """

    devices: Devices
    nodes: tuple[NodeAccess, ...]
    missing_groups: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Return all facts."""
        return {
            "gpus": [gpu.to_json() for gpu in self.devices.gpus],
            "kfd": self.devices.present,
            "nodes": [
                {"path": n.path, "exists": n.exists, "accessible": n.accessible, "group": n.group}
                for n in self.nodes
            ],
            "missing_groups": list(self.missing_groups),
            "environment": dict(self.environment),
            "problems": list(self.devices.problems),
        }


def decode_version(number: int) -> str | None:
    """Return the processor of KFD's gfx_target_version (100300 → gfx1030, 90010 → gfx90a), None for 0, a CPU."""
    major, minor, step = number // 10000 % 100, number // 100 % 100, number % 100
    return f"gfx{major}{minor:x}{step:x}" if number > 0 and major else None


def find_gpus(root: str | os.PathLike[str] = "/", environment: Mapping[str, str] | None = None) -> Devices:
    """Return the GPUs in the order of their nodes; HSA_OVERRIDE_GFX_VERSION of `environment` is applied afterwards."""
    nodes = next((p for p in (Path(root, name) for name in _TOPOLOGY) if p.is_dir()), None)
    if nodes is None:
        reason = "no amdgpu driver here, or a container that hides it"
        if is_wsl(root):
            reason = "/dev/dxg is there, so this is WSL: the driver of the GPU is that of Windows, and says nothing of it here"
        elif any(Path(root, name).exists() for name in _CONTAINER):
            reason = (
                "this is a container, and its host has no amdgpu driver or does not show it; /dev/kfd and /dev/dri "
                "have to be given to it (--device /dev/kfd --device /dev/dri)"
            )
        return Devices((), False, (f"no KFD topology: {reason}; name a GPU",))
    problems: list[str] = []
    gpus: list[Gpu] = []
    try:
        names = [name for name in os.listdir(nodes) if name.isascii() and name.isdigit()]
    except OSError as error:
        return Devices((), True, (f"{nodes} cannot be read: {error.strerror}",))
    for number in sorted(int(name) for name in names[:4096]):
        try:
            text = read_start(nodes / str(number) / "properties", 65536).decode("ascii", "replace")
        except OSError as error:  # nodes that a container may not see
            problems.append(f"KFD node {number} cannot be read: {error.strerror}")
            continue
        values = {key: int(value) for key, value in re.findall(r"^(\w+) (\d{1,20})\s*$", text, re.MULTILINE)}
        name = decode_version(values.get("gfx_target_version", 0))
        if name is None:
            if values.get("simd_count"):
                problems.append(
                    f"KFD node {number} is a GPU without gfx_target_version: this kernel is too old"
                )
            continue
        target = TargetId(name)
        if "sramecc" in (table().features(name) or ()) and "capability" in values:
            target = target.with_features(sramecc=bool(values["capability"] & _SRAM_EDC))
        gpus.append(Gpu(number, target, target, table().products(name)))
    return apply_override(Devices(tuple(gpus), True, tuple(problems)), environment or {})


def is_wsl(root: str | os.PathLike[str] = "/") -> bool:
    """Whether the driver of the GPU is that of Windows."""
    return Path(root, "dev/dxg").exists()


def apply_override(devices: Devices, environment: Mapping[str, str]) -> Devices:
    """Apply HSA_OVERRIDE_GFX_VERSION_<node> and HSA_OVERRIDE_GFX_VERSION, as libhsakmt does; all parts are decimal."""
    gpus, problems = [], list(devices.problems)
    for gpu in devices.gpus:
        name = f"{_OVERRIDE}_{gpu.node}"
        name = name if name in environment else _OVERRIDE
        value = environment.get(name)
        if value is None:
            gpus.append(gpu)
            continue
        match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})", value)
        major, minor, step = map(int, match.groups()) if match else (-1, 0, 0)
        if not 0 <= major <= 63 or minor > 255 or step > 255:
            problems.append(f"{name}={value!r} is not major.minor.stepping: the HSA runtime fails on it")
            gpus.append(gpu)
            continue
        processor = f"gfx{major}{minor:x}{step:x}"
        features = table().features(processor) or ()
        sramecc = gpu.physical.feature("sramecc") if "sramecc" in features else None
        gpus.append(replace(gpu, target=TargetId(processor).with_features(sramecc=sramecc)))
    return replace(devices, gpus=tuple(gpus), problems=tuple(problems))


def doctor(root: str | os.PathLike[str] = "/", environment: Mapping[str, str] | None = None) -> Doctor:
    """Collect the facts. `environment` is that of this process unless given."""
    environment = os.environ if environment is None else environment
    mine = frozenset({os.getegid(), *os.getgroups()})
    devices = find_gpus(root, environment)
    render = Path(root, "dev", "dri")
    try:
        names = sorted(n for n in os.listdir(render) if re.fullmatch(r"renderD\d+", n))
    except OSError:
        names = []
    paths = [Path(root, "dev", "kfd"), *(render / name for name in names)]
    nodes = [_access(path, mine) for path in paths]
    if not names:
        nodes.append(NodeAccess(os.fspath(render / "renderD*"), exists=False, accessible=False))
    missing = {n.group for n in nodes if n.exists and not n.accessible and n.group and not n.member}
    hazards = [(k, v) for k, v in sorted(environment.items()) if k in EFFECTS or k.startswith(_OVERRIDE)]
    return Doctor(devices, tuple(nodes), tuple(sorted(missing)), tuple(hazards))


def _access(path: Path, groups: frozenset[int]) -> NodeAccess:
    try:
        info = path.stat()
    except OSError:
        return NodeAccess(os.fspath(path), exists=False, accessible=False)
    try:
        group = grp.getgrgid(info.st_gid).gr_name
    except KeyError:
        group = str(info.st_gid)
    opens = bool(info.st_mode & stat.S_IRGRP and info.st_mode & stat.S_IWGRP)
    accessible = os.access(path, os.R_OK | os.W_OK)
    return NodeAccess(os.fspath(path), True, accessible, group if opens else "", info.st_gid in groups)


def parse_gpu(text: str, environment: Mapping[str, str]) -> RequestedGpu | None:
    """Return the GPU that a text of ``--gpu`` names, ``gfx1031`` or ``RX 6750 XT``; None where the table has no such GPU.

    The GPU passes for another where HSA_OVERRIDE_GFX_VERSION of `environment` has the value that is known for it. The GPU may
    be of another machine, so other values say nothing about it.
    """
    try:
        target = processor_for(text)
    except UsageError:
        return None
    if table().features(target.processor) is None:
        # The table has LLVM's processors, those of no GPU yet among them: a name beside it is misspelled.
        return None
    products = table().products(target.processor)
    override = environment.get(_OVERRIDE)
    for row in table().workarounds:
        if row.override == override and target.processor in row.processors:
            return RequestedGpu(
                TargetId(row.stands_in),
                products=products,
                physical=target.processor,
                vendor="rocm",
                overridden_by=_OVERRIDE,
            )
    name = "" if text.strip().lower() == str(target) else text.strip()
    return RequestedGpu(target, name, products, vendor="rocm")


def find_local(root: str, environment: Mapping[str, str]) -> tuple[tuple[RequestedGpu, ...], tuple[str, ...]]:
    """Return the GPUs of this machine, each architecture once, as nobody has asked for them, and why there are none.

    HSA_OVERRIDE_GFX_VERSION of `environment` is in force.
    """
    devices = find_gpus(root, environment)
    found: dict[TargetId, RequestedGpu] = {}
    # HIP counts them in the order of their nodes.
    numbers = group_pairs((gpu.target, number) for number, gpu in enumerate(devices.gpus))
    for gpu in devices.gpus:
        found.setdefault(
            gpu.target,
            RequestedGpu(
                gpu.target,
                products=table().products(gpu.physical.processor),
                local=True,
                physical=gpu.physical.processor if gpu.overridden else "",
                asked=False,
                vendor="rocm",
                overridden_by=_OVERRIDE,
                numbers=tuple(numbers[gpu.target]),
            ),
        )
    return tuple(found.values()), devices.problems or ("KFD lists no GPU",)
