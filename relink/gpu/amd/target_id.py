"""Target ids (``gfx90a:sramecc+:xnack-``), bundle entry ids, and which code runs on which GPU.

The table of architectures (``isa.toml``) is read once. Installed, the table lies in ``relink/_profiles/rocm/``; in a source tree
in ``profiles/rocm/`` beside the package.

Rules: AMDGPUUsage "Target ID", ClangOffloadBundler "Bundle Entry ID", OffloadBundler.cpp
(isCodeObjectCompatible), ROCr isa.cpp (Isa::IsCompatible), CLR hip_fatbin.cpp (order of selection).
"""

from __future__ import annotations

import functools
import itertools
import re
import tomllib
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from relink.gpu.coverage import TargetId
from relink.system.errors import RelinkError, UsageError
from relink.system.shipped_files import shipped_directory


class Processor(msgspec.Struct, frozen=True):
    """One GPU processor: its ELF machine number, the features its target id may name, and product names."""

    name: str
    mach: int
    features: tuple[str, ...] = ()
    products: tuple[str, ...] = ()


class Generic(msgspec.Struct, frozen=True):
    """One generic target and its members: processor → generic version in which it joined.

    :ivar unmapped: processors that its code is compiled for, though no released runtime takes it for them.
    """

    name: str
    mach: int
    features: tuple[str, ...]
    members: dict[str, int]
    unmapped: tuple[str, ...] = ()


class Workaround(msgspec.Struct, frozen=True):
    """A value of HSA_OVERRIDE_GFX_VERSION that makes the runtime treat `processors` as `stands_in`.

    :ivar patched: the HIP runtime of some distributions takes such code by itself.
    """

    override: str
    stands_in: str
    processors: tuple[str, ...]
    source: str
    patched: bool = False


class LibraryRole(msgspec.Struct, frozen=True):
    """What a ROCm library does on an architecture that it has no kernels for.

    :ivar stem: its file name up to ``.so``.
    :ivar missing: abort, error, or jit (it compiles them on first use).
    :ivar side: the kind of kernel files beside it (:mod:`relink.gpu.amd.side_files`), None where it uses none.
    :ivar optional: its callers can do without it.
    """

    name: str
    stem: str
    missing: str
    side: str | None = None
    optional: bool = False


class IsaTable(msgspec.Struct, frozen=True):
    """Everything of ``isa.toml``, with the look-ups that the rest of the package needs.

    :ivar runtimes: a HIP version (major, minor), and the newest code object version that loads from it on.
    :ivar falls_through: the HIP from which on the loader of kpack archives goes on to the next where one lacks a kernel.
    """

    processors: dict[str, Processor]
    generics: dict[str, Generic]
    workarounds: tuple[Workaround, ...]
    libraries: tuple[LibraryRole, ...]
    runtimes: tuple[tuple[tuple[int, int], int], ...]
    machines: dict[int, str] = msgspec.field(default_factory=dict)
    families: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    falls_through: tuple[int, int] = (0, 0)

    def features(self, processor: str) -> tuple[str, ...] | None:
        """Return the features that `processor` (or a generic) has, None when it is unknown."""
        known = self.processors.get(processor) or self.generics.get(processor)
        return None if known is None else known.features

    def products(self, processor: str) -> tuple[str, ...]:
        """Return the names under which a processor is sold."""
        known = self.processors.get(processor)
        return known.products if known else ()

    def stand_in(self, processor: str) -> str | None:
        """Return the processor whose code a patched HIP runtime also takes for `processor`, or None."""
        rows = (row for row in self.workarounds if row.patched and processor in row.processors)
        return next((row.stands_in for row in rows), None)

    def families_of(self, processor: str) -> tuple[str, ...]:
        """Return the families that packages with device code of a processor may be named for, the narrowest first."""
        found = [family for family, starts in self.families.items() if processor.startswith(starts)]
        return tuple(sorted(found, key=lambda family: (len(self.families[family]), family)))

    def library(self, soname: str) -> LibraryRole | None:
        """Return the role of the library with this file name or soname (``librocblas.so.5``)."""
        stem = soname.partition(".so")[0]
        return next((role for role in self.libraries if role.stem == stem), None)


