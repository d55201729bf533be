"""What device code asks of a HIP runtime, compared with what the runtime can do.

Takes the device code of files and a :class:`~relink.gpu.amd.runtime.Capability`; gives one :class:`Requirement` for each
capability that the code needs. What a GPU needs follows CLR's order of selection (hip_fatbin.cpp): native code, then generic
code, then SPIR-V.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from relink.gpu.amd.device_code import DeviceCode
from relink.gpu.amd.isa_table import table
from relink.gpu.amd.runtime import Capability
from relink.gpu.amd.target_id import SPIRV, match
from relink.gpu.coverage import TargetId


@dataclass(frozen=True, slots=True)
class DeviceCodeNeeds:
    """What device code asks of the runtime: newest CCOB and code object version (0: none), and the special forms."""

    ccob: int = 0
    code_object: int = 0
    generic: bool = False
    spirv: bool = False
    kpack: bool = False
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Requirement:
    """One comparison: `verdict` is ok, no or unknown."""

    what: str
    needed: str
    available: str
    verdict: str

    def to_json(self) -> dict[str, str]:
        """Return the fields."""
        return asdict(self)


def needs_of(codes: Iterable[DeviceCode], gpus: Iterable[TargetId] = ()) -> DeviceCodeNeeds:
    """Return what the runtime must be able to do to load this device code: on `gpus`, or all of it without any.

    A GPU takes native code before generic code before SPIR-V, so a bundle with both does not need the latter.
    """
    codes, gpus = tuple(codes), tuple(gpus)
    bundles = [bundle for code in codes for bundle in (*code.bundles, *code.embedded)]
    versions = [int(b.container[-1]) for b in bundles if b.container.startswith("ccob-v")]
    sets = {b.targets for b in bundles}
    if gpus:
        kinds = {kind for targets in sets for gpu in gpus for kind in match(targets, gpu).via}
    else:
        names = {t.target.processor for targets in sets for t in targets}
        kinds = {
            "spirv" if name == SPIRV else "generic"
            for name in names
            if name == SPIRV or name in table().generics
        }
    return DeviceCodeNeeds(
        ccob=max(versions, default=0),
        code_object=max((c.version for code in codes for c in code.code_objects if c.version), default=0),
        generic="generic" in kinds,
        spirv="spirv" in kinds,
        kpack=any(code.kpack is not None for code in codes),
        gpus=tuple(gpu.processor for gpu in gpus),
    )


def check(needs: DeviceCodeNeeds, has: Capability) -> tuple[Requirement, ...]:
    """Compare. Only what the code really needs is listed; an unknown capability is never ok."""
    found = []

    def compare(what: str, needed: int, available: int | None) -> None:
        if needed:
            verdict = "unknown" if available is None else "ok" if available >= needed else "no"
            shown = "unknown" if available is None else f"up to {available}" if available else "none"
            found.append(Requirement(what, f"version {needed}", shown, verdict))

    def flag(what: str, available: bool | None) -> None:
        verdict = {None: "unknown", True: "ok", False: "no"}[available]
        found.append(
            Requirement(what, "yes", {None: "unknown", True: "yes", False: "no"}[available], verdict)
        )

    compare("compressed bundles (CCOB)", needs.ccob, has.ccob)
    compare("code objects", needs.code_object, has.code_object)
    if needs.generic:
        flag("generic targets", has.generic)
    if needs.spirv:
        flag("SPIR-V code", has.spirv)
    if needs.kpack:
        flag("kpack archives", has.kpack)
    for processor in dict.fromkeys(needs.gpus):
        flag(f"{processor} in the HSA runtime", processor in has.agents if has.agents else None)
    return tuple(found)
