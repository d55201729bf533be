"""A second vendor, made up: libraries, a place, GPU code with a reader, and a probe of the machine of its own."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relink.elf.source import ByteSource, FileSource
from relink.gpu.coverage import CoverageLevel, GpuPlan, Group, Intersection, RequestedGpu, Survey, TargetId
from relink.loader.target import Target
from relink.providers.prefix import Provider
from relink.system.findings.model import finding
from relink.vendors.protocol import (
    Diagnosis,
    GpuQuestion,
    Gpus,
    Libraries,
    Place,
    Places,
    Release,
    Vendor,
)
from relink.wheel.archive import WheelArchive

__all__ = ["ACME", "acme_code"]

_CODE = re.compile(rb"ACMECODE:([a-z0-9,]+);")
_GPU = re.compile(r"sm\d+")


def acme_code(*targets: str) -> str:
    """Return C source that puts code for these GPUs into a library."""
    return f'const char acme_code[] __attribute__((used)) = "ACMECODE:{",".join(targets)};";'


@dataclass(frozen=True)
class AcmeCode:
    """The code of one file, and which GPUs it covers."""

    path: str
    targets: tuple[str, ...]
    vendor: str = "acme"
    in_archives: bool = False
    problems: tuple[str, ...] = ()

    @property
    def present(self) -> bool:
        return bool(self.targets)

    @property
    def restricts(self) -> bool:
        return self.present

    @property
    def summary(self) -> str:
        return f"{len(self.targets)} ACME kernels"

    @property
    def is_jit(self) -> bool:
        return False

    def level(self, agent: TargetId) -> CoverageLevel:
        return CoverageLevel("full" if agent.processor in self.targets else "none")

    def processors(self) -> tuple[str, ...]:
        return self.targets

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "targets": list(self.targets)}


def _survey(path: Path, kind: str, items: tuple[AcmeCode, ...]) -> Survey:
    named = {name for item in items for name in item.targets}
    common = tuple(name for name in sorted(named) if all(name in item.targets for item in items))
    groups = (Group("", items, Intersection(common, (), {})),)
    return Survey("acme", str(path), kind, items, groups, TargetId("sm80"), read=len(items))


def read_code(source: ByteSource, path: str) -> AcmeCode:
    found = _CODE.search(bytes(source.read_at(0, source.size)))
    return AcmeCode(path, tuple(found[1].decode().split(",")) if found else ())


def survey(path: Path, _variants: Sequence[str], _limit: int) -> Survey:
    if path.suffix != ".whl":
        with FileSource(path) as source:
            found = [read_code(source, str(path))]
        return _survey(path, "file", tuple(code for code in found if code.present))
    with WheelArchive(path) as archive:
        contents = [
            (name, _CODE.search(archive.read(name))) for name in archive.members if name.endswith(".so")
        ]
    items = [AcmeCode(name, tuple(found[1].decode().split(","))) for name, found in contents if found]
    return _survey(path, "wheel", tuple(items))


def check(question: GpuQuestion) -> GpuPlan:
    codes = [code for code in question.codes.values() if isinstance(code, AcmeCode)]
    missing = [
        finding("RLK401", str(gpu.target), f"{code.path} has no code for {gpu}")
        for gpu in question.gpus
        for code in codes
        if not code.level(gpu.target).usable
    ]
    return GpuPlan({"targets": sorted({name for code in codes for name in code.targets})}, tuple(missing))


def parse(text: str, _environment: Mapping[str, str]) -> RequestedGpu | None:
    name = "sm90" if text == "ACME One" else text
    return RequestedGpu(TargetId(name), vendor="acme") if _GPU.fullmatch(name) else None


def find_local(root: str, _: Mapping[str, str]) -> tuple[Sequence[RequestedGpu], Sequence[str]]:
    probe = Path(root, "sys/acme/gpus")
    names = probe.read_text().split() if probe.is_file() else []
    gpus = [RequestedGpu(TargetId(name), local=True, asked=False, vendor="acme") for name in names]
    return gpus, () if gpus else ("no ACME driver",)


def diagnose(providers: Sequence[Provider], root: str, environment: Mapping[str, str]) -> Diagnosis:
    gpus = [str(gpu.target) for gpu in find_local(root, environment)[0]]
    return Diagnosis(
        facts={"gpus": gpus},
        prefixes=tuple({"path": provider.path, "release": "3.1"} for provider in providers),
        rows=tuple((f"ACME GPU {name}", "") for name in gpus),
        prefix_rows=tuple((provider.path, "ACME 3.1", ()) for provider in providers),
    )


def is_own(soname: str) -> bool:
    return soname.startswith("libacme")


def release_of(provider: Provider, _: str) -> Release | None:
    return Release("3.1", "libacme.so.3", "acme3.1") if provider.find("libacme.so.3") else None


def choose(
    _target: Target, environment: Mapping[str, str], _own: bool, _sonames: Collection[str]
) -> Place | None:
    return Place(environment["ACME_PATH"], "ACME_PATH") if "ACME_PATH" in environment else None


ACME = Vendor(
    name="acme",
    product="ACME",
    libraries=Libraries(
        runtime="libacme.so", runtime_name="ACME runtime", has=is_own, is_own=is_own, release_of=release_of
    ),
    places=Places(variable="ACME_PATH", choose=choose),
    gpus=Gpus(
        examples=("sm90", "ACME One"),
        read_code=read_code,
        parse=parse,
        find_local=find_local,
        check=check,
        survey=survey,
        diagnose=diagnose,
    ),
)