def load_table(data: dict[str, Any]) -> IsaTable:
    """Make a :class:`IsaTable` from the parsed TOML.

    :raises RelinkError: a key is missing or a machine number is named twice.
    """
    try:
        # Keys that are no fields say where a row is from.
        processors = {
            row["name"]: msgspec.convert(row | {"features": sorted(row.get("features", ()))}, Processor)
            for row in data["processors"]["table"]
        }
        joined = data["generics"]["joined"]
        generics = {
            row["name"]: msgspec.convert(
                row
                | {
                    "features": sorted(row.get("features", ())),
                    "members": {one: row.get("joined", {}).get(one, joined) for one in row["members"]},
                },
                Generic,
            )
            for row in data["generics"]["table"]
        }
        workarounds = msgspec.convert(
            [row | {"source": data["sources"][row["source"]]} for row in data["workarounds"]],
            tuple[Workaround, ...],
        )
        libraries = msgspec.convert(data["libraries"], tuple[LibraryRole, ...])
        rows = {key: row for key, row in data.get("device_families", {}).items() if key != "source"}
        families = {family: tuple(starts) for family, starts in rows.items()}
        runtimes = tuple(
            ((int(major), int(minor)), row["code_object"])
            for row in data["runtimes"]
            for major, minor in [row["hip"].split(".")]
        )
        major, minor = data["kpack"]["falls_through"].split(".")
        falls_through = (int(major), int(minor))
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise RelinkError(f"isa.toml: {error!r} is missing or malformed; reinstall relink") from error
    machines = {p.mach: p.name for p in processors.values()} | {g.mach: g.name for g in generics.values()}
    if len(machines) != len(processors) + len(generics):
        raise RelinkError("isa.toml: a machine number is named twice; reinstall relink")
    return IsaTable(processors, generics, workarounds, libraries, runtimes, machines, families, falls_through)


@functools.cache
def table() -> IsaTable:
    """Return the table shipped with relink.

    :raises RelinkError: the file is absent or damaged.
    """
    return load_table(
        tomllib.loads((shipped_directory("profiles") / "rocm/isa.toml").read_text(encoding="utf-8"))
    )


SPIRV = "amdgcnspirv"
HIP_KINDS = frozenset({"hip", "hipv4", "hcc"})
_ISA = "amdgcn-amd-amdhsa--"
_SPIRV_ISAS = frozenset({f"spirv64-amd-amdhsa--{SPIRV}", f"spirv64-amd-amdhsa-unknown-{SPIRV}"})
_PROCESSOR = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*\Z")
_FEATURE = re.compile(r"([a-z][a-z0-9]*)([+-])\Z")
_MAX_PROCESSORS = 256
_NUMBERED = re.compile(r"gfx(\d{1,9})([0-9a-f])([0-9a-f])\Z")
_GENERIC = re.compile(r"gfx(\d{1,9})(?:-(\d{1,9}))?-generic\Z")


class CodeTarget(NamedTuple):
    """What a code object was compiled for; `generic_version` is None where its ELF header was not read."""

    target: TargetId
    generic_version: int | None = None


class Match(msgspec.Struct, frozen=True):
    """Which configurations of an agent a set of code objects serves, and how.

    :ivar served: the configurations (all features set) that have code.
    :ivar total: how many configurations the agent may have.
    :ivar via: how each served configuration gets its code: native, generic or spirv.
    """

    served: tuple[TargetId, ...]
    total: int
    via: tuple[str, ...]


def sort_key(target: TargetId | str) -> tuple[int, int, int, int, str]:
    """Order by version (gfx90a before gfx1030), generics after the processors of their family, the unknown last."""
    text = str(target)
    processor = text.partition(":")[0]
    if found := _NUMBERED.match(processor):
        return (int(found[1]), 0, int(found[2], 16), int(found[3], 16), text)
    if found := _GENERIC.match(processor):
        return (int(found[1]), 1, int(found[2] or 0), 0, text)
    return (1 << 30, 0, 0, 0, text)


def known_processors_first(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of processors in order; at most 256, those that relink knows first: no real file names a tenth of that."""
    known = table().processors
    some = sorted(set(names), key=lambda name: (name not in known, name))[:_MAX_PROCESSORS]
    return tuple(sorted(some, key=sort_key))


@functools.lru_cache(maxsize=4096)
def parse_target_id(text: str) -> TargetId:
    """Parse ``processor(:feature±)*`` into canonical form; unknown processors and features are kept.

    :raises UsageError: it is not of that form, or a feature is named twice.
    """
    processor, *parts = text.split(":")
    features: dict[str, bool] = {}
    for part in parts:
        found = _FEATURE.match(part)
        if found is None or found[1] in features:
            raise UsageError(
                f"{text[:200]!r} is no target id: {part[:80]!r} must be a feature once, with + or -"
            )
        features[found[1]] = found[2] == "+"
    if not _PROCESSOR.match(processor):
        raise UsageError(f"{text[:200]!r} is no target id: it must begin with a processor, such as gfx1030")
    return TargetId(processor, tuple(sorted(features.items())))


@functools.lru_cache(maxsize=4096)
def parse_bundle_id(text: str) -> tuple[TargetId | None, bool]:
    """Parse ``<kind>-<ISA name>`` as comgr does (comgr-metadata.cpp, lookUpCodeObject). Never raises.

    Returns the target, None for host entries and for ids that make no sense, and whether the HIP runtime would take the entry.

    An ISA name has the triple ``amdgcn-amd-amdhsa-`` and no environment. Old compilers wrote one dash less: comgr takes no
    such code. A NUL byte at the end is part of the id for comgr of ROCm 7.2.4, which takes no such code; later sources drop it.
    """
    kind, _, isa = text.partition("-")
    target = None
    if kind != "host" and isa in _SPIRV_ISAS:
        target = TargetId(SPIRV)
    elif kind != "host" and isa.startswith(_ISA) and not isa.startswith(_ISA + SPIRV):
        try:
            target = parse_target_id(isa.removeprefix(_ISA))
        except UsageError:
            target = None
    return target, target is not None and kind in HIP_KINDS


def configurations(agent: TargetId) -> tuple[TargetId, ...]:
    """Return every definite form the agent may have: unknown features both on and off.

    A processor that is not in the table is assumed to have both sramecc and xnack.
    """
    has = table().features(agent.processor)
    if has is None:
        has = ("sramecc", "xnack")
    named = dict(agent.features)
    choices = [[named[name]] if name in named else [False, True] for name in has]
    return tuple(
        TargetId(agent.processor, tuple(zip(has, values, strict=True)))
        for values in itertools.product(*choices)
    )


def match(codes: Iterable[CodeTarget], agent: TargetId) -> Match:
    """Return which configurations of `agent` at least one of `codes` runs on.

    Native code is preferred to generic code, generic code to SPIR-V, as CLR does.
    """
    return _match(frozenset(codes), agent)


# Few files differ, and each is asked for every processor several times.
@functools.lru_cache(maxsize=1024)
def _match(codes: frozenset[CodeTarget], agent: TargetId) -> Match:
    wanted = configurations(agent)
    served, via = [], []
    generics = {name for name, generic in table().generics.items() if agent.processor in generic.members}
    names = {agent.processor, SPIRV, *generics}
    near = [code for code in codes if code.target.processor in names]
    for definite in wanted:
        kinds = {kind for code in near if (kind := _runs(code, definite))}
        if kinds:
            served.append(definite)
            via.append(next(kind for kind in ("native", "generic", "spirv") if kind in kinds))
    return Match(tuple(served), len(wanted), tuple(via))


def _runs(code: CodeTarget, agent: TargetId) -> str | None:
    """Return how `code` runs on a definite agent: native, generic, spirv, or None."""
    if code.target.processor == SPIRV:
        return "spirv"
    values = dict(agent.features)
    if any(values.get(name) != on for name, on in code.target.features):
        return None
    if code.target.processor == agent.processor:
        return "native"
    generic = table().generics.get(code.target.processor)
    joined = generic.members.get(agent.processor) if generic else None
    if joined is None or (code.generic_version is not None and code.generic_version < joined):
        return None
    return "generic"


def processor_for(text: str) -> TargetId:
    """Return the target id that a user means: a target id, or a product name such as ``RX 6750 XT``.

    :raises UsageError: neither a target id nor a product in the table.
    """
    wanted = re.sub(r"\b(amd|radeon|instinct)\b|[\s_()-]+", "", text.lower())
    for processor in table().processors.values():
        if any(re.sub(r"\b(radeon)\b|[\s_()-]+", "", name.lower()) == wanted for name in processor.products):
            return TargetId(processor.name)
    target = parse_target_id(text.strip().lower())
    if sort_key(target)[0] == 1 << 30 and target.processor not in table().processors:
        raise UsageError(
            f"{text[:200]!r} is neither a gfx processor nor a product relink knows; give --gpu gfxNNNN"
        )
    return target
